"""Findings about a KubeSchedulerConfiguration, given as the parsed file, that does not fit the extender's settings.

https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from extender.doctor.facts import Finding
from extender.model.units import Duration
from extender.rules import catalog
from extender.settings.configuration import Settings
from extender.settings.rules import ScoringStrategy
from extender.verbs.prioritize import has_scores

Document = Mapping[str, Any]

_LARGEST_WEIGHT: Final = 10
_DEFAULT_TIMEOUT: Final = 5.0
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_CHECK: Final = "scheduler"

SAMPLED_PERCENTAGE: Final = 2
"""The recommended percentageOfNodesToScore in offload mode; see "Sampling" in config/explanation/placement.md."""
_LEAST_SAMPLED: Final = 100  # kube-scheduler samples no fewer nodes (minFeasibleNodesToFind)
_ALL, _LARGE = 100, 1000  # of percent; nodes that a scheduler filters for each pod without being slow
_FATAL: Final = ": kube-scheduler does not start with it"
_LEAST_ALLOCATED: Final = "LeastAllocated"


def examine_scheduler(document: Document, settings: Settings, nodes: int = 0) -> list[Finding]:
    """Every finding. `nodes`: how many nodes the cluster has, 0 if unknown."""
    if document.get("kind") != "KubeSchedulerConfiguration":
        return [
            _error(
                f"kind is {document.get('kind')}, not KubeSchedulerConfiguration", "give the scheduler's --config file"
            )
        ]
    entries = document.get("extenders") or []
    unread = list(examine_fields(document))
    ours = entry_of(entries, settings)
    if ours is None:
        remedy = "add the extenders entry that `extender config generate` prints"
        return [*unread, _error(f"none of the {len(entries)} extenders has the port and paths of this service", remedy)]
    return [
        *unread,
        *_verbs(ours, settings),
        *_transport(ours, settings),
        *_weight(ours),
        *_limits(ours, settings),
        *_fallback(ours, settings),
        *_plugins(document, settings),
        *_strategy(document, settings),
        *_sampling(document, settings, nodes),
    ]


def entry_of(entries: Sequence[Document], settings: Settings) -> Document | None:
    """The extenders entry with the port of this service, else the only entry."""
    port = settings.server.bind_address.port
    # Behind a Service the port of the URL is another one, so a single entry is taken to be ours.
    at_port = [entry for entry in entries if _port(entry) == port]
    if at_port:
        return at_port[0]
    return entries[0] if len(entries) == 1 and entries[0].get("filterVerb") else None


def _port(entry: Document) -> int | None:
    try:
        return urlsplit(str(entry.get("urlPrefix", ""))).port
    except ValueError:
        return None


def _verbs(entry: Document, settings: Settings) -> Iterator[Finding]:
    paths, prefix = settings.server.paths, urlsplit(str(entry.get("urlPrefix", ""))).path.rstrip("/")
    port = settings.server.bind_address.port
    if port and _port(entry) != port:
        yield _warning(
            f"urlPrefix is {entry.get('urlPrefix')}, but the extender listens on port {port}",
            "nothing to do behind a Service with another port; else correct urlPrefix",
        )
    for field, path, need in (
        ("filterVerb", paths.filter, "set it: without it the extender decides nothing"),
        (
            "prioritizeVerb",
            paths.prioritize,
            "set it: without it preferred terms and soft spread have no effect",
        ),
        ("preemptVerb", paths.preempt, "set it: without it the scheduler preempts on nodes that the extender rejects"),
    ):
        verb = entry.get(field)
        is_vain = field == "prioritizeVerb" and not has_scores(settings)
        if not verb:
            if not is_vain:
                yield (_error if field == "filterVerb" else _warning)(f"{field} is missing", need)
            continue
        if is_vain:
            problem = f"{field} is set, but with placement decisive every answer to it is empty"
            yield _info(problem, "remove it: it costs a call for each pod without constraints")
        yield from _path(field, f"{prefix}/{str(verb).lstrip('/')}", path)
    if bind := entry.get("bindVerb"):
        if paths.bind:
            yield from _path("bindVerb", f"{prefix}/{str(bind).lstrip('/')}", paths.bind)
        else:
            problem = "bindVerb is set, but the extender does not bind (server.paths.bind is empty): no pod is bound"
            yield _error(problem, "remove bindVerb; or set server.paths.bind, and add deploy/bind to the overlay")
    if entry.get("managedResources"):
        problem = "managedResources is set: the scheduler calls the extender only for pods that request them"
        yield _warning(problem, "remove it")


def _path(field: str, leads: str, answers: str) -> Iterator[Finding]:
    if leads != answers:
        problem = f"{field} leads to {leads}, but the extender answers at {answers}: every call gets 404"
        yield _error(problem, "make urlPrefix and the verb together equal to server.paths")


def _transport(entry: Document, settings: Settings) -> Iterator[Finding]:
    address, tls = urlsplit(str(entry.get("urlPrefix", ""))), entry.get("tlsConfig") or {}
    secure = address.scheme == "https" or bool(entry.get("enableHTTPS"))
    if secure != bool(settings.server.tls.cert_file):
        ours = "HTTPS" if settings.server.tls.cert_file else "plain HTTP"
        yield _error(f"urlPrefix is {entry.get('urlPrefix')}, but the extender serves {ours}", "use the same for both")
    if secure and (tls.get("insecure") or not (tls.get("caFile") or tls.get("caData"))):
        problem = "https without a CA: kube-scheduler does not verify the extender's certificate, and does not log that"
        yield _error(problem, "set tlsConfig.caFile or caData, and remove insecure")
    if secure and not entry.get("enableHTTPS"):
        yield _error("urlPrefix is https but enableHTTPS is not set: tlsConfig is not used", "set enableHTTPS: true")
    if secure and settings.server.tls.client_ca_file and not (tls.get("certFile") or tls.get("certData")):
        yield _error("the extender requires a client certificate, but tlsConfig has none", "set certFile and keyFile")
    if not secure and address.hostname and address.hostname not in _LOCAL:
        yield _warning(f"requests go to {address.hostname} in plain HTTP", "set server.tls (`extender certs`)")
    if address.hostname and ".svc" in f"{address.hostname}.":
        problem = f"only cluster DNS resolves {address.hostname}, and a scheduler on the host network does not use it"
        yield _info(problem, "use the Service's clusterIP for such a scheduler")


def _weight(entry: Document) -> Iterator[Finding]:
    # Without a prioritizeVerb kube-scheduler ignores the weight.
    weight = entry.get("weight", 1) if entry.get("prioritizeVerb") else 1
    if not isinstance(weight, int) or weight < 1:
        yield _error(f"weight is {weight}: kube-scheduler rejects it with a prioritizeVerb", "set 1")
    elif weight > _LARGEST_WEIGHT:
        problem = f"weight is {weight}: one point of the extender counts {weight * 10}, and a plugin gives at most 100"
        yield _warning(problem, "set 1 to 10")


def _limits(entry: Document, settings: Settings) -> Iterator[Finding]:
    if not entry.get("nodeCacheCapable") and misspelt(entry, "nodeCacheCapable") is None:
        yield _warning("nodeCacheCapable is off: every request contains whole nodes", "set nodeCacheCapable: true")
    limit = _seconds(entry.get("httpTimeout"))
    if limit is not None and limit <= settings.server.request_timeout:
        problem = (
            f"httpTimeout ({limit:g}s) is not longer than server.requestTimeout ({settings.server.request_timeout})"
        )
        yield _warning(problem, "make it a second longer, so that the scheduler gets an answer before it times out")


def _seconds(text: object) -> float | None:
    """The seconds of a Go duration, the scheduler's default if there is none; None if `examine_fields` reports it."""
    if text is None:
        return _DEFAULT_TIMEOUT
    try:
        return float(Duration.parse(text)) if isinstance(text, str) else None
    except ValueError:
        return None


def _fallback(entry: Document, settings: Settings) -> Iterator[Finding]:
    down = "while the extender is down"
    if not entry.get("ignorable"):
        if settings.mode == "augment" and not (settings.quota.rejects or settings.schedulers == "many"):
            problem = f"ignorable is off in augment mode: {down} no pod is placed"
            yield _warning(problem, "set ignorable: true; the in-tree plugins still apply the constraints")
    elif settings.mode == "offload":
        problem = f"ignorable is on in offload mode: {down} pods are placed without their constraints"
        yield _error(problem, "set ignorable: false")
    elif settings.schedulers == "many":
        problem = f"ignorable is on with schedulers many: {down} schedulers give one room away twice"
        yield _error(problem, "set ignorable: false")
    elif settings.quota.rejects:
        problem = f"ignorable is on with quota.enabled: {down} pods are placed over their quotas"
        yield _warning(problem, "set ignorable: false")


def _plugins(document: Document, settings: Settings) -> Iterator[Finding]:
    # Extenders apply to all profiles, so each profile must fit the mode.
    profiles = document.get("profiles") or [{"schedulerName": "default-scheduler"}]
    for profile in profiles:
        name, plugins = profile.get("schedulerName", "default-scheduler"), profile.get("plugins") or {}
        everywhere = _disabled(plugins, "multiPoint")
        for plugin, rule in catalog.replaced_plugins():
            is_off = plugin in everywhere or "*" in everywhere
            ours = settings.mode == "offload" and rule.is_enabled(settings.rules)
            if ours and not is_off:
                # Disabled at filter and score only, the plugin still recounts all pods in preFilter.
                partly = plugin in _disabled(plugins, "filter") | _disabled(plugins, "score")
                state = "disabled at some extension points only" if partly else "enabled"
                problem = f"profile {name}: {plugin} is {state}, so it counts all pods as well as the extender"
                yield _warning(problem, f"disable {plugin} under plugins.multiPoint")
            if is_off and not ours:
                problem = f"profile {name}: {plugin} is disabled, and the extender does not decide in its place"
                yield _error(problem, "enable it, or use mode offload with that rule enabled")


def _strategy(document: Document, settings: Settings) -> Iterator[Finding]:
    """Where the node of a decisive answer is chosen by other resources than the profile chooses by."""
    ours = settings.answers.scoring_strategy
    if settings.placement != "decisive" or ours == "Ignored":
        return
    for profile in document.get("profiles") or ():
        theirs = _scoring_strategy(profile)
        if theirs != ours:
            name = profile.get("schedulerName", "default-scheduler")
            problem = f"profile {name}: NodeResourcesFit scores by {theirs}, and answers.scoringStrategy is {ours}"
            remedy = "use the same for both: pods with constraints are placed by the second, all others by the first"
            if theirs not in get_args(ScoringStrategy):
                remedy = "set answers.scoringStrategy to the nearer of LeastAllocated and MostAllocated, or to Ignored"
            yield _info(problem, remedy)


def _scoring_strategy(profile: Document) -> str:
    """`scoringStrategy.type` of NodeResourcesFitArgs, LeastAllocated where it is not set."""
    for each in profile.get("pluginConfig") or ():
        if isinstance(each, Mapping) and each.get("name") == "NodeResourcesFit":
            strategy = (each.get("args") or {}).get("scoringStrategy") or {}
            return str(strategy.get("type") or _LEAST_ALLOCATED)
    return _LEAST_ALLOCATED


def _disabled(plugins: Document, point: str) -> set[str]:
    return {str(entry.get("name")) for entry in (plugins.get(point) or {}).get("disabled") or []}


def _sampling(document: Document, settings: Settings, nodes: int) -> Iterator[Finding]:
    is_offload, elsewhere = settings.mode == "offload", settings.rejected_pods.nominate_elsewhere
    share = document.get("percentageOfNodesToScore") or 0
    if not elsewhere and is_offload and share != _ALL:
        problem = (
            "the scheduler samples the nodes and rejectedPods.nominateElsewhere is off: a pod that fits few nodes may "
            "wait long"
        )
        yield _warning(problem, "enable rejectedPods.nominateElsewhere, or set percentageOfNodesToScore: 100")
        return
    own = {
        f"profile {each.get('schedulerName', 'default-scheduler')}: ": each for each in document.get("profiles") or ()
    }
    for whose, section in {"": document, **own}.items():
        given = section.get("percentageOfNodesToScore") or 0
        if given * nodes > _ALL * max(_LARGE, _adaptive(nodes)):
            problem = f"{whose}percentageOfNodesToScore is {given}: the scheduler filters {given * nodes // _ALL} of {nodes} nodes for each pod"
            remedy = f"set {SAMPLED_PERCENTAGE}" if is_offload else "remove it"
            found = "finds" if elsewhere else "enabled too finds"
            yield _warning(problem, f"{remedy}: rejectedPods.nominateElsewhere {found} nodes outside of the sample")
        elif not whose and elsewhere and is_offload and given != SAMPLED_PERCENTAGE and nodes > _LEAST_SAMPLED:
            yield _info(
                f"percentageOfNodesToScore is {given or 'not set'}, {SAMPLED_PERCENTAGE} is recommended in offload mode",
                f"set it to {SAMPLED_PERCENTAGE}, unless many pods prefer few nodes (config/explanation/placement.md, Sampling)",
            )


def _adaptive(nodes: int) -> int:
    """How many nodes kube-scheduler filters where no percentage is set (numFeasibleNodesToFind)."""
    return nodes * max(5, 50 - nodes // 125) // _ALL


def _error(problem: str, remedy: str) -> Finding:
    return Finding("error", _CHECK, problem, remedy)


def _warning(problem: str, remedy: str) -> Finding:
    return Finding("warning", _CHECK, problem, remedy)


def _info(problem: str, remedy: str) -> Finding:
    return Finding("info", _CHECK, problem, remedy)


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


_TOP: Final = _fields(
    "apiVersion clientConnection delayCacheUntilActive enableContentionProfiling enableProfiling extenders kind leaderElection "
    "parallelism percentageOfNodesToScore podInitialBackoffSeconds podMaxBackoffSeconds profiles"
)
_CONNECTION: Final = _fields("acceptContentTypes burst contentType kubeconfig qps")
_PROFILE: Final = _fields("percentageOfNodesToScore pluginConfig plugins schedulerName")
_EXTENDER: Final = _fields(
    "bindVerb enableHTTPS filterVerb httpTimeout ignorable managedResources nodeCacheCapable preemptVerb prioritizeVerb "
    "tlsConfig urlPrefix weight"
)
_TLS: Final = _fields("caData caFile certData certFile insecure keyData keyFile serverName")


def examine_fields(document: Document) -> Iterator[Finding]:
    """One finding for each such field, in the sections that concern an extender."""
    yield from _unknown(document, _TOP, "")
    yield from _unknown(document.get("clientConnection"), _CONNECTION, "clientConnection.")
    for number, profile in enumerate(document.get("profiles") or ()):
        yield from _unknown(profile, _PROFILE, f"profiles[{number}].")
    for number, entry in enumerate(document.get("extenders") or ()):
        path = f"extenders[{number}]."
        yield from _unknown(entry, _EXTENDER, path)
        yield from _unknown(entry.get("tlsConfig"), _TLS, f"{path}tlsConfig.")
        yield from _duration(entry.get("httpTimeout"), f"{path}httpTimeout")


def misspelt(section: Document, name: str) -> str | None:
    """A field that differs from `name` only in case; None if there is none."""
    return next((field for field in section if field != name and field.lower() == name.lower()), None)


def _unknown(section: object, known: frozenset[str], path: str) -> Iterator[Finding]:
    for field in section if isinstance(section, Mapping) else ():
        if field not in known:
            yield _error(
                f"{path}{field} is not a field of KubeSchedulerConfiguration{_FATAL}", _suggestion(field, known)
            )


def _suggestion(field: str, known: frozenset[str]) -> str:
    # A wrong case is the most frequent mistake, so names are compared without it.
    by_case = {name.lower(): name for name in known}
    close = get_close_matches(field.lower(), by_case, n=1, cutoff=0.8)
    return f"write {by_case[close[0]]}" if close else "remove it"


def _duration(value: object, path: str) -> Iterator[Finding]:
    if value is not None and not isinstance(value, str):
        yield _error(f"{path} is the number {value} without a unit{_FATAL}", f"write {value}s")
    elif isinstance(value, str):
        try:
            Duration.parse(value)
        except ValueError as error:
            yield _error(f"{path}: {error}{_FATAL}", "write a number with a unit, such as 5s")

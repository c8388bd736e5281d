"""Findings about a KubeSchedulerConfiguration: faults with which kube-scheduler does not start, and conflicts with our settings.

https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from extender.doctor.facts import LOCAL, Finding
from extender.doctor.scheduler_validation import CHECK, FATAL, validate
from extender.doctor.score_plugins import examine_scores
from extender.model.documents import DocumentError, write_document
from extender.rules import catalog
from extender.rules.rule import Rule
from extender.settings.configuration import Settings
from extender.settings.rules import DefaultConstraint
from extender.verbs.prioritize import has_scores
from extender.wire.scheduler_config import (
    API_VERSION,
    Extender,
    InterPodAffinityArgs,
    KubeSchedulerConfiguration,
    PodTopologySpreadArgs,
    Profile,
    read_scheduler_config,
)

_LARGEST_WEIGHT: Final = 10
_DEFAULT_TIMEOUT: Final = 5.0
_POINTS: Final = ("preFilter", "filter", "preScore", "score")  # of each plugin that a rule replaces

SAMPLED_PERCENTAGE: Final = 2
"""The recommended percentageOfNodesToScore in offload mode; see "Sampling" in config/explanation/placement.md."""
_LEAST_SAMPLED: Final = 100  # kube-scheduler samples no fewer nodes (minFeasibleNodesToFind)
_ALL, _LARGE = 100, 1000  # in percent; and how many nodes a scheduler filters for each pod without being slow
_SUGGESTION: Final = re.compile(r'(?P<problem>.*), did you mean "(?P<name>\w+)"\?')


def read_scheduler(document: object) -> tuple[KubeSchedulerConfiguration | None, list[Finding]]:
    """The configuration in a parsed file, None if kube-scheduler cannot read it; and the faults with which it does not start."""
    try:
        config = read_scheduler_config(document)
    except DocumentError as error:
        return None, [_unreadable(problem) for problem in error.problems]
    return config, list(validate(config))


def _unreadable(problem: str) -> Finding:
    if match := _SUGGESTION.fullmatch(problem):
        return _error(f"{match['problem']}{FATAL}", f"write {match['name']}")
    remedies = {
        "kind is": "give the scheduler's --config file",
        "apiVersion is": f"set {API_VERSION}, and what that version has of the fields",
    }
    remedy = next((text for start, text in remedies.items() if problem.startswith(start)), "")
    other = "remove it" if problem.endswith(": unknown field") else "correct it: kube-scheduler reads its file strictly"
    return _error(f"{problem}{FATAL}", remedy or other)


def examine_scheduler(
    config: KubeSchedulerConfiguration, settings: Settings | None, nodes: int = 0, url: str = ""
) -> list[Finding]:
    """All findings.

    - ``nodes``: how many nodes the cluster has, 0 if unknown.
    - ``url``: where the service answers.
    - ``settings``: None if not known; then only faults are found that are faults with any settings.
    """
    ours = entry_of(config.extenders, settings or Settings(), url)
    if ours is None:
        return [_without_entry(len(config.extenders), is_sure=settings is not None or not config.extenders)]
    alone = [*_connection(ours), *_weight(ours), *_nodes_in_calls(ours)]
    if settings is None:
        return [*alone, *_lost_arguments(config, None)]
    return [
        *_verbs(ours, settings),
        *_transport(ours, settings),
        *alone,
        *_timeout(ours, settings),
        *_fallback(ours, settings),
        *_plugins(config, settings),
        *_lost_arguments(config, settings),
        *examine_scores(config, ours, settings),
        *_sampling(config, settings, nodes),
    ]


def _without_entry(others: int, *, is_sure: bool) -> Finding:
    remedy = "add the extenders entry that `extender config generate` prints"
    if others:
        remedy += ", and keep the entries of other extenders"
    if is_sure:
        return _error(f"none of the {others} extenders has the port and paths of this service", remedy)
    problem = f"none of the {others} extenders has the port and paths that this service has by default"
    return _warning(problem, f"{remedy}; where the service has others, compare with its file by --config")


def entry_of(entries: Sequence[Extender], settings: Settings, url: str = "") -> Extender | None:
    """The extenders entry of this service: the entry with its port, else the only entry that leads to its paths."""
    # A flag may have given the service another port than its settings have.
    ports = {settings.server.bind_address.port, _address(Extender(url_prefix=url)).port} - {0, None}
    at_port = [entry for entry in entries if _address(entry).port in ports]
    if at_port:
        return at_port[0]
    # Behind a Service the port of the URL is another one.
    alike = [entry for entry in entries if _leads_here(entry, settings)]
    return alike[0] if len(alike) == 1 else None


def _leads_here(entry: Extender, settings: Settings) -> bool:
    paths = settings.server.paths
    verbs = ((entry.filter_verb, paths.filter), (entry.preempt_verb, paths.preempt))
    is_like = any(verb and _path_of(entry, verb) == path for verb, path in verbs)
    # Another extender: it manages some resources, at another port of this machine, and has a verb of the same name.
    return is_like and not (entry.managed_resources and _address(entry).hostname in LOCAL)


def _address(entry: Extender) -> SplitResult:
    """The parts of urlPrefix; empty if it is no URL."""
    try:
        parts = urlsplit(entry.url_prefix)
        _ = parts.port
    except ValueError:
        return SplitResult("", "", "", "", "")
    return parts


def _path_of(entry: Extender, verb: str) -> str:
    return f"{_address(entry).path.rstrip('/')}/{verb.lstrip('/')}"


def _verbs(entry: Extender, settings: Settings) -> Iterator[Finding]:
    paths, port = settings.server.paths, settings.server.bind_address.port
    if port and _address(entry).port != port:
        yield _warning(
            f"urlPrefix is {entry.url_prefix}, but the extender listens on port {port}",
            "nothing to do behind a Service with another port; else correct urlPrefix",
        )
    for field, verb, path, need in (
        ("filterVerb", entry.filter_verb, paths.filter, "set it: without it the extender decides nothing"),
        (
            "prioritizeVerb",
            entry.prioritize_verb,
            paths.prioritize,
            "set it, and weight: 1: without it preferred terms and soft spread have no effect",
        ),
        (
            "preemptVerb",
            entry.preempt_verb,
            paths.preempt,
            "set it: without it the scheduler preempts on nodes that the extender rejects",
        ),
    ):
        # A prioritizeVerb is not needed, and costs calls, where every answer to it would be empty.
        is_vain = field == "prioritizeVerb" and not has_scores(settings)
        if not verb:
            if not is_vain:
                yield (_error if field == "filterVerb" else _warning)(f"{field} is missing", need)
            continue
        if is_vain:
            problem = f"{field} is set, but with placement decisive every answer to it is empty"
            yield _info(problem, "remove it: it costs a call for each pod without constraints")
        yield from _path(field, _path_of(entry, verb), path)
    if entry.bind_verb:
        if paths.bind:
            yield from _path("bindVerb", _path_of(entry, entry.bind_verb), paths.bind)
        else:
            problem = "bindVerb is set, but the extender does not bind (server.paths.bind is empty): no pod is bound"
            yield _error(
                problem, "remove bindVerb; or set server.paths.bind, and add `components: [../../bind]` to your overlay"
            )
    yield from _managed(entry, settings)


def _managed(entry: Extender, settings: Settings) -> Iterator[Finding]:
    if not entry.managed_resources:
        return
    problem = "managedResources is set: the scheduler calls the extender only for pods that request them"
    if settings.mode == "offload":
        yield _error(f"{problem}, and places all others without their constraints", "remove it")
    else:
        yield _warning(problem, "remove it")


def _path(field: str, leads: str, answers: str) -> Iterator[Finding]:
    if leads != answers:
        problem = f"{field} leads to {leads}, but the extender answers at {answers}: every call gets 404"
        yield _error(problem, "make urlPrefix and the verb together equal to server.paths")


def _is_secure(entry: Extender) -> bool:
    """Whether kube-scheduler calls by HTTPS. The scheme alone decides; enableHTTPS sets no scheme."""
    return _address(entry).scheme == "https"


def _connection(entry: Extender) -> Iterator[Finding]:
    # tlsConfig counts with and without enableHTTPS, which only switches the verification off where no CA is set
    # (makeTransport of kube-scheduler's extender.go).
    address, secure, tls = _address(entry), _is_secure(entry), entry.tls_config
    if secure and not tls.has_ca and (entry.enable_https or tls.insecure):
        problem = "https without a CA: kube-scheduler does not verify the extender's certificate, and does not log that"
        yield _error(problem, "set tlsConfig.caFile or caData, and remove insecure")
    elif secure and not tls.has_ca:
        problem = (
            "https without a CA: kube-scheduler verifies the extender's certificate with the CAs of its own machine"
        )
        yield _warning(problem, "set tlsConfig.caFile or caData, unless one of these CAs has signed the certificate")
    if entry.enable_https and not secure:
        problem = "enableHTTPS is set but urlPrefix is not https: kube-scheduler calls in plain HTTP"
        yield _warning(problem, "write https:// in urlPrefix, or remove enableHTTPS")
    if not secure and address.hostname and address.hostname not in LOCAL:
        remedy = "set server.tls (`extender certs`), and https:// in urlPrefix with tlsConfig"
        yield _warning(f"requests go to {address.hostname} in plain HTTP", remedy)
    # The static pod of kube-scheduler has hostNetwork and dnsPolicy ClusterFirst, which then means the DNS of its node.
    if address.hostname and ".svc" in f"{address.hostname}.":
        problem = f"only cluster DNS resolves {address.hostname}, and a scheduler on the host network does not use it"
        yield _info(problem, "use the Service's clusterIP for such a scheduler")


def _transport(entry: Extender, settings: Settings) -> Iterator[Finding]:
    secure, tls = _is_secure(entry), settings.server.tls
    if secure != bool(tls.cert_file):
        ours = "HTTPS" if tls.cert_file else "plain HTTP"
        yield _error(f"urlPrefix is {entry.url_prefix}, but the extender serves {ours}", "use the same for both")
    if secure and tls.client_ca_file and not entry.tls_config.has_certificate:
        yield _error("the extender requires a client certificate, but tlsConfig has none", "set certFile and keyFile")


def _weight(entry: Extender) -> Iterator[Finding]:
    # Without a prioritizeVerb kube-scheduler ignores the weight.
    if entry.prioritize_verb and entry.weight > _LARGEST_WEIGHT:
        problem = (
            f"weight is {entry.weight}: one point of the extender counts {entry.weight * 10}, "
            "and a plugin gives at most 100"
        )
        yield _warning(problem, "set 1 to 10")


def _nodes_in_calls(entry: Extender) -> Iterator[Finding]:
    if not entry.node_cache_capable:
        yield _warning("nodeCacheCapable is off: every request contains whole nodes", "set nodeCacheCapable: true")


def _timeout(entry: Extender, settings: Settings) -> Iterator[Finding]:
    # After a timeout kube-scheduler does not read the extender's error, and the extender may have assumed a pod that is never bound.
    limit = entry.http_timeout or _DEFAULT_TIMEOUT
    if limit <= settings.server.request_timeout:
        problem = (
            f"httpTimeout ({limit:g}s) is not longer than server.requestTimeout ({settings.server.request_timeout})"
        )
        yield _warning(problem, "make it a second longer, so that the scheduler gets an answer before it times out")


def _fallback(entry: Extender, settings: Settings) -> Iterator[Finding]:
    # Ignorable: without the extender pods are placed by the in-tree plugins alone. That is right only in augment mode, and
    # only if the extender keeps no limit of its own (quota, room among several schedulers).
    down = "while the extender is down"
    if not entry.ignorable:
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


def _plugins(config: KubeSchedulerConfiguration, settings: Settings) -> Iterator[Finding]:
    # Extenders apply to all profiles, so each profile must fit the mode.
    for profile in config.all_profiles:
        for plugin, rule in catalog.replaced_plugins():
            active = _active_points(profile, plugin)
            if _replaces(settings, rule):
                if active:
                    # Disabled at filter and score only, the plugin still recounts all pods in preFilter.
                    state = "enabled" if len(active) == len(_POINTS) else "disabled at some extension points only"
                    problem = (
                        f"profile {profile.name}: {plugin} is {state}, so it counts all pods as well as the extender"
                    )
                    # What is enabled by name stays enabled, whatever is disabled.
                    named = any(plugin in plugin_set.enabled_names for _, plugin_set in profile.plugins.sets())
                    more = ", and remove it from each `enabled`" if named else ""
                    yield _warning(problem, f"disable {plugin} under plugins.multiPoint{more}")
            elif "filter" not in active:
                where = " at filter" if active else ""
                problem = f"profile {profile.name}: {plugin} is disabled{where}, and the extender does not decide in its place"
                yield _error(problem, "enable it, or use mode offload with that rule enabled")


def _active_points(profile: Profile, plugin: str) -> list[str]:
    return [point for point in _POINTS if profile.plugins.is_active(plugin, point)]


def _replaces(settings: Settings, rule: Rule) -> bool:
    """Whether the extender decides by this rule in place of a plugin."""
    return settings.mode == "offload" and rule.is_enabled(settings.rules)


def _lost_arguments(config: KubeSchedulerConfiguration, settings: Settings | None) -> Iterator[Finding]:
    """Arguments of disabled plugins that the rules in their place lack, as far as ``settings`` are known."""
    # Without known settings the defaults are compared, and the remedy says so.
    rules = dict(catalog.replaced_plugins())
    ours = Settings() if settings is None else settings
    for profile in config.all_profiles:
        for plugin, lost, section in (_lost_spread(profile, ours), _lost_affinity(profile, ours)):
            if not lost or _active_points(profile, plugin) or not _replaces(ours, rules[plugin]):
                continue
            has = "have" if lost[1:] or lost[0].endswith("s") else "has"
            problem = (
                f"profile {profile.name}: {' and '.join(lost)} of {plugin} {has} no effect, as the plugin is disabled"
            )
            remedy = f"set {section} of the extender, and restart it"
            yield _warning(problem, remedy if settings else f"unless the extender has it already, {remedy}")


def _lost_spread(profile: Profile, settings: Settings) -> tuple[str, list[str], str]:
    plugin, ours = "PodTopologySpread", settings.rules.topology_spread
    given = profile.arguments(PodTopologySpreadArgs)
    if given is None:
        return plugin, [], ""
    kind = given.defaulting_type or "System"
    wanted = [_spread_rule(write_document(constraint)) for constraint in given.default_constraints]
    present = [_spread_rule(write_document(constraint)) for constraint in ours.default_constraints]
    lost = ["defaultConstraints"] if wanted != present else []
    lost += ["defaultingType"] if kind != ours.defaulting_type and not lost else []
    section = msgspec.json.encode({"defaultingType": kind, "defaultConstraints": wanted}).decode()
    return plugin, lost, f"rules.topologySpread: {section}"


def _spread_rule(constraint: dict[str, Any]) -> dict[str, Any]:
    """The fields of a default constraint that the rule has too. Fields with their default value are left out."""
    usual = {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}
    names = (field.encode_name for field in msgspec.structs.fields(DefaultConstraint))
    fields = {name: constraint.get(name) for name in names}
    return {name: value for name, value in fields.items() if value is not None and value != usual.get(name)}


def _lost_affinity(profile: Profile, settings: Settings) -> tuple[str, list[str], str]:
    plugin, ours = "InterPodAffinity", settings.rules.inter_pod_affinity
    given = profile.arguments(InterPodAffinityArgs)
    if given is None:
        return plugin, [], ""
    wanted: dict[str, object] = {}
    if given.hard_pod_affinity_weight != ours.hard_pod_affinity_weight:
        wanted["hardPodAffinityWeight"] = given.hard_pod_affinity_weight
    if given.ignore_preferred_terms_of_existing_pods != ours.ignore_preferred_terms_of_existing_pods:
        wanted["ignorePreferredTermsOfExistingPods"] = given.ignore_preferred_terms_of_existing_pods
    return plugin, list(wanted), f"rules.interPodAffinity: {msgspec.json.encode(wanted).decode()}"


def _sampling(config: KubeSchedulerConfiguration, settings: Settings, nodes: int) -> Iterator[Finding]:
    is_offload, elsewhere = settings.mode == "offload", settings.rejected_pods.nominate_elsewhere
    share = config.percentage_of_nodes_to_score or 0
    if not elsewhere and is_offload and share != _ALL:
        problem = (
            "the scheduler samples the nodes and rejectedPods.nominateElsewhere is off: a pod that fits few nodes may "
            "wait long"
        )
        yield _warning(problem, "enable rejectedPods.nominateElsewhere, or set percentageOfNodesToScore: 100")
        return
    own = {f"profile {profile.name}: ": profile.percentage_of_nodes_to_score or 0 for profile in config.profiles}
    # Beside a profile with the recommended sample, a larger one is meant for pods that prefer few nodes.
    if is_offload and SAMPLED_PERCENTAGE in [value or share for value in own.values()]:
        own = {}
    for whose, given in {"": share, **own}.items():
        # Both sides are 100 times a number of nodes. A sample is too large above 1,000 nodes, and above the sample that
        # kube-scheduler takes by itself.
        if given * nodes > _ALL * max(_LARGE, _adaptive(nodes)):
            problem = f"{whose}percentageOfNodesToScore is {given}: the scheduler filters {given * nodes // _ALL} of {nodes} nodes for each pod"
            remedy = f"set {SAMPLED_PERCENTAGE}" if is_offload else "remove it"
            verb = "finds" if elsewhere else "enabled too finds"
            yield _warning(problem, f"{remedy}: rejectedPods.nominateElsewhere {verb} nodes outside of the sample")
        elif not whose and elsewhere and is_offload and given != SAMPLED_PERCENTAGE and nodes > _LEAST_SAMPLED:
            yield _info(
                f"percentageOfNodesToScore is {given or 'not set'}, {SAMPLED_PERCENTAGE} is recommended in offload mode",
                f"set it to {SAMPLED_PERCENTAGE}, and add the profile of `extender config generate` for pods that prefer few nodes",
            )


def _adaptive(nodes: int) -> int:
    """How many nodes kube-scheduler filters if no percentage is set (numFeasibleNodesToFind)."""
    return nodes * max(5, 50 - nodes // 125) // _ALL


def _error(problem: str, remedy: str) -> Finding:
    return Finding("error", CHECK, problem, remedy)


def _warning(problem: str, remedy: str) -> Finding:
    return Finding("warning", CHECK, problem, remedy)


def _info(problem: str, remedy: str) -> Finding:
    return Finding("info", CHECK, problem, remedy)

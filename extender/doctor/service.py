"""Findings about the running service, from `/readyz`, its metrics and its settings.

A counter does not show whether a failure is recent. So each failure is judged by the time of its last occurrence
(`extender_last_failure_timestamp_seconds`, `extender_last_api_write_timestamp_seconds`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from extender.doctor.certificate_faults import CertificateFault, certificate_fault, remedy_of_webhook
from extender.doctor.facts import RENEW, Facts, Finding, SchedulerCalls, Severity, granting
from extender.index.counts.namespace_budgets import OTHERS
from extender.model.answers.shadow import COMPARED, DIFFERING, RESULTS
from extender.model.units import ago, agreeing, counted
from extender.rules import catalog
from extender.settings.configuration import Settings, in_pod_of, mode_defaults, settings_document
from extender.wire.api_calls import API_CALLS

_SILENT_WATCH_SECONDS: Final = 120.0
_WEBHOOK_CERTIFICATE: Final = "webhook certificate"  # the readiness check
# The API server's text about a missing permission, in the readiness check of a kind or of the Lease.
_DENIED: Final = re.compile(r'cannot (?P<verb>[a-z]+) resource "(?P<resource>[a-z/]+)"')
_NO_CALL_SECONDS: Final = 1800.0
# kube-scheduler retries a failed pod within 10 s, and without other events flushes unschedulable pods after 5 min.
_RECENT_SECONDS: Final = 900.0
_FAILED_SHARE: Final = 0.01
_NEARLY_USED: Final = 0.6  # as the alert ExtenderNamespaceBudgetNearlyUsedUp
_WHOLE_NODE_BYTES: Final = 12_000
_BY_FLAG: Final = frozenset({"server.bindAddress", "logging.level"})  # a flag or a request can change them


def examine_service(facts: Facts) -> list[Finding]:
    """Every finding about the service. O(samples)."""
    return [
        *_unknown_settings(facts),
        *_readiness(facts),
        *_calls(facts),
        *_forms(facts),
        *_failures(facts),
        *_watches(facts),
        *_writes(facts),
        *_budgets(facts),
        *_shadow(facts),
        *_settings(facts),
    ]


def _unknown_settings(facts: Facts) -> Iterator[Finding]:
    if not facts.knows_settings:
        problem = "the settings of the extender are not known, so permissions, policies and the scheduler's configuration are not compared with them"
        remedy = "give the extender's configuration file with --config"
        yield Finding("info", "settings", problem, remedy)


def _readiness(facts: Facts) -> Iterator[Finding]:
    if facts.leader:
        remedy = "nothing to do: a standby decides nothing until it takes over; examine the leader with --url"
        yield Finding("info", "standby", f"this replica is a standby, the leader is {facts.leader}", remedy)
        return
    for name, problem in (facts.readiness or {}).items():
        if problem:
            remedy = "requests are answered with 503 until it passes; see the service's log"
            if name.startswith("webhook"):
                remedy = "the API server does not call this replica until it passes; see the service's log"
            if name == _WEBHOOK_CERTIFICATE and (fault := certificate_fault(problem)):
                remedy = remedy_of_webhook(fault, facts.settings.policies.webhook)
            if denied := _DENIED.search(problem):
                remedy = granting(denied["resource"], denied["verb"], facts.settings)
            yield Finding("error", "ready", f"readiness check {name} fails: {problem}", remedy)


def _calls(facts: Facts) -> Iterator[Finding]:
    """Whether kube-scheduler calls the service. A standby gets no calls."""
    # The most certain evidence first: 1. kube-scheduler's own messages; 2. no call at all; 3. no call for a while.
    failing = [] if facts.queue is None else list(_failed_calls(facts, facts.queue))
    yield from failing
    if facts.samples is None or facts.leader or failing:
        return
    if not facts.total("extender_requests_total", verb="filter"):
        yield _not_called(facts)
        return
    silent = facts.now - facts.latest("extender_last_request_timestamp_seconds")
    if silent > _NO_CALL_SECONDS:
        remedy = "nothing to do if no pod was pending; else check that the scheduler runs with its --config file"
        yield Finding("info", "called", f"the last request came {ago(silent)} ago", remedy)


class Fault(NamedTuple):
    """A fault between kube-scheduler and the service, and its remedy."""

    problem: str
    remedy: str


_RESTART: Final = "and restart kube-scheduler"
OTHER_CA: Final = Fault(
    "tlsConfig of the scheduler does not have the CA that signed the extender's certificate",
    f"put the CA that signed server.tls.certFile (ca.crt of `extender certs`) into tlsConfig.caFile, {_RESTART}",
)
_ONE_FOR_THE_NAME: Final = "make one for that name (`extender certs --out certs --names ${HOST:?}`)"
OF_CERTIFICATE: Final[Mapping[CertificateFault, Fault]] = {
    CertificateFault.EXPIRED: Fault(
        "the extender's certificate, or its CA, has expired",
        f"{RENEW}; the service reloads the files by itself",
    ),
    CertificateFault.NOT_YET_VALID: Fault(
        "the extender's certificate is not valid yet", "synchronize the clocks of both machines with NTP"
    ),
    CertificateFault.OTHER_CA: OTHER_CA,
    CertificateFault.OTHER_NAME: Fault(
        "the extender's certificate does not have the name in urlPrefix",
        f"{_ONE_FOR_THE_NAME}, or use a name that it has",
    ),
}
OF_CERTIFICATE_HERE: Final[Mapping[CertificateFault | None, str]] = {
    **{fault: text.remedy for fault, text in OF_CERTIFICATE.items()},
    CertificateFault.OTHER_CA: "give the CA that signed server.tls.certFile (ca.crt of `extender certs`) with --ca-file",
    CertificateFault.OTHER_NAME: f"{_ONE_FOR_THE_NAME}, or give a --url with a name that it has",
    None: "check that the service has server.tls; else write http:// in --url",
}
"""The remedies where this command is the client that rejects the certificate. None: its handshake fails before."""
OTHER_CLIENT: Final = Fault(
    "the extender rejects the scheduler's client certificate: another authority than server.tls.clientCAFile signed it",
    f"put a certificate that this CA signed (client.crt of `extender certs`) into tlsConfig.certFile and keyFile, {_RESTART}",
)
EXPIRED_CLIENT: Final = Fault(
    "the extender rejects the scheduler's client certificate: it has expired",
    f"renew tlsConfig.certFile and keyFile {RENEW.removeprefix('renew it ')}, {_RESTART}",
)
_REJECTED_CLIENT: Final = Fault(
    "the extender ends the connection: it rejects the scheduler's client certificate (of another authority, or expired)",
    f"{OTHER_CLIENT.remedy}; run doctor where these files are, and it says which",
)
_ENDED: Final = ("remote error: tls: ", "EOF", "connection reset", "broken pipe")  # the extender sends no alert
# Other faults by the text of Go's error. The first match counts.
_GO_FAULTS: Final = (
    (
        "x509: ",
        Fault("kube-scheduler rejects the extender's certificate", "make a new pair with `extender certs`"),
    ),
    ("HTTP response to HTTPS client", Fault("the extender serves plain HTTP", "set server.tls, or http in urlPrefix")),
    ("malformed HTTP", Fault("the extender serves HTTPS", "set https in urlPrefix, and set tlsConfig")),
    (
        "connection refused",
        Fault("nothing listens there", "start the extender, or correct the address and port in urlPrefix"),
    ),
    (
        "lookup ",
        Fault(
            "the scheduler cannot resolve the name", "use the Service's clusterIP, or its DNS where it has cluster DNS"
        ),
    ),
    (
        "",
        Fault("no answer comes", "look for a firewall or NetworkPolicy on the way, and compare httpTimeout"),
    ),
)
_NO_ANSWER: Final = re.compile(r'Post "(?P<url>[^"]+)": (?P<why>.+)')
_STATUS: Final = re.compile(r"failed (?P<verb>\S+) with extender at URL (?P<url>\S+), code (?P<code>\d+)")
_UNTRIED_SECONDS: Final = 15.0


def _failed_calls(facts: Facts, queue: SchedulerCalls) -> Iterator[Finding]:
    """Failed calls, by the messages of kube-scheduler in the conditions of pods; and whether kube-scheduler runs at all."""
    faults = [fault for message in queue.failed if (fault := _fault_in(message, facts))]
    for fault, pods in Counter(faults).items():
        problem = (
            f"kube-scheduler's calls fail, {counted(pods, 'pod')} {agreeing(pods, 'waits', 'wait')}: {fault.problem}"
        )
        yield Finding("error", "called", problem, fault.remedy)
    # A scheduler that runs tries a new pod at once. A try after the oldest untried pod was created shows that it runs.
    waits = facts.now - queue.untried_since
    if queue.untried and waits > _UNTRIED_SECONDS and queue.tried_at < queue.untried_since:
        # A usual cause: with --config kube-scheduler ignores --kubeconfig, and the file names another one.
        lost = f"; {queue.lost_kubeconfig} is not on this machine" if queue.lost_kubeconfig else ""
        problem = f"kube-scheduler has not tried {counted(queue.untried, 'pod')}, the oldest for {ago(waits)}: it does not run"
        remedy = f"see its log; with --config it reads only clientConnection.kubeconfig{lost}"
        yield Finding("error", "called", problem, remedy)


def _fault_in(message: str, facts: Facts) -> Fault | None:
    """The fault of a call, by a scheduler's message. None if the message is about something else."""
    if match := _NO_ANSWER.search(message):
        # The last part is empty and is in every text, so one always matches.
        other = next(fault for part, fault in _GO_FAULTS if part in match["why"])
        certificate = certificate_fault(match["why"])
        fault = other if certificate is None else OF_CERTIFICATE[certificate]
        # In TLS 1.3 the client finishes its handshake before the server rejects its certificate. It only sees that the connection ends.
        if facts.settings.server.tls.client_ca_file and any(ending in match["why"] for ending in _ENDED):
            fault = _REJECTED_CLIENT
        return Fault(f"{fault.problem} ({match[0]})", fault.remedy)
    if match := _STATUS.search(message):
        return Fault(f"{match[0]}", _remedy_of_status(match["code"], facts))
    return None


def _remedy_of_status(code: str, facts: Facts) -> str:
    paths = facts.settings.server.paths
    if code == "404" and not facts.knows_settings:
        return "correct urlPrefix and the verbs: the extender answers at server.paths of its configuration"
    if code == "404":
        answers = ", ".join(filter(None, (paths.filter, paths.prioritize, paths.preempt, paths.bind)))
        bind = "" if paths.bind else ", and remove bindVerb or set server.paths.bind"
        return f"correct urlPrefix and the verbs: the extender answers at {answers}{bind}"
    return _FAILURES.get(_REASONS.get(code, ""), "see the service's log")


_REASONS: Final = {"401": "unauthenticated", "403": "forbidden", "413": "too_large", "503": "not_ready"}


def _not_called(facts: Facts) -> Finding:
    """The finding that filter was never called, with the cause if the pods of the cluster show it.

    kube-scheduler calls an extender only if at least one node passes its own plugins.
    """
    never = "kube-scheduler has not called filter since the service started"
    if facts.queue is None:
        if facts.unread_pods:
            problem = f"{never}; it is unknown whether any pod waited for it: {facts.unread_pods}"
            remedy = "run this command as an account that may list pods in all namespaces"
            return Finding("warning", "called", problem, remedy)
        remedy = "create a pod; if the call is still missing, start the scheduler with the output of `extender config generate`"
        return Finding("error", "called", never, remedy)
    # Pods were placed since the service started, so a scheduler runs, and none of its requests came here.
    if facts.queue.scheduled and facts.deployment.schedulers > 1 and not facts.leads:
        # Beside each of these schedulers is an extender of its own, and only one scheduler works.
        problem = f"{never}; {facts.deployment.schedulers} pods have a scheduler beside the extender, and this one may stand by"
        remedy = "ask the pod whose scheduler holds the Lease: `kubectl placement doctor` finds it, if you may list the Leases of kube-system"
        return Finding("info", "called", problem, remedy)
    if facts.queue.scheduled:
        problem = f"{never}, but {counted(facts.queue.scheduled, 'pod')} {agreeing(facts.queue.scheduled, 'was', 'were')} bound meanwhile: it places pods without the extender"
        remedy = "put the output of `extender config generate` into the scheduler's --config file and restart it"
        return Finding("error", "called", problem, remedy)
    # An extender is not called for a pod that no node takes by the in-tree plugins.
    if facts.queue.rejected:
        problem = f'{never}: its own plugins reject every node first ("{facts.queue.rejected[0]}")'
        remedy = "remove the cause in the message, such as a taint or missing resources; then the extender is called"
        return Finding("info", "called", problem, remedy)
    problem = f"{never}, and no pod was bound meanwhile"
    return Finding("info", "called", problem, "nothing to do if no pod was pending; create one to test the call")


def _forms(facts: Facts) -> Iterator[Finding]:
    # Some requests with whole nodes are normal: a tool that simulates nodes sends them too.
    whole = facts.total("extender_requests_by_form_total", form="nodes")
    if whole > facts.total("extender_requests_by_form_total", form="names"):
        remedy = (
            "set nodeCacheCapable: true in the scheduler's extenders entry; a node has about 12 KB, a name 12 bytes"
        )
        yield Finding("warning", "names", "most requests contain whole nodes instead of names", remedy)


def _failures(facts: Facts) -> Iterator[Finding]:
    """Recent failures: the last request failed, or more than 1 % of all requests.

    No finding: a past outage, or a rejected client beside a scheduler whose requests are decided.
    """
    answered = facts.total("extender_requests_total")
    decided = facts.latest("extender_last_decision_timestamp_seconds")
    for reason, count in sorted(_by_reason(facts).items()):
        last = facts.latest("extender_last_failure_timestamp_seconds", reason=reason)
        if facts.now - last > _RECENT_SECONDS:
            continue
        when = f"{ago(facts.now - last)} ago"
        remedy = _FAILURES.get(reason, "see the service's log")
        # An error only if no request was decided after it. A later decision shows that the cause is gone.
        if last > decided:
            problem = f"the last request failed {when}: {reason} ({count:.0f} since the start)"
            yield Finding(_severity(reason), "failures", problem, remedy)
        elif count > answered * _FAILED_SHARE:
            problem = f"{count:.0f} of {answered:.0f} requests failed, the last one {when}: {reason}"
            yield Finding("info" if reason in _ACCESS else "warning", "failures", problem, remedy)


def _by_reason(facts: Facts) -> dict[str, float]:
    failures: dict[str, float] = {}
    for sample in facts.series("extender_request_failures_total"):
        if sample.value:
            failures[sample.labels["reason"]] = failures.get(sample.labels["reason"], 0) + sample.value
    return failures


def _severity(reason: str) -> Severity:
    return "error" if reason in _ACCESS else "info" if reason == "not_ready" else "warning"


_ACCESS: Final = frozenset({"unauthenticated", "forbidden"})
_FAILURES: Final = {
    "unauthenticated": "give kube-scheduler certFile and keyFile in tlsConfig, signed by server.tls.clientCAFile",
    "forbidden": "add the name in the client's certificate to the role in server.tls.clients",
    "too_large": "raise server.maxBodyBytes, or set nodeCacheCapable: true in the scheduler's extenders entry",
    "overloaded": "more than server.maxInFlight concurrent requests, or server.maxBindsInFlight of the verb bind; find the clients before you raise it",
    "not_ready": "requests came before the first lists were complete, or to a standby; normal after a start",
}


def _watches(facts: Facts) -> Iterator[Finding]:
    for sample in facts.series("extender_cache_lag_seconds"):
        # If a kind is not listed, the readiness check says why.
        if sample.value > _SILENT_WATCH_SECONDS and not (facts.readiness or {}).get(sample.labels["resource"]):
            resource, lag = sample.labels["resource"], ago(sample.value)
            problem = f"the watch of {resource} has had no event for {lag}; a bookmark comes every minute"
            remedy = "check the API server, and proxies in between that drop idle connections"
            yield Finding("warning", "watches", problem, remedy)
    for sample in facts.series("extender_unreadable_objects"):
        if sample.value > 0:
            problem = f"{sample.value:.0f} objects of {sample.labels['resource']} cannot be decoded: they count as last decoded, if ever"
            yield Finding("warning", "watches", problem, "the service's log names them; update the extender")


_ALLOWED: Final = ("ok", "notfound", "conflict")  # authorization comes first


def _writes(facts: Facts) -> Iterator[Finding]:
    """Calls that the API server has forbidden, and that it has not allowed since."""
    name = "extender_last_api_write_timestamp_seconds"
    for sample in facts.series(name):
        call, result = sample.labels["call"], sample.labels["result"]
        # A later result that only an allowed call has: the permission was granted meanwhile.
        is_over = any(facts.latest(name, call=call, result=allowed) > sample.value for allowed in _ALLOWED)
        if result != "forbidden" or is_over:
            continue
        problem = f"the API server forbids the service's call {call}, last {ago(facts.now - sample.value)} ago"
        row = next((row for row in API_CALLS if row.name == call), None)
        what = f"{row.resource}/{row.subresource}" if row and row.subresource else row.resource if row else ""
        remedy = granting(what, row.verb if row else "", facts.settings)
        remedy += "; the service's log has the API server's message"
        yield Finding("error", "writes", problem, remedy)


def _budgets(facts: Facts) -> Iterator[Finding]:
    """Namespaces where pods wait for the budget, or will soon. The metrics have only the namespaces that use most."""
    waiting = {
        sample.labels["pod_namespace"]: sample.value
        for sample in facts.series("extender_namespace_budget_waiting_pods")
        if sample.value > 0
    }
    remedy = "remove pods with constraints that it does not need, or raise limits.perNamespace; see config/explanation/limits.md"
    for namespace, pods in waiting.items():
        where = f"namespace {namespace}" if namespace != OTHERS else "other namespaces"
        yield Finding(
            "warning",
            "budget",
            f"{counted(round(pods), 'pod')} of {where} {agreeing(round(pods), 'waits', 'wait')} for its budget",
            remedy,
        )
    for sample in facts.series("extender_namespace_budget_used_ratio"):
        namespace, limit = sample.labels["pod_namespace"], sample.labels["limit"]
        # A namespace with waiting pods has a finding already.
        if sample.value >= _NEARLY_USED and namespace not in waiting:
            problem = f"namespace {namespace} uses {sample.value:.0%} of limits.perNamespace.{limit}"
            yield Finding("info", "budget", problem, remedy)


_ENOUGH_DECISIONS: Final = 100  # decisions of each rule, without decisions that an assumed pod may have influenced
_ENOUGH_SECONDS: Final = 86400.0


def _shadow(facts: Facts) -> Iterator[Finding]:
    """Whether shadow decisions agree, so that it is safe to switch to offload. The counts start with this process."""
    if not facts.settings.shadow or facts.samples is None or facts.leader:
        return
    name = "extender_shadow_decisions_total"
    of_result = {result: round(facts.total(name, result=result)) for result in RESULTS}
    compared, differ = (sum(of_result[result] for result in results) for results in (COMPARED, DIFFERING))
    problem = f"{counted(compared, 'decision')} compared, {differ} {agreeing(differ, 'differs', 'differ')}"
    # `differed`: a binding or the pod's condition shows that kube-scheduler has decided otherwise.
    if of_result["differed"]:
        remedy = "do not switch to offload; /debug/shadow lists the last ones, and config/how-to/prove-the-switch.md says how to read it"
        yield Finding("warning", "shadow", problem, remedy)
        return
    if differ:
        problem += ", all by filter requests alone, which no binding and no condition confirms"
        remedy = "look at the pods in /debug/shadow: another client than kube-scheduler may ask (server.tls.clients)"
        yield Finding("warning", "shadow", problem, remedy)
        return
    rules = {
        plugin: round(facts.total("extender_shadow_rule_decisions_total", rule=plugin, result="agreed"))
        for plugin, _ in catalog.replaced_plugins()
    }
    agreements = ", ".join(f"{plugin} {agreed}" for plugin, agreed in rules.items())
    few = [plugin for plugin, agreed in rules.items() if agreed < _ENOUGH_DECISIONS]
    since = facts.now - facts.total("process_start_time_seconds")
    if few:
        remedy = f"wait until {_ENOUGH_DECISIONS} of each agreed; a rule that no pod uses need not be proved"
    elif since < _ENOUGH_SECONDS:
        remedy = f"wait until a day has passed since the start, {ago(since)} ago; then it is safe to switch to offload"
    else:
        remedy = "it is safe to switch to offload: disable the plugins as config/how-to/prove-the-switch.md says"
    yield Finding("info", "shadow", f"{problem} ({agreements} agreed)", remedy)


def _settings(facts: Facts) -> Iterator[Finding]:
    settings, server = facts.settings, facts.settings.server
    # Only processes of this machine can connect to loopback.
    is_local = server.bind_address.host in {"127.0.0.1", "::1", "localhost"}
    if not is_local and not server.tls.client_ca_file:
        problem = f"the service answers every client that can connect to {server.bind_address}"
        remedy = "set server.tls with a clientCAFile and clients, or listen on loopback"
        yield Finding("warning", "exposure", problem, remedy)
    if server.tls.client_ca_file and not server.tls.clients.named:
        problem = "every client of server.tls.clientCAFile has every role"
        yield Finding("warning", "roles", problem, "name them in server.tls.clients: scheduler, metrics and admin")
    if settings.mode == "offload" and not settings.assumed_pods.enabled:
        problem = "assumedPods.enabled is false: two pods with anti-affinity can get the same node"
        yield Finding("warning", "assumed", problem, "set it to true; false is for measurements only")
    nodes = facts.total("extender_index_entries", kind="nodes")
    room = server.max_body_bytes / _WHOLE_NODE_BYTES
    # Only if whole nodes are sent at all: names of 5,000 nodes take 60 kB.
    if facts.total("extender_requests_by_form_total", form="nodes") and nodes > room:
        problem = f"server.maxBodyBytes is enough for about {room:.0f} whole nodes, but the cluster has {nodes:.0f}"
        remedy = "raise it, or set nodeCacheCapable: true in the scheduler's extenders entry"
        yield Finding("warning", "body", problem, remedy)


def examine_differences(configured: Settings, running: Settings) -> Iterator[Finding]:
    """One finding for each setting that differs. A setting that differs only because of the mode is part of the mode's finding."""
    # Some defaults depend on the pod of the service, such as its namespace. The file gets them as if it were read
    # there.
    theirs, ours = (_paths(settings_document(settings)) for settings in (running, in_pod_of(configured, running)))
    differing = [path for path, value in ours.items() if theirs.get(path) != value and path not in _BY_FLAG]
    followers: set[str] = set()
    if "mode" in differing:
        by_mode = mode_defaults(configured.mode)
        # Example: the file says offload and the service runs in augment mode. Then each default that depends on the
        # mode differs too.
        followers = {path for path in differing if path in by_mode and by_mode[path] == ours[path]}
    for path in differing:
        if path in followers:
            continue
        problem = f"{path} is {theirs.get(path)} in the running service but {ours[path]} in the file"
        if path == "mode" and followers:
            problem += f" ({', '.join(sorted(followers))} differ because of it)"
        yield Finding("warning", "configuration", problem, "restart the service: it reads the file only at its start")


def _paths(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            paths |= _paths(value, f"{prefix}{name}.")
        else:
            paths[f"{prefix}{name}"] = value
    return paths

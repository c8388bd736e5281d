"""Findings about the running service: what it says of itself in `/readyz`, in its metrics and in its settings.

Counters never fall, so a count alone says nothing of today: each failure is judged by when it last happened
(`extender_last_failure_timestamp_seconds`, `extender_last_api_write_timestamp_seconds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding, Severity, ago

_QUIET_SECONDS: Final = 120.0
FORBIDDEN_WATCH: Final = " rejected: 403 "  # what the readiness check of a kind says of a missing permission
_UNASKED_SECONDS: Final = 1800.0
_RECENT_SECONDS: Final = (
    900.0  # kube-scheduler repeats what failed within 10 s, informers of a quiet cluster within 5 min
)
_FAILED_SHARE: Final = 0.01
_WHOLE_NODE_BYTES: Final = 12_000


def examine_service(facts: Facts) -> list[Finding]:
    """Everything that the service shows to be wrong. O(samples)."""
    return [
        *_readiness(facts),
        *_calls(facts),
        *_forms(facts),
        *_failures(facts),
        *_feeds(facts),
        *_writes(facts),
        *_settings(facts),
    ]


def _readiness(facts: Facts) -> Iterator[Finding]:
    if facts.leader:
        remedy = "in order: a standby answers 503 and takes over when the leader ends; look at the leader with --url"
        yield Finding("info", "standby", f"this replica stands by for {facts.leader}", remedy)
        return
    for name, problem in (facts.readiness or {}).items():
        if problem:
            remedy = "requests are answered with 503 until it passes; the service's log says more"
            if FORBIDDEN_WATCH in problem:  # "watch of pods rejected: 403 ..."
                remedy = "grant the service's account that permission: deploy/base has the roles"
            yield Finding("error", "ready", f"readiness check {name} fails: {problem}", remedy)


def _calls(facts: Facts) -> Iterator[Finding]:
    """Whether kube-scheduler calls at all. A standby is not called, and says nothing about it."""
    if facts.samples is None or facts.leader:
        return
    if not facts.total("extender_requests_total", verb="filter"):
        yield _not_called(facts)
        return
    silent = facts.now - facts.latest("extender_last_request_timestamp_seconds")
    if silent > _UNASKED_SECONDS:
        remedy = "in order if no pod was to be placed; else see whether the scheduler runs with its --config file"
        yield Finding("info", "called", f"the last request came {ago(silent)} ago", remedy)


def _not_called(facts: Facts) -> Finding:
    """Why filter was never called, as far as the pods of the cluster tell.

    kube-scheduler calls an extender only with nodes that its own plugins let pass.
    """
    never = "kube-scheduler has not called filter since the service started"
    if facts.queue is None:
        remedy = "place a pod; if it changes nothing, start the scheduler with what `extender config generate` prints"
        return Finding("error", "called", never, remedy)
    if facts.queue.scheduled:
        problem = f"{never}, and {facts.queue.scheduled} pods were bound meanwhile: it places pods without the extender"
        remedy = "put what `extender config generate` prints into the scheduler's --config file and restart it"
        return Finding("error", "called", problem, remedy)
    if facts.queue.rejected:
        problem = f'{never}: its own plugins reject every node first ("{facts.queue.rejected[0]}")'
        remedy = "cure what the message names, such as taints or free resources; the extender is called afterwards"
        return Finding("info", "called", problem, remedy)
    problem = f"{never}, and no pod was bound meanwhile"
    return Finding(
        "info", "called", problem, "in order if no pod was to be placed; place one to see whether it is called"
    )


def _forms(facts: Facts) -> Iterator[Finding]:
    whole = facts.total("extender_requests_by_form_total", form="nodes")
    if whole > facts.total("extender_requests_by_form_total", form="names"):
        remedy = "set nodeCacheCapable: true in the scheduler's stanza; a node is about 12 KB, its name 12 bytes"
        yield Finding("warning", "names", "most requests bring whole nodes instead of names", remedy)


def _failures(facts: Facts) -> Iterator[Finding]:
    """Requests that fail now, or fail often. An old outage, and a stranger beside a scheduler that is let in, are not."""
    answered = facts.total("extender_requests_total")
    decided = facts.latest("extender_last_decision_timestamp_seconds")
    for reason, count in sorted(_by_reason(facts).items()):
        last = facts.latest("extender_last_failure_timestamp_seconds", reason=reason)
        if facts.now - last > _RECENT_SECONDS:
            continue
        when = f"{ago(facts.now - last)} ago"
        remedy = _FAILURES.get(reason, "the service's log has a line for it")
        if last > decided:
            problem = f"the last request failed, {when}: {reason} ({count:.0f} since the start)"
            yield Finding(_severity(reason), "failures", problem, remedy)
        elif count > answered * _FAILED_SHARE:
            problem = f"{count:.0f} of {answered:.0f} requests failed, the last one {when}: {reason}"
            yield Finding("info" if reason in _ACCESS else "warning", "failures", problem, remedy)


def _by_reason(facts: Facts) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in facts.series("extender_request_failures_total"):
        if one.value:
            found[one.labels["reason"]] = found.get(one.labels["reason"], 0) + one.value
    return found


def _severity(reason: str) -> Severity:
    return "error" if reason in _ACCESS else "info" if reason == "not_ready" else "warning"


_ACCESS: Final = frozenset({"unauthenticated", "forbidden"})
_FAILURES: Final = {
    "unauthenticated": "give kube-scheduler certFile and keyFile in tlsConfig, signed by server.tls.clientCAFile",
    "forbidden": "give the name in the caller's certificate the role that it needs in server.tls.clients",
    "too_large": "raise server.maxBodyBytes, or set nodeCacheCapable: true in the scheduler's stanza",
    "overloaded": "more than server.maxInFlight requests come at a time; find out from where before raising it",
    "not_ready": "requests came before the cluster was read, or to a standby; in order after a start",
}


def _feeds(facts: Facts) -> Iterator[Finding]:
    for one in facts.series("extender_cache_lag_seconds"):
        if one.value > _QUIET_SECONDS:
            resource, lag = one.labels["resource"], ago(one.value)
            problem = f"nothing was read of {resource} for {lag}; bookmarks come once a minute"
            remedy = "look at the apiserver, and at proxies on the way to it that cut quiet connections"
            yield Finding("warning", "feeds", problem, remedy)
    for one in facts.series("extender_unreadable_objects"):
        if one.value > 0:
            problem = (
                f"{one.value:.0f} objects of {one.labels['resource']} cannot be read: they count as last read, if ever"
            )
            yield Finding("warning", "feeds", problem, "the service's log names them; update the extender")


def _writes(facts: Facts) -> Iterator[Finding]:
    """Writes to the apiserver that it refuses, and that have not succeeded since."""
    name = "extender_last_api_write_timestamp_seconds"
    for one in facts.series(name):
        call, result = one.labels["call"], one.labels["result"]
        is_over = facts.latest(name, call=call, result="ok") > one.value
        if result != "forbidden" or is_over:
            continue
        problem = f"the apiserver forbids the service's call {call}, the last time {ago(facts.now - one.value)} ago"
        remedy = "grant what deploy/base/writer.yaml grants; the service's log has the apiserver's words"
        yield Finding("error", "writes", problem, remedy)


def _settings(facts: Facts) -> Iterator[Finding]:
    settings, server = facts.settings, facts.settings.server
    is_local = server.bind_address.host in {"127.0.0.1", "::1", "localhost"}
    if not is_local and not server.tls.client_ca_file:
        problem = f"it answers every client that reaches {server.bind_address}"
        remedy = "set server.tls with a clientCAFile and clients, or listen on loopback"
        yield Finding("warning", "exposure", problem, remedy)
    if server.tls.client_ca_file and not server.tls.clients.named:
        problem = "every client of server.tls.clientCAFile has every role"
        yield Finding("warning", "roles", problem, "name them in server.tls.clients: scheduler, metrics and admin")
    if settings.mode == "offload" and not settings.assumed_pods.enabled:
        problem = "assumedPods.enabled is off: two pods that must be apart can meet"
        yield Finding("warning", "assumed", problem, "switch it on; it is off for measuring only")
    nodes = facts.total("extender_index_entries", kind="nodes")
    room = server.max_body_bytes / _WHOLE_NODE_BYTES
    if facts.total("extender_requests_by_form_total", form="nodes") and nodes > room:
        problem = f"server.maxBodyBytes has room for about {room:.0f} whole nodes, and the cluster has {nodes:.0f}"
        yield Finding("warning", "body", problem, "raise it, or set nodeCacheCapable: true in the scheduler's stanza")

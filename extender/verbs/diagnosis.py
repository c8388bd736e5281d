"""What is wrong with a set-up, found from facts that somebody has gathered: findings, each with what to do about it.

Facts that could not be gathered are None and give no findings here. `doctor` gathers and prints; `scheduler_stanza` has
the findings about the scheduler's configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from extender.settings import Settings
from extender.verbs.permissions import Permission

Severity = Literal["error", "warning", "info"]
Labels = Mapping[str, str]

_QUIET_SECONDS: Final = 120.0
_UNASKED_SECONDS: Final = 1800.0
_SKEW_SECONDS: Final = 5.0
_DAY: Final = 86400.0
_EXPIRES_SOON: Final = 7 * _DAY
_FAILED_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be. `check` is a stable name for scripts."""

    severity: Severity
    check: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of the metrics page."""

    name: str
    labels: Labels
    value: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known. Times are Unix seconds; `clocks` is by how much each other clock is ahead of ours."""

    settings: Settings
    now: float
    readiness: Mapping[str, str] | None = None
    samples: Sequence[Sample] | None = None
    denied: Sequence[Permission] | None = None
    clocks: Mapping[str, float] = field(default_factory=dict)
    lease_holder: str | None = None
    lease_age: float = 0.0

    def total(self, name: str, /, **labels: str) -> float:
        """The sum of a metric over the series with these labels."""
        found = (one for one in self.samples or () if one.name == name and labels.items() <= one.labels.items())
        return sum(one.value for one in found)


def diagnose(facts: Facts) -> list[Finding]:
    """Everything that these facts say is wrong. O(samples)."""
    return [
        *_readiness(facts),
        *_calls(facts),
        *_feeds(facts),
        *_permissions(facts),
        *_clocks(facts),
        *_certificates(facts),
        *_settings(facts),
        *_lease(facts),
    ]


def _readiness(facts: Facts) -> Iterator[Finding]:
    for name, problem in (facts.readiness or {}).items():
        if problem:
            remedy = "questions are answered with 503 until it passes; the service's log says more"
            yield Finding("error", "ready", f"readiness check {name} fails: {problem}", remedy)


def _calls(facts: Facts) -> Iterator[Finding]:
    if facts.samples is None:
        return
    asked = facts.total("extender_requests_total", verb="filter")
    last = max((one.value for one in facts.samples if one.name == "extender_last_request_timestamp_seconds"), default=0)
    if not asked:
        remedy = "put what `extender config generate` prints into the scheduler's --config file and restart it"
        yield Finding("error", "called", "kube-scheduler has not asked filter since the service started", remedy)
    elif facts.now - last > _UNASKED_SECONDS:
        minutes = (facts.now - last) / 60
        remedy = "in order if no pod was to be placed; else see whether the scheduler runs with its --config file"
        yield Finding("info", "called", f"the last question came {minutes:.0f} minutes ago", remedy)
    whole = facts.total("extender_questions_total", form="nodes")
    if whole > facts.total("extender_questions_total", form="names"):
        remedy = "set nodeCacheCapable: true in the scheduler's stanza; a node is about 12 KB, its name 12 bytes"
        yield Finding("warning", "names", "most questions bring whole nodes instead of names", remedy)
    yield from _failures(facts)


def _failures(facts: Facts) -> Iterator[Finding]:
    answered = facts.total("extender_requests_total")
    by_reason: dict[str, float] = {}
    for one in facts.samples or ():
        if one.name == "extender_request_failures_total":
            by_reason[one.labels["reason"]] = by_reason.get(one.labels["reason"], 0) + one.value
    for reason, count in sorted(by_reason.items()):
        if answered and count > answered * _FAILED_SHARE:
            remedy = _FAILURES.get(reason, "the service's log has a line for each")
            problem = f"{count:.0f} of {answered:.0f} requests failed: {reason}"
            yield Finding("error" if reason in _ACCESS else "warning", "failures", problem, remedy)


_ACCESS: Final = frozenset({"unauthenticated", "forbidden"})
_FAILURES: Final = {
    "unauthenticated": "give kube-scheduler certFile and keyFile in tlsConfig, signed by server.tls.clientCAFile",
    "forbidden": "add the name in kube-scheduler's certificate to server.tls.clientNames",
    "too_large": "raise server.maxBodyBytes, or set nodeCacheCapable: true in the scheduler's stanza",
    "overloaded": "more than server.maxInFlight ask at a time; find out who they are before raising it",
    "not_ready": "questions came before the cluster was read; in order after a start",
}


def _feeds(facts: Facts) -> Iterator[Finding]:
    for one in facts.samples or ():
        if one.name == "extender_cache_lag_seconds" and one.value > _QUIET_SECONDS:
            problem = (
                f"nothing was heard of {one.labels['resource']} for {one.value:.0f} s; bookmarks come once a minute"
            )
            remedy = "look at the apiserver, and at proxies on the way to it that cut quiet connections"
            yield Finding("warning", "feeds", problem, remedy)
        if one.name == "extender_decode_errors_total" and one.value > 0:
            problem = f"{one.value:.0f} objects of {one.labels['resource']} could not be read and do not count"
            yield Finding("warning", "feeds", problem, "the service's log names them; update the extender")


def _permissions(facts: Facts) -> Iterator[Finding]:
    for one in facts.denied or ():
        severity: Severity = "error" if one.verb in {"list", "watch"} else "warning"
        remedy = f"grant it ({one.why}); deploy/base has the roles"
        yield Finding(severity, "permissions", f"the account may not {one}", remedy)


def _clocks(facts: Facts) -> Iterator[Finding]:
    for whose, ahead in facts.clocks.items():
        if abs(ahead) > _SKEW_SECONDS:
            way = "ahead of" if ahead > 0 else "behind"
            problem = f"the clock of {whose} is {abs(ahead):.0f} s {way} this one"
            yield Finding("warning", "clock", problem, "certificates and tokens are judged by it: have it set by NTP")


def _certificates(facts: Facts) -> Iterator[Finding]:
    for one in facts.samples or ():
        if one.name != "extender_certificate_expiry_timestamp_seconds":
            continue
        left = one.value - facts.now
        remedy = "renew it (`extender certs`, or cert-manager); the service takes the new files in by itself"
        if left <= 0:
            yield Finding("error", "certificate", f"the certificate {one.labels['name']} has expired", remedy)
        elif left < _EXPIRES_SOON:
            problem = f"the certificate {one.labels['name']} expires in {left / _DAY:.1f} days"
            yield Finding("warning", "certificate", problem, remedy)
    if facts.total("extender_certificate_reloads_total", result="failed"):
        problem = "certificate files that changed could not be used; the old ones are still in use"
        yield Finding(
            "warning", "certificate", problem, "the service's log names the file; mostly key and certificate differ"
        )


def _settings(facts: Facts) -> Iterator[Finding]:
    settings, server = facts.settings, facts.settings.server
    is_local = server.bind_address.host in {"127.0.0.1", "::1", "localhost"}
    if not is_local and not server.tls.client_ca_file:
        problem = f"it answers on {server.bind_address} to whoever asks"
        remedy = "set server.tls with a clientCAFile, or shield the port by a NetworkPolicy"
        yield Finding("info", "exposure", problem, remedy)
    if settings.mode == "offload" and not settings.assumed_pods.enabled:
        problem = "assumedPods.enabled is off: two pods that must be apart can meet"
        yield Finding("warning", "assumed", problem, "switch it on; it is off for measuring only")
    nodes = facts.total("extender_index_entries", kind="nodes")
    room = server.max_body_bytes / 12_000
    if facts.total("extender_questions_total", form="nodes") and nodes > room:
        problem = f"server.maxBodyBytes has room for about {room:.0f} whole nodes, and the cluster has {nodes:.0f}"
        yield Finding("warning", "body", problem, "raise it, or set nodeCacheCapable: true in the scheduler's stanza")


def _lease(facts: Facts) -> Iterator[Finding]:
    if facts.lease_holder is None:
        return
    if not facts.lease_holder:
        yield Finding("error", "lease", "nobody holds the Lease, so no replica answers", "look at the replicas' logs")
    elif facts.lease_age > _QUIET_SECONDS:
        problem = f"{facts.lease_holder} holds the Lease and has not renewed it for {facts.lease_age:.0f} s"
        yield Finding(
            "error", "lease", problem, "no replica runs, or none may update the Lease (deploy/base/lease.yaml)"
        )

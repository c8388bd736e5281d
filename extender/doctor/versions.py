"""Findings about the versions of the API server and of kube-schedulers. Calls of an extender carry no version, so image tags are compared.

https://kubernetes.io/releases/version-skew-policy/#kube-controller-manager-kube-scheduler-and-cloud-controller-manager
"""

from collections.abc import Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding, Severity
from extender.model.units import listed
from extender.wire.api_server import NEWEST, OLDEST, TRIED, ApiServer, minor_of, missing

_CHECK: Final = "versions"
_NAMED: Final = 5
_TRIED: Final = f"1.{OLDEST} to 1.{NEWEST}"
PLACEHOLDER: Final = "set-the-version-of-your-cluster"
"""The tag of kube-scheduler's image in the overlays, which is no tag of that image."""


def examine_versions(facts: Facts) -> list[Finding]:
    """All findings; none where the API server could not be read. O(schedulers)."""
    server = facts.api_server
    if server is None:
        return []
    return [*_api_server(facts, server), *_dropped(facts), *_schedulers(facts, server)]


def _api_server(facts: Facts, server: ApiServer) -> Iterator[Finding]:
    for row in missing(server, facts.settings):
        # Where nothing was tried, the other findings are guesses.
        severity: Severity = "warning" if row.feature == TRIED else "info"
        problem = f"the API server {server.version} lacks {row.feature} (1.{row.since}): {row.effect}"
        yield Finding(severity, _CHECK, problem, f"nothing to do if you need it not; else upgrade to 1.{row.since}")
    if (server.minor or 0) > NEWEST:
        problem = f"the API server {server.version} is newer than the versions that were tried, {_TRIED}"
        yield Finding("info", _CHECK, problem, "look for a newer release of the extender")


def _dropped(facts: Facts) -> Iterator[Finding]:
    """Fields that the API server dropped in a dry run, because their feature gates are off."""
    for name in facts.dropped_fields:
        gate, effect = _GATES[name]
        problem = f"the API server drops the field {name} of new pods: {effect}"
        yield Finding("error", _CHECK, problem, f"remove {gate}=false from --feature-gates of kube-apiserver")


_GATES: Final = {
    "schedulingGates": ("PodSchedulingReadiness", "policies release no groups, because their pods do not wait"),
    "minDomains": ("MinDomainsInPodTopologySpread", "spread constraints of new pods have no minDomains"),
    "matchLabelKeys": ("MatchLabelKeysInPodTopologySpread", "spread constraints of new pods count all revisions"),
}
"""By field of a pod its gate, and what happens while the gate is off."""


def _schedulers(facts: Facts, server: ApiServer) -> Iterator[Finding]:
    """Schedulers whose tag does not fit the API server: they never start, or were never tried."""
    for tag, pods in sorted(facts.deployment.scheduler_tags.items()):
        where = f"kube-scheduler {tag} ({listed(sorted(pods), most=_NAMED)})"
        remedy = f"set the tag of registry.k8s.io/kube-scheduler to {server.version.partition('-')[0]}: newTag in the overlay, scheduler.tag of the chart"
        minor = minor_of(tag)
        if tag == PLACEHOLDER:
            problem = f"{where} never starts: its tag is the placeholder of the overlay"
            yield Finding("error", _CHECK, problem, remedy)
        elif minor is None or server.minor is None:
            continue  # a digest, a name of its own, or a build of the API server without a number
        elif minor > server.minor:
            problem = f"{where} is newer than the API server {server.version}, so it may never start: it needs kinds that are not served"
            yield Finding("error", _CHECK, problem, remedy)
        elif minor < server.minor - 1:
            problem = f"{where} is older than the API server {server.version} by more than one minor version, which Kubernetes does not support"
            yield Finding("warning", _CHECK, problem, remedy)
        elif not OLDEST <= minor <= NEWEST:
            problem = f"{where} was not tried; tried are {_TRIED}"
            yield Finding("warning" if minor < OLDEST else "info", _CHECK, problem, remedy)

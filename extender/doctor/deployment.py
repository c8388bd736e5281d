"""Findings about the deployment: replicas, schedulers and their Lease, other extenders, the admission policy.

https://kubernetes.io/docs/concepts/architecture/leases/#leader-election
"""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from extender.doctor.facts import APPLY_OVERLAY, LOCAL, Facts, Finding, Severity
from extender.wire.scheduler_config import Extender, KubeSchedulerConfiguration, SchedulerLeaderElection

_DEFAULT: Final = "default-scheduler"


def examine_deployment(facts: Facts, scheduler: KubeSchedulerConfiguration | None) -> list[Finding]:
    """All findings. ``scheduler``: None if its configuration is not known. O(profiles + extenders)."""
    findings = [*_replicas(facts), *_guard(facts)]
    if scheduler is not None:
        findings += [*_instances(facts, scheduler), *_lease(facts, scheduler), *_unserved(facts, scheduler.extenders)]
    return findings


def _replicas(facts: Facts) -> Iterator[Finding]:
    count = facts.deployment.replicas
    if count > 1 and facts.knows_settings and not facts.settings.leader_election.enabled:
        problem = f"{count} replicas of the extender run and leaderElection.enabled is false: each counts only the pods of its own requests"
        yield Finding("error", "replicas", problem, "set leaderElection.enabled: true, or run one replica")


def _guard(facts: Facts) -> Iterator[Finding]:
    remedy = f"apply your overlay, where deploy/base/admission.yaml has both: {APPLY_OVERLAY}"
    effect = "so its account may write every part of every pod"
    if facts.deployment.guard == "policy":
        problem = f"no ValidatingAdmissionPolicy limits the extender, {effect}"
        yield Finding("warning", "admission", problem, remedy)
    elif facts.deployment.guard == "binding":
        problem = f"the ValidatingAdmissionPolicy of the extender has no binding that denies, {effect}"
        yield Finding("warning", "admission", problem, remedy)


def _is_first(scheduler: KubeSchedulerConfiguration) -> bool:
    return any(profile.name == _DEFAULT for profile in scheduler.all_profiles)


def _instances(facts: Facts, scheduler: KubeSchedulerConfiguration) -> Iterator[Finding]:
    """Several instances of a scheduler without leader election: they place the same pods."""
    if scheduler.leader_election.leader_elect:
        return
    # The control plane's scheduler has a static pod on each control-plane node; a second one runs beside its extender.
    count = facts.deployment.first_schedulers if _is_first(scheduler) else facts.deployment.schedulers
    severity: Severity = "error" if count > 1 else "info"
    run = (
        f"and {count} instances of this scheduler run, which place" if count > 1 else "so a second instance would place"
    )
    problem = f"leaderElection.leaderElect is false, {run} the same pods"
    remedy = (
        "set leaderElect: true"
        if count > 1
        else "nothing to do while one instance runs; for more set leaderElect: true"
    )
    yield Finding(severity, "scheduler", problem, remedy)


def _lease(facts: Facts, scheduler: KubeSchedulerConfiguration) -> Iterator[Finding]:
    """A second scheduler with the default scheduler's Lease: it stands by for ever."""
    election = scheduler.leader_election
    # Without a name of its own a second scheduler gets kube-scheduler's default Lease.
    if _is_first(scheduler) or not election.leader_elect or election.lease != SchedulerLeaderElection().lease:
        return
    severity: Severity = "error" if facts.deployment.first_schedulers else "warning"
    problem = (
        f"leaderElection names the Lease {'/'.join(election.lease)} of the default scheduler: while that one holds it, "
        f"no pod of {scheduler.all_profiles[0].name} is placed"
    )
    remedy = f"set leaderElection.resourceName: {scheduler.all_profiles[0].name}, and let its role name that Lease"
    yield Finding(severity, "scheduler", problem, remedy)


def _unserved(facts: Facts, entries: tuple[Extender, ...]) -> Iterator[Finding]:
    """Other extenders that do not answer: without ``ignorable`` no pod of the scheduler is placed."""
    for number, entry in enumerate(entries):
        why = facts.unserved.get(entry.url_prefix)
        if why is None:
            continue
        # Another address may be reachable from the scheduler's machine and not from this one.
        is_sure = urlsplit(entry.url_prefix).hostname in LOCAL
        severity: Severity = "error" if is_sure and not entry.ignorable else "warning"
        effect = (
            "its part of the decision is left out"
            if entry.ignorable
            else "the scheduler places no pod for which it calls that extender"
        )
        problem = f"nothing answers at extenders[{number}], {entry.url_prefix}, ({why}): {effect}"
        remedy = "start that extender, or remove its entry"
        yield Finding(
            severity, "scheduler", problem, remedy if is_sure else f"try it from the scheduler's machine; {remedy}"
        )

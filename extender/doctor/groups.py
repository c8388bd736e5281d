"""Findings about groups of gated pods: pods that are held at their gate for longer than their policy allows, or for good.

A gate that is not removed is silent: kube-scheduler does not look at such a pod, and no event says why.
https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from extender.doctor.facts import Facts, Finding, ago
from extender.model.units import agreeing, counted
from extender.verbs.release.progress import UNDECIDED, GroupOverview, Reason, StrayPod

_CHECK: Final = "gates"
_MOST_NAMED: Final = 10
_USUAL_GRACE: Final = 120.0  # seconds that a new pod may be in no group, as its policy was written a moment ago
_REMEDIES: Final[Mapping[str, str]] = {
    UNDECIDED: "check that a replica leads, that release.enabled is true, and that it may write GroupPlacements",
    Reason.INCOMPLETE: "create the pods that are missing (a StatefulSet needs podManagementPolicy Parallel), or correct release.size",
    Reason.NO_SIZE: "give the pods the label or annotation with a number that release.size of the policy names",
    Reason.FOREIGN_GATE: "find out which controller removes the other gates; the extender removes only its own",
    Reason.BUDGET: "wait until other groups of the namespace have nodes, or raise the setting",
    Reason.NO_ROOM: "add nodes to a domain, free some, or let the policy release with mode Preferred or onTimeout",
    Reason.DOMAIN_FULL: "free room in the domain, or delete all pods of the group, so that it is decided again",
    Reason.REFUSED: "delete these pods, so that their owner creates them again",
}
_OTHERS: Final = "see the log of the leader, and `kubectl describe gpl`"
_UNHEARD: Final = (
    "check that a replica leads, and that it may write GroupPlacements: nothing was said about the group yet"
)


def examine_groups(facts: Facts) -> list[Finding]:
    """Every finding about them. O(groups)."""
    found = facts.groups
    if found is None:
        return []
    now = datetime.fromtimestamp(facts.now, UTC)
    overdue = sorted((each for each in found.groups if each.is_overdue(now)), key=lambda each: -each.age(now))
    return [*_overdue(overdue, now), *_strays([each for each in found.strays if _is_old(each, now)])]


def _overdue(groups: list[GroupOverview], now: datetime) -> Iterator[Finding]:
    for group in groups[:_MOST_NAMED]:
        problem = (
            f"group {group.key} ({group.key.policy}): {_held(group.pods - group.released)} at its gate for "
            f"{ago(group.age(now))}, release.decisionTimeout is {ago(group.timeout)}: {group.message or group.reason}"
        )
        yield Finding("warning", _CHECK, problem, _REMEDIES.get(group.reason, _OTHERS))
    if len(groups) > _MOST_NAMED:
        problem = (
            f"{len(groups) - _MOST_NAMED} more groups are held at their gates for longer than their policies allow"
        )
        yield Finding("warning", _CHECK, problem, "see `extender groups --waiting`")


def _held(pods: int) -> str:
    return f"{counted(pods, 'pod')} {agreeing(pods, 'is', 'are')} held"


def _is_old(stray: StrayPod, now: datetime) -> bool:
    return stray.since is None or (now - stray.since).total_seconds() > _USUAL_GRACE


def _strays(strays: list[StrayPod]) -> Iterator[Finding]:
    if strays:
        first = strays[0]
        problem = f"{_held(len(strays))} at a gate of ours that no policy removes, such as {first.pod} ({first.gate})"
        remedy = "apply a policy that selects them; the leader releases the others if policies are enabled and it may patch pods"
        yield Finding("warning", _CHECK, problem, remedy)

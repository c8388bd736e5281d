"""The next step of a pod group, as a function of three things: the pods of the watch, the decision, and the releases that were sent.

A pod whose release was sent counts as released, whatever the watch shows. So a late watch never leads to more released pods than
the group has. Pods are released in the order of the numbers in their names, then of their names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from extender.model.group_placements import GroupPlacement, PlacementStatus
from extender.model.objects import Pod
from extender.model.policies import GROUP, JsonObject
from extender.model.release import (
    RELEASED_ANNOTATION,
    GroupDecision,
    GroupKey,
    GroupPhase,
    Level,
    Proposal,
    ReleaseSpec,
    brought_toleration,
    toleration_body,
)
from extender.model.units import agreeing, counted

_MOST_NAMED: Final = 3  # pods or domains in one message
_HAVE: Final = ("has", "have")
_DIGITS: Final = re.compile(r"(\d+)")


class WaitReason(StrEnum):
    """Why a pod group waits, or that it does not wait. A closed set: the reason of conditions, events and metrics."""

    INCOMPLETE = "Incomplete"
    NO_SIZE = "SizeUnknown"
    FOREIGN_GATE = "ForeignGate"
    BUDGET = "NamespaceBudget"
    NO_ROOM = "NoRoom"
    DOMAIN_FULL = "DomainFull"
    BEYOND_SIZE = "BeyondSize"
    QUOTA = "DomainQuota"
    NO_NODES_YET = "WaitsForNodes"
    PREEMPTING = "Preempting"
    NOT_WRITTEN = "NotWritten"
    DECIDED = "Decided"
    RELEASING = "Releasing"
    REFUSED = "Refused"
    FAILED = "PatchFailed"
    NOT_BOUND = "NotBound"
    BOUND = "Bound"


STUCK: Final = frozenset(
    {
        *(
            WaitReason.NO_SIZE,
            WaitReason.FOREIGN_GATE,
            WaitReason.BUDGET,
            WaitReason.NO_ROOM,
            WaitReason.DOMAIN_FULL,
            WaitReason.NOT_WRITTEN,
        ),
        *(WaitReason.REFUSED, WaitReason.FAILED, WaitReason.NOT_BOUND, WaitReason.BEYOND_SIZE, WaitReason.QUOTA),
    }
)


@dataclass(frozen=True, slots=True)
class GroupState:
    """The pods of a pod group, by what they wait for. Without finished and terminating pods.

    - ``waiting``: gated, and the group's gate is the last one.
    - ``blocked``: gated, and other controllers' gates are left too; each pod with these gates.
    - ``released``: without the gate and without a node.
    - ``size``: 0 where the pods give no size that can be read.
    - ``created``: when the oldest gated pod was created.
    """

    key: GroupKey
    spec: ReleaseSpec
    size: int
    waiting: tuple[Pod, ...] = ()
    blocked: tuple[tuple[Pod, tuple[str, ...]], ...] = ()
    released: tuple[Pod, ...] = ()
    bound: tuple[Pod, ...] = ()
    created: datetime | None = None

    @property
    def ready(self) -> int:
        """How many pods there are."""
        return len(self.waiting) + len(self.blocked) + len(self.released) + len(self.bound)

    @property
    def priority(self) -> int:
        """The lowest priority of its pods without a node, because all of them are decided together. O(pods)."""
        return min((pod.priority for pod in (*self.waiting, *self.released)), default=0)


class Do(StrEnum):
    """The next action of the reconciler.

    ``GROW``: release as many of the pods as the domain has room for. ``PREEMPT``: remove pods that use the room.
    """

    WAIT = "wait"
    DECIDE = "decide"
    RELEASE = "release"
    GROW = "grow"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True)
class GroupStep:
    """The next action, and the status of the group until then.

    - ``pods``: the pods to decide for or to release, in order.
    - ``levels``: the domain to write as the decision, None where none is made.
    - ``victims``: the UIDs of pods to remove.
    """

    do: Do
    phase: GroupPhase
    reason: WaitReason
    message: str = ""
    pods: tuple[Pod, ...] = ()
    levels: tuple[Level, ...] | None = None
    victims: tuple[str, ...] = ()


def next_step(
    group: GroupState, decision: GroupDecision | None, sent: Collection[str], refused: Mapping[str, str] | None = None
) -> GroupStep:
    """The next step. O(pods of the group).

    ``sent``: UIDs of pods whose release was sent. ``refused``: by UID, why the API server refuses the release.
    """
    refused = refused or {}
    # `gated`: without the pods whose release was sent. `out`: how many are released, by the watch or by us.
    gated = [pod for pod in group.waiting if pod.uid not in sent]
    out = len(group.waiting) - len(gated) + len(group.released) + len(group.bound)
    if decision is None:
        return _undecided(group, gated, out)
    # 1. Release up to the size, which may have grown after the decision. 2. Beyond the size, if the policy lets groups grow. 3. Name
    # refused pods only when nothing else is left to release. 4. Otherwise wait.
    size = max(decision.size, group.size)
    next_pods = in_order(pod for pod in gated if pod.uid not in refused)
    if next_pods and out < size:
        text = f"{_of(out, size, 'is', 'are')} released"
        return GroupStep(Do.RELEASE, GroupPhase.RELEASING, WaitReason.RELEASING, text, next_pods[: size - out])
    if next_pods and group.spec.joins:
        text = f"{_of(out, out, 'is', 'are')} released; {beyond(len(next_pods))}"
        return GroupStep(Do.GROW, GroupPhase.RELEASING, WaitReason.RELEASING, text, next_pods)
    if any(pod.uid in refused for pod in gated):
        return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.REFUSED, _refusals(gated, refused))
    return _decided(group, size, out)


def _undecided(group: GroupState, gated: list[Pod], out: int) -> GroupStep:
    if not group.size:
        text = "a pod has no size of its group in the label or annotation that the policy names, or no number"
        return GroupStep(Do.WAIT, GroupPhase.COLLECTING, WaitReason.NO_SIZE, text)
    if not gated and not group.blocked:
        text = f"{_exist(out, group.size)}, without a gate"
        return GroupStep(Do.WAIT, GroupPhase.COLLECTING, WaitReason.INCOMPLETE, text)
    # Pods blocked by other gates do not count: they could not be released together with the others.
    missing = group.size - len(gated) - out
    # The text is empty, because the reconciler replaces this step by the step after the decision.
    if gated and missing <= 0:
        return GroupStep(Do.DECIDE, GroupPhase.DECIDING, WaitReason.NO_ROOM, "", in_order(gated)[: group.size - out])
    if group.blocked:
        return GroupStep(Do.WAIT, GroupPhase.COLLECTING, WaitReason.FOREIGN_GATE, _foreign_gates(group))
    return GroupStep(Do.WAIT, GroupPhase.COLLECTING, WaitReason.INCOMPLETE, _exist(len(gated) + out, group.size))


def _decided(group: GroupState, size: int, out: int) -> GroupStep:
    if group.blocked:
        return GroupStep(Do.WAIT, GroupPhase.DEGRADED, WaitReason.FOREIGN_GATE, _foreign_gates(group))
    bound = len(group.bound)
    if bound and bound == out and not (out < size and group.waiting):
        wanted = max(group.size or size, bound)
        gone, more = wanted - bound, len(group.waiting)
        has = f"{_of(bound, wanted, *_HAVE)} a node"
        if more:
            return GroupStep(
                Do.WAIT,
                GroupPhase.BOUND,
                WaitReason.BEYOND_SIZE,
                f"{has}; {beyond(more)}: laterPods is {group.spec.later_pods}",
            )
        missing = f"; {_of(gone, wanted, 'does', 'do')} not exist" if gone else ""
        return GroupStep(Do.WAIT, GroupPhase.BOUND, WaitReason.BOUND, f"{has}{missing}")
    text = f"{_of(bound, out, *_HAVE, noun='released pod')} a node"
    return GroupStep(Do.WAIT, GroupPhase.RELEASING, WaitReason.RELEASING, text)


def beyond(pods: int) -> str:
    """`2 more than the size wait`: pods that are not part of a decided group."""
    return f"{pods} more than the size {agreeing(pods, 'waits', 'wait')}"


def _of(count: int, size: int, one: str, more: str, noun: str = "pod") -> str:
    """`1 of 2 pods has`, `2 of 3 pods have`, `0 of 1 pod has`: the verb agrees with the count."""
    return f"{count} of {counted(size, noun)} {agreeing(1 if size == 1 else count, one, more)}"


def _exist(count: int, size: int) -> str:
    return _of(count, size, "exists", "exist")


def status_of(group: GroupState, step: GroupStep, reason: str = "") -> PlacementStatus:
    """The status for the object of a group after a step."""
    bound = len(group.bound)
    released = len(group.released) + bound
    return PlacementStatus(step.phase, group.ready, released, bound, reason or step.reason, step.message)


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods by the numbers in their names, so that web-2 is before web-10."""
    return tuple(sorted(pods, key=lambda pod: (_natural(pod.name), pod.uid)))


def _natural(name: str) -> list[Any]:
    """A sort key of alternating texts and numbers."""
    parts: list[Any] = _DIGITS.split(name)
    parts[1::2] = map(int, parts[1::2])
    return parts


def _foreign_gates(group: GroupState) -> str:
    names = [f"{pod.name} ({', '.join(gates)})" for pod, gates in group.blocked[:_MOST_NAMED]]
    more = f" and {len(group.blocked) - _MOST_NAMED} more" if len(group.blocked) > _MOST_NAMED else ""
    count = len(group.blocked)
    return f"{_of(count, group.size, *_HAVE)} gates of others: {', '.join(names)}{more}"


def _refusals(gated: list[Pod], refused: Mapping[str, str]) -> str:
    unreleasable = [pod for pod in gated if pod.uid in refused]
    first, why = unreleasable[0].name, refused[unreleasable[0].uid]
    return (
        f"{len(unreleasable)} pods cannot be released, such as {first}: {why}"
        if unreleasable[1:]
        else f"{first} cannot be released: {why}"
    )


def coarser_levels(proposal: Proposal) -> tuple[Level, ...]:
    """The proposed domain of the first topology key; without a proposal the rejected domain that holds most of the group."""
    if proposal.slots:
        return proposal.levels[:1]
    ranked = sorted(proposal.rejected, key=lambda rejected: (-rejected.holds, rejected.domain))
    return (ranked[0].domain,) if ranked else ()


def message_of(proposal: Proposal) -> str:
    """Why no domain holds a group. The domains that hold most of it come first. O(domains)."""
    best = sorted(proposal.rejected, key=lambda rejected: (-rejected.holds, rejected.domain))
    parts = []
    for rejected in best[:_MOST_NAMED]:
        if rejected.taken_by:
            parts.append(f"{rejected.domain} is taken by {rejected.taken_by}")
            continue
        if rejected.excess:
            parts.append(f"{rejected.domain} {rejected.excess}")
            continue
        why = "; ".join(f"{counted(count, 'node')}: {text}" for text, count in rejected.nodes[:_MOST_NAMED])
        parts.append(f"{rejected.domain} holds {rejected.holds} of {rejected.needed}" + (f" ({why})" if why else ""))
    more = f", and {counted(len(best) - _MOST_NAMED, 'more domain')}" if len(best) > _MOST_NAMED else ""
    return ", ".join(parts) + more if parts else "no node carries the first topology key"


# -- groups as commands show them -------------------------------------------------------------------------------------

# A pod group for commands that read a cluster once: its progress, its domain, and why it waits.
#
# The leader writes into the status of the GroupPlacement what only it knows: domains without room, a passed timeout. Where there is
# no status, or where it is about another number of pods, the next step of the group says why it waits.

UNDECIDED: Final = "Undecided"
"""The reason of a complete group without a status from a leader."""

_OWN_GATES: Final = f"{GROUP}/"


@dataclass(frozen=True, slots=True)
class GroupOverview:
    """One pod group.

    - ``pods``: how many exist; ``released``: how many have no gate of ours; ``bound``: how many have a node.
    - ``size``: 0 where the pods give none.
    - ``since``: when its oldest pod was created.
    - ``timeout``: the policy's, in seconds.
    """

    key: GroupKey
    phase: GroupPhase
    levels: tuple[Level, ...]
    size: int
    pods: int
    released: int
    bound: int
    since: datetime | None
    timeout: float
    reason: str
    message: str

    @property
    def is_waiting(self) -> bool:
        """Whether a pod of the group is still gated."""
        return self.released < self.pods

    def age(self, now: datetime) -> float:
        """Seconds since its oldest pod was created; 0 where that is not known."""
        return max((now - self.since).total_seconds(), 0.0) if self.since is not None else 0.0

    def is_overdue(self, now: datetime) -> bool:
        """Whether pods of the group are gated for longer than the policy's timeout."""
        return self.is_waiting and self.age(now) > self.timeout


@dataclass(frozen=True, slots=True)
class StrayPod:
    """A pod with a gate of ours that no policy releases."""

    pod: str
    gate: str
    since: datetime | None


def group_overview(group: GroupState, placement: GroupPlacement | None, *, is_partial: bool = False) -> GroupOverview:
    """The group by its pods and its object. ``is_partial``: its bound pods were not read. O(pods of the group)."""
    decision = None if placement is None else placement.decision
    step = next_step(group, decision, ())
    if step.do is Do.DECIDE:
        step = replace(step, message="all pods exist, and the leader has not decided yet")
    status = status_of(group, step, UNDECIDED if step.do is Do.DECIDE else step.reason)
    told = None if placement is None else placement.status
    if told is not None and told.reason and (is_partial or _counts(told) == _counts(status)):
        status = told
    pods = (*group.waiting, *(pod for pod, _ in group.blocked), *group.released, *group.bound)
    created = [pod.gating.created for pod in pods if pod.gating is not None and pod.gating.created is not None]
    return GroupOverview(
        group.key,
        status.phase,
        () if decision is None else decision.levels,
        group.size,
        group.ready,
        len(group.released) + len(group.bound),
        len(group.bound),
        min(created, default=None),
        group.spec.last_after,
        status.reason,
        status.message,
    )


def _counts(status: PlacementStatus) -> tuple[int, int, int]:
    return status.ready, status.released, status.bound


def stray_pods(pods: Iterable[Pod], grouped: set[str]) -> Iterator[StrayPod]:
    """The pods that have a gate of ours and are in no group. ``grouped``: the UIDs of pods that are in a group."""
    for pod in pods:
        if pod.gating is None or pod.terminating or pod.uid in grouped:
            continue
        gate = next((gate for gate in pod.gating.gates if gate.startswith(_OWN_GATES)), "")
        if gate:
            yield StrayPod(pod.full_name, gate, pod.gating.created)


# -- the patch that releases a pod ------------------------------------------------------------------------------------

# The patch that releases a gated pod. It cannot be undone.
#
# 1. One request narrows the pod to the decided domain and removes the gate. So the scheduler never sees a pod that is free and not
#    narrowed.
# 2. A strategic merge patch removes exactly one gate, whatever other gates the pod has by then.
# 3. A domain with one value becomes a node selector key. Several values become a clause at the end of each required node term,
#    because the API server accepts nothing else of a gated pod (KEP-3838): terms stay in their places, an empty term stays empty.

_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Inexpressible:
    """No patch can narrow the pod: its node selector has other values for these levels, and the API server lets none change."""

    levels: tuple[Level, ...]
    node_selector: Mapping[str, str]

    def __str__(self) -> str:
        parts = (f'{level} (the pod has "{self.node_selector[level.key]}")' for level in self.levels)
        return f"the node selector of the pod contradicts the decided domain: {', '.join(parts)}"


def _narrowed_affinity(spec: JsonObject, levels: Iterable[Level]) -> JsonObject:
    """The changed lists of the node affinity, whole, because a merge patch replaces lists as a whole. O(terms + values)."""
    nodes: JsonObject = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    clauses = [_clause(level.key, level.values) for level in levels if level.values]
    lists: JsonObject = {}
    if clauses:
        terms = (nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{"matchExpressions": []}]
        is_new = not nodes.get(_REQUIRED)
        narrowed = [_also(term, clauses) if is_new or _matches_any(term) else term for term in terms]
        lists[_REQUIRED] = {"nodeSelectorTerms": narrowed}
    wanted = [_clause(level.key, level.preferred) for level in levels if level.preferred]
    if wanted:
        preference = {"weight": _WEIGHT, "preference": {"matchExpressions": wanted}}
        lists[_PREFERRED] = [*(nodes.get(_PREFERRED) or ()), preference]
    return lists


def _clause(key: str, values: Sequence[str]) -> JsonObject:
    return {"key": key, "operator": "In", "values": list(values)}


def _also(term: JsonObject, clauses: Sequence[JsonObject]) -> JsonObject:
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *clauses]}


def _matches_any(term: JsonObject) -> bool:
    return bool(term.get("matchExpressions") or term.get("matchFields"))


def _lacking(present: Sequence[JsonObject], levels: Iterable[Level]) -> list[JsonObject]:
    """The tolerations of a domain that a pod lacks. Seconds are not compared, because they cannot be made longer. O(tolerations)."""
    known = {brought_toleration(toleration)._replace(seconds=None) for toleration in present}
    every = dict.fromkeys(toleration for level in levels for toleration in level.tolerations)
    return [toleration_body(toleration) for toleration in every if toleration._replace(seconds=None) not in known]


def release_patch(pod: JsonObject, decision: GroupDecision) -> JsonObject | Inexpressible | None:
    """The strategic merge patch for a pod of the API server; None if the pod does not have the gate any more.

    The patch has the pod's UID and resourceVersion, so it fails with 409 if the pod was changed or replaced meanwhile.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if all(gate["name"] != decision.gate for gate in spec.get("schedulingGates") or ()):
        return None
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    wrong = tuple(
        level
        for level in decision.levels
        if level.key in selector and selector[level.key] not in (level.values or (level.value,))
    )
    if wrong:
        return Inexpressible(wrong, selector)
    changed: JsonObject = {"schedulingGates": [{"$patch": "delete", "name": decision.gate}]}
    added = {level.key: level.value for level in decision.levels if not level.values and level.key not in selector}
    if added:
        changed["nodeSelector"] = added
    if more := _lacking(spec.get("tolerations") or [], decision.levels):
        changed["tolerations"] = [*(spec.get("tolerations") or ()), *more]  # the list is replaced as a whole
    narrowed = _narrowed_affinity(spec, [level for level in decision.levels if level.key not in selector])
    if narrowed:
        changed["affinity"] = {"nodeAffinity": narrowed}
    identity = {name: metadata[name] for name in ("uid", "resourceVersion")}
    group_and_time = f"{decision.group.value}@{decision.decided.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return {"metadata": {**identity, "annotations": {RELEASED_ANNOTATION: group_and_time}}, "spec": changed}

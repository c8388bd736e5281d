"""Groups of pods that are released together: which pods wait, and which have been released.

1. A gated pod belongs to the first policy with ``when: Release`` that selects it and whose gate it has. The policy says
   how pods are grouped.
2. A released pod stays in its group, whatever its labels say later. After a restart the annotation of the release names
   the group.
3. If a policy lists or limits domains, each pod that the leader has recorded is charged to its domain from its release
   until it is gone, whatever is written in it later (`index/charges.py`).

Without a policy that releases pods nothing is kept. An event of a pod costs O(1), a change of such a policy or of a
namespace O(gated pods that it may concern).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from extender.index.charges import Charge, Charges, charge_of
from extender.index.objects.changes import IndexChange, Subscribers
from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.model.bounded import shrink
from extender.model.group_placements import GroupPlacement, placement_name
from extender.model.objects import DAEMON_SET, Namespace, Node, Pod, PodSignature
from extender.model.policies import Exempt, Mode, Moment, Policy
from extender.model.release import (
    RELEASE_GATE,
    Gating,
    GroupKey,
    GroupSize,
    Level,
    ReleaseRecord,
    ReleaseSpec,
    is_own_group,
    own_group,
)

UNREADABLE: Final = 0
"""The size that a pod claims for its group if the label or annotation is missing, or is no positive number."""

_LONGEST_NUMBER: Final = 6
_FILED_A_STEP: Final = 100  # pods, of up to 15 µs each
_NONE: Final[dict[str, None]] = {}
_NO_GATING: Final = Gating()
_NOTHING_EXEMPT: Final = Exempt()


class GatedPodState(IntEnum):
    """The state of a pod in its group.

    - ``READY``: our gate is its last gate
    - ``BLOCKED``: it has other gates too
    - ``RELEASED``: our gate is removed, and it has no node yet
    - ``LEAVING``: it is terminating
    """

    READY = 0
    BLOCKED = 1
    RELEASED = 2
    BOUND = 3
    LEAVING = 4


class GatedGroup:
    """The pods of a group by UID, with their states. ``counts``: pods by state. Written by `GatedGroups` alone."""

    __slots__ = ("counts", "key", "policy", "release", "roles", "sizes")

    def __init__(self, key: GroupKey, policy: Policy, release: ReleaseSpec) -> None:
        self.key = key
        self.policy = policy
        self.release = release
        self.roles: dict[str, GatedPodState] = {}
        self.counts = [0] * len(GatedPodState)
        self.sizes: dict[int, int] = {}

    @property
    def size(self) -> int:
        """How many pods the group is to have: the largest number that a pod claims; 0 if a pod claims none.

        So a group whose pods disagree waits, and is not released in part. O(distinct sizes).
        """
        return UNREADABLE if UNREADABLE in self.sizes else max(self.sizes)

    @property
    def placed(self) -> int:
        """How many pods have been released, whether bound or not."""
        return self.counts[GatedPodState.RELEASED] + self.counts[GatedPodState.BOUND]


class _Member(NamedTuple):
    group: GatedGroup
    role: GatedPodState
    size: int
    charge: Charge | None


class GatedGroups:
    """All groups by key. Subscribers are notified of each group that changes, after the change.

    After a change of a policy or a namespace its pods are filed again: at once, or by `file_stale` after `defer_to`.
    """

    def __init__(
        self,
        pods: Mapping[str, Pod],
        policies: PolicyTable,
        namespaces: Namespaces,
        placements: Placements,
        node: Callable[[str], Node | None],
        exempt: Exempt = _NOTHING_EXEMPT,
    ) -> None:
        """``node``: returns the node of a name. ``exempt``: objects that no policy applies to."""
        self.groups: dict[GroupKey, GatedGroup] = {}
        self.changes: Subscribers[GroupKey] = Subscribers()
        # What released pods use of quotas.
        self.charges = Charges()
        # Notifies of policies whose pods use less, or whose pods are all charged again after a change.
        self.freed: Subscribers[str] = Subscribers()
        # Gated pods that no policy releases: by UID the usual gate, or the gate of the policy that released it before.
        self.orphans: dict[str, str] = {}
        # Notifies of the UID of each new orphan.
        self.orphan_changes: Subscribers[str] = Subscribers()
        # By UID, the pods that the leader has recorded; deleted pods stay while the object of their group names them.
        self.records: dict[str, ReleaseRecord] = {}
        self._placements = placements
        self._node = node
        self._exempt = exempt
        self._by_name: dict[str, Policy] = {}  # policies that release pods
        # How many policies list or limit domains; 0 if ``holds`` is false, because nothing is released.
        self.domain_policies = 0
        self.holds = True
        self._pods = pods
        self._policies = policies
        self._namespaces = namespaces
        self._releasing = 0
        self._members: dict[str, _Member] = {}
        self._known: dict[str, dict[str, None]] = {}
        self._stale: dict[str, None] = {}  # UIDs of pods that are being filed again
        self._settling: set[str] = set()  # policies that are settled once all of these pods are filed
        self._next: dict[str, None] = {}  # UIDs of pods to be filed again after these
        self._then: set[str] = set()
        self._on_stale: Callable[[], None] | None = None
        self._policies_of: WeakKeyDictionary[PodSignature, tuple[Policy, ...]] = WeakKeyDictionary()
        policies.changes.subscribe(self._policy_changed)
        placements.changes.subscribe(self._placement_changed)
        namespaces.changes.subscribe(self._namespace_changed)

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[GatedGroup]:
        return iter(self.groups.values())

    def statistics(self) -> dict[str, int]:
        """How many groups there are, and how many pods are in them."""
        return {"groups": len(self.groups), "grouped_pods": len(self._members)}

    def group_of(self, uid: str) -> GatedGroup | None:
        """The group that a pod is in. O(1)."""
        member = self._members.get(uid)
        return None if member is None else member.group

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """Applies a change of a pod that has, or had, a `Gating` or a record. None: it is deleted or finished. O(1)."""
        if new is None:
            self.records.pop(uid, None)
        if new is None or not self._is_followed(new):
            self.orphans.pop(uid, None)
            if old is not None and self._releasing:
                self._forget(uid, old.namespace)
        elif self._releasing:
            self._known.setdefault(new.namespace, {})[uid] = None
            self._file(uid, new)
        elif new.gating is not None:
            self._set_orphan(uid, self.orphans.get(uid, RELEASE_GATE), new.gating)

    def _is_followed(self, pod: Pod) -> bool:
        return pod.gating is not None or pod.uid in self.records

    def _forget(self, uid: str, namespace: str) -> None:
        here = self._known.get(namespace)
        if here is not None:
            here.pop(uid, None)
            if not here:
                del self._known[namespace]
                shrink(self._known)
        self._put(uid, None)

    def _file(self, uid: str, pod: Pod) -> None:
        before, gating = self._members.get(uid), pod.gating or _NO_GATING
        wanted = self._wanted(pod, before)
        if wanted is None:
            # Gated, and no policy releases it: an orphan, by the gate of the policy that released it before.
            gate = before.group.release.gate if before is not None else self.orphans.get(uid, RELEASE_GATE)
            self._set_orphan(uid, gate, gating)
        else:
            self.orphans.pop(uid, None)
        self._put(uid, wanted)

    def _set_orphan(self, uid: str, gate: str, gating: Gating) -> None:
        if gate not in gating.gates:
            self.orphans.pop(uid, None)
        elif self.orphans.get(uid) != gate:
            self.orphans[uid] = gate
            self.orphan_changes.notify(None, uid)

    def _wanted(self, pod: Pod, before: _Member | None) -> _Member | None:
        gating, record = pod.gating or _NO_GATING, self.record_of(pod)
        # 1. Released and recorded: the record decides, not what is written in the pod.
        if record is not None and not gating.gates:
            return self._recorded(pod, gating, record)
        # 2. Never gated: no member of a group.
        if pod.gating is None:
            return None
        policy = self._policy_of(pod, gating, before)
        if policy is None or policy.release is None:
            return None
        release, name = policy.release, str(policy.key)
        # 3. Gated: the labels decide. Released without a record: its group until now, or after a restart its
        #    annotation.
        if gating.gates:
            value = _group_value(pod, gating, release)
        else:
            value = (
                before.group.key.value if before is not None and before.group.key.policy == name else gating.released
            )
        group = self._group(GroupKey(pod.namespace, name, value), policy, release)
        # Groups that were decided before the policy counted domains have no records, so their pods are charged by node
        # affinity.
        is_charged = release.counts_domains and not gating.gates and self._is_unrecorded(group.key)
        charge = charge_of(pod, release, None) if is_charged else None
        return _Member(group, _role(pod, gating), _size(pod, gating, release.size), charge)

    def _recorded(self, pod: Pod, gating: Gating, record: ReleaseRecord) -> _Member | None:
        """The group of a released pod's record, whatever its labels say and whichever policy selects it now."""
        policy = self._by_name.get(record.group.policy)
        if policy is None or policy.release is None:
            return None
        release = policy.release
        size = 1 if is_own_group(record.group) else _size(pod, gating, release.size)
        charge = charge_of(pod, release, record) if release.counts_domains else None
        return _Member(self._group(record.group, policy, release), _role(pod, gating), size, charge)

    def _is_unrecorded(self, group: GroupKey) -> bool:
        """Whether a group was decided before its policy counted domains.

        Then its pods are recognized by their annotation.
        """
        placement = self._placements.of(group)
        return placement is not None and placement.decided is not None and placement.pods is None

    def _policy_of(self, pod: Pod, gating: Gating, before: _Member | None) -> Policy | None:
        """The first policy whose gate the pod has; for a released pod its group's policy, while that selects it."""
        policies = self._policies_for(pod.signature)
        if gating.gates:
            return next((policy for policy in policies if policy.release and policy.release.gate in gating.gates), None)
        name = "" if before is None else before.group.key.policy
        return next((policy for policy in policies if str(policy.key) == name), policies[0] if policies else None)

    def _group(self, key: GroupKey, policy: Policy, release: ReleaseSpec) -> GatedGroup:
        group = self.groups.get(key)
        if group is None:
            return GatedGroup(key, policy, release)
        if group.policy is not policy:
            group.policy, group.release = policy, release
            self.changes.notify(key, key)
        return group

    def _put(self, uid: str, new: _Member | None) -> None:
        old = self._members.get(uid)
        if old == new:
            return
        if old is not None:
            del self._members[uid]
            _count(old, uid, -1)
        if new is not None:
            self._members[uid] = new
            _count(new, uid, 1)
            self.groups.setdefault(new.group.key, new.group)
        self._charge_anew(old, new)
        if old is not None and not old.group.roles:
            self.groups.pop(old.group.key, None)
            shrink(self.groups)
        for group in {id(member.group): member.group for member in (old, new) if member is not None}.values():
            self.changes.notify(group.key, group.key)

    def _charge_anew(self, old: _Member | None, new: _Member | None) -> None:
        before, after = (None if member is None else member.charge for member in (old, new))
        # Adds before it removes, so that a charge that stays does not look free in between.
        if new is not None and after is not None:
            self.charges.count(new.group.key.policy, after, 1)
        if old is not None and before is not None:
            policy = old.group.key.policy
            self.charges.count(policy, before, -1)
            if before != after or new is None or new.group.key.policy != policy:
                self.freed.notify(policy, policy)

    def _policies_for(self, signature: PodSignature) -> tuple[Policy, ...]:
        """The policies that release pods of a signature, in order. O(1) for a known signature."""
        known = self._policies_of.get(signature)
        if known is None:
            subject = signature.subject(self._namespaces.labels(signature.namespace))
            known = self._policies_of[signature] = tuple(self._policies.select(subject, Moment.RELEASE))
        return known

    def followed(self) -> list[str]:
        """The UIDs of the pods that are gated or were released. Empty if no policy releases pods. O(such pods)."""
        return [uid for here in self._known.values() for uid in here]

    def wrong_groups(self) -> list[str]:
        """One line for each group whose counts differ from its pods; for the audit. O(grouped pods)."""
        problems = [f"group {group.key}: counts differ from its pods" for group in self if not _is_consistent(group)]
        filed = sum(len(group.roles) for group in self)
        if filed != len(self._members):
            problems.append(f"groups: {filed} pods are filed by group, {len(self._members)} by pod")
        charged = (
            (member.group.key.policy, member.charge) for member in self._members.values() if member.charge is not None
        )
        return problems + self.charges.problems(charged)

    def wrong_pods(self, uids: Iterable[str]) -> list[str]:
        """One line for each of these pods that is in a wrong group or state. O(pods)."""
        problems = []
        for uid in uids:
            if uid in self._stale or uid in self._next:
                continue
            pod, before = self._pods.get(uid), self._members.get(uid)
            wanted = self._wanted(pod, before) if pod is not None else None
            if wanted != before or (before is not None and before.group.roles.get(uid) is not before.role):
                problems.append(f"pod {uid}: is in a wrong group or state")
        return problems

    # -- records -------------------------------------------------------------------------------------------------------

    def record_of(self, pod: Pod) -> ReleaseRecord | None:
        """The record of a pod; None if it has none. O(1)."""
        record = self.records.get(pod.uid)
        return record if record is not None and record.group.namespace == pod.namespace else None

    def recorded_in(self, group: GroupKey) -> list[str]:
        """The UIDs of a group's recorded pods, terminating pods included. O(its pods)."""
        grouped = self.groups.get(group)
        records = self.records
        return [uid for uid in grouped.roles if uid in records and records[uid].group == group] if grouped else []

    def record(self, group: GroupKey, levels: Sequence[Level], pods: Iterable[str]) -> None:
        """The object of a group records these pods. O(pods)."""
        record = ReleaseRecord(group, levels[0] if levels else None)
        for uid in pods:
            if self.records.get(uid) != record:
                self.records[uid] = record
                self._file_recorded(uid)

    def adopt(self, pod: Pod) -> None:
        """Records a bound pod that quotas of a policy limit: as a group of its own, in the domain of its node.

        O(1) if there are no such policies.
        """
        policy = self.holding(pod)
        if policy is None or policy.release is None or not policy.release.has_quotas:
            return
        key, node = policy.release.topology[0], self._node(pod.node)
        value = None if node is None else node.labels.get(key)
        group = GroupKey(pod.namespace, str(policy.key), own_group(pod.uid))
        self.record(group, () if value is None else (Level(key, value),), (pod.uid,))

    def may_hold(self, signature: PodSignature) -> bool:
        """Whether a policy that lists or limits domains selects pods of a signature. O(1) for a known signature."""
        if not self.domain_policies:
            return False
        return any(
            policy.release is not None and policy.release.counts_domains for policy in self._policies_for(signature)
        )

    def holding(self, pod: Pod) -> Policy | None:
        """The policy whose domains limit a pod without the policy's gate; None for most pods.

        A pod that the leader has recorded is not limited: it is narrowed to its domain. O(1) if there are no such
        policies.
        """
        if not self.domain_policies or self.record_of(pod) is not None:
            return None
        known = self._pods.get(pod.uid, pod)  # the watched pod: a release is tried with copies without gates
        if known.gating is not None and known.gating.gates:
            return None
        signature = pod.signature
        policy = next(
            (candidate for candidate in self._policies_for(signature) if candidate.mode is Mode.ENFORCE), None
        )
        if policy is None or policy.release is None or not policy.release.counts_domains:
            return None
        is_exempt = signature.owner_kind == DAEMON_SET or self._exempt.covers(signature.namespace, signature.labels)
        return None if is_exempt else policy

    def _placement_changed(self, change: IndexChange[GroupPlacement]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and (old.pods, old.decision) == (new.pods, new.decision):
            return
        placement = new or old
        if placement is None:
            return
        if new is not None and new.decided is not None:
            self.record(new.group, new.levels, new.pods or ())
        still_recorded = () if new is None or new.pods is None else new.pods
        for uid in set(old.pods or () if old is not None else ()).difference(still_recorded):
            if uid not in self._pods:  # otherwise its record stays until the pod is deleted
                self.records.pop(uid, None)
        group = self.groups.get(placement.group)
        if group is not None and group.release.counts_domains:
            for uid in list(group.roles):
                self._file_recorded(uid)

    def _file_recorded(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None and self._releasing and self._is_followed(pod):
            self._known.setdefault(pod.namespace, {})[uid] = None
            self._file(uid, pod)

    # -- changes that concern many pods --------------------------------------------------------------------------------

    def _policy_changed(self, change: IndexChange[Policy]) -> None:
        # Only policies that release pods matter, before or after the change.
        old, new = (changed is not None and changed.release is not None for changed in (change.old, change.new))
        if not (old or new):
            return
        self._policies_of.clear()
        # The first such policy: until now pods were not followed. The last one: see the end.
        if self._releasing == 0:
            for pod in self._pods.values():
                if self._is_followed(pod):
                    self._known.setdefault(pod.namespace, {})[pod.uid] = None
        self._releasing += new - old
        for policy, is_new in ((change.old, False), (change.new, True)):
            if policy is not None and policy.release is not None:
                self.domain_policies += self.holds and policy.release.counts_domains * (1 if is_new else -1)
                self._by_name.pop(str(policy.key), None)
                if is_new:
                    self._by_name[str(policy.key)] = policy
        # A namespaced policy concerns pods of its namespace, a cluster-wide policy all.
        policy = change.new if change.new is not None else change.old
        namespaces = [policy.key.namespace] if policy is not None and policy.key.namespace else list(self._known)
        releases = [changed.release for changed in (change.old, change.new) if changed is not None]
        counts = any(release is not None and release.counts_domains for release in releases)
        # With quotas or domains the policy is settled only once all its pods are charged again.
        self._file_again(namespaces, str(policy.key) if policy is not None and counts else "")
        if self._releasing == 0:
            self._known.clear()

    def _namespace_changed(self, change: IndexChange[Namespace]) -> None:
        namespace = change.new or change.old
        if self._releasing and namespace is not None and namespace.name in self._known:
            self._policies_of.clear()
            self._file_again([namespace.name])

    def _file_again(self, namespaces: Iterable[str], policy: str = "") -> None:
        """Files gated and released pods of the namespaces again.

        O(such pods): 10 µs each, or 40 ns if they are filed later.

        ``policy``: a policy that is settled when all of them are filed. Pods that are being filed are finished first,
        so that a tenant cannot delay other tenants' policies by changes of its own.
        """
        for namespace in namespaces:
            self._next.update(self._known.get(namespace, _NONE))
        if policy:
            self.charges.unsettled.add(policy)
            self._then.add(policy)
        if self._on_stale is not None:
            self._on_stale()
        while self._on_stale is None and self.file_stale():
            pass

    def defer_to(self, on_stale: Callable[[], None] | None) -> None:
        """From now on ``on_stale`` is called when pods must be filed again, and the caller calls `file_stale`."""
        self._on_stale = on_stale
        while on_stale is None and self.file_stale():
            pass

    def file_stale(self) -> bool:
        """Files some pods again after a change of a policy or namespace. Returns whether any remain."""
        # A new round: the pods that were marked meanwhile, and the policies that wait for them.
        if not self._stale:
            self._stale, self._next = self._next, {}
            self._settling, self._then = self._then, set()
        for _ in range(min(_FILED_A_STEP, len(self._stale))):
            uid = self._stale.popitem()[0]
            pod = self._pods.get(uid)
            if pod is not None and self._is_followed(pod):
                self._file(uid, pod)
            else:
                self._put(uid, None)
        if not self._stale:
            # A policy is settled unless it was marked again meanwhile.
            settled, self._settling = self._settling - self._then, set()
            self.charges.unsettled -= settled
            for policy in settled:
                self.freed.notify(policy, policy)
        return bool(self._stale or self._next or self._then)


def _count(member: _Member, uid: str, sign: int) -> None:
    group, role, size, _ = member
    group.counts[role] += sign
    remaining = group.sizes.get(size, 0) + sign
    if remaining:
        group.sizes[size] = remaining
    else:
        del group.sizes[size]
    if sign > 0:
        group.roles[uid] = role
    else:
        del group.roles[uid]


def _is_consistent(group: GatedGroup) -> bool:
    counts = [sum(member is role for member in group.roles.values()) for role in GatedPodState]
    return bool(group.roles) and counts == group.counts and sum(group.sizes.values()) == len(group.roles)


def _role(pod: Pod, gating: Gating) -> GatedPodState:
    if pod.terminating:
        return GatedPodState.LEAVING
    if gating.gates:
        return GatedPodState.READY if len(gating.gates) == 1 else GatedPodState.BLOCKED
    return GatedPodState.BOUND if pod.node else GatedPodState.RELEASED


def _group_value(pod: Pod, gating: Gating, release: ReleaseSpec) -> str:
    named = pod.signature.labels.get(release.group_label) if release.group_label else gating.owner
    return named or own_group(pod.uid)


def _size(pod: Pod, gating: Gating, size: GroupSize) -> int:
    """The size that a pod claims for its group; `UNREADABLE` if it claims no readable size."""
    if size.label:
        text = pod.signature.labels.get(size.label, "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER else UNREADABLE
    if size.annotation:
        return dict(gating.numbers).get(size.annotation, UNREADABLE)
    return size.count


class Placements:
    """The GroupPlacements. Subscribers are notified of each object that is added, changed or deleted."""

    def __init__(self) -> None:
        self.changes: Subscribers[GroupPlacement] = Subscribers()
        self._by_key: dict[str, GroupPlacement] = {}
        self._by_group: dict[GroupKey, GroupPlacement] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[GroupPlacement]:
        return iter(self._by_key.values())

    def of(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group. O(1)."""
        return self._by_group.get(group)

    def change(self, placement: GroupPlacement, *, is_gone: bool) -> bool:
        """Applies an object as it is now; False if it has not changed. O(1)."""
        old = self._by_key.get(placement.key)
        new = None if is_gone else placement
        if old == new:
            return False
        if old is not None and self._by_group.get(old.group) is old:
            del self._by_group[old.group]
            shrink(self._by_group)
        if new is None:
            self._by_key.pop(placement.key, None)
            shrink(self._by_key)
        else:
            self._by_key[placement.key] = new
            if new.name == placement_name(new.group):  # else a user has made it
                self._by_group[new.group] = new
        self.changes.notify(old, new)
        return True

    def statistics(self) -> dict[str, int]:
        """Sizes, for metrics."""
        return {"group_placements": len(self._by_key)}

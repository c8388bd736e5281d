"""The index: joins its tables, and applies each change to them in a fixed order.

Only tasks and the simulator write, through ``upsert`` and ``delete``. Rules, verbs and the server get ``view``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from extender.index.availability import DomainTable
from extender.index.claims.assumed import Assumed, AssumedPods
from extender.index.claims.nominations import Nominations, RejectedPods
from extender.index.claims.reserved import Reservations
from extender.index.counts.compiled_constraints import Counted
from extender.index.counts.counts import Counts
from extender.index.counts.groups import IndexDriftError
from extender.index.counts.namespace_budgets import NamespaceBudgets
from extender.index.disruption_budgets import Budgets
from extender.index.gated import GatedGroups, Placements
from extender.index.nodes.requested_shares import RequestedShares
from extender.index.nodes.room import RoomTable
from extender.index.nodes.topology import NodePods, Topology
from extender.index.objects.changes import ChangeJournal, PodSubscribers, Subscribable, Subscribers
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.workloads import Workloads
from extender.index.policies import PolicyTable
from extender.index.tables import IndexParts, MakeTable, joined
from extender.index.view import ClusterView
from extender.model.bounded import DeletedPods, DictInParts, shrink
from extender.model.changes import Nomination, NominationEnd, NominationRelease, ObjectChange
from extender.model.group_placements import GroupPlacement
from extender.model.objects import (
    DisruptionBudget,
    Namespace,
    Node,
    Object,
    Pod,
    TopologyDomains,
    Workload,
)
from extender.model.policies import PolicyObject
from extender.settings.limits import NamespaceLimits
from extender.settings.policies import Policies
from extender.settings.rules import Rules

_NAMESPACE_LIMITS: Final = NamespaceLimits()
_POLICIES: Final = Policies()


class ClusterIndex:
    """Pods, nodes, namespaces, workloads, budgets and policies, with every count that rules and verbs read.

    ``drifts``: how often the counts had to be rebuilt. ``assume``: see `AssumedPods`.
    """

    def __init__(
        self,
        rules: Rules,
        counted: Sequence[type[Counted]],
        *,
        rejects_excess: bool = True,
        namespace_limits: NamespaceLimits = _NAMESPACE_LIMITS,
        policies: Policies = _POLICIES,
        counts_room: bool = False,
        holds_to_domains: bool = True,
        shadow: Rules | None = None,
        tables: Sequence[MakeTable] = (),
    ) -> None:
        """``counted``: what the rules count. ``policies``: how many act, and which pods are exempt.

        - ``counts_room``: the rules count free resources, because several schedulers place pods
        - ``holds_to_domains``: pods without a policy's gate may go to the policy's domains only
        - ``shadow``: rules for decisions that are only compared, see `ClusterView.shadow_compiled`
        - ``tables``: of features, in the order in which they are told of a pod
        """
        self.drifts = 0
        self.journal = ChangeJournal()
        self.pods: DictInParts[Pod] = DictInParts()
        self.unplaced: dict[str, Pod] = {}  # the pods of `pods` without a node
        self.namespaces = Namespaces()
        self.workloads = Workloads()
        self.budgets = Budgets()
        self.deleted = DeletedPods(self.pods)
        self.policies = PolicyTable(policies)
        self.placements = Placements()
        self.pod_changes = PodSubscribers()
        self.room_changes: Subscribers[str] = Subscribers()  # nodes that changed or that a pod left
        self.topology = Topology()
        self.domains = DomainTable(self.topology, self.journal)
        self.policies.changes.subscribe(lambda change: self.domains.policy_changed(change.old, change.new))
        self.nodes = NodePods()
        self.shares = RequestedShares(self.topology, self.nodes)
        self.room = RoomTable(self.topology, self.nodes) if counts_room else None
        self.namespace_budgets = NamespaceBudgets(namespace_limits, rejects_excess=rejects_excess)
        self.counts = Counts(
            rules,
            counted,
            self.topology,
            self.namespaces,
            self.workloads,
            self.namespace_budgets,
            self.journal,
            shadow=shadow,
        )
        self.policies.release = self.counts.compiler.release
        self.nominations = Nominations(self.pods)
        self.reserved = Reservations(self.pods, self.nominations, self.journal)
        self.gated = GatedGroups(
            self.pods, self.policies, self.namespaces, self.placements, self._node_called, policies.exempt
        )
        self.gated.holds = holds_to_domains
        self.rejected = RejectedPods(self.deleted)
        parts = IndexParts(
            self.pods,
            lambda: self.assumed.held,
            self.nominations.in_memory,
            self.namespaces,
            self.policies,
            policies.exempt,
        )
        self.tables = tuple([make(parts) for make in tables])
        self._table_of_kind = {table.kind: table for table in self.tables}
        # None if no feature is told of pods, so that their events cost no call.
        self._observe = joined(self.tables)
        self.assumed = AssumedPods(
            self.pods,
            self.counts.signatures,
            self._count,
            self.deleted,
            self.topology.known,
            self.journal,
            self._observe,
            self.room,
            (self.reserved.held, self._move_slot),
        )
        self.assume = self.assumed.assume
        self.view = ClusterView(self)

    def rebuild(self) -> None:
        """Counts everything again from the objects, in one step. Repairs a drift, which only a bug causes.

        O(pods): about a second for 100,000. Constraints are compiled again when they are next needed.
        """
        self.drifts += 1
        self.counts.clear()
        self.nodes.clear()
        self.shares.clear()
        for pod in self.pods.values():
            # Pods without a node too: constraints of a signature without any pod are idle, and may be evicted.
            self.counts.count_pod(pod.signature, 1)
            if pod.node:
                self._count(pod, 1)
                self.namespace_budgets.hold(pod.signature)
        # Claims stay: only what is counted from them is made again.
        self.assumed.recount(self.counts.signatures)
        if self.room is not None:
            self.room.rebuild()
        for table in self.tables:
            table.rebuild()

    def upsert(self, obj: Object) -> bool:
        """Applies an object as it is now; False if nothing has changed that we read."""
        try:
            return self._change(obj, obj)
        except IndexDriftError:
            self.rebuild()
            self._change(obj, obj)  # again, because the drift may have interrupted it
            return True

    def delete(self, obj: Object) -> bool:
        """Applies the deletion of an object; False if it was not there."""
        try:
            return self._change(obj, None)
        except IndexDriftError:
            self.rebuild()
            self._change(obj, None)
            return True

    def _change(self, obj: Object, new: Object | None) -> bool:
        """Applies an object of any kind. ``new``: the object itself, or None if it is deleted."""
        if self.journal.note is not None and not isinstance(obj, Pod):
            self.journal.note(ObjectChange(obj, new is None))
        match obj:
            case Pod():
                # A pod in phase Succeeded or Failed takes no room and has no effect on others, as in the scheduler's
                # cache.
                return self._change_pod(obj.uid, None if new is None or obj.finished else obj)
            case Node():
                return self._change_node(obj.name, None if new is None else obj)
            case Namespace():
                return self.counts.change_namespace(obj.name, None if new is None else obj)
            case Workload():
                return self.workloads.change(obj.key, None if new is None else obj)
            case DisruptionBudget():
                return self.budgets.change(obj.key, None if new is None else obj)
            case PolicyObject():
                return self._change_policy(obj, is_gone=new is None)
            case GroupPlacement() | TopologyDomains():
                return self._change_custom(obj, is_gone=new is None)
            case _:
                table = self._table_of_kind.get(type(obj))
                return table is not None and table.change(obj.key, new)

    def _change_custom(self, obj: GroupPlacement | TopologyDomains, *, is_gone: bool) -> bool:
        if isinstance(obj, TopologyDomains):
            return self.domains.change(obj, is_gone=is_gone)
        return self.placements.change(obj, is_gone=is_gone)

    def _change_policy(self, obj: PolicyObject, *, is_gone: bool) -> bool:
        before, key = self.policies.version, obj.policy.key
        if is_gone:
            self.policies.remove(key)
        else:
            self.policies.put(obj.policy)
            self.policies.moves.pop(key, None)
            if obj.moves:
                self.policies.moves[key] = obj.moves
        return self.policies.version != before

    def _change_pod(self, uid: str, new: Pod | None) -> bool:
        # The order of the steps matters:
        #
        # 1. The table of pods comes first, because the following tables look pods up there.
        # 2. The assumption ends before the recount, because the recount replaces what counted for the pod so far.
        # 3. Tables of features and subscribers come last, because they read the other tables.
        #
        # Each condition skips a table that the event cannot change. Most events change only a status. They cost the
        # comparison, step 1, and the look-ups of the conditions.
        old = self.pods.get(uid)
        if old == new:
            return False
        if self.journal.note is not None and (changed := new or old) is not None:
            self.journal.note(ObjectChange(changed, new is None))
        self._hold(uid, old, new)
        # A pod that is bound or deleted waits for no requeue.
        if (new is None or new.node) and self.rejected.held:
            self.rejected.discard(uid)
        ended = self.assumed.observe(uid, old, new)
        # What counted so far: the pod of the watch, or the assumed pod, which counts on its node with the labels of
        # then.
        counted = old if ended is None else ended.pod
        if (new is not None and new.node) or (counted is not None and counted.node):
            self._recount(counted, new)
        # Pods by signature: only if the pod comes or goes, changes its signature, or gets its node.
        if old is None or new is None or old.signature is not new.signature or (new.node and not old.node):
            self._change_signature(old, new)
        # Nominations: by its status, or by a plan in memory.
        if uid in self.nominations.concerned or (new is not None and new.nominated_node):
            self.nominations.change(uid, new)
        # Slots and groups of gated pods.
        if uid in self.reserved.held or _has_gating(old, new) or uid in self.gated.records:
            self._change_release(uid, old, new)
        # An assumed pod is bound: if it was never gated by us, it is charged to the quota of a domain from now on.
        if ended is not None and new is not None and new.node and self.gated.domain_policies:
            self.gated.adopt(new)
        if self._observe is not None and (changed := new or old) is not None:
            self._observe(changed)
        self._notify(uid, old, new, ended)
        return True

    def _hold(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            self.pods.pop(uid)
        else:
            self.pods[uid] = new
        if new is not None and not new.node:
            self.unplaced[uid] = new
        elif old is not None and not old.node:
            del self.unplaced[uid]
            shrink(self.unplaced)

    def _notify(self, uid: str, old: Pod | None, new: Pod | None, ended: Assumed | None) -> None:
        """Calls the subscribers, after all counts are updated."""
        if ended is not None:
            self.assumed.tell_end(ended, new)
        if uid in self.pod_changes.by_uid:
            self.pod_changes.notify(uid, old, new)

    def _change_release(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """Applies a change of a pod that has a slot, waits to be released, or was released."""
        if uid in self.reserved.held:
            if new is not None and new.node:
                # Before `observe`, which ends the slot: a sibling with a slot on that node gets this pod's slot in
                # exchange.
                self._move_slot(new)
            self.reserved.observe(uid, new)
        self.gated.change(uid, old, new)

    def _move_slot(self, pod: Pod) -> None:
        """A pod counts on a node now. It may have a slot, or get the slot of a pod that it replaces."""
        if pod.uid in self.reserved.held:
            number = self.topology.known.get(pod.node)
            self.reserved.follow(pod.uid, pod.node, () if number is None else self.nodes.pods_on(number))
        else:
            self.reserved.hand_over(pod)

    def _change_signature(self, old: Pod | None, new: Pod | None) -> None:
        """Counts the pods of each signature, placed or not. Constraints of a signature without a pod are idle.

        A signature with a pod on a node counts in the budget of its namespace. A pod that comes to its node may use a slot.
        """
        count_pod = self.counts.count_pod
        # Adding before removing, so that the constraints of an unchanged signature do not become idle in between.
        if new is not None:
            count_pod(new.signature, 1)
            if new.node:
                self.namespace_budgets.hold(new.signature)
                if self.reserved.held and (old is None or not old.node):
                    self.reserved.hand_over(new)
        if old is not None:
            count_pod(old.signature, -1)

    def _recount(self, old: Pod | None, new: Pod | None) -> None:
        """Counts a pod as it is now, in place of what counted for it so far. O(groups whose count changes).

        1. Same node, and equal for a preemption: the signature is replaced. That costs only groups that count one of
           the two signatures differently. Most events are such: an assumed pod is bound to its node, or a status
           changes. Then no version grows, and decisions that were made by it stay valid.
        2. Otherwise the pod is removed from its old node and added to its new node.
        """
        if old is not None and new is not None and old.node == new.node and _is_same_victim(old, new):
            number = self.topology.number(new.node)
            self.counts.signatures.replace(old.signature, new.signature, new.terminating, number)
            self.nodes.replace(new, number)
            return
        if old is not None and old.node:
            self._count(old, -1)
            self.room_changes.notify(None, old.node)
        if new is not None and new.node:
            self._count(new, 1)

    def _count(self, pod: Pod, sign: int) -> None:
        """Adds a pod to its node or removes it, by ``sign``. O(groups that count it)."""
        topology = self.topology
        number = topology.number(pod.node)
        self.counts.signatures.put(pod.signature, pod.terminating, number, sign)
        if self.reserved.by_node:
            self.reserved.touched(pod.node)
        has_pods = self.nodes.count(pod, number, sign)
        self.shares.count(pod, number, sign)
        if self.room is not None:
            self.room.count(pod, number, sign)
        if sign < 0 and self.domains.follows_room:
            self.domains.freed(number)
        # The last pod of a node that does not exist: its number becomes free.
        if not has_pods and topology.nodes[number] is None:
            self._release_number(number)

    def _release_number(self, number: int) -> None:
        """Neither a node nor a pod uses the number now."""
        # The number may be given to the next new node, so nothing may still be filed under it.
        self.topology.release_number(number)
        self.shares.shrink()

    def _node_called(self, name: str) -> Node | None:
        number = self.topology.known.get(name)
        return None if number is None else self.topology.node(number)

    def _change_node(self, name: str, new: Node | None) -> bool:
        if new is None and name not in self.topology.known:
            return False
        number = self.topology.number(name)
        old = self.topology.nodes[number]
        if old == new:
            return False
        pods = self.nodes.pods_on(number)
        # Counts first; then columns that are computed from the node and its pods; domains and subscribers last.
        self.counts.change_node(number, new, pods.values())
        self.shares.set_node(number)
        if self.room is not None:
            self.room.set_node(number)
        if new is None and not pods:
            self._release_number(number)
        self.domains.node_changed(number, old, new)
        self.room_changes.notify(None, name)
        return True

    @property
    def unwatched_changes(self) -> tuple[Subscribable, ...]:
        """Changes of claims that may let a rejected pod pass and that the scheduler does not watch."""
        return (self.assumed.unconfirmed,)

    def nominate_in_memory(self, pod: Pod, node: str, victims: Collection[str]) -> None:
        """A plan for the pod is executed: it counts as nominated there until `release_nomination`.

        ``victims`` are UIDs.
        """
        if self.journal.note is not None:
            self.journal.note(Nomination(pod, node, tuple(sorted(victims))))
        self.nominations.nominate_in_memory(pod, node, victims)
        self._observe_claim(pod.uid)

    def release_nomination(self, uid: str) -> None:
        """The pod counts as nominated where its status says. The plan continues."""
        if self.journal.note is not None:
            self.journal.note(NominationRelease(uid))
        self.nominations.release_nomination(uid)
        self._observe_claim(uid)

    def end_nomination(self, uid: str) -> None:
        """The plan for the pod is over."""
        if self.journal.note is not None:
            self.journal.note(NominationEnd(uid))
        self.nominations.end_nomination(uid)
        self._observe_claim(uid)

    def _observe_claim(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if self._observe is not None and pod is not None:
            self._observe(pod)

    def statistics(self) -> dict[str, int]:
        """Sizes of everything that is kept, for metrics."""
        result = {"pods": len(self.pods), "workloads": len(self.workloads.objects), "drifts": self.drifts}
        result |= {"assumed_pods": len(self.assumed.held), "rejected_pods": len(self.rejected)}
        rooms = (self.topology, self.domains, self.namespaces, self.budgets, self.policies)
        others = (self.placements, self.counts, self.nominations, self.reserved, self.gated)
        for sizes in (
            *[part.statistics for part in rooms],
            *[table.statistics for table in self.tables],
            *[part.statistics for part in others],
        ):
            result |= sizes()
        return result


def _has_gating(old: Pod | None, new: Pod | None) -> bool:
    """Whether the groups of gated pods may change. Most pods are never gated."""
    return (new is not None and new.gating is not None) or (old is not None and old.gating is not None)


def _is_same_victim(old: Pod, new: Pod) -> bool:
    """Whether the dry run of a preemption treats both alike. If not, its results must not stay valid."""
    return (
        old.terminating == new.terminating
        and old.priority == new.priority
        and old.preempted == new.preempted
        and old.requests == new.requests
    )

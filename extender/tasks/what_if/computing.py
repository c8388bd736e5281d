"""Computes a what-if on an index of its own, in steps, so that a budget can be checked between them.

Each pod is decided by `verbs/what_if.py` and then put on its node in the index, so that the next one counts it:
as in kube-scheduler, which assumes each pod before the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias, TypeVar
from zlib import crc32

from msgspec import structs

from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import Obstacle
from extender.model.answers.what_if import Displaced, Given, Placement, Removal, WhatIf, WhatIfAnswer, WhatIfSummary
from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import NAME_FIELD, NodeSelectorTerm
from extender.model.objects import Object, Pod
from extender.model.policies import GROUP, PolicyKey, PolicyObject
from extender.rules.constraint_states import Steps
from extender.settings.configuration import Settings
from extender.verbs.explain.explaining import UNSEEN, explain
from extender.verbs.what_if import Placing
from extender.wire.errors import WireError
from extender.wire.manifests import decode_what_if

_Found = TypeVar("_Found", bound=Object)
Origin: TypeAlias = Literal["given", "displaced", "pending"]

_A_STEP: Final = 500  # objects, at 10 µs
_NOT_STARTED: Final = datetime.max.replace(tzinfo=UTC)
_LATEST: Final = "~"  # after every time
_BOUND_TO_NODE: Final = frozenset({"DaemonSet", "Node"})  # kinds of owners; the latter has the mirrors of static pods


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that is to be placed, why, and the node that it was on."""

    pod: Pod
    origin: Origin
    was: str = ""


@dataclass(slots=True)
class Prepared:
    """After the changes: the pods to place in their order, what is decided of others, and how many were left out."""

    queue: list[Waiting]
    decided: list[Placement]
    not_tried: int = 0


def prepare(what_if: WhatIf, index: ClusterIndex) -> Steps[Prepared]:
    """Applies the changes. Raises WireError for a change of an object that does not exist. O(objects given + pods).

    Exclusions of topology domains that are given begin and end with it; no time passes, so no domain becomes unavailable for long.
    """
    changes = _Changes(index)
    for each in what_if.removals:
        yield from changes.remove(each)
    changes.displace(what_if.displaced)
    for at, given in enumerate(what_if.given):
        changes.give(given)
        if at % _A_STEP == _A_STEP - 1:
            yield
    if index.domains.due() <= index.domains.now:
        index.domains.step(index.domains.now)
    if index.policies.about_placed_pods or index.counts.has_policy_terms:
        for at, counted in enumerate(list(index.counts.signatures)):
            index.counts.recheck_policies(counted)
            if at % _A_STEP == _A_STEP - 1:
                yield
    return _queued(changes, what_if, index)


def _queued(changes: _Changes, what_if: WhatIf, index: ClusterIndex) -> Prepared:
    """In the order of kube-scheduler: by priority, then by creation. Pending pods come after others of their priority."""
    queue = [each for each in changes.waiting.values() if not each.pod.gated]
    found = changes.decided
    found += (
        Placement(pod=each.pod.full_name, state="gated", origin=each.origin, was=each.was)
        for each in changes.waiting.values()
        if each.pod.gated
    )
    queue.sort(key=_order)
    pending: list[Waiting] = []
    if what_if.pending:
        held, chosen = index.assumed.held, changes.waiting
        pending = [
            Waiting(pod, "pending")
            for uid, pod in index.pods.items()
            if not (pod.node or pod.gated or pod.terminating or uid in held or uid in chosen)
        ]
        pending.sort(key=_order)
    left_out = max(len(pending) - what_if.limit, 0)
    queue += pending[: what_if.limit]
    queue.sort(key=lambda each: -each.pod.priority)  # stable
    return Prepared(queue, found, left_out)


def _order(each: Waiting) -> tuple[int, str, datetime, str]:
    """Pods that were on a node come first, as only those without one have a creation time; given ones without it as given."""
    pod = each.pod
    if each.origin == "given":
        return -pod.priority, pod.created or _LATEST, _NOT_STARTED, ""
    return -pod.priority, pod.created, pod.start_time or _NOT_STARTED, pod.full_name


class _Changes:
    """The changes as they are applied. ``waiting``: the pods to place, by UID. ``decided``: pods that are gone with their node."""

    def __init__(self, index: ClusterIndex) -> None:
        self.waiting: dict[str, Waiting] = {}
        self.decided: list[Placement] = []
        self._index = index
        self._displaced: dict[str, str] = {}  # by UID the node that was deleted
        self._names: dict[str, Pod] | None = None

    def remove(self, removal: Removal) -> Steps[None]:
        """Deletes an object; those in a deleted namespace too. Raises WireError. O(1), and O(pods) for a namespace."""
        match removal.kind:
            case "Node":
                self._remove_node(removal)
            case "Pod":
                self._index.delete(_known(self._named(f"{removal.namespace}/{removal.name}"), removal))
            case "Namespace":
                self._index.delete(_known(self._index.namespaces.objects.get(removal.name), removal))
                pods = [pod for pod in self._index.pods.values() if pod.namespace == removal.name]
                for at, pod in enumerate(pods):
                    self._index.delete(pod)
                    if at % _A_STEP == _A_STEP - 1:
                        yield
            case _:
                self._index.delete(_known(_find(removal, self._index), removal))

    def _remove_node(self, removal: Removal) -> None:
        index, name = self._index, removal.name
        number = index.topology.known.get(name)
        node = None if number is None else index.topology.nodes[number]
        node = _known(node, removal)
        if number is not None:
            self._displaced |= dict.fromkeys(index.nodes.pods_on(number), name)
        index.delete(node)

    def displace(self, displaced: Displaced) -> None:
        """Takes pods from deleted nodes. O(pods there + assumed pods)."""
        index = self._index
        for uid, node in self._displaced.items():
            index.assumed.forget(uid)
            pod = index.pods.get(uid)
            if pod is None:
                continue
            if displaced is Displaced.GONE or _goes_with_node(pod, node):
                index.delete(pod)
                self.decided.append(Placement(pod=pod.full_name, state="gone", origin="displaced", was=node))
            else:
                self._wait(pod.recreated(), "displaced", node)
        known = index.topology.known
        for uid in [uid for uid, each in index.assumed.held.items() if known.keys().isdisjoint(each.nodes)]:
            index.assumed.forget(uid)  # it is pending again

    def give(self, given: Given) -> None:
        """Adds or replaces an object. A pod replaces the one of its name, and is placed unless it names its node."""
        if not isinstance(given.obj, Pod):
            self._index.upsert(given.obj)
            return
        # Its UID may be that of another pod, from which the manifest was copied.
        pod = structs.replace(given.obj, uid=given.obj.full_name)
        known, was = self._named(pod.full_name), ""
        if known is not None:
            earlier = self.waiting.pop(known.uid, None)
            was = known.node if earlier is None else earlier.was
            self._index.delete(known)
        if pod.node or pod.terminating or pod.finished:
            self._index.upsert(pod)
        else:
            self._wait(pod, "given", was)
        if self._names is not None:
            self._names[pod.full_name] = pod

    def _wait(self, pod: Pod, origin: Origin, was: str) -> None:
        self._index.upsert(pod)
        self.waiting[pod.uid] = Waiting(pod, origin, was)

    def _named(self, name: str) -> Pod | None:
        """The pod of a full name; the last one, where the watch still shows an earlier one. O(pods) for the first."""
        if self._names is None:
            self._names = {pod.full_name: pod for pod in self._index.pods.values()}
        found = self._names.get(name)
        return None if found is None else self._index.pods.get(found.uid)


def _known(found: _Found | None, removal: Removal) -> _Found:
    if found is None:
        where = f"{removal.namespace}/" if removal.namespace else ""
        raise WireError(f"{removal.path}.name", f"{removal.kind} {where}{removal.name} is not known")
    return found


def _find(removal: Removal, index: ClusterIndex) -> Object | None:
    """An object of a kind that has a table by key."""
    key = f"{removal.namespace}/{removal.name}"
    if removal.kind == "ResourceQuota":
        return index.quotas.objects.get(key)
    if removal.kind.endswith("Policy"):
        return _policy(PolicyKey(GROUP, removal.namespace, removal.name), index)
    return index.workloads.objects.get(f"{removal.kind}/{key}")


def _policy(key: PolicyKey, index: ClusterIndex) -> PolicyObject | None:
    invalid = (each for each in index.policies.invalid() if each.key == key)
    found = index.policies.get(key) or next(invalid, None)
    return None if found is None else PolicyObject(found)


def _goes_with_node(pod: Pod, node: str) -> bool:
    """Whether the pod ends with its node: nothing makes it again elsewhere."""
    if pod.terminating or pod.signature.owner_kind in _BOUND_TO_NODE:
        return True
    terms = pod.signature.node_affinity.terms
    return bool(terms) and all(_names_node(term, node) for term in terms or ())


def _names_node(term: NodeSelectorTerm, node: str) -> bool:
    return any(
        each.key == NAME_FIELD and each.operator is Operator.IN and each.values == (node,) for each in term.fields
    )


MOST_EXPLAINED: Final = 20


def answer_body(body: bytes, index: ClusterIndex, settings: Settings) -> Steps[WhatIfAnswer]:
    """The answer for the body of a request. Raises WireError. The index is changed."""
    what_if = decode_what_if(body, settings)
    yield
    return (yield from compute(what_if, index, settings))


def compute(what_if: WhatIf, index: ClusterIndex, settings: Settings) -> Steps[WhatIfAnswer]:
    """The answer. O(objects given + pods to place × (names × clauses)). Raises WireError. The index is changed."""
    prepared = yield from prepare(what_if, index)
    placing = Placing(index.view, settings)
    explained = _Explained(index, settings, placing)
    placements = prepared.decided
    for waiting in prepared.queue:
        found = _place(waiting, index, placing)
        if found.state == "rejected":
            obstacles = yield from explained.obstacles(waiting)
            found = structs.replace(found, obstacles=obstacles)
        placements.append(found)
        yield
    return WhatIfAnswer(summary=_summary(placements, prepared.not_tried), placements=tuple(placements))


def _place(waiting: Waiting, index: ClusterIndex, placing: Placing) -> Placement:
    pod = waiting.pod
    decision = placing.decide(pod, crc32(pod.uid.encode()))
    if decision.node:
        released = (pod.nominated_node, index.view.plan_node(pod.uid))
        index.upsert(structs.replace(pod, node=decision.node, rejection=""))
        placing.placed((decision.node, *released))
    return Placement(
        pod=pod.full_name,
        state="placed" if decision.node else "rejected",
        origin=waiting.origin,
        node=decision.node,
        was=waiting.was,
        reason=decision.reason,
        unchecked=UNSEEN if pod.has_unseen_needs else "",
    )


class _Explained:
    """The obstacles of rejected pods: of the first few, and of those that are like one since which no pod was placed."""

    def __init__(self, index: ClusterIndex, settings: Settings, placing: Placing) -> None:
        self._view = index.view
        self._settings = settings
        self._placing = placing
        self._known: dict[Hashable, tuple[int, tuple[Obstacle, ...]]] = {}
        self._explained = 0

    def obstacles(self, waiting: Waiting) -> Steps[tuple[Obstacle, ...]]:
        """Empty once enough are explained. O(nodes × clauses) for one that is not like an earlier one."""
        kind, version = self._placing.kind(waiting.pod), self._placing.version
        known = self._known.get(kind)
        if known is not None and known[0] == version:
            return known[1]
        if self._explained >= MOST_EXPLAINED:
            return ()
        self._explained += 1
        found = yield from explain(waiting.pod, self._view, self._settings, offers_changes=False)
        self._known[kind] = (version, found.obstacles)
        return found.obstacles


def _summary(placements: list[Placement], not_tried: int) -> WhatIfSummary:
    states = Counter(each.state for each in placements)
    return WhatIfSummary(
        placed=states["placed"],
        rejected=states["rejected"],
        displaced=sum(each.origin == "displaced" for each in placements),
        gone=states["gone"],
        gated=states["gated"],
        not_tried=not_tried,
    )

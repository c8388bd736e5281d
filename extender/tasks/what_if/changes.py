"""Applies the changes of a what-if to an index of its own, and returns the pods to place.

A given workload replaces the workload of its name: pods that equal its template stay on their nodes, other pods are deleted,
missing pods are made. A drain cordons the node and displaces the pods that the Eviction API would evict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import structs

from extender.index.cluster import ClusterIndex
from extender.index.nodes.columns import NodeNumber
from extender.model.answers.what_if import (
    MOST_PLACED,
    Displaced,
    Given,
    GivenWorkload,
    NodeChange,
    Placement,
    Removal,
    WhatIf,
)
from extender.model.bounded import Steps
from extender.model.constraints.labels import Labels, Operator
from extender.model.constraints.node_affinity import NAME_FIELD, NodeSelectorTerm
from extender.model.constraints.taints import CORDON, first_untolerated
from extender.model.objects import Node, Object, Pod, PodSignature
from extender.model.policies import GROUP, PolicyKey, PolicyObject
from extender.model.units import agreeing, counted
from extender.wire.errors import WireError
from extender.wire.pods.templates import TRIAL_HASH
from extender.wire.pods.workloads import GROUPS

_Found = TypeVar("_Found", bound=Object)
Origin: TypeAlias = Literal["given", "displaced", "pending"]

_A_STEP: Final = 500  # objects, at 10 µs
_NOT_STARTED: Final = datetime.max.replace(tzinfo=UTC)
_LATEST: Final = "~"  # after every time
_BOUND_TO_NODE: Final = frozenset({"DaemonSet", "Node"})  # kinds of owners; the latter has the mirrors of static pods


@dataclass(frozen=True, slots=True)
class PodToPlace:
    """A pod that is to be placed, why, and the node that it was on."""

    pod: Pod
    origin: Origin
    was: str = ""


@dataclass(slots=True)
class PreparedWhatIf:
    """After the changes: the pods to place in order, the pods decided already, how many were left out, and notes."""

    queue: list[PodToPlace]
    decided: list[Placement]
    notes: list[str]
    not_tried: int = 0


def prepare(what_if: WhatIf, index: ClusterIndex) -> Steps[PreparedWhatIf]:
    """Applies the changes. Raises WireError for a change of an object that does not exist. O(objects given + pods).

    Exclusions of topology domains apply as given. No time passes, so no domain becomes unavailable by its age.
    """
    changes = _Changes(index)
    changes.notes += what_if.notes
    changes.notes += _missing_labels(what_if, index)
    for removal in what_if.removals:
        yield from changes.remove(removal)
    for change in what_if.nodes:
        changes.cordon(change)
    changes.displace(what_if.displaced)
    for at, given in enumerate(what_if.given):
        if isinstance(given, GivenWorkload):
            yield from changes.give_workload(given)
        else:
            changes.give(given)
        if at % _A_STEP == _A_STEP - 1:
            yield
    yield from changes.make_daemons()
    if index.domains.due() <= index.domains.now:
        index.domains.step(index.domains.now)
    if index.policies.about_placed_pods or index.counts.has_policy_terms:
        for at, counted in enumerate(list(index.counts.signatures)):
            index.counts.recheck_policies(counted)
            if at % _A_STEP == _A_STEP - 1:
                yield
    return _queued(changes, what_if, index)


def _queued(changes: _Changes, what_if: WhatIf, index: ClusterIndex) -> PreparedWhatIf:
    """The pods in the order of kube-scheduler: by priority, then by creation. Among equals pending pods come last."""
    queue = [waiting for waiting in changes.waiting.values() if not waiting.pod.gated]
    decided = changes.decided
    decided += (
        Placement(pod=waiting.pod.full_name, state="gated", origin=waiting.origin, was=waiting.was)
        for waiting in changes.waiting.values()
        if waiting.pod.gated
    )
    queue.sort(key=_order)
    pending: list[PodToPlace] = []
    if what_if.pending:
        held, chosen = index.assumed.held, changes.waiting
        pending = [
            PodToPlace(pod, "pending")
            for uid, pod in index.pods.items()
            if not (pod.node or pod.gated or pod.terminating or uid in held or uid in chosen)
        ]
        pending.sort(key=_order)
    left_out = max(len(pending) - what_if.limit, 0)
    queue += pending[: what_if.limit]
    queue.sort(key=lambda waiting: -waiting.pod.priority)  # stable
    return PreparedWhatIf(queue, decided, changes.notes, left_out)


def _order(waiting: PodToPlace) -> tuple[int, str, datetime, str]:
    """The place in the queue. Pods that were on a node come first, because the index keeps creation times of pending pods only.

    Given pods without a creation time come last, in the order in which they were given.
    """
    pod = waiting.pod
    if waiting.origin == "given":
        return -pod.priority, pod.created or _LATEST, _NOT_STARTED, ""
    return -pod.priority, pod.created, pod.start_time or _NOT_STARTED, pod.full_name


class _Changes:
    """The changes as they are applied. ``waiting``: the pods to place, by UID. ``decided``: pods that are gone for good."""

    def __init__(self, index: ClusterIndex) -> None:
        self.waiting: dict[str, PodToPlace] = {}
        self.decided: list[Placement] = []
        self.notes: list[str] = []
        self._index = index
        self._displaced: dict[str, _Leaving] = {}  # by UID
        self._names: dict[str, Pod] | None = None
        self._owned: dict[tuple[str, str, str], list[str]] | None = None
        self._daemons: list[GivenWorkload] = []
        self._made = 0
        self._priorities: dict[str, int] | None = None

    def remove(self, removal: Removal) -> Steps[None]:
        """Deletes an object; with a namespace all objects in it. Raises WireError. O(1), and O(pods) for a namespace."""
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
            case kind if kind in GROUPS:
                yield from self._remove_workload(removal)
            case _:
                self._index.delete(_known(_find(removal, self._index), removal))

    def _remove_workload(self, removal: Removal) -> Steps[None]:
        """Deletes a workload and its pods, as the garbage collector does. O(pods) for the first call."""
        owner, pods = _find(removal, self._index), self._pods_of(removal.kind, removal.namespace, removal.name)
        if owner is None and not pods:
            _known(None, removal)
        if owner is not None:
            self._index.delete(owner)
        yield from self._delete_pods(pods)

    def _delete_pods(self, pods: Iterable[Pod]) -> Steps[None]:
        for at, pod in enumerate(pods):
            self._index.delete(pod)
            self.waiting.pop(pod.uid, None)
            if at % _A_STEP == _A_STEP - 1:
                yield

    def _remove_node(self, removal: Removal) -> None:
        number, node = self._node(removal.name)
        node = _known(node, removal)
        self._leave(number, _Leaving(node.name))
        self._index.delete(node)

    def cordon(self, change: NodeChange) -> None:
        """Cordons or drains a node. Raises WireError where it is not known. O(pods there)."""
        number, node = self._node(change.name)
        if node is None:
            raise WireError(change.path, f"Node {change.name} is not known")
        if change.is_drain:
            self._leave(number, _Leaving(node.name, is_drained=True))
        since = inf if node.unavailable_at is None else node.unavailable_at
        taints = node.taints if any(map(CORDON.is_like, node.taints)) else (*node.taints, CORDON)
        self._index.upsert(structs.replace(node, unschedulable=True, taints=taints, unavailable_at=since))

    def _node(self, name: str) -> tuple[NodeNumber | None, Node | None]:
        number = self._index.topology.known.get(name)
        return number, None if number is None else self._index.topology.nodes[number]

    def _leave(self, number: NodeNumber | None, leaving: _Leaving) -> None:
        if number is not None:
            self._displaced |= dict.fromkeys(self._index.nodes.pods_on(number), leaving)

    def displace(self, displaced: Displaced) -> None:
        """Takes pods from deleted and drained nodes. O(pods there + assumed pods)."""
        # 1. A drain leaves pods of DaemonSets and mirror pods on the node, as kubectl does.
        # 2. A pod that was only assumed on the node is pending again.
        # 3. A pod that no controller makes again elsewhere is gone, and so is every pod with `displaced: gone`.
        # 4. Any other pod is placed anew, as a pod without the node.
        index = self._index
        for uid, leaving in self._displaced.items():
            pod = index.pods.get(uid)
            if pod is not None and leaving.is_drained and pod.signature.owner_kind in _BOUND_TO_NODE:
                continue
            index.assumed.forget(uid)
            if pod is None:
                continue
            reason = _why_gone(pod, leaving)
            if displaced is Displaced.GONE or reason:
                index.delete(pod)
                gone = Placement(pod=pod.full_name, state="gone", origin="displaced", was=leaving.node, reason=reason)
                self.decided.append(gone)
            else:
                self._wait(pod.recreated(), "displaced", leaving.node)
        known = index.topology.known
        for uid in [uid for uid, assumed in index.assumed.held.items() if known.keys().isdisjoint(assumed.nodes)]:
            index.assumed.forget(uid)  # it is pending again

    def give(self, given: Given) -> None:
        """Adds or replaces an object. A pod replaces the one of its name, and is placed unless it names its node."""
        if not isinstance(given.obj, Pod):
            self._index.upsert(given.obj)
            return
        self._give_pod(given.obj)

    def _give_pod(self, pod: Pod) -> None:
        # The manifest may be a copy of another pod, with the UID of that pod.
        pod = structs.replace(pod, uid=pod.full_name, priority=self._priority_of(pod))
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

    def _priority_of(self, pod: Pod) -> int:
        """The priority of a pod. PriorityClasses are not watched: the number comes from other pods of the class.

        O(pods) for the first call.
        """
        name = pod.signature.priority_class
        if not name or pod.priority:
            return pod.priority
        if self._priorities is None:
            self._priorities = {known.signature.priority_class: known.priority for known in self._index.pods.values()}
        if name not in self._priorities:
            self._priorities[name] = 0
            self.notes.append(
                f"no pod of the cluster has the PriorityClass {name}: pods of it are placed with priority 0"
            )
        return self._priorities[name]

    def give_workload(self, given: GivenWorkload) -> Steps[None]:
        """Adds a workload, or replaces the workload of its name. `make_daemons` makes the pods of a DaemonSet. O(pods made)."""
        if given.selector is not None:
            self._index.upsert(given.selector)
        if given.is_per_node:
            self._daemons.append(given)
            return
        self._made += given.count
        # A pod stays if it equals what the template makes. A StatefulSet compares pods of the same name, because each name is
        # an identity. The pods of any other workload are equal, so any of the earlier pods may stay.
        earlier = self._lasting_pods_of(given)
        by_name = {pod.full_name: pod for pod in earlier} if given.kind == "StatefulSet" else {}
        similar: Iterator[Pod] | None = None
        staying: dict[str, Pod] = {}
        made: list[Pod] = []
        for pod in given.make():
            if given.kind == "StatefulSet":
                like = by_name.get(pod.full_name)
                like = like if like is not None and _is_made_of(like, pod) else None
            else:
                # The pods of the template are equal, so the earlier pods are compared with the first one only.
                similar = similar or iter([other for other in earlier if _is_made_of(other, pod)])
                like = next(similar, None)
            if like is None:
                made.append(pod)
            else:
                staying[like.uid] = like
            yield
        yield from self._replace(given, earlier, staying, made)

    def make_daemons(self) -> Steps[None]:
        """Makes the pods of the given DaemonSets: one for each node on which it would run. O(nodes + pods of it)."""
        for given in self._daemons:
            (template,) = given.make()
            earlier = self._lasting_pods_of(given)
            by_node = {_node_of(pod): pod for pod in earlier}
            staying: dict[str, Pod] = {}
            made: list[Pod] = []
            for at, node in enumerate(list(filter(None, self._index.topology.nodes))):
                if at % _A_STEP == _A_STEP - 1:
                    yield
                if not _runs_on(template, node):
                    continue
                pod, own = _daemon_on(template, given.name, node.name), by_node.get(node.name)
                if own is not None and _is_made_of(own, pod):
                    staying[own.uid] = own
                else:
                    made.append(pod)
                self._made += 1
                if self._made > MOST_PLACED:
                    raise WireError(
                        f"{given.path}.spec",
                        f"a what-if places at most {MOST_PLACED} pods of workloads, and needs more",
                    )
            yield from self._replace(given, earlier, staying, made)

    def _replace(
        self, given: GivenWorkload, earlier: list[Pod], staying: dict[str, Pod], made: list[Pod]
    ) -> Steps[None]:
        """Deletes the earlier pods that do not stay, and adds the pods that are made."""
        leaving = [pod for pod in earlier if pod.uid not in staying]
        names = {pod.full_name for pod in made}
        yield from self._delete_pods(pod for pod in leaving if pod.full_name not in names)
        for pod in made:
            self._give_pod(pod if given.kind == "StatefulSet" else self._with_new_name(pod))
            yield
        if earlier:
            stay, go = len(staying), len(leaving)
            texts = (
                f"{counted(stay, 'pod')} as in the template {agreeing(stay, 'stays', 'stay')}",
                f"{go} {agreeing(go, 'is', 'are')} deleted",
                f"{len(made)} {agreeing(len(made), 'is', 'are')} made",
            )
            self.notes.append(f"{given}: {', '.join(texts)}")

    def _lasting_pods_of(self, given: GivenWorkload) -> list[Pod]:
        """The pods that a workload counts. Pods with a node come first, because a controller deletes pods without one first."""
        pods = self._pods_of(given.kind, given.namespace, given.name)
        lasting = (pod for pod in pods if not (pod.terminating or pod.finished))
        return sorted(lasting, key=lambda pod: (not pod.node, pod.start_time or _NOT_STARTED, pod.name))

    def _with_new_name(self, pod: Pod) -> Pod:
        """A controller generates names that no pod has."""
        while self._named(pod.full_name) is not None:
            pod = structs.replace(pod, name=f"{pod.name}-new")
        return pod

    def _pods_of(self, kind: str, namespace: str, name: str) -> list[Pod]:
        """The pods that a workload had before the changes. O(pods) for the first."""
        if self._owned is None:
            self._owned = {}
            for pod in self._index.pods.values():
                for owner in _owners(pod):
                    self._owned.setdefault(owner, []).append(pod.uid)
        pods = self._index.pods
        return [pods[uid] for uid in self._owned.get((kind, namespace, name), ()) if uid in pods]

    def _wait(self, pod: Pod, origin: Origin, was: str) -> None:
        self._index.upsert(pod)
        self.waiting[pod.uid] = PodToPlace(pod, origin, was)

    def _named(self, name: str) -> Pod | None:
        """The pod of a full name; the newest, if the watch still shows an earlier one. O(pods) for the first call."""
        if self._names is None:
            self._names = {pod.full_name: pod for pod in self._index.pods.values()}
        pod = self._names.get(name)
        return None if pod is None else self._index.pods.get(pod.uid)


def _known(obj: _Found | None, removal: Removal) -> _Found:
    if obj is None:
        where = f"{removal.namespace}/" if removal.namespace else ""
        raise WireError(f"{removal.path}.name", f"{removal.kind} {where}{removal.name} is not known")
    return obj


def _find(removal: Removal, index: ClusterIndex) -> Object | None:
    """An object of a kind that has a table by key."""
    key = f"{removal.namespace}/{removal.name}"
    for table in index.tables:
        if removal.kind == table.api_kind:
            return table.objects.get(key)
    if removal.kind.endswith("Policy"):
        return _policy(PolicyKey(GROUP, removal.namespace, removal.name), index)
    return index.workloads.objects.get(f"{removal.kind}/{key}")


def _policy(key: PolicyKey, index: ClusterIndex) -> PolicyObject | None:
    invalid = (policy for policy in index.policies.invalid() if policy.key == key)
    policy = index.policies.get(key) or next(invalid, None)
    return None if policy is None else PolicyObject(policy)


# -- pods that leave a node


@dataclass(frozen=True, slots=True)
class _Leaving:
    """The node that a pod is to leave, because it is deleted or drained."""

    node: str
    is_drained: bool = False


def _why_gone(pod: Pod, leaving: _Leaving) -> str:
    """Why no controller makes the pod again on another node; empty if one does."""
    kind = pod.signature.owner_kind
    if pod.terminating:
        return "is being deleted"
    if kind in _BOUND_TO_NODE:
        return "its DaemonSet runs it on this node alone" if kind == "DaemonSet" else "is a static pod of the node"
    if not kind and pod.node:  # a pod that is only assumed there becomes pending again
        return "no controller makes it again" + (" (kubectl drain needs --force)" if leaving.is_drained else "")
    terms = pod.signature.node_affinity.terms
    if not leaving.is_drained and terms and all(_names_node(term, leaving.node) for term in terms):
        return "its node affinity names the node"
    return ""


def _names_node(term: NodeSelectorTerm, node: str) -> bool:
    return any(
        requirement.key == NAME_FIELD and requirement.operator is Operator.IN and requirement.values == (node,)
        for requirement in term.fields
    )


# -- pods of workloads

# Labels that the controller or the cluster gives each pod or each revision.
_GIVEN_LABELS: Final = frozenset({
    *("pod-template-hash", "controller-revision-hash", "pod-template-generation"),
    *("apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"),
    *("controller-uid", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index"),
})  # fmt: skip


def _owners(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """The workloads whose pod it is: kind, namespace and name. Of some kinds the index holds no name of the owner."""
    signature, labels = pod.signature, pod.signature.labels
    kind, controller = signature.owner_kind, signature.controller
    if controller is not None:
        yield kind, pod.namespace, controller.name
        revision = f"-{labels.get('pod-template-hash') or ''}"
        if kind == "ReplicaSet" and controller.name.endswith(revision):
            yield "Deployment", pod.namespace, controller.name.removesuffix(revision)
    elif kind == "Job":
        named = labels.get("batch.kubernetes.io/job-name") or labels.get("job-name")
        yield kind, pod.namespace, named or pod.name.rpartition("-")[0]
    elif kind == "DaemonSet":
        yield kind, pod.namespace, pod.name.rpartition("-")[0]


def _is_made_of(pod: Pod, made: Pod) -> bool:
    """Whether a pod is as the template makes it, by what scheduling reads."""
    own, other = pod.signature, made.signature
    return (
        own.owner_kind == other.owner_kind
        and (not other.priority_class or own.priority_class == other.priority_class)
        and _template_labels(own) == _template_labels(other)
        and (own.node_affinity, own.preferred_nodes) == (other.node_affinity, other.preferred_nodes)
        and set(own.tolerations) == set(other.tolerations)
        and pod.recreated().requests == made.requests
        and (pod.host_ports, pod.scheduler) == (made.host_ports, made.scheduler)
        and _constraints(own) == _constraints(other)
    )


def _constraints(signature: PodSignature) -> str:
    """The constraints about other pods. A revision that matchLabelKeys read is replaced by the same text for all."""
    text, revision = repr((signature.affinity, signature.spread)), signature.labels.get("pod-template-hash")
    return text.replace(revision, TRIAL_HASH) if revision else text


def _template_labels(signature: PodSignature) -> Labels:
    return {key: value for key, value in signature.labels.items() if key not in _GIVEN_LABELS}


def _runs_on(template: Pod, node: Node) -> bool:
    """Whether the DaemonSet controller makes a pod for the node. It does not look at free resources."""
    signature = template.signature
    if first_untolerated(node.taints, signature.tolerations) is not None:
        return False
    return signature.node_affinity.matches(node.name, node.labels)


def _node_of(daemon: Pod) -> str:
    """The node that a pod of a DaemonSet names in its affinity before it is bound; empty if it names several."""
    named = daemon.signature.node_affinity.only_nodes or ()
    return daemon.node or (next(iter(named)) if len(named) == 1 else "")


def _daemon_on(template: Pod, name: str, node: str) -> Pod:
    signature = replace(template.signature, node_affinity=template.signature.node_affinity.at(node))
    return structs.replace(template, name=f"{name}-{node}", signature=signature)


# -- notes

# What the kubelet sets on every node and most charts select, with the usual value.
_KUBELET_LABELS: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def _missing_labels(what_if: WhatIf, index: ClusterIndex) -> Iterator[str]:
    """Labels of the kubelet that new nodes lack. No note if no node of the cluster has the label, as in a simulation. O(nodes)."""
    nodes = [given.obj for given in what_if.given if isinstance(given, Given) and isinstance(given.obj, Node)]
    new = [node for node in nodes if node.name not in index.topology.known]
    known = [node for node in index.topology.nodes if node is not None] if new else []
    for key, value in _KUBELET_LABELS.items():
        lacking = [node.name for node in new if key not in node.labels]
        if lacking and (not known or any(key in node.labels for node in known)):
            names = lacking[0] if len(lacking) == 1 else f"{counted(len(lacking), 'new node')}, such as {lacking[0]},"
            has = agreeing(len(lacking), "has", "have")
            yield f"{names} {has} no label {key}, which the kubelet sets on every node: give it, such as {key}={value}"

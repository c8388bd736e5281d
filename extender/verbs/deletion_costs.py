"""The costs of deletion by which a ReplicaSet that gets smaller keeps, and restores, the spread of its pods.

It deletes the pods with the lowest `controller.kubernetes.io/pod-deletion-cost` first. The n-th pod of a domain costs -n, the
first one nothing. So however many pods go at once, they go from the domains that are fullest then, as far as the number of pods
allows. Pods keep their costs while others come and go, so a pod gets one write, and another one only where a gap is to be closed.
https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.objects import Pod, PodSignature
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import enforced_directives

REPLICA_SET: Final = "ReplicaSet"
_A_STEP: Final = 500  # nodes with pods of a signature


def _may_be_directed(signature: PodSignature) -> bool:
    """Whether the pods are those of a ReplicaSet, with spread constraints of their own."""
    return signature.controller is not None and signature.controller.kind == REPLICA_SET and signature.spread.own


def directed_key(signature: PodSignature, view: ClusterView, settings: Settings) -> str:
    """The topology key by whose domains such pods get costs; empty for none. O(policies that may select them).

    A namespaced policy selects pods of its own namespace only, so it never has one of another written to.
    """
    if not _may_be_directed(signature):
        return ""
    keys = {constraint.topology_key for constraint in (*signature.spread.hard, *signature.spread.soft)}
    directed = enforced_directives(signature, view, settings)
    return next(
        (
            directive.topology_key
            for directive in directed
            if directive.deletion_cost and directive.topology_key in keys
        ),
        "",
    )


def wanted_costs(view: ClusterView, settings: Settings) -> Steps[dict[str, int]]:
    """The costs of pods on nodes by UID, of those that have one, in steps.

    O(signatures + those of ReplicaSets with spread constraints × policies + pods of workloads that get costs).
    """
    workloads: dict[tuple[str, str, str], dict[int, list[Pod]]] = {}
    looked = 0
    for placed in view.placed(None, _may_be_directed):
        key = "" if placed is None else directed_key(placed.signature, view, settings)
        if placed is not None and key and not placed.terminating:
            signature = placed.signature
            assert signature.controller is not None  # noqa: S101 (for the type checker: it has a key)
            here = workloads.setdefault((signature.namespace, signature.controller.name, key), {})
            for node in placed.nodes:
                if node < len(view.node_names) and (domain := view.key(key).of_node[node]):  # it may be gone by now
                    here.setdefault(domain, []).extend(pod for pod in view.pods_on(node).values() if placed.are(pod))
                looked += 1
                if looked % _A_STEP == 0:
                    yield
        yield  # which policies select the pods takes a step for each signature
    costs: dict[str, int] = {}
    for domains in workloads.values():
        costs |= costs_of(domains)
        yield
    return costs


def costs_of(domains: Mapping[int, Sequence[Pod]]) -> dict[str, int]:
    """The costs of one ReplicaSet's pods by UID, of those that have one. O(pods × log(pods))."""
    return {uid: -place for pods in domains.values() for place, uid in _places(pods) if place}


def _places(pods: Sequence[Pod]) -> Iterator[tuple[int, str]]:
    """The place of each pod in its domain, from 0 on without gaps: its own, where it has one that is free, else the first free one."""
    taken: dict[int, str] = {}
    others: list[Pod] = []
    for pod in sorted(pods, key=lambda other: other.uid):
        place = -_as_int(pod.deletion_cost) if pod.has_own_cost else 0
        if 0 < place < len(pods) and place not in taken:
            taken[place] = pod.uid
        else:
            others.append(pod)
    others.sort(key=lambda other: (other.start_time is None, str(other.start_time), other.uid))
    free = (place for place in range(len(pods)) if place not in taken)
    yield from taken.items()
    yield from zip(free, (other.uid for other in others), strict=False)


def _as_int(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0

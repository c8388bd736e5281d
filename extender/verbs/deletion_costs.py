"""Deletion costs of pods, so that a ReplicaSet keeps or restores the spread of its pods when it is scaled down.

A ReplicaSet deletes pods with the lowest `controller.kubernetes.io/pod-deletion-cost` first. Here the first pod of a domain costs
0, the second -1, the third -2. Example: zone-a has 3 pods, zone-b 1: the pods of zone-a are deleted first, in the order -2, -1.
So the fullest domains lose pods first, however many pods are deleted at once.

A pod keeps its cost while others come and go, so mostly one write a pod suffices. It gets another cost only to close a gap.
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
    """Whether the pods have a ReplicaSet, and spread constraints of their own."""
    return signature.controller is not None and signature.controller.kind == REPLICA_SET and signature.spread.own


def directed_key(signature: PodSignature, view: ClusterView, settings: Settings) -> str:
    """The topology key by whose domains the pods get costs; empty for none. O(policies that may select them).

    A namespaced policy selects pods of its own namespace only, so it never writes to a pod of another namespace.
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
    """By UID the costs of pods on nodes, in steps. A pod whose cost is 0 is not listed.

    O(signatures + signatures of ReplicaSets with spread constraints × policies + pods of workloads that get costs).
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
        yield  # a step for each signature: `directed_key` is O(policies)
    costs: dict[str, int] = {}
    for domains in workloads.values():
        costs |= costs_of(domains)
        yield
    return costs


def costs_of(domains: Mapping[int, Sequence[Pod]]) -> dict[str, int]:
    """By UID the costs of one ReplicaSet's pods. A pod whose cost is 0 is not listed. O(pods × log(pods))."""
    return {uid: -place for pods in domains.values() for place, uid in _places(pods) if place}


def _places(pods: Sequence[Pod]) -> Iterator[tuple[int, str]]:
    """The place of each pod in its domain: 0, 1, 2, ... without gaps.

    A pod keeps the place of its present cost if no other pod has it. Other pods get the first free places, the oldest first.
    """
    taken: dict[int, str] = {}
    others: list[Pod] = []
    for pod in sorted(pods, key=lambda other: other.uid):
        place = -_as_int(pod.deletion_cost) if pod.has_own_cost else 0
        if 0 < place < len(pods) and place not in taken:
            taken[place] = pod.uid
        else:
            others.append(pod)
    # The oldest pods get the highest costs, so the ReplicaSet keeps the pods that have served longest.
    others.sort(key=lambda other: (other.start_time is None, str(other.start_time), other.uid))
    free = (place for place in range(len(pods)) if place not in taken)
    yield from taken.items()
    yield from zip(free, (other.uid for other in others), strict=False)


def _as_int(text: str) -> int:
    return int(text) if text.removeprefix("-").isdecimal() else 0

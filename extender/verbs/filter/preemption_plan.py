"""The preemption plan for a pod that the filter rejects on every requested node.

A pod rejected only because of pods of lower priority gets a plan from the filter itself: kube-scheduler never asks for
preemption on nodes that only an extender rejects.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.rules import catalog
from extender.rules.catalog import Dependencies, dependencies
from extender.rules.frames import IndexFrame
from extender.settings.configuration import Settings
from extender.verbs.dry_run.candidates import MOST_VISITED, NodeSearch, found_beside_nominated, may_plan, plan_of
from extender.verbs.dry_run.victims import DryRun, Removal, is_forbidden
from extender.verbs.filter.select_host import find_node_elsewhere
from extender.wire.extender_v1 import ExtenderArgs

_MOST_BYTES: Final = 8 * 2**20
_OVERHEAD: Final = 500

_Key: TypeAlias = tuple[PodSignature, Hashable]
_Version: TypeAlias = tuple[Dependencies, int]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A byte for each node that was tried, valid while the result depends on the same and claims are unchanged."""

    version: _Version
    nodes: bytearray


class UnhelpfulNodeCache:
    """By equal pods, the nodes where a dry run found that preemption does not help; at most ``most_bytes`` together.

    So many rejected pods cost no dry runs at every event. It is by node and not by request, since each request has
    another sample of names: a node is tried once for equal pods, until something changes.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._held: BoundedCache[_Key, _Tried] = BoundedCache(most_bytes)

    def without(self, pod: Pod, nodes: list[NodeNumber], view: ClusterView) -> list[NodeNumber]:
        """Those of the nodes where preemption may help. O(nodes)."""
        known = self._held.get(_key(pod, view))
        if known is None or known.version != _version(pod, view):
            return nodes
        tried = known.nodes
        return [node for node in nodes if not tried[node]]

    def add(self, pod: Pod, nodes: Iterable[NodeNumber], view: ClusterView) -> None:
        """Records that preemption does not help on these nodes, for as long as nothing changes. O(nodes)."""
        version, key = _version(pod, view), _key(pod, view)
        known = self._held.get(key)
        if known is None or known.version != version:
            known = _Tried(version, bytearray(len(view.node_names)))
        for node in nodes:
            known.nodes[node] = True
        self._held.put(key, known, len(known.nodes) + pod.signature.size + _OVERHEAD)


def _key(pod: Pod, view: ClusterView) -> _Key:
    """The signature with what node fit reads of the pod: its priority and its requests."""
    return pod.signature, catalog.NODE_FIT.pod_key(pod, view)


def _version(pod: Pod, view: ClusterView) -> _Version:
    return dependencies(pod, view.compiled(pod.signature), view), view.claims_version


def plan_for_rejected_pod(
    args: ExtenderArgs, view: ClusterView, settings: Settings, unhelpful: UnhelpfulNodeCache, seed: int
) -> PreemptionPlan | None:
    """A plan for a pod that was rejected on every requested node, None where preemption cannot or may not help."""
    pod, names = args.pod, args.node_names or []
    if not may_plan(pod, view, settings):
        return None
    run = DryRun(pod, view, across=settings.preemption.cross_node)
    if run.fits_nowhere or not run.has_constraints:
        return None
    removal = _search(run, names, unhelpful, seed, evicts=settings.preemption.eviction == "evict")
    if removal is None:
        return None
    if not view.known.keys() <= set(names) and find_node_elsewhere(pod, view, settings, seed)[0]:
        return None  # a node outside of the scheduler's sample passes as it is: no preemption is needed
    return plan_of(pod, removal, view)


def _search(
    run: DryRun, names: Sequence[str], unhelpful: UnhelpfulNodeCache, seed: int, *, evicts: bool
) -> Removal | None:
    """The best removal on one of the nodes. O(names + nodes not found unhelpful before × dry run)."""
    pod, view = run.pod, run.view
    filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame())
    certain = filters.rejects_all
    if certain is not None and not certain.reason.resolvable:
        return None
    numbers = [number for number in map(view.known.get, names) if number is not None]
    left = unhelpful.without(pod, numbers, view)
    if not left:
        return None
    start = seed % len(left)
    tried = (left[start:] + left[:start])[: min(MOST_VISITED, run.most_nodes)]
    curable = [each for each in tried if _is_curable(filters.reason(each))]

    def search(beside: DryRun, excluded: Collection[str]) -> Removal | None:
        left_over = [each for each in curable if view.node_names[each] not in excluded]
        return NodeSearch(beside, seed, evicts=evicts).among(left_over)

    removal = found_beside_nominated(run, search)
    # One that the budgets forbid helps only after they have changed, which the version of the cache contains.
    if removal is None or (evicts and is_forbidden(removal.victims, view)):
        abandoned = set(curable) - run.done if run.is_spent() else set[NodeNumber]()
        unhelpful.add(pod, (each for each in tried if each not in abandoned), view)
    return removal


def _is_curable(reason: Reason | None) -> bool:
    return reason is None or reason.resolvable

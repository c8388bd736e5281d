"""Changes of a pod's own hard spread constraints that would let it pass: fields whose defaults surprise users.

By default a domain of tainted nodes counts (`nodeTaintsPolicy: Ignore`), and during a rollout the pods of the old revision count
(no `matchLabelKeys`).
https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#spread-constraint-definition
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from extender.index.nodes.columns import NodeNumber
from extender.model.answers.explanations import TriedChange
from extender.model.bounded import Steps
from extender.model.constraints.spread import SpreadConstraint, revision_key
from extender.model.objects import PodSignature
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.explain.trials import Incoming
from extender.verbs.request import worst_case

_CONSTRAINTS: Final = 4
_A_STEP: Final = 2000  # nodes, for one constraint


def change_a_constraint(incoming: Incoming) -> Steps[list[TriedChange]]:
    """The first field of one constraint that lets the pod pass. O(constraints × nodes), and what a new group costs to count."""
    # Only constraints of the pod itself: the default constraints of the cluster are no field of the pod.
    signature = incoming.pod.signature
    spread = signature.spread
    if not spread.own or spread.hard_error:
        return []
    for at, constraint in enumerate(spread.hard[:_CONSTRAINTS]):
        for fields, changed in _variants(constraint, signature):
            yield
            hard = (*spread.hard[:at], changed, *spread.hard[at + 1 :])
            number = yield from _passing(incoming, replace(signature, spread=replace(spread, hard=hard)))
            if number is not None:
                return [_change(fields, constraint.topology_key, incoming.view.node_names[number])]
    return []


def _variants(
    constraint: SpreadConstraint, signature: PodSignature
) -> Iterator[tuple[Mapping[str, str], SpreadConstraint]]:
    """The fields that the user might set, with their values, and the constraint after that."""
    if not constraint.honor_taints:
        yield {"nodeTaintsPolicy": "Honor"}, replace(constraint, honor_taints=True)
    if not constraint.honor_affinity:
        yield {"nodeAffinityPolicy": "Honor"}, replace(constraint, honor_affinity=True)
    key = revision_key(signature.owner_kind, signature.labels)
    if key and all(clause.key != key for clause in constraint.selector.requirements):
        selector = constraint.selector.and_in({key: signature.labels[key]})
        yield {"matchLabelKeys": key}, replace(constraint, selector=selector)


def _passing(incoming: Incoming, signature: PodSignature) -> Steps[NodeNumber | None]:
    """The first node on which a pod with this signature passes and fits."""
    view, pod = incoming.view, structs.replace(incoming.pod, signature=signature)
    compiled = view.compiled(signature)
    numbers = [number for number, rejection in incoming.rejections.items() if rejection is None]
    size = max(_A_STEP // max(len(compiled.filter_groups()), 1), 1)
    for start in range(0, len(numbers), size):
        yield
        frame = worst_case(IndexFrame(), compiled, view)
        filters = catalog.prepare_beside_fit(pod, compiled, view, frame)
        piece = [number for number in numbers[start : start + size] if incoming.may_fit(number)]
        passing = next(iter(filters.passing(piece)), None)
        if passing is not None:
            return passing
    return None


def _change(fields: Mapping[str, str], topology_key: str, node: str) -> TriedChange:
    shown = " and ".join(f"{name}: {value}" for name, value in fields.items())
    text = f"{shown} in the spread constraint of the pod by {topology_key}"
    return TriedChange(kind="changeConstraint", text=text, node=node, topology_key=topology_key, fields=fields)

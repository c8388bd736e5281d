"""Raw scores by brute force over plain objects: every pod is looked at for every node, and nothing is kept.

The other half of the oracle in `extender.simulator.oracle.brute_force`, which filters only. Nothing of the index or the rules enters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from extender.simulator.json_objects import is_terminating, labels_of, name_of, namespace_of, selects
from extender.simulator.oracle.brute_force import (
    AFFINITY,
    ANTI_AFFINITY,
    ClusterState,
    ExistingPod,
    RequiredTerm,
    effective_selector,
    is_empty,
    is_parsable,
    matches_node_affinity,
    tolerates_taints,
)
from tests.builders import PREFERRED, REQUIRED, Json
from tests.laws.observing import Cluster

HOSTNAME = "kubernetes.io/hostname"


def state_of(cluster: Cluster) -> ClusterState:
    """The pods that count, on the nodes that there are."""
    state = ClusterState(cluster.of("nodes"), cluster.of("namespaces"))
    for number, pod in enumerate(cluster.of("pods")):
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            state.place(f"{number}", pod, node)
    return state


def terms_of(pod: Json, side: str, part: str) -> list[tuple[int, RequiredTerm]]:
    """The terms of one list with their weights, none where one of them cannot be read; required ones weigh 1."""
    listed = (pod["spec"].get("affinity") or {}).get(side, {}).get(part, [])
    pairs = [(each["weight"], each["podAffinityTerm"]) if part == PREFERRED else (1, each) for each in listed]
    if not all(is_parsable(raw.get("labelSelector")) and is_parsable(raw.get("namespaceSelector")) for _, raw in pairs):
        return []
    return [(weight, RequiredTerm(raw, namespace_of(pod))) for weight, raw in pairs]


def affinity_scores(pod: Json, state: ClusterState, hard_weight: int) -> dict[str, int] | None:
    """The raw score of each node; None where no pair of a pod and a term adds anything."""
    added = [item for placed in state.pods() for item in _pairs(pod, placed, state, hard_weight)]
    if not added:
        return None
    return {
        name: sum(weight for weight, key, value in added if labels_of(node).get(key) == value)
        for name, node in state.nodes.items()
    }


def _pairs(pod: Json, placed: ExistingPod, state: ClusterState, hard_weight: int) -> Iterator[tuple[int, str, str]]:
    """Weight, key and value for each term of either pod that selects the other one."""
    for sign, side in ((1, AFFINITY), (-1, ANTI_AFFINITY)):
        for weight, term in terms_of(pod, side, PREFERRED):
            if term.selects_for_incoming(placed.pod, state.namespaces):
                yield from _in_domain(sign * weight, term, placed, state)
        for weight, term in terms_of(placed.pod, side, PREFERRED):
            if term.selects_for_existing(pod, state.namespaces):
                yield from _in_domain(sign * weight, term, placed, state)
    for _, term in terms_of(placed.pod, AFFINITY, REQUIRED) if hard_weight else ():
        if term.selects_for_existing(pod, state.namespaces):
            yield from _in_domain(hard_weight, term, placed, state)


def _in_domain(
    weight: int, term: RequiredTerm, placed: ExistingPod, state: ClusterState
) -> Iterator[tuple[int, str, str]]:
    value = state.domain(placed.node, term.key)
    if value is not None:
        yield weight, term.key, value


def spread_scores(pod: Json, state: ClusterState, names: Sequence[str]) -> dict[str, int] | None:
    """The raw score of each of these nodes by the pod's own soft constraints; None where it has none."""
    soft = [c for c in pod["spec"].get("topologySpreadConstraints", ()) if c["whenUnsatisfiable"] == "ScheduleAnyway"]
    if not soft:
        return None
    judged = [name for name in names if _has_keys(state.nodes[name], soft)]
    totals = dict.fromkeys(names, 0.0)
    for constraint in soft:
        weight = math.log(_size(constraint, state, judged) + 2)
        for name in judged:
            count = _count(pod, constraint, soft, state, name)
            totals[name] += count * weight + (constraint["maxSkew"] - 1)
    return {name: math.floor(total + 0.5) for name, total in totals.items()}


def normalized_spread_scores(pod: Json, state: ClusterState, names: Sequence[str]) -> dict[str, int]:
    """The scores from 0 to 100: fewer pods are better, and first of all domains that minDomains waits for."""
    soft = [c for c in pod["spec"]["topologySpreadConstraints"] if c["whenUnsatisfiable"] == "ScheduleAnyway"]
    judged = [name for name in names if _has_keys(state.nodes[name], soft)]
    raw = spread_scores(pod, state, names) or {}
    least, most = min([raw[name] for name in judged], default=0), max([raw[name] for name in judged], default=0)
    found = {name: 100 * (most + least - raw[name]) // most if most else 100 for name in judged}
    above = {
        name
        for constraint in soft
        for name in judged
        if _count(pod, constraint, soft, state, name) > _most(pod, constraint, soft, state)
    }
    if above != set(judged):
        found |= {name: found[name] // 4 for name in above}
    return dict.fromkeys(names, 0) | found


def _size(constraint: Json, state: ClusterState, judged: Sequence[str]) -> int:
    key = constraint["topologyKey"]
    return len(judged) if key == HOSTNAME else len({state.domain(name, key) for name in judged})


def _most(pod: Json, constraint: Json, soft: Sequence[Json], state: ClusterState) -> float:
    """The count above which minDomains does not wait for a domain: endless where pods are in minDomains domains, or none is asked for."""
    key, least = constraint["topologyKey"], constraint.get("minDomains") or 1
    with_pods = {
        name if key == HOSTNAME else state.domain(name, key)
        for name, node in state.nodes.items()
        if (key == HOSTNAME or (_has_keys(node, soft) and _is_included(pod, constraint, node)))
        and _count(pod, constraint, soft, state, name)
    }
    itself = selects(effective_selector(constraint, pod), labels_of(pod))
    return math.inf if len(with_pods) >= least or least == 1 else constraint["maxSkew"] - int(itself)


def _count(pod: Json, constraint: Json, soft: Sequence[Json], state: ClusterState, name: str) -> int:
    """The pods that count against the node: its own by hostname, else those of its domain on nodes that take part."""
    key = constraint["topologyKey"]
    if key == HOSTNAME:
        taken = {name}
    else:
        taken = {
            other
            for other, node in state.nodes.items()
            if state.domain(other, key) == state.domain(name, key)
            and _has_keys(node, soft)
            and _is_included(pod, constraint, node)
        }
    selector = effective_selector(constraint, pod)
    if is_empty(selector):
        return 0
    return sum(
        placed.node in taken and not is_terminating(placed.pod) and selects(selector, labels_of(placed.pod))
        for placed in state.pods(namespace_of(pod))
    )


def _has_keys(node: Mapping[str, Json], soft: Sequence[Json]) -> bool:
    return all(constraint["topologyKey"] in labels_of(dict(node)) for constraint in soft)


def _is_included(pod: Json, constraint: Json, node: Json) -> bool:
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not matches_node_affinity(pod, node):
        return False
    return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or tolerates_taints(pod, node)


def names_of(cluster: Cluster) -> list[str]:
    return sorted(name_of(node) for node in cluster.of("nodes"))

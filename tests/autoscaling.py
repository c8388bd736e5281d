"""An autoscaler for tests, which decides as the public ones do: for pods that the scheduler calls Unschedulable, by a simulation.

It knows nothing of the extender. Affinity, spread and room are those of the brute-force judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from extender.simulator.json_objects import JsonObject, condition_of, is_finished, name_of, namespace_of, node_of
from extender.simulator.oracle.brute_force import SUCCESS, ClusterState, check, matches_node_affinity
from extender.simulator.oracle.room import room_on


def node_to_add(
    pods: Sequence[JsonObject],
    nodes: Iterable[JsonObject],
    namespaces: Iterable[JsonObject],
    templates: Sequence[JsonObject],
) -> JsonObject | None:
    """The first template of a node that takes a pod which no existing node takes.

    As in cluster-autoscaler a pod that a node would take is placed there in the simulation, a nominated one on its node, and
    neither makes a node; a gated pod is no Unschedulable one.
    """
    state = ClusterState(nodes, namespaces)
    for each in pods:
        node = node_of(each) or (each.get("status") or {}).get("nominatedNodeName", "")
        if node in state.nodes and not is_finished(each):
            state.place(_key(each), each, node)
    waiting = [each for each in pods if _is_unschedulable(each)]
    left = [each for each in waiting if not _finds_room(each, state)]
    for each in left:
        for template in templates:
            state.set_node(template)
            if _takes(name_of(template), each, state):
                return template
            state.remove_node(name_of(template))
    return None


def _is_unschedulable(pod: JsonObject) -> bool:
    condition = condition_of(pod, "PodScheduled") or {}
    is_nominated = (pod.get("status") or {}).get("nominatedNodeName")
    return condition.get("reason") == "Unschedulable" and not node_of(pod) and not is_nominated


def _finds_room(pod: JsonObject, state: ClusterState) -> bool:
    found = next((name for name in state.nodes if _takes(name, pod, state)), None)
    if found is not None:
        state.place(_key(pod), pod, found)
    return found is not None


def _takes(node: str, pod: JsonObject, state: ClusterState) -> bool:
    is_wanted = matches_node_affinity(pod, state.nodes[node])
    return is_wanted and SUCCESS == room_on(pod, node, state) == check(pod, node, state)


def _key(pod: JsonObject) -> str:
    return f"{namespace_of(pod)}/{name_of(pod)}"

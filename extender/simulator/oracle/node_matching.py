"""Whether a pod may run on a node by its labels and taints: nodeSelector, node affinity, tolerations. Plain objects.

Called by the filters of the scheduling loop, and by the oracle for inclusion policies.
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
"""

from collections.abc import Collection

from extender.simulator.json_objects import JsonObject, holds, labels_of, name_of

_HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


def required_terms(pod: JsonObject) -> list[JsonObject] | None:
    """The pod's required node affinity terms; None without required node affinity."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def matches_node_affinity(pod: JsonObject, node: JsonObject) -> bool:
    """Whether the node matches nodeSelector and required node affinity."""
    labels = labels_of(node)
    for key, value in (pod["spec"].get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    terms = required_terms(pod)
    return terms is None or any(matches_term(term, node) for term in terms)


def matches_term(term: JsonObject, node: JsonObject) -> bool:
    """Whether a node selector term matches; an empty one does not."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    labels, names = labels_of(node), {"metadata.name": name_of(node)}
    return all(holds(requirement, labels) for requirement in expressions) and all(
        holds(requirement, names) for requirement in fields
    )


def tolerates_taints(pod: JsonObject, node: JsonObject, effects: Collection[str] = _HARD_EFFECTS) -> bool:
    """Whether the pod tolerates all taints of the node with these effects."""
    return untolerated(pod, node, effects) is None


def untolerated(pod: JsonObject, node: JsonObject, effects: Collection[str] = _HARD_EFFECTS) -> JsonObject | None:
    """The first taint with these effects that the pod does not tolerate; None if it tolerates all."""
    tolerations = pod["spec"].get("tolerations") or []
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint.get("effect") in effects and not any(tolerates(toleration, taint) for toleration in tolerations):
            tainted: JsonObject = taint
            return tainted
    return None


def tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
    """Whether a toleration matches a taint. Operators Lt and Gt are alpha and off by default."""
    if (toleration.get("effect") or taint["effect"]) != taint["effect"]:
        return False
    if (toleration.get("key") or taint["key"]) != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")

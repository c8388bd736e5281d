"""Whether a placed pod keeps the scheduling policies that select it. Plain objects, written from the schema of the policies.

1. Judged: node selector, node name, required node affinity, required pod affinity and anti-affinity, and hard spread. The
   directive `spread` is judged in `directed_spread.py`, together with the constraints of the pod.
2. A pod that admission missed is judged too, unless the policy acts at admission only.
3. Strict: if a pod keeps a value of its own (`conflictPolicy: KeepPod`), the placement counts as a violation. So a scenario
   with such a pod fails instead of being judged wrongly.
4. The policies of the start of a run apply, because no step changes them.
"""

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import product
from typing import Final, NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of, selects
from extender.simulator.oracle.brute_force import (
    AFFINITY,
    ANTI_AFFINITY,
    SUCCESS,
    ClusterState,
    PluginStatus,
    check,
    matches_node_affinity,
    required_pod_terms,
    required_terms,
)

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EXEMPT_NAMESPACE: Final = "kube-system"
_ALWAYS: Final = ("Admission", "Scheduling")  # the default of `when`
_CLUSTER_KIND: Final = "ClusterPodSchedulingPolicy"


class Tally(NamedTuple):
    """How many pods were judged by at least one policy, and how many of them admission missed."""

    pods: int
    missed: int


class PolicyOracle:
    """The policies of a run. ``missed``: `namespace/name` of the pods for which the webhook was not reached."""

    def __init__(self, policies: Iterable[JsonObject], missed: Collection[str] = ()) -> None:
        self._policies = [policy for policy in policies if policy["spec"].get("mode", "Enforce") == "Enforce"]
        self._missed = missed

    def check(self, pod: JsonObject, node: str, state: ClusterState) -> PluginStatus:
        """The first policy that the placement violates; Success if it keeps all. O(policies) per pod that none selects."""
        for policy in self._policies:
            if not self._judges(policy, pod, state.namespaces):
                continue
            if not _keeps_nodes(policy["spec"], pod, state.nodes[node]):
                return _violated(policy, "node selector, node name or required node affinity")
            held = _with_pod_terms(policy["spec"], pod)
            # `_with_pod_terms` returns the same object if the policy adds nothing: the pod's own terms are judged
            # elsewhere.
            if held is not pod and check(held, node, state) != SUCCESS:
                return _violated(policy, "required pod affinity, anti-affinity or spread")
        return SUCCESS

    def tally(self, pods: Iterable[JsonObject], namespaces: Mapping[str, Mapping[str, str]]) -> Tally:
        """Counts the pods that were judged. O(pods × policies)."""
        judged = [pod for pod in pods if self.judging(pod, namespaces)]
        return Tally(len(judged), sum(self._has_missed(pod) for pod in judged))

    def judging(self, pod: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> list[JsonObject]:
        """The policies by which a pod is judged. O(policies)."""
        return [policy for policy in self._policies if self._judges(policy, pod, namespaces)]

    def _has_missed(self, pod: JsonObject) -> bool:
        return f"{namespace_of(pod)}/{name_of(pod)}" in self._missed

    def _judges(self, policy: JsonObject, pod: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether the policy selects the pod and acts on it: at admission, or also where admission missed it."""
        spec = policy["spec"]
        moments = spec.get("when") or _ALWAYS
        acts = "Scheduling" in moments or ("Admission" in moments and not self._has_missed(pod))
        is_for_pods = spec.get("targets", "Pods") != "Templates"
        return acts and is_for_pods and not _is_exempt(pod) and _selects(policy, pod, namespaces)


def selected_at(
    moment: str, policies: Iterable[JsonObject], pod: JsonObject, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    """Whether one of the policies acts at this moment on the pod. O(policies)."""
    return not _is_exempt(pod) and any(
        moment in (policy["spec"].get("when") or _ALWAYS) and _selects(policy, pod, namespaces) for policy in policies
    )


def _violated(policy: JsonObject, what: str) -> PluginStatus:
    kind = "cluster policy" if policy["kind"] == _CLUSTER_KIND else f"policy {namespace_of(policy)} /"
    return PluginStatus("Unschedulable", f"violates {what} of {kind} {name_of(policy)}")


def _is_exempt(pod: JsonObject) -> bool:
    return namespace_of(pod) == _EXEMPT_NAMESPACE  # no scenario allows the exempting label


def _selects(policy: JsonObject, pod: JsonObject, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
    """An absent selector selects nothing. Conditions are ANDed, the values of one ORed."""
    spec, home = policy["spec"], namespace_of(pod)
    if policy["kind"] == _CLUSTER_KIND:
        if not selects(spec.get("namespaceSelector"), namespaces.get(home, {})):
            return False
    elif namespace_of(policy) != home:
        return False
    if not selects(spec.get("podSelector"), labels_of(pod)):
        return False
    conditions = spec.get("matchConditions") or {}
    facts = _facts(pod)
    if any(conditions.get(field) and fact not in conditions[field] for field, fact in facts.items()):
        return False
    exclude = conditions.get("exclude") or {}
    if selects(exclude.get("podSelector"), labels_of(pod)) or home in (exclude.get("namespaces") or []):
        return False
    return not any(fact in (exclude.get(field) or []) for field, fact in facts.items())


def _facts(pod: JsonObject) -> dict[str, str]:
    """The values of the pod that conditions compare, by the name of the condition."""
    owners = pod["metadata"].get("ownerReferences") or []
    return {
        "ownerKinds": next((str(owner["kind"]) for owner in owners if owner.get("controller")), ""),
        "serviceAccounts": pod["spec"].get("serviceAccountName") or "default",
        "priorityClassNames": pod["spec"].get("priorityClassName") or "",
    }


def _keeps_nodes(spec: JsonObject, pod: JsonObject, node: JsonObject) -> bool:
    """Whether the policy alone allows the node."""
    if spec.get("nodeName") and spec["nodeName"] != name_of(node):
        return False
    # The spec of a policy has the fields of a pod's spec, so it can stand in its place.
    return matches_node_affinity({**pod, "spec": spec}, node)


def _with_pod_terms(spec: JsonObject, pod: JsonObject) -> JsonObject:
    """The pod with the policy's pod terms and hard spread. A term that the pod has already changes no status.

    The policy's node selector and node affinity are added too, because spread counts no pods on nodes that they exclude
    (nodeAffinityPolicy, KEP-3094).
    """
    added = {side: required_pod_terms({"spec": spec}, side) for side in (AFFINITY, ANTI_AFFINITY)}
    hard = [
        constraint
        for constraint in spec.get("topologySpreadConstraints") or []
        if constraint["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    if not hard and not any(added.values()):
        return pod
    merged = {**pod, "spec": dict(pod["spec"])}
    affinity = merged["spec"]["affinity"] = dict(pod["spec"].get("affinity") or {})
    merged["spec"]["nodeSelector"] = (pod["spec"].get("nodeSelector") or {}) | (spec.get("nodeSelector") or {})
    if (node_terms := _node_terms(spec, pod)) is not None:
        affinity["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": node_terms}}
    for side, terms in added.items():
        if terms:
            affinity[side] = {**(affinity.get(side) or {}), _REQUIRED: required_pod_terms(pod, side) + terms}
    merged["spec"]["topologySpreadConstraints"] = [*(pod["spec"].get("topologySpreadConstraints") or []), *hard]
    merged = copy.deepcopy(merged)  # the policy and the pod stay as they are
    _merge_label_keys(merged)
    return merged


def _node_terms(spec: JsonObject, pod: JsonObject) -> list[JsonObject] | None:
    """The required node terms of the pod and of the policy, ANDed; None where neither has any."""
    own, theirs = required_terms(pod), required_terms({"spec": spec})
    if own is None or theirs is None:
        return theirs if own is None else own
    fields = ("matchExpressions", "matchFields")
    return [
        {field: [*(one.get(field) or []), *(other.get(field) or [])] for field in fields}
        for one, other in product(own, theirs)
        if any(one.values()) and any(other.values())  # an empty term matches no node
    ]


def _merge_label_keys(pod: JsonObject) -> None:
    """Merges matchLabelKeys and mismatchLabelKeys into the selectors, as the API server does for the pods of a cluster."""
    spec = pod["spec"]
    for term in _every_pod_term(spec.get("affinity") or {}):
        _append(term, term.get("matchLabelKeys"), "In", labels_of(pod))
        _append(term, term.get("mismatchLabelKeys"), "NotIn", labels_of(pod))
    for constraint in spec.get("topologySpreadConstraints") or []:
        _append(constraint, constraint.get("matchLabelKeys"), "In", labels_of(pod))


def _every_pod_term(affinity: JsonObject) -> Iterator[JsonObject]:
    for side in (AFFINITY, ANTI_AFFINITY):
        rules = affinity.get(side) or {}
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield weighted["podAffinityTerm"]


def _append(owner: JsonObject, keys: Iterable[str] | None, operator: str, labels: Mapping[str, str]) -> None:
    selector = owner.get("labelSelector")
    if selector is None:
        return
    for key in keys or ():
        if key in labels:
            requirement = {"key": key, "operator": operator, "values": [labels[key]]}
            expressions = selector.setdefault("matchExpressions", [])
            # The API server may have merged it already, when the pod was created.
            if requirement not in expressions:
                expressions.append(requirement)

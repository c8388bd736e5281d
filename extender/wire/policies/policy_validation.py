"""Validates a scheduling policy: every error with its field, as the API server would report it.

The errors agree with those of gardener/kupid for the fields that both have. What is legal and probably a mistake is a
warning (`verbs/admit/policy_reviews.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from extender.model.constraints.labels import is_dns_subdomain, is_label_key
from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND, JsonObject, Moment
from extender.settings.limits import Limits
from extender.wire.policies.field_errors import ErrorType, FieldError, Problems
from extender.wire.policies.node_terms import size_of
from extender.wire.policies.release_v1 import check_release
from extender.wire.policies.scheduling_fields import (
    check_affinity,
    check_label_key,
    check_label_selector,
    check_labels,
    check_namespace,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)

_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_INT32: Final = 2**31 - 1
_LISTS: Final = ("ownerKinds", "serviceAccounts", "priorityClassNames")

KINDS: Final = (NAMESPACED_KIND, CLUSTER_KIND)


def validate(policy: Any, limits: Limits, *, kind: str = "") -> list[FieldError]:
    """Every error of a policy object. ``kind`` is used if the object has none."""
    found = Problems()
    if not isinstance(policy, dict):
        found.add(ErrorType.TYPE_INVALID, "", "must be an object", policy)
        return found.errors
    kind = kind or found.read_text(policy.get("kind"), "kind")
    if kind not in KINDS:
        found.not_supported("kind", kind, KINDS)
    _check_metadata(found, policy.get("metadata"), kind)
    _check_spec(found, found.read_object(policy.get("spec"), "spec"), kind)
    if not found.errors:  # sizes are counted in what has the right types
        _check_limits(found, policy.get("spec") or {}, limits)
    return found.errors


def is_policy(group: str, kind: str) -> bool:
    """Whether an object is a policy of the extender's API group or of kupid's."""
    return group in (GROUP, KUPID_GROUP) and kind in KINDS


def _check_metadata(found: Problems, value: Any, kind: str) -> None:
    metadata = found.read_object(value, "metadata")
    name = found.read_text(metadata.get("name"), "metadata.name")
    prefix = found.read_text(metadata.get("generateName"), "metadata.generateName")
    if name:
        check_subdomain(found, name, "metadata.name")
    elif not prefix:
        found.required("metadata.name", "name or generateName is required")
    if prefix and not is_dns_subdomain(f"{prefix}x"):
        check_subdomain(found, prefix, "metadata.generateName")
    _check_namespace(found, found.read_text(metadata.get("namespace"), "metadata.namespace"), kind)
    check_labels(found, metadata.get("labels"), "metadata.labels")
    for key in found.read_strings(metadata.get("annotations"), "metadata.annotations"):
        if not is_label_key(key.lower()):
            found.invalid("metadata.annotations", key, "not a qualified name")
    for text, at in found.items(metadata.get("finalizers"), "metadata.finalizers"):
        if text not in _STANDARD_FINALIZERS and ("/" not in str(text) or not is_label_key(str(text))):
            found.invalid(at, text, "name is neither a standard finalizer name nor is it fully qualified")


def _check_namespace(found: Problems, namespace: str, kind: str) -> None:
    if kind == CLUSTER_KIND and namespace:
        found.forbidden("metadata.namespace", "not allowed on this type")
    elif kind == NAMESPACED_KIND and not namespace:
        found.required("metadata.namespace", "")
    elif namespace:
        check_namespace(found, namespace, "metadata.namespace")


def _check_spec(found: Problems, spec: JsonObject, kind: str) -> None:
    check_label_selector(found, spec.get("podSelector"), "spec.podSelector")
    if kind == CLUSTER_KIND:
        check_label_selector(found, spec.get("namespaceSelector"), "spec.namespaceSelector")
    elif spec.get("namespaceSelector") is not None:
        found.forbidden("spec.namespaceSelector", f"only a {CLUSTER_KIND} selects namespaces")
    _check_conditions(found, spec.get("matchConditions"), "spec.matchConditions")
    check_labels(found, spec.get("nodeSelector"), "spec.nodeSelector")
    node_name = found.read_text(spec.get("nodeName"), "spec.nodeName")
    if node_name:
        check_subdomain(found, node_name, "spec.nodeName")
    check_affinity(found, spec.get("affinity"), "spec.affinity")
    check_tolerations(found, spec.get("tolerations"), "spec.tolerations")
    check_spread_constraints(found, spec.get("topologySpreadConstraints"), "spec.topologySpreadConstraints")
    _check_names(found, spec)
    _check_behaviour(found, spec)
    check_release(found, spec)


def _check_conditions(found: Problems, value: Any, path: str) -> None:
    conditions = found.read_object(value, path)
    exclude = found.read_object(conditions.get("exclude"), f"{path}.exclude")
    for name in _LISTS:
        found.read_texts(conditions.get(name), f"{path}.{name}")
        found.read_texts(exclude.get(name), f"{path}.exclude.{name}")
    for name, at in found.items(exclude.get("namespaces"), f"{path}.exclude.namespaces"):
        check_namespace(found, str(name), at)
    check_label_selector(found, exclude.get("podSelector"), f"{path}.exclude.podSelector")


def _check_names(found: Problems, spec: JsonObject) -> None:
    """Validates scheduler names, gates and the priority class."""
    one = found.read_text(spec.get("schedulerName"), "spec.schedulerName")
    several = found.read_list(spec.get("schedulerNames"), "spec.schedulerNames")
    if one and several:
        found.forbidden("spec.schedulerNames", "may not be specified together with `schedulerName`")
    for name, at in found.items(several, "spec.schedulerNames"):
        check_subdomain(found, str(name), at)
        if several.index(name) != int(at.rpartition("[")[2][:-1]):
            found.add(ErrorType.DUPLICATE, at, "", name)
    priority_class = found.read_text(spec.get("priorityClassName"), "spec.priorityClassName")
    if priority_class:
        check_subdomain(found, priority_class, "spec.priorityClassName")
    seen: set[str] = set()
    for gate, at in found.objects(spec.get("schedulingGates"), "spec.schedulingGates"):
        name = found.read_text(gate.get("name"), f"{at}.name")
        check_label_key(found, name, f"{at}.name")
        if name in seen:
            found.add(ErrorType.DUPLICATE, f"{at}.name", "", name)
        seen.add(name)
    if seen and spec.get("nodeName"):
        found.forbidden("spec.schedulingGates", "a pod with a node may have no gate: leave out `nodeName`")


def _check_behaviour(found: Problems, spec: JsonObject) -> None:
    """Validates when, where and how strictly the policy acts."""
    for moment, at in found.items(spec.get("when"), "spec.when"):
        found.read_choice(moment, at, list(Moment))
    if spec.get("when") == []:
        found.required("spec.when", "must name at least one moment")
    found.read_choice(spec.get("targets"), "spec.targets", ("Pods", "Templates", "Both"))
    found.read_choice(spec.get("conflictPolicy"), "spec.conflictPolicy", ("KeepPod", "Override", "Reject"))
    found.read_choice(spec.get("failurePolicy"), "spec.failurePolicy", ("Ignore", "Fail"))
    found.read_choice(spec.get("mode"), "spec.mode", ("Enforce", "Audit"))
    found.read_number(spec.get("priority"), "spec.priority", -_INT32 - 1, _INT32)


_LIMITED: Final = {
    "pod_bytes": "spec",
    "affinity_terms": "spec.affinity",
    "topology_spread_constraints": "spec.topologySpreadConstraints",
    "namespaces": "spec.affinity",
    "label_requirements": "spec.affinity",
    "node_selector_terms": "spec.affinity.nodeAffinity",
    "node_requirements": "spec.affinity.nodeAffinity",
    "selector_values": "spec.affinity",
    "tolerations": "spec.tolerations",
}


def _check_limits(found: Problems, spec: JsonObject, limits: Limits) -> None:
    """Rejects a policy above a limit of pods: every pod that it selects would be rejected."""
    for name, count in size_of(spec)._asdict().items():
        most = getattr(limits, name)
        if count > most:
            found.add(ErrorType.TOO_MANY, _LIMITED[name], f"{limit_name(name)} is {most}", count)


@cache
def limit_name(name: str) -> str:
    """The name of a limit in the configuration: ``limits.affinityTerms``."""
    first, *rest = name.split("_")
    return f"limits.{first}{''.join(part.capitalize() for part in rest)}"

"""Whether the pod that an update results in is valid, in the fields that scheduling reads or that an update may change.

What old pods were accepted with stays legal: label values of selectors were not always checked.
"""

from __future__ import annotations

from typing import Any, Final

from extender.model.constraints.labels import is_label_value
from extender.model.policies import JsonObject
from extender.wire.pod_updates.immutable_fields import check_immutable_fields
from extender.wire.policies.field_errors import ErrorType, FieldError, Problems
from extender.wire.policies.node_terms import REQUIRED, value_at
from extender.wire.policies.scheduling_fields import (
    check_affinity,
    check_label_key,
    check_labels,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)

_AFFINITY: Final = "spec.affinity"
_SPREAD: Final = "spec.topologySpreadConstraints"
_NODE_TERMS: Final = f"{_AFFINITY}.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
_POD_AFFINITIES: Final = (f"{_AFFINITY}.podAffinity.", f"{_AFFINITY}.podAntiAffinity.")
_LABEL_VALUE: Final = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
_INT32: Final = 2**31 - 1


def check_pod(found: Problems, old: JsonObject, new: JsonObject) -> None:
    """Every error of the new spec; ``old`` says what is tolerated."""
    for name in ("containers", "initContainers"):
        for container, at in found.objects(new.get(name), f"spec.{name}"):
            check_image(found, found.read_text(container.get("image"), f"{at}.image"), f"{at}.image")
    found.read_number(new.get("activeDeadlineSeconds"), "spec.activeDeadlineSeconds", 1, _INT32)
    _check_integer(found, new, "terminationGracePeriodSeconds")
    node_name = found.read_text(new.get("nodeName"), "spec.nodeName")
    if node_name:
        check_subdomain(found, node_name, "spec.nodeName")
    check_labels(found, new.get("nodeSelector"), "spec.nodeSelector")
    check_pod_tolerations(found, new.get("tolerations"))
    _check_gates(found, new.get("schedulingGates"))
    found.errors += _affinity_errors(old, new)
    found.errors += _spread_errors(old, new)
    check_immutable_fields(found, old, new)


def check_image(found: Problems, image: str, path: str) -> None:
    """The image of a container in a pod; that of a template may be absent."""
    if not image:
        found.required(path, "")
    if image.strip() != image:
        found.invalid(path, image, "must not have leading or trailing whitespace")


def check_pod_tolerations(found: Problems, value: Any) -> None:
    """The tolerations of a pod."""
    check_tolerations(found, value, "spec.tolerations")


def _check_integer(found: Problems, spec: JsonObject, name: str) -> None:
    value = spec.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        found.add(ErrorType.TYPE_INVALID, f"spec.{name}", "must be an integer", value)


def _check_gates(found: Problems, value: Any) -> None:
    seen: set[str] = set()
    for gate, at in found.objects(value, "spec.schedulingGates"):
        name = found.read_text(gate.get("name"), f"{at}.name")
        check_label_key(found, name, at)
        if name in seen:
            found.add(ErrorType.DUPLICATE, at, "", name)
        seen.add(name)


def _affinity_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """Wrong label values in selectors of (anti-)affinity are tolerated if the old pod has one, and those of nodes alike."""
    found, before = Problems(), Problems()
    check_affinity(found, new.get("affinity"), _AFFINITY)
    check_affinity(before, old.get("affinity"), _AFFINITY)
    errors = found.errors
    if any(map(_is_selector_value, before.errors)):
        errors = [error for error in errors if not _is_selector_value(error)]
    if not any(error.type is ErrorType.TYPE_INVALID for error in errors) and not _node_value_errors(old):
        errors += _node_value_errors(new)
    return errors


def _is_selector_value(error: FieldError) -> bool:
    return error.field.startswith(_POD_AFFINITIES) and ".values[" in error.field


def _node_value_errors(spec: JsonObject) -> list[FieldError]:
    found = Problems()
    for number, term in enumerate(value_at(spec, f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms") or ()):
        for clause, expression in enumerate(term.get("matchExpressions") or ()):
            for at, text in enumerate(expression.get("values") or ()):
                if not is_label_value(text):
                    found.invalid(
                        f"{_NODE_TERMS}[{number}].matchExpressions[{clause}].values[{at}]", text, _LABEL_VALUE
                    )
    return found.errors


def _spread_errors(old: JsonObject, new: JsonObject) -> list[FieldError]:
    """A selector that is wrong is tolerated if the old pod has one. Unlike in a policy, minDomains needs DoNotSchedule."""
    found, before = Problems(), Problems()
    check_spread_constraints(found, new.get("topologySpreadConstraints"), _SPREAD)
    check_spread_constraints(before, old.get("topologySpreadConstraints"), _SPREAD)
    if any(".labelSelector." in error.field for error in before.errors):
        found.errors = [error for error in found.errors if ".labelSelector." not in error.field]
    for item, at in Problems().objects(new.get("topologySpreadConstraints"), _SPREAD):
        if item.get("minDomains") is not None and item.get("whenUnsatisfiable") != "DoNotSchedule":
            text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
            found.invalid(f"{at}.minDomains", item["minDomains"], text)
    return found.errors

"""Whether the API server accepts an update of a pod, and the errors with which it refuses one.

Most of a pod is immutable. Scheduling readiness (KEP-3521) lets its gates be removed, and while the *old* pod has a gate
its node selector and node affinity may be narrowed (KEP-3838): one update may narrow a pod and remove its last gate.
As `ValidatePodUpdate` of Kubernetes 1.36, https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from extender.model.policies import JsonObject
from extender.model.resources import QuantityError, parse_quantity
from extender.simulator.apiserver.metadata_updates import check_metadata_update, check_mirror
from extender.wire.pods.validity import check_image, check_pod, check_pod_tolerations
from extender.wire.policies.field_errors import REQUIRED, ErrorType, FieldError, Problems

UPDATABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)
_INT32: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one update; without errors it is accepted. An error appears once, however many checks find it."""

    errors: tuple[FieldError, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Whether the update is accepted."""
        return not self.errors


def allowed(old: JsonObject, new: JsonObject) -> Verdict:
    """The verdict on replacing the pod ``old`` by ``new``. O(size of both).

    Both are as the API server holds them: defaults filled in, and in ``new`` the metadata that an update may leave out
    (uid, resourceVersion). A field that cannot change is checked for its validity only where that shows in the errors.
    """
    problems = Problems()
    check_metadata_update(problems, old["metadata"], problems.read_object(new.get("metadata"), "metadata"))
    check_mirror(problems, new)
    check_pod(problems, old["spec"], problems.read_object(new.get("spec"), "spec"))
    malformed = [error for error in problems.errors if error.type is ErrorType.TYPE_INVALID]
    if malformed:  # the API server cannot decode the pod, so it checks no more
        return Verdict(tuple(malformed))
    _check_spec_update(problems, old["spec"], new.get("spec") or {})
    return Verdict(tuple(dict.fromkeys(problems.errors)))


def _check_spec_update(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    """The steps are in the order of the API server, which leaves out the later ones after some errors."""
    if not (_check_containers(problems, old, new) and _check_deadline(problems, old, new)):
        return
    _check_tolerations(problems, old.get("tolerations") or [], new.get("tolerations") or [])
    _check_gates(problems, old.get("schedulingGates") or [], new.get("schedulingGates") or [])
    before, after = comparable_spec(old), comparable_spec(new)
    if before == after:
        return
    _take_over_updatable(before, after)
    if before.get("schedulingGates"):
        _check_narrowing(problems, before, after)
    if before != after:
        names = ", ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))
        problems.forbidden(
            "spec", f"pod updates may not change fields other than {','.join(UPDATABLE)}; changed: {names}"
        )


def _check_containers(problems: Problems, old: JsonObject, new: JsonObject) -> bool:
    for name in ("containers", "initContainers"):
        before, after = old.get(name) or [], new.get(name) or []
        if len(before) != len(after):
            problems.forbidden(f"spec.{name}", "pod updates may not add or remove containers")
            return False
        for number, container in enumerate(after):
            check_image(problems, container.get("image") or "", f"spec.{name}[{number}].image")
    return True


def _check_deadline(problems: Problems, old: JsonObject, new: JsonObject) -> bool:
    """It may be set, and lowered. Returns whether the later checks are made."""
    at = "spec.activeDeadlineSeconds"
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if after is None:
        if before is not None:
            problems.invalid(at, after, "must not update from a positive integer to nil value")
    elif not 0 <= after <= _INT32:
        problems.invalid(at, after, f"must be between 0 and {_INT32}, inclusive")
        return False
    elif before is not None and before < after:
        problems.invalid(at, after, "must be less than or equal to previous value")
        return False
    return True


def _check_tolerations(problems: Problems, old: list[JsonObject], new: list[JsonObject]) -> None:
    """They may be added in any order; of an existing one the seconds may change. Independent of gates."""
    kept = {_toleration_key(toleration) for toleration in new}
    if any(_toleration_key(toleration) not in kept for toleration in old):
        problems.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        return
    check_pod_tolerations(problems, new)


def _toleration_key(toleration: JsonObject) -> tuple[str, ...]:
    return tuple(toleration.get(name) or "" for name in ("key", "operator", "value", "effect"))


def _check_gates(problems: Problems, old: list[JsonObject], new: list[JsonObject]) -> None:
    """Gates can only be removed. If a new name stands twice, the last element is reported."""
    # A dictionary, so the last of two equal names gives the number.
    added = {gate.get("name") or "": number for number, gate in enumerate(new)}
    for gate in old:
        added.pop(gate.get("name") or "", None)
    for name, number in added.items():
        text = f"only deletion is allowed, but found new scheduling gate '{name}'"
        problems.forbidden(f"spec.schedulingGates[{number}].name", text)


def _take_over_updatable(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Replaces in ``after`` what any pod may change by the old values, so that the rest can be compared."""
    for name in ("containers", "initContainers"):
        for old, new in zip(before.get(name) or (), after.get(name) or (), strict=True):
            _take_over(old, new, "image")
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _take_over(before, after, name)
    # A negative period, which old API servers accepted, counts as 1 second.
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        _take_over(before, after, "terminationGracePeriodSeconds")


def _take_over(before: dict[str, Any], after: dict[str, Any], name: str) -> None:
    after.pop(name, None)
    if name in before:
        after[name] = before[name]


def _check_narrowing(problems: Problems, before: dict[str, Any], after: dict[str, Any]) -> None:
    """The fields that may change only in a gated pod. A checked field gets its old value in ``after``, so it counts as equal later."""
    check_node_selector(problems, before.get("nodeSelector") or {}, after.get("nodeSelector") or {})
    _take_over(before, after, "nodeSelector")
    old, new = before.get("affinity"), after.get("affinity")
    nodes_before = None if old is None else old.get("nodeAffinity")
    nodes_after = None if new is None else new.get("nodeAffinity")
    if comparable(nodes_before) == comparable(nodes_after):
        return
    check_node_affinity(problems, nodes_before, nodes_after)
    # 1. The affinity was removed. That is allowed if it had only node affinity, so this part alone is put back: with
    # pod affinity in the old pod the comparison still fails.
    # 2. An affinity was added that has only node affinity: removed again.
    # 3. Otherwise only the part nodeAffinity is put back.
    if new is None:
        after["affinity"] = {"nodeAffinity": nodes_before}
    elif old is None and "podAffinity" not in new and "podAntiAffinity" not in new:
        del after["affinity"]
    else:
        _take_over(old or {}, new, "nodeAffinity")


_TERMS: Final = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


# -- narrowing: the node selector and the node affinity of a gated pod may change only so that fewer nodes match (KEP-3838).
# The rules are about the form and not about the meaning. Required terms keep their number and order, and requirements are
# appended to a term; a shorter list of values is refused although it matches fewer nodes. Preferred terms are free.


def check_node_selector(problems: Problems, old: dict[str, str], new: dict[str, str]) -> None:
    """Keys may be added; one that exists keeps its value."""
    if any(new.get(key) != value for key, value in old.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        problems.invalid("spec.nodeSelector", new, text)


def check_node_affinity(problems: Problems, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    """Required terms may be set where there are none, else each only gains requirements at its end."""
    before, after = _required_terms(old), _required_terms(new)
    if not before:
        return
    if len(before) != len(after):
        problems.invalid(_TERMS, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for number, (term, narrowed) in enumerate(zip(before, after, strict=True)):
        if not _has_only_additions(term, narrowed):
            text = "only additions are allowed (no mutations or deletions)"
            problems.invalid(f"{_TERMS}[{number}]", narrowed, text)


def _required_terms(affinity: dict[str, Any] | None) -> list[dict[str, Any]]:
    required = (affinity or {}).get(REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _has_only_additions(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """A term without any requirement matches no node: an addition would widen it."""
    if not old:
        return not new
    for name in ("matchExpressions", "matchFields"):
        kept = old.get(name) or []
        # By position: the old requirements must be the beginning of the new ones.
        if (new.get(name) or [])[: len(kept)] != kept:
            return False
    return True


# -- when two pod specs are equal to the API server: not as JSON, but as the Go structs that it decodes. An absent field is
# equal to null, to an empty list or map, and to the zero value of a field that is no pointer. Quantities are equal by value
# ("1" and "1000m"). An empty object is equal to an absent one only where the struct is no pointer.

# Fields of pods by type, from k8s.io/kubernetes/pkg/apis/core/types.go.
_MAPS: Final = frozenset(
    {
        "nodeSelector",
        "limits",
        "requests",
        "overhead",
        "matchLabels",
        "labels",
        "annotations",
        "volumeAttributes",
        "options",
    }
)
_PLAIN_STRUCTS: Final = frozenset({"resources", "preference", "podAffinityTerm", "metadata", "spec"})
_PLAIN_ZEROS: Final = frozenset(
    {
        "stdin", "stdinOnce", "tty", "readOnly", "hostNetwork", "hostPID", "hostIPC", "hostPort", "containerPort", "weight",
        "maxSkew", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold", "partition",
    }
)  # fmt: skip
_QUANTITY_MAPS: Final = frozenset({"limits", "requests", "overhead"})
_QUANTITIES: Final = frozenset({"sizeLimit", "divisor"})


def comparable_spec(spec: JsonObject) -> dict[str, Any]:
    """A copy of a pod spec in a form in which equal specs are equal values. O(size)."""
    fields = _fields(spec)
    # Both names are read, and the security context of a pod is never nil: it holds hostNetwork and its like.
    account = fields.pop("serviceAccount", None)
    if account is not None:
        fields.setdefault("serviceAccountName", account)
    if fields.get("securityContext") == {}:
        del fields["securityContext"]
    if isinstance(spec.get("resources"), dict):  # a pointer here, and none in a container
        fields.setdefault("resources", {})
    return fields


def comparable(value: Any, name: str = "") -> Any:
    """A value of the field ``name`` in that form; None where it is equal to an absent one."""
    match value:
        case None | "" | []:
            return None
        case bool() | int() if not value and name in _PLAIN_ZEROS:
            return None
        case list():
            # An empty struct in a list is still an element of it.
            return [comparable(item) or {} if isinstance(item, dict) else item for item in value]
        case dict():
            fields = _quantities(value) if name in _QUANTITY_MAPS else value if name in _MAPS else _fields(value)
            return None if not fields and name in _MAPS | _PLAIN_STRUCTS else fields
        case str() if name in _QUANTITIES:
            return _quantity(value)
        case _:
            return value


def _fields(value: JsonObject) -> dict[str, Any]:
    pairs = ((name, comparable(item, name)) for name, item in value.items())
    return {name: item for name, item in pairs if item is not None}


def _quantities(value: JsonObject) -> dict[str, Any]:
    return {name: _quantity(text) for name, text in value.items()}


def _quantity(text: Any) -> Any:
    try:
        return parse_quantity(str(text), milli=True)
    except QuantityError:
        return text

"""Validates a scheduling policy: every error with its field, as the API server would report it.

For the fields that gardener/kupid has too, the errors are the same. A legal value that is probably a mistake gets a
warning (`verbs/admit/policy_reviews.py`). The fields of a spec are checked as `policy_schema.py` declares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, Final

from extender.model.constraints.labels import is_dns_subdomain, is_label_key
from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND, JsonObject
from extender.settings.limits import ConstraintLimits
from extender.wire.policies.field_errors import (
    ErrorType,
    FieldError,
    Problems,
    check_labels,
    check_namespace,
    check_subdomain,
)
from extender.wire.policies.node_terms import size_of
from extender.wire.policies.policy_schema import NAMESPACED_SPEC, SPEC
from extender.wire.policies.schema import Check, Flag, Many, NumberOrWord, Record, Text, Type, WholeNumber

_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")

KINDS: Final = (NAMESPACED_KIND, CLUSTER_KIND)
POLICY_KINDS: Final = frozenset(product((GROUP, KUPID_GROUP), KINDS))
"""Group and kind of each kind of policies: of the extender's API group, and of kupid's."""


def validate(policy: Any, limits: ConstraintLimits, *, kind: str = "") -> list[FieldError]:
    """Every error of a policy object. ``kind`` is used if the object has none."""
    found = Problems()
    if not isinstance(policy, dict):
        found.add(ErrorType.TYPE_INVALID, "", "must be an object", policy)
        return found.errors
    kind = kind or found.read_text(policy.get("kind"), "kind")
    if kind not in KINDS:
        found.not_supported("kind", kind, KINDS)
    _check_metadata(found, policy.get("metadata"), kind)
    _check_spec(found, policy.get("spec"), kind)
    if not found.errors:  # sizes are counted in what has the right types
        _check_limits(found, policy.get("spec") or {}, limits)
    return found.errors


def _check_metadata(found: Problems, value: Any, kind: str) -> None:
    metadata = found.read_object(value, "metadata")
    name = found.read_text(metadata.get("name"), "metadata.name")
    prefix = found.read_text(metadata.get("generateName"), "metadata.generateName")
    if name:
        check_subdomain(found, name, "metadata.name")
    elif not prefix:
        found.required("metadata.name", "name or generateName is required")
    # The API server appends five characters, so a prefix may end with "-".
    if prefix and not is_dns_subdomain(f"{prefix}x"):
        check_subdomain(found, prefix, "metadata.generateName")
    _check_namespace(found, found.read_text(metadata.get("namespace"), "metadata.namespace"), kind)
    check_labels(found, metadata.get("labels"), "metadata.labels")
    for key in found.read_strings(metadata.get("annotations"), "metadata.annotations"):
        # The API server validates keys of annotations in lower case.
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


def _check_spec(found: Problems, spec: Any, kind: str) -> None:
    if spec is None:
        spec = {}
    if kind != CLUSTER_KIND and isinstance(spec, dict) and spec.get("namespaceSelector") is not None:
        found.forbidden("spec.namespaceSelector", f"only a {CLUSTER_KIND} selects namespaces")
    check = _CHECK_CLUSTER_WIDE if kind == CLUSTER_KIND else _CHECK_NAMESPACED
    check(found, spec, "spec")


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


def _check_limits(found: Problems, spec: JsonObject, limits: ConstraintLimits) -> None:
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


# -- from a declaration to a check: made once, and called with each value that is not null


def check_of(declared: Type) -> Check:
    """What adds the errors of a value. O(size of the value)."""
    match declared:
        case Record():
            return _record(declared)
        case Many():
            return _list(declared)
        case Text():
            return _text(declared)
        case WholeNumber(least, most, bits):
            limit = 2 ** (bits - 1)
            return _number(-limit if least is None else least, limit - 1 if most is None else most)
        case NumberOrWord():
            return _number_or_word(declared)
        case Flag(only_true):
            return _check_true if only_true else _check_flag
        case _:
            raise TypeError(f"{type(declared).__name__}: a field of this type needs a check of its own")


def _record(declared: Record) -> Check:
    fields = tuple(
        (
            each.name,
            f".{each.name}",
            each.check or check_of(each.type),
            _absent(each.type) if each.is_required or declared.is_choice else None,
        )
        for each in declared.fields
    )
    predicates = tuple(each.check for each in declared.predicates if each.check)
    names = {each.name for each in declared.fields} if declared.is_choice else set()

    def check(found: Problems, value: Any, path: str) -> None:
        is_object = isinstance(value, dict)
        if not is_object:
            found.add(ErrorType.TYPE_INVALID, path, "must be an object", value)
        if names and (not is_object or len(value) != 1 or not value.keys() <= names):
            found.invalid(path, value, declared.choice_text)
        elif is_object:
            check_fields(found, value, path)

    def check_fields(found: Problems, value: JsonObject, path: str) -> None:
        for name, suffix, check_field, check_absent in fields:
            item = value.get(name)
            if item is not None:
                check_field(found, item, path + suffix)
            # A choice needs one of its fields, so only a field that is present as null is reported.
            elif check_absent and (not names or name in value):
                check_absent(found, path + suffix)
        for predicate in predicates:
            predicate(found, value, path)

    return check


def _absent(declared: Type) -> Callable[[Problems, str], None]:
    """The error of a required field without a value. A missing name has the error of an empty name."""
    match declared:
        case Text(check=check) if check:
            return lambda found, path: check(found, "", path)
        case Flag(only_true=True):
            return lambda found, path: _check_true(found, None, path)
        case _:
            return lambda found, path: found.required(path, getattr(declared, "needs", ""))


def _list(declared: Many) -> Check:
    check_item, most = check_of(declared.item), declared.most if declared.is_limited else None
    key = declared.keys[0] if declared.keys else ""
    is_unique = bool(declared.keys or declared.is_set) if declared.is_unique is None else declared.is_unique

    def check(found: Problems, value: Any, path: str) -> None:
        if not isinstance(value, list):
            found.add(ErrorType.TYPE_INVALID, path, "must be a list", value)
            value = []
        if declared.needs and not value:
            found.required(path, declared.needs)
        if most and len(value) > most:
            found.too_many(path, len(value), most)
            # Bounds the cost: the rest of a list that is too long is refused anyway.
            value = value[:most]
        for number, item in enumerate(value):
            check_item(found, item, f"{path}[{number}]")
        if is_unique:
            _check_unique(found, value, path, key)

    return check


def _check_unique(found: Problems, items: list[Any], path: str, key: str) -> None:
    """``key``: the field by which objects differ; empty for texts."""
    seen: set[str] = set()
    for number, item in enumerate(items):
        text = item.get(key) if key and isinstance(item, dict) else item
        if isinstance(text, str) and text in seen:
            found.add(ErrorType.DUPLICATE, f"{path}[{number}]{key and f'.{key}'}", "", text)
        elif isinstance(text, str):
            seen.add(text)


def _text(declared: Text) -> Check:
    choices, is_optional = declared.choices, declared.is_optional
    check_form = declared.check or (None if declared.is_lenient else _form(declared))

    def check(found: Problems, value: Any, path: str) -> None:
        if not isinstance(value, str):
            found.add(ErrorType.TYPE_INVALID, path, "must be a string", value)
        elif is_optional and not value:
            return
        elif choices and value not in choices:
            found.not_supported(path, value, choices)
        elif check_form:
            check_form(found, value, path)

    return check


def _form(declared: Text) -> Check:
    # In a JSON schema `$` is the end of the text. In Python it also matches before a last newline, and `\Z` does not.
    pattern, longest = re.compile(re.sub(r"\$$", r"\\Z", declared.pattern)), declared.longest

    def check(found: Problems, text: str, path: str) -> None:
        if len(text) > longest:
            found.add(ErrorType.TOO_LONG, path, f"may not be more than {longest} characters", text)
        # `search`, because a pattern of a JSON schema may match anywhere. The patterns here have their own ^ and $.
        if not pattern.search(text):
            found.invalid(path, text, f"must match {declared.pattern}")

    return check


def _number(least: int, most: int) -> Check:
    def check(found: Problems, value: Any, path: str) -> None:
        found.read_number(value, path, least, most)

    return check


def _number_or_word(declared: NumberOrWord) -> Check:
    check_number = _number(declared.least, declared.most)

    def check(found: Problems, value: Any, path: str) -> None:
        if not isinstance(value, str):
            check_number(found, value, path)
        elif value != declared.word:
            found.not_supported(path, value, (declared.word, "a number"))

    return check


def _check_flag(found: Problems, value: Any, path: str) -> None:
    if not isinstance(value, bool):
        found.add(ErrorType.TYPE_INVALID, path, "must be true or false", value)


def _check_true(found: Problems, value: Any, path: str) -> None:
    if value is not True:
        found.not_supported(path, value, ("true",))


_CHECK_CLUSTER_WIDE: Final = check_of(SPEC)
_CHECK_NAMESPACED: Final = check_of(NAMESPACED_SPEC)

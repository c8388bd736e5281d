"""Whether the metadata of a pod is valid after an update."""

from __future__ import annotations

from typing import Final

from extender.model.constraints.labels import is_label_key
from extender.model.policies import JsonObject
from extender.wire.pods.validity import check_owners
from extender.wire.policies.field_errors import ErrorType, Problems, check_labels, check_namespace, check_subdomain

_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_APPARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_IMMUTABLE: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_INT32: Final = 2**31


def check_metadata_update(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    """Every error of the new metadata."""
    _check_identity(problems, old, new)
    check_labels(problems, new.get("labels"), "metadata.labels")
    _check_annotations(problems, old, new)
    _check_finalizers(problems, old, new)
    check_owners(problems, new.get("ownerReferences"), "metadata.ownerReferences")


def check_mirror(problems: Problems, pod: JsonObject) -> None:
    """A mirror pod must have a node."""
    annotations, spec = (pod.get("metadata") or {}).get("annotations"), pod.get("spec")
    if isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations and not (spec or {}).get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        problems.invalid(f"metadata.annotations[{_MIRROR_ANNOTATION}]", annotations[_MIRROR_ANNOTATION], text)


def _check_identity(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    if not new.get("resourceVersion"):
        problems.invalid("metadata.resourceVersion", new.get("resourceVersion"), "must be specified for an update")
    generation = problems.read_number(new.get("generation"), "metadata.generation", 0, 2**63 - 1)
    if (generation or 0) < (old.get("generation") or 0):
        problems.invalid("metadata.generation", generation, "must not be decremented")
    for name in _IMMUTABLE:
        # Absent, null and empty are one value in Go.
        if (new.get(name) or None) != (old.get(name) or None):
            problems.invalid(f"metadata.{name}", new.get(name), "field is immutable")
    name, namespace = (problems.read_text(new.get(field), f"metadata.{field}") for field in ("name", "namespace"))
    if name:
        check_subdomain(problems, name, "metadata.name")
    else:
        problems.required("metadata.name", "name or generateName is required")
    if namespace:
        check_namespace(problems, namespace, "metadata.namespace")
    else:
        problems.required("metadata.namespace", "")


def _check_annotations(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    before = old.get("annotations") or {}
    after = problems.read_strings(new.get("annotations"), "metadata.annotations")
    for key in after:
        if not is_label_key(key.lower()):
            problems.invalid("metadata.annotations", key, "not a qualified name")
    if sum(len(key.encode()) + len(text.encode()) for key, text in after.items()) > _MOST_ANNOTATION_BYTES:
        # The limit is for all keys and values together, in bytes.
        problems.add(ErrorType.TOO_LONG, "metadata.annotations", f"may not be more than {_MOST_ANNOTATION_BYTES} bytes")
    # A removed annotation is a change too.
    for key in before.keys() | after.keys():
        noun = "mirror pod annotation" if key == _MIRROR_ANNOTATION else "AppArmor annotations"
        if before.get(key) != after.get(key) and (key == _MIRROR_ANNOTATION or key.startswith(_APPARMOR_PREFIX)):
            problems.forbidden(
                f"metadata.annotations[{key}]", f"may not {'remove or update' if key in before else 'add'} {noun}"
            )
    if not _is_int32(after.get(_DELETION_COST, "0")):
        problems.invalid(f"metadata.annotations[{_DELETION_COST}]", after[_DELETION_COST], "must be a 32bit integer")


def _is_int32(text: str) -> bool:
    """Whether Kubernetes can read it as a deletion cost: no plus sign, no leading zeros."""
    digits = text.removeprefix("-")
    is_plain = (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= len(str(_INT32))
        and (digits == "0" or digits[0] != "0")
    )
    return is_plain and -_INT32 <= int(text) < _INT32


def _check_finalizers(problems: Problems, old: JsonObject, new: JsonObject) -> None:
    names = problems.read_texts(new.get("finalizers"), "metadata.finalizers")
    added = set(names) - set(old.get("finalizers") or ())
    if old.get("deletionTimestamp") and added:
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
        problems.forbidden("metadata.finalizers", text)
    for number, name in enumerate(names):
        if not is_label_key(name):
            problems.invalid("metadata.finalizers", name, "not a qualified name")
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            problems.invalid(f"metadata.finalizers[{number}]", name, text)
    if {"orphan", "foregroundDeletion"} <= set(names):
        problems.invalid("metadata.finalizers", names, "orphan and foregroundDeletion cannot be both set")

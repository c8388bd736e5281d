"""How the metadata of a pod may change: what identifies it stays, and labels, annotations and the like must be valid."""

from __future__ import annotations

from typing import Any, Final

from extender.model.constraints.labels import is_label_key
from extender.model.policies import JsonObject
from extender.wire.policies.field_errors import ErrorType, Problems
from extender.wire.policies.scheduling_fields import check_labels, check_namespace, check_subdomain

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_APPARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_IMMUTABLE: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_MOST_ANNOTATION_BYTES: Final = 256 * 1024
_INT32: Final = 2**31


def check_metadata_update(found: Problems, old: JsonObject, new: JsonObject) -> None:
    """Every error of the new metadata."""
    _check_identity(found, old, new)
    check_labels(found, new.get("labels"), "metadata.labels")
    _check_annotations(found, old, new)
    _check_finalizers(found, old, new)
    _check_owners(found, new.get("ownerReferences"), "metadata.ownerReferences")


def check_mirror(found: Problems, pod: JsonObject) -> None:
    """A mirror pod is one of a node."""
    annotations, spec = (pod.get("metadata") or {}).get("annotations"), pod.get("spec")
    if isinstance(annotations, dict) and MIRROR_ANNOTATION in annotations and not (spec or {}).get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        found.invalid(f"metadata.annotations[{MIRROR_ANNOTATION}]", annotations[MIRROR_ANNOTATION], text)


def _check_identity(found: Problems, old: JsonObject, new: JsonObject) -> None:
    if not new.get("resourceVersion"):
        found.invalid("metadata.resourceVersion", new.get("resourceVersion"), "must be specified for an update")
    generation = found.read_number(new.get("generation"), "metadata.generation", 0, 2**63 - 1)
    if (generation or 0) < (old.get("generation") or 0):
        found.invalid("metadata.generation", generation, "must not be decremented")
    for name in _IMMUTABLE:
        if (new.get(name) or None) != (old.get(name) or None):
            found.invalid(f"metadata.{name}", new.get(name), "field is immutable")
    name, namespace = (found.read_text(new.get(each), f"metadata.{each}") for each in ("name", "namespace"))
    if name:
        check_subdomain(found, name, "metadata.name")
    else:
        found.required("metadata.name", "name or generateName is required")
    if namespace:
        check_namespace(found, namespace, "metadata.namespace")
    else:
        found.required("metadata.namespace", "")


def _check_annotations(found: Problems, old: JsonObject, new: JsonObject) -> None:
    before = old.get("annotations") or {}
    after = found.read_strings(new.get("annotations"), "metadata.annotations")
    for key in after:
        if not is_label_key(key.lower()):
            found.invalid("metadata.annotations", key, "not a qualified name")
    if sum(len(key.encode()) + len(text.encode()) for key, text in after.items()) > _MOST_ANNOTATION_BYTES:
        found.add(ErrorType.TOO_LONG, "metadata.annotations", f"may not be more than {_MOST_ANNOTATION_BYTES} bytes")
    for key in before.keys() | after.keys():
        what = "mirror pod annotation" if key == MIRROR_ANNOTATION else "AppArmor annotations"
        if before.get(key) != after.get(key) and (key == MIRROR_ANNOTATION or key.startswith(_APPARMOR_PREFIX)):
            found.forbidden(
                f"metadata.annotations[{key}]", f"may not {'remove or update' if key in before else 'add'} {what}"
            )
    if not _is_int32(after.get(_DELETION_COST, "0")):
        found.invalid(f"metadata.annotations[{_DELETION_COST}]", after[_DELETION_COST], "must be a 32bit integer")


def _is_int32(text: str) -> bool:
    """As Kubernetes reads a deletion cost: no plus sign, no leading zeros."""
    digits = text.removeprefix("-")
    is_plain = (
        digits.isascii()
        and digits.isdecimal()
        and len(digits) <= len(str(_INT32))
        and (digits == "0" or digits[0] != "0")
    )
    return is_plain and -_INT32 <= int(text) < _INT32


def _check_finalizers(found: Problems, old: JsonObject, new: JsonObject) -> None:
    names = found.read_texts(new.get("finalizers"), "metadata.finalizers")
    added = set(names) - set(old.get("finalizers") or ())
    if old.get("deletionTimestamp") and added:
        text = f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
        found.forbidden("metadata.finalizers", text)
    for number, name in enumerate(names):
        if not is_label_key(name):
            found.invalid("metadata.finalizers", name, "not a qualified name")
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            found.invalid(f"metadata.finalizers[{number}]", name, text)
    if {"orphan", "foregroundDeletion"} <= set(names):
        found.invalid("metadata.finalizers", names, "orphan and foregroundDeletion cannot be both set")


def _check_owners(found: Problems, value: Any, path: str) -> None:
    """Errors are about the list without a number, as in the API."""
    controllers = 0
    for owner, _ in found.objects(value, path):
        for name in ("apiVersion", "kind", "name", "uid"):
            if not found.read_text(owner.get(name), f"{path}.{name}"):
                found.invalid(f"{path}.{name}", "", "must not be empty")
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            found.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        controllers += owner.get("controller") is True
    if controllers > 1:
        found.invalid(path, value, "Only one reference can have Controller set to true")

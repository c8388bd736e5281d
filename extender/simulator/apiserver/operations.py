"""The writes of the simulated API server: create, replace, patch and delete, with preconditions. No HTTP.

Called by the request handlers, and directly by the scenario player. `pod_operations.py` has those of pods only.
"""

from collections.abc import Callable, Sequence
from typing import Any

from extender.simulator.apiserver import api_errors, defaulting, patching
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Kind, Target
from extender.simulator.apiserver.pod_updates import allowed
from extender.simulator.apiserver.pod_validity import check_metadata_update
from extender.simulator.apiserver.store import Store, Stored
from extender.simulator.json_objects import JsonObject, node_of, timestamp
from extender.wire.policies.field_errors import FieldError, Problems

# Metadata that an update cannot change.
_KEPT = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NEEDS_VERSION = {"leases", "groupplacements"}


class Operations:
    """The writes that all kinds have in common."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, kind: Kind, obj: JsonObject, *, namespace: str = "") -> Stored:
        """Creates an object. Raises ApiError 404 without its namespace, 409 if the name exists, 422 without a name."""
        metadata = obj.setdefault("metadata", {})
        if metadata.get("generateName") and not metadata.get("name"):
            metadata["name"] = metadata["generateName"] + self.store.new_uid()[:5]
        if not metadata.get("name"):
            raise api_errors.invalid(f"{kind.kind}: name or generateName is required", field="metadata.name")
        if kind.namespaced:
            metadata["namespace"] = namespace = namespace or metadata.get("namespace") or ""
            self._check_namespace(namespace)
        key = Target(kind, namespace, metadata["name"]).key
        if key in self.store.table(kind).objects:
            raise api_errors.already_exists(kind, metadata["name"])
        body = _body(obj)
        defaulting.stamp(body, self.store.new_uid())
        defaulting.complete_new(kind, body, self._priority(body))
        if kind is PODS:
            _check_new_pod(body)
            self.copy_topology(body)
        return self.store.put(kind, body)

    def replace(self, target: Target, obj: JsonObject) -> Stored:
        """PUT. Raises ApiError 409 if the object has another version or UID than the stored one."""
        stored = self.store.find(target.kind, target.key)
        body = _body(obj)
        metadata = body.get("metadata") or {}
        if target.kind.plural in _NEEDS_VERSION and not metadata.get("resourceVersion"):
            problem = "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
            raise api_errors.invalid(f'{target.kind.qualified} "{target.name}" is invalid: {problem}')
        return self._update(target, stored, body)

    def patch(self, target: Target, patch: Any, content_type: str) -> Stored:
        """PATCH. A version or UID in the patch is a precondition, as in the real API."""
        with self.store.other_work.counted():
            stored = self.store.find(target.kind, target.key)
            return self._update(target, stored, patching.apply_patch(stored.read(), patch, content_type))

    def change(self, kind: Kind, key: str, edit: Callable[[JsonObject], None]) -> Stored:
        """Changes an object without preconditions, as the API server and controllers do."""
        obj = self.store.find(kind, key).read()
        edit(obj)
        return self.store.put(kind, obj)

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """DELETE. Returns the last state of the object. Raises ApiError 409 if a precondition fails."""
        stored = self.store.find(target.kind, target.key)
        check_preconditions(target, stored.read(), options.get("preconditions") or {})
        if target.kind is NAMESPACES:
            self._terminate_namespace(target)
        return self.store.remove(target.kind, target.key).read()

    def copy_topology(self, pod: JsonObject) -> None:
        """Copies zone and region of its node to a bound pod (PodTopologyLabels, on by default since 1.35)."""
        stored = self.store.table(NODES).objects.get(node_of(pod))
        if stored is not None:  # a real API server accepts unknown nodes as well
            defaulting.copy_topology(pod, stored.read())

    def _update(self, target: Target, stored: Stored, new: JsonObject) -> Stored:
        kind, old = target.kind, stored.read()
        metadata = new.setdefault("metadata", {})
        wanted = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        check_preconditions(target, old, wanted)
        _keep(metadata, old["metadata"])
        if kind.has_status:
            # A write of the status ignores the spec, and the other way round.
            _take_over(new, old, {"spec"} if target.subresource == "status" else {"status"})
        if new == old:  # nothing changed: no new version, no event
            return stored
        if kind is PODS and target.subresource != "status":
            _check_pod_update(target, old, new)
        # The generation counts changes of the spec; status and metadata do not change it.
        if new.get("spec") != old.get("spec") and "generation" in metadata:
            metadata["generation"] += 1
        return self.store.put(kind, new)

    def _check_namespace(self, name: str) -> None:
        namespace = self.store.find(NAMESPACES, name).read()
        if namespace.get("status", {}).get("phase") == "Terminating":
            message = f"unable to create new content in namespace {name} because it is being terminated"
            raise api_errors.ApiError(403, "Forbidden", message)

    def _priority(self, body: JsonObject) -> int | None:
        name = (body.get("spec") or {}).get("priorityClassName")
        if not name:
            return None
        return int(self.store.find(PRIORITY_CLASSES, name).read()["value"])

    def _terminate_namespace(self, target: Target) -> None:
        def mark(namespace: JsonObject) -> None:
            namespace["metadata"]["deletionTimestamp"] = timestamp()
            namespace["status"] = {"phase": "Terminating"}

        self.change(target.kind, target.key, mark)
        for kind, table in self.store.tables.items():
            if kind.namespaced:
                for key in [key for key in table.objects if key.startswith(f"{target.name}/")]:
                    self.store.remove(kind, key)


def check_preconditions(target: Target, obj: JsonObject, wanted: JsonObject) -> None:
    """Raises ApiError 409 if the object has another UID or resourceVersion than `wanted`, where those are set."""
    metadata = obj["metadata"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        problem = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {metadata['uid']}"
        raise api_errors.conflict(target.kind, target.name, problem)
    if version and version != metadata["resourceVersion"]:
        raise api_errors.stale(target.kind, target.name)


def _check_pod_update(target: Target, old: JsonObject, new: JsonObject) -> None:
    """Raises ApiError 422 for what no update of a pod may change: gates are removed only, a gated pod is narrowed only."""
    if new.get("spec") == old.get("spec"):  # most updates are of this kind, and the check of a spec takes 100 µs
        found = Problems()
        check_metadata_update(found, old["metadata"], new["metadata"])
        _raise_invalid(target.name, found.errors)
    else:
        if isinstance(new.get("spec"), dict):
            defaulting.tolerate_unready_nodes(new["spec"])
        _raise_invalid(target.name, allowed(old, new).errors)


def _check_new_pod(pod: JsonObject) -> None:
    """Raises ApiError 422 for a pod with a node and gates."""
    if pod["spec"].get("schedulingGates") and node_of(pod):
        found = Problems()
        found.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")
        _raise_invalid(pod["metadata"]["name"], found.errors)


def _raise_invalid(pod: str, errors: Sequence[FieldError]) -> None:
    if errors:
        raise api_errors.invalid_fields(PODS, pod, [(each.field, str(each.type), each.message) for each in errors])


def _body(obj: JsonObject) -> JsonObject:
    return {name: value for name, value in obj.items() if name not in {"kind", "apiVersion"}}


def _keep(metadata: JsonObject, old: JsonObject) -> None:
    for name in _KEPT:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    metadata["resourceVersion"] = old["resourceVersion"]


def _take_over(new: JsonObject, old: JsonObject, names: set[str]) -> None:
    for name in names:
        if name in old:
            new[name] = old[name]
        else:
            new.pop(name, None)

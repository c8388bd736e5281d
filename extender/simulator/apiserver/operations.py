"""The writes of the simulated API server: create, replace, patch and delete, with preconditions; bindings and evictions of pods. No HTTP.

Called by the request handlers, and directly by the scenario player.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from extender.simulator.apiserver import api_errors, defaulting, patching
from extender.simulator.apiserver.kinds import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    ServedKind,
    Target,
)
from extender.simulator.apiserver.metadata_updates import check_metadata_update
from extender.simulator.apiserver.pod_updates import allowed
from extender.simulator.apiserver.store import Store, Stored
from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    labels_of,
    namespace_of,
    node_of,
    selects,
    set_condition,
    timestamp,
    uid_of,
)
from extender.wire.pods.completion import tolerate_unready_nodes
from extender.wire.pods.new_pod import merged, spec_errors
from extender.wire.policies.field_errors import FieldError, Problems


def matching_budgets(store: Store, pod: JsonObject) -> list[JsonObject]:
    """The budgets of the pod's namespace whose selector matches it."""
    namespace = namespace_of(pod)
    rows = store.table(DISRUPTION_BUDGETS).objects.items()
    budgets = [stored.read() for key, stored in rows if key.startswith(f"{namespace}/")]
    return [budget for budget in budgets if selects(budget["spec"].get("selector"), labels_of(pod))]


def disruptions_allowed(store: Store, budget: JsonObject) -> int:
    """How many disruptions the budget allows; never negative. O(pods)."""
    namespace, spec = namespace_of(budget), budget["spec"]
    rows = store.table(PODS).objects.items()
    pods = [stored.read() for key, stored in rows if key.startswith(f"{namespace}/")]
    guarded = [pod for pod in pods if selects(spec.get("selector"), labels_of(pod)) and not is_finished(pod)]
    # No kubelet reports readiness here, so a bound pod counts as healthy.
    healthy = sum(1 for pod in guarded if pod["spec"].get("nodeName") and not is_terminating(pod))
    if spec.get("maxUnavailable") is not None:
        wanted = len(guarded) - _amount(spec["maxUnavailable"], len(guarded))
    else:
        wanted = _amount(spec.get("minAvailable", 1), len(guarded))
    return max(0, healthy - wanted)


def _amount(value: int | str, total: int) -> int:
    """A number, or a percentage of the total rounded up."""
    if isinstance(value, str):
        return -(-int(value.removesuffix("%")) * total // 100)
    return value


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
# The API server allows no unconditional update of these: Leases, and custom resources.
_NEEDS_VERSION = {"leases", "groupplacements"}


class Operations:
    """The writes that all kinds have in common."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def create(self, kind: ServedKind, obj: JsonObject, *, namespace: str = "") -> Stored:
        """Creates an object. Raises ApiError 404 without its namespace, 409 if the name exists, 422 without a name."""
        metadata = obj.setdefault("metadata", {})
        if metadata.get("generateName") and not metadata.get("name"):
            # The UIDs come from the seed, so generated names are the same in each run.
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

    def change(self, kind: ServedKind, key: str, edit: Callable[[JsonObject], None]) -> Stored:
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
        problems = Problems()
        check_metadata_update(problems, old["metadata"], new["metadata"])
        _raise_invalid(target.name, problems.errors)
    else:
        if isinstance(new.get("spec"), dict):
            tolerate_unready_nodes(new["spec"])
        _raise_invalid(target.name, allowed(old, new).errors)


def _check_new_pod(pod: JsonObject) -> None:
    """Raises ApiError 422 for a pod whose scheduling fields are invalid. Its containers are not checked, as no kubelet runs them."""
    _raise_invalid(pod["metadata"]["name"], merged(spec_errors(pod["spec"])))


def _raise_invalid(pod: str, errors: Sequence[FieldError]) -> None:
    if errors:
        raise api_errors.invalid_fields(PODS, pod, [(error.field, str(error.type), error.message) for error in errors])


def _body(obj: JsonObject) -> JsonObject:
    # Stored objects lack both, as the items of a list do.
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


def make_ready(pod: JsonObject) -> None:
    """Sets the status of a pod whose containers run."""
    pod.setdefault("status", {})["phase"] = "Running"
    set_condition(pod, {"type": "Ready", "status": "True"})


class PodOperations:
    """Binds, evicts and deletes pods. A bound pod is removed `kubelet_delay` to `max_kubelet_delay` seconds after its deletion.

    ``victims``: the UIDs of pods that were deleted with the condition DisruptionTarget.
    """

    def __init__(
        self,
        operations: Operations,
        *,
        kubelet_delay: float = 0.0,
        max_kubelet_delay: float = 0.0,
        ready_delay: float | None = None,
        seed: int = 0,
    ) -> None:
        """``ready_delay``: seconds until a bound pod is ready; None: no kubelet reports readiness."""
        self.store: Store = operations.store
        self.operations = operations
        self.kubelet_delay = kubelet_delay
        self.max_kubelet_delay = max_kubelet_delay
        self.ready_delay = ready_delay
        self.victims: set[str] = set()
        self._rng = Random(f"kubelets {seed}")
        self._ending: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_ending(self) -> bool:
        """Whether a deleted pod is still there, and will be removed."""
        return bool(self._ending)

    def bind(self, target: Target, binding: JsonObject) -> None:
        """POST pods/NAME/binding. Raises ApiError 409 if the pod is bound, terminating or gated, or has another UID."""
        pod = self.store.find(PODS, target.key).read()
        metadata = binding.get("metadata") or {}
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise api_errors.invalid("target.name: Required value", field="target.name", kind="Binding")
        if metadata.get("uid"):
            check_preconditions(target, pod, {"uid": metadata["uid"]})
        self._check_binding(target, pod)
        pod["spec"]["nodeName"] = node
        self.operations.copy_topology(pod)
        # The API server copies the annotations of a binding to the pod.
        annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
        if annotations:
            pod["metadata"]["annotations"] = annotations
        # As the API server does with the feature gate ClearingNominatedNodeNameAfterBinding (KEP-5278).
        pod["status"].pop("nominatedNodeName", None)
        set_condition(pod, {"type": "PodScheduled", "status": "True"})
        self.store.put(PODS, pod)
        if self.ready_delay is not None:
            asyncio.get_running_loop().call_later(self.ready_delay, self._report_ready, target.key, uid_of(pod))

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """DELETE. Removes a pending or finished pod at once, a bound one after the grace period or the kubelet's delay."""
        pod = self.store.find(PODS, target.key).read()
        check_preconditions(target, pod, options.get("preconditions") or {})
        grace = self._grace(pod, options)
        metadata = pod["metadata"]
        # A second deletion can only shorten the grace period.
        if not is_terminating(pod) or grace < metadata.get("deletionGracePeriodSeconds", 0):
            if not is_terminating(pod):
                # The beginning of a deletion counts as a change of the spec, as in Kubernetes.
                metadata["generation"] = metadata.get("generation", 1) + 1
                if (condition_of(pod, "DisruptionTarget") or {}).get("status") == "True":
                    self.victims.add(uid_of(pod))
            # In the future: the time at which the grace period ends.
            metadata["deletionTimestamp"] = timestamp(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            self.store.put(PODS, pod)
            delay = self._rng.uniform(self.kubelet_delay, max(self.kubelet_delay, self.max_kubelet_delay))
            # The kubelet may end a pod earlier than its grace period, never later.
            self._end_after(target.key, min(float(grace), delay))
        return pod

    def evict(self, target: Target, eviction: JsonObject) -> None:
        """POST pods/NAME/eviction. Raises ApiError 429 if a disruption budget forbids it, 500 if two budgets match."""
        pod = self.store.find(PODS, target.key).read()
        options = eviction.get("deleteOptions") or {}
        check_preconditions(target, pod, options.get("preconditions") or {})
        budgets = matching_budgets(self.store, pod)
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise api_errors.ApiError(500, "InternalError", message)
        # Budgets protect healthy pods; the eviction of any other pod does not change what they count.
        if node_of(pod) and not is_terminating(pod) and not is_finished(pod):
            for budget in budgets:
                if disruptions_allowed(self.store, budget) < 1:
                    message = "Cannot evict pod as it would violate the pod's disruption budget."
                    raise api_errors.too_many_requests(message, 10, cause="DisruptionBudget")
        # The real Eviction API marks what it evicts as well (KEP-3329).
        set_condition(pod, {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"})
        self.store.put(PODS, pod)
        self.delete(target, options)

    def stop(self) -> None:
        """Cancels the pending removals."""
        for timer in self._ending.values():
            timer.cancel()
        self._ending.clear()

    def _report_ready(self, key: str, uid: str) -> None:
        """As the kubelet, once the containers of a pod run."""
        stored = self.store.table(PODS).objects.get(key)
        if stored is not None and uid_of(pod := stored.read()) == uid and not is_terminating(pod):
            make_ready(pod)
            self.store.put(PODS, pod)

    def _check_binding(self, target: Target, pod: JsonObject) -> None:
        if is_terminating(pod):
            problem = f"pod {target.name} is being deleted, cannot be assigned to a host"
        elif node_of(pod):
            problem = f'pod {target.name} is already assigned to node "{node_of(pod)}"'
        elif pod["spec"].get("schedulingGates"):
            problem = f"pod {target.name} has non-empty .spec.schedulingGates"
        else:
            return
        message = f'Operation cannot be fulfilled on pods/binding "{target.name}": {problem}'
        details = {"name": target.name, "kind": "pods/binding"}
        raise api_errors.ApiError(409, "Conflict", message, details=details)

    @staticmethod
    def _grace(pod: JsonObject, options: JsonObject) -> int:
        if not node_of(pod) or is_finished(pod):
            return 0
        requested = options.get("gracePeriodSeconds")
        return int(pod["spec"].get("terminationGracePeriodSeconds", 30) if requested is None else requested)

    def _end_after(self, key: str, delay: float) -> None:
        # A second deletion with a shorter grace period replaces the timer of the first.
        earlier = self._ending.pop(key, None)
        if earlier is not None:
            earlier.cancel()
        if delay <= 0:
            self._end(key)
        else:
            self._ending[key] = asyncio.get_running_loop().call_later(delay, self._end, key)

    def _end(self, key: str) -> None:
        self._ending.pop(key, None)
        # The pod may have been removed with its namespace, and a new pod may have its name.
        stored = self.store.table(PODS).objects.get(key)
        if stored is not None and is_terminating(stored.read()):
            self.store.remove(PODS, key)

"""The operations of pods: binding, eviction, and deletion with a grace period, in which a timer replaces the kubelet.

Called by the request handlers and the scenario player.
"""

import asyncio
from random import Random

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.disruption_budgets import disruptions_allowed, matching_budgets
from extender.simulator.apiserver.kinds import PODS, Target
from extender.simulator.apiserver.operations import Operations, check_preconditions
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import (
    JsonObject,
    condition_of,
    is_finished,
    is_terminating,
    node_of,
    set_condition,
    timestamp,
    uid_of,
)


class PodOperations:
    """Binds, evicts and deletes pods. A bound pod is removed `kubelet_delay` to `max_kubelet_delay` seconds after its deletion.

    ``victims``: the UIDs of pods that were deleted with the condition DisruptionTarget.
    """

    def __init__(
        self, operations: Operations, *, kubelet_delay: float = 0.0, max_kubelet_delay: float = 0.0, seed: int = 0
    ) -> None:
        self.store: Store = operations.store
        self.operations = operations
        self.kubelet_delay = kubelet_delay
        self.max_kubelet_delay = max_kubelet_delay
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
        annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
        if annotations:
            pod["metadata"]["annotations"] = annotations
        # As the API server does with the feature gate ClearingNominatedNodeNameAfterBinding (KEP-5278).
        pod["status"].pop("nominatedNodeName", None)
        set_condition(pod, {"type": "PodScheduled", "status": "True"})
        self.store.put(PODS, pod)

    def delete(self, target: Target, options: JsonObject) -> JsonObject:
        """DELETE. Removes a pending or finished pod at once, a bound one after the grace period or the kubelet's delay."""
        pod = self.store.find(PODS, target.key).read()
        check_preconditions(target, pod, options.get("preconditions") or {})
        grace = self._grace(pod, options)
        metadata = pod["metadata"]
        # A second deletion can only shorten the grace period.
        if not is_terminating(pod) or grace < metadata.get("deletionGracePeriodSeconds", 0):
            if not is_terminating(pod):
                metadata["generation"] = metadata.get("generation", 1) + 1
                if (condition_of(pod, "DisruptionTarget") or {}).get("status") == "True":
                    self.victims.add(uid_of(pod))
            metadata["deletionTimestamp"] = timestamp(grace)
            metadata["deletionGracePeriodSeconds"] = grace
            self.store.put(PODS, pod)
            delay = self._rng.uniform(self.kubelet_delay, max(self.kubelet_delay, self.max_kubelet_delay))
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

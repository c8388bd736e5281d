"""Services and owners of workloads, and the selector of default spread constraints, which is deduced from them.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#cluster-level-default-constraints
The selector joins the selectors of all Services that match the pod, and the selector of its controlling owner.
"""

from __future__ import annotations

from extender.index.objects.changes import Subscribers
from extender.model.constraints.selectors import LabelSelector, Requirement, selector
from extender.model.objects import PodSignature, Workload

_KIND_OF = {
    ("v1", "ReplicationController"): "ReplicationController",
    ("apps/v1", "ReplicaSet"): "ReplicaSet",
    ("apps/v1", "StatefulSet"): "StatefulSet",
}


class Workloads:
    """Workload objects by key, services also by namespace. ``version`` grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self.changes: Subscribers[Workload] = Subscribers()
        self.objects: dict[str, Workload] = {}
        self._services: dict[str, dict[str, Workload]] = {}
        self._service_versions: dict[str, int] = {}

    def change(self, key: str, new: Workload | None) -> bool:
        """Sets or removes an object; returns whether anything changed."""
        old = self.objects.get(key)
        if old == new:
            return False
        self.version += 1
        if old is not None and old.kind == "Service":
            self._drop_service(old)
        if new is None:
            del self.objects[key]
        else:
            self.objects[key] = new
            if new.kind == "Service":
                self._services.setdefault(new.namespace, {})[key] = new
                self._service_versions[new.namespace] = self.version
        self.changes.notify(old, new)
        return True

    def _drop_service(self, old: Workload) -> None:
        here = self._services[old.namespace]
        del here[old.key]
        self._service_versions[old.namespace] = self.version
        if not here:
            del self._services[old.namespace], self._service_versions[old.namespace]

    def selector_dependencies(self, signature: PodSignature) -> tuple[int, Workload | None]:
        """What `default_selector` depends on: while this is equal, its result is the same. O(1)."""
        return self._service_versions.get(signature.namespace, 0), self._owner(signature)

    def default_selector(self, signature: PodSignature) -> LabelSelector | None:
        """The pods that this signature's default constraints count; None if nothing is deduced. O(services there)."""
        clauses: list[Requirement] = []
        for service in self._services.get(signature.namespace, {}).values():
            if service.selector is not None and service.selector.matches(signature.labels):
                clauses.extend(service.selector.requirements)
        owner = self._owner(signature)
        if owner is not None and owner.selector is not None:
            merged = owner.selector.requirements
            # Its map is merged into the services' map; for a common key it wins.
            if owner.kind == "ReplicationController":
                keys = {clause.key for clause in merged}
                clauses = [clause for clause in clauses if clause.key not in keys]
            clauses.extend(merged)
        return selector(clauses) if clauses else None

    def _owner(self, signature: PodSignature) -> Workload | None:
        if signature.controller is None:
            return None
        kind = _KIND_OF.get((signature.controller.api_version, signature.controller.kind))
        return self.objects.get(f"{kind}/{signature.namespace}/{signature.controller.name}")

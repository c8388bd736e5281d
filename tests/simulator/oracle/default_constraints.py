"""Default spread constraints for a pod without its own: the configured list with a derived selector, for the oracle.

Plain objects; must not import the index or the rules. Called by tests.
https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/#cluster-level-default-constraints
"""

from collections.abc import Iterable, Sequence

from extender.simulator.json_objects import JsonObject, labels_of, name_of, namespace_of, selects

_OWNERS = {("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}


def constraints_in_force(
    pod: JsonObject,
    defaults: Sequence[JsonObject],
    services: Iterable[JsonObject] = (),
    owners: Iterable[tuple[str, JsonObject]] = (),
) -> list[JsonObject]:
    """The pod's own constraints, else the defaults with its derived selector, or none if that is empty.

    `owners` are pairs of kind and object, such as ("ReplicaSet", {...}).
    """
    own: list[JsonObject] = pod["spec"].get("topologySpreadConstraints") or []
    if own or not defaults:
        return own
    selector = _derived_selector(pod, services, owners)
    return [{**constraint, "labelSelector": selector} for constraint in defaults] if selector else []


def _derived_selector(
    pod: JsonObject, services: Iterable[JsonObject], owners: Iterable[tuple[str, JsonObject]]
) -> JsonObject | None:
    labels, expressions = {}, []
    for service in services:
        wanted = service["spec"].get("selector")
        alike = namespace_of(service) == namespace_of(pod)
        if alike and wanted is not None and selects({"matchLabels": wanted}, labels_of(pod)):
            labels.update(wanted)
    for kind, owner in owners:
        if _controls(kind, owner, pod):
            selector = owner["spec"].get("selector") or {}
            if kind == "ReplicationController":
                selector = {"matchLabels": selector}
            pairs = (selector.get("matchLabels") or {}).items()
            expressions += [{"key": key, "operator": "In", "values": [value]} for key, value in pairs]
            expressions += selector.get("matchExpressions") or []
    return {"matchLabels": labels, "matchExpressions": expressions} if labels or expressions else None


def _controls(kind: str, owner: JsonObject, pod: JsonObject) -> bool:
    if namespace_of(owner) != namespace_of(pod):
        return False
    return any(
        reference.get("controller")
        and (reference.get("apiVersion"), reference.get("kind")) in _OWNERS
        and (reference.get("kind"), reference.get("name")) == (kind, name_of(owner))
        for reference in pod["metadata"].get("ownerReferences") or []
    )

"""Reads policies, writes their status, and records events about them, as plain JSON. Raises only ``KubeError``.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#status-subresource
"""

from __future__ import annotations

from typing import Any, Final

from extender.kube.calls import Calls, Observe, events_path, segment, unobserved
from extender.kube.effects import PolicyEvent, event_body
from extender.kube.session import MERGE_PATCH, Connection
from extender.kube.webhook_objects import read_object
from extender.model.policies import VERSION, PolicyKey
from extender.wire import api_calls
from extender.wire.api_calls import ApiCall

JsonObject = dict[str, Any]

_NAMESPACE_OF_CLUSTER_EVENTS: Final = "default"


class PolicyObjects:
    """``limit``: seconds for each call in total. ``observe`` is called after each."""

    def __init__(
        self,
        connection: Connection,
        component: str,
        instance: str,
        limit: float = 10.0,
        observe: Observe = unobserved,
    ) -> None:
        self._component = component
        self._instance = instance
        self._calls = Calls(connection, limit, observe)

    async def get_policy(self, key: PolicyKey) -> JsonObject:
        """The policy as it is now."""
        call = api_calls.GET_POLICY if key.namespace else api_calls.GET_CLUSTER_POLICY
        return read_object(await self._calls.make(call, _path(call, key)))

    async def patch_policy_status(self, key: PolicyKey, uid: str, status: JsonObject) -> None:
        """Merges into its status. Raises ``Conflict`` if the name belongs to another policy by now."""
        call = api_calls.PATCH_POLICY_STATUS if key.namespace else api_calls.PATCH_CLUSTER_POLICY_STATUS
        body = {"metadata": {"uid": uid}, "status": status}
        await self._calls.make(call, f"{_path(call, key)}/status", body, MERGE_PATCH)

    async def create_policy_event(self, event: PolicyEvent) -> None:
        """Creates an event in the namespace of the policy. The API server keeps those of cluster-wide objects in `default`."""
        key = event.policy
        namespace = key.namespace or _NAMESPACE_OF_CLUSTER_EVENTS
        regarding = {"apiVersion": f"{key.group}/{VERSION}", "kind": key.kind, "name": key.name, "uid": event.uid}
        if key.namespace:
            regarding["namespace"] = key.namespace
        body = event_body(event, regarding, namespace, self._component, self._instance)
        await self._calls.make(api_calls.CREATE_EVENT, events_path(namespace), body)


def _path(call: ApiCall, key: PolicyKey) -> str:
    namespace = f"namespaces/{segment('namespace', key.namespace)}/" if key.namespace else ""
    return f"/apis/{call.group}/{VERSION}/{namespace}{call.resource}/{segment('policy', key.name)}"

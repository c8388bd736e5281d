"""The objects of the webhook: the Secret, the two configurations, and the EndpointSlice of each replica.

As plain JSON, so that fields of a later version of Kubernetes survive an update. Each update carries the resourceVersion
that was read, so two writers never overwrite each other. What was deleted is created again, by one of two writers. https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

from typing import Any

import orjson

from extender.kube.calls import Calls, Observe, segment, unobserved
from extender.kube.errors import Unreachable
from extender.kube.session import Connection
from extender.wire import api_calls
from extender.wire.webhook_configurations import GROUP, MUTATING, VALIDATING

JsonObject = dict[str, Any]


class WebhookObjects:
    """Reads, replaces and creates them. Every method raises ``KubeError``.

    An update raises ``Conflict`` if the object has changed, a creation if it exists by now.
    """

    def __init__(self, connection: Connection, limit: float = 10.0, observe: Observe = unobserved) -> None:
        self._calls = Calls(connection, limit, observe)

    async def get_secret(self, namespace: str, name: str) -> JsonObject:
        """The Secret as it is now."""
        return read_object(await self._calls.make(api_calls.GET_SECRET, _secret_path(namespace, name)))

    async def update_secret(self, secret: JsonObject) -> JsonObject:
        """Replace it."""
        path = _secret_path(secret["metadata"]["namespace"], secret["metadata"]["name"])
        return read_object(await self._calls.make(api_calls.UPDATE_SECRET, path, secret))

    async def create_secret(self, secret: JsonObject) -> JsonObject:
        """Create it."""
        path = _secrets_path(secret["metadata"]["namespace"])
        return read_object(await self._calls.make(api_calls.CREATE_SECRET, path, secret))

    async def get_mutating_webhooks(self, name: str) -> JsonObject:
        """The MutatingWebhookConfiguration as it is now."""
        return read_object(await self._calls.make(api_calls.GET_MUTATING_WEBHOOKS, _webhooks_path(MUTATING, name)))

    async def update_mutating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Replace it."""
        path = _webhooks_path(MUTATING, configuration["metadata"]["name"])
        return read_object(await self._calls.make(api_calls.UPDATE_MUTATING_WEBHOOKS, path, configuration))

    async def create_mutating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Create it."""
        path = _configurations_path(MUTATING)
        return read_object(await self._calls.make(api_calls.CREATE_MUTATING_WEBHOOKS, path, configuration))

    async def get_validating_webhooks(self, name: str) -> JsonObject:
        """The ValidatingWebhookConfiguration as it is now."""
        return read_object(await self._calls.make(api_calls.GET_VALIDATING_WEBHOOKS, _webhooks_path(VALIDATING, name)))

    async def update_validating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Replace it."""
        path = _webhooks_path(VALIDATING, configuration["metadata"]["name"])
        return read_object(await self._calls.make(api_calls.UPDATE_VALIDATING_WEBHOOKS, path, configuration))

    async def create_validating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Create it."""
        path = _configurations_path(VALIDATING)
        return read_object(await self._calls.make(api_calls.CREATE_VALIDATING_WEBHOOKS, path, configuration))

    async def get_endpoint(self, namespace: str, name: str) -> JsonObject:
        """The EndpointSlice as it is now."""
        return read_object(await self._calls.make(api_calls.GET_ENDPOINT, _endpoint_path(namespace, name)))

    async def create_endpoint(self, endpoint: JsonObject) -> JsonObject:
        """Create it."""
        path = _endpoints_path(endpoint["metadata"]["namespace"])
        return read_object(await self._calls.make(api_calls.CREATE_ENDPOINT, path, endpoint))

    async def update_endpoint(self, endpoint: JsonObject) -> JsonObject:
        """Replace it."""
        path = _endpoint_path(endpoint["metadata"]["namespace"], endpoint["metadata"]["name"])
        return read_object(await self._calls.make(api_calls.UPDATE_ENDPOINT, path, endpoint))

    async def delete_endpoint(self, namespace: str, name: str) -> None:
        """Delete it."""
        await self._calls.make(api_calls.DELETE_ENDPOINT, _endpoint_path(namespace, name))


def _endpoints_path(namespace: str) -> str:
    return f"/apis/discovery.k8s.io/v1/namespaces/{segment('namespace', namespace)}/endpointslices"


def _endpoint_path(namespace: str, name: str) -> str:
    return f"{_endpoints_path(namespace)}/{segment('EndpointSlice', name)}"


def _secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{segment('namespace', namespace)}/secrets"


def _secret_path(namespace: str, name: str) -> str:
    return f"{_secrets_path(namespace)}/{segment('Secret', name)}"


def _configurations_path(resource: str) -> str:
    return f"/apis/{GROUP}/v1/{resource}"


def _webhooks_path(resource: str, name: str) -> str:
    return f"{_configurations_path(resource)}/{segment('webhook configuration', name)}"


def read_object(body: bytes) -> JsonObject:
    """An object with metadata. Raises ``Unreachable`` for any other answer, as from a proxy."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"no object: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise Unreachable("no object: metadata is missing")
    return found

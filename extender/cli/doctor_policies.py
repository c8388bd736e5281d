"""Gathers the facts about scheduling policies from the API server, for `extender doctor`. Changes nothing.

What the account may not read stays unknown: then `doctor` names the missing permission, or nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import orjson

from extender.certificates.rotation import is_verified
from extender.cli.files import own_namespace
from extender.doctor.facts import PolicyFacts, PolicyInUse
from extender.kube.errors import KubeError, NotFound, Unreachable
from extender.kube.session import Connection
from extender.model.policies import CLUSTER_KIND, GROUP, VERSION, InvalidPolicy, Policy
from extender.settings.configuration import Settings
from extender.wire.objects.kinds import GROUP_PLACEMENTS, WatchedKind, is_policy_kind, watched_kinds
from extender.wire.policies.policies_v1 import PolicyError, read_policy, spec_fields
from extender.wire.webhook_configurations import GROUP as WEBHOOKS_GROUP
from extender.wire.webhook_configurations import MUTATING, VALIDATING

JsonObject = dict[str, Any]

_PAGE: Final = 500  # policies of each kind; a diagnosis must not read a whole large cluster
_CONFIGURATIONS: Final = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
}


async def read_policy_facts(connection: Connection, settings: Settings) -> PolicyFacts:
    """What is known about the policies of these settings. Raises ``KubeError`` if the API server cannot be reached."""
    api = _Reader(connection)
    not_served, policies = list[str](), list[PolicyInUse]()
    for each in watched_kinds(settings):
        if not is_policy_kind(each) and each.kind is not GROUP_PLACEMENTS:
            continue
        group, resource = each.kind.group, each.kind.resource
        found = await api.get(each.kind.path, {"limit": str(_PAGE if is_policy_kind(each) else 1)})
        if found == {}:
            not_served.append(f"{resource}.{group}")
        policies += _policies(found, each, settings) if is_policy_kind(each) else ()
    webhook = settings.policies.webhook
    configurations = {
        f"{kind} {webhook.configuration}": await api.get(
            f"/apis/{WEBHOOKS_GROUP}/v1/{resource}/{webhook.configuration}"
        )
        for resource, kind in _CONFIGURATIONS.items()
    }
    clients = {name: list(_clients(found)) for name, found in configurations.items() if found}
    leaf = await _serving_certificate(api, settings, clients)
    return PolicyFacts(
        not_served=tuple(not_served),
        dropped=_dropped(await api.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")),
        no_configuration=tuple(name for name, found in configurations.items() if found == {}),
        untrusted=tuple(
            name
            for name, each in clients.items()
            if leaf and not all(is_verified(leaf, _decoded(one.get("caBundle"))) for one in each)
        ),
        services={name: await _ready_endpoints(api, *name.split("/")) for name in _services(clients)},
        policies=tuple(policies),
    )


class _Reader:
    """Reads objects as JSON."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject | None:
        """The object: empty where it does not exist, None where it may not be read."""
        try:
            found = orjson.loads(await self._connection.call("GET", path, query=query or {}))
        except NotFound:
            return {}
        except KubeError as error:
            if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                return None
            raise
        except orjson.JSONDecodeError as error:
            raise Unreachable(f"GET {path}: {error}") from error
        return found if isinstance(found, dict) else None


def _policies(found: JsonObject | None, each: WatchedKind, settings: Settings) -> Iterator[PolicyInUse]:
    for item in (found or {}).get("items") or ():
        matched = (item.get("status") or {}).get("matchedPods")
        yield PolicyInUse(
            _read({**item, "apiVersion": f"{each.kind.group}/{VERSION}"}, each.api_kind, settings), matched
        )


def _read(item: JsonObject, kind: str, settings: Settings) -> Policy | InvalidPolicy:
    try:
        return read_policy(item, settings.limits, kind=kind)
    except PolicyError as error:
        return error.invalid


def _dropped(openapi: JsonObject | None) -> dict[str, tuple[str, ...]]:
    """By kind the fields of a spec that the published schema does not have; nothing where no schema is published."""
    found = {}
    for name, schema in ((openapi or {}).get("components") or {}).get("schemas", {}).items():
        kind = name.rpartition(".")[2]
        fields = ((schema.get("properties") or {}).get("spec") or {}).get("properties")
        if fields is None or not kind.endswith("PodSchedulingPolicy"):
            continue
        dropped = tuple(f"spec.{each}" for each in spec_fields(is_cluster=kind == CLUSTER_KIND) if each not in fields)
        if dropped:
            found[kind] = dropped
    return found


def _clients(configuration: JsonObject) -> Iterator[JsonObject]:
    """The clientConfig of each webhook."""
    for each in configuration.get("webhooks") or ():
        yield each.get("clientConfig") or {}


def _services(clients: Mapping[str, list[JsonObject]]) -> list[str]:
    """The Services of the webhooks, each once, as namespace/name; none where the API server calls a URL."""
    found = (each["service"] for several in clients.values() for each in several if "service" in each)
    return sorted({f"{each['namespace']}/{each['name']}" for each in found})


async def _ready_endpoints(api: _Reader, namespace: str, name: str) -> int | None:
    """How many endpoints are ready; None without the Service. What may not be read counts as one."""
    service = await api.get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if service == {}:
        return None
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await api.get(path, {"labelSelector": f"kubernetes.io/service-name={name}"})
    if not slices:
        return 1
    endpoints = [each for one in slices.get("items") or () for each in one.get("endpoints") or ()]
    # No value means ready: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/
    return sum((each.get("conditions") or {}).get("ready") is not False for each in endpoints)


async def _serving_certificate(api: _Reader, settings: Settings, clients: Mapping[str, list[JsonObject]]) -> bytes:
    """The certificate that the replicas serve, in PEM; empty where it cannot be read from here."""
    webhook = settings.policies.webhook
    if webhook.certificates != "own":
        return _content(webhook.cert_file)
    # The leader writes the Service's namespace, which is that of the Secret, into the configurations.
    spaces = [name.partition("/")[0] for name in _services(clients)] or [own_namespace()]
    space = webhook.service_namespace or spaces[0]
    secret = await api.get(f"/api/v1/namespaces/{space}/secrets/{webhook.secret}")
    return _decoded(((secret or {}).get("data") or {}).get("tls.crt"))


def _content(path: str) -> bytes:
    """The content of a file; empty where this machine does not have it, or the account may not read it."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        return b""

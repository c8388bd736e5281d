"""The facts that `doctor` reads about scheduling policies: kinds, policies, webhook configurations, and whether they work."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson

from extender.certificates.rotation import is_verified
from extender.cli.files import own_namespace
from extender.cli.service_client import webhook_fault
from extender.doctor.facts import LOCAL, PolicyFacts, PolicyInUse
from extender.kube.errors import KubeError, NotFound, Unreachable
from extender.kube.session import Connection
from extender.model.policies import CLUSTER_KIND, GROUP, VERSION, InvalidPolicy, JsonObject, Policy
from extender.settings.configuration import Settings
from extender.wire.objects.kinds import GROUP_PLACEMENTS, TOPOLOGY_DOMAINS, is_policy_kind, watched_kinds
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from extender.wire.policies.policy_fields import spec_fields
from extender.wire.webhook_configurations import GROUP as WEBHOOKS_GROUP
from extender.wire.webhook_configurations import MUTATING, VALIDATING, selector_text

DENIED: Final = (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED)

_Get = Callable[..., Awaitable[JsonObject | None]]

_PAGE: Final = 500  # policies of each kind; a diagnosis must not read a whole large cluster
_LONGEST_CALL: Final = 40.0  # seconds; the API server calls a webhook for at most 30
_CONFIGURATIONS: Final = {
    MUTATING: "MutatingWebhookConfiguration",
    VALIDATING: "ValidatingWebhookConfiguration",
}


async def read_policy_facts(connection: Connection, settings: Settings, *, is_here: bool) -> PolicyFacts:
    """What is known about the policies of these settings. Raises ``KubeError`` if the API server cannot be reached.

    ``is_here``: the service runs on this machine, so its loopback addresses can be tried.
    """
    # `get` returns {} for an object that does not exist, and None for one that may not be read. Only the first is a finding here:
    # a missing permission is a finding of its own.
    get = partial(_read, connection)
    not_served, policies = list[str](), list[PolicyInUse]()
    for watched in watched_kinds(settings):
        if not is_policy_kind(watched) and watched.kind not in (GROUP_PLACEMENTS, TOPOLOGY_DOMAINS):
            continue
        group, resource = watched.kind.group, watched.kind.resource
        page = await get(watched.kind.path, {"limit": str(_PAGE if is_policy_kind(watched) else 1)})
        if page == {}:
            not_served.append(f"{resource}.{group}")
        # Items of a list lack apiVersion and kind.
        for item in (page or {}).get("items") or () if is_policy_kind(watched) else ():
            policy = _policy({**item, "apiVersion": f"{group}/{VERSION}"}, watched.api_kind, settings)
            policies.append(PolicyInUse(policy, (item.get("status") or {}).get("matchedPods")))
    webhook = settings.policies.webhook
    configurations = {
        f"{kind} {webhook.configuration}": await get(f"/apis/{WEBHOOKS_GROUP}/v1/{resource}/{webhook.configuration}")
        for resource, kind in _CONFIGURATIONS.items()
    }
    clients = {
        name: [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
        for name, configuration in configurations.items()
        if configuration
    }
    # Each configuration names the CA by which the API server verifies the webhook. After a rotation an old CA in it
    # makes every call fail.
    leaf = await _serving_certificate(get, settings, clients)
    bundles = {
        url: _decoded(config.get("caBundle"))
        for configs in clients.values()
        for config in configs
        # A loopback URL means the machine of the API server, so from elsewhere it cannot be tried.
        if (url := config.get("url")) and (is_here or urlsplit(url).hostname not in LOCAL)
    }
    # Together, because each waits for a webhook that does not answer.
    tried = await asyncio.gather(*(asyncio.to_thread(webhook_fault, url, pem) for url, pem in bundles.items()))
    faults = dict(zip(bundles, tried, strict=True))
    facts = PolicyFacts(
        not_served=tuple(not_served),
        dropped=_dropped(await get(f"/openapi/v3/apis/{GROUP}/{VERSION}")),
        no_configuration=tuple(name for name, configuration in configurations.items() if configuration == {}),
        untrusted=tuple(
            name
            for name, configs in clients.items()
            if leaf and not all(is_verified(leaf, _decoded(config.get("caBundle"))) for config in configs)
        ),
        lost_urls={url: why for url, (why, is_sure) in faults.items() if why and is_sure},
        unproven={url: why for url, (why, is_sure) in faults.items() if why and not is_sure},
        services={name: await _ready_endpoints(get, *name.split("/")) for name in _services(clients)},
        policies=tuple(policies),
        selects_nothing=await _selecting_nothing(get, configurations),
    )
    # The dry run comes last, and only if nothing found so far explains that the webhook is not reached. What this machine sees of
    # a URL explains nothing: the API server may see another thing.
    is_explained = facts.not_served or facts.no_configuration or facts.untrusted
    if is_explained or len(clients) < len(_CONFIGURATIONS) or not all(facts.services.values()):
        return facts
    return replace(facts, call_fault=await _call_fault(connection))


async def _call_fault(connection: Connection) -> str | None:
    """The error of the API server's call of the webhook; empty if it succeeded.

    A dry run creates a policy that selects nothing: it calls the webhook and stores nothing.
    """
    nothing = {"matchLabels": {"placement.extender.dev/doctor": "dry-run"}}
    body = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": CLUSTER_KIND,
        "metadata": {"name": "doctor-dry-run"},
        "spec": {"podSelector": nothing, "namespaceSelector": nothing, "schedulerName": "default-scheduler"},
    }
    path = f"/apis/{GROUP}/{VERSION}/clusterpodschedulingpolicies"
    try:
        await connection.call("POST", path, query={"dryRun": "All"}, body=body, limit=_LONGEST_CALL)
    except KubeError as error:
        # Refused by RBAC, or by the webhook: then it was called.
        return str(error) if "failed calling webhook" in str(error) else None if error.status in DENIED else ""
    return ""


async def _selecting_nothing(get: _Get, configurations: Mapping[str, JsonObject | None]) -> dict[str, str]:
    """The selectors of the mutating webhook that an administrator narrowed so far that they select nothing."""
    (mutating,) = (
        configuration for name, configuration in configurations.items() if name.startswith(_CONFIGURATIONS[MUTATING])
    )
    lost: dict[str, str] = {}
    for webhook in (mutating or {}).get("webhooks") or ():
        for name, what in (("objectSelector", "pod"), ("namespaceSelector", "namespace")):
            text = selector_text(webhook.get(name))
            # An empty cluster matches no selector. Only a selector that selects none of several objects is a mistake.
            if text and await _is_none(get, what, {"labelSelector": text}) and not await _is_none(get, what, {}):
                lost[name] = what
    return lost


async def _is_none(get: _Get, what: str, query: Mapping[str, str]) -> bool:
    """Whether a list is empty; False if it may not be read."""
    page = await get(f"/api/v1/{what}s", {**query, "limit": "1"})
    return page is not None and not page.get("items")


async def _read(connection: Connection, path: str, query: Mapping[str, str] | None = None) -> JsonObject | None:
    """The object as JSON: empty where it does not exist, None where it may not be read."""
    try:
        document = orjson.loads(await connection.call("GET", path, query=query or {}))
    except NotFound:
        return {}
    except KubeError as error:
        if error.status in DENIED:
            return None
        raise
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"GET {path}: {error}") from error
    return document if isinstance(document, dict) else None


def _policy(item: JsonObject, kind: str, settings: Settings) -> Policy | InvalidPolicy:
    try:
        return read_policy(item, settings.limits, kind=kind)
    except PolicyError as error:
        return error.invalid


def _dropped(openapi: JsonObject | None) -> dict[str, tuple[str, ...]]:
    """By kind: the fields of a spec that the published schema lacks. Empty if no schema is published."""
    lacking = {}
    for name, schema in ((openapi or {}).get("components") or {}).get("schemas", {}).items():
        kind = name.rpartition(".")[2]
        fields = ((schema.get("properties") or {}).get("spec") or {}).get("properties")
        if fields is None or not kind.endswith("PodSchedulingPolicy"):
            continue
        dropped = tuple(
            f"spec.{field}" for field in spec_fields(is_cluster=kind == CLUSTER_KIND) if field not in fields
        )
        if dropped:
            lacking[kind] = dropped
    return lacking


def _services(clients: Mapping[str, list[JsonObject]]) -> list[str]:
    """The Services of the webhooks, each once, as namespace/name; none where the API server calls a URL."""
    services = (client["service"] for several in clients.values() for client in several if "service" in client)
    return sorted({f"{service['namespace']}/{service['name']}" for service in services})


async def _ready_endpoints(get: _Get, namespace: str, name: str) -> int | None:
    """How many endpoints are ready; None without the Service. 1 if the endpoints may not be read."""
    service = await get(f"/api/v1/namespaces/{namespace}/services/{name}")
    if service == {}:
        return None
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    slices = await get(path, {"labelSelector": f"kubernetes.io/service-name={name}"})
    if not slices:
        return 1
    endpoints = [endpoint for slice_ in slices.get("items") or () for endpoint in slice_.get("endpoints") or ()]
    # No value means ready: https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/
    return sum((endpoint.get("conditions") or {}).get("ready") is not False for endpoint in endpoints)


async def _serving_certificate(get: _Get, settings: Settings, clients: Mapping[str, list[JsonObject]]) -> bytes:
    """The certificate that the replicas serve, in PEM; empty where it cannot be read from here."""
    webhook = settings.policies.webhook
    if webhook.certificates != "own":
        return content_of(webhook.cert_file)
    # The leader writes the Service's namespace into the configurations. The Secret is in the same namespace.
    spaces = [name.partition("/")[0] for name in _services(clients)] or [own_namespace()]
    space = webhook.service_namespace or spaces[0]
    secret = await get(f"/api/v1/namespaces/{space}/secrets/{webhook.secret}")
    return _decoded(((secret or {}).get("data") or {}).get("tls.crt"))


def content_of(path: str) -> bytes:
    """The content of a file; empty where this machine does not have it, or the account may not read it."""
    with suppress(OSError):
        return Path(path).read_bytes()
    return b""


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except binascii.Error:
        return b""

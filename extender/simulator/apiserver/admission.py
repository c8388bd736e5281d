"""Calls the admission webhooks that are registered in the store: mutating ones, then validating ones.

Rules, namespaceSelector and objectSelector select the webhooks of a write. If a webhook does not answer in time, its
failure policy decides; if its patch cannot be applied, the write fails.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import asyncio
import base64
import binascii
import ssl
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import aiohttp
import orjson

from extender.simulator.apiserver import api_errors, patching
from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import (
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    VALIDATING_WEBHOOKS,
    ServedKind,
    Target,
)
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, labels_of, selects

_DEFAULT_TIMEOUT: Final = 10.0
_CONFIGURATIONS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)  # their own writes are never sent to a webhook
_FORBIDDEN: Final = 403

Address: TypeAlias = tuple[str, int]


class _Unanswered(Exception):  # noqa: N818 (a state, not an error)
    """Raised when a webhook has no usable answer; the failure policy decides."""


@dataclass(frozen=True, slots=True)
class Write:
    """A write before it is stored; ``old`` is None for a creation."""

    operation: str
    target: Target
    obj: JsonObject
    old: JsonObject | None = None

    def with_object(self, obj: JsonObject) -> "Write":
        """The same write with another object."""
        return Write(self.operation, self.target, obj, self.old)


class WebhookAdmission:
    """The webhooks of a store. ``services``: the address of each Service, by namespace and name.

    ``calls`` counts calls by (webhook, result): answered, denied, failed_open, failed_closed. ``missed_pods``: the
    `namespace/name` of each pod that was created although a webhook did not answer.
    """

    def __init__(self, store: Store, faults: Callable[[], Faults]) -> None:
        self.services: dict[tuple[str, str], Address] = {}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.missed_pods: set[str] = set()
        self._store = store
        self._faults = faults
        self._session: aiohttp.ClientSession | None = None
        self._trusted: dict[str, ssl.SSLContext] = {}

    @property
    def failed_open(self) -> int:
        """Calls without an answer after which the write continued."""
        return sum(count for (_, result), count in self.calls.items() if result == "failed_open")

    def concerns(self, kind: ServedKind) -> bool:
        """Whether a write of this kind has to look for webhooks: whether any is registered. O(1)."""
        return kind not in _CONFIGURATIONS and any(
            self._store.table(configuration).objects for configuration in _CONFIGURATIONS
        )

    async def admit(self, write: Write) -> JsonObject:
        """The object to store. Raises ApiError if a webhook denies the write or fails closed."""
        write = write.with_object(await self._mutate(write))
        # After all mutating webhooks, so that they judge the object as it will be stored. They cannot change it.
        for name, webhook in self._webhooks(VALIDATING_WEBHOOKS):
            if self._matches(webhook, write):
                await self._ask(name, webhook, write)
        return write.obj

    async def close(self) -> None:
        """Closes the connections to webhooks."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _mutate(self, write: Write) -> JsonObject:
        """Calls the mutating webhooks in order, and again those with a reinvocationPolicy if a later one changed the object."""
        webhooks = list(self._webhooks(MUTATING_WEBHOOKS))
        seen: dict[int, JsonObject] = {}
        for number, (name, webhook) in enumerate(webhooks):
            if self._matches(webhook, write):
                write = write.with_object(await self._ask(name, webhook, write))
                seen[number] = write.obj
        # `result` is the object as this webhook returned it, so any difference comes from a later webhook. One more
        # round only: two webhooks that undo each other's changes must not run for ever.
        for number, result in seen.items():
            name, webhook = webhooks[number]
            if webhook.get("reinvocationPolicy") == "IfNeeded" and result != write.obj:
                write = write.with_object(await self._ask(name, webhook, write))
        return write.obj

    def _webhooks(self, kind: ServedKind) -> Iterator[tuple[str, JsonObject]]:
        """The webhooks, ordered by the names of their configurations and then by their position."""
        for stored in self._store.table(kind).latest():
            for webhook in stored.read().get("webhooks") or ():
                yield str(webhook["name"]), webhook

    # -- which webhook

    def _matches(self, webhook: JsonObject, write: Write) -> bool:
        if not any(_rule_matches(rule, write) for rule in webhook.get("rules") or ()):
            return False
        labels = self._namespace_labels(write)
        if labels is not None and not selects(webhook.get("namespaceSelector") or {}, labels):
            return False
        selector = webhook.get("objectSelector") or {}
        # The old or the new object has to match, as in Kubernetes. So an update that removes a label does not evade
        # the webhook.
        return any(selects(selector, labels_of(obj)) for obj in (write.obj, write.old) if obj is not None)

    def _namespace_labels(self, write: Write) -> Mapping[str, str] | None:
        """The labels of the object's namespace, or of the object if it is one; None for other cluster-scoped objects."""
        if write.target.kind is NAMESPACES:
            return labels_of(write.obj)
        if not write.target.kind.namespaced:
            return None
        stored = self._store.table(NAMESPACES).objects.get(write.target.namespace)
        return labels_of(stored.read()) if stored is not None else {}

    # -- the call

    async def _ask(self, name: str, webhook: JsonObject, write: Write) -> JsonObject:
        """Calls one webhook and returns the object after it. Raises ApiError."""
        try:
            response = await self._answer(name, webhook, write)
        except _Unanswered as problem:
            is_open = webhook.get("failurePolicy", "Fail") == "Ignore"
            self.calls[name, "failed_open" if is_open else "failed_closed"] += 1
            if is_open:
                if write.target.kind is PODS and write.operation == "CREATE":
                    self.missed_pods.add(f"{write.target.namespace}/{write.obj['metadata'].get('name', '')}")
                return write.obj
            message = f'Internal error occurred: failed calling webhook "{name}": {problem}'
            raise api_errors.ApiError(500, "InternalError", message) from None
        if not response.get("allowed"):
            self.calls[name, "denied"] += 1
            raise _denial(name, response.get("status") or {})
        self.calls[name, "answered"] += 1
        return _patched(name, write.obj, response)

    async def _answer(self, name: str, webhook: JsonObject, write: Write) -> JsonObject:
        """Sends a review and returns its response. Raises _Unanswered."""
        review = _review(write)
        try:
            async with asyncio.timeout(float(webhook.get("timeoutSeconds", _DEFAULT_TIMEOUT))):
                # Inside the timeout: a webhook that is delayed too long is one that does not answer.
                await self._faults().before_webhook(Call("POST", name, target=write.target))
                answer = await self._post(webhook["clientConfig"], review)
        except TimeoutError:
            raise _Unanswered("failed to call webhook: context deadline exceeded") from None
        except (OSError, aiohttp.ClientError, ValueError) as error:
            cause = getattr(error, "os_error", None)
            why = (
                "connection refused"
                if isinstance(cause, ConnectionRefusedError)
                else f"{type(error).__name__}: {error}"
            )
            raise _Unanswered(f"failed to call webhook: {why}") from None
        response = answer.get("response") if isinstance(answer, dict) else None
        # The answer to another review, or to none, says nothing about this object.
        if not isinstance(response, dict) or response.get("uid") != review["request"]["uid"]:
            raise _Unanswered("the answer is no response to this review")
        return response

    async def _post(self, client: JsonObject, review: JsonObject) -> Any:
        """Sends a request and returns the answer as JSON. Raises OSError, ClientError or ValueError."""
        url, server_name = self._place(client)
        trust = self._trust(client.get("caBundle") or "") if url.startswith("https:") else True
        # Created at the first call, because a session needs a running event loop.
        session = self._session or aiohttp.ClientSession()
        self._session = session
        headers = {"Content-Type": "application/json"}
        async with session.post(
            url, data=orjson.dumps(review), headers=headers, ssl=trust, server_hostname=server_name
        ) as response:
            body = await response.read()
            if not response.ok:
                raise ValueError(f"the server answered {response.status}: {body[:200].decode(errors='replace')}")
            return orjson.loads(body)

    def _place(self, client: JsonObject) -> tuple[str, str | None]:
        """The URL to call, and the name in the certificate if it differs from the host of the URL."""
        if client.get("url"):
            return str(client["url"]), None
        service = client["service"]
        place = self.services.get((service["namespace"], service["name"]))
        if place is None:
            raise ValueError(f'service "{service["name"]}" not found')
        host, port = place
        # The certificate is for the name of the Service, whatever the address: the API server checks
        # NAME.NAMESPACE.svc.
        return f"https://{host}:{port}{service.get('path') or '/'}", f"{service['name']}.{service['namespace']}.svc"

    def _trust(self, bundle: str) -> ssl.SSLContext:
        """The context for the CAs of a bundle; cached, because a rotation is rare."""
        if bundle not in self._trusted:
            try:
                pem = base64.b64decode(bundle, validate=True).decode("ascii")
                # Replaces the earlier bundle, which is not used again after a rotation.
                self._trusted = {bundle: ssl.create_default_context(cadata=pem or None)}
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ValueError(f"caBundle: {error}") from None
        return self._trusted[bundle]


def _rule_matches(rule: JsonObject, write: Write) -> bool:
    target = write.target
    resource = f"{target.kind.plural}/{target.subresource}" if target.subresource else target.kind.plural
    wanted = (
        ("operations", write.operation),
        ("apiGroups", target.kind.group),
        ("apiVersions", target.kind.version),
        ("resources", resource),
    )
    if not all({"*", value} & set(rule.get(field) or ()) for field, value in wanted):
        return False
    return rule.get("scope", "*") in {"*", "Namespaced" if target.kind.namespaced else "Cluster"}


def _review(write: Write) -> JsonObject:
    kind, target = write.target.kind, write.target
    head = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            "name": target.name or write.obj["metadata"].get("name", ""),
            "namespace": target.namespace,
            "operation": write.operation,
            "userInfo": {"username": "simulated"},
            "object": head | write.obj,
            "oldObject": None if write.old is None else head | write.old,
            "dryRun": False,
            "options": None,
        },
    }


def _patched(name: str, obj: JsonObject, response: JsonObject) -> JsonObject:
    """The object with the response's patch. Raises ApiError: a patch that does not apply is not ignored by any policy."""
    if not response.get("patch"):
        return obj
    if response.get("patchType") != "JSONPatch":
        raise api_errors.ApiError(500, "InternalError", f'webhook "{name}" sent a patch of an unknown type')
    try:
        steps = orjson.loads(base64.b64decode(response["patch"], validate=True))
        return patching.apply_patch(obj, steps, patching.JSON)
    except (ValueError, TypeError, api_errors.ApiError) as error:
        message = f'Internal error occurred: the patch of webhook "{name}" does not apply: {error}'
        raise api_errors.ApiError(500, "InternalError", message) from None


def _denial(name: str, status: JsonObject) -> api_errors.ApiError:
    said = status.get("message") or status.get("reason") or ""
    message = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    code = int(status.get("code") or _FORBIDDEN)
    reason = str(status.get("reason") or ("Forbidden" if code == _FORBIDDEN else ""))
    return api_errors.ApiError(code, reason, message, details=status.get("details"))

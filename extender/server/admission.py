"""The admission webhook: POST /mutate and /validate of AdmissionReview v1, on a TLS port of its own with its own readiness.

Every replica answers, leader or not. Where no review is possible the answer has an error status, so the API server follows the
webhook's failure policy. The API server writes the text of the answer into its log.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-request-and-response
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final

import msgspec
import orjson
from aiohttp import web

from extender.model.policies import JsonObject
from extender.model.units import Address
from extender.server.failures import Failure, failure_of, not_ready
from extender.server.health import livez, readiness_answer
from extender.server.request_checks import BodyMemory, check_encoding, check_names, client_names, read_body
from extender.server.transport.connection_slots import peer_of
from extender.server.transport.connections import ConnectionLimits, listening_within
from extender.settings.connections import Server
from extender.settings.policies import Webhook
from extender.tasks.readiness import Readiness
from extender.telemetry.logs import RepeatedWarnings
from extender.telemetry.metrics import AdmissionMetrics
from extender.verbs.admit.policy_reviews import too_large_policy

# An update carries the old object beside the new one, and the API server accepts objects of 3 MB.
MAX_BODY_BYTES: Final = 8 * 2**20
_BODIES_AT_ONCE: Final = 8  # of the largest size, in memory from their first byte until they are answered
_SHARE_OF_TIMEOUT: Final = 0.8  # of the API server's patience; the rest is for the network
_LONGEST_KIND: Final = 80
_LARGE_OBJECT: Final = 2**18  # bytes
_API_VERSION: Final = "admission.k8s.io/v1"

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class AdmissionService:
    """The collaborators of the handlers.

    - ``decide``: returns a review with its response. It never raises, and does not change its argument.
    - ``webhook``: how long the API server waits, and how it is authenticated; ``server``: the limits of connections.
    - ``prepare``: reads what a review needs beforehand (the namespace), within the webhook's time.
    - ``is_draining``: the replica is stopping. It still answers every review but closes the connection after it, so that the
      client's next connection leads to another replica. `/readyz` fails.
    """

    decide: Callable[[JsonObject], Awaitable[JsonObject]]
    readiness: Readiness
    metrics: AdmissionMetrics
    server: Server
    webhook: Webhook
    is_draining: bool = False
    prepare: Callable[[JsonObject, str], Awaitable[None]] | None = None
    bodies: BodyMemory = field(default_factory=lambda: BodyMemory(_BODIES_AT_ONCE * MAX_BODY_BYTES))
    warnings: RepeatedWarnings = field(default_factory=lambda: RepeatedWarnings(_LOG, "admission review not answered"))

    @property
    def deadline(self) -> float:
        """Seconds within which a review must arrive, so that the answer is in time."""
        return self.webhook.timeout * _SHARE_OF_TIMEOUT


_SERVICE: Final = web.AppKey("SERVICE", AdmissionService)


def make_admission_app(service: AdmissionService) -> web.Application:
    """The application with its routes. It starts nothing."""
    app = web.Application(middlewares=[_answer_errors], client_max_size=MAX_BODY_BYTES)
    app[_SERVICE] = service
    app.router.add_post("/mutate", _review)
    app.router.add_post("/validate", _review)
    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", _readyz)
    return app


@asynccontextmanager
async def admitting(service: AdmissionService, address: Address, tls: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Answer reviews until the block is left; yields the base URL. Raises OSError if the address is taken."""
    limits = ConnectionLimits(service.server, service.deadline, MAX_BODY_BYTES)
    app = make_admission_app(service)
    async with listening_within(app, address, tls, limits, lambda: service.bodies.requests) as url:
        _LOG.info("admitting", extra={"url": url})
        yield url


async def _readyz(request: web.Request) -> web.Response:
    service = request.app[_SERVICE]
    draining = {"shutdown": "the service is stopping"} if service.is_draining else {}
    return readiness_answer({**service.readiness.checks(), **draining}, request)


async def _review(request: web.Request) -> web.Response:
    webhook = request.path.removeprefix("/")
    service, started, kind = request.app[_SERVICE], perf_counter(), ""
    try:
        # 1. The client, before its body is read. 2. The review. 3. The labels of its namespace, which may have to be read from the API
        # server. 4. The decision, which never raises.
        _check_client(request, service.webhook)
        review = await _read(request, service)
        kind = _kind_of(review)
        if service.prepare is not None:
            await service.prepare(review, peer_of(request.remote or ""))
        answer = await service.decide(review)
        response, result = web.Response(body=orjson.dumps(answer), content_type="application/json"), _result_of(answer)
    except DeniedUndecodedError as refused:
        response, result = web.json_response(refused.answer), "denied"
    except Exception as error:  # noqa: BLE001 - the outermost handler: an error that passed it would not be answered
        failure = _failure_of(error, service)
        response, result = failure.answer(), _RESULTS.get(failure.reason, "failed")
        _log_failure(error, failure, webhook, service)
    service.metrics.record_review(webhook, kind, result, perf_counter() - started)
    if service.is_draining:
        response.force_close()
    return response


def _check_client(request: web.Request, webhook: Webhook) -> None:
    """Raises Failure for a client that is not the API server, where the settings name its certificate."""
    if not webhook.client_ca_file:
        return
    names = client_names(request, "policies.webhook.clientCAFile")
    if webhook.clients:
        check_names(names, webhook.clients, "policies.webhook.clients")


async def _read(request: web.Request, service: AdmissionService) -> JsonObject:
    """The review, read within its time. Raises what `_failure_of` knows."""
    if not service.readiness.is_ready:
        raise not_ready(service.readiness.checks())
    # Only the arrival is limited in time: the work of a decision is limited by budgets.
    held = service.bodies.acquire(request)
    try:
        async with asyncio.timeout(service.deadline):
            body = await read_body(request, MAX_BODY_BYTES, "", service.bodies, held)
            return await decode_review(body)
    finally:
        service.bodies.release(held)


@web.middleware
async def _answer_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """For all other requests: paths and methods that do not exist, and bodies that nothing reads."""
    try:
        if request.method != "POST":
            check_encoding(request)  # else the body is read, and its encoding checked, where the review is counted
        answer: web.StreamResponse = await handler(request)
    except Exception as error:  # noqa: BLE001 - as above
        return _failure_of(error, request.app[_SERVICE]).answer()
    return answer


class _Envelope(msgspec.Struct, rename="camel"):
    """A review whose objects are not decoded yet."""

    kind: str
    api_version: str
    request: dict[str, msgspec.Raw]


class DeniedUndecodedError(Exception):
    """Raised for a review that is answered although its object is not decoded. ``answer``: the review that denies it."""

    def __init__(self, answer: JsonObject) -> None:
        super().__init__("denied by its size")
        self.answer = answer


async def decode_review(body: bytes) -> JsonObject:
    """The review. Raises Failure where it has no request with a uid, because an answer must repeat the uid.

    An object of 3 MB takes 40 ms to decode, and 30 ms to decide. So other requests are answered after each large object. An
    object that is denied by its size is not decoded: raises `DeniedUndecodedError`.
    """
    if len(body) <= _LARGE_OBJECT:
        return _decode(body)
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
        parts = {name: memoryview(value) for name, value in envelope.request.items()}
        _check_size(parts)
        request: JsonObject = {}
        for name, value in parts.items():
            request[name] = orjson.loads(value)
            if len(value) > _LARGE_OBJECT:
                await asyncio.sleep(0)
    except (msgspec.MsgspecError, UnicodeDecodeError, orjson.JSONDecodeError):
        return _decode(body)  # its errors say what is wrong
    return _checked({"kind": envelope.kind, "apiVersion": envelope.api_version, "request": request})


def _check_size(parts: Mapping[str, memoryview]) -> None:
    """Raises `DeniedUndecodedError` for an object that is denied by its size."""
    kind, uid = orjson.loads(parts.get("kind", b"null")), orjson.loads(parts.get("uid", b"null"))
    size, old_size = len(parts.get("object", b"")), len(parts.get("oldObject", b""))
    group = kind.get("group") if isinstance(kind, dict) else None
    if isinstance(uid, str) and uid and (denial := too_large_policy(uid, group, size, old_size)) is not None:
        raise DeniedUndecodedError(denial)


def _decode(body: bytes) -> JsonObject:
    try:
        return _checked(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise _malformed(f"no JSON: {error}") from None


def _checked(review: Any) -> JsonObject:
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise _malformed("expected an object of kind AdmissionReview")
    if review.get("apiVersion") != _API_VERSION:
        raise _malformed(f"apiVersion: expected {_API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str) or not request["uid"]:
        raise _malformed("request.uid: is missing")
    return review


def _malformed(problem: str) -> Failure:
    """The failure for a body that is no AdmissionReview with a uid."""
    return Failure(HTTPStatus.BAD_REQUEST, "malformed", f"cannot read the review: {problem}")


def _kind_of(review: JsonObject) -> str:
    kind = review["request"].get("kind")
    name = kind.get("kind") if isinstance(kind, dict) else None
    return name[:_LONGEST_KIND] if isinstance(name, str) else ""


def _result_of(answer: JsonObject) -> str:
    response = answer["response"]
    if not response["allowed"]:
        return "denied"
    return "patched" if response.get("patch") else "allowed"


_RESULTS: Final = {
    "malformed": "malformed",
    "too_large": "malformed",
    "compressed": "malformed",
    "broken_body": "malformed",
    "no_length": "malformed",
    "not_ready": "not_ready",
    "overloaded": "overloaded",
    "unauthenticated": "refused",
    "forbidden": "refused",
    "timeout": "deadline",
}


def _failure_of(error: Exception, service: AdmissionService) -> Failure:
    if isinstance(error, TimeoutError):
        text = f"the review did not arrive within {service.deadline:g} s, {_SHARE_OF_TIMEOUT:.0%} of policies.webhook.timeout"
        return Failure(HTTPStatus.REQUEST_TIMEOUT, "timeout", text)
    return failure_of(error, service.server)


def _log_failure(error: Exception, failure: Failure, webhook: str, service: AdmissionService) -> None:
    """Logs each kind of failure once and then counts it. An unexpected error is logged with its traceback."""
    if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _LOG.error("admission review failed", extra={"webhook": webhook}, exc_info=error)
    else:
        service.warnings.warn((webhook, failure.reason), webhook=webhook, reason=failure.reason, problem=failure.text)

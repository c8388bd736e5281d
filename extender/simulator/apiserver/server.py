"""The HTTP server of the simulated API server, on loopback. No authentication, no conversion.

Decodes requests and passes them to admission, listing, watching and the operations. Called by the scenario player and by
tests.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web

from extender.simulator.apiserver import api_errors, defaulting, patching
from extender.simulator.apiserver.admission import WebhookAdmission, Write
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults, StreamEnd
from extender.simulator.apiserver.kinds import PODS, ServedKind, Target, parse_path
from extender.simulator.apiserver.operations import Operations, PodOperations
from extender.simulator.apiserver.queries import (
    CHUNK,
    RequestSelection,
    ServedWatch,
    WatchTimer,
    check_list,
    check_watch,
    chunks,
    head,
    list_page,
    read_query,
)
from extender.simulator.apiserver.store import Store, Stored, complete
from extender.simulator.json_objects import JsonObject

_JSON = "application/json"
_VERSION = {"major": "1", "minor": "36", "gitVersion": "v1.36.2+simulated", "platform": "simulated"}
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_LARGEST_BODY = 64 * 2**20
_PATCH_ATTEMPTS = 5  # as the real one


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerSettings:
    """The settings of the API server. Times are seconds."""

    history: int = 20_000  # changes kept per kind; a watch of an older version gets 410
    slow_after: int = 10_000  # changes that a watch may lag behind before it is ended
    bookmark_every: float = 1.0  # about a minute in a real API server
    kubelet_delay: float = 0.0  # from the deletion of a bound pod to its removal, at most the grace period
    max_kubelet_delay: float = 0.0  # where it is longer: a random time between both
    ready_delay: float | None = None  # from the binding of a pod to its readiness; None: no kubelet reports readiness
    seed: int = 0  # of the UIDs
    initial_version: int = 1  # the version before the first object


class ApiServer:
    """The server. `store` has the objects, `operations` and `pods` write them.

    `async with ApiServer() as api:` starts it on a free port of 127.0.0.1; `api.url` is its address.
    """

    def __init__(self, settings: ApiServerSettings | None = None, *, store: Store | None = None) -> None:
        self.settings = settings or ApiServerSettings()
        self.store = store or Store(
            history=self.settings.history, seed=self.settings.seed, initial_version=self.settings.initial_version
        )
        self.operations = Operations(self.store)
        self.pods = PodOperations(
            self.operations,
            kubelet_delay=self.settings.kubelet_delay,
            max_kubelet_delay=self.settings.max_kubelet_delay,
            ready_delay=self.settings.ready_delay,
            seed=self.settings.seed,
        )
        self.faults = Faults()
        self.admission = WebhookAdmission(self.store, lambda: self.faults)
        self.url = ""
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._watches: set[Callable[[], None]] = set()
        self._is_stopping = False

    async def start(self, port: int = 0) -> None:
        """Listens on 127.0.0.1; port 0 means a free port."""
        # handler_cancellation: a watch whose client is gone would otherwise wait for its next event.
        self._server = web.Server(self._answer_apart, request_factory=_request, handler_cancellation=True)
        self._is_stopping = False
        self._runner = web.ServerRunner(self._server, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, actual = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{actual}"

    async def stop(self) -> None:
        """Ends all watches, closes the port, cancels pending removals of pods."""
        self.pods.stop()
        await self._close()
        await self.admission.close()

    async def restart(self, down: float = 0.0, *, new_history: bool = False) -> None:
        """Drops all connections like a crash, and listens on the same port again after `down` seconds.

        With 0 the port is never closed, so that a client can reconnect at once. `new_history`: resourceVersions restart
        at a lower number, as after a restore from a backup.
        """
        port = int(self.url.rpartition(":")[2])
        self.drop_connections()
        if down:
            await self._close()
        if new_history:
            self.store.reset_versions()
        if down:
            await asyncio.sleep(down)
            await self.start(port)

    def drop_connections(self) -> None:
        """Resets all connections."""
        for handler in self._server.connections if self._server is not None else ():
            if handler.transport is not None:
                # Not closed: the client has to see a reset, as after a crash.
                handler.transport.abort()

    async def _close(self) -> None:
        self._is_stopping = True
        # First, because the cleanup waits for open requests, and a watch does not end by itself.
        self.cut_watches()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def cut_watches(self) -> None:
        """Wakes every watch, so that it ends if the server is stopping."""
        for wake in self._watches:
            wake()

    def kubeconfig(self) -> JsonObject:
        """A kubeconfig for this server."""
        name = "simulated"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": self.url}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }

    def write_kubeconfig(self, path: Path) -> Path:
        """Writes the kubeconfig to a file, as JSON, which is valid YAML, and returns its path."""
        path.write_text(json.dumps(self.kubeconfig(), indent=2), encoding="utf-8")
        return path

    # -- requests

    async def _answer_apart(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self.store.other_work.of(self.answer(request))

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request. A dropped one gets an empty answer, and its transport is aborted."""
        call = Call(request.method, request.path, request.query, parse_path(request.path))
        try:
            await self.faults.before_answer(call)
            return await self._dispatch(request, call)
        except api_errors.ApiError as error:
            return _status(error)
        except orjson.JSONDecodeError as error:
            return _status(api_errors.bad_request(f"couldn't read the body: {error}"))
        except ConnectionCut:
            return _cut(request)
        except ConnectionResetError:  # the client has closed the connection
            return web.Response()

    async def _dispatch(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        target = call.target
        if target is None:
            return await self._special(request, call)
        if request.method != "GET":
            body = await _body(request)
            await self.faults.before_write(call)
            # The registered rules name no subresource and no deletion, so bindings and deletions need no look at the
            # webhooks.
            if self.admission.concerns(target.kind) and not target.subresource and request.method != "DELETE":
                answer = await self._write_admitted(request, target, body)
            else:
                answer = self._write(request, target, body)
            # The write is done and stays done, even if this fault drops the answer.
            await self.faults.after_write(call)
            return answer
        if target.name and not call.is_watch:
            return _object(target.kind, self.store.find(target.kind, target.key))
        if call.is_watch:
            return await self._watch(request, target, call)
        return await self._list(request, target, call)

    async def _special(self, request: web.BaseRequest, call: Call) -> web.StreamResponse:
        if call.path in {"/livez", "/readyz", "/healthz"}:
            return web.Response(text="ok")
        if call.path == "/version":
            return _json(_VERSION)
        if call.path == _REVIEWS and call.method == "POST":
            review = await _body(request)
            return _json({**review, "status": {"allowed": True}}, code=201)
        raise api_errors.ApiError(404, "NotFound", "the server could not find the requested resource")

    async def _list(self, request: web.BaseRequest, target: Target, call: Call) -> web.StreamResponse:
        query = read_query(request.query)
        check_list(query)
        selection = RequestSelection(target, request.query, request.headers.get("Accept", ""))
        page = list_page(self.store, self.store.table(target.kind), query, selection)
        await self.faults.before_page(call)
        opening, pieces = head(page, selection), chunks(page, selection)
        # One piece with a Content-Length is much faster than a chunked stream, and most lists are short.
        if len(page.rows) <= CHUNK:
            return web.Response(body=opening + b"".join(pieces), content_type=_JSON)
        response = await _stream(request)
        await response.write(opening)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)  # a large LIST must not block the event loop
        return response

    async def _watch(self, request: web.BaseRequest, target: Target, call: Call) -> web.StreamResponse:
        watch = self.open_watch(target, call, request.headers.get("Accept", ""))
        response = await _stream(request)
        try:
            await self.send_watch(call, watch, response.write)
        except StreamEnd as end:
            await response.write(end.last)
        except ConnectionCut as cut:
            await _cut_mid_stream(request, response, cut)
        return response

    def open_watch(self, target: Target, call: Call, accept: str = "") -> ServedWatch:
        """The watch that a query asks for. Raises ApiError."""
        query = read_query(call.query)
        check_watch(query)
        selection = RequestSelection(target, call.query, accept)
        return ServedWatch(
            self.store, self.store.table(target.kind), query, selection, slow_after=self.settings.slow_after
        )

    async def send_watch(self, call: Call, watch: ServedWatch, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Writes the lines of a watch until it ends. Raises StreamEnd and ConnectionCut, as the faults do."""
        error = watch.expired_line() if watch.is_expired else self.faults.watch_error(call)
        if error is not None:
            await write(error)
            return
        timer = WatchTimer(watch, self.settings.bookmark_every)
        self._watches.add(timer.wake)
        try:
            await self._follow(call, watch, timer, write)
        finally:
            self._watches.discard(timer.wake)
            timer.close()

    async def _follow(
        self, call: Call, watch: ServedWatch, timer: WatchTimer, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        for piece in watch.initial():
            await self.faults.before_page(call)
            await write(b"".join(await self.faults.watch_lines(call, [piece])))
            await asyncio.sleep(0)
        while not (timer.is_over or self._is_stopping):
            is_due = await timer.bookmark_due()
            lines = watch.new_lines()
            if lines is None:  # too slow: the client has to start a new watch
                return
            if is_due and watch.may_bookmark:
                lines.append(watch.bookmark())
            if lines:
                await write(b"".join(await self.faults.watch_lines(call, lines)))

    async def create(self, kind: ServedKind, obj: JsonObject, namespace: str = "") -> Stored:
        """Create an object as a request would, webhooks included. Raises ApiError."""
        if self.admission.concerns(kind):
            namespace = namespace or str((obj.get("metadata") or {}).get("namespace") or "")
            defaulting.complete_for_review(kind, obj, namespace)
            obj = await self.admission.admit(Write("CREATE", Target(kind, namespace), obj))
        with self.store.other_work.counted():
            return self.operations.create(kind, obj, namespace=namespace)

    async def _write_admitted(self, request: web.BaseRequest, target: Target, body: Any) -> web.StreamResponse:
        """A creation, or an update of the object that was read before the webhooks were called; retries a patch if it changed."""
        if request.method == "POST" and not target.name:
            if request.query.get("dryRun"):
                defaulting.complete_for_review(target.kind, body, target.namespace)
                return _json(await self.admission.admit(Write("CREATE", target, body)), code=201)
            return _object(target.kind, await self.create(target.kind, body, target.namespace), code=201)
        for attempt in range(_PATCH_ATTEMPTS):
            old = self.store.find(target.kind, target.key).read()
            is_patch = request.method == "PATCH"
            new = patching.apply_patch(old, body, request.content_type) if is_patch else body
            # A patched object has the version of `old`, so a change during the calls of the webhooks shows as a
            # conflict below.
            admitted = await self.admission.admit(Write("UPDATE", target, new, old))
            try:
                return _object(target.kind, self.operations.replace(target, admitted))
            except api_errors.ApiError as error:
                # A PUT carries the version that its client has read, so only the client can retry it.
                if not is_patch or error.reason != "Conflict" or attempt == _PATCH_ATTEMPTS - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _write(self, request: web.BaseRequest, target: Target, body: Any) -> web.StreamResponse:
        if target.kind is PODS and target.name and request.method in {"POST", "DELETE"}:
            return self._write_pod(request, target, body)
        if request.method == "POST" and not target.name:
            if request.query.get("dryRun"):
                return _json(body, code=201)
            stored = self.operations.create(target.kind, body, namespace=target.namespace)
            return _object(target.kind, stored, code=201)
        if request.method == "PUT" and target.name:
            return _object(target.kind, self.operations.replace(target, body))
        if request.method == "PATCH" and target.name:
            return _object(target.kind, self.operations.patch(target, body, request.content_type))
        if request.method == "DELETE" and target.name:
            return _json(self.operations.delete(target, _delete_options(request, body)))
        raise api_errors.ApiError(405, "MethodNotAllowed", "the server does not allow this method on the resource")

    def _write_pod(self, request: web.BaseRequest, target: Target, body: Any) -> web.StreamResponse:
        match request.method, target.subresource:
            case "POST", "binding":
                self.pods.bind(target, body)
            case "POST", "eviction":
                self.pods.evict(target, body)
            case "DELETE", "":
                return _json(self.pods.delete(target, _delete_options(request, body)))
            case _:
                raise api_errors.ApiError(404, "NotFound", "the server could not find the requested resource")
        return _json(api_errors.success(), code=201)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_LARGEST_BODY)


async def _body(request: web.BaseRequest) -> Any:
    raw = await request.read()
    return orjson.loads(raw) if raw else None


def _delete_options(request: web.BaseRequest, body: Any) -> JsonObject:
    """The DeleteOptions of the body, with the grace period of the query, where some clients send it."""
    options: JsonObject = dict(body or {})
    if "gracePeriodSeconds" in request.query and "gracePeriodSeconds" not in options:
        options["gracePeriodSeconds"] = int(request.query["gracePeriodSeconds"])
    return options


async def _stream(request: web.BaseRequest) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": _JSON})
    response.enable_chunked_encoding()
    await response.prepare(request)
    return response


def _object(kind: ServedKind, stored: Stored, code: int = 200) -> web.Response:
    return web.Response(body=complete(kind, stored.body), status=code, content_type=_JSON)


def _json(obj: JsonObject, code: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(obj), status=code, content_type=_JSON)


def _status(error: api_errors.ApiError) -> web.Response:
    retry = (error.status.get("details") or {}).get("retryAfterSeconds")
    headers = {"Retry-After": str(retry)} if retry else {}
    return web.Response(body=orjson.dumps(error.status), status=error.code, content_type=_JSON, headers=headers)


def _cut(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _cut_mid_stream(request: web.BaseRequest, response: web.StreamResponse, cut: ConnectionCut) -> None:
    if cut.partial:
        await response.write(cut.partial)
        # Let the transport send the part before the abort, which would discard it.
        await asyncio.sleep(0)
    _cut(request)

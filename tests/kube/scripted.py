"""An apiserver that answers what a test has written down, request by request, over real HTTP.

``api.script(path, reply, reply, ...)``: each request takes the next reply; one beyond the script waits for ever. The
question before each watch, whether the server has come as far as a version, stands outside of that: it goes to
``api.confirmations`` and is answered with yes, or as ``api.deny`` says.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from aiohttp.test_utils import TestServer

RECORDINGS = Path(__file__).parents[1] / "recordings"

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_confirmation(self) -> bool:
        """Whether it asked for no more than that the server has come as far as a version."""
        return not self.is_watch and "resourceVersionMatch" in self.query


LATE: Final = web.RequestKey("LATE", bool)
_LATE_SECONDS: Final = 0.005


class ScriptedApi:
    """The server's side of a test."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.confirmations: list[Seen] = []
        self.url = ""
        self._replies: dict[str, deque[Reply]] = {}
        self._denials: deque[Reply] = deque()
        # Each line of a watch is sent when the reader waits for it, not together with the head of the answer.
        self.sends_late = False

    def script(self, path: str, *replies: Reply) -> None:
        """Add replies for a path, in order."""
        self._replies.setdefault(path, deque()).extend(replies)

    def deny(self, *replies: Reply) -> None:
        """The next questions for confirmation are answered so."""
        self._denials.extend(replies)

    @property
    def watches(self) -> list[Seen]:
        return [seen for seen in self.requests if seen.is_watch]

    @property
    def lists(self) -> list[Seen]:
        return [seen for seen in self.requests if seen.method == "GET" and not seen.is_watch]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Note the request and play the next reply."""
        text = await request.text()
        body = json.loads(text) if text else None
        seen = Seen(request.method, request.path, dict(request.query), dict(request.headers), body)
        if seen.is_confirmation:
            self.confirmations.append(seen)
            return await (self._denials.popleft() if self._denials else page())(request)
        self.requests.append(seen)
        replies = self._replies.get(request.path)
        request[LATE] = self.sends_late
        if replies:
            return await replies.popleft()(request)
        return await (watch()(request) if seen.is_watch else held(page(), asyncio.Event())(request))


@asynccontextmanager
async def serving(api: ScriptedApi) -> AsyncIterator[ScriptedApi]:
    """Serve it on an ephemeral port; connections that are still open at the end are cut."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0.0)
    api.url = str(server.make_url("")).rstrip("/")
    try:
        yield api
    finally:
        await server.close()


# -- replies --------------------------------------------------------------------------------------------------------


def body(content: bytes | str, code: int = 200, headers: dict[str, str] | None = None) -> Reply:

    async def reply(_: web.Request) -> web.StreamResponse:
        data = content if isinstance(content, bytes) else content.encode()
        return web.Response(body=data, status=code, headers=headers, content_type="application/json")

    return reply


def status(code: int, message: str = "", reason: str = "", headers: dict[str, str] | None = None) -> Reply:
    found = {"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code}
    return body(json.dumps(found), code, headers)


def recorded_error(name: str) -> Reply:
    """An error answer of a real apiserver."""
    found = json.loads((RECORDINGS / f"error-{name}.json").read_text())
    return body(json.dumps(found["body"]), found["status"])


def page(*items: dict[str, Any], version: str = "100", token: str = "") -> Reply:
    return body(json.dumps({"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)}))


def held(reply: Reply, gate: asyncio.Event) -> Reply:
    """The same reply, but not before the gate is opened."""

    async def waiting(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await reply(request)

    return waiting


END, CUT, STAY = "end", "cut", "stay"


def watch(*lines: bytes | dict[str, Any], then: str | asyncio.Event = STAY, chunk: int = 0) -> Reply:
    """A watch that sends lines, then ends properly (at once or at an event), is cut in the middle, or stays open and silent.

    Bytes are sent as they are, without a newline; ``chunk`` cuts everything into pieces of that size.
    """

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        sent = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
        for data in sent if request.get(LATE) else [b"".join(sent)]:
            if request.get(LATE):
                await asyncio.sleep(_LATE_SECONDS)
            for start in range(0, len(data), chunk or len(data) or 1):
                await response.write(data[start : start + (chunk or len(data))])
        if then == STAY:
            await asyncio.get_running_loop().create_future()
        if isinstance(then, asyncio.Event):
            await then.wait()
        if then == CUT and request.transport:
            request.transport.abort()
        return response

    return reply


# -- objects --------------------------------------------------------------------------------------------------------


def namespace(name: str, version: int | str = 1, **labels: str) -> dict[str, Any]:
    """A Namespace, the smallest of our kinds."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": labels}}


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": found}


def bookmark(version: int | str, *, initial_end: bool = False) -> dict[str, Any]:
    """A BOOKMARK, with the mark that ends the initial events if asked for."""
    annotations = {"k8s.io/initial-events-end": "true"} if initial_end else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), "annotations": annotations}}}


def error_event(code: int, message: str = "", retry_after: int = 0) -> dict[str, Any]:
    details = {"retryAfterSeconds": retry_after}
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message, "details": details}}


def recorded_lines(name: str) -> list[bytes]:
    """The lines of a recorded stream, each with its newline."""
    return (RECORDINGS / f"{name}.jsonl").read_bytes().splitlines(keepends=True)


def versions(seen: Sequence[Seen]) -> list[str]:
    return [request.query.get("resourceVersion", "(none)") for request in seen]


def declared(seen: Seen) -> tuple[str, str, str, str]:
    """Group, resource, subresource and method of a request."""
    parts = seen.path.removeprefix("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    namespaced = "namespaces" in parts
    resource, *rest = parts[parts.index("namespaces") + 2 :] if namespaced else parts[3:]
    return group, resource, rest[1] if len(rest) > 1 else "", seen.method


def heavy(name: str, size: int = 3_000, version: int = 1) -> dict[str, object]:
    """A namespace of about so many bytes."""
    found = namespace(name, version)
    found["metadata"]["annotations"] = {"blob": "x" * size}
    return found


def cut_short(items: list[dict[str, object]]) -> Reply:
    """A list that honours limit and continue, and a silent watch."""

    async def reply(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await watch()(request)
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        end = start + limit
        token = str(end) if end < len(items) else ""
        return await page(*items[start:end], version="5", token=token)(request)

    return reply

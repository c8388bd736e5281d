"""A webhook for tests of the embedded API server: answers as the test says, and remembers the reviews."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from extender.simulator.json_objects import JsonObject

Respond = Callable[[JsonObject], JsonObject]


def allow(_request: JsonObject) -> JsonObject:
    """Lets everything pass."""
    return {"allowed": True}


def patching(*steps: JsonObject) -> Respond:
    """Answers every review with this JSON patch."""
    patch = base64.b64encode(orjson.dumps(steps)).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


@dataclass
class Webhook:
    """``requests`` are those of the reviews, in order; ``delay`` seconds pass before each answer."""

    respond: Respond = allow
    delay: float = 0.0
    url: str = ""
    requests: list[JsonObject] = field(default_factory=list)

    @property
    def operations(self) -> list[tuple[str, str]]:
        """(operation, kind) of each review."""
        return [(each["operation"], each["kind"]["kind"]) for each in self.requests]

    async def answer(self, request: web.BaseRequest) -> web.Response:
        review = orjson.loads(await request.read())
        self.requests.append(review["request"])
        await asyncio.sleep(self.delay)
        response = {"uid": review["request"]["uid"], **self.respond(review["request"])}
        return web.Response(body=orjson.dumps({**review, "response": response}), content_type="application/json")


@asynccontextmanager
async def webhook(respond: Respond = allow, tls: ssl.SSLContext | None = None) -> AsyncIterator[Webhook]:
    """A webhook on a free port."""
    found = Webhook(respond)
    runner = web.ServerRunner(web.Server(found.answer, handler_cancellation=True), shutdown_timeout=0.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    found.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield found
    finally:
        await runner.cleanup()


def configuration(name: str, *webhooks: JsonObject, kind: str = "Mutating") -> JsonObject:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(webhooks),
    }


def entry(found: Webhook | None, name: str = "one.example.com", **fields: Any) -> JsonObject:
    """One webhook for pods that are created, or changed."""
    rule = {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    client = {"url": found.url} if found else {"service": {"namespace": "ours", "name": "webhook", "path": "/mutate"}}
    return {"name": name, "clientConfig": client, "rules": [rule], "failurePolicy": "Fail", **fields}

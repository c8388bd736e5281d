"""A client of the pages, stand-in computations, and what a page must answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import orjson
from aiohttp import ClientResponse, ClientSession

from extender.model.objects import Object
from extender.model.units import Address
from extender.server.app import listening
from extender.server.collaborators import Verbs
from extender.server.openapi import document_of
from extender.server.transport.turns import Turns
from extender.server.v1.operations import OPERATIONS
from extender.settings.connections import Server, Tls
from tests.builders import namespace, node, pod, spread, term
from tests.server.serving import AGREEABLE, POD, Answering, Browsing, Client, app_with


def pages_of(browser: Browsing) -> Verbs:
    return replace(AGREEABLE, browser=browser)


class CountedTurns(Turns):
    """Turns that are counted."""

    taken = 0

    async def take(self, *, ahead: bool = False) -> None:
        self.taken += 1
        await super().take(ahead=ahead)


Json = dict[str, Any]
DOCUMENT: Json = orjson.loads(orjson.dumps(document_of(OPERATIONS, "1.2.3")))
CLUSTER: tuple[Object, ...] = (
    namespace("default", team="x"),
    *(node(f"n{at}", zone=f"z{at % 2}", allocatable={"cpu": "4", "pods": "9"}) for at in range(4)),
    *(pod(f"web-{at}", on=f"n{at}", app="web", owner=("ReplicaSet", "web")) for at in range(2)),
    pod(
        "asking", app="web", apart=[term("zone", app="web")], spreads=[spread("zone", app="web")], requests={"cpu": "9"}
    ),
)


def closed(schema: Any) -> Any:
    """The schema that accepts no field that it does not name; a client would not know of such a field."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    return found | {"additionalProperties": False} if "properties" in schema else found


def validator_class() -> Any:
    """Of JSON schemas. Imported where it is used: its library takes more than a second, in each worker that collects."""
    return import_module("jsonschema").Draft202012Validator


async def accepted(answer: ClientResponse, operation: tuple[str, str]) -> Json:
    """The body of an answer that the document describes for this operation and status, with its headers."""
    method, path = operation
    response = DOCUMENT["paths"][path][method.lower()]["responses"][str(answer.status)]
    assert answer.content_type in response["content"]
    assert set(response.get("headers", ())) <= set(answer.headers)
    body: Json = await answer.json()
    schema = closed({**response["content"]["application/json"]["schema"], "components": DOCUMENT["components"]})
    validator_class()(schema).validate(body)
    return body


async def send(
    client: Client | ClientSession, operation: tuple[str, str], query: str = "", **how: Any
) -> ClientResponse:
    """A request that the operation would answer with 200."""
    method, path = operation
    body = {"json": POD} if method == "POST" else {}
    return await client.request(
        method, path.format(namespace="default", pod="asking", kind="Node", name="none") + query, **(body | how)
    )


@asynccontextmanager
async def connected(tls: Tls) -> AsyncIterator[ClientSession]:
    """A client of the real server, whose connections answer some requests themselves."""
    address = Address("127.0.0.1:0")
    async with listening(app_with(server=Server(tls=tls)), address) as url, ClientSession(url) as session:
        yield session


class Broken(Answering):
    """An explainer with a bug."""

    async def explain(self, namespace: str, name: str, node: str = "") -> Any:
        raise RuntimeError(namespace, name, node)

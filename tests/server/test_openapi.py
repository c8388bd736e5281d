"""The OpenAPI document against the application: the same routes, and real answers that its schemas accept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from random import Random
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # has no types
import orjson
import pytest
from aiohttp import ClientResponse, ClientSession, web
from pytest_aiohttp.plugin import AiohttpClient

from extender.compose.service import service_of_objects
from extender.model.answers import what_if
from extender.model.answers.explanations import Cause, NotExplained
from extender.model.constraints.labels import ZONE
from extender.model.objects import Object
from extender.model.units import Address
from extender.server import request_checks
from extender.server.app import listening
from extender.server.openapi import document_of
from extender.server.v1.operations import OPERATIONS
from extender.settings.configuration import Settings
from extender.settings.connections import Server, Tls
from tests.builders import namespace, node, pod, pod_json, spread, term
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    POD,
    Answering,
    Browsing,
    Client,
    Switch,
    WhatIfAnswering,
    app_with,
)

Json = dict[str, Any]

DOCUMENT: Json = orjson.loads(orjson.dumps(document_of(OPERATIONS, "1.2.3")))
EXPLAIN = ("GET", "/v1/explain/{namespace}/{pod}")
EXPLAIN_GIVEN = ("POST", "/v1/explain")
DECISIONS = ("GET", "/debug/decisions")
ABOUT = ("GET", "/v1/openapi.json")
OVERVIEW = ("GET", "/v1/overview")
TOPOLOGY = ("GET", "/v1/topology")
PENDING = ("GET", "/v1/pending")
WORKLOADS = ("GET", "/v1/workloads")
CONSTRAINTS = ("GET", "/v1/constraints/{namespace}/{pod}")
PAGES = {TOPOLOGY: "?key=zone", PENDING: "?namespace=default", WORKLOADS: "?limit=3", CONSTRAINTS: ""}
IN_FLIGHT = [("GET", "/v1/preemptions"), ("GET", "/v1/groups"), ("GET", "/v1/policies")]
PAGES |= dict.fromkeys(IN_FLIGHT, "?limit=500")
STREAM = ("GET", "/v1/decisions/stream")
WHAT_IF = ("POST", "/v1/whatif")
ALL = (EXPLAIN, EXPLAIN_GIVEN, WHAT_IF, DECISIONS, ABOUT, STREAM, OVERVIEW, *PAGES)
CLUSTER: tuple[Object, ...] = (
    namespace("default", team="x"),
    *(node(f"n{at}", zone=f"z{at % 2}", allocatable={"cpu": "4", "pods": "9"}) for at in range(4)),
    *(pod(f"web-{at}", on=f"n{at}", app="web") for at in range(2)),
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


async def accepted(answer: ClientResponse, operation: tuple[str, str]) -> Json:
    """The body of an answer that the document describes for this operation and status, with its headers."""
    method, path = operation
    response = DOCUMENT["paths"][path][method.lower()]["responses"][str(answer.status)]
    assert answer.content_type in response["content"]
    assert set(response.get("headers", ())) <= set(answer.headers)
    body: Json = await answer.json()
    schema = closed({**response["content"]["application/json"]["schema"], "components": DOCUMENT["components"]})
    jsonschema.Draft202012Validator(schema).validate(body)
    return body


async def ask(
    client: Client | ClientSession, operation: tuple[str, str], query: str = "", **how: Any
) -> ClientResponse:
    """A request that the operation would answer with 200."""
    method, path = operation
    body = {"json": POD} if method == "POST" else {}
    return await client.request(method, path.format(namespace="default", pod="asking") + query, **(body | how))


def failing(cause: Cause) -> web.Application:
    return app_with(replace(AGREEABLE, explainer=Answering(problem=NotExplained(cause, "because"))))


def test_every_route_of_the_api_is_in_the_document_and_every_path_of_it_is_routed() -> None:
    routes = {
        (route.method, route.resource.canonical)
        for route in app_with().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    documented = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}
    assert documented == set(ALL)
    assert documented <= routes
    assert {each for each in routes if each[1].startswith("/v1/")} <= documented


def test_the_schemas_are_valid_and_each_reference_and_parameter_has_its_end() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert "``" not in schema["description"]
    operations = [each for item in DOCUMENT["paths"].values() for each in item.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for path, item in DOCUMENT["paths"].items():
        for each in item.values():
            in_path = {one["name"] for one in each.get("parameters", ()) if one["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_the_document_is_served(aiohttp_client: AiohttpClient) -> None:
    answer = await ask(await aiohttp_client(app_with()), ABOUT)
    assert await accepted(answer, ABOUT) == DOCUMENT


async def test_answers_are_those_of_the_document(aiohttp_client: AiohttpClient) -> None:
    verbs = service_of_objects(Settings(), CLUSTER, Random(0)).verbs
    client = await aiohttp_client(app_with(verbs))
    explained = await accepted(await ask(client, EXPLAIN, "?node=n1"), EXPLAIN)
    assert {"obstacles", "constraints", "node"} <= explained.keys()
    given = pod_json("new", app="web", apart=[term("zone", app="web")])
    explained = await accepted(await ask(client, EXPLAIN_GIVEN, json=given), EXPLAIN_GIVEN)
    assert {each["kind"] for each in explained["changes"]} >= {"addNode", "movePod"}
    changes = {"delete": [{"kind": "Node", "name": "n0"}], "apply": [{**POD, "kind": "Pod"}]}
    placed = await accepted(await ask(client, WHAT_IF, json=changes), WHAT_IF)
    assert placed["summary"] == {"placed": 2, "rejected": 1, "displaced": 1}
    assert {"obstacles", "reason"} <= placed["placements"][-1].keys()
    overview = await accepted(await ask(client, OVERVIEW), OVERVIEW)
    assert overview["features"]["whatif"]
    assert (overview["nodes"], overview["pods"], overview["pending"]) == (4, 3, 1)
    domains = await accepted(await ask(client, TOPOLOGY, f"?key={ZONE}&selector=app=web&limit=1"), TOPOLOGY)
    assert (domains["domains"][0]["matching"], domains["more"]) == (1, 1)
    nodes = await accepted(await ask(client, TOPOLOGY, f"?key={ZONE}&domain=z0"), TOPOLOGY)
    assert nodes["nodes"][0]["podNames"] == ["default/web-0"]
    choice = await accepted(await ask(client, WORKLOADS), WORKLOADS)
    assert choice["workloads"][0]["constraints"] == {"podAntiAffinity": 1, "topologySpread": 1}
    counted = await accepted(await ask(client, CONSTRAINTS), CONSTRAINTS)
    assert {each["kind"] for each in counted["constraints"]} == {"podAntiAffinity", "topologySpread"}
    for operation in IN_FLIGHT:
        page = await accepted(await ask(client, operation), operation)
        assert [*page.values()] == [[]], "a snapshot has none"
    waiting = await accepted(await ask(client, PENDING), PENDING)
    assert [each["pod"] for each in waiting["pods"]] == ["asking"]
    await client.post("/filter", json=BY_NAMES)
    page = await accepted(await ask(client, DECISIONS, "?limit=1"), DECISIONS)
    assert page["decisions"][0]["reasons"] == ["unknown_node"]


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.BUSY, HTTPStatus.TOO_MANY_REQUESTS),
        (Cause.TOO_EXPENSIVE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (Cause.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
        (Cause.FAILED, HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
)
async def test_errors_of_what_ifs(aiohttp_client: AiohttpClient, cause: Cause, status: HTTPStatus) -> None:
    answering = WhatIfAnswering(problem=what_if.NotComputed(cause, "because"))
    client = await aiohttp_client(app_with(replace(AGREEABLE, what_ifs=answering)))
    answer = await ask(client, WHAT_IF)
    assert answer.status == status
    await accepted(answer, WHAT_IF)


async def test_a_body_that_the_schema_refuses_is_malformed(aiohttp_client: AiohttpClient) -> None:
    content = DOCUMENT["paths"]["/v1/explain"]["post"]["requestBody"]["content"]["application/json"]
    validator = jsonschema.Draft202012Validator(content["schema"])
    client = await aiohttp_client(app_with())
    bodies: list[Any] = [POD, pod_json("new"), [], {}, {**POD, "kind": "Node"}, {"metadata": {"name": "a"}}]
    bodies += [{"metadata": {"name": ""}, "spec": {}}, {"metadata": {}, "spec": {}}]
    for body in bodies:
        answer = await client.post("/v1/explain", json=body)
        assert answer.status == (HTTPStatus.OK if validator.is_valid(body) else HTTPStatus.BAD_REQUEST), body
        await accepted(answer, EXPLAIN_GIVEN)


@asynccontextmanager
async def connected(tls: Tls) -> AsyncIterator[ClientSession]:
    """A client of the real server, whose connections answer some requests themselves."""
    address = Address("127.0.0.1:0")
    async with listening(app_with(server=Server(tls=tls)), address) as url, ClientSession(url) as session:
        yield session


@pytest.mark.parametrize("operation", ALL)
async def test_errors_that_any_request_may_have(monkeypatch: pytest.MonkeyPatch, operation: tuple[str, str]) -> None:
    async with connected(Tls()) as client:
        answers = [
            await ask(client, operation, "?never=1"),
            await ask(client, operation, headers={"Content-Encoding": "br"}, json=None, data=b"{}"),
            await ask(client, operation, chunked=True, json=None, data=b"{}"),
        ]
        monkeypatch.setattr(request_checks, "_is_local", lambda _address: False)
        answers.append(await ask(client, operation))
        bodies = [await accepted(each, operation) for each in answers]
    async with connected(Tls("cert", "key", "ca")) as client:
        answers.append(await ask(client, operation))
        await accepted(answers[-1], operation)
    assert [each.status for each in answers] == [400, 415, 411, 403, 401]
    assert bodies[0]["field"] == "never"


@pytest.mark.parametrize("operation", [EXPLAIN, EXPLAIN_GIVEN])
@pytest.mark.parametrize(
    ("application", "status"),
    [
        (lambda: failing(Cause.UNKNOWN), HTTPStatus.NOT_FOUND),
        (lambda: failing(Cause.BUSY), HTTPStatus.TOO_MANY_REQUESTS),
        (lambda: failing(Cause.TOO_EXPENSIVE), HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (lambda: app_with(readiness=Switch({"pods": "not listed yet"})), HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
async def test_errors_of_explanations(
    aiohttp_client: AiohttpClient,
    operation: tuple[str, str],
    application: Callable[[], web.Application],
    status: HTTPStatus,
) -> None:
    answer = await ask(await aiohttp_client(application()), operation)
    assert answer.status == status
    assert (await accepted(answer, operation))["error"] in {
        "because",
        "not ready: pods; /readyz?verbose lists the checks",
    }


@pytest.mark.parametrize("operation", [OVERVIEW, *PAGES])
@pytest.mark.parametrize(
    ("cause", "status"),
    [(Cause.BUSY, HTTPStatus.TOO_MANY_REQUESTS), (Cause.TOO_EXPENSIVE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)],
)
async def test_errors_of_pages(
    aiohttp_client: AiohttpClient, operation: tuple[str, str], cause: Cause, status: HTTPStatus
) -> None:
    browser = Browsing(problem=NotExplained(cause, "because"))
    client = await aiohttp_client(app_with(replace(AGREEABLE, browser=browser)))
    answer = await ask(client, operation, PAGES.get(operation, ""))
    assert answer.status == status
    await accepted(answer, operation)


@pytest.mark.parametrize("operation", PAGES)
async def test_there_are_no_pages_before_the_index_is_complete(
    aiohttp_client: AiohttpClient, operation: tuple[str, str]
) -> None:
    app = app_with(replace(AGREEABLE, browser=Browsing()), Switch({"pods": "not listed yet"}))
    answer = await ask(await aiohttp_client(app), operation, PAGES[operation])
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    await accepted(answer, operation)


async def test_a_body_above_its_limit_and_a_bug_have_errors_of_the_document(aiohttp_client: AiohttpClient) -> None:
    large = await ask(await aiohttp_client(app_with()), EXPLAIN_GIVEN, json=[" " * (256 * 2**10)])
    assert large.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    await accepted(large, EXPLAIN_GIVEN)
    broken = await ask(await aiohttp_client(app_with(replace(AGREEABLE, explainer=Broken()))), EXPLAIN)
    assert broken.status == HTTPStatus.INTERNAL_SERVER_ERROR
    await accepted(broken, EXPLAIN)


class Broken(Answering):
    """An explainer with a bug."""

    async def explain(self, namespace: str, name: str, node: str = "") -> Any:
        raise RuntimeError(namespace, name, node)

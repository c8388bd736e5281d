"""The API for people and tools: what it answers, which clients, and the one form of its errors."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.answers.explanations import Cause, NotExplained
from extender.server import request_checks
from tests.server.serving import AGREEABLE, POD, Answering, Switch, app_with


def serving(explainer: Answering, readiness: Switch | None = None) -> web.Application:
    return app_with(replace(AGREEABLE, explainer=explainer), readiness)


async def test_a_pod_is_explained_by_its_name(aiohttp_client: AiohttpClient) -> None:
    explainer = Answering()
    client = await aiohttp_client(serving(explainer))
    answer = await client.get("/v1/explain/team-a/web-1?node=node-a")
    assert await answer.json() == {"pod": "team-a/web-1", "state": "pending", "nodes": 3, "passing": 0, "fitting": 0}
    assert explainer.asked == [("team-a/web-1", "node-a")]


async def test_a_pod_that_does_not_exist_is_explained_without_the_node_that_it_names(
    aiohttp_client: AiohttpClient,
) -> None:
    explainer = Answering()
    client = await aiohttp_client(serving(explainer))
    manifest = {"kind": "Pod", "metadata": {"name": "new"}, "spec": {"nodeName": "node-a", "containers": []}}
    assert (await client.post("/v1/explain", json=manifest)).status == HTTPStatus.OK
    assert explainer.asked == [("default/new", "", "")]


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (Cause.UNKNOWN, HTTPStatus.NOT_FOUND),
        (Cause.BUSY, HTTPStatus.TOO_MANY_REQUESTS),
        (Cause.TOO_EXPENSIVE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ],
)
async def test_a_pod_that_is_not_explained_has_a_reason(
    aiohttp_client: AiohttpClient, cause: Cause, status: HTTPStatus
) -> None:
    client = await aiohttp_client(serving(Answering(problem=NotExplained(cause, "because"))))
    answer = await client.get("/v1/explain/team-a/web-1")
    assert (answer.status, await answer.json()) == (status, {"error": "because"})


@pytest.mark.parametrize(
    ("body", "field_at_fault"),
    [
        ({**POD, "kind": "Deployment"}, "kind"),
        ({"spec": {"containers": []}}, "metadata.name"),
        ({"metadata": {"name": "web"}}, "spec"),
        ({"metadata": {"name": "web"}, "spec": {"priority": "high"}}, "spec.priority"),
        ([], ""),
    ],
)
async def test_a_body_that_is_no_pod_names_the_field(
    aiohttp_client: AiohttpClient, body: Any, field_at_fault: str
) -> None:
    client = await aiohttp_client(serving(Answering()))
    answer = await client.post("/v1/explain", json=body)
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert (await answer.json()).get("field", "") == field_at_fault


async def test_an_unknown_parameter_is_an_error_and_not_ignored(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving(Answering()))
    answer = await client.get("/v1/explain/team-a/web-1?nodes=node-a")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, "nodes")


async def test_a_body_above_its_limit_is_refused_before_it_is_read(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving(Answering()))
    answer = await client.post("/v1/explain", json=[" " * (256 * 2**10)])
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


async def test_nothing_is_explained_before_the_index_is_complete(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(serving(Answering(), Switch({"pods": "not listed yet"})))
    answer = await client.get("/v1/explain/team-a/web-1")
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "not ready: pods" in (await answer.json())["error"]


async def test_without_a_client_ca_only_this_machine_may_ask(
    aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await aiohttp_client(serving(Answering()))
    monkeypatch.setattr(request_checks, "_is_local", lambda _address: False)
    assert (await client.get("/v1/explain/team-a/web-1")).status == HTTPStatus.FORBIDDEN
    assert (await client.post("/v1/explain", json=POD)).status == HTTPStatus.FORBIDDEN
    assert (await client.get("/version")).status == HTTPStatus.OK

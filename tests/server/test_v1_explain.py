"""Explanations and the last answers about pods over HTTP; `test_openapi` has the errors that all of the API share."""

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from tests.server.serving import AGREEABLE, BY_NAMES, POD, PREEMPTION, Answering, Switch, app_with


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


async def test_answers_about_a_pod_are_shown_the_latest_first(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    await client.post("/filter", json=BY_NAMES)
    await client.post("/preempt", json=PREEMPTION)
    answer = await (await client.get("/debug/decisions?namespace=team-a&pod=web-1")).json()
    assert [(each["verb"], each["nodes"], each["passed"], each["suchAs"]) for each in answer["decisions"]] == [
        ("preempt", 1, 1, ["node-a"]),
        ("filter", 2, 2, ["node-a", "node-bb"]),
    ]
    assert {(each["namespace"], each["pod"], each["uid"]) for each in answer["decisions"]} == {
        ("team-a", "web-1", "u-1")
    }
    assert answer["kept"] == 2
    other = await (await client.get("/debug/decisions?pod=web-2&limit=1")).json()
    assert other["decisions"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "limit=²", "limit=x", "name=web-1"])
async def test_a_wrong_parameter_is_named(aiohttp_client: AiohttpClient, query: str) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.get(f"/debug/decisions?{query}")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, query.partition("=")[0])

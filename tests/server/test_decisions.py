"""`/debug/decisions`: what was answered about which pod, which clients it is shown, and wrong parameters."""

from http import HTTPStatus

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.server import request_checks
from tests.server.serving import BY_NAMES, PREEMPTION, app_with


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


async def test_without_a_client_ca_only_this_machine_may_read_them(
    aiohttp_client: AiohttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await aiohttp_client(app_with())
    monkeypatch.setattr(request_checks, "_is_local", lambda _address: False)
    assert (await client.get("/debug/decisions")).status == HTTPStatus.FORBIDDEN

"""Pages of the cluster over HTTP: what is read of a request, what is added to a page, and what equal requests share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.answers.pages import PageOf, TopologyQuestion
from extender.model.units import ByteSize, Duration
from extender.server.collaborators import COLLABORATORS
from extender.server.transport.turns import Turns
from extender.settings.connections import Server
from extender.wire.objects.constraints import parse_selector_text
from tests.fakes import until
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    POD,
    PREEMPTION,
    Answering,
    Browsing,
    Client,
    Switch,
    WhatIfAnswering,
    app_with,
)


async def client_of(aiohttp_client: AiohttpClient, browser: Browsing, readiness: Switch | None = None) -> Client:
    return await aiohttp_client(app_with(replace(AGREEABLE, browser=browser), readiness))


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("key=zone", TopologyQuestion("zone", PageOf())),
        (
            "key=zone&namespace=a&selector=app%3Dweb,!old&after=z1&limit=7&domain=",
            TopologyQuestion("zone", PageOf("a", "z1", 7), parse_selector_text("app=web,!old", "selector"), ""),
        ),
    ],
)
async def test_a_question_about_domains_is_read(
    aiohttp_client: AiohttpClient, query: str, asked: TopologyQuestion
) -> None:
    browser = Browsing()
    client = await client_of(aiohttp_client, browser)
    assert (await client.get(f"/v1/topology?{query}")).status == HTTPStatus.OK
    assert browser.asked == [asked]


@pytest.mark.parametrize("name", ["preemptions", "groups", "policies"])
async def test_a_question_about_what_is_in_flight_is_read(aiohttp_client: AiohttpClient, name: str) -> None:
    browser = Browsing()
    client = await client_of(aiohttp_client, browser)
    assert (await client.get(f"/v1/{name}?namespace=a&after=x&limit=500")).status == HTTPStatus.OK
    assert browser.asked == [(name, PageOf("a", "x", 500))]


async def test_a_question_about_a_pod_or_a_namespace_is_read(aiohttp_client: AiohttpClient) -> None:
    browser = Browsing()
    client = await client_of(aiohttp_client, browser)
    for path in ("workloads?namespace=a&after=a/x&limit=2", "constraints/team-a/web-1", "pending?after=1"):
        assert (await client.get(f"/v1/{path}")).status == HTTPStatus.OK
    assert browser.asked == [PageOf("a", "a/x", 2), ("team-a", "web-1"), PageOf("", "1")]


@pytest.mark.parametrize(
    ("path", "at_fault"),
    [
        ("topology", "key"),
        ("topology?key=not%20a%20key", "key"),
        ("topology?key=zone&selector=a%3D%3D%3D", "selector"),
        ("topology?key=zone&limit=0", "limit"),
        ("topology?key=zone&limit=501", "limit"),
        ("topology?key=zone&page=2", "page"),
        ("pending?limit=many", "limit"),
        ("pending?pod=web", "pod"),
        ("workloads?selector=app", "selector"),
        ("preemptions?node=n1", "node"),
        ("groups?limit=501", "limit"),
        ("policies?kind=x", "kind"),
        ("constraints/team-a/web-1?limit=3", "limit"),
        ("overview?verbose=1", "verbose"),
    ],
)
async def test_a_wrong_parameter_is_named(aiohttp_client: AiohttpClient, path: str, at_fault: str) -> None:
    browser = Browsing()
    answer = await (await client_of(aiohttp_client, browser)).get(f"/v1/{path}")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, at_fault)
    assert browser.asked == []


async def test_a_pending_pod_has_what_was_answered_about_it_last(aiohttp_client: AiohttpClient) -> None:
    client = await client_of(aiohttp_client, Browsing())
    app = client.app
    assert app is not None
    await client.post("/filter", json=BY_NAMES)
    page = await (await client.get("/v1/pending?limit=1")).json()
    assert "reasons" not in page["pods"][0]
    log = app[COLLABORATORS].decisions
    log.add(1.0, "filter", ("team-a", "web-1", "u-1"), 2, reasons=["anti_affinity"])
    log.add(2.0, "bind", ("team-a", "web-1", "u-1"))
    page = await (await client.get("/v1/pending?limit=2")).json()
    assert page["pods"][0]["reasons"] == ["anti_affinity"]


async def test_equal_requests_of_a_second_are_computed_once(aiohttp_client: AiohttpClient) -> None:
    browser = Browsing()
    client = await client_of(aiohttp_client, browser)
    paths = ["/v1/pending?namespace=a&limit=5", "/v1/pending?limit=5&namespace=a", "/v1/pending?namespace=b"]
    for path in [*paths, *paths]:
        assert (await client.get(path)).status == HTTPStatus.OK
    assert browser.asked == [PageOf("a", "", 5), PageOf("b")]


class CountedTurns(Turns):
    """Turns that are counted."""

    taken = 0

    async def take(self, *, ahead: bool = False) -> None:
        self.taken += 1
        await super().take(ahead=ahead)


async def test_each_answer_takes_a_turn_also_where_it_is_shared(aiohttp_client: AiohttpClient) -> None:
    client = await client_of(aiohttp_client, Browsing())
    assert client.app is not None
    turns = client.app[COLLABORATORS].turns = CountedTurns()
    await asyncio.gather(*(client.get("/v1/pending") for _ in range(5)))
    assert turns.taken == 5


async def test_the_overview_is_answered_by_a_replica_that_is_not_ready(aiohttp_client: AiohttpClient) -> None:
    client = await client_of(aiohttp_client, Browsing(), Switch({"nodes": "", "pods": "not listed yet"}))
    answer = await client.get("/v1/overview")
    overview = await answer.json()
    assert (answer.status, overview["ready"]) == (HTTPStatus.OK, False)
    assert overview["health"] == [
        {"check": "nodes", "status": "ok", "text": "ok"},
        {"check": "pods", "status": "failing", "text": "not listed yet"},
    ]


async def test_the_overview_warns_of_what_keeps_no_request_from_an_answer(aiohttp_client: AiohttpClient) -> None:
    client = await client_of(aiohttp_client, Browsing(invalid_policies=2, rebuilds=1))
    overview = await (await client.get("/v1/overview")).json()
    warnings = {each["check"]: each["text"] for each in overview["health"] if each["status"] == "warning"}
    assert warnings["policies"] == "2 scheduling policies are invalid and are not applied"
    assert "built again once" in warnings["index"]


async def test_the_overview_tells_rates_and_what_runs(aiohttp_client: AiohttpClient) -> None:
    client = await client_of(aiohttp_client, Browsing())
    await asyncio.gather(*(client.post("/filter", json=BY_NAMES) for _ in range(3)))
    await client.post("/filter", data=b"{")
    overview = await (await client.get("/v1/overview")).json()
    rates = {each["verb"]: each for each in overview["verbs"]}
    assert (rates["filter"]["answers"], rates["filter"]["errors"], rates["bind"]["answers"]) == (4, 1, 0)
    assert 0 < rates["filter"]["p50Milliseconds"] <= rates["filter"]["p99Milliseconds"]
    assert overview["version"] == "1.2.3"
    assert overview["residentBytes"] > 2**20
    assert overview["freshnessSeconds"] == 0.5


# -- Explanations and the last answers about pods over HTTP; `test_openapi` has the errors that all of the API share ---


def explaining(explainer: Answering, readiness: Switch | None = None) -> web.Application:
    return app_with(replace(AGREEABLE, explainer=explainer), readiness)


async def test_a_pod_is_explained_by_its_name(aiohttp_client: AiohttpClient) -> None:
    explainer = Answering()
    client = await aiohttp_client(explaining(explainer))
    answer = await client.get("/v1/explain/team-a/web-1?node=node-a")
    assert await answer.json() == {"pod": "team-a/web-1", "state": "pending", "nodes": 3, "passing": 0, "fitting": 0}
    assert explainer.asked == [("team-a/web-1", "node-a")]


async def test_a_pod_that_does_not_exist_is_explained_without_the_node_that_it_names(
    aiohttp_client: AiohttpClient,
) -> None:
    explainer = Answering()
    client = await aiohttp_client(explaining(explainer))
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
    client = await aiohttp_client(explaining(Answering()))
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
async def test_a_wrong_parameter_of_the_page_of_decisions_is_named(aiohttp_client: AiohttpClient, query: str) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.get(f"/debug/decisions?{query}")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, query.partition("=")[0])


# -- What-ifs over HTTP: the bodies that are read, the clients that wait, and the time that others have ----------------

JSON = {"Content-Type": "application/json"}


def computing_what_ifs(
    what_ifs: WhatIfAnswering | None, server: Server | None = None, ready: str = ""
) -> web.Application:
    return app_with(replace(AGREEABLE, what_ifs=what_ifs), Switch({"pods": ready}), server or Server())


async def test_the_body_is_passed_on_unread_and_the_answer_as_it_is(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering()
    client = await aiohttp_client(computing_what_ifs(answering))
    answer = await client.post("/v1/whatif", data=b"{anything", headers=JSON)
    assert (answer.status, await answer.json()) == (HTTPStatus.OK, {"summary": {"placed": 0, "rejected": 0}})
    assert answering.asked == [b"{anything"]


async def test_a_body_above_the_limit_of_the_server_is_too_large(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(computing_what_ifs(WhatIfAnswering(), Server(max_body_bytes=ByteSize(10))))
    answer = await client.post("/v1/whatif", data=b" " * 11, headers=JSON)
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await answer.json() == {"error": "request body is larger than server.maxBodyBytes (10)"}


async def test_an_answer_may_take_longer_than_other_requests_may(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await aiohttp_client(computing_what_ifs(answering, Server(request_timeout=Duration(0.25))))
    asking = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.asked)
    late = await client.post("/v1/explain", data=b" ", headers={**JSON, "Content-Length": "2"})
    assert late.status == HTTPStatus.REQUEST_TIMEOUT  # begun later, and its time is over
    assert answering.may_answer is not None
    answering.may_answer.set()
    assert (await asking).status == HTTPStatus.OK


async def test_a_client_that_goes_away_ends_the_computation(aiohttp_client: AiohttpClient) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await aiohttp_client(computing_what_ifs(answering))
    asking = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.asked)
    asking.cancel()  # aiohttp closes the connection
    await until(lambda: answering.cancelled == answering.asked)


@pytest.mark.parametrize(
    ("what_ifs", "ready", "text"),
    [
        (None, "", "not ready: whatIf.enabled is false; /readyz?verbose lists the checks"),
        (WhatIfAnswering(), "not listed yet", "not ready: pods; /readyz?verbose lists the checks"),
    ],
)
async def test_there_is_no_answer_where_none_can_be_given(
    aiohttp_client: AiohttpClient, what_ifs: WhatIfAnswering | None, ready: str, text: str
) -> None:
    client = await aiohttp_client(computing_what_ifs(what_ifs, ready=ready))
    answer = await client.post("/v1/whatif", json={})
    assert (answer.status, await answer.json()) == (HTTPStatus.SERVICE_UNAVAILABLE, {"error": text})
    assert what_ifs is None or not what_ifs.asked

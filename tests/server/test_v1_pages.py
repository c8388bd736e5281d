"""Pages of the cluster over HTTP: what is read of a request, what is added to a page, and what equal requests share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.answers.pages import PageOf, TopologyQuestion
from extender.server.collaborators import COLLABORATORS
from extender.server.transport.turns import Turns
from extender.wire.objects.constraints import parse_selector_text
from tests.server.serving import AGREEABLE, BY_NAMES, Browsing, Client, Switch, app_with


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
        """Counts, and waits as usual."""
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

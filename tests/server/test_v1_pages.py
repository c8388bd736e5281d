"""Pages of the cluster over HTTP: what is read of a request, what is added to a page, and what equal requests share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from http import HTTPStatus
from random import Random
from typing import Any

import pytest

from extender.compose.service import service_of_objects
from extender.features.execution.answers import MoveRow, MovesAnswer
from extender.model.answers import what_if
from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.model.answers.pages import PageOf, PendingQuestion, TopologyQuestion
from extender.model.constraints.labels import ZONE
from extender.model.units import ByteSize, Duration
from extender.server import request_checks
from extender.server.collaborators import COLLABORATORS
from extender.settings.configuration import Settings
from extender.settings.connections import Server, Tls
from extender.wire.objects.constraints import parse_selector_text
from tests.builders import CONTAINER, pod_json, term
from tests.fakes import until
from tests.server.pages_client import (
    CLUSTER,
    DOCUMENT,
    Broken,
    CountedTurns,
    Json,
    accepted,
    connected,
    pages_of,
    send,
    validator_class,
)
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    POD,
    PREEMPTION,
    Answering,
    Browsing,
    Client,
    Serve,
    Switch,
    WhatIfAnswering,
    app_with,
    two_differences,
)

SELECTED = PageOf("a", "z1", 7), parse_selector_text("app=web,!old", "selector"), ""
QUESTIONS: dict[str, object] = {
    "topology?key=zone": TopologyQuestion("zone", PageOf()),
    "topology?key=zone&namespace=a&selector=app%3Dweb,!old&after=z1&limit=7&domain=": TopologyQuestion(
        "zone", *SELECTED
    ),
    "preemptions?namespace=a&after=x&limit=500": ("preemptions", PageOf("a", "x", 500)),
    "groups?namespace=a&after=x&limit=500": ("groups", PageOf("a", "x", 500)),
    "policies?namespace=a&after=x&limit=500": ("policies", PageOf("a", "x", 500)),
    "workloads?namespace=a&after=a/x&limit=2": PageOf("a", "a/x", 2),
    "constraints/team-a/web-1": ("team-a", "web-1"),
    "pending?after=1": PendingQuestion("", "1"),
    "pending?reason=no_room&group=workload": PendingQuestion(reason="no_room", is_grouped=True),
    "manifests/Node/node-a": ("Node", "node-a"),
}


@pytest.mark.parametrize(("path", "question"), QUESTIONS.items())
async def test_a_question_about_the_cluster_is_read(serve: Serve, path: str, question: object) -> None:
    browser = Browsing()
    client = await serve(pages_of(browser))
    assert (await client.get(f"/v1/{path}")).status == HTTPStatus.OK
    assert browser.requested == [question]


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
        ("pending?limit=", "limit"),
        ("groups?limit=1&limit=2", "limit"),
        ("workloads?namespace=a&namespace=b", "namespace"),
        ("pending?pod=web", "pod"),
        ("pending?group=node", "group"),
        ("manifests/Secret/admin", "kind"),
        ("workloads?selector=app", "selector"),
        ("preemptions?node=n1", "node"),
        ("groups?limit=501", "limit"),
        ("policies?kind=x", "kind"),
        ("constraints/team-a/web-1?limit=3", "limit"),
        ("overview?verbose=1", "verbose"),
    ],
)
async def test_a_wrong_parameter_is_named(serve: Serve, path: str, at_fault: str) -> None:
    browser = Browsing()
    answer = await (await serve(pages_of(browser))).get(f"/v1/{path}")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, at_fault)
    assert browser.requested == []


async def test_a_pending_pod_has_what_was_answered_about_it_last(serve: Serve) -> None:
    client = await serve(pages_of(Browsing()))
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


async def test_equal_requests_of_a_second_are_computed_once(serve: Serve) -> None:
    browser = Browsing()
    client = await serve(pages_of(browser))
    paths = ["/v1/pending?namespace=a&limit=5", "/v1/pending?limit=5&namespace=a", "/v1/pending?namespace=b"]
    for path in [*paths, *paths]:
        assert (await client.get(path)).status == HTTPStatus.OK
    assert browser.requested == [PendingQuestion("a", "", 5), PendingQuestion("b")]


async def test_each_answer_takes_a_turn_also_where_it_is_shared(serve: Serve) -> None:
    client = await serve(pages_of(Browsing()))
    assert client.app is not None
    turns = client.app[COLLABORATORS].turns = CountedTurns()
    await asyncio.gather(*(client.get("/v1/pending") for _ in range(5)))
    assert turns.taken == 5


async def test_the_overview_is_answered_by_a_replica_that_is_not_ready(serve: Serve) -> None:
    client = await serve(pages_of(Browsing()), Switch({"nodes": "", "pods": "not listed yet"}))
    answer = await client.get("/v1/overview")
    overview = await answer.json()
    assert (answer.status, overview["ready"]) == (HTTPStatus.OK, False)
    assert overview["health"] == [
        {"check": "nodes", "status": "ok", "text": "ok"},
        {"check": "pods", "status": "failing", "text": "not listed yet"},
    ]


async def test_the_overview_warns_of_what_keeps_no_request_from_an_answer(serve: Serve) -> None:
    client = await serve(pages_of(Browsing(invalid_policies=2, rebuilds=1)))
    overview = await (await client.get("/v1/overview")).json()
    warnings = {each["check"]: each["text"] for each in overview["health"] if each["status"] == "warning"}
    assert warnings["policies"] == "2 scheduling policies are invalid and are not applied"
    assert "built again once" in warnings["index"]


async def test_the_overview_says_rates_and_what_runs(serve: Serve) -> None:
    client = await serve(pages_of(Browsing()))
    await asyncio.gather(*(client.post("/filter", json=BY_NAMES) for _ in range(3)))
    await client.post("/filter", data=b"{")
    overview = await (await client.get("/v1/overview")).json()
    rates = {each["verb"]: each for each in overview["verbs"]}
    assert (rates["filter"]["answers"], rates["filter"]["errors"], rates["bind"]["answers"]) == (4, 1, 0)
    assert 0 < rates["filter"]["p50Milliseconds"] <= rates["filter"]["p99Milliseconds"]
    assert overview["version"] == "1.2.3"
    assert overview["residentBytes"] > 2**20
    assert overview["freshnessSeconds"] == 0.5


# -- Explanations and the last answers about pods over HTTP; the document of the API has the errors that all share ---


async def test_a_pod_is_explained_by_its_name(serve: Serve) -> None:
    explainer = Answering()
    client = await serve(replace(AGREEABLE, explainer=explainer))
    answer = await client.get("/v1/explain/team-a/web-1?node=node-a")
    assert await answer.json() == {"pod": "team-a/web-1", "state": "pending", "nodes": 3, "passing": 0, "fitting": 0}
    assert explainer.requested == [("team-a/web-1", "node-a")]


async def test_a_pod_that_does_not_exist_is_explained_without_the_node_that_it_names(
    serve: Serve,
) -> None:
    explainer = Answering()
    client = await serve(replace(AGREEABLE, explainer=explainer))
    manifest = {"kind": "Pod", "metadata": {"name": "new"}, "spec": {"nodeName": "node-a", "containers": [CONTAINER]}}
    assert (await client.post("/v1/explain", json=manifest)).status == HTTPStatus.OK
    assert explainer.requested == [("default/new", "", "")]


@pytest.mark.parametrize(
    ("body", "field_at_fault"),
    [
        ({**POD, "kind": "Deployment"}, "kind"),
        ({"spec": {"containers": []}}, "metadata.name"),
        ({"metadata": {"name": "web"}}, "spec"),
        ({"metadata": {"name": "web"}, "spec": {"priority": "high"}}, "spec.priority"),
        ({"metadata": {"name": "web"}, "spec": {}}, "spec.containers"),
        ({"metadata": {"name": "web"}, "spec": {"containers": [CONTAINER], "toleration": []}}, "spec.toleration"),
        ([], ""),
    ],
)
async def test_a_body_that_is_no_pod_names_the_field(serve: Serve, body: Any, field_at_fault: str) -> None:
    client = await serve(replace(AGREEABLE, explainer=Answering()))
    answer = await client.post("/v1/explain", json=body)
    assert answer.status == HTTPStatus.BAD_REQUEST
    assert (await answer.json()).get("field", "") == field_at_fault


async def test_answers_about_a_pod_are_shown_the_latest_first(client: Client) -> None:
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


@pytest.mark.parametrize("query", ["limit=", "limit=0", "limit=1001", "limit=-1", "limit=²", "limit=x", "name=web-1"])
async def test_a_wrong_parameter_of_the_page_of_decisions_is_named(client: Client, query: str) -> None:
    answer = await client.get(f"/debug/decisions?{query}")
    assert (answer.status, (await answer.json())["field"]) == (HTTPStatus.BAD_REQUEST, query.partition("=")[0])


# -- What-ifs over HTTP: the bodies that are read, the clients that wait, and the time that others have ----------------

JSON = {"Content-Type": "application/json"}


async def test_the_body_is_passed_on_unread_and_the_answer_as_it_is(serve: Serve) -> None:
    answering = WhatIfAnswering()
    client = await serve(replace(AGREEABLE, what_ifs=answering))
    answer = await client.post("/v1/whatif", data=b"{anything", headers=JSON)
    assert (answer.status, await answer.json()) == (HTTPStatus.OK, {"summary": {"placed": 0, "rejected": 0}})
    assert answering.requested == [b"{anything"]


async def test_a_body_above_the_limit_of_the_server_is_too_large(serve: Serve) -> None:
    client = await serve(replace(AGREEABLE, what_ifs=WhatIfAnswering()), server=Server(max_body_bytes=ByteSize(10)))
    answer = await client.post("/v1/whatif", data=b" " * 11, headers=JSON)
    assert answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    assert await answer.json() == {"error": "request body is larger than server.maxBodyBytes (10)"}


async def test_an_answer_may_take_longer_than_other_requests_may(serve: Serve) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await serve(replace(AGREEABLE, what_ifs=answering), server=Server(request_timeout=Duration(0.25)))
    incoming = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.requested)
    late = await client.post("/v1/explain", data=b" ", headers={**JSON, "Content-Length": "2"})
    assert late.status == HTTPStatus.REQUEST_TIMEOUT  # begun later, and its time is over
    assert answering.may_answer is not None
    answering.may_answer.set()
    assert (await incoming).status == HTTPStatus.OK


async def test_a_client_that_goes_away_ends_the_computation(serve: Serve) -> None:
    answering = WhatIfAnswering(may_answer=asyncio.Event())
    client = await serve(replace(AGREEABLE, what_ifs=answering))
    incoming = asyncio.create_task(client.post("/v1/whatif", json={}))
    await until(lambda: answering.requested)
    incoming.cancel()  # aiohttp closes the connection
    await until(lambda: answering.cancelled == answering.requested)


@pytest.mark.parametrize(
    ("what_ifs", "ready", "text"),
    [
        (None, "", "not ready: whatIf.enabled is false; /readyz?verbose lists the checks"),
        (WhatIfAnswering(), "not listed yet", "not ready: pods; /readyz?verbose lists the checks"),
    ],
)
async def test_there_is_no_answer_where_none_can_be_given(
    serve: Serve, what_ifs: WhatIfAnswering | None, ready: str, text: str
) -> None:
    client = await serve(replace(AGREEABLE, what_ifs=what_ifs), Switch({"pods": ready}))
    answer = await client.post("/v1/whatif", json={})
    assert (answer.status, await answer.json()) == (HTTPStatus.SERVICE_UNAVAILABLE, {"error": text})
    assert what_ifs is None or not what_ifs.requested


# -- The OpenAPI document against the application: the same routes, and real answers that its schemas accept -----------


EXPLAIN = ("GET", "/v1/explain/{namespace}/{pod}")
EXPLAIN_GIVEN = ("POST", "/v1/explain")
DECISIONS = ("GET", "/debug/decisions")
SHADOW = ("GET", "/debug/shadow")
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
MANIFEST = ("GET", "/v1/manifests/{kind}/{name}")
MOVES = ("GET", "/v1/moves")
ALL = (MANIFEST, MOVES, EXPLAIN, EXPLAIN_GIVEN, WHAT_IF, DECISIONS, SHADOW, ABOUT, STREAM, OVERVIEW, *PAGES)


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
        validator_class().check_schema(schema)
        assert "``" not in schema["description"]
    operations = [each for item in DOCUMENT["paths"].values() for each in item.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for path, item in DOCUMENT["paths"].items():
        for each in item.values():
            in_path = {one["name"] for one in each.get("parameters", ()) if one["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_the_document_is_served(serve: Serve) -> None:
    answer = await send(await serve(), ABOUT)
    assert await accepted(answer, ABOUT) == DOCUMENT


async def test_answers_are_those_of_the_document(serve: Serve) -> None:
    verbs = service_of_objects(Settings(), CLUSTER, Random(0)).verbs
    client = await serve(verbs)
    explained = await accepted(await send(client, EXPLAIN, "?node=n1"), EXPLAIN)
    assert {"obstacles", "constraints", "node"} <= explained.keys()
    given = pod_json("new", app="web", apart=[term("zone", app="web")])
    explained = await accepted(await send(client, EXPLAIN_GIVEN, json=given), EXPLAIN_GIVEN)
    assert {each["kind"] for each in explained["changes"]} >= {"addNode", "movePod"}
    later = {"kind": "Job", "metadata": {"name": "later"}, "spec": {"suspend": True, "template": {"spec": {}}}}
    changes = {"delete": [{"kind": "Node", "name": "n0"}], "drain": ["n2"], "apply": [{**POD, "kind": "Pod"}, later]}
    placed = await accepted(await send(client, WHAT_IF, json=changes), WHAT_IF)
    assert placed["summary"] == {"placed": 2, "rejected": 1, "displaced": 1}
    assert {"obstacles", "reason"} <= placed["placements"][-1].keys()
    assert placed["notes"]
    overview = await accepted(await send(client, OVERVIEW), OVERVIEW)
    assert overview["features"]["whatif"]
    assert (overview["nodes"], overview["pods"], overview["pending"]) == (4, 3, 1)
    domains = await accepted(await send(client, TOPOLOGY, f"?key={ZONE}&selector=app=web&limit=1"), TOPOLOGY)
    assert (domains["domains"][0]["matching"], domains["more"]) == (1, 1)
    nodes = await accepted(await send(client, TOPOLOGY, f"?key={ZONE}&domain=z0"), TOPOLOGY)
    assert nodes["nodes"][0]["podNames"] == ["default/web-0"]
    choice = await accepted(await send(client, WORKLOADS), WORKLOADS)
    assert choice["workloads"][0]["constraints"] == {"podAntiAffinity": 1, "topologySpread": 1}
    counted = await accepted(await send(client, CONSTRAINTS), CONSTRAINTS)
    assert {each["kind"] for each in counted["constraints"]} == {"podAntiAffinity", "topologySpread"}
    for operation in IN_FLIGHT:
        page = await accepted(await send(client, operation), operation)
        assert [*page.values()] == [[]], "a snapshot has none"
    waiting = await accepted(await send(client, PENDING), PENDING)
    assert [each["pod"] for each in waiting["pods"]] == ["asking"]
    await client.post("/filter", json=BY_NAMES)
    page = await accepted(await send(client, DECISIONS, "?limit=1"), DECISIONS)
    assert page["decisions"][0]["reasons"] == ["unknown_node"]


async def test_shadow_decisions_are_shown_as_the_document_says(serve: Serve) -> None:
    client = await serve(replace(AGREEABLE, shadow=two_differences))
    page = await accepted(await send(client, SHADOW), SHADOW)
    assert (page["compared"], page["differ"], len(page["differences"])) == (11, 2, 2)
    (found,) = (await accepted(await send(client, SHADOW, "?limit=1"), SHADOW))["differences"]
    assert (found["boundTo"], found["count"], found["limit"], found["blamed"]) == ("general-0", 3, 2, ["shop/web-0"])
    wrong = await send(client, SHADOW, "?limit=0")
    assert (wrong.status, (await wrong.json())["field"]) == (HTTPStatus.BAD_REQUEST, "limit")


async def test_where_no_decisions_are_compared_it_is_said(serve: Serve) -> None:
    answer = await send(await serve(replace(AGREEABLE, shadow=None)), SHADOW)
    assert answer.status == HTTPStatus.NOT_FOUND
    assert (await answer.json())["error"] == "no decisions are compared here: shadow is false"


async def test_moves_are_shown_as_the_document_says(serve: Serve) -> None:
    row = MoveRow("shop/web", "TopologySpread", "skewed", "n0", "ClusterPodSchedulingPolicy/watch", "stuck", why="full")
    asked = []

    def moves(namespace: str, most: int) -> MovesAnswer:
        asked.append((namespace, most))
        return MovesAnswer(stuck=(row,), before=1, after=1)

    client = await serve(replace(AGREEABLE, moves=moves))
    page = await accepted(await send(client, MOVES, "?namespace=shop&limit=3"), MOVES)
    assert ([each["why"] for each in page["stuck"]], asked) == (["full"], [("shop", 3)])
    wrong = await send(client, MOVES, "?limit=0")
    assert (wrong.status, (await wrong.json())["field"]) == (HTTPStatus.BAD_REQUEST, "limit")


async def test_where_nothing_is_watched_it_is_said(serve: Serve) -> None:
    answer = await send(await serve(replace(AGREEABLE, moves=None)), MOVES)
    assert answer.status == HTTPStatus.NOT_FOUND
    assert "execution.enabled is false" in (await accepted(answer, MOVES))["error"]


WRONG_CONTAINERS: list[list[Json]] = [[], [{}], [{"name": "a"}], [{"image": "a"}]]


async def test_a_body_that_the_schema_refuses_is_malformed(client: Client) -> None:
    content = DOCUMENT["paths"]["/v1/explain"]["post"]["requestBody"]["content"]["application/json"]
    validator = validator_class()(content["schema"])
    bodies: list[Any] = [POD, pod_json("new"), [], {}, {**POD, "kind": "Node"}, {"metadata": {"name": "a"}}]
    bodies += [{"metadata": {"name": ""}, "spec": {}}, {"metadata": {}, "spec": {}}, {**POD, "spec": {}}]
    bodies += [{**POD, "spec": {"containers": listed}} for listed in WRONG_CONTAINERS]
    for body in bodies:
        answer = await client.post("/v1/explain", json=body)
        assert answer.status == (HTTPStatus.OK if validator.is_valid(body) else HTTPStatus.BAD_REQUEST), body
        await accepted(answer, EXPLAIN_GIVEN)


@pytest.mark.parametrize("operation", ALL)
async def test_errors_that_any_request_may_have(monkeypatch: pytest.MonkeyPatch, operation: tuple[str, str]) -> None:
    async with connected(Tls()) as client:
        answers = [
            await send(client, operation, "?never=1"),
            await send(client, operation, headers={"Content-Encoding": "br"}, json=None, data=b"{}"),
            await send(client, operation, chunked=True, json=None, data=b"{}"),
        ]
        monkeypatch.setattr(request_checks, "_is_local", lambda _address: False)
        answers.append(await send(client, operation))
        bodies = [await accepted(each, operation) for each in answers]
    async with connected(Tls("cert", "key", "ca")) as client:
        answers.append(await send(client, operation))
        await accepted(answers[-1], operation)
    assert [each.status for each in answers] == [400, 415, 411, 403, 401]
    assert bodies[0]["field"] == "never"


EXPLAINED = (EXPLAIN, EXPLAIN_GIVEN)
COMPUTED = (*EXPLAINED, WHAT_IF, OVERVIEW, *PAGES)
FAILURES = [
    *((operation, NoAnswerCause.UNKNOWN, HTTPStatus.NOT_FOUND) for operation in EXPLAINED),
    *((operation, NoAnswerCause.BUSY, HTTPStatus.TOO_MANY_REQUESTS) for operation in COMPUTED),
    *((operation, NoAnswerCause.TOO_EXPENSIVE, HTTPStatus.REQUEST_ENTITY_TOO_LARGE) for operation in COMPUTED),
    (WHAT_IF, NoAnswerCause.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE),
    (WHAT_IF, NoAnswerCause.FAILED, HTTPStatus.INTERNAL_SERVER_ERROR),
]


@pytest.mark.parametrize(("operation", "cause", "status"), FAILURES)
async def test_a_computation_that_fails_is_an_error_of_the_document(
    serve: Serve, operation: tuple[str, str], cause: NoAnswerCause, status: HTTPStatus
) -> None:
    problem = NotExplained(cause, "because")
    what_ifs = WhatIfAnswering(problem=what_if.NotComputed(cause, "because"))
    verbs = replace(AGREEABLE, explainer=Answering(problem=problem), browser=Browsing(problem), what_ifs=what_ifs)
    answer = await send(await serve(verbs), operation, PAGES.get(operation, ""))
    assert answer.status == status
    error = (await accepted(answer, operation))["error"]
    assert error.endswith("because") or cause is NoAnswerCause.FAILED


@pytest.mark.parametrize("operation", [*EXPLAINED, *PAGES])
async def test_nothing_is_computed_before_the_index_is_complete(serve: Serve, operation: tuple[str, str]) -> None:
    client = await serve(replace(AGREEABLE, browser=Browsing()), Switch({"pods": "not listed yet"}))
    answer = await send(client, operation, PAGES.get(operation, ""))
    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    text = "not ready: pods; /readyz?verbose lists the checks"
    assert (await accepted(answer, operation))["error"] == text


async def test_a_body_above_its_limit_and_a_bug_have_errors_of_the_document(serve: Serve) -> None:
    large = await send(await serve(), EXPLAIN_GIVEN, json=[" " * (256 * 2**10)])
    assert large.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    await accepted(large, EXPLAIN_GIVEN)
    broken = await send(await serve(replace(AGREEABLE, explainer=Broken())), EXPLAIN)
    assert broken.status == HTTPStatus.INTERNAL_SERVER_ERROR
    await accepted(broken, EXPLAIN)

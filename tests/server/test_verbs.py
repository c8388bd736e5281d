"""The verbs' handlers, from body to answer, over a real connection."""

from dataclasses import replace

import pytest
from pytest_aiohttp.plugin import AiohttpClient

from extender.model.rejections import Reason
from extender.server.app import make_app
from extender.server.collaborators import Verbs
from extender.settings.configuration import Settings
from extender.settings.connections import Paths, Server
from extender.settings.limits import Limits
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.builders import pod_json, term
from tests.server.serving import (
    AGREEABLE,
    BY_NAMES,
    BY_NODES,
    NODES,
    PREEMPTION,
    Switch,
    app_with,
    every_candidate,
    scores_by_length,
)


async def test_filter_asked_by_names_answers_by_names(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post("/filter", json=BY_NAMES)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert await answer.json() == {
        "Nodes": None,
        "NodeNames": ["node-a", "node-bb"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


async def test_filter_asked_with_nodes_answers_those_nodes_unchanged(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await (await client.post("/filter", json=BY_NODES)).json()
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == NODES


async def test_a_pod_above_a_limit_of_the_settings_is_counted_under_the_limits(aiohttp_client: AiohttpClient) -> None:
    async def rejected(args: ExtenderArgs) -> FilterResult:
        excess = args.pod.signature.excess
        assert excess is not None
        return FilterResult((), unresolvable={"node-a": excess.text}, reasons=frozenset((Reason.OVER_LIMIT,)))

    settings = Settings(limits=Limits(affinity_terms=1))
    metrics = Metrics("1")
    decisions = replace(AGREEABLE, filter=rejected)
    client = await aiohttp_client(make_app(settings, decisions, Switch(), metrics, "1"))
    asked = pod_json(apart=[term(app="a"), term(app="b")])
    answer = await (await client.post("/filter", json={"Pod": asked, "NodeNames": ["node-a"]})).json()
    text = "spec.affinity: 2 terms of pods, limits.affinityTerms is 1"
    assert answer["FailedAndUnresolvableNodes"] == {"node-a": text}
    assert b'extender_filter_rejections_total{reason="over_limit"} 1.0' in metrics.render()


async def test_prioritize_answers_a_bare_list_of_scores(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post("/prioritize", json=BY_NAMES)
    assert await answer.json() == [{"Host": "node-a", "Score": 6}, {"Host": "node-bb", "Score": 7}]


async def test_preempt_answers_the_candidates_by_uid(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post("/preempt", json=PREEMPTION)
    assert await answer.json() == {
        "NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": "u-9"}], "NumPDBViolations": 1}}
    }


async def test_the_verbs_answer_under_the_paths_of_the_settings(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with(server=Server(paths=Paths(filter="/scheduler/v1/predicates"))))
    assert (await client.post("/scheduler/v1/predicates", json=BY_NAMES)).status == 200
    assert (await client.post("/filter", json=BY_NAMES)).status == 404


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "application/octet-stream"])
async def test_a_content_type_that_no_page_sends_without_asking_does_not_matter(
    aiohttp_client: AiohttpClient, content_type: str
) -> None:
    client = await aiohttp_client(app_with())
    body = b'{"Pod": {"metadata": {"name": "web-1", "uid": "u-1"}}, "NodeNames": ["node-a"]}'
    answer = await client.post("/filter", data=body, headers={"Content-Type": content_type})
    assert (await answer.json())["NodeNames"] == ["node-a"]


async def test_unknown_fields_are_ignored_as_go_does(aiohttp_client: AiohttpClient) -> None:
    client = await aiohttp_client(app_with())
    answer = await client.post("/filter", json=BY_NAMES | {"Novelty": {"deep": [1]}})
    assert (await answer.json())["NodeNames"] == ["node-a", "node-bb"]


async def test_requests_nodes_and_rejections_are_counted(aiohttp_client: AiohttpClient) -> None:
    async def nothing_passes(args: ExtenderArgs) -> FilterResult:
        texts = dict.fromkeys(args.node_names or (), Reason.AFFINITY.text)
        return FilterResult((), unresolvable=texts, reasons=frozenset((Reason.AFFINITY,)))

    client = await aiohttp_client(app_with(Verbs(nothing_passes, scores_by_length, every_candidate)))
    await client.post("/filter", json=BY_NAMES)
    page = await (await client.get("/metrics")).text()
    assert 'extender_requests_total{code="200",verb="filter"} 1.0' in page
    assert 'extender_request_nodes_sum{verb="filter"} 2.0' in page
    assert "extender_filter_passed_nodes_sum 0.0" in page
    assert 'extender_filter_rejections_total{reason="affinity"} 1.0' in page
    assert 'extender_request_duration_seconds_count{verb="filter"} 1.0' in page


async def test_a_pod_that_cannot_be_decided_is_reported_in_the_error_and_counted(aiohttp_client: AiohttpClient) -> None:
    async def gives_up(_: ExtenderArgs) -> FilterResult:
        return FilterResult((), error="pod has constraints that cannot be parsed")

    client = await aiohttp_client(app_with(Verbs(gives_up, scores_by_length, every_candidate)))
    answer = await client.post("/filter", json=BY_NAMES)
    assert (await answer.json())["Error"] == "pod has constraints that cannot be parsed"
    page = await (await client.get("/metrics")).text()
    assert 'extender_request_failures_total{reason="undecidable",verb="filter"} 1.0' in page

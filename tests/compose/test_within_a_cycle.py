"""The running service, asked by filter and then by prioritize for one pod, while the cluster changes in between.

KEP-2249, Design Details: labels of namespaces that change during the scheduling cycle of a pod lead to a consistent decision.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import aiohttp
import pytest

from extender.compose.embedded import FREE_PORT
from extender.simulator.json_objects import JsonObject
from tests.builders import PREFERRED, settings
from tests.compose.services import beside
from tests.fakes import PATIENCE
from tests.simulator.plain import ZONE, anti_affinity, namespace, node, pod, term

NODES = ["n0", "n1", "n2", "n3"]
AWAY_FROM_NOISE = term(ZONE, namespaces={"matchLabels": {"team": "noisy"}}, app="noise")
NEAR_CACHES = {"weight": 1, "podAffinityTerm": term(ZONE, namespaces={"matchLabels": {"team": "caches"}}, app="cache")}
INCOMING = pod(
    "web",
    affinity=anti_affinity(AWAY_FROM_NOISE) | {"podAffinity": {PREFERRED: [NEAR_CACHES]}},
)
INCOMING["metadata"]["uid"] = "uid-web"
Scores = dict[str, int]


def cache(name: str, on: str) -> tuple[str, str, JsonObject]:
    """One more pod that the incoming one prefers to be near."""
    return "POST", "/api/v1/namespaces/data/pods", pod(name, "data", on=on, labels={"app": "cache"})


def labelled(path: str, **labels: str) -> tuple[str, str, JsonObject]:
    return "PATCH", f"/api/v1/{path}", {"metadata": {"labels": labels}}


# Each with the scores that follow: the cache is on n0, the noise on n3, which filter rejects.
CHANGES: list[tuple[str, str, JsonObject | None, Scores]] = [
    (*cache("c1", "n1"), {"n0": 10, "n1": 10, "n2": 0}),
    (*cache("c2", "n1"), {"n0": 5, "n1": 10, "n2": 0}),
    ("DELETE", "/api/v1/namespaces/data/pods/c0", None, {"n0": 0, "n1": 10, "n2": 0}),
    (*labelled("nodes/n2", **{ZONE: "z1"}), {"n0": 0, "n1": 10, "n2": 10}),
    (*cache("c3", "n0"), {"n0": 0, "n1": 10, "n2": 10}),
    ("DELETE", "/api/v1/nodes/n1", None, {"n0": 10, "n2": 0}),
    (*labelled("namespaces/data", team="none"), {}),
    (*labelled("namespaces/loud", team="none"), {}),
    (*labelled("namespaces/data", team="caches"), {"n0": 10, "n2": 0}),
    ("PATCH", "/api/v1/nodes/n0", {"spec": {"unschedulable": True}}, {"n0": 10, "n2": 0}),
    ("DELETE", "/api/v1/namespaces/default/pods/web", None, {}),
]
MERGE = {"PATCH": {"Content-Type": "application/merge-patch+json"}, "POST": {}, "DELETE": {}}
MODES = {
    "cooperative": settings(placement="cooperative", server={"bindAddress": str(FREE_PORT)}),
    "augment": settings(
        mode="augment",
        rules={"interPodAffinity": {"enabled": True}},
        server={"bindAddress": str(FREE_PORT)},
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", ["names", "whole nodes"])
async def test_prioritize_is_at_least_as_new_as_filter_and_scores_only_its_nodes(mode: str, form: str) -> None:
    """After each change prioritize is asked until the watch has shown it. It never fails, and n3 never has a score.

    Whole nodes are those that the scheduler had when its cycle began, so an answer by their labels would be older than filter's.
    """
    places = [node(name, zone=f"z{name[1:]}") for name in NODES]
    spaces = [namespace("default"), namespace("data", team="caches"), namespace("loud", team="noisy")]
    noise = pod("noise", "loud", on="n3", labels={"app": "noise"})
    objects = [*spaces, *places, INCOMING, noise, pod("c0", "data", on="n0", labels={"app": "cache"})]
    nodes: JsonObject = {"NodeNames": NODES} if form == "names" else {"Nodes": {"items": places}}
    body = {"Pod": INCOMING, **nodes}
    async with beside(objects, MODES[mode]) as (url, _, api, http):
        async with http.post(f"{url}/filter", json=body) as answer:
            found = await answer.json(content_type=None)
        passed = found["NodeNames"] or [each["metadata"]["name"] for each in found["Nodes"]["items"]]
        assert passed == ["n0", "n1", "n2"]
        assert await scores(http, url, body) == {"n0": 10, "n1": 0, "n2": 0}
        # The nodes of the cycle's begin, n3 too: also a scheduler that asks about it gets no score for it.
        for method, path, change, expected in CHANGES:
            async with http.request(method, api.url + path, json=change, headers=MERGE[method]) as written:
                assert written.status < HTTPStatus.BAD_REQUEST, await written.text()
            async with asyncio.timeout(PATIENCE):
                while (now := await scores(http, url, body)) != expected:
                    assert set(now) <= set(passed), (method, path, now)


async def scores(http: aiohttp.ClientSession, url: str, body: JsonObject) -> Scores:
    """The answer of prioritize, by node; an error fails."""
    async with http.post(f"{url}/prioritize", json=body) as answer:
        assert answer.status == HTTPStatus.OK, await answer.text()
        return {each["Host"]: each["Score"] for each in await answer.json(content_type=None)}

"""Reviews that no API server sends, against the real verb over HTTP: each gets an answer, and the next one too."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from typing import Any, TypeAlias

import aiohttp
import orjson
import pytest

from tests.builders import REQUIRED, requirement
from tests.compose.admission import Cluster, enabled, running
from tests.deploy.policies.examples import FULL, policy
from tests.simulator.plain import anti_affinity, pod, term
from tests.verbs.admit.reviewing import review

Path: TypeAlias = tuple[str | int, ...]

SPOILED: tuple[Any, ...] = (None, 5, True, "text", [], [None], {}, {"a": 1})
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "one",
        "namespace": "default",
        "labels": {"app": "db"},
        "annotations": {"placement.extender.dev/injected": "{}"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True, "uid": "u"}
        ],
    },
    "spec": {
        **pod("one")["spec"],
        "schedulerName": "default-scheduler",
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": anti_affinity(term("zone", app="db"))
        | {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement("a", "In", ["b"])]}]}}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "schedulingGates": [{"name": "example.com/hold"}],
    },
}
DIRECTIVES = {
    name: value
    for name, value in FULL["spec"].items()
    if name in {"affinity", "tolerations", "topologySpreadConstraints", "schedulerNames", "nodeSelector"}
}


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every place in a value."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, each in value.items():
            yield from places(each, (*path, name))
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from places(each, (*path, number))


def spoiled(good: dict[str, Any]) -> Iterator[tuple[Path, Any, dict[str, Any]]]:
    """The review with one value replaced by another that is no good there, for each place."""
    for path in places(good):
        for value in SPOILED:
            bad = deepcopy(good)
            place: Any = bad
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = value
            yield path, value, bad


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster whose policy reads every part of a pod that a policy can read."""
    async with running(enabled()) as found:
        code, _ = await found.apply(policy("PodSchedulingPolicy", **DIRECTIVES))
        assert code == 201
        yield found


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/mutate", review(POD, namespace="default")),
        ("/validate", review(policy("PodSchedulingPolicy", **DIRECTIVES), namespace="default")),
    ],
    ids=["pods", "policies"],
)
async def test_each_review_with_a_bad_value_is_answered(cluster: Cluster, path: str, good: dict[str, Any]) -> None:
    statuses: Counter[int] = Counter()
    connector = aiohttp.TCPConnector(ssl=False, limit=1)
    async with aiohttp.ClientSession(cluster.admission.url, connector=connector) as session:
        for place, value, bad in spoiled(good):
            async with session.post(path, data=orjson.dumps(bad)) as answer:
                body = await answer.json()
            statuses[answer.status] += 1
            assert answer.status in {200, 400}, (place, value, body)
            if answer.status == 200:
                assert body["response"]["uid"] == bad["request"]["uid"], (place, value)
            else:
                assert body["error"], (place, value)
        async with session.post(path, data=orjson.dumps(good)) as answer:
            assert (answer.status, (await answer.json())["response"]["allowed"]) == (200, True)
    assert statuses[200] > 300
    assert statuses[400] > 10


async def test_a_pod_of_3_mb_is_injected(cluster: Cluster) -> None:
    large = deepcopy(POD)
    large["spec"]["containers"] = [{"name": f"c{n}", "env": [{"name": "A", "value": "x" * 1000}]} for n in range(2900)]
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(cluster.admission.url, connector=connector) as session:
        body = orjson.dumps(review(large, namespace="default"))
        assert len(body) > 3_000_000
        async with session.post("/mutate", data=io.BytesIO(body)) as answer:
            response = (await answer.json())["response"]
    assert (response["allowed"], response["patchType"]) == (True, "JSONPatch")

"""The rules for updates of a pod, against a real apiserver: each update of the parity cases is sent, and the answers compared.

What the apiserver adds to a pod when it is created (tolerations, a priority) is added to the new pod as well.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from extender.model.release import GroupDecision, GroupKey, Level
from extender.simulator.apiserver.patching import STRATEGIC
from extender.simulator.apiserver.pod_updates import allowed
from extender.simulator.json_objects import JsonObject
from extender.verbs.release.progress import release_patch
from tests.e2e.client import Api, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.random_updates import edit_randomly, random_pod
from tests.parity.runner import cases

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_CASES = Path(__file__).resolve().parents[1] / "parity/cases/updates-open.ndjson.gz"
_EVERY = 4  # one of so many cases is sent
_RANDOM_PODS = 50
_UPDATES_OF_EACH = 4
_PODS = "/api/v1/namespaces/default/pods"


async def sent(api: Api) -> AsyncIterator[tuple[str, JsonObject, JsonObject, JsonObject]]:
    """The name of a case, the pod as it was stored, the new one, and the apiserver's answer to the update."""
    for number, case in enumerate(cases(_CASES)):
        if number % _EVERY:
            continue
        pod = {**case["old"], "metadata": {"name": f"p{number}", "namespace": "default"}}
        stored = await api.request("POST", _PODS, pod, allow=[422])
        if stored["kind"] == "Status":  # old pods that only an earlier apiserver accepted
            continue
        spec = {**stored["spec"], **case["new"]["spec"]}
        for name in case["old"]["spec"].keys() - case["new"]["spec"].keys():
            del spec[name]
        added = stored["spec"]["tolerations"][len(case["old"]["spec"].get("tolerations") or []) :]
        spec["tolerations"] = (case["new"]["spec"].get("tolerations") or []) + added
        metadata = {**stored["metadata"], "labels": case["new"]["metadata"].get("labels")}
        new = {**stored, "metadata": metadata, "spec": spec}
        yield case["id"], stored, new, await api.request("PUT", pod_path(stored), new, allow=[422])


def causes(answer: JsonObject) -> set[tuple[str, str]]:
    """The errors of an answer as field and type; none of one that was accepted."""
    found = answer["details"]["causes"] if answer["kind"] == "Status" else []
    return {(cause["field"], cause["reason"]) for cause in found}


async def test_the_verdict_and_the_errors_are_those_of_the_apiserver(cluster: Cluster) -> None:
    compared, different = 0, {}
    async for name, stored, new, answer in sent(cluster.api):
        compared += 1
        real = causes(answer)
        ours = {(error.field, str(error.type)) for error in allowed(stored, new).errors}
        if real != ours:
            different[name] = (ours, real)
    assert different == {}
    assert compared > 150


@pytest.mark.parametrize("seed", range(3))
async def test_random_updates_get_the_answer_of_the_apiserver(cluster: Cluster, seed: int) -> None:
    rng, different = Random(seed), dict[str, object]()
    for number in range(_RANDOM_PODS):
        stored = await cluster.api.request("POST", _PODS, random_pod(f"pod-{seed}-{number}", rng))
        for _ in range(_UPDATES_OF_EACH):
            new = deepcopy(stored)
            edits = edit_randomly(new, rng)
            answer = await cluster.api.request("PUT", pod_path(stored), new, params={"dryRun": "All"}, allow=[422])
            real = causes(answer)
            ours = {(error.field, str(error.type)) for error in allowed(stored, new).errors}
            if real != ours:
                different[", ".join(edits)] = (ours, real)
    assert different == {}


_DOMAINS = {
    "pinned": (Level("topology.kubernetes.io/zone", "z1"), Level("example.com/rack", "r1")),
    "set": (Level("topology.kubernetes.io/zone", "z1", ("z1", "z2"), ("z2",)),),
}


@pytest.mark.parametrize("domain", _DOMAINS)
async def test_a_gated_pod_is_narrowed_and_released_by_one_patch(cluster: Cluster, domain: str) -> None:
    """Every patch that `release_patch` makes for the pods of the cases is accepted, and removes our gate only."""
    levels = _DOMAINS[domain]
    pinned = {level.key: level.value for level in levels if not level.values}
    group = GroupKey("default", "PodSchedulingPolicy/default/rings", "ring")
    patched = 0
    for number, case in enumerate(cases(_CASES)):
        gates = case["old"]["spec"].get("schedulingGates") or []
        if number % _EVERY or not gates:
            continue
        decision = GroupDecision(group, gates[0]["name"], 1, levels, datetime(2026, 3, 1, tzinfo=UTC))
        pod = {**case["old"], "metadata": {"name": f"{domain}{number}", "namespace": "default"}}
        stored = await cluster.api.request("POST", _PODS, pod, allow=[422])
        if stored["kind"] == "Status":
            continue
        patch = release_patch(stored, decision)
        assert isinstance(patch, dict)
        released = await cluster.api.request("PATCH", pod_path(stored), patch, content_type=STRATEGIC)
        assert (released["spec"].get("schedulingGates") or []) == gates[1:]
        assert released["spec"].get("nodeSelector", {}) == stored["spec"].get("nodeSelector", {}) | pinned
        assert (await cluster.api.request("PATCH", pod_path(stored), patch, content_type=STRATEGIC, allow=[409]))[
            "code"
        ] == 409
        patched += 1
    assert patched > 100

"""The CRD of group placements on a real apiserver: our writes are accepted, and bad ones refused with their field."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from extender.model.group_placements import MOST_RECORDED, PlacementStatus
from extender.model.release import BroughtToleration, GroupDecision, GroupKey, GroupPhase, Level
from extender.simulator.json_objects import JsonObject
from extender.wire.policies.group_placements import decision_body, status_body, undecided_body
from tests.e2e.client import Api
from tests.e2e.cluster import Cluster
from tests.e2e.policing import established

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GROUP = GroupKey("default", "PodSchedulingPolicy/default/gangs", "train-7")
SPOT = Level("zone", "a", tolerations=(BroughtToleration("spot", "Exists", "", "NoExecute", 60),))
DECISION = GroupDecision(GROUP, "placement.extender.dev/group", 4, (SPOT, Level("rack", "r1")), NOON)
PATH = "/apis/placement.extender.dev/v1alpha1/namespaces/default/groupplacements"
STRICT = {"fieldValidation": "Strict"}


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """A client of an apiserver that serves the kind; what a test creates is removed."""
    await established(cluster.api)
    yield cluster.api
    for each in (await cluster.api.list(PATH))[0]:
        await cluster.api.delete(f"{PATH}/{each['metadata']['name']}")


def named(body: JsonObject) -> str:
    return f"{PATH}/{body['metadata']['name']}"


async def test_a_group_is_written_before_and_after_its_decision(api: Api) -> None:
    created = await api.request("POST", PATH, undecided_body(GROUP, DECISION.gate, 4), params=STRICT)
    recorded = [f"{at:036}" for at in range(MOST_RECORDED)]
    body = decision_body(DECISION, created["metadata"]["resourceVersion"], pods=recorded)
    replaced = await api.request("PUT", named(body), body, params=STRICT)
    assert replaced["spec"] == body["spec"]
    assert (await api.request("PUT", named(body), body, allow=[409]))["reason"] == "Conflict"
    status = status_body(PlacementStatus(GroupPhase.RELEASING, 4, 2, 1, "Releasing", "2 of 4 released"), NOON)
    patched = await api.patch(f"{named(body)}/status", {"status": status})
    assert (patched["status"], patched["spec"]) == (status, body["spec"])


async def test_kubectl_get_shows_the_finest_level_as_the_domain(api: Api) -> None:
    body = decision_body(DECISION)
    await api.request("POST", PATH, body)
    await api.patch(f"{named(body)}/status", {"status": status_body(PlacementStatus(GroupPhase.BOUND, 4, 4, 4), NOON)})
    as_table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}  # what kubectl get asks for
    table = await api.request("GET", PATH, headers=as_table)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Policy", "Group", "Phase", "Domain", "Ready", "Released", "Bound", "Size", "Age"]
    (row,) = table["rows"]
    assert row["cells"][1:-1] == [GROUP.policy, "train-7", "Bound", "r1", 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"group": "other"}, "spec.group"),
        ({"policy": "PodSchedulingPolicy/default/other"}, "spec.policy"),
        ({"decided": None}, "spec.decided"),
        ({"size": 0}, "spec.size"),
        ({"gate": "no gate"}, "spec.gate"),
    ],
    ids=["another group", "another policy", "a domain without a decision", "no pods", "a malformed gate"],
)
async def test_what_would_mislead_a_later_leader_is_refused(api: Api, change: dict[str, Any], field: str) -> None:
    body = decision_body(DECISION)
    await api.request("POST", PATH, body)
    refused = await api.request(
        "PATCH", named(body), {"spec": change}, allow=[422], content_type="application/merge-patch+json"
    )
    assert field in [cause["field"] for cause in refused["details"]["causes"]]

"""What an update of a pod may change, and the answer to one that changes more: as a real API server."""

import pytest

from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject
from tests.simulator.client import Client
from tests.simulator.plain import ZONE, pod

DEFAULT = "/api/v1/namespaces/default/pods"
GATES: list[JsonObject] = [{"name": "example.com/quota"}, {"name": RELEASE_GATE}]


async def test_a_change_of_what_is_immutable_is_refused_with_its_field(client: Client) -> None:
    await client.post(DEFAULT, pod("a"))
    code, body = await client.patch(f"{DEFAULT}/a", {"spec": {"nodeSelector": {ZONE: "z1"}}})
    assert (code, body["reason"], body["details"]["name"], body["details"]["kind"]) == (422, "Invalid", "a", "Pod")
    (cause,) = body["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("spec", "FieldValueForbidden")
    assert body["message"] == f'Pod "a" is invalid: spec: {cause["message"]}'


async def test_every_error_of_an_update_is_a_cause(client: Client) -> None:
    await client.post(DEFAULT, pod("a", schedulingGates=GATES, nodeSelector={ZONE: "z1"}))
    wrong = {"spec": {"nodeSelector": {ZONE: "z2"}, "schedulingGates": [{"name": "example.com/new"}]}}
    code, body = await client.patch(f"{DEFAULT}/a", wrong)
    assert code == 422
    assert [cause["field"] for cause in body["details"]["causes"]] == [
        "spec.schedulingGates[0].name",
        "spec.nodeSelector",
    ]
    assert body["message"].startswith('Pod "a" is invalid: [spec.schedulingGates[0].name: Forbidden: ')
    _, stored = await client.get(f"{DEFAULT}/a")
    assert (stored["spec"]["nodeSelector"], stored["spec"]["schedulingGates"]) == ({ZONE: "z1"}, GATES)


async def test_a_version_that_has_passed_is_a_conflict_before_anything_is_checked(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    await client.patch(f"{DEFAULT}/a", {"metadata": {"labels": {"seen": "yes"}}})
    version = made["metadata"]["resourceVersion"]
    wrong = {"metadata": {"resourceVersion": version}, "spec": {"nodeSelector": {ZONE: "z1"}}}
    assert (await client.patch(f"{DEFAULT}/a", wrong))[0] == 409


async def test_default_tolerations_that_an_update_leaves_out_are_added_again(client: Client) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    code, changed = await client.patch(f"{DEFAULT}/a", {"spec": {"tolerations": None}})
    assert (code, changed["spec"]["tolerations"]) == (200, made["spec"]["tolerations"])


@pytest.mark.parametrize("spec", [7, {"tolerations": 7}, {"tolerations": [7]}, {"containers": 7}, None])
async def test_a_spec_of_wrong_types_is_refused(client: Client, spec: object) -> None:
    _, made = await client.post(DEFAULT, pod("a"))
    code, body = await client.request("PUT", f"{DEFAULT}/a", {**made, "spec": spec})
    assert (code, body["reason"]) == (422, "Invalid")


async def test_a_pod_has_no_gate_and_a_node_at_once(client: Client) -> None:
    code, body = await client.post(DEFAULT, pod("a", on="n1", schedulingGates=GATES))
    assert (code, body["details"]["causes"][0]["field"]) == (422, "spec.nodeName")
    assert (await client.get(f"{DEFAULT}/a"))[0] == 404

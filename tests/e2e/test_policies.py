"""Policies on a real apiserver: it asks our webhook, trusts our authority, and loses no pod while certificates change."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
import yaml

from extender.model.release import RELEASE_GATE
from extender.simulator.json_objects import JsonObject
from tests.builders import REQUIRED
from tests.deploy.building import overlay_with
from tests.deploy.policies.examples import policy
from tests.e2e.client import NAMESPACES, connect, path_of
from tests.e2e.cluster import Cluster
from tests.e2e.overlays import kubectl
from tests.e2e.policing import MUTATING, PODS, SECRET, VALIDATING, Policed, db_pod, policed
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

POOL = {
    "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}
}


@pytest.mark.parametrize("name", ["service", "second-scheduler"])
async def test_kubectl_applies_the_overlay_with_policies(cluster: Cluster, name: str) -> None:
    documents = [each for each in overlay_with("policies", name) if each["kind"] != "Namespace"]
    spaces = {each["metadata"]["namespace"] for each in documents if "namespace" in each["metadata"]}
    for space in spaces:
        await cluster.api.request("POST", NAMESPACES, {"metadata": {"name": space}}, allow=[409])
    said = await kubectl(cluster, "apply", "--dry-run=server", "--validate=strict", documents=documents)
    assert len(said.splitlines()) == len(documents)


@pytest.fixture
async def found(cluster: Cluster) -> AsyncIterator[Policed]:
    async with policed(cluster) as opened:
        yield opened


@pytest.mark.core("policies by the webhook")
async def test_a_pod_is_injected_by_the_webhook_that_the_leader_registered(found: Policed) -> None:
    await found.api.request(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "policed"}, "value": 1000},
        allow=[409],
    )
    directives: dict[str, Any] = {
        "affinity": POOL,
        "schedulerName": "ours",
        "tolerations": [{"key": "db", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "db"}},
                "matchLabelKeys": ["app.kubernetes.io/version"],
            }
        ],
        "schedulingGates": [{"name": "example.com/hold"}],
        "priorityClassName": "policed",
    }
    await found.apply(policy("PodSchedulingPolicy", **directives))
    made = (await found.api.request("POST", PODS, db_pod("one")))["spec"]
    assert made["affinity"] == POOL
    assert (made["schedulerName"], made["priorityClassName"], made["priority"]) == ("ours", "policed", 1000)
    assert {"key": "db", "operator": "Exists"} in made["tolerations"]
    assert made["topologySpreadConstraints"][0]["topologyKey"] == "zone"
    assert made["schedulingGates"] == [{"name": "example.com/hold"}]
    assert await found.extender.metric("extender_admission_reviews_total", kind="Pod", result="patched") == 1


@pytest.mark.core("policies by the webhook")
async def test_a_new_pod_waits_at_the_gate_of_the_policy_that_releases_it(found: Policed) -> None:
    release = {"topology": ["topology.kubernetes.io/zone"], "size": {"count": 2}}
    await found.apply(policy("PodSchedulingPolicy", when=["Release"], release=release))
    made = await found.api.request("POST", PODS, db_pod("gated"))
    assert made["spec"]["schedulingGates"] == [{"name": RELEASE_GATE}]
    (condition,) = made["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    with_node = await found.api.request("POST", PODS, db_pod("placed", nodeName="n1"))
    assert "schedulingGates" not in with_node["spec"]


async def test_the_template_of_a_deployment_is_injected_once_however_often_it_is_applied(found: Policed) -> None:
    await found.apply(policy("PodSchedulingPolicy", affinity=POOL, targets="Templates"))
    path = "/apis/apps/v1/namespaces/default/deployments"
    try:
        made = await found.api.request("POST", path, a_deployment("db"))
        assert made["spec"]["template"]["spec"]["affinity"] == POOL
        for number in range(2):
            changed = await found.api.patch(f"{path}/db", {"metadata": {"labels": {"n": str(number)}}})
            assert changed["spec"]["template"] == made["spec"]["template"]
            assert changed["metadata"]["generation"] == made["metadata"]["generation"]
    finally:
        await found.api.delete(f"{path}/db")


def a_deployment(name: str) -> JsonObject:
    """Without pods: no controller runs."""
    template = {"metadata": {"labels": {"app": "db"}}, "spec": db_pod("x")["spec"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, "template": template},
    }


async def test_an_annotation_after_a_change_of_a_policy_changes_the_template_of_a_deployment(found: Policed) -> None:
    """Its controller then rolls out: the documents say so."""
    path = "/apis/apps/v1/namespaces/default/deployments"
    try:
        made = await found.api.request("POST", path, a_deployment("db"))
        await found.apply(policy("PodSchedulingPolicy", affinity=POOL, targets="Both"))
        scaled = await found.api.patch(f"{path}/db/scale", {"spec": {"replicas": 2}})
        assert scaled["spec"] == {"replicas": 2}
        before = await found.api.request("GET", f"{path}/db")
        assert before["spec"]["template"] == made["spec"]["template"]
        changed = await found.api.patch(f"{path}/db", {"metadata": {"annotations": {"n": "1"}}})
        assert changed["spec"]["template"]["spec"]["affinity"] == POOL
        assert changed["metadata"]["generation"] == before["metadata"]["generation"] + 1
    finally:
        await found.api.delete(f"{path}/db")


async def test_without_a_replica_fail_refuses_deployments_and_their_updates_but_not_scale_and_status(
    cluster: Cluster,
) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    async with policed(cluster, failurePolicy="Fail") as found:
        try:
            await found.api.request("POST", path, a_deployment("db"))
            found.extender.program.stop()
            for refused in (
                await found.api.request("POST", PODS, db_pod("one"), allow=[500]),
                await found.api.request("POST", path, a_deployment("other"), allow=[500]),
                await found.api.request(
                    "PATCH",
                    f"{path}/db",
                    {"metadata": {"annotations": {"n": "1"}}},
                    allow=[500],
                    content_type="application/merge-patch+json",
                ),
            ):
                assert "failed calling webhook" in refused["message"]
            await found.api.patch(f"{path}/db/scale", {"spec": {"replicas": 2}})
            await found.api.patch(f"{path}/db/status", {"status": {"observedGeneration": 2}})
        finally:
            await found.api.delete(f"{path}/db")
            assert "items" in await found.api.request("GET", path)


async def test_what_no_schema_can_check_is_refused_by_the_webhook(found: Policed) -> None:
    bad = policy("PodSchedulingPolicy", nodeSelector={"a b": "c"})
    answer = await found.api.request("POST", path_of(bad), bad, allow=[422])
    assert answer["kind"] == "Status"
    assert 'admission webhook "validate.policies.placement.extender.dev" denied the request' in answer["message"]
    assert {cause["field"] for cause in answer["details"]["causes"]} == {"spec.nodeSelector"}


async def test_what_another_client_changed_in_the_configurations_is_repaired(found: Policed) -> None:
    """But for what an administrator narrows of the mutating one, which stays."""
    for path in (MUTATING, VALIDATING):
        before = (await found.api.request("GET", path))["webhooks"]
        assert len(before[0]["rules"]) > 1 or path == VALIDATING
        narrowed = {**before[0], "rules": before[0]["rules"][:1]}
        change = {"webhooks": [{**narrowed, "timeoutSeconds": 1}]}
        wanted = [narrowed, *before[1:]] if path == MUTATING else before
        await found.api.patch(path, change)
        async with asyncio.timeout(PATIENCE):
            while (await found.api.request("GET", path))["webhooks"] != wanted:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.1)
    assert await found.extender.metric("extender_webhook_configuration_repairs_total") == 4


async def test_configurations_and_secret_that_another_client_deletes_are_created_again(found: Policed) -> None:
    await found.apply(policy("PodSchedulingPolicy", schedulerName="ours"))
    secret = (await found.api.request("GET", SECRET))["data"]
    before = [(await found.api.request("GET", path))["webhooks"] for path in (MUTATING, VALIDATING)]
    for path in (MUTATING, VALIDATING, SECRET):
        await found.api.delete(path)
    async with asyncio.timeout(PATIENCE * 2):
        for path in (MUTATING, VALIDATING, SECRET):
            while (await found.api.request("GET", path, allow=[404]))["kind"] == "Status":  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.1)
    assert [(await found.api.request("GET", path))["webhooks"] for path in (MUTATING, VALIDATING)] == before
    assert (await found.api.request("GET", SECRET))["data"] == secret
    assert await found.extender.metric("extender_webhook_configuration_repairs_total") == 4
    assert await found.extender.metric("extender_webhook_certificate_rotations_total", step="restored") == 1
    assert (await found.api.request("POST", PODS, db_pod("one")))["spec"]["schedulerName"] == "ours"


async def test_the_extenders_account_may_create_no_other_secret(found: Policed) -> None:
    """One of another type would get the token of another account, and no part reads one of another name."""
    secrets, name = SECRET.rpartition("/")[0], SECRET.rpartition("/")[2]
    kubeconfig = yaml.safe_load(found.cluster.plane.extender_kubeconfig.read_text("utf-8"))
    plane, token = found.cluster.plane, kubeconfig["users"][0]["user"]["token"]
    await found.api.delete(SECRET)
    async with connect(plane.url, token, plane.authority) as account:
        for bad in (
            {"metadata": {"name": "another"}},
            {
                "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}},
                "type": "kubernetes.io/service-account-token",
            },
        ):
            async with asyncio.timeout(PATIENCE):
                while (answer := await account.request("POST", f"{secrets}?dryRun=All", bad, allow=[403, 409, 422]))[  # noqa: ASYNC110 -- as above
                    "kind"
                ] != "Status":
                    await asyncio.sleep(0.1)  # the admission policy is not in effect yet
            assert "the extender writes only the Secret placement-extender-webhook, of type Opaque" in answer["message"]


async def test_pods_pass_unchanged_when_no_replica_answers(cluster: Cluster) -> None:
    async with policed(cluster) as found:
        await found.apply(policy("PodSchedulingPolicy", schedulerName="ours"))
        found.extender.program.stop()
        assert (await found.api.request("POST", PODS, db_pod("one")))["spec"]["schedulerName"] == "default-scheduler"


async def test_a_thousand_pods_at_full_speed_are_all_injected_through_a_change_and_a_restart(cluster: Cluster) -> None:
    async with policed(cluster, failurePolicy="Fail") as found:
        await found.apply(policy("PodSchedulingPolicy", affinity=POOL))
        names = count()

        async def write(share: int, label: str | None = None) -> list[JsonObject]:
            return [await found.api.request("POST", PODS, db_pod(f"{label}-{next(names)}")) for _ in range(share)]

        first = [each for part in await asyncio.gather(*(write(50, "a") for _ in range(10))) for each in part]
        await found.apply(policy("PodSchedulingPolicy", "two", schedulerName="ours", priority=5))
        await cluster.restart_apiserver()
        second = [each for part in await asyncio.gather(*(write(50, "b") for _ in range(10))) for each in part]
        assert all(each["spec"]["affinity"] == POOL for each in [*first, *second])
        assert {each["spec"]["schedulerName"] for each in first} == {"default-scheduler"}
        assert {each["spec"]["schedulerName"] for each in second} == {"ours"}
        assert await found.extender.metric("extender_admission_duration_seconds_count", webhook="mutate") == 1000
        quick = await found.extender.metric("extender_admission_duration_seconds_bucket", webhook="mutate", le="0.01")
        print(f"{quick:.0f} of 1000 admissions within 10 ms, load average {os.getloadavg()[0]:.1f}")  # noqa: T201 -- shown by -s


async def test_kubectl_shows_how_many_pods_a_policy_matches_and_whether_it_is_valid(found: Policed) -> None:
    await found.apply(policy("PodSchedulingPolicy", schedulerName="ours"))
    for name in ("one", "two"):
        await found.api.request("POST", PODS, db_pod(name))
    async with asyncio.timeout(PATIENCE * 2):
        while True:
            said = await kubectl(found.cluster, "get", documents=[policy("PodSchedulingPolicy")])
            head, row = said.splitlines()  # an empty cell has blanks alone
            shown = {name: row[head.index(name) :].partition("  ")[0] for name in head.split()}
            if shown.get("MATCHED") == "2":
                break
            await asyncio.sleep(0.2)
    assert shown["VALID"] == "True"
    status = (await found.api.request("GET", f"{path_of(policy('PodSchedulingPolicy'))}/one"))["status"]
    assert status["lastApplied"]
    assert await found.extender.metric("extender_policy_status_writes_total", result="failed") == 0
    async with asyncio.timeout(PATIENCE):
        while await found.extender.metric("extender_policy_events_total", result="written") < 1:  # noqa: ASYNC110 (it is read over HTTP)
            await asyncio.sleep(0.2)
    assert re.search(
        r"Normal +Applied .* the policy is valid; it selects \d pods",
        await kubectl(found.cluster, "describe", documents=[policy("PodSchedulingPolicy")]),
    )
    assert await found.extender.metric("extender_policy_events_total", result="failed") == 0

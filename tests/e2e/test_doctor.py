"""`extender doctor` with a real control plane: for each wrong set-up exactly its findings, and for a good one none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from extender.kube.session import MERGE_PATCH
from tests.e2e.client import path_of
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import scheduler_document
from tests.e2e.doctor_set_ups import SetUp, doctor, eventually_standing_by, keep_out, nothing, place, policies_of
from tests.e2e.granting import applied, granted, kubeconfig_of_account, without
from tests.e2e.policing import CRDS, VALIDATING, installed, policed
from tests.e2e.programs import ProgramError
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NEVER = "kube-scheduler has not called filter since the service started"
STILL_ON = "profile default-scheduler: {} is enabled, so it counts all pods as well as the extender"
SET_UPS = {
    "good": SetUp([]),
    "plugins left on": SetUp(
        [
            ("warning", "scheduler", STILL_ON.format("InterPodAffinity")),
            ("warning", "scheduler", STILL_ON.format("PodTopologySpread")),
        ],
        mode="augment",
        stanza={"ignorable": False, "prioritizeVerb": None, "weight": None},
    ),
    "the scheduler does not call us": SetUp(
        [("error", "called", f"{NEVER}, but 1 pod was bound meanwhile: it places pods without the extender")],
        calls=False,
    ),
    "an idle cluster": SetUp([("info", "called", f"{NEVER}, and no pod was bound meanwhile")], happens=nothing),
    "whole nodes": SetUp(
        [
            ("warning", "scheduler", "nodeCacheCapable is off: every request contains whole nodes"),
            ("warning", "names", "most requests contain whole nodes instead of names"),
        ],
        stanza={"nodeCacheCapable": False},
    ),
}


@pytest.mark.parametrize("name", SET_UPS)
async def test_a_set_up_has_exactly_its_findings(cluster: Cluster, tmp_path: Path, name: str) -> None:
    tried = SET_UPS[name]
    await cluster.add_nodes(zones=1, per_zone=3)
    with cluster.extender({"mode": "offload"}) as extender:
        await eventually_ready(extender)
        document = scheduler_document(tried.mode, extender.url, **tried.stanza)
        (entry,) = document["extenders"]
        document["extenders"] = [{key: value for key, value in entry.items() if value is not None}]
        started = document if tried.calls else {**document, "extenders": []}
        await asyncio.to_thread(cluster.plane.start_scheduler, started)
        try:
            await tried.happens(cluster)
            assert await doctor(extender, tmp_path, document) == tried.found
        finally:
            cluster.plane.scheduler.stop()


async def test_nodes_that_the_schedulers_own_plugins_reject_are_no_mistake_of_the_configuration(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.add_nodes(zones=1, per_zone=3)
    with cluster.extender({"mode": "offload"}) as extender:
        await eventually_ready(extender)
        document = scheduler_document("offload", extender.url)
        await asyncio.to_thread(cluster.plane.start_scheduler, document)
        try:
            await keep_out(cluster)
            ((severity, check, problem),) = await doctor(extender, tmp_path, document)
        finally:
            cluster.plane.scheduler.stop()
    assert (severity, check) == ("info", "called")
    assert problem.startswith(f'{NEVER}: its own plugins reject every node first ("0/3 nodes are available')


UNREADABLE = {
    "httpTimeout without a unit": (
        {"httpTimeout": 5},
        'extenders[0].httpTimeout: expected a duration such as "15s", got int: kube-scheduler does not start with it',
    ),
    "a misspelt field": (
        {"nodeCachecapable": True},
        "extenders[0].nodeCachecapable: unknown field: kube-scheduler does not start with it",
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
async def test_a_configuration_with_which_kube_scheduler_does_not_start_is_named(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    change, problem = UNREADABLE[name]
    with cluster.extender({"mode": "offload"}) as extender:
        await eventually_ready(extender)
        document = scheduler_document("offload", extender.url)
        (entry,) = document["extenders"]
        entry |= change
        if "nodeCachecapable" in entry:
            del entry["nodeCacheCapable"]
        with pytest.raises(ProgramError):
            await asyncio.to_thread(cluster.plane.start_scheduler, document)
        found = await doctor(extender, tmp_path, document)
    assert ("error", "scheduler", problem) in found
    assert {severity for severity, check, _ in found if check == "scheduler"} == {"error"}


async def test_permissions_are_those_of_the_services_account_and_forbidden_writes_are_seen(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.add_nodes(zones=1, per_zone=3)
    async with applied(cluster.api, without(granted(), "", "pods/status")):
        account = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        with Extender(tmp_path, account, {"mode": "offload"}) as extender:
            await eventually_ready(extender)
            document = scheduler_document("offload", extender.url)
            await asyncio.to_thread(cluster.plane.start_scheduler, document)
            try:
                await place(cluster)
                found = await doctor(extender, tmp_path, document)
            finally:
                cluster.plane.scheduler.stop()
    assert found == [("error", "permissions", "the account may not patch pods/status")]


async def test_a_healthy_standby_is_no_mistake(cluster: Cluster, tmp_path: Path) -> None:
    election = {"enabled": True, "leaseNamespace": "default"}
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        await asyncio.to_thread(folder.mkdir)
    kubeconfig = cluster.plane.kubeconfig
    with Extender(folders[0], kubeconfig, {"leaderElection": election}) as leader:
        await eventually_ready(leader)
        with Extender(folders[1], kubeconfig, {"leaderElection": election}) as standby:
            await eventually_standing_by(standby)
            found = await doctor(standby, tmp_path, {"kind": "KubeSchedulerConfiguration"})
    assert [(severity, check) for severity, check, _ in found if check != "scheduler"] == [("info", "standby")]


async def test_an_older_crd_and_a_lost_webhook_configuration_are_named(cluster: Cluster, tmp_path: Path) -> None:
    async with policed(cluster) as found:
        document = scheduler_document("offload", found.extender.url)
        before = await doctor(found.extender, tmp_path, document)
        assert {check for _, check, _ in before} <= {"called"}
        path = f"{CRDS}/podschedulingpolicies.placement.extender.dev"
        crd = await cluster.api.request("GET", path)
        fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        mode = fields.pop("mode")
        await cluster.api.request("PUT", path, crd)
        dropped = "the CRD of PodSchedulingPolicy is older than the service: the API server drops spec.mode"
        lost = "ValidatingWebhookConfiguration placement-extender does not exist: the API server calls no webhook"
        seen: set[tuple[str, str, str]] = set()
        try:
            async with asyncio.timeout(PATIENCE):  # the apiserver publishes a changed schema some time later
                while seen != {("warning", "crds", dropped), ("error", "webhook", lost)}:
                    await cluster.api.delete(VALIDATING)  # the extender creates it again within seconds
                    seen |= set(await doctor(found.extender, tmp_path, document)) - set(before)
        finally:
            crd = await cluster.api.request("GET", path)
            fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            fields["mode"] = mode
            await cluster.api.request("PUT", path, crd)
            (configuration,) = (each for each in installed() if each["kind"] == "ValidatingWebhookConfiguration")
            await cluster.api.request("POST", path_of(configuration), configuration, allow=[409])


async def test_a_webhook_that_the_api_server_cannot_reach_is_found_by_a_dry_run(
    cluster: Cluster, tmp_path: Path
) -> None:
    async with policed(cluster) as found:
        document = scheduler_document("offload", found.extender.url)
        before = await doctor(found.extender, tmp_path, document)
        assert {check for _, check, _ in before} <= {"called"}
        assert await policies_of(cluster) == []
        configuration = await cluster.api.request("GET", VALIDATING)
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    # The leader writes it back within seconds, and doctor may come too late.
                    change = {"webhooks": [{**configuration["webhooks"][0], "clientConfig": NOBODY}]}
                    await cluster.api.request("PATCH", VALIDATING, change, content_type=MERGE_PATCH)
                    if text := [
                        text
                        for _, check, text in await doctor(found.extender, tmp_path, document)
                        if check == "webhook"
                    ]:
                        break
        finally:
            await cluster.api.request(
                "PATCH", VALIDATING, {"webhooks": configuration["webhooks"]}, content_type=MERGE_PATCH
            )
    assert any("cannot call the webhook" in each or "does not lead to it" in each for each in text)


NOBODY = {"url": "https://127.0.0.1:9/validate"}

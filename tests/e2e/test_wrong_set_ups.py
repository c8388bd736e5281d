"""The table of wrong set-ups of real binaries: `extender doctor` names each with its remedy, and blames no right one.

Many rows share one control plane: each kube-scheduler has one mistake in its configuration, a schedulerName and a pod of its own.
What needs no API server and no scheduler stands in tests/doctor.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.granting import applied, granted, kubeconfig_of_account, without
from tests.e2e.overlays import known, kubectl
from tests.e2e.policing import policed
from tests.e2e.programs import ProgramError, free_ports
from tests.e2e.serving import Extender
from tests.e2e.wrong_set_ups import (
    ADMIN,
    LEASE_DENIED,
    NOT_STARTED,
    OVERLAYS,
    ROWS,
    SCHEDULER,
    SLICE_DENIED,
    Certificates,
    assert_named,
    document_of,
    eventually_found,
    examined,
    in_a_pod,
    scheduler_of,
    until_nothing_is_found,
    until_tried,
)
from tests.simulator.plain import pod

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
OF_ALL_ROWS = ("the certificate server expires in 10 days", "renew it")


async def test_each_mistake_in_the_configuration_of_a_scheduler_is_named_with_its_remedy(
    cluster: Cluster, tmp_path: Path
) -> None:
    certificates = await asyncio.to_thread(Certificates, tmp_path)
    ours, pods = (
        certificates.server,
        {name: pod(f"p{n}", schedulerName=scheduler_of(name)) for n, name in enumerate(ROWS)},
    )
    clients = {"scheduler": [SCHEDULER], "admin": [ADMIN]}
    tls = {"certFile": ours["certFile"], "keyFile": ours["keyFile"], "clientCAFile": ours["caFile"], "clients": clients}
    await cluster.add_nodes(zones=1, per_zone=1)
    await cluster.api.create(*pods.values())
    programs = {name: cluster.plane.another_scheduler(f"row{number}") for number, name in enumerate(ROWS)}
    settings = {"mode": "offload", "schedulers": "many", "server": {"tls": tls}}
    with cluster.extender(settings, Path(ours["caFile"])) as extender:
        documents = {name: document_of(name, extender.url, certificates) for name in ROWS}
        starts = [asyncio.to_thread(cluster.plane.run_scheduler, programs[name], documents[name]) for name in ROWS]
        try:
            for name, started in zip(ROWS, await asyncio.gather(*starts, return_exceptions=True), strict=True):
                assert isinstance(started, ProgramError if name == NOT_STARTED else int), name
            for name, row in ROWS.items():
                if name != NOT_STARTED:
                    await until_tried(cluster, pods[name], is_bound=row.is_bound)
            looks = [examined(name, extender, documents[name], certificates, tmp_path) for name in ROWS]
            shown = await asyncio.gather(*looks)
            # What the remedies say: the right fields and files, and a restart of kube-scheduler.
            for program in programs.values():
                program.stop()
            right = {
                name: {
                    **document_of("right", extender.url, certificates),
                    "leaderElection": {"resourceName": f"right-{scheduler_of(name)}"},
                }
                for name in ROWS
            }
            for name, document in right.items():
                document["profiles"][0]["schedulerName"] = scheduler_of(name)
            certificates.renew_server()
            starts = [asyncio.to_thread(cluster.plane.run_scheduler, programs[name], right[name]) for name in ROWS]
            await asyncio.gather(*starts)
            for name in ROWS:
                await cluster.board.bound(pods[name])
            for name in ROWS:
                await until_nothing_is_found(name, extender, right[name], certificates, tmp_path)
        finally:
            for program in programs.values():
                program.stop()
    for (name, row), found in zip(ROWS.items(), shown, strict=True):
        assert_named(name, found, [*row.found, OF_ALL_ROWS])


@pytest.mark.parametrize("name", OVERLAYS)
async def test_a_right_overlay_is_not_blamed_and_its_missing_permissions_come_with_the_manifest(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    namespace, _ = OVERLAYS[name]
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/placement-extender"
    rows = {"": [], "placement-extender-leader": SLICE_DENIED, "placement-extender-lease": LEASE_DENIED}
    if name != "service":  # whose roles the other has too
        rows = {"": []}
    await kubectl(cluster, "apply", documents=known(name))
    try:
        token = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path, "placement-extender", namespace)
        for number, (binding, expected) in enumerate(rows.items()):
            folder = tmp_path / str(number)
            await asyncio.to_thread(folder.mkdir)
            if binding:
                await cluster.api.delete(f"{rbac}/{binding}")
                await cluster.api.delete(lease)
            with in_a_pod(cluster, folder, name, token) as arguments:
                await eventually_found(expected, *arguments)
                if binding:
                    await kubectl(cluster, "apply", documents=known(name))
                    await eventually_found([], *arguments, looks=40)
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=known(name))


async def test_a_webhook_whose_url_leads_nowhere_is_named(cluster: Cluster) -> None:
    (port,) = free_ports(1)
    url = f"https://{HOST}:{port}"
    said = f"{url}/mutate, the webhook's, does not lead to it: [Errno 111] Connection refused"
    remedy = "set policies.webhook.url to where the API server reaches"
    async with policed(cluster, url=url) as found:
        validate = ("webhook", said.replace("mutate", "validate"), remedy)
        await eventually_found([("webhook", said, remedy), validate], "--url", found.extender.url)
    async with policed(cluster) as found:  # its URL is where it listens
        await eventually_found([], "--url", found.extender.url)


async def test_a_watch_that_never_worked_is_named_by_its_cause_alone(cluster: Cluster, tmp_path: Path) -> None:
    async with applied(cluster.api, without(granted(), "", "services")):
        account = await kubeconfig_of_account(cluster.api, cluster.plane, tmp_path)
        with Extender(tmp_path, account, {"mode": "offload"}) as extender:
            reader = "where deploy/base/reader.yaml grants it: `kubectl apply -k"
            expected = [
                ("ready", "readiness check services fails: retrying: list of services rejected: 403", reader),
                ("permissions", "the account may not list services", reader),
                ("permissions", "the account may not watch services", reader),
            ]
            await eventually_found(expected, "--url", extender.url)
            await kubectl(cluster, "apply", documents=granted())
            await eventually_found([], "--url", extender.url, looks=40)

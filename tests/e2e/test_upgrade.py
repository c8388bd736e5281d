"""Upgrade, downgrade, upgrade: this version, an earlier one, this one, over the same pods, policies, groups and quotas.

KEP-2249, KEP-3022, KEP-3838 and KEP-4832 ask for it in "Upgrade / Downgrade Strategy" and "Were upgrade and rollback tested?".
Each version finishes what the one before it began, and begins the same for the next.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest

from extender.simulator.json_objects import labels_of, name_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e import controllers
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import CONFIG, scheduler_document
from tests.e2e.making_room import priority_class
from tests.e2e.pod_groups import gangs_of, is_whole, without_placements, zones
from tests.e2e.policing import with_policies
from tests.e2e.programs import free_ports
from tests.e2e.rolled_out_service import DEPLOYMENT, Creating, applied, failed_calls
from tests.e2e.test_rollout import overlay_running
from tests.e2e.versions import OURS, POLICIES, Round, Version, judge, loaded, serving
from tests.earlier import NoEarlierVersionError, commit_of, extract
from tests.simulator.plain import namespace, node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

VARIABLE: Final = "UPGRADE_FROM"  # a commit or a tag


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The wheel of the earlier commit, installed in a folder of its own, with the dependencies of this interpreter."""
    folder = tmp_path_factory.mktemp("earlier")
    tree, installed = folder / "tree", folder / "installed"
    try:
        commit = commit_of(os.environ.get(VARIABLE, ""))
        extract(commit, tree)
    except NoEarlierVersionError as error:
        pytest.skip(f"{error}; set {VARIABLE} to a commit that is here. NOTHING IS KNOWN of upgrades")
    python = [sys.executable, "-m"]
    build = [*python, "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=tree, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    pip = [*python, "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*pip, "--target", str(installed), str(wheel)], check=True, capture_output=True)
    environment = {"PYTHONPATH": str(installed), "PYTHONUNBUFFERED": "1"}
    where = subprocess.run(
        [sys.executable, "-c", "import extender; print(extender.__file__)"],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed)), "the earlier version is imported, and not this one"
    return Version(commit[:12], tree / "config" / "extender.yaml", environment)


@pytest.fixture
async def prepared(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Twelve nodes in three zones, a third of them with disks; namespaces, priorities and policies."""
    cluster.board.left_alone = OURS
    async with with_policies(cluster.api):
        await cluster.api.create(
            *(
                node(f"z{z}-{n}", f"z{z}", labels={"disk": "ssd" if n == 0 else "hdd"})
                for z in range(3)
                for n in range(4)
            )
        )
        for name, value in (("low", 1), ("high", 1000)):
            path = "/apis/scheduling.k8s.io/v1/priorityclasses"
            await cluster.api.request("POST", path, priority_class(name, value), allow=[409])
        await cluster.api.create(namespace("data", team="data"))
        yield cluster
        await without_placements(cluster.api)


async def test_nothing_is_lost_from_this_version_to_an_earlier_one_and_back(
    prepared: Cluster, earlier: Version
) -> None:
    cluster, api, board = prepared, prepared.api, prepared.board
    this = Version("this", CONFIG / "extender.yaml", {})
    port, webhook = free_ports(2)
    rounds: list[Round] = []
    async with AsyncExitStack() as stack:
        for number, version in enumerate((this, earlier, this)):
            async with serving(cluster, version, number, port, webhook) as extender:
                if number == 0:
                    stack.callback(cluster.plane.scheduler.stop)
                    document = scheduler_document("offload", extender.url)
                    await asyncio.to_thread(cluster.plane.start_scheduler, document)
                for each in rounds[-1:]:
                    await board.bound(each.missed)
                    await each.check_waiting()
                    await each.finish()
                rounds.append(Round(cluster, number))
                await rounds[-1].begin()
                if number == 2:
                    await rounds[-1].finish()
                    await judge(cluster, rounds)
            if (
                number < 2
            ):  # the webhook is away: the pod has no policy yet, and the next version's filter holds it to it
                await api.create(rounds[-1].missed)


IMAGE: Final = "earlier"  # what the Deployment's image is called while its pods run the earlier version


async def test_no_call_fails_and_nothing_is_wrong_while_a_rollout_changes_the_version_and_another_takes_it_back(
    cluster: Cluster, earlier: Version, assets: Path, tmp_path: Path
) -> None:
    """The steps of "Upgrading" and "Rolling back" in deploy/docs/upgrade.md, under load, with failurePolicy Fail."""
    if not controllers.is_there(assets):
        pytest.skip(f"{controllers.PROGRAM} is not in {assets}: NOTHING IS KNOWN of upgrades by a rollout")
    cluster.board.left_alone = "placement-extender"
    async with AsyncExitStack() as stack:
        stack.push_async_callback(without_placements, cluster.api)
        service = await stack.enter_async_context(overlay_running(cluster, assets, tmp_path))
        service.kubelet.versions[IMAGE] = earlier.environment
        api, board, creating = cluster.api, cluster.board, Creating(cluster.api, loaded)
        await api.create(*(node(f"ssd-{number}", f"z{1 + number % 2}", labels={"disk": "ssd"}) for number in range(8)))
        for name, spec in reversed(POLICIES.items()):  # the last one is seen last
            await api.create(policy("ClusterPodSchedulingPolicy", name, namespaceSelector={}, **spec))
        await applied(api, "batch")
        running, images = asyncio.create_task(creating.run()), []
        (container,) = (await api.request("GET", DEPLOYMENT))["spec"]["template"]["spec"]["containers"]
        for image in (IMAGE, container["image"]):
            change = {"spec": {"template": {"spec": {"containers": [{"name": "extender", "image": image}]}}}}
            await api.request("PATCH", DEPLOYMENT, change, content_type="application/strategic-merge-patch+json")
            assert "successfully rolled out" in await service.rolled_out()
            images.append(image)
        creating.is_over = True
        await running
        whole = [each for each in creating.made if "batch" in labels_of(each).values()]
        gangs = gangs_of(cluster)
        complete = [each for gang in gangs.values() if len(gang) == 4 for each in gang]
        await board.bound(*whole, *complete, within=120)
        print(f"{len(creating.made)} creations by {images}, {len(service.scheduling.uses)} leaders")  # noqa: T201 -- shown by -s
        assert creating.problems == []
        assert failed_calls(cluster) == []
        assert (service.scheduling.refused, service.admission.refused) == (0, 0)
        assert [name_of(each) for each in whole if each["spec"].get("nodeSelector") != {"disk": "ssd"}] == []
        at = await zones(api)
        for name, gang in gangs_of(cluster).items():
            assert len({at[node_of(each)] for each in gang if node_of(each)}) <= 1, name
        assert [name for name, gang in gangs_of(cluster).items() if len(gang) == 4 and not is_whole(gang)] == []
        logs = [each.program.log() for each in service.kubelet.running.values()]
        assert "Traceback" not in "".join(logs)
        assert await cluster.faults() == []

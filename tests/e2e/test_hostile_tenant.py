"""A tenant writes at random in its namespace, 100 times a second: no quota, share, policy or alert of others is touched.

HOSTILE_SECONDS says for how long, for example 600; HOSTILE_SEED what it writes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from random import Random
from typing import Final

import pytest

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import scheduler_document
from tests.e2e.honest_tenants import SETTINGS, Honest, policies
from tests.e2e.hostile_tenant import Tenant, tenant
from tests.e2e.pod_groups import LABEL, without_placements
from tests.e2e.policing import Policed, policed
from tests.simulator.plain import node, pod

_SECONDS: Final = float(os.environ.get("HOSTILE_SECONDS", "60"))
_SEED: Final = int(os.environ.get("HOSTILE_SEED", "1"))

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600 + 2 * _SECONDS)]

MOST_TERMS: Final = 4  # in an hour, of the alert ExtenderLeaderChanges; a busy machine misses a renewal
WEB: Final = "/apis/apps/v1/namespaces/default/replicasets"


@pytest.fixture
async def running(cluster: Cluster) -> AsyncIterator[tuple[Policed, Honest, JsonObject]]:
    """Two zones, policies, a scheduler, and a ReplicaSet of the honest tenant."""
    api = cluster.api
    await api.create(*(node(f"z{zone}-{number}", f"z{zone}", cpu="16") for zone in (1, 2) for number in range(1, 5)))
    async with policed(cluster, SETTINGS) as found:
        try:
            for each in policies():
                await found.apply(each)
            await asyncio.to_thread(cluster.plane.start_scheduler, scheduler_document("offload", found.extender.url))
            labels = {"app": "web"}
            template = {"metadata": {"labels": labels}, "spec": pod("web")["spec"]}
            spec = {"selector": {"matchLabels": labels}, "replicas": 3, "template": template}
            body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": spec}
            made = await api.request("POST", WEB, body)
            owner: JsonObject = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
            owner["uid"] = made["metadata"]["uid"]
            yield found, Honest(found, owner), owner
        finally:
            cluster.plane.scheduler.stop()
            await api.delete(f"{WEB}/web")
    await without_placements(api)


async def test_a_tenant_that_writes_at_random_touches_nothing_of_others(
    running: tuple[Policed, Honest, JsonObject],
) -> None:
    found, honest, owner = running
    cluster, metric = found.cluster, found.extender.metric
    groups = [{LABEL: name, "kind": kind} for name in ("q0-0", "s0", "mine", "yours") for kind in ("quota", "shared")]
    forged = [*groups, *({"app": app} for app in ("web", "db", "apart", "asking"))]
    wrong: dict[int, list[str]] = {}
    loop = asyncio.get_running_loop()
    assert await honest.play(-1) == [], "without the hostile tenant"
    async with tenant(cluster.api, cluster.plane, cluster.plane.authority) as own:
        writer = Tenant(own, Random(_SEED), forged, owner)
        begun, writing = loop.time(), asyncio.create_task(writer.run())
        for number in count():
            if loop.time() - begun > _SECONDS:
                break
            if problems := await honest.play(number):
                wrong[number] = problems
            if writing.done():
                break
        lasted = loop.time() - begun
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
    requested = await metric("extender_requests_total")
    failures = [failure for failure in await found.extender.series("extender_request_failures_total") if failure[1]]
    failed = sum(times for _, times in failures)
    print(  # noqa: T201 -- shown by -s
        f"{writer.writes / lasted:.0f} writes a second for {lasted:.0f} s, answers {dict(writer.answers)}; "
        f"{number} rounds of others; {failed:.0f} of {requested:.0f} requests failed"
    )
    assert wrong == {}
    assert number >= 2
    assert failed <= requested * 0.001, f"the error budget that alerts are about: {failures}"
    assert await metric("extender_audit_differences_total") == 0
    assert await metric("extender_leader_terms_total") <= MOST_TERMS
    assert "Traceback" not in found.extender.program.log()

"""Two replicas behind the webhook's Service, with failurePolicy Fail: certificates rotate and replicas are replaced, no call fails.

Nothing here forwards the traffic of a Service, so `forwarding` does. `test_rollout.py` replaces replicas by a real Deployment.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import count

import pytest

from extender.simulator.json_objects import name_of
from tests.deploy.policies.examples import policy
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.forwarding import Service
from tests.e2e.policing import NAMESPACE, SECRET, Creations, with_policies
from tests.e2e.programs import free_ports
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/placement-extender"


class Replicas:
    """Replicas that run, each with a port and the address of a pod of its own."""

    def __init__(self, cluster: Cluster, service: Service) -> None:
        self._cluster = cluster
        self._service = service
        self._numbers = count(1)

    def start(self, stack: AsyncExitStack) -> Extender:
        """One more, as another pod."""
        number, (port,) = next(self._numbers), free_ports(1)
        folder = self._cluster.folder / f"rolling-{number}"
        folder.mkdir()
        webhook = {
            "bindAddress": f"{HOST}:{port}",
            "url": self._service.url,
            "lifetime": "60s",
            "failurePolicy": "Fail",
            "drain": "3s",
        }
        settings = {
            "preemption": {"mode": "off"},
            "leaderElection": {"enabled": True, "leaseNamespace": NAMESPACE},
            "policies": {"enabled": True, "webhook": webhook},
        }
        identity = {"POD_NAME": f"extender-{number}", "POD_UID": f"uid-{number}", "POD_IP": f"10.9.0.{number}"}
        replica = Extender(folder, self._cluster.plane.extender_kubeconfig, settings, environment=identity)
        return stack.enter_context(replica)


async def test_no_creation_fails_while_certificates_rotate_and_both_replicas_are_replaced(cluster: Cluster) -> None:
    api, service = cluster.api, Service(cluster.api, "placement-extender-webhook")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.delete, LEASE)  # last: a replica that runs would make it again
        await stack.enter_async_context(with_policies(api))
        await stack.enter_async_context(service.listening())
        replicas = Replicas(cluster, service)
        running = [replicas.start(stack), replicas.start(stack)]
        await service.has(2)
        await _kept(running)
        found = policy("PodSchedulingPolicy", schedulerName="ours")
        await api.create(found)
        for replica in running:
            await _known(replica)
        first, creations = (await api.request("GET", SECRET))["data"]["tls.crt"], Creations(api)
        writing = asyncio.create_task(creations.run())
        async with asyncio.timeout(120):
            while (await api.request("GET", SECRET))["data"]["tls.crt"] == first:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.2)
        for _ in range(2):  # the newest first: a leader that ends hands over, and so does a standby
            running.insert(0, replicas.start(stack))
            await service.has(3)
            await asyncio.to_thread(running.pop().program.stop)
            await service.has(2)
        await asyncio.sleep(1)
        creations.end()
        await writing
        assert creations.problems == []
        assert len(creations.made) > 100
        assert {each["spec"]["schedulerName"] for each in creations.made} == {"ours"}
        assert len({name_of(each) for each in creations.made}) == len(creations.made)
        assert len(service.uses) == 4, "every replica was called"
        assert service.refused == 0


async def _kept(replicas: list[Extender]) -> None:
    """Return once the leader has made both configurations as they must be."""
    async with asyncio.timeout(PATIENCE * 2):
        while sum([await each.metric("extender_webhook_configuration_correct") for each in replicas]) < 2:  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.05)


async def _known(replica: Extender) -> None:
    """Return once it applies the policy."""
    async with asyncio.timeout(PATIENCE):
        while not await replica.metric("extender_index_entries", kind="policies"):  # noqa: ASYNC110 -- as above
            await asyncio.sleep(0.05)

"""The service overlay as a Deployment, and calls of its webhook while its pods are replaced."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from extender.simulator.json_objects import JsonObject, uid_of
from tests.e2e.client import Api, path_of, pod_path
from tests.e2e.cluster import Cluster
from tests.e2e.forwarding import Service
from tests.e2e.kubelet import Kubelet
from tests.e2e.policing import NAMESPACE, db_pod
from tests.fakes import PATIENCE
from tests.programs import tool

CREATIONS, EACH_SECONDS = 600, 0.05
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/placement-extender"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/placement-extender"
SELECTOR = "app.kubernetes.io/name=placement-extender,app.kubernetes.io/component=extender"
FAILED_CALL = re.compile(r'(?:Post \\?"|with extender at URL )https://127\.0\.0\.1:\d+/\w+.{0,120}')


@dataclass
class Creating:
    """Pods created one after the other. ``problems``: what the API server answered instead.

    ``wanted``: the pod of a number. ``is_patient``: one that was not created is tried again, as a controller does.
    """

    api: Api
    wanted: Callable[[int], JsonObject] = lambda number: db_pod(f"p{number}", cpu="1m")
    is_patient: bool = False
    made: list[JsonObject] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_over: bool = False

    async def run(self) -> None:
        """Twenty a second until it is over, and at least as many as the test is about."""
        while not self.is_over or self._number < CREATIONS:
            answer = await self._create(self.wanted(self._number))
            if answer["kind"] == "Status":
                self.problems.append(str(answer["message"]))
            else:
                self.made.append(answer)
            await asyncio.sleep(EACH_SECONDS)

    @property
    def _number(self) -> int:
        return len(self.made) + (0 if self.is_patient else len(self.problems))

    async def _create(self, wanted: JsonObject) -> JsonObject:
        try:
            answer = await self.api.request("POST", path_of(wanted), wanted, allow=[409, 500, 503, 504])
            if answer.get("code") == 409:  # the answer was lost
                return await self.api.request("GET", pod_path(wanted))
        except aiohttp.ClientError as error:
            return {"kind": "Status", "message": f"{type(error).__name__}: {error}"}
        return answer


@dataclass
class Installed:
    """The overlay in a cluster: who runs its pods, and what leads to them."""

    cluster: Cluster
    kubelet: Kubelet
    scheduling: Service
    admission: Service

    @property
    def api(self) -> Api:
        return self.cluster.api

    async def rolled_out(self) -> str:
        """What `kubectl rollout status` prints. AssertionError where it exits with 1."""
        command = [tool("kubectl"), f"--kubeconfig={self.cluster.plane.kubeconfig}", "-n", NAMESPACE]
        command += ["rollout", "status", "deployment/placement-extender", "--timeout=240s"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def restart(self) -> str:
        """As `kubectl rollout restart`, to its end."""
        number = len(self.kubelet.running)
        annotations = {"kubectl.kubernetes.io/restartedAt": str(number)}
        await self.api.patch(DEPLOYMENT, {"spec": {"template": {"metadata": {"annotations": annotations}}}})
        return await self.rolled_out()

    async def leader(self) -> tuple[str, int]:
        """Where calls of the scheduler go, once they go anywhere."""
        await self.scheduling.has(1)
        return self.scheduling.endpoints[0]


def failed_calls(cluster: Cluster) -> list[str]:
    """What kube-scheduler says about calls that failed."""
    return FAILED_CALL.findall(cluster.plane.scheduler.log())


async def failed_attempts(api: Api, pods: Sequence[JsonObject]) -> list[str]:
    """What the scheduler told of these pods that it could not place at first. Events of earlier tests are there for an hour."""
    found, _ = await api.list("/apis/events.k8s.io/v1/namespaces/default/events")
    uids = {uid_of(pod) for pod in pods}
    failed = [each for each in found if each["reason"] == "FailedScheduling"]
    return [str(each["note"]) for each in failed if each["regarding"].get("uid") in uids]


async def applied(api: Api, app: str = "db") -> None:
    """Return once every replica applies the policy for pods of the app: a review may reach either."""
    async with asyncio.timeout(PATIENCE):
        hits = 0
        while hits < 20:
            probe = db_pod("probe")
            probe["metadata"]["labels"]["app"] = app
            answer = await api.request("POST", path_of(probe), probe, params={"dryRun": "All"})
            hits = hits + 1 if answer["spec"].get("nodeSelector") else 0

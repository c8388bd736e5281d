"""A cluster in memory, the extender as processes in front of it, and a real Prometheus that scrapes them.

The load is the demo's, then a round of questions again and again that provokes what the demo does not: errors,
whole nodes, preempt calls, nominations elsewhere, certificates, policies.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from extender.cli.main import main
from extender.cli.simulate import read_objects, read_scenario
from extender.settings.configuration import API_VERSION, KIND
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, ConnectionCut, Faults
from extender.simulator.apiserver.kinds import (
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    POLICY_KINDS,
    VALIDATING_WEBHOOKS,
    Target,
)
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from grafana.generate.files import FOLDER
from tests.cli.serving import eventually, ready
from tests.e2e.programs import Program, free_ports, our_command
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, spread, term

SCENARIO = Path(__file__).resolve().parents[2] / "config" / "demo" / "scenario.yaml"
WEBHOOKS = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
CONFIGURATION = "placement-extender"
_ROUNDS_TO_LIVE = 3
_PODS_TO_LIVE = 30


class Prometheus:
    """The server's API."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session

    async def get(self, path: str, **query: str) -> Any:
        """The `data` of an answer. AssertionError for what Prometheus does not take."""
        async with self._session.get(f"{self.url}/api/v1/{path}", params=query) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        return body["data"]

    async def curves(self, expression: str, start: float, length: float, step: float) -> list[Any]:
        """The series of an expression over a time, each with its labels and its values."""
        data = await self.get(
            "query_range", query=expression, start=f"{start}", end=f"{start + length}", step=f"{step}"
        )
        return list(data["result"])

    async def has_data(self, expression: str) -> bool:
        """Whether the expression has given a number within the last minute."""
        (now,) = [float(row["value"][0]) for row in (await self.get("query", query="vector(1)"))["result"]]
        rows = await self.curves(expression, now - 60, 60, 1)
        return any(value not in {"NaN", "+Inf", "-Inf"} for row in rows for _, value in row["values"])


class Cutting(Faults):
    """Cuts the next watch that has something to tell, whenever it is asked to."""

    def __init__(self) -> None:
        self.is_due = False

    async def watch_lines(self, call: Call, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Nothing of the lines is sent when a cut is due."""
        del call
        if self.is_due:
            self.is_due = False
            raise ConnectionCut
        return lines


class Provoked:
    """One round of everything that the demo does not do by itself; each round has pods of its own."""

    def __init__(
        self,
        simulated: SimulatedCluster,
        url: str,
        late: str,
        beside: str,
        webhook: str,
        session: aiohttp.ClientSession,
    ) -> None:
        self._simulated = simulated
        self._url = url
        self._webhook = webhook
        self._late = late
        self._beside = beside
        self._session = session
        self._cutting = simulated.api.faults = Cutting()
        self._number = 0
        self._preemptors: list[dict[str, Any]] = []
        self._waiting: list[str] = []
        self._gangs: list[str] = []
        self._pods = 0

    async def run(self, pause: float = 0.5) -> None:
        """Rounds until cancelled: a rate needs two scrapes around a change."""
        while True:
            await self._round()
            await asyncio.sleep(pause)

    async def _round(self) -> None:
        self._number += 1
        self._cutting.is_due = True
        nodes = [stored.read() for stored in self._simulated.api.store.table(NODES).latest()]
        names = [node["metadata"]["name"] for node in nodes]
        taken = next(stored.node for stored in self._simulated.pods() if stored.node and "/web" in stored.key)
        await self._ask("filter", {"Pod": self._web(), "NodeNames": [taken]})
        await self._ask("filter", {"Pod": self._web(), "NodeNames": [taken]}, self._beside)
        await self._ask("filter", {"Pod": pod(f"any-{self._number}"), "Nodes": {"items": nodes[:2]}})
        await self._ask("prioritize", {"Pod": pod(f"any-{self._number}"), "NodeNames": names})
        await self._ask("preempt", {"Pod": pod("any"), "NodeNameToMetaVictims": {}})
        for _ in range(2):
            await self._ask(
                "filter",
                {"Pod": self._web(f"late-{self._number}", schedulerName="none"), "NodeNames": names},
                self._late,
            )
        await self._preempt(names[0])
        if self._number == 1:
            await self._lie_askew(names[0])
        for verb in ("filter", "prioritize", "preempt"):
            await self._ask(verb, {"Pod": 5})
        await self._admit()
        await self._release()
        await self._look()

    async def _look(self) -> None:
        """What a page in a browser does: a stream of decisions that stays open for a moment, and a what-if."""
        async with self._session.get(f"{self._url}/v1/decisions/stream") as stream:
            await self._ask("v1/whatif", {"delete": [{"kind": "Pod", "namespace": "shop", "name": "none"}]})
            await stream.content.readany()

    async def _admit(self) -> None:
        """A policy, pods with and without it, a bad policy, a body that is no review, and a configuration changed by hand."""
        api, number = self._simulated.api, self._number
        name = f"round-{number}"
        selector = {"matchLabels": {"app": name}}
        spec = {"podSelector": selector, "nodeSelector": {"pool": "none"}}
        policy = {"metadata": {"name": name, "namespace": "lab"}, "spec": spec}
        await api.create(POLICY_KINDS[0], policy)
        with suppress(ApiError):
            await api.create(
                POLICY_KINDS[0], {"metadata": {"name": "bad", "namespace": "lab"}, "spec": {"when": ["No"]}}
            )
        await asyncio.sleep(0.05)  # the watch of policies
        for app in (name, "other"):
            await api.create(PODS, pod(f"{app}-{number}", "lab", labels={"app": app}))
            self._delete("lab", f"{app}-{number}")
        api.operations.delete(Target(POLICY_KINDS[0], "lab", name), {})
        async with self._session.post(f"{self._webhook}/mutate", data=b"{", ssl=False) as answer:
            await answer.read()
        for kind in WEBHOOKS:
            api.operations.change(kind, CONFIGURATION, lambda obj: obj["webhooks"][0].update(timeoutSeconds=1))

    async def _lie_askew(self, node: str) -> None:
        """Two pods of a ReplicaSet in one zone, with a constraint that a policy directs."""
        api, key = self._simulated.api, "topology.kubernetes.io/zone"
        directs = {"topologyKey": key, "unavailableDomains": "Exclude"}
        spec = {"podSelector": {"matchLabels": {"app": "askew"}}, "when": ["Scheduling"], "spread": [directs]}
        await api.create(POLICY_KINDS[0], {"metadata": {"name": "spread", "namespace": "lab"}, "spec": spec})
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "askew", "uid": "askew", "controller": True}
        for name in ("askew-1", "askew-2"):
            made = pod(
                name,
                "lab",
                on=node,
                labels={"app": "askew"},
                topologySpreadConstraints=[spread(key, labels={"app": "askew"})],
            )
            made["metadata"]["ownerReferences"] = [owner]
            api.operations.create(PODS, made)

    async def _release(self) -> None:
        """A group that is released, and a pod of one that stays incomplete."""
        api, number = self._simulated.api, self._number
        if number == 1:
            release = {
                "group": {"label": "gang"},
                "size": {"count": 2},
                "topology": ["topology.kubernetes.io/zone"],
            }
            spec = {"podSelector": {"matchLabels": {"app": "gang"}}, "when": ["Release"], "release": release}
            await api.create(POLICY_KINDS[0], {"metadata": {"name": "gangs", "namespace": "lab"}, "spec": spec})
            await asyncio.sleep(0.05)  # the watch of policies
        for member in range(3):
            labels = {"app": "gang", "gang": f"g{number}" if member else f"alone-{number}"}
            await api.create(PODS, pod(f"gang-{number}-{member}", "lab", labels=labels))
            self._gangs.append(f"gang-{number}-{member}")
        while len(self._gangs) > _PODS_TO_LIVE:
            self._delete("lab", self._gangs.pop(0))

    async def _preempt(self, node: str) -> None:
        """A pod takes the place of another; begun in one round, so that the watch has told of both in the next."""
        operations, number = self._simulated.api.operations, self._number
        closing = anti_affinity(term(HOSTNAME, namespaces={}, app="nothing"))  # to pods of all namespaces
        low = pod(f"low-{number}", "lab", on=node, labels={"app": f"low-{number}"}, affinity=closing, priority=0)
        operations.create(PODS, low)
        apart = anti_affinity(term(HOSTNAME, app=f"low-{number}"))
        high = pod(f"high-{number}", "lab", affinity=apart, nodeSelector={HOSTNAME: node}, priority=1000)
        self._preemptors.append(operations.create(PODS, high).read())
        if len(self._preemptors) > _ROUNDS_TO_LIVE:
            self._delete("lab", self._preemptors.pop(0)["metadata"]["name"])
        if len(self._preemptors) > 1:
            await self._ask("filter", {"Pod": self._preemptors[-2], "NodeNames": [node]})
            await self._ask("preempt", {"Pod": self._preemptors[-2], "NodeNameToMetaVictims": {}})

    def _web(self, app: str = "web", **spec: Any) -> dict[str, Any]:
        """A pod that waits in the cluster, and may not stand where another of its app does."""
        self._pods += 1
        name = f"steered-{self._pods}"
        self._waiting.append(name)
        if len(self._waiting) > _PODS_TO_LIVE:
            self._delete("shop", self._waiting.pop(0))
        found = pod(name, "shop", labels={"app": app}, affinity=anti_affinity(term(HOSTNAME, app=app)), **spec)
        return self._simulated.api.operations.create(PODS, found).read()

    def clear_away(self) -> None:
        """Delete the pods of all rounds that are still there, and those of the demo that they have kept waiting."""
        for stored in self._simulated.pods():
            namespace, _, name = stored.key.partition("/")
            if name.startswith(("steered-", "low-", "high-", "gang-")) or not stored.node:
                self._delete(namespace, name)
        self._waiting, self._preemptors, self._gangs = [], [], []

    def _delete(self, namespace: str, name: str) -> None:
        with suppress(ApiError):  # the demo deletes pods too, those that it finds
            self._simulated.api.operations.delete(Target(PODS, namespace, name), {})

    async def _ask(self, verb: str, question: dict[str, Any], url: str = "") -> None:
        try:
            async with self._session.post(f"{url or self._url}/{verb}", json=question) as answer:
                await answer.read()
        except aiohttp.ServerDisconnectedError:
            # A connection that a service has just closed was used again. The next round comes soon.
            return


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything running: the cluster with its scheduler, four services, and the server that scrapes them."""

    server: Prometheus
    simulated: SimulatedCluster
    provoked: Provoked


@asynccontextmanager
async def scene(folder: Path, prometheus: str) -> AsyncIterator[Scene]:
    """The scheduler has begun, nothing is played yet."""
    play = read_scenario(str(SCENARIO))
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(SimulatedCluster(play, 1, read_objects(play, str(SCENARIO))))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        cluster = {"kube": {"kubeconfig": str(simulated.api.write_kubeconfig(folder / "kubeconfig"))}}
        webhook = f"https://127.0.0.1:{free_ports(1)[0]}"
        recorded = {"recorder": {"path": str(folder / "recording.jsonl.gz")}}
        plain = await stack.enter_async_context(_service(folder, "plain", cluster | recorded | _policies(webhook)))
        late = await stack.enter_async_context(_service(folder, "late", cluster | _IN_A_HURRY))
        beside = await stack.enter_async_context(
            _service(folder, "beside", cluster | {"mode": "augment", "shadow": True})
        )
        secured = await stack.enter_async_context(
            _service(folder, "secured", _secured(folder), "--snapshot", _nothing(folder))
        )
        await asyncio.gather(ready(plain), ready(late), ready(beside))
        targets = {"plain": plain, "late": late, "beside": beside, "secured": secured}
        server = await stack.enter_async_context(_prometheus(folder, prometheus, targets, session))
        await simulated.begin(plain)
        yield Scene(server, simulated, Provoked(simulated, plain, late, beside, webhook, session))


@asynccontextmanager
async def observed(folder: Path, prometheus: str) -> AsyncIterator[Prometheus]:
    """The demo has been played; rounds go on until the block is left."""
    async with scene(folder, prometheus) as found:
        await Player(found.simulated).run(found.simulated.play.steps)
        await found.simulated.stop_scheduling()
        async with going_on(found.provoked.run()):
            yield found.server


@asynccontextmanager
async def going_on(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Work until the block is left."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# A question that hangs on another pod waits for longer than it may take; and it holds a Lease.
_IN_A_HURRY: dict[str, Any] = {
    "placement": "cooperative",
    "answers": {"shortlist": 0},
    "server": {"requestTimeout": "200ms"},
    "rejectedPods": {"nominateElsewhere": False, "requeue": False, "events": False},
    "leaderElection": {"enabled": True, "leaseNamespace": "lab"},
}


def _policies(webhook: str) -> dict[str, Any]:
    """Settings with policies, behind that URL."""
    address = webhook.removeprefix("https://")
    return {"policies": {"enabled": True, "webhook": {"bindAddress": address, "url": webhook}}}


def _secured(folder: Path) -> dict[str, Any]:
    """Settings for HTTPS, with certificates made by our own command."""
    assert main(["certs", "--out", str(folder / "certs")]) == 0
    return {"server": {"tls": {"certFile": f"{folder}/certs/server.crt", "keyFile": f"{folder}/certs/server.key"}}}


def _nothing(folder: Path) -> str:
    """A snapshot of an empty cluster."""
    (folder / "nothing.json").write_text('{"kind": "List", "items": []}', "utf-8")
    return str(folder / "nothing.json")


@asynccontextmanager
async def _service(folder: Path, name: str, settings: dict[str, Any], *arguments: str) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    config = folder / f"{name}.yaml"
    config.write_text(json.dumps({"apiVersion": API_VERSION, "kind": KIND, **settings}), "utf-8")
    command = our_command("serve", "--config", str(config), "--bind-address", f"127.0.0.1:{port}", *arguments)
    program = Program(name, command, folder)
    await asyncio.to_thread(program.start, lambda: " answering " in program.log() or "] answering" in program.log())
    try:
        yield f"{'https' if 'tls' in settings.get('server', {}) else 'http'}://127.0.0.1:{port}"
    finally:
        await asyncio.to_thread(program.stop)


@asynccontextmanager
async def _prometheus(
    folder: Path, program: str, targets: Mapping[str, str], session: aiohttp.ClientSession
) -> AsyncIterator[Prometheus]:
    (port,) = free_ports(1)
    services = [
        {
            "targets": [url.partition("//")[2]],
            "labels": {"instance": name, "__scheme__": url.partition(":")[0]},
        }
        for name, url in targets.items()
    ]
    job = {
        "job_name": "placement-extender",
        "tls_config": {"ca_file": str(folder / "certs" / "ca.crt")},
        "static_configs": services,
    }
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(FOLDER / "rules.yaml"), str(FOLDER / "alerts.yaml")],
        "scrape_configs": [job],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), "utf-8")
    command = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    server = Program("prometheus", command, folder)
    await asyncio.to_thread(server.start, lambda: "Server is ready" in server.log())
    try:
        found = Prometheus(f"http://127.0.0.1:{port}", session)

        async def all_up() -> bool:
            return len((await found.get("query", query="up == 1"))["result"]) == len(targets)

        await eventually(all_up)
        yield found
    finally:
        await asyncio.to_thread(server.stop)

"""An earlier version and this one over the same pods, policies and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from extender.simulator.json_objects import JsonObject, labels_of, name_of, node_of
from tests.deploy.policies.examples import policy
from tests.e2e.board import Board, key_of
from tests.e2e.client import NODES, pod_path
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import HOST
from tests.e2e.pod_groups import LABEL, PLACEMENTS, SIZE, is_whole
from tests.e2e.serving import Extender
from tests.e2e.test_quota import SCOPE
from tests.fakes import PATIENCE
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, pod, spread, term

OURS: Final = "ended-by-the-test"  # victims that are still ending when the version changes
POLICIES: Final[dict[str, JsonObject]] = {
    "batch-on-ssd": {"podSelector": {"matchLabels": {"app": "batch"}}, "nodeSelector": {"disk": "ssd"}},
    "gangs": {
        "podSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
        "when": ["Release"],
        "release": {"group": {"label": LABEL}, "size": {"label": SIZE}, "topology": [ZONE]},
    },
}


class Version(NamedTuple):
    """A version of the extender: its settings with their defaults, and what makes Python import it."""

    name: str
    defaults: Path
    environment: dict[str, str]


class Round:
    """What one version begins and the next one finishes, with a number in every name."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.api, self.board = cluster.api, cluster.board
        self.number = number
        self.team = f"team-{number}"
        key = f"example.com/rack-{number}"
        labels = {"app": f"racked-{number}"}
        racks = [spread(key, labels=labels, minDomains=3)]
        self.rack_key = key
        self.racked = [pod(f"racked-{number}-{n}", labels=labels, topologySpreadConstraints=racks) for n in range(3)]
        across = term(ZONE, namespaces={"matchLabels": {"team": "data"}}, app=f"db-{number}")
        self.near = pod(f"near-{number}", affinity=affinity(across))
        self.db = pod(f"db-{number}", "data", labels={"app": f"db-{number}"})
        self.gang = [pod(f"gang-{number}-{n}", labels={LABEL: f"gang-{number}", SIZE: "4"}) for n in range(4)]
        self.whole = [pod(f"whole-{number}-{n}", labels={LABEL: f"whole-{number}", SIZE: "3"}) for n in range(3)]
        self.batch = [pod(f"batch-{number}-{n}", labels={"app": "batch"}) for n in range(3)]
        self.missed = pod(f"missed-{number}", labels={"app": "batch"})
        closed = {f"example.com/quota-{number}": "open"}
        reaching = anti_affinity(term(HOSTNAME, namespaces={}, app="none-such"))
        self.charged = [pod(f"charged-{n}", self.team, affinity=reaching, nodeSelector=closed) for n in range(2)]
        tight = {f"example.com/tight-{number}": "yes"}
        apart = anti_affinity(term(HOSTNAME, namespaces={}, app=f"low-{number}"))
        self.high = pod(f"high-{number}", priorityClassName="high", affinity=apart, nodeSelector=tight)
        low: dict[str, Any] = {"labels": {"app": f"low-{number}", "who": OURS}, "priorityClassName": "low"}
        self.victim = pod(f"low-{number}", on=f"z0-{number + 1}", **low)
        self.spared = [pod(f"low-{number}-{n}", on=f"z1-{number + 1}", **low) for n in range(2)]

    async def begin(self) -> None:
        """Create everything that can be created now; returns once each pod is placed, or waits as it must."""
        api, board, number = self.api, self.board, self.number
        for rack, name in (("r1", "z0-0"), ("r2", "z1-0")):
            await self._label(name, **{self.rack_key: rack})
        await api.create(namespace(self.team))
        await api.create(*self.charged, *self.spared, self.victim)
        scoped = {"scopes": [SCOPE], "hard": {"pods": "1"}}
        found = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "cross", "namespace": self.team}}
        await api.create({**found, "spec": scoped})
        await self._label("z2-1", **{f"example.com/quota-{number}": "open"})
        for name in (f"z0-{number + 1}", f"z1-{number + 1}"):
            await self._label(name, **{f"example.com/tight-{number}": "yes"})
        await api.create(*self.racked, self.near, *self.gang[:2], *self.whole, *self.batch, self.high)
        await board.bound(*self.whole, *self.batch)
        await board.until(lambda: self._count(self.racked) == 2 and self._count(self.charged) == 1)
        await board.until(lambda: self._nominated() == node_of(self.victim))
        await board.rejected(self.near)
        await board.until(lambda: "limits pods to 1, 1 used" in "".join(map(board.message, map(key_of, self.charged))))
        await self.check_waiting()

    async def check_waiting(self) -> None:
        """What waits for the next version still waits, and for the same."""
        await self.cluster.calm()
        assert (self._count(self.racked), self._count(self.charged), self._count(self.gang)) == (2, 1, 0)
        assert not self.board.node(key_of(self.near))
        assert (self._nominated(), self.board.node(key_of(self.high))) == (node_of(self.victim), "")
        for each in self.spared:
            assert "deletionTimestamp" not in self.board.pods[key_of(each)]["metadata"]

    async def finish(self) -> None:
        """Give each waiting pod what it waits for."""
        api, board = self.api, self.board
        await self._label("z2-0", **{self.rack_key: "r3"})
        quotas = f"/api/v1/namespaces/{self.team}/resourcequotas/cross"
        await api.patch(quotas, {"spec": {"hard": {"pods": "2"}}})
        await api.delete(pod_path(self.victim), grace=0)
        await api.create(self.db, *self.gang[2:])
        await board.bound(*self.racked, *self.charged, self.db, self.near, *self.gang)
        assert await board.bound(self.high) == [node_of(self.victim)]
        assert {key_of(each) for each in self.spared} <= board.pods.keys(), "one victim was enough"

    def placed(self) -> list[JsonObject]:
        return [*self.racked, self.near, self.db, *self.gang, *self.whole, *self.batch, *self.charged, self.high]

    def _count(self, pods: list[JsonObject]) -> int:
        return sum(bool(self.board.node(key_of(each))) for each in pods)

    def _nominated(self) -> str:
        found = self.board.pods.get(key_of(self.high), {})
        return str(found.get("status", {}).get("nominatedNodeName", ""))

    async def _label(self, name: str, **labels: str) -> None:
        await self.api.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}})


@asynccontextmanager
async def serving(cluster: Cluster, version: Version, number: int, port: int, webhook: int) -> AsyncIterator[Extender]:
    """A version of the extender, always at the same addresses, once it answers and the API server trusts its webhook."""
    folder = cluster.folder / f"version-{number}"
    folder.mkdir()
    settings: dict[str, Any] = {
        "mode": "offload",
        "leaderElection": {"enabled": True},
        "quota": {"enabled": True},
        "policies": {
            "enabled": True,
            "webhook": {"bindAddress": f"{HOST}:{webhook}", "url": f"https://{HOST}:{webhook}", "drain": "500ms"},
        },
    }
    kubeconfig = cluster.plane.extender_kubeconfig
    with Extender(
        folder, kubeconfig, settings, None, version.environment, defaults=version.defaults, port=port
    ) as extender:
        await eventually_ready(extender)
        async with asyncio.timeout(PATIENCE):
            while await extender.metric("extender_webhook_configuration_correct") < 2:  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.05)
            if number == 0:
                for name, spec in POLICIES.items():
                    await cluster.api.create(policy("ClusterPodSchedulingPolicy", name, namespaceSelector={}, **spec))
            while await extender.metric("extender_index_entries", kind="policies") < len(POLICIES):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.05)
        yield extender
        log = extender.program.log()
    assert "Traceback" not in log, log[-3000:]


def shown(board: Board, made: JsonObject) -> JsonObject:
    """A pod as the API server has it now."""
    return board.pods[key_of(made)]


async def judge(cluster: Cluster, rounds: list[Round]) -> None:
    """Every pod is there and placed, where its policies, its group and its constraints let it be, by a recount."""
    api, board = cluster.api, cluster.board
    nodes = {name_of(each): labels_of(each) for each in (await api.list(NODES))[0]}
    await board.bound(*(pod for each in rounds for pod in each.placed()))
    for each in rounds:
        for gang in (each.gang, each.whole):
            assert is_whole([shown(board, pod) for pod in gang])
            assert len({nodes[board.node(key_of(pod))][ZONE] for pod in gang}) == 1
        missed = [] if each is rounds[-1] else [each.missed]
        assert {nodes[board.node(key_of(pod))]["disk"] for pod in (*each.batch, *missed)} == {"ssd"}
        assert {name_of(pod) for pod in (*each.batch, *missed) if "nodeSelector" not in shown(board, pod)["spec"]} == {
            name_of(pod) for pod in missed
        }, "the policy was injected into all others at admission"
        assert nodes[board.node(key_of(each.near))][ZONE] == nodes[board.node(key_of(each.db))][ZONE]
    decided: list[JsonObject] = []
    async with asyncio.timeout(PATIENCE):
        while {each["status"].get("phase") for each in decided} != {"Bound"}:
            await asyncio.sleep(0.1)
            decided, _ = await api.list(PLACEMENTS)
    assert sorted(each["spec"]["group"] for each in decided) == sorted(
        f"{kind}-{number}" for kind in ("gang", "whole") for number in range(len(rounds))
    )
    assert await cluster.faults() == []


def loaded(number: int) -> JsonObject:
    """Of ten pods four are a gang, which waits at its gate; the others get a node selector from a policy."""
    if number % 10 < 4:
        return plain_pod(f"load-{number}", {LABEL: f"load-{number // 10}", SIZE: "4"})
    return plain_pod(f"load-{number}", {"app": "batch"})


def plain_pod(name: str, labels: dict[str, str]) -> JsonObject:
    return pod(name, labels=labels, cpu="1m")

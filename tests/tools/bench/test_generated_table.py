"""A table whose objects are generated: it is listed and watched as any other, and holds none of them."""

from __future__ import annotations

import orjson

from extender.kube.credentials import Access
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.simulator.apiserver import kinds
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.apiserver.store import ADDED, MODIFIED, Store, Stored
from tests.tools.bench.api_server import Disturbances, GeneratedTable
from tests.tools.bench.cluster import SyntheticCluster
from tests.tools.bench.small_scenario import load


def stored(name: str, key: str = "", version: int = 1) -> Stored:
    return Stored(key or f"ns/{name}", version, orjson.dumps({"metadata": {"name": name, "namespace": "ns"}}), "")


class Generated:
    """A store with a thousand generated pods and one that is held; counts what is generated."""

    def __init__(self, count: int = 1000) -> None:
        self.made = 0
        self.store = Store()
        self.table = GeneratedTable(kinds.PODS, 100, count, self._generate)
        self.store.tables[kinds.PODS] = self.table

    def _generate(self, number: int, key: str) -> Stored:
        self.made += 1
        return stored(f"made-{number}", key)

    def names(self) -> list[str]:
        return [each.read()["metadata"]["name"] for each in self.table.latest()]


async def test_pages_have_each_pod_once_and_generate_about_their_own() -> None:
    generated = Generated()
    generated.table.record(ADDED, stored("held", version=2), 0.0)
    generated.store.version = 2
    names, token, most = list[str](), "", 0
    async with ApiServer(store=generated.store) as api, open_session(Access(host=api.url), SystemClock()) as session:
        while True:
            before = generated.made
            query = {"limit": "100"} | ({"continue": token} if token else {})
            page = orjson.loads(await session.reads.call("GET", "/api/v1/pods", query=query))
            most = max(most, generated.made - before)
            names += [each["metadata"]["name"] for each in page["items"]]
            token = page["metadata"].get("continue", "")
            if not token:
                break
    assert names == [*(f"made-{number}" for number in range(1000)), "held"]
    assert most <= 120, "a page, and a binary search for its beginning"


def test_an_announced_change_is_watched_and_not_held() -> None:
    generated = Generated(3)
    woken: list[str] = []
    generated.table.listen(lambda: woken.append("woken"))
    generated.table.announce(MODIFIED, stored("made-1", version=2), 0.0)
    changes = generated.table.since(0)
    assert changes is not None
    assert [change.type for change in changes] == [MODIFIED]
    assert (woken, generated.names(), generated.table.objects) == (["woken"], ["made-0", "made-1", "made-2"], {})


def test_disturbances_leave_the_cluster_as_it_was() -> None:
    cluster = SyntheticCluster(load())
    generated = Generated()
    nodes = generated.store.table(kinds.NODES)
    generated.store.load(orjson.loads(line)["object"] for line in cluster.node_lines())
    before = sorted(nodes.objects)
    happening = Disturbances(cluster, generated.store, generated.table)
    assert [happening.taint_zones(), happening.lose_zones(), len(nodes.objects), happening.return_zones()] == [100] * 4
    assert sorted(nodes.objects) == before
    assert "taints" not in nodes.objects["node-0"].read()["spec"]
    assert (happening.relabel_pods(20, restore=False), happening.relabel_pods(20, restore=True)) == (20, 20)
    changes = generated.table.since(0)
    assert changes is not None
    tracks = [change.stored.read()["metadata"]["labels"].get("track") for change in changes]
    assert tracks == ["canary"] * 20 + [None] * 20

"""Where the pods of released groups land with a real apiserver and scheduler: by their preferences, in both placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

from extender.simulator.json_objects import JsonObject, name_of
from tests.builders import PREFERRED
from tests.deploy.policies.examples import policy
from tests.e2e.cluster import Cluster
from tests.e2e.making_room import priority_class
from tests.e2e.pod_groups import LABEL, MACHINE, SETTINGS, SIZE, gang
from tests.e2e.test_gangs import released
from tests.simulator.plain import HOSTNAME, ZONE, node, pod, spread

__all__ = ["released"]  # the fixture

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

POOL: Final = "example.com/pool"
SOFT: Final = {"key": "old", "value": "yes", "effect": "PreferNoSchedule"}
TOLERATED: Final = [{"key": "old", "operator": "Exists"}]


def clause(key: str, *values: str) -> JsonObject:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


async def releasing(cluster: Cluster, kind: str, **release: Any) -> None:
    """A policy for gangs of a kind: the first part of their names."""
    block = {"group": {"label": LABEL}, "size": {"annotation": SIZE}, **release}
    spec = {
        "podSelector": {"matchLabels": {"kind": kind}},
        "namespaceSelector": {},
        "when": ["Release"],
        "release": block,
    }
    await cluster.api.create(policy("ClusterPodSchedulingPolicy", kind, **spec))


async def landed(cluster: Cluster, name: str, size: int, **spec: Any) -> Sequence[str]:
    """The nodes of the pods of a gang, once all are bound."""
    pods = gang(name, size, **spec)
    for each in pods:
        each["metadata"]["labels"]["kind"] = name.partition("-")[0]
    await cluster.api.create(*pods)
    return await cluster.board.bound(*pods)


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_gang_lands_where_its_pods_would_without_a_gate(released: Cluster, placement: str) -> None:
    """The nodes of a zone, sorted by name, and by room; those of two machine types, and those that are domains by themselves."""
    zone = [node(f"s{number}", "z1", cpu="32") for number in range(4)]
    zone[0]["spec"]["taints"] = [SOFT]
    machines = [node(f"{kind}{number}", "", cpu="2", labels={MACHINE: kind}) for kind in "mn" for number in range(2)]
    hosts = [node(f"h{number}", "", cpu="16", labels={POOL: "hosts"}) for number in range(3)]
    await released.api.create(*zone, *machines, *hosts)
    await releasing(released, "zone", topology=[ZONE])
    domains = [{"name": "both", "values": ["m", "n"], "preferred": ["n"]}]
    await releasing(released, "machine", topology=[MACHINE], domains=domains)
    await releasing(released, "host", topology=[HOSTNAME])
    settings = {**SETTINGS, "placement": placement}
    scored: dict[str, Any] = {"prioritizeVerb": "prioritize", "weight": 1} if placement == "cooperative" else {}
    async with released.scheduled(settings=settings, **scored):
        soft = [spread(HOSTNAME, hard=False, labels={LABEL: "zone-spread"})]
        found = await landed(released, "zone-spread", 4, topologySpreadConstraints=soft, tolerations=TOLERATED)
        assert set(found) == {"s0", "s1", "s2", "s3"}

        assert "s0" not in await landed(released, "zone-away", 4), "its taint is not tolerated"

        nodes = {PREFERRED: [{"weight": 100, "preference": clause(HOSTNAME, "s2")}]}
        found = await landed(released, "zone-prefers", 3, affinity={"nodeAffinity": nodes})
        assert set(found) == {"s2"}

        term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {LABEL: "zone-prefers"}}}
        terms = {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
        assert set(await landed(released, "zone-near", 3, affinity={"podAffinity": terms})) == {"s2"}
        assert "s2" not in await landed(released, "zone-apart", 3, affinity={"podAntiAffinity": terms})

        assert Counter(await landed(released, "machine-a", 4)) == {"n0": 2, "n1": 2}

        by_node = Counter[str]()
        for number in range(6):
            (only,) = set(await landed(released, f"host-{number}", 2, nodeSelector={POOL: "hosts"}))
            by_node[only] += 1
        assert by_node == {"h0": 2, "h1": 2, "h2": 2}
    assert await released.faults() == []


@pytest.mark.core("gated groups")
async def test_a_gang_preempts_pods_of_lower_priority_as_a_whole(released: Cluster) -> None:
    """Each zone is full of pods of one processor; those of z1 are the least important."""
    api, board = released.api, released.board
    await released.add_nodes(zones=2, per_zone=2, cpu="2")
    for name, value in (("high", 1000), ("middle", 10)):
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        await api.request("POST", path, priority_class(name, value), allow=[409])
    await releasing(released, "zone", topology=[ZONE], noRoom=[{"action": "Preempt"}])
    low = [pod(f"low-{number}", cpu="1", nodeSelector={ZONE: "z1"}) for number in range(4)]
    middle = [
        pod(f"middle-{number}", cpu="1", nodeSelector={ZONE: "z2"}, priorityClassName="middle") for number in range(4)
    ]
    settings = {**SETTINGS, "preemption": {"mode": "execute"}}
    async with released.scheduled(settings=settings):
        await api.create(*low, *middle)
        await board.bound(*low, *middle)
        found = await landed(released, "zone-high", 3, priorityClassName="high")
        assert {name.partition("-")[0] for name in found} == {"z1"}
        left = {name_of(each) for each in board.pods.values() if name_of(each).startswith(("low", "middle"))}
        assert len(left) == 5
        assert {name_of(each) for each in middle} < left
    assert await released.faults() == []

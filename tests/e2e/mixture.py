"""A load of pods with constraints on one another, of every kind, for clusters of 250 nodes: for bursts and hand-overs."""

from __future__ import annotations

from collections.abc import Iterator

from extender.simulator.json_objects import JsonObject
from tests.e2e.cluster import Cluster
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, pod, spread, term

ZONES, PER_ZONE = 10, 25
TEAMS = {"matchLabels": {"team": "a"}}


async def prepare(cluster: Cluster) -> None:
    """The nodes, and ten namespaces of one team."""
    await cluster.add_nodes(ZONES, PER_ZONE, cpu="64")
    await cluster.api.create(*(namespace(f"team-{number}", team="a") for number in range(10)))


def pods(count: int) -> Iterator[JsonObject]:
    """Pods of five kinds in turn, over ten namespaces; each kind has room for all of its pods, but none to waste."""
    for number in range(count):
        group, kind = str(number // 5 % 4), number % 5
        where, name = f"team-{number % 10}", f"burst-{number}"
        if kind == 0:  # 200 pods, each alone on one of 250 nodes, whatever its namespace
            labels = {"app": "apart"}
            yield pod(name, where, labels=labels, affinity=anti_affinity(term(HOSTNAME, namespaces=TEAMS, **labels)))
        elif kind == 1:  # four groups, each in a zone of its own choice
            near = affinity(term(ZONE, namespaces=TEAMS, near=group))
            yield pod(name, where, labels={"near": group}, affinity=near)
        elif kind == 2:
            labels = {"app": "even"}
            yield pod(
                name, "team-0", labels=labels, topologySpreadConstraints=[spread(labels=labels, minDomains=ZONES)]
            )
        elif kind == 3:  # over nodes as well, where one less in a single node binds all others
            labels = {"app": "thin"}
            constraints = [spread(skew=2, labels=labels), spread(HOSTNAME, labels=labels)]
            yield pod(name, "team-1", labels=labels, topologySpreadConstraints=constraints)
        else:  # four groups that shun one another's zones, as soon as each has one
            others = {"key": "shuns", "operator": "In", "values": [each for each in "0123" if each != group]}
            clause = {"topologyKey": ZONE, "labelSelector": {"matchExpressions": [others]}, "namespaceSelector": TEAMS}
            yield pod(name, where, labels={"shuns": group}, affinity=anti_affinity(clause))

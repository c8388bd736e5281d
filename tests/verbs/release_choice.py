"""A choice of domains for a group, and how it reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import ZONE
from extender.model.objects import Node, Pod
from extender.model.release import GroupKey, Level, Proposal, ReleaseSpec
from extender.settings.configuration import Settings
from extender.verbs.release.choice import Rest, propose
from tests.builders import settings
from tests.contenders import stage
from tests.gangs import gated

KEY = GroupKey("default", "ClusterPodSchedulingPolicy/gangs", "x")
RACK = "rack"
SETTINGS = settings()


def host(name: str, zone: str, cpu: int, rack: str = "", **fields: Any) -> Node:
    """A node with room for so many pods of one CPU each."""
    return stage(name, zone, cpu=1000 * cpu, labels={RACK: rack} if rack else None, **fields)


def hosts(text: str) -> list[Node]:
    """Nodes in the notation "a1:2 b1/r1:3": the first letter is the zone; then a rack, and the pods that it has room for."""
    nodes = []
    for word in text.split():
        place, _, cpu = word.partition(":")
        name, _, rack = place.partition("/")
        nodes.append(host(name, name[0], int(cpu), rack))
    return nodes


def gang(count: int, cpu: int = 1, **fields: Any) -> list[Pod]:
    return [gated(f"p{number}", "x", cpu=1000 * cpu, **fields) for number in range(count)]


def decide(
    index: ClusterIndex,
    pods: Sequence[Pod],
    *,
    siblings: Sequence[Pod] = (),
    levels: Sequence[Level] | None = None,
    taken: Sequence[tuple[GroupKey, Sequence[Level]]] = (),
    settings: Settings = SETTINGS,
    **release: Any,
) -> Proposal:
    fields: dict[str, Any] = {"topology": (ZONE,)}
    spec = ReleaseSpec(**(fields | release))
    return propose(Rest(KEY, spec, pods, siblings, levels, taken), index.view, settings)


def domain(found: Proposal) -> str:
    """The values of the levels, and nothing where no domain was found."""
    return "/".join(level.value for level in found.levels) if found.slots else ""


def on_nodes(found: Proposal) -> dict[str, int]:
    return dict(Counter(slot.node for slot in found.slots))

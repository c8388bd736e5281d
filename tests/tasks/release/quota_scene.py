"""A release in a cluster with nodes, under a policy with quotas for domains."""

from __future__ import annotations

from functools import partial
from typing import Any

from extender.compose.release import _propose
from extender.model.release import Domain, Strategy
from extender.settings.configuration import default_settings
from tests.contenders import stage
from tests.tasks.release.scene import Scene


def domain(name: str, most: int | None = None, *, may_grow: bool = False, **resources: int) -> Domain:
    quota = {**resources, **({"pods": most} if most is not None else {})}
    return Domain(name, (name,), (), tuple(sorted(quota.items())), may_grow)


class QuotaScene(Scene):
    """``rooms``: pods that fit into each zone, which has one node of that name."""

    def __init__(self, rooms: dict[str, int], **release: Any) -> None:
        super().__init__({}, **{"topology": ("zone",), "strategy": Strategy.IN_ORDER, **release})
        self.propose = partial(_propose, self.index, default_settings("offload"))  # type: ignore[method-assign]
        for zone, room in rooms.items():
            self.add_node(zone, room)

    def add_node(self, zone: str, room: int) -> None:
        self.rooms[zone] = room
        self.index.upsert(stage(zone, labels={"zone": zone}, pods=room, cpu=1000 * room))

    def where(self) -> dict[str, int]:
        """How many pods are released into each zone."""
        zones = list(self.released().values())
        return {zone: zones.count(zone) for zone in sorted(set(zones))}

    def why(self, gang: str) -> tuple[str, str]:
        """The reason why a group waits, and the message."""
        status = self.status(gang)
        return status["conditions"][0]["reason"], status["message"]

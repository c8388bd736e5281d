"""What a tenant can write into pods that hold a quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.model.policies import Mode, PolicyObject
from extender.model.release import Domain
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.contenders import contender_json
from tests.tasks.release.quota_scene import QuotaScene, domain
from tests.tasks.release.scene import POLICY

TEAM = {"team": "a"}
LISTED = (domain("a", 4), domain("b", 0))


class Held(QuotaScene):
    """A policy for pods of a team. Zones a and b are listed, other is not."""

    def __init__(self, domains: tuple[Domain, ...] = LISTED, **release: Any) -> None:
        selector = {"matchLabels": TEAM}
        super().__init__({"a": 90, "b": 90, "other": 90}, **{"domains": domains, "selector": selector} | release)

    def gang(self, name: str, *numbers: int) -> None:
        self.create(name, *numbers)
        for number in numbers:
            self.relabel(f"{name}-{number}", TEAM)

    def relabel(self, name: str, labels: Mapping[str, str | None]) -> None:
        body = self.api.pods[f"default/{name}"]
        changed = {**body["metadata"]["labels"], **labels}
        body["metadata"]["labels"] = {key: value for key, value in changed.items() if value is not None}
        self.api.add(body)
        self.show()

    def strip(self, name: str) -> None:
        """Takes the annotation of the release off a pod."""
        self.api.pods.edit(f"default/{name}", "metadata", annotations={})
        self.show()

    def ungate(self, name: str) -> None:
        """Removes the gate of a pod by hand."""
        self.api.pods.edit(f"default/{name}", "spec", schedulingGates=[])
        self.show()

    def plain(self, name: str, **fields: Any) -> None:
        """A pod of the team that never had the gate."""
        self.api.add(contender_json(name, **{"labels": {**TEAM, "gang": name, "size": "1"}} | fields))
        self.show()

    def filter(self, name: str, *nodes: str) -> FilterResult:
        """The answer about a pod, which is assumed where it passes."""
        pod = self.index.pods[f"uid-{name}"]
        args = ExtenderArgs(pod, list(nodes or self.rooms))
        result = FilterVerb(self.index.view, Settings()).decide(args, Random(1).getrandbits(32)).result
        if result.passed:
            self.index.assume(pod, result.passed, self.clock.now())
        return result

    def passing(self, name: str, *nodes: str) -> list[str]:
        return list(self.filter(name, *nodes).passed)

    def bind_to(self, name: str, node: str) -> None:
        self.api.pods.edit(f"default/{name}", "spec", nodeName=node)
        self.show()

    def used(self, zone: str = "a") -> int:
        return self.index.gated.charges.of(POLICY, zone).get("pods", 0)

    def restarted(self) -> None:
        """Another process, which has what the watch shows and no memory."""
        self.index = ClusterIndex(Rules(), counts_of_rules())
        for zone, room in self.rooms.items():
            self.add_node(zone, room)
        self.index.upsert(PolicyObject(self.policy))
        self.show()


def strip(scene: Held, name: str) -> None:
    scene.strip(name)


def relabel(scene: Held, name: str) -> None:
    scene.relabel(name, {"team": None})


def both(scene: Held, name: str) -> None:
    scene.relabel(name, {"team": "b", "gang": "z"})
    scene.strip(name)


def audited(policy: Any) -> Any:
    return replace(policy, mode=Mode.AUDIT)

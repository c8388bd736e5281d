"""A filter service over three nodes, which tests ask before the watch shows anything."""

from __future__ import annotations

from random import Random
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.kube.timing import SystemClock
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, ScheduledPods, WatchedPods
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, decode_args
from extender.wire.objects.kinds import NODES
from tests.builders import read_pod
from tests.deciding import KeptPlans

JsonObject = dict[str, Any]

HOST = "kubernetes.io/hostname"
NOW = 1_767_225_610.0  # 2026-01-01T00:00:10Z
NODE_NAMES = ("n1", "n2", "n3")
ON_EACH = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "web"}}}
APART = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ON_EACH]}}}


class Played:
    """Three nodes, and the filter verb with its effect on assumed pods."""

    def __init__(self, placement: str, wait: float = 0.05, *, assumes: bool = True) -> None:
        self.settings = Settings(placement="decisive" if placement == "decisive" else "cooperative")
        self.index = ClusterIndex(self.settings.rules, counts_of_rules())
        self.clock = SystemClock()
        self.plans = KeptPlans()
        self.rejected: list[ExtenderArgs] = []
        for name in NODE_NAMES:
            self.index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
        options = AssumedPodOptions(enabled=assumes, wait=wait)
        verb = FilterVerb(self.index.view, self.settings)
        pods = WatchedPods(self.index, self.clock, 0.0, 1)
        self.bound: list[tuple[float, int]] = []
        self.scheduled = ScheduledPods(lambda seconds, attempts: self.bound.append((seconds, attempts)), lambda: NOW)
        self.filter_service = FilterService(
            self.index,
            pods,
            self.clock,
            options,
            verb,
            Random(1),
            self.plans,
            [self.rejected.append],
            scheduled=self.scheduled,
        )

    async def filter(self, name: str, spec: JsonObject, nodes: tuple[str, ...] = NODE_NAMES) -> list[str]:
        """The nodes for a pending pod, which the watch shows from now on at the latest."""
        return list((await self.result(name, spec, nodes)).passed)

    async def result(self, name: str, spec: JsonObject, nodes: tuple[str, ...] = NODE_NAMES) -> FilterResult:
        if name not in self.index.pods:
            self.show(name, spec)
        body = {"Pod": pending_pod(name, spec), "NodeNames": nodes}
        return await self.filter_service.filter(decode_args(orjson.dumps(body)))

    def show(self, name: str, spec: JsonObject, on: str = "", **more: Any) -> None:
        pod = pending_pod(name, {**spec, "nodeName": on} if on else spec)
        self.index.upsert(read_pod({**pod, **more}))


def decoded(name: str, spec: JsonObject) -> Pod:
    return read_pod(pending_pod(name, spec))


def pending_pod(name: str, spec: JsonObject) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"}}, "spec": spec}

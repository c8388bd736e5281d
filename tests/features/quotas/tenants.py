"""Quotas for pods with affinity across namespaces: objects, and a small cluster whose filter verb assumes the pods that pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

import orjson

from extender.features.quotas.table import QuotasView, QuotaTable, quota_table
from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod, PodQuota
from extender.model.policies import PolicyObject
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.tasks.filter_service import AssumedPodOptions, FilterService, WatchedPods
from extender.tasks.rejected_pods import dependency_version
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import FilterResult
from extender.wire.objects.kinds import RESOURCE_QUOTAS
from tests.builders import Json, extender_args, namespace, node, pod_json, read_pod, settings, term
from tests.deciding import KeptPlans
from tests.fakes import FakeClock

SCOPE: Final = "CrossNamespacePodAffinity"
NODES: Final = ("n1", "n2", "n3")
ALL_NAMESPACES: Final = [term("zone", app="db", namespace_selector={})]


def quotas_of(index: ClusterIndex) -> QuotaTable:
    """The table of quotas of an index that was made with one."""
    table = index.view.table(QuotasView)
    assert isinstance(table, QuotaTable)
    return table


def quota_json(
    name: str = "cross",
    hard: Mapping[str, str] | None = None,
    *,
    in_namespace: str = "team",
    scopes: Sequence[str] = (SCOPE,),
    selected: Sequence[Json] = (),
) -> Json:
    """A ResourceQuota; without `hard` it limits pods to 1. `selected` are expressions of its scopeSelector."""
    spec: Json = {"hard": {"pods": "1"} if hard is None else dict(hard)}
    if scopes:
        spec["scopes"] = list(scopes)
    if selected:
        spec["scopeSelector"] = {"matchExpressions": list(selected)}
    return {"kind": "ResourceQuota", "metadata": {"name": name, "namespace": in_namespace}, "spec": spec}


def quota(name: str = "cross", hard: Mapping[str, str] | None = None, **fields: Any) -> PodQuota:
    """The same as the service reads it."""
    return RESOURCE_QUOTAS.decode_object(orjson.dumps(quota_json(name, hard, **fields)))


def limited(number: int, **fields: Any) -> PodQuota:
    return quota(hard={"pods": str(number)}, **fields)


def reaching_json(name: str, *, spec: Json | None = None, created: str = "", **fields: Any) -> Json:
    """A pod of the namespace `team` with anti-affinity against all namespaces; `spec` has further fields."""
    body = pod_json(name, **{"namespace": "team", "apart": ALL_NAMESPACES, "app": "web", **fields})
    body["spec"] |= spec or {}
    if created:
        body["metadata"]["creationTimestamp"] = created
    return body


def reaching(name: str, **fields: Any) -> Pod:
    """The same as the service reads it."""
    return read_pod(reaching_json(name, **fields))


class Tenants:
    """Three nodes, the namespaces `team` and `other`, and the filter verb with its effect on assumed pods."""

    def __init__(
        self,
        *objects: Object,
        policies: Sequence[Any] = (),
        mode: str = "offload",
        quota_mode: str = "Enforce",
        **section: Any,
    ) -> None:
        sections: Any = {
            "mode": mode,
            "policies": {"enabled": bool(policies), "exemptions": {"labelIn": ["*"]}},
            "preemption": {"mode": "off"},
        }
        self.settings: Settings = settings(**sections, quota={"enabled": True, "mode": quota_mode} | section)
        self.index = ClusterIndex(
            self.settings.rules,
            counts_of_rules(),
            rejects_excess=mode == "offload",
            tables=(quota_table(self.settings.quota),),
            policies=self.settings.policies,
        )
        self.clock = FakeClock()
        self.verb = FilterVerb(self.index.view, self.settings)
        there: list[Object] = [*(node(name, zone=f"z-{name}") for name in NODES), namespace("team"), namespace("other")]
        self.put(*there, *map(PolicyObject, policies), *objects)
        self.service = FilterService(
            self.index,
            WatchedPods(self.index, self.clock, 0.0, 1),
            self.clock,
            AssumedPodOptions(),
            self.verb,
            Random(1),
            KeptPlans(),
        )

    def put(self, *objects: Object) -> None:
        """The watch shows objects."""
        for each in objects:
            self.index.upsert(each)

    async def filter(self, body: Json, names: Sequence[str] = NODES) -> FilterResult:
        """The scheduler requests a pending pod, which the watch shows from now on at the latest."""
        shown = read_pod(body)
        if shown.uid not in self.index.pods:
            self.index.upsert(shown)
        return await self.service.filter(extender_args(body, *names))

    async def passes(self, name: str, **fields: Any) -> bool:
        """Whether a pod with affinity across namespaces passes."""
        return bool((await self.filter(reaching_json(name, **fields))).passed)

    async def text(self, name: str, **fields: Any) -> str:
        """The text with which such a pod is rejected; it is the same, and unresolvable, for every node."""
        result = await self.filter(reaching_json(name, **fields))
        assert not result.passed
        assert not result.failed
        assert set(result.unresolvable) == set(NODES)
        (text,) = set(result.unresolvable.values())
        return text

    def version(self, name: str, **fields: Any) -> object:
        """What the rejection of a pod depends on: it changes when the pod is to be tried again."""
        return dependency_version(reaching(name, **fields), self.index.view)

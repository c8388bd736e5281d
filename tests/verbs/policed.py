"""A small cluster with scheduling policies, and pods that admission missed."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.policies import GROUP, PolicyObject
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import policy_terms
from extender.verbs.filter import FilterDecision, FilterVerb
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import policies_within
from tests.builders import Json, extender_args, settings
from tests.contenders import cluster, contender_json, stage

NODES = ("na", "nb", "nc")


class FilterScene:
    """Three nodes in the zones a, b and c, with policies."""

    def __init__(self, *policies: Any, enabled: bool = True, exemptions: Json | None = None, **sections: Any) -> None:
        nodes = [stage(f"n{zone}", labels={"zone": zone}) for zone in "abc"]
        self.index: ClusterIndex = cluster(*nodes, *map(PolicyObject, policies))
        self.settings: Settings = settings(policies={"enabled": enabled, "exemptions": exemptions or {}}, **sections)
        self._follow_policies()

    def _follow_policies(self) -> None:
        self.verb = FilterVerb(self.index.view, self.settings)
        self.index.counts.policy_terms = partial(policy_terms, view=self.index.view, settings=self.settings)

    def recount(self) -> int:
        """What the task does after policies have changed: how many signatures it corrects."""
        return sum([self.index.counts.recheck_policies(each) for each in list(self.index.counts.signatures)])

    def put_json(self, body: Json) -> None:
        """A policy is stored, valid or not, as the watch shows it."""
        kind = policies_within(DEFAULT_LIMITS, body["kind"], GROUP)
        self.index.upsert(kind.decode_object(orjson.dumps(body)))

    def put(self, made: Any) -> None:
        self.index.upsert(PolicyObject(made))

    def filter(self, body: Json | None = None) -> FilterDecision:
        return self.verb.decide(extender_args(body or contender_json("asking"), *NODES), 0)

    def passed(self, body: Json | None = None) -> list[str]:
        return list(self.filter(body).result.passed)


def with_spec(**fields: Any) -> Json:
    """A pod with more fields in its spec."""
    body = contender_json("asking")
    body["spec"] |= fields
    return body


class AugmentedScene(FilterScene):
    """Three nodes and policies in augment mode, where the in-tree plugins decide the pod's own constraints."""

    def __init__(self, *policies: Any, **sections: Any) -> None:
        super().__init__()
        self.settings = settings(mode="augment", policies={"enabled": True}, **sections)
        self.index = ClusterIndex(self.settings.rules, counts_of_rules(), rejects_excess=False)
        for zone in "abc":
            self.index.upsert(stage(f"n{zone}", labels={"zone": zone}))
        for each in policies:
            self.put(each)
        self._follow_policies()

"""A pod that the webhook missed may be placed exactly where the pod may be placed that the webhook would have made."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given

from extender.model.objects import Node, Pod
from extender.model.policies import Policy, PolicyObject
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.effective_pod import effective_pod
from extender.wire import kinds
from tests.builders import Json, index_of, node_json, settings
from tests.laws.injecting import ALIKE, NODES, POLICIES, SPECS
from tests.verbs.admit.reviewing import ask, pod, verb

ENABLED = settings(policies={"enabled": True})
HOSTS: list[Node] = [
    kinds.NODES.decode_object(orjson.dumps(node_json(f"n{number}", labels=labels | {"pool": pool})))
    for number, (labels, pool) in enumerate((labels, pool) for labels in NODES for pool in ("x", "y"))
]


def _decoded(body: Json) -> Pod:
    return kinds.PODS.decode_object(orjson.dumps(body))


def _matched(one: Pod) -> set[str]:
    """The nodes that the in-tree plugin NodeAffinity lets pass."""
    return {each.name for each in HOSTS if one.signature.node_affinity.matches(each.name, each.labels)}


@given(spec=SPECS, policies=POLICIES)
def test_filter_passes_the_nodes_that_the_injected_pod_matches(spec: dict[str, Any], policies: list[Policy]) -> None:
    escaped = pod(spec)
    injected = _decoded(ask(verb(*policies), escaped).obj)
    own = _decoded(escaped)
    index = index_of(*HOSTS, *map(PolicyObject, policies))
    held = effective_pod(own, index.view, ENABLED)
    compiled = index.view.compiled(held.signature)
    parts = [(rule, part) for rule, part in catalog.active(compiled, index.view) if rule.name == "SchedulingPolicy"]
    filters = catalog.prepare(parts, held, index.view, IndexFrame())
    passed = {index.view.node_names[each] for each in filters.passing(list(index.view.known.values()))}
    assert passed & _matched(own) == _matched(injected) & _matched(own)
    if held is not own:
        assert passed == _matched(injected)


@given(spec=SPECS, policies=ALIKE)
def test_an_injected_pod_is_held_to_what_it_has(spec: dict[str, Any], policies: list[Policy]) -> None:
    injected = _decoded(ask(verb(*policies), pod(spec)).obj)
    index = index_of(*map(PolicyObject, policies))
    enforced = effective_pod(injected, index.view, ENABLED).signature.enforced
    assert enforced is None or {each.name for each in HOSTS if enforced.admits(each.name, each.labels)} == _matched(
        injected
    )

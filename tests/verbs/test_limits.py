"""Pods above a limit: refused in offload mode, left to the plugins in augment mode, and counted where they stand."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Namespace
from extender.model.rejections import Reason
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings, default_settings
from extender.settings.limits import NamespaceLimits
from extender.settings.rules import Rules
from extender.tasks.rejected_pods import RejectedPodWriter, Requeuer
from extender.verbs.filter import FilterVerb
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import FilterResult
from tests.builders import (
    REQUIRED,
    Json,
    extender_args,
    index_of,
    matching,
    node,
    pod,
    pod_json,
    preempting,
    settings,
    term,
)
from tests.contenders import contender_json
from tests.deciding import filter_nodes
from tests.fakes import FakeClock, FakeWriter, until
from tests.policies import expression, node_term, policy, preferring, requiring
from tests.verbs.policed import NODES, AugmentedScene, FilterScene, with_spec

OFFLOAD: Final = settings()
MANY: Final = [term(app=f"a{number}") for number in range(101)]
BIG: Final = [term(app=f"a{number}") for number in range(2_000)]
TEXT: Final = "spec.affinity: 101 terms of pods, limits.affinityTerms is 100"


def filtered(index: ClusterIndex, body: Json, *names: str, under: Settings = OFFLOAD) -> FilterResult:
    return filter_nodes(extender_args(body, *names), index.view, under, seed=0)


def test_offload_rejects_it_on_every_node_with_the_limit_and_the_pods_number() -> None:
    """Nothing of it is compiled, and it is not nominated elsewhere."""
    index = index_of(node("n1"), node("n2"))
    before = index.statistics()
    found = filtered(index, pod_json(apart=MANY), "n1", "n2", "ghost")
    assert (found.passed, found.failed, found.unresolvable) == ((), {}, dict.fromkeys(("n1", "n2", "ghost"), TEXT))
    assert not filtered(index, pod_json(apart=BIG), "n1").passed
    assert find_node_elsewhere(pod(apart=MANY), index.view, OFFLOAD, 0) == ("", False)
    assert index.statistics() == before


def test_augment_passes_it_to_the_plugins() -> None:
    augment = default_settings("augment")
    index = ClusterIndex(Rules(), counts_of_rules(), rejects_excess=False)
    for each in (node("n1"), node("n2"), pod("keeper", on="n1", apart=[term(app="web")])):
        index.upsert(each)
    body = pod_json(app="web", apart=MANY)
    assert filtered(index, body, "n1", "n2", under=augment).passed == ["n1", "n2"]
    assert prioritize_nodes(extender_args(body, "n1", "n2"), index.view, augment) == {}


def test_no_pod_is_preempted_for_it() -> None:
    index = index_of(node("n1"), pod("low", on="n1", app="a1", priority=0))
    body = pod_json(apart=MANY, priority=1000)
    decided = FilterVerb(index.view, OFFLOAD).decide(extender_args(body, "n1"), 0)
    assert (decided.plan, decided.result.unresolvable) == (None, {"n1": TEXT})
    offered = decide_preemption(preempting(body, {"n1": ["uid-low"]}), index.view, OFFLOAD, seed=0)
    assert (offered.plan, offered.candidates) == (None, ())


@pytest.mark.parametrize(
    ("old", "incoming", "passed"),
    [
        # A limit that was lowered later must not change which pods may be beside a running pod.
        ({"apart": MANY}, {"app": "a7"}, ["n2"]),
        ({"apart": BIG, "app": "web"}, {"apart": [term(app="web")]}, ["n2"]),
        ({"apart": BIG, "app": "web"}, {"app": "a7"}, ["n1", "n2"]),
    ],
    ids=["its anti-affinity counts", "its labels count", "constraints of a pod above the bytes do not"],
)
def test_a_running_pod_above_a_limit(old: Json, incoming: Json, passed: list[str]) -> None:
    index = index_of(node("n1"), node("n2"), pod("old", on="n1", **old))
    assert filtered(index, pod_json(**incoming), "n1", "n2") == FilterResult(passed)


LATE: Final = [term(app="late")]
CROWDED: Final = "namespace default uses 1 different selectors and the pod adds 1, limits.perNamespace.selectors is 1"


def test_a_pod_that_its_namespace_has_no_budget_for_is_rejected_until_a_pod_that_uses_it_is_deleted() -> None:
    index = ClusterIndex(Rules(), counts_of_rules(), namespace_limits=NamespaceLimits(selectors=1))
    first = pod("first", on="n1", apart=[term(app="first")])
    for obj in (node("n1"), node("n2"), first, pod("late", apart=LATE)):
        index.upsert(obj)
    found = filtered(index, pod_json("late", apart=LATE), "n1", "n2")
    assert (found.passed, found.failed, found.unresolvable) == ((), {}, dict.fromkeys(("n1", "n2"), CROWDED))
    assert found.reasons == {Reason.OVER_BUDGET}
    index.delete(first)
    assert filtered(index, pod_json("late", apart=LATE), "n1", "n2").passed == ["n1", "n2"]


async def test_it_is_requeued_when_a_pending_pod_frees_the_budget() -> None:
    """kube-scheduler tries no pod again because a pending one was deleted."""
    index = ClusterIndex(Rules(), counts_of_rules(), namespace_limits=NamespaceLimits(selectors=1))
    first, late = pod("first", apart=[term(app="first")]), pod("late", apart=LATE)
    for each in (node("n1"), first, late):
        index.upsert(each)
    writer = FakeWriter()
    writes = RejectedPodWriter(index, writer, lambda each: find_node_elsewhere(each, index.view, OFFLOAD, 0))
    requeuer = Requeuer(writes, FakeClock(), per_second=50)
    filtered(index, pod_json("first", apart=[term(app="first")]), "n1")
    filtered(index, body := pod_json("late", apart=LATE), "n1")
    requeuer.consider(extender_args(body, "n1"))
    running = asyncio.create_task(requeuer.run())
    try:
        await until(lambda: len(index.namespace_budgets.changes))
        index.delete(first)
        await until(lambda: writer.effects)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (effect,) = writer.effects
    assert effect.startswith("annotate late ")


# -- A tenant pads a pod up to or above a limit: the filter holds it to what the platform's policies say about nodes ---

ZONES = requiring(node_term(expression("zone", "In", "a")), node_term(expression("zone", "In", "b")))


def terms(count: int) -> list[Json]:
    return [
        node_term(expression("zone", "Exists"), expression(f"k{number}", "DoesNotExist")) for number in range(count)
    ]


AT_A_LIMIT: dict[str, Json] = {
    "nodeRequirements": {"affinity": requiring(node_term(*(expression(f"k{n}", "DoesNotExist") for n in range(200))))},
    "maxTerms": {"affinity": requiring(*terms(64))},
    "nodeSelectorTerms": {"affinity": preferring(*((1, each) for each in terms(100)))},
    "tolerations": {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(100)]},
}  # fmt: skip


@pytest.mark.parametrize("scene", [FilterScene, AugmentedScene])
@pytest.mark.parametrize("spec", AT_A_LIMIT.values(), ids=AT_A_LIMIT)
def test_a_pod_at_a_limit_is_held_to_what_the_platform_says_about_nodes(spec: Json, scene: type[FilterScene]) -> None:
    held = scene(policy("zonal", affinity=ZONES, nodeSelector={"zone": "b"}, conflictPolicy="Override"))
    assert held.passed(with_spec(**spec)) == ["nb"]
    assert scene(policy("zonal", affinity=ZONES)).passed(with_spec(**spec)) == ["na", "nb"]


BIG_TERMS = {"podAntiAffinity": {REQUIRED: [term("zone", app="x" * 60, number=str(n)) for n in range(600)]}}
ABOVE_A_LIMIT: dict[str, Json] = {
    "tolerations": {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(101)]},
    "nodeRequirements": {"affinity": requiring(*terms(101))},
    "affinityTerms": {"affinity": {"podAntiAffinity": {REQUIRED: [term("zone", app=f"a{n}") for n in range(101)]}}},
    "podBytes": {"affinity": BIG_TERMS},
}


@pytest.mark.parametrize("spec", ABOVE_A_LIMIT.values(), ids=ABOVE_A_LIMIT)
def test_in_augment_mode_a_pod_above_a_limit_is_held_to_what_selects_nodes(spec: Json) -> None:
    chosen: Json = {"podSelector": matching(app="web"), "matchConditions": {"ownerKinds": ["Job"]}}
    scene = AugmentedScene(
        policy("zonal", affinity=ZONES, **chosen),
        policy("pinned", nodeName="nb", **chosen),
        policy("other", nodeSelector={"zone": "c"}, podSelector=matching(app="db")),
    )
    body = contender_json("asking", app="web", owner=("Job", "batch"))
    body["spec"] |= spec
    assert scene.passed(body) == ["nb"]
    assert scene.passed(contender_json("asking") | {"spec": {"containers": [], **spec}}) == list(NODES)


def test_labels_that_are_too_large_to_be_read_hide_a_pod_from_no_policy() -> None:
    """Any policy that selects pods of its namespace might select it."""
    scene = AugmentedScene(
        policy("zonal", nodeSelector={"zone": "a"}, podSelector=matching(app="web")),
        policy("far", "bank", nodeSelector={"zone": "b"}),
    )
    labels = {"app": "web", **{f"{'k' * 50}{number}": "v" * 50 for number in range(700)}}
    assert scene.passed(contender_json("asking", labels=labels)) == ["na"]
    scene.put(policy("zonal", nodeSelector={"zone": "c"}, podSelector=matching(app="web")))
    assert scene.passed(contender_json("asking", labels=labels)) == ["nc"]
    assert scene.passed(contender_json("asking", namespace="kube-system", labels=labels)) == list(NODES)


@pytest.mark.parametrize(("failure_policy", "passed"), [("Fail", []), ("Ignore", list(NODES))])
def test_what_a_limit_keeps_out_is_a_failure_of_the_policy(failure_policy: str, passed: list[str]) -> None:
    apart = {"podAntiAffinity": {REQUIRED: [term("zone", app="db")]}}
    for scene, spec in (
        (FilterScene(policy("apart", affinity=apart, failurePolicy=failure_policy), limits={"affinityTerms": 2}), 2),
        (AugmentedScene(policy("apart", affinity=apart, failurePolicy=failure_policy), limits={"affinityTerms": 2}), 3),
    ):
        own: Any = {"podAntiAffinity": {REQUIRED: [term("zone", app=f"a{number}") for number in range(spec)]}}
        result = scene.filter(with_spec(affinity=own)).result
        assert list(result.passed) == passed
        assert result.reasons == (frozenset() if passed else {Reason.POLICY_FAILED})


def test_policies_of_a_namespace_do_not_use_up_the_budget_of_the_platform() -> None:
    many = [
        policy(f"t{number}", "default", priority=9, affinity=preferring(*((1, each) for each in terms(95))))
        for number in range(220)
    ]
    assert FilterScene(policy("zonal", nodeSelector={"zone": "b"}, failurePolicy="Fail"), *many).passed() == ["nb"]


@pytest.mark.parametrize(("failure_policy", "passed"), [("Fail", []), ("Ignore", list(NODES))])
def test_a_pod_of_a_namespace_that_is_not_known_yet(failure_policy: str, passed: list[str]) -> None:
    tenants: Json = {"namespaceSelector": matching(tenant="yes"), "failurePolicy": failure_policy}
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "a"}, **tenants))
    body = contender_json("asking", namespace="new")
    assert scene.passed(body) == passed
    scene.index.upsert(Namespace("new", {"tenant": "yes"}))
    assert scene.passed(body) == ["na"]

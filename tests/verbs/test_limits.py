"""Pods above a limit: refused in offload mode, left to the plugins in augment mode, and counted where they stand."""

from __future__ import annotations

import asyncio
from typing import Final

from extender.index.cluster import ClusterIndex
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
from tests.builders import Json, asking, index_of, node, pod, pod_json, preempting, settings, term
from tests.deciding import filter_nodes
from tests.fakes import FakeClock, FakeWriter, until

OFFLOAD: Final = settings()
MANY: Final = [term(app=f"a{number}") for number in range(101)]
BIG: Final = [term(app=f"a{number}") for number in range(2_000)]
TEXT: Final = "spec.affinity: 101 terms of pods, limits.affinityTerms is 100"


def filtered(index: ClusterIndex, body: Json, *names: str, under: Settings = OFFLOAD) -> FilterResult:
    return filter_nodes(asking(body, *names), index.view, under, seed=0)


def test_offload_rejects_it_on_every_node_with_the_limit_and_the_pods_number() -> None:
    index = index_of(node("n1"), node("n2"))
    found = filtered(index, pod_json(apart=MANY), "n1", "n2", "ghost")
    assert (found.passed, found.failed, found.unresolvable) == ((), {}, dict.fromkeys(("n1", "n2", "ghost"), TEXT))


def test_nothing_of_it_is_compiled() -> None:
    index = index_of(node("n1"))
    before = index.statistics()
    filtered(index, pod_json(apart=MANY), "n1")
    filtered(index, pod_json(apart=BIG), "n1")
    assert index.statistics() == before


def test_augment_passes_it_to_the_plugins() -> None:
    augment = default_settings("augment")
    index = ClusterIndex(Rules(), counts_of_rules(), rejects_excess=False)
    for each in (node("n1"), node("n2"), pod("keeper", on="n1", apart=[term(app="web")])):
        index.upsert(each)
    body = pod_json(app="web", apart=MANY)
    assert filtered(index, body, "n1", "n2", under=augment).passed == ["n1", "n2"]
    assert prioritize_nodes(asking(body, "n1", "n2"), index.view, augment) == {}


def test_no_pod_is_preempted_for_it() -> None:
    index = index_of(node("n1"), pod("low", on="n1", app="a1", priority=0))
    body = pod_json(apart=MANY, priority=1000)
    decided = FilterVerb(index.view, OFFLOAD).decide(asking(body, "n1"), 0)
    assert (decided.plan, decided.result.unresolvable) == (None, {"n1": TEXT})
    offered = decide_preemption(preempting(body, {"n1": ["uid-low"]}), index.view, OFFLOAD, seed=0)
    assert (offered.plan, offered.candidates) == (None, ())


def test_it_is_not_nominated_elsewhere() -> None:
    index = index_of(node("n1"))
    assert find_node_elsewhere(pod(apart=MANY), index.view, OFFLOAD, 0) == ("", False)


def test_its_anti_affinity_keeps_others_away_where_it_stands() -> None:
    """A limit that was lowered later must not change which pods may stand beside a running pod."""
    index = index_of(node("n1"), node("n2"), pod("old", on="n1", apart=MANY))
    assert filtered(index, pod_json(app="a7"), "n1", "n2") == FilterResult(["n2"])


def test_its_labels_count_where_it_stands_however_large_it_is() -> None:
    index = index_of(node("n1"), node("n2"), pod("old", on="n1", apart=BIG, app="web"))
    assert filtered(index, pod_json(apart=[term(app="web")]), "n1", "n2") == FilterResult(["n2"])


def test_constraints_of_a_pod_above_the_bytes_bind_no_other_pod() -> None:
    index = index_of(node("n1"), pod("old", on="n1", apart=BIG, app="web"))
    assert filtered(index, pod_json(app="a7"), "n1") == FilterResult(["n1"])


def crowded() -> ClusterIndex:
    """A namespace whose budget of one selector is used up by a pod on a node; that of a pending pod is asked for."""
    index = ClusterIndex(Rules(), counts_of_rules(), namespace_limits=NamespaceLimits(selectors=1))
    for each in (node("n1"), node("n2"), pod("first", on="n1", apart=[term(app="first")]), pod("late", apart=LATE)):
        index.upsert(each)
    return index


LATE: Final = [term(app="late")]
CROWDED: Final = "namespace default uses 1 different selectors and the pod adds 1, limits.perNamespace.selectors is 1"


def test_a_pod_that_its_namespace_has_no_budget_for_is_rejected_on_every_node_with_a_reason_of_its_own() -> None:
    found = filtered(crowded(), pod_json("late", apart=LATE), "n1", "n2")
    assert (found.passed, found.failed, found.unresolvable) == ((), {}, dict.fromkeys(("n1", "n2"), CROWDED))
    assert found.reasons == {Reason.OVER_BUDGET}


def test_it_passes_when_a_pod_that_used_the_budget_is_gone() -> None:
    index = crowded()
    filtered(index, pod_json("late", apart=LATE), "n1", "n2")
    index.delete(pod("first", on="n1", apart=[term(app="first")]))
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
    requeuer.consider(asking(body, "n1"))
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

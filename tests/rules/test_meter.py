"""How often rules are evaluated, and how much processor time each takes in a sample of decisions.

The requirement: KEP-2249, "Monitoring Requirements", and KEP-3022, "What are the SLIs", have their objectives on
``plugin_execution_duration_seconds{plugin}``; KEP-3022, "Are there any missing metrics", asks for ``plugin_evaluation_total``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.rules.meter import FIRST, SAMPLE, RuleMeter, Stopwatch
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterDecision, FilterVerb
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import (
    Json,
    extender_args,
    index_of,
    matching,
    namespace,
    node,
    pod,
    pod_json,
    preempting,
    settings,
    spread,
    term,
    weighted,
)
from tests.contenders import cluster, contender, contender_json, stage

NODES: list[Object] = [node("n1", zone="z1"), node("n2", zone="z2"), node("n3", zone="z3"), namespace("default")]
NAMES = ("n1", "n2", "n3")
WEB = term("zone", app="web")
APART = pod_json(app="web", apart=[WEB])
SPREAD = pod_json(app="web", spreads=[spread("zone", min_domains=3, app="web")])
NEAR_IF_POSSIBLE = pod_json(prefers=[weighted(3, WEB)])
PLAIN = pod_json()
WHOLE, DECISIVE = settings(placement="cooperative"), settings(placement="decisive")
EXECUTE = settings(preemption={"mode": "execute"})


def web_on(*names: str) -> ClusterIndex:
    return index_of(*NODES, *(pod(f"web-{name}", on=name, app="web") for name in names))


class Metered:
    """A filter verb, and what its meter has timed. Each look at the clock takes a second."""

    def __init__(self, index: ClusterIndex, by: Settings | None = None) -> None:
        self.verb = FilterVerb(index.view, by or DECISIVE)
        self.meter = self.verb.meter
        self.timed: list[tuple[str, str]] = []
        seconds = count()
        self.meter.start(lambda: float(next(seconds)), self._report)

    def _report(self, rule: str, point: str, spent: float) -> None:
        assert spent > 0
        self.timed.append((rule, point))

    def filter(self, incoming: Json, *names: str, sampled: bool = False) -> FilterDecision:
        if sampled:
            self.meter.left = 1
        return self.verb.decide(extender_args(incoming, *(names or NAMES)), 0)


class TestEvaluations:
    """Counted in every decision, by rule, extension point and verb."""

    @pytest.mark.parametrize(
        ("incoming", "expected"),
        [
            pytest.param(PLAIN, {}, id="no constraint"),
            pytest.param(APART, {("InterPodAffinity", "Filter", "filter"): 2}, id="anti-affinity"),
            pytest.param(SPREAD, {("PodTopologySpread", "Filter", "filter"): 2}, id="spread"),
            pytest.param(NEAR_IF_POSSIBLE, {("InterPodAffinity", "Score", "filter"): 2}, id="a preference"),
        ],
    )  # fmt: skip
    def test_a_rule_that_does_not_concern_the_pod_is_not_evaluated(
        self, incoming: Json, expected: dict[Any, int]
    ) -> None:
        """KEP-3022, "Are there any missing metrics": which plugin affected a pod's scheduling."""
        metered = Metered(web_on("n1"))
        metered.filter(incoming)
        metered.filter(incoming)
        assert metered.meter.totals() == expected

    def test_a_rejection_from_the_cache_evaluates_none(self) -> None:
        metered = Metered(web_on("n1"))
        for _ in range(3):
            assert not metered.filter(APART, "n1").result.passed
        assert metered.verb.rejections.hits == 2
        assert metered.meter.totals() == {("InterPodAffinity", "Filter", "filter"): 1}

    def test_prioritize_counts_its_scores(self) -> None:
        index, meter = web_on("n1"), RuleMeter()
        assert prioritize_nodes(extender_args(NEAR_IF_POSSIBLE, *NAMES), index.view, WHOLE, meter)
        assert meter.totals() == {("InterPodAffinity", "Score", "prioritize"): 1}

    def test_preemption_counts_in_both_verbs_that_plan_one(self) -> None:
        keeper = contender("keeper", on="n1", apart=[WEB], priority=0)
        incoming = contender_json("web", app="web", priority=9)
        held, meter = cluster(stage(zone="z1"), keeper, contender("web", app="web", priority=9)), RuleMeter()
        assert decide_preemption(preempting(incoming, {"n1": []}), held.view, EXECUTE, 0, meter).plan is not None
        assert meter.totals() == {("InterPodAffinity", "PostFilter", "preempt"): 1}
        metered = Metered(held, EXECUTE)
        assert metered.filter(incoming, "n1").plan is not None
        assert metered.meter.totals()["InterPodAffinity", "PostFilter", "filter"] == 1


class TestFields:
    """Constraints that filter decides and that have an optional field."""

    def test_min_domains_is_distinguished(self) -> None:
        """KEP-3022, "How can an operator determine if the feature is in use by workloads?"."""
        metered = Metered(web_on("n1"))
        metered.filter(
            pod_json(app="web", spreads=[spread("zone", app="web"), spread("host", min_domains=1, app="web")])
        )
        assert metered.meter.fields == {"minDomains": 0, "namespaceSelector": 0}
        metered.filter(SPREAD)
        assert metered.meter.fields == {"minDomains": 1, "namespaceSelector": 0}

    def test_namespace_selectors_are_distinguished(self) -> None:
        """KEP-2249, "How can an operator determine if the feature is in use by workloads?"."""
        everywhere = [term(key, namespace_selector={}, app="web") for key in ("zone", "host")]
        metered = Metered(web_on("n1"))
        metered.filter(pod_json(apart=[*everywhere, WEB]))
        assert metered.meter.fields == {"minDomains": 0, "namespaceSelector": 2}

    def test_what_only_scores_is_not_decided_by_filter(self) -> None:
        wish = {"weight": 1, "podAffinityTerm": term("zone", namespace_selector={}, app="web")}
        metered = Metered(web_on("n1"))
        soft = spread("zone", hard=False, min_domains=3, app="web")
        metered.filter(pod_json(app="web", prefers=[wish], avoids=[wish], spreads=[soft]))
        assert metered.meter.fields == {"minDomains": 0, "namespaceSelector": 0}

    def test_an_ignored_field_is_not_in_use(self) -> None:
        off = settings(
            rules={"interPodAffinity": {"namespaceSelector": False}, "topologySpread": {"minDomains": False}}
        )
        index = index_of(*NODES, pod("web", on="n1", app="web"), rules=off.rules)
        metered = Metered(index, off)
        metered.filter(SPREAD)
        metered.filter(pod_json(apart=[term("zone", namespace_selector=matching(team="a"), app="web")]))
        assert metered.meter.fields == {"minDomains": 0, "namespaceSelector": 0}


class TestTimes:
    """Processor time by rule and extension point, of a sample of decisions."""

    def test_one_decision_of_the_sample_is_timed(self) -> None:
        """KEP-3022, "What are the reasonable SLOs": ``plugin_execution_duration_seconds{plugin="PodTopologySpread"}``."""
        metered = Metered(web_on("n1"))
        for _ in range(FIRST + SAMPLE):
            metered.filter(SPREAD)
        assert metered.timed == [("PodTopologySpread", "Filter")] * 2

    @pytest.mark.parametrize(
        ("incoming", "expected"),
        [
            pytest.param(PLAIN, [], id="no constraint"),
            pytest.param(APART, [("InterPodAffinity", "Filter")], id="anti-affinity"),
            pytest.param(NEAR_IF_POSSIBLE, [("InterPodAffinity", "Score")], id="a preference"),
            pytest.param(
                pod_json(app="web", apart=[WEB], spreads=[spread("zone", app="web")]),
                [("PodTopologySpread", "Filter"), ("InterPodAffinity", "Filter")],
                id="two rules",
            ),
            pytest.param(
                pod_json(app="web", prefers=[weighted(1, WEB)], spreads=[spread("zone", hard=False, app="web")]),
                [("PodTopologySpread", "Score"), ("InterPodAffinity", "Score")],
                id="two scores",
            ),
        ],
    )  # fmt: skip
    def test_each_rule_has_its_own_time(self, incoming: Json, expected: Sequence[tuple[str, str]]) -> None:
        metered = Metered(web_on("n1"))
        metered.filter(incoming, sampled=True)
        assert metered.timed == list(expected)

    def test_prioritize_and_preemption_are_timed_by_their_extension_points(self) -> None:
        metered = Metered(web_on("n1"))
        metered.meter.left = 1
        prioritize_nodes(extender_args(NEAR_IF_POSSIBLE, *NAMES), metered.verb._view, WHOLE, metered.meter)
        assert metered.timed == [("InterPodAffinity", "Score")]
        incoming = contender_json("web", app="web", priority=9)
        held = cluster(
            stage(zone="z1"), contender("keeper", on="n1", apart=[WEB]), contender("web", app="web", priority=9)
        )
        metered = Metered(held, EXECUTE)
        metered.filter(incoming, "n1", sampled=True)
        assert metered.timed == [("InterPodAffinity", "Filter"), ("InterPodAffinity", "PostFilter")]
        metered.timed.clear()
        metered.meter.left = 1
        decide_preemption(preempting(incoming, {"n1": []}), held.view, EXECUTE, 0, metered.meter)
        assert metered.timed == [("InterPodAffinity", "PostFilter")]

    @pytest.mark.parametrize("placement", ["decisive", "cooperative"])
    @pytest.mark.parametrize(
        "incoming", [PLAIN, APART, SPREAD, NEAR_IF_POSSIBLE], ids=["plain", "apart", "spread", "near"]
    )
    def test_a_timed_decision_is_the_same_as_any_other(self, incoming: Json, placement: str) -> None:
        for on in ((), ("n1",), NAMES):
            metered = Metered(web_on(*on), settings(placement=placement))
            plain, timed = metered.filter(incoming), metered.filter(incoming, sampled=True)
            assert (plain.result.passed, plain.result.reasons) == (timed.result.passed, timed.result.reasons)

    def test_a_rule_inside_of_another_stops_it(self) -> None:
        times = iter((0.0, 1.0, 5.0, 7.0))
        watch = Stopwatch(lambda: next(times), "Filter")
        with watch.inside("outer", "Score"), watch.inside("inner"):
            pass
        assert watch.seconds == {("outer", "Score"): 3.0, ("inner", "Filter"): 4.0}

    def test_without_a_clock_nothing_is_timed(self) -> None:
        verb = FilterVerb(web_on("n1").view, DECISIVE)
        for _ in range(3 * SAMPLE):
            assert verb.decide(extender_args(APART, *NAMES), 0).result.passed
        assert verb.meter.watch is None

"""A further rule takes part in every verb, and no cache answers stale for it: its own code and the list are enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.objects.changes import Subscribable, Subscribers
from extender.index.view import ClusterView
from extender.model.objects import Object, Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.frames import Frame
from extender.rules.rule import SUCCESS, PreparedFilter, PreparedScore, Rule, RuleStatus
from extender.settings.rules import Rules
from extender.tasks.rejected_pods import dependency_version, is_unchanged
from extender.verbs.preempt import PreemptionDecision, decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import preempting, settings, term
from tests.contenders import cluster, contender, contender_json, stage
from tests.rules.judging import FilterScene


@dataclass(frozen=True, slots=True)
class ClosedNodes(PreparedFilter):
    """Rejects the nodes of a set."""

    closed: frozenset[int]
    view: ClusterView
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def verdict(self, position: int) -> Rejection | None:
        """Closed nodes look cordoned; names the node."""
        if position not in self.closed:
            return None
        return Rejection("Closing", Reason.CORDONED, blamed=(self.view.node_names[position],))


@dataclass(frozen=True, slots=True)
class Numbers(PreparedScore):
    """The nodes' own numbers."""

    nodes: Sequence[int]
    status: RuleStatus = SUCCESS

    def raw(self) -> list[int]:
        return list(self.nodes)

    def normalized(self) -> list[int]:
        """The same: they are small."""
        return self.raw()


class Closing(Rule):
    """A rule without groups: some nodes are closed, to all pods or to those of a high priority, until it changes its mind."""

    name = "Closing"

    def __init__(self) -> None:
        self.closed: frozenset[int] = frozenset()
        self.scores = False
        self.from_priority = 0
        self.changes = 0
        self.subscribers: Subscribers[int] = Subscribers()

    def close(self, *nodes: int) -> None:
        """The rule changes its mind."""
        self.closed = frozenset(nodes)
        self.changes += 1
        self.subscribers.notify(self.changes - 1, self.changes)

    def is_active(self, _compiled: CompiledConstraints, _view: ClusterView) -> bool:
        return bool(self.closed)

    def version(self, _compiled: CompiledConstraints, _view: ClusterView) -> int:
        return self.changes

    def pod_key(self, pod: Pod, _view: ClusterView) -> bool:
        return pod.priority >= self.from_priority

    def unwatched_changes(self, _view: ClusterView) -> tuple[Subscribable, ...]:
        return (self.subscribers,)

    def prepare_filter(self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, _frame: Frame) -> ClosedNodes:
        return ClosedNodes(self.closed if self.pod_key(pod, view) else frozenset(), view)

    def has_scores(self, _compiled: CompiledConstraints, _rules: Rules) -> bool:
        return self.scores

    def prepare_score(
        self, _compiled: CompiledConstraints, _view: ClusterView, _frame: Frame, nodes: Sequence[int], _rules: Rules
    ) -> Numbers:
        return Numbers(nodes)


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Closing:
    """The further rule, in the list."""
    rule = Closing()
    monkeypatch.setattr(catalog, "RULES", (*catalog.RULES, rule))
    return rule


LONELY: dict[str, Any] = {"priority": 100, "apart": [term("host", app="web")]}
PLAIN: dict[str, Any] = {"priority": 100}
NAMES = ("n0", "n1")
WEB_ON_BOTH: tuple[Object, ...] = (
    contender("w0", on="n0", app="web", priority=1),
    contender("w1", on="n1", app="web", priority=1),
)


class Nodes(FilterScene):
    """Two nodes and a third one, and a pod that asks for the two."""

    def __init__(self, *objects: Object, **sections: Any) -> None:
        super().__init__(cluster(stage("n0"), stage("n1"), stage("n2"), *objects), settings(**sections), NAMES, **PLAIN)

    def offered(self, **fields: Any) -> PreemptionDecision:
        """The preempt verb's decision where the scheduler offers both nodes, each with its web pod as victim."""
        args = preempting(contender_json("asking", **fields), {"n0": ["uid-w0"], "n1": ["uid-w1"]})
        return decide_preemption(args, self.index.view, self.settings, 0)


def test_the_rejection_cache_does_not_answer_after_it_has_changed_its_mind(closing: Closing) -> None:
    scene = Nodes(preemption={"mode": "off"})
    closing.close(0, 1)
    first = scene.filter().result
    assert set(first.unresolvable.values()) == {Reason.CORDONED.text}
    scene.filter()
    assert scene.verb.rejections.hits == 1
    closing.close(0)
    assert list(scene.filter().result.passed) == ["n1"]
    closing.close(0, 1)
    assert not scene.filter().result.passed
    assert scene.verb.rejections.hits == 1


def test_a_rejection_is_not_given_again_to_a_pod_that_the_rule_says_apart_from_others_of_its_signature(
    closing: Closing,
) -> None:
    scene = Nodes(preemption={"mode": "off"})
    closing.from_priority = 100
    closing.close(0, 1)
    high, low = scene.args(), scene.args(priority=1)
    assert high.pod.signature is low.pod.signature
    assert not scene.verb.decide(high, 0).result.passed
    assert list(scene.verb.decide(low, 0).result.passed) == ["n0", "n1"]
    assert scene.verb.rejections.hits == 0


async def test_a_pod_that_it_rejected_is_requeued_once_it_has_changed_its_mind(closing: Closing) -> None:
    scene = Nodes(contender("c", **PLAIN), preemption={"mode": "off"})
    closing.close(0, 1, 2)
    # n2 would take the pod then.
    (effect,) = await scene.requeued(scene.args(), closing.subscribers, lambda: closing.close(0, 1))
    assert effect.startswith("annotate c ")
    assert not closing.subscribers


def test_a_rejection_by_another_rule_is_decided_again_once_it_becomes_active(closing: Closing) -> None:
    """The version counts while the rule is inactive, too: here only the text of one node changes."""
    scene = Nodes(*WEB_ON_BOTH, preemption={"mode": "off"})
    scene.filter(**LONELY)
    closing.close(0)
    texts = scene.filter(**LONELY).result.unresolvable
    assert (scene.verb.rejections.hits, set(texts)) == (0, {"n0", "n1"})


def test_nodes_where_preemption_did_not_help_are_tried_again_after_it_has_changed_its_mind(closing: Closing) -> None:
    scene = Nodes(*WEB_ON_BOTH, contender("w2", on="n2", app="web", priority=1))
    closing.close(0, 1)
    args = scene.args(**LONELY)
    assert scene.verb.decide(args, 0).plan is None
    assert scene.verb.unhelpful.without(args.pod, [0, 1], scene.index.view) == []
    closing.close(0)
    assert scene.verb.unhelpful.without(args.pod, [0, 1], scene.index.view) == [0, 1]
    plan = scene.verb.decide(args, 0).plan
    assert plan is not None
    assert plan.node == "n1"


@pytest.mark.parametrize("fields", [PLAIN, LONELY], ids=["without constraints", "with constraints"])
def test_an_offered_node_that_it_closes_is_not_taken(closing: Closing, fields: dict[str, Any]) -> None:
    """A third node takes the pod as it is, so the one that helps goes back to the scheduler."""
    scene = Nodes(*WEB_ON_BOTH)
    closing.close(0)
    assert [each.node for each in scene.offered(**fields).candidates] == ["n1"]
    closing.close(1)
    assert [each.node for each in scene.offered(**fields).candidates] == ["n0"]


def test_a_pod_is_not_nominated_to_a_node_that_it_closes(closing: Closing) -> None:
    scene = Nodes()
    pod = scene.args().pod
    closing.close(0, 1)
    assert find_node_elsewhere(pod, scene.index.view, scene.settings, 0) == ("n2", True)
    version = dependency_version(pod, scene.index.view)
    assert is_unchanged(pod, version, scene.index.view)
    closing.close(0, 1, 2)
    assert not is_unchanged(pod, version, scene.index.view)
    assert find_node_elsewhere(pod, scene.index.view, scene.settings, 0) == ("", False)


def test_its_scores_are_added_and_choose_the_node(closing: Closing) -> None:
    scene = Nodes(placement="decisive", answers={"scoreScale": "inTree", "shortlist": 50})
    assert prioritize_nodes(scene.args("c", "n0", "n1", "n2"), scene.index.view, scene.settings) == {}
    closing.scores = True
    scores = prioritize_nodes(scene.args("c", "n0", "n1", "n2"), scene.index.view, scene.settings)
    assert scores == {"n0": 0, "n1": catalog.PLUGIN_WEIGHT, "n2": 2 * catalog.PLUGIN_WEIGHT}
    assert list(scene.filter("c", "n0", "n1", "n2").result.passed) == ["n2"]
    closing.close(2)
    assert list(scene.filter("c", "n0", "n1", "n2").result.passed) == ["n1"]


def test_a_plugin_is_replaced_by_the_rule_that_claims_it(closing: Closing) -> None:
    assert [plugin for plugin, _ in catalog.replaced_plugins()] == ["InterPodAffinity", "PodTopologySpread"]
    closing.plugin = "NodePorts"
    assert [plugin for plugin, _ in catalog.replaced_plugins()] == [
        "InterPodAffinity",
        "NodePorts",
        "PodTopologySpread",
    ]


PODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "anti-affinity": {"apart": [term("host", app="web")]},
    "anti-affinity over a key of no node": {"apart": [term("rack", app="web")]},
    "an existing pod's anti-affinity": {"app": "lonely"},
}


@pytest.mark.parametrize(("name", "fields"), PODS.items(), ids=PODS)
def test_a_rule_that_needs_constraints_neither_filters_nor_scores_for_a_plain_pod(
    name: str, fields: dict[str, Any]
) -> None:
    existing = contender("w", on="n0", app="web", apart=[term("host", app="lonely")])
    view, rules = cluster(stage("n0"), existing).view, settings().rules
    compiled = view.compiled(contender("asking", **fields).signature)
    assert compiled.is_plain is (name == "plain")
    active = [rule for rule in catalog.RULES if rule.is_active(compiled, view)]
    assert [rule for rule, _ in catalog.active(compiled, view)] == active
    scoring = [rule for rule in catalog.RULES if rule.has_scores(compiled, rules)]
    assert list(catalog.scoring_rules(compiled, rules)) == scoring
    assert name != "plain" or not any(rule.needs_constraints for rule in active + scoring)


def test_these_rules_need_constraints() -> None:
    assert {type(rule).__name__ for rule in catalog.RULES if rule.needs_constraints} == {
        "CrossNamespaceQuota",
        "InterPodAffinity",
        "LimitsRule",
        "ScheduledPolicies",
        "TopologySpread",
    }

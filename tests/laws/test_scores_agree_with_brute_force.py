"""Scores are those that come of looking at every pod for every node."""

from __future__ import annotations

from hypothesis import given

from extender.index.cluster import ClusterIndex
from extender.model.rejections import Code
from extender.rules.frames import IndexFrame
from extender.rules.interpod_affinity import InterPodAffinity
from extender.rules.rule import PreparedScore
from extender.rules.topology_spread import TopologySpread
from extender.simulator.oracle.brute_force import are_parsable, is_parsable
from tests.builders import Json, settings
from tests.laws.observing import built, shape_of
from tests.laws.scores_by_hand import affinity_scores, names_of, normalized_spread_scores, spread_scores, state_of
from tests.strategies import Step, histories, pods

HARD_WEIGHT = 5
NO_DEFAULTS = settings(
    rules={
        "interPodAffinity": {"hardPodAffinityWeight": HARD_WEIGHT},
        "topologySpread": {"defaultingType": "List", "defaultConstraints": []},
    }
)


def _score(rule: InterPodAffinity | TopologySpread, index: ClusterIndex, pod: Json, nodes: list[int]) -> PreparedScore:
    compiled = index.view.compiled(shape_of(pod))
    return rule.prepare_score(compiled, index.view, IndexFrame(), nodes, NO_DEFAULTS.rules)


@given(histories(), pods())
def test_affinity_scores_are_sums_over_all_pods_and_terms(history: list[Step], pod: Json) -> None:
    index, cluster = built(history, NO_DEFAULTS)
    names = names_of(cluster)
    nodes = [index.view.known[name] for name in names]
    score = _score(InterPodAffinity(), index, pod, nodes)
    if not are_parsable(pod):
        assert score.status.code is Code.ERROR
        return
    by_hand = affinity_scores(pod, state_of(cluster), HARD_WEIGHT)
    assert (score.status.code is Code.SKIP) is (by_hand is None)
    assert by_hand is None or dict(zip(names, score.raw(), strict=True)) == by_hand


@given(histories(), pods())
def test_spread_scores_are_weighted_counts_of_all_pods(history: list[Step], pod: Json) -> None:
    index, cluster = built(history, NO_DEFAULTS)
    names = names_of(cluster)
    nodes = [index.view.known[name] for name in names]
    score = _score(TopologySpread(), index, pod, nodes)
    constraints = pod["spec"].get("topologySpreadConstraints", [])
    soft = [each for each in constraints if each["whenUnsatisfiable"] == "ScheduleAnyway"]
    if not all(is_parsable(each["labelSelector"]) for each in soft):
        assert score.status.code is Code.ERROR
        return
    by_hand = spread_scores(pod, state_of(cluster), names)
    assert (score.status.code is Code.SKIP) is (by_hand is None)
    assert by_hand is None or dict(zip(names, score.raw(), strict=True)) == by_hand
    if by_hand is not None and score.status.code is Code.SUCCESS:
        assert dict(zip(names, score.normalized(), strict=True)) == normalized_spread_scores(
            pod, state_of(cluster), names
        )

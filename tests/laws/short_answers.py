"""Pods with soft constraints, and the score of each node that prioritize would give."""

from __future__ import annotations

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.settings.configuration import Settings
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import PREFERRED, Json, extender_args, settings, spread
from tests.deciding import filter_nodes
from tests.laws.observing import built
from tests.strategies import KEYS, SELECTORS, Step, one_of, pods

# No default constraints: with two of them, over two keys, a rank is an estimate until the passing nodes are known.
NO_DEFAULTS = {"topologySpread": {"defaultingType": "List", "defaultConstraints": []}}
WHOLE = settings(rules=NO_DEFAULTS, answers={"shortlist": 0, "scoreScale": "inTree"})


def without_spread(body: Json) -> Json:
    spec = {name: value for name, value in body["spec"].items() if name != "topologySpreadConstraints"}
    return {**body, "spec": spec}


def with_one_preference() -> st.SearchStrategy[Json]:
    """Pods of which one rule alone has a preference: two are weighed against each other only once normalised."""
    by_affinity = pods().map(without_spread)
    return st.one_of(by_affinity, st.builds(_soft, pods(), one_of(KEYS), one_of(SELECTORS)))


def _soft(body: Json, key: str, selector: Json | None) -> Json:
    constraint = spread(key, hard=False, selector=selector)
    spec = {name: value for name, value in body["spec"].items() if name != "affinity"}
    return {**body, "spec": {**spec, "topologySpreadConstraints": [constraint]}}


def scores_of(history: list[Step], pod: Json, short: Settings, seed: int) -> tuple[list[int], list[int]]:
    """The scores of the nodes that a short answer names, and of those that pass and that it leaves out.

    Without nodes that have soft taints, if others pass.
    """
    index, _ = built(history, WHOLE)
    names = sorted(index.view.known)
    requested = extender_args(pod, *names)
    passed = filter_nodes(requested, index.view, WHOLE, seed).passed
    whole = [name for name in passed if not soft_taints(index, requested.pod, name)] or passed
    given_scores = prioritize_nodes(extender_args(pod, *whole), index.view, WHOLE)
    chosen = filter_nodes(extender_args(pod, *names), index.view, short, seed).passed
    assert set(chosen) <= set(whole) or set(whole) < set(chosen), "others fill a list that is not full without them"
    score_of = {name: given_scores.get(name, 0) for name in whole}
    return [score_of[name] for name in chosen if name in score_of], [
        score_of[name] for name in whole if name not in chosen
    ]


def with_node_terms() -> st.SearchStrategy[Json]:
    """The same pods, some of which prefer nodes by their labels too."""
    terms = [
        {"weight": 3, "preference": {"matchExpressions": [{"key": "rack", "operator": "Exists"}]}},
        {"weight": 1, "preference": {"matchExpressions": [{"key": "slots", "operator": "In", "values": ["5"]}]}},
    ]
    return st.builds(_preferring, with_one_preference(), one_of([[], terms[:1], terms]))


def _preferring(body: Json, terms: list[Json]) -> Json:
    affinity = {**body["spec"].get("affinity", {}), "nodeAffinity": {PREFERRED: terms}}
    return {**body, "spec": {**body["spec"], "affinity": affinity}} if terms else body


def soft_taints(index: ClusterIndex, pod: Pod, name: str) -> int:
    """How many taints PreferNoSchedule of the node the pod does not tolerate."""
    there = index.view.node(index.view.known[name])
    assert there is not None
    soft = [each for each in there.taints if each.effect == "PreferNoSchedule"]
    return sum(not any(one.tolerates(each) for one in pod.signature.tolerations) for each in soft)


def node_points(index: ClusterIndex, pod: Pod, name: str) -> int:
    """The weights of the pod's preferred terms that the node matches."""
    there = index.view.node(index.view.known[name])
    assert there is not None
    return sum(each.weight for each in pod.signature.preferred_nodes if each.term.matches(name, there.labels))

"""A pod that admission missed counts against others once it is on a node, as an injected one does."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Namespace, Node
from extender.model.policies import Policy, PolicyObject
from extender.model.rejections import Reason
from extender.verbs.effective_pod import policy_terms
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import PREFERRED, REQUIRED, Json, extender_args, index_of, node, pod_json, read_pod, settings
from tests.contenders import contender, contender_json, stage
from tests.policies import policy
from tests.verbs.admit.reviewing import reviewed, verb
from tests.verbs.placed import DB, WEB, db, repelling, web
from tests.verbs.policed import NODES, AugmentedScene, FilterScene


def test_a_bound_pod_repels_others_and_lets_them_in_when_it_goes() -> None:
    scene = FilterScene(repelling(), preemption={"mode": "off"})
    scene.index.upsert(db())
    assert scene.passed(web()) == ["nb", "nc"]
    assert scene.passed(contender_json("asking", app="other")) == list(NODES)
    result = scene.verb.decide(extender_args(web(), "na"), 0).result
    assert result.reasons == {Reason.EXISTING_ANTI_AFFINITY}
    scene.index.delete(db())
    assert scene.passed(web()) == list(NODES)
    assert (scene.index.counts.has_policy_terms, audit(scene.index)) == (False, [])


def test_an_assumed_pod_repels_at_once() -> None:
    scene = FilterScene(repelling())
    pending = contender("db", app="db")
    scene.index.upsert(pending)
    scene.index.assume(pending, ["nb"], 0.0)
    assert scene.passed(web()) == ["na", "nc"]


@pytest.mark.parametrize(
    "spec", [{"mode": "Audit"}, {"when": ["Admission"]}, {"namespaceSelector": {"matchLabels": {"team": "x"}}}]
)
def test_a_policy_that_holds_no_pods_there_repels_none(spec: Json) -> None:
    scene = FilterScene(repelling(**spec))
    scene.index.upsert(db())
    assert scene.passed(web()) == list(NODES)


def test_exempt_pods_repel_none() -> None:
    scene = FilterScene(repelling())
    scene.index.upsert(db("nb", namespace="kube-system"))
    assert scene.passed(web()) == list(NODES)
    scene.index.upsert(db(labels={"placement.extender.dev/exempt": "true"}))
    assert scene.passed(web()) != list(NODES), "a tenant can write the label"


def test_an_injected_pod_counts_once() -> None:
    scene = FilterScene(repelling())
    term = {"topologyKey": HOSTNAME, "labelSelector": WEB}
    scene.index.upsert(db(apart=[term]))
    (group,) = scene.index.counts.terms.owned()
    assert (list(group.counts.values()), group.policy_users) == ([1], 0)


def test_a_change_of_policies_is_recounted_signature_by_signature() -> None:
    scene = FilterScene(preemption={"mode": "off"})
    scene.index.upsert(stage("nd", labels={"zone": "a"}))
    for name in ("na", "nb"):
        scene.index.upsert(db(name))
    assert scene.passed(web()) == list(NODES)
    scene.put(repelling())
    assert (scene.recount(), scene.recount()) == (1, 0)
    assert scene.passed(web()) == ["nc"]
    scene.put(repelling(key="zone", generation=2))
    assert scene.recount() == 1
    assert list(scene.verb.decide(extender_args(web(), *NODES, "nd"), 0).result.passed) == ["nc"]
    assert audit(scene.index) == []
    scene.index.delete(PolicyObject(repelling()))
    assert scene.recount() == 1
    assert scene.passed(web()) == list(NODES)
    assert scene.index.statistics()["owner_groups"] == 0
    assert not scene.index.counts.has_policy_terms
    assert audit(scene.index) == []


def test_a_relabelled_namespace_is_recounted() -> None:
    scene = FilterScene(repelling(namespaceSelector={"matchLabels": {"team": "a"}}))
    scene.index.upsert(db())
    assert scene.passed(web()) == list(NODES)
    scene.index.upsert(Namespace("default", {"team": "a"}))
    assert scene.recount() == 1
    assert scene.passed(web()) == ["nb", "nc"]


def test_a_term_over_a_key_that_no_node_carries_counts_once_one_does() -> None:
    scene = FilterScene(repelling(key="rack"))
    scene.index.upsert(db())
    assert scene.passed(web()) == list(NODES)
    for name, rack in (("na", "1"), ("nb", "1"), ("nc", "2")):
        scene.index.upsert(Node(name, {"rack": rack}))
    assert scene.passed(web()) == ["nc"]
    assert audit(scene.index) == []
    scene.index.delete(PolicyObject(repelling()))
    scene.recount()
    assert scene.passed(web()) == list(NODES)
    assert audit(scene.index) == []


def test_a_rebuilt_index_counts_the_same() -> None:
    scene = FilterScene(repelling())
    scene.index.upsert(db())
    scene.index.rebuild()
    assert scene.passed(web()) == ["nb", "nc"]


def test_preferences_of_policies_score_for_other_pods() -> None:
    term = {"weight": 9, "podAffinityTerm": {"topologyKey": HOSTNAME, "labelSelector": WEB}}
    liked = policy("liked", affinity={"podAffinity": {PREFERRED: [term]}}, podSelector=DB)
    scene = FilterScene(liked, answers={"scoreScale": "inTree", "shortlist": 50})
    scene.index.upsert(db("nb"))
    assert prioritize_nodes(extender_args(web(), *NODES), scene.index.view, scene.settings) == {
        "na": 0,
        "nb": 200,
        "nc": 0,
    }


def test_in_augment_mode_only_what_policies_add_is_decided_here() -> None:
    """What a pod carries is left to the in-tree plugin. A term that others carry too has one count for all: the plugin agrees."""
    scene = AugmentedScene(repelling())
    scene.index.upsert(db())
    scene.index.upsert(contender("own", on="nb", apart=[{"topologyKey": "zone", "labelSelector": WEB}]))
    assert scene.passed(web()) == ["nb", "nc"]
    scene.index.upsert(contender("same", on="nc", apart=[{"topologyKey": HOSTNAME, "labelSelector": WEB}]))
    assert scene.passed(web()) == ["nb"]
    other = AugmentedScene()
    other.index.upsert(contender("own", on="nb", apart=[{"topologyKey": HOSTNAME, "labelSelector": WEB}]))
    assert other.passed(web()) == list(NODES)


# -- as if they had been injected

TERMS = st.lists(
    st.builds(
        lambda key, selector: {"topologyKey": key, "labelSelector": selector},
        st.sampled_from(["zone", HOSTNAME, "absent"]),
        st.sampled_from([WEB, DB]),
    ),
    max_size=2,
    unique_by=str,
)
RULES = st.builds(
    lambda apart, near, selector: policy(
        podSelector=selector, affinity={"podAntiAffinity": {REQUIRED: apart}, "podAffinity": {REQUIRED: near}}
    ),
    TERMS,
    TERMS,
    st.sampled_from([WEB, DB, {}]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.integers(0, 5), st.sampled_from(["web", "db"]), st.integers(0, 3)),
        st.tuples(st.just("gone"), st.integers(0, 5)),
        st.tuples(st.just("policy"), st.none() | RULES),
        st.tuples(st.just("request"), st.sampled_from(["web", "db"])),
    ),
    max_size=20,
)
SETTINGS = settings(
    policies={"enabled": True, "exemptions": {"labelIn": ["default"]}},
    preemption={"mode": "off"},
    placement="cooperative",
    answers={"shortlist": 0},
)
HOSTS = [node(f"n{number}", labels={"zone": f"z{number % 2}", HOSTNAME: f"n{number}"}) for number in range(4)]
NAMES = [f"n{number}" for number in range(4)]


def _passed(index: ClusterIndex, body: Json) -> list[str]:
    return list(FilterVerb(index.view, SETTINGS).decide(extender_args(body, *NAMES), 0).result.passed)


@examples(max_examples=200)
@given(STEPS)
def test_counts_are_those_of_pods_that_were_injected(steps: list[Any]) -> None:
    """A pod that no policy selects is asked about: what counts against it is what the others carry, or lack."""
    index = index_of(*HOSTS, rules=SETTINGS.rules)
    index.counts.policy_terms = partial(policy_terms, view=index.view, settings=SETTINGS)
    pods: dict[int, Json] = {}
    current: Policy | None = None
    for step in [*steps, ("request", "web")]:
        if step[0] == "pod":
            _, number, app, host = step
            old = pods.pop(number, None)
            if old is not None:
                index.delete(read_pod(old))
            pods[number] = pod_json(f"p{number}", on=f"n{host}", app=app)
            index.upsert(read_pod(pods[number]))
        elif step[0] == "gone" and step[1] in pods:
            index.delete(read_pod(pods.pop(step[1])))
        elif step[0] == "policy":
            if current is not None:
                index.delete(PolicyObject(current))
            current = step[1]
            if current is not None:
                index.upsert(PolicyObject(current))
            for each in list(index.counts.signatures):
                index.counts.recheck_policies(each)
        elif step[0] == "request":
            body = pod_json("asking", app=step[1], labels={"placement.extender.dev/exempt": "true"})
            others = pods.values() if current is None else [_injected(each, current) for each in pods.values()]
            carried = index_of(*HOSTS, *map(read_pod, others), rules=SETTINGS.rules)
            assert _passed(index, body) == _passed(carried, body)
    assert audit(index) == []


def _injected(body: Json, found: Policy) -> Json:
    """The pod as it would be had the webhook seen it when it was created."""
    fresh = copy.deepcopy(body)
    host = fresh["spec"].pop("nodeName")
    made: Json = reviewed(verb(found), fresh, namespace=fresh["metadata"]["namespace"]).obj
    made["spec"]["nodeName"] = host
    return made

"""A pod that admission missed is held to its policies by every verb, and policies cost other pods next to nothing.

What the effective pod costs: each node is matched once, and what is compiled goes with what needs it.
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from extender.model.objects import Namespace, Node, Pod
from extender.model.policies import CLUSTER_KIND, NAMESPACED_KIND, PolicyObject
from extender.model.rejections import Reason
from extender.model.release import RELEASED_ANNOTATION
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.tasks.rejected_pods import RejectedPodWriter, Requeuer
from extender.verbs.effective_pod import AUDITED, ESCAPED, MISSED, effective_pod
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import ExtenderArgs
from extender.wire.policies.policies_v1 import PolicyError
from tests.builders import REQUIRED, Json, extender_args, node_json, preempting, read_pod, term
from tests.contenders import contender, contender_json
from tests.fakes import FakeClock, FakeWriter, until
from tests.index.counting import drop_all
from tests.policies import expression, node_term, policy, policy_json, preferring, requiring
from tests.verbs.admit.reviewing import reviewed, verb
from tests.verbs.policed import NODES, FilterScene, with_spec

ZONE_A_TERM = node_term(expression("zone", "In", "a"))
ZONE_A = requiring(ZONE_A_TERM)


EXEMPT = contender_json("asking", labels={"placement.extender.dev/exempt": "true"})
A: Json = {"nodeSelector": {"zone": "a"}}
ANY_OR_NONE = requiring(node_term(expression("zone", "In", "a", "b")), node_term())
# The policies, in the order of their names, the pod, the section of the settings, and the nodes that pass.
PASSING: dict[str, tuple[list[Json], Json, Json, str]] = {
    "node selector": ([A], contender_json("asking"), {}, "na"),
    "node name": ([{"nodeName": "na"}], contender_json("asking"), {}, "na"),
    "required node affinity": ([{"affinity": ZONE_A}], contender_json("asking"), {}, "na"),
    "node name and terms": ([{"nodeName": "na", "affinity": ANY_OR_NONE}], contender_json("asking"), {}, "na"),
    "node name and node selector": ([A | {"nodeName": "na"}], contender_json("asking"), {}, "na"),
    "the higher priority goes first": (
        [A, {"nodeSelector": {"zone": "b"}, "priority": 1}], contender_json("asking"), {}, "nb",
    ),
    **{
        f"a policy that does not concern the pod: {[*spec]}": ([A | spec], contender_json("asking"), {}, "na nb nc")
        for spec in ({"when": ["Admission"]}, {"podSelector": {"matchLabels": {"app": "web"}}}, {"targets": "Templates"})
    },
    "an exempt namespace": ([A], contender_json("asking", namespace="kube-system"), {}, "na nb nc"),
    "policies are not enabled": ([A], contender_json("asking"), {"enabled": False}, "na nb nc"),
    **{
        f"the exempting label, allowed in {names}": ([A], EXEMPT, {"exemptions": {"labelIn": names}}, expected)
        for names, expected in (([], "na"), (["bank"], "na"), (["default"], "na nb nc"))
    },
    # What the template says is read from the pod.
    **{
        f"condition {conditions}, pod {fields}": ([A | {"matchConditions": conditions}], with_spec(**fields), {}, expected)
        for conditions, fields, expected in (
            ({"serviceAccounts": ["robot"]}, {}, "na nb nc"),
            ({"priorityClassNames": ["high"]}, {}, "na nb nc"),
            ({"ownerKinds": ["Job"]}, {}, "na nb nc"),
            ({"serviceAccounts": ["robot"]}, {"serviceAccountName": "robot"}, "na"),
            ({"serviceAccounts": ["default"]}, {}, "na"),
            ({"priorityClassNames": ["high"]}, {"priorityClassName": "high"}, "na"),
        )
    },
    **{
        f"owner {owner}, targets {targets}": (
            [A | {"targets": targets, "matchConditions": {"ownerKinds": ["Job"]}}],
            contender_json("asking", owner=(owner, "batch")), {}, expected,
        )
        for targets in ("Templates", "Both") for owner, expected in (("Job", "na"), ("ReplicaSet", "na nb nc"))
    },
}  # fmt: skip


@pytest.mark.parametrize(("specs", "body", "section", "expected"), PASSING.values(), ids=PASSING)
def test_a_pod_that_admission_missed_passes_only_the_nodes_that_the_policies_leave_it(
    specs: list[Json], body: Json, section: Json, expected: str
) -> None:
    scene = FilterScene(*(policy(f"p{at}", **spec) for at, spec in enumerate(specs)), **section)
    assert scene.passed(body) == expected.split()


def test_a_rejection_is_unresolvable_and_names_the_policy() -> None:
    scene = FilterScene(policy("zonal", "default", nodeSelector={"zone": "d"}))
    result = scene.filter().result
    assert result.unresolvable == dict.fromkeys(NODES, "node(s) didn't match scheduling policy")
    assert not result.failed
    view = scene.index.view
    held = effective_pod(read_pod(contender_json("asking")), view, scene.settings)
    filters = catalog.prepare_filters(held, view.compiled(held.signature), view, IndexFrame())
    found = filters.verdict(0)
    assert found is not None
    assert (found.rule, found.blamed) == ("SchedulingPolicy", ("PodSchedulingPolicy/default/zonal",))


@pytest.mark.parametrize(
    ("conflict_policy", "passed", "reason"),
    [("KeepPod", list(NODES), None), ("Override", ["nb"], None), ("Reject", [], Reason.POLICY_CONFLICT)],
)
def test_a_conflict_has_the_outcome_that_it_has_at_admission(
    conflict_policy: str, passed: list[str], reason: Reason | None
) -> None:
    """What the pod itself requires is left to kube-scheduler, which offers only nodes that match it."""
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "b"}, conflictPolicy=conflict_policy))
    result = scene.filter(with_spec(nodeSelector={"zone": "a"})).result
    assert list(result.passed) == passed
    assert result.reasons == (frozenset((reason,)) if reason else frozenset())


@pytest.mark.parametrize(
    ("limit", "own", "directives"),
    [
        ("labelRequirements", {"podAffinity": 2}, {"podAntiAffinity": 1}),
        ("selectorValues", {"podAffinity": 2}, {"podAntiAffinity": 1}),
        ("affinityTerms", {"podAffinity": 2}, {"podAntiAffinity": 1}),
    ],
)
def test_the_pods_own_elements_count_against_the_limits_as_at_admission(
    limit: str, own: Json, directives: Json
) -> None:
    """A pod at a limit is admitted without what the policy directs, and is not held to it while it is scheduled."""

    def affinity(terms: dict[str, int]) -> Json:
        return {
            kind: {REQUIRED: [term("zone", app=f"a{number}") for number in range(count)]}
            for kind, count in terms.items()
        }

    made = policy("apart", affinity=affinity(directives))
    for most, is_held in ((2, False), (3, True)):
        scene = FilterScene(made, limits={limit: most})
        body = with_spec(affinity=affinity(own))
        answer = reviewed(verb(made, limits=scene.settings.limits), copy.deepcopy(body))
        assert ("podAntiAffinity" in answer.obj["spec"]["affinity"]) == is_held
        incoming = extender_args(body).pod
        assert (effective_pod(incoming, scene.index.view, scene.settings) is not incoming) == is_held


BROKEN: Json = {"nodeName": "Not A Name", "failurePolicy": "Fail"}


@pytest.mark.parametrize(
    ("spec", "passed"),
    [
        ({}, []),
        ({"failurePolicy": "Ignore"}, ["na"]),
        ({"mode": "Audit"}, ["na"]),
        ({"when": ["Admission"]}, ["na"]),
        ({"when": ["Scheduling"]}, []),
        ({"when": "Never"}, []),
        ({"podSelector": {"matchLabels": {"app": "db"}}}, ["na"]),
        ({"podSelector": {"matchLabels": {"app": "not a label"}}}, ["na"]),
        ({"matchConditions": {"serviceAccounts": ["robot"]}}, ["na"]),
    ],
    ids=["Fail", "Ignore", "Audit", "admission", "scheduling", "unknown", "others", "no selector", "condition"],
)
def test_an_invalid_policy_that_must_not_be_missed_refuses_the_pods_that_it_selects(
    spec: Json, passed: list[str]
) -> None:
    scene = FilterScene(policy("good", nodeSelector={"zone": "a"}), preemption={"mode": "off"})
    scene.put_json(policy_json("bad", **BROKEN | spec))
    result = scene.filter().result
    assert list(result.passed) == passed
    assert passed or result.reasons == {Reason.POLICY_FAILED}
    assert scene.passed(contender_json("asking", namespace="kube-system")) == list(NODES)


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({}, "denied"),
        ({"when": ["Scheduling"]}, "allowed"),
        ({"when": ["Scheduling", "Release"]}, "denied"),
        ({"when": [3]}, "denied"),
    ],
)
def test_at_admission_an_invalid_policy_refuses_pods_where_it_acts_there(spec: Json, result: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy("bad", **BROKEN | spec)
    answer = reviewed(verb(invalid=[caught.value.invalid]), contender_json("asking"))
    assert answer.response["allowed"] is (result == "allowed")


def test_a_repaired_policy_refuses_no_longer() -> None:
    scene = FilterScene(preemption={"mode": "off"})
    scene.put_json(policy_json("bad", **BROKEN))
    assert scene.passed() == []
    scene.put_json(policy_json("bad", **BROKEN | {"nodeName": "nb"}))
    assert scene.passed() == ["nb"]


GATED: Json = {"when": ["Release"], "release": {"topology": ["zone"]}}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}


@pytest.mark.parametrize(
    ("namespace", "spec", "metadata", "passed", "counted"),
    [
        ("", A | {"mode": "Audit"}, {}, list(NODES), {(CLUSTER_KIND, AUDITED): 2}),
        ("default", A, {}, ["na"], {(NAMESPACED_KIND, MISSED): 2}),
        # A policy that acts at scheduling alone was not missed by admission.
        ("", A | {"when": ["Scheduling"]}, {}, ["na"], {}),
        # A policy without directives holds the pod to nothing: the pod is placed alone, and not with its group.
        ("default", GATED, {}, list(NODES), {(NAMESPACED_KIND, ESCAPED): 2}),
        ("", GATED, {"annotations": {RELEASED_ANNOTATION: "ring@2026-03-01T00:00:00Z"}}, list(NODES), {}),
        ("", GATED, {"ownerReferences": [DAEMON_SET]}, list(NODES), {}),
    ],
    ids=["audited", "missed", "at scheduling", "escaped", "released", "of a DaemonSet"],
)
def test_a_pod_is_counted_once(
    namespace: str, spec: Json, metadata: Json, passed: list[str], counted: dict[tuple[str, str], int]
) -> None:
    scene = FilterScene(policy("zonal", namespace, **spec))
    for name in ("one", "one", "two"):
        body = contender_json(name)
        body["metadata"] |= metadata
        assert scene.passed(body) == passed
    assert {key: count for key, count in scene.verb.policies.counts.items() if count} == counted
    if passed == ["na"]:
        scene.passed(with_spec(nodeSelector={"zone": "a"}))
        assert scene.verb.policies.counts.total() == sum(counted.values()), "an injected pod is not counted"


def test_a_decision_names_the_policies_that_admission_missed_once_for_a_pod() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "d"}), policy("late", nodeName="na", when=["Scheduling"]))
    (missed,) = scene.filter().missed
    assert str(missed) == "ClusterPodSchedulingPolicy/zonal"
    assert scene.filter().missed == ()
    assert scene.filter(contender_json("another")).missed == (missed,)


def test_a_changed_or_deleted_policy_holds_at_once_and_no_cache_answers_for_the_earlier_one() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "d"}), preemption={"mode": "off"})
    assert scene.passed() == []
    scene.passed()
    assert scene.verb.rejections.hits == 1
    scene.put(policy("zonal", nodeSelector={"zone": "b"}, generation=2))
    assert scene.passed() == ["nb"]
    scene.index.delete(PolicyObject(policy("zonal")))
    assert scene.passed() == list(NODES)
    assert scene.verb.rejections.hits == 1


def test_a_relabelled_namespace_is_selected_at_once() -> None:
    selector = {"matchLabels": {"team": "a"}}
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "a"}, namespaceSelector=selector))
    assert scene.passed() == list(NODES)
    scene.index.upsert(Namespace("default", {"team": "a"}))
    assert scene.passed() == ["na"]
    scene.index.upsert(Namespace("default", {"team": "b"}))
    assert scene.passed() == list(NODES)


async def test_a_changed_policy_requeues_the_pods_that_it_rejected() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "d"}), preemption={"mode": "off"})
    scene.index.upsert(contender("asking"))
    writer = FakeWriter()

    def find(pod: Pod) -> tuple[str, bool]:
        return find_node_elsewhere(pod, scene.index.view, scene.settings, 0)

    requeuer = Requeuer(RejectedPodWriter(scene.index, writer, find), FakeClock(), per_second=50)
    assert scene.passed() == []
    requeuer.consider(extender_args(contender_json("asking"), *NODES))
    subscribed = len(scene.index.policies.changes)
    running = asyncio.create_task(requeuer.run())
    try:
        await until(lambda: len(scene.index.policies.changes) > subscribed)
        scene.put(policy("zonal", nodeSelector={"zone": "b"}, generation=2))
        await until(lambda: writer.effects)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    (effect,) = writer.effects
    assert effect.startswith("annotate asking ")


def test_a_status_update_of_a_policy_changes_nothing() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "a"}))
    before = scene.index.policies.version
    scene.put(policy("zonal", nodeSelector={"zone": "a"}))
    assert scene.index.policies.version == before


def test_a_node_that_the_policy_closes_is_no_candidate_of_a_preemption() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "b"}), preemption={"mode": "execute"})
    for zone in "abc":
        scene.index.upsert(contender(f"small-{zone}", on=f"n{zone}", cpu=3000))
    body = contender_json("asking", priority=100, cpu=2000)
    args = preempting(body, {f"n{zone}": [f"uid-small-{zone}"] for zone in "abc"})
    plan = decide_preemption(args, scene.index.view, scene.settings, 0).plan
    assert plan is not None
    assert plan.node == "nb"
    assert plan.preemptor is args.pod


@pytest.mark.parametrize(("spec", "node"), [({}, "nc"), ({"nodeSelector": {"zone": "a"}}, "")])
def test_no_node_is_nominated_that_the_policy_or_the_pod_itself_excludes(spec: Json, node: str) -> None:
    """Admission would have replaced the pod's own node selector; kube-scheduler applies what the pod carries."""
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "c"}, conflictPolicy="Override"))
    pod = extender_args(with_spec(**spec), *NODES).pod
    assert find_node_elsewhere(pod, scene.index.view, scene.settings, 0) == (node, True)


def test_preferred_node_terms_of_a_policy_score() -> None:
    prefers_b = preferring((5, node_term(expression("zone", "In", "b"))), (1, node_term(expression("zone", "Exists"))))
    scene = FilterScene(policy("zonal", affinity=prefers_b), answers={"scoreScale": "inTree", "shortlist": 50})
    args: ExtenderArgs = extender_args(contender_json("asking"), *NODES)
    assert prioritize_nodes(args, scene.index.view, scene.settings) == {"na": 32, "nb": 200, "nc": 32}
    injected = extender_args(with_spec(affinity=prefers_b), *NODES)
    assert prioritize_nodes(injected, scene.index.view, scene.settings) == {}


def test_nodes_that_come_with_the_request_are_judged_by_their_own_labels() -> None:
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "a"}))
    nodes = [node_json("new", labels={"zone": "a"}), node_json("other", labels={"zone": "b"})]
    args = extender_args(contender_json("asking"), nodes=nodes)
    assert list(scene.verb.decide(args, 0).result.passed) == ["new"]


class CountedLabels(dict[str, str]):
    """Labels of nodes that count how often any of them is read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountedLabels.reads += 1
        return super().get(key, default)


def test_nodes_are_matched_with_a_policy_once_and_again_only_when_they_change() -> None:
    scene = FilterScene(policy("zonal", affinity=ZONE_A), policy("liked", affinity=preferring((5, ZONE_A_TERM))))
    for name in ("m1", "m2"):
        scene.index.upsert(Node(name, CountedLabels(zone="a")))

    def judged() -> tuple[list[str], dict[str, int], int]:
        CountedLabels.reads = 0
        args = extender_args(contender_json("asking"), "m1", "m2", "nb")
        passed = list(scene.verb.decide(args, 0).result.passed)
        scores = prioritize_nodes(args, scene.index.view, scene.settings)
        return passed, dict(scores), CountedLabels.reads

    passed, scores, reads = judged()
    assert (passed, scores) == (["m1", "m2"], {"m1": 10, "m2": 10, "nb": 0})
    assert reads > 0
    assert judged() == (passed, scores, 0)
    scene.index.upsert(Node("m2", CountedLabels(zone="b")))
    passed, scores, reads = judged()
    assert (passed, scores) == (["m1"], {"m1": 10, "m2": 0, "nb": 0})
    assert reads > 0
    assert judged() == (passed, scores, 0)
    scene.index.delete(Node("m1"))
    assert judged()[0] == []


def test_what_nodes_match_is_dropped_with_the_constraints_of_the_pod() -> None:
    scene = FilterScene(policy("zonal", affinity=ZONE_A), policy("liked", affinity=preferring((5, ZONE_A_TERM))))
    scene.passed()
    assert scene.index.topology.statistics()["node_matches"] == 1, "both policies name the same nodes"
    drop_all(scene.index)
    assert scene.index.topology.statistics()["node_matches"] == 0


def test_what_earlier_policies_made_of_pods_does_not_stay_compiled() -> None:
    """A group that is compiled costs every event of the pods that it counts."""
    scene = FilterScene()
    bodies = [contender_json(f"p{number}", app=f"a{number}") for number in range(8)]
    most = 0
    for generation in range(1, 21):
        scene.put(policy("zonal", nodeSelector={"zone": "abc"[generation % 3]}, generation=generation))
        for body in bodies:
            assert len(scene.passed(body)) == 1
        most = max(most, scene.index.statistics()["compiled_constraints"])
    assert most <= 2 * len(bodies)
    scene.index.upsert(Namespace("default", {"team": "a"}))
    for body in bodies:
        scene.passed(body)
    assert scene.index.statistics()["compiled_constraints"] == len(bodies)
    assert scene.index.topology.statistics()["node_matches"] == 1


def test_policies_are_selected_once_for_a_signature() -> None:
    scene = FilterScene(
        *(policy(f"p{number}", podSelector={"matchLabels": {"app": f"a{number}"}}) for number in range(200))
    )
    scene.passed()
    ((signature, _),) = scene.index.policies._made.items()
    found = scene.index.policies.made_of(signature)
    assert found is not None
    assert found.signature is None
    assert scene.passed() == list(NODES)
    assert scene.index.policies.made_of(signature) is found
    scene.put(policy("p5", podSelector={"matchLabels": {"app": "another"}}))  # which selects no such pod
    assert scene.index.policies.made_of(signature) is found
    scene.put(policy("p6", podSelector={}))
    assert scene.index.policies.made_of(signature) is None


def test_what_policies_add_does_not_count_in_the_budget_of_the_pods_namespace() -> None:
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", app="other")]}}
    scene = FilterScene(policy("apart", affinity=apart))
    body = contender_json("asking", apart=[term("zone", app="own")])
    scene.index.upsert(read_pod(body))
    assert scene.passed(body)
    use = scene.index.namespace_budgets.by_namespace["default"]
    assert use.amounts[:2] == (1, 1)
    scene.index.delete(deleted := read_pod(body))
    assert dict(scene.index.namespace_budgets.by_namespace) == {}
    scene.index.upsert(deleted)  # its constraints may still be compiled
    assert scene.passed(body)
    assert scene.index.namespace_budgets.by_namespace["default"].amounts[:2] == (1, 1)

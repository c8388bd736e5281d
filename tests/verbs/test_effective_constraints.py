"""What policies direct about other pods and about spread holds for a pod that admission missed as if it had been injected.

What an earlier version of a policy injected into a pod is no wish of the user: the version of today is judged without it.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Pod
from extender.model.policies import CLUSTER_KIND, Policy
from extender.model.rejections import Reason
from extender.tasks.rejected_pods import dependency_version, is_unchanged
from extender.verbs.effective_pod import MISSED, effective_pod
from extender.verbs.prioritize import prioritize_nodes
from extender.verbs.select_host import find_node_elsewhere
from tests.builders import PREFERRED, REQUIRED, Json, extender_args, read_pod
from tests.contenders import contender, contender_json, stage
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import reviewed, verb
from tests.verbs.policed import NODES, AugmentedScene, FilterScene, with_spec

EXAMPLES = Path(__file__).resolve().parents[2] / "config/policies"


def web(on: str, **labels: str) -> Pod:
    return contender(f"web-{on}", on=on, app="web", **labels)


def apart(**term: Any) -> Json:
    """A required anti-affinity to the pods with the label app=web on a node."""
    selector = {"matchLabels": {"app": "web"}}
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": HOSTNAME, "labelSelector": selector} | term]}}


def evenly(**fields: Any) -> Json:
    """A hard constraint that spreads the pods with the label app=web over zones."""
    selector = {"matchLabels": {"app": "web"}}
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return constraint | fields


def test_anti_affinity_of_a_policy_rejects_and_the_rejection_is_that_of_the_rule() -> None:
    scene = FilterScene(policy("lonely", affinity=apart()), preemption={"mode": "off"})
    for name in ("na", "nb"):
        scene.index.upsert(web(name))
    assert scene.passed() == ["nc"]
    scene.index.upsert(web("nc"))
    assert scene.filter().result.reasons == {Reason.ANTI_AFFINITY}


@pytest.mark.parametrize(
    ("conflict_policy", "passed"), [("KeepPod", list(NODES)), ("Override", ["nb", "nc"]), ("Reject", [])]
)
def test_a_pod_has_one_constraint_for_a_key_and_action(conflict_policy: str, passed: list[str]) -> None:
    scene = FilterScene(policy("even", topologySpreadConstraints=[evenly()], conflictPolicy=conflict_policy))
    for number in range(2):
        scene.index.upsert(contender(f"w{number}", on="na", app="web"))
    loose = contender_json("asking", app="web", spreads=[evenly(maxSkew=5)])
    assert scene.passed(loose) == passed
    injected = contender_json("asking", app="web", spreads=[evenly()])
    assert scene.passed(injected) == ["nb", "nc"]
    assert effective_pod(extender_args(injected).pod, scene.index.view, scene.settings).signature.enforced is None


def test_what_gave_way_to_the_pod_is_applied_once_another_policy_has_overridden_that() -> None:
    first = policy("first", affinity=requiring(node_term(expression("disk", "In", "ssd"))), priority=2)
    second = policy("second", nodeSelector={"disk": "ssd"}, conflictPolicy="Override", priority=1)
    scene = FilterScene(first, second)
    held = effective_pod(extender_args(with_spec(nodeSelector={"disk": "hdd"})).pod, scene.index.view, scene.settings)
    assert held.signature.enforced is not None
    assert held.signature.enforced.nodes.node_selector == (("disk", "ssd"),)
    assert held.signature.enforced.nodes.terms is not None


def test_a_policy_that_overrides_applies_all_of_its_own_once_a_later_one_has_opened_its_node_terms() -> None:
    """The pod's zone leaves one of the first policy's terms, which its own node selector excludes."""
    terms = requiring(node_term(expression("zone", "In", "a")), node_term(expression("pool", "In", "y")))
    first = policy("first", affinity=terms, nodeSelector={"pool": "x"}, conflictPolicy="Override", priority=2)
    second = policy("second", nodeSelector={"zone": "a"}, conflictPolicy="Override", priority=1)
    body = injected(with_spec(nodeSelector={"zone": "b"}), first, second)
    assert body["spec"]["nodeSelector"] == {"zone": "a", "pool": "x"}
    scene = FilterScene(first, second)
    assert effective_pod(extender_args(body).pod, scene.index.view, scene.settings).signature.enforced is None


def test_where_a_policy_overrides_no_field_about_nodes_its_node_selector_says_which_domains_count() -> None:
    soft = evenly(whenUnsatisfiable="ScheduleAnyway")
    directives: Json = {"topologySpreadConstraints": [soft | {"maxSkew": 3}], "nodeSelector": {"zone": "a"}}
    zonal = policy("zonal", conflictPolicy="Override", **directives)
    scene = FilterScene(zonal)
    scene.index.upsert(contender("w0", on="na", app="web"))
    body = contender_json("asking", app="web", spreads=[evenly(), soft])
    assert "na" in scene.passed(injected(copy.deepcopy(body), zonal)), "NodeAffinity leaves the other nodes out"
    assert scene.passed(body) == ["na"], "zone b is empty, and counts no more"


def test_preferred_pod_terms_of_a_policy_score_once() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    prefers = {"podAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}}
    scene = FilterScene(policy("near", affinity=prefers), answers={"scoreScale": "inTree", "shortlist": 50})
    scene.index.upsert(web("nb"))
    for body in (contender_json("asking"), with_spec(affinity=prefers)):
        scores = prioritize_nodes(extender_args(body, *NODES), scene.index.view, scene.settings)
        assert scores == {"na": 0, "nb": 200, "nc": 0}
    held = effective_pod(extender_args(with_spec(affinity=prefers)).pod, scene.index.view, scene.settings)
    assert held.signature.enforced is None


def test_a_rejection_by_a_policys_anti_affinity_depends_on_the_pods_that_it_counts() -> None:
    scene = FilterScene(policy("lonely", affinity=apart()), preemption={"mode": "off"})
    for name in NODES:
        scene.index.upsert(web(name))
    scene.filter()
    pod = extender_args(contender_json("asking")).pod
    version = dependency_version(pod, scene.index.view)
    assert is_unchanged(pod, version, scene.index.view)
    scene.index.delete(web("nb"))
    assert not is_unchanged(pod, version, scene.index.view)


def test_in_augment_mode_too_a_pod_is_held_to_what_the_plugins_do_not_know() -> None:
    scene = AugmentedScene(
        policy("lonely", affinity=apart(), podSelector={"matchLabels": {"app": "db"}}),
        policy("even", topologySpreadConstraints=[evenly()], podSelector={"matchLabels": {"app": "web"}}),
    )
    scene.index.upsert(web("na"))
    assert scene.passed(contender_json("asking", app="db")) == ["nb", "nc"]
    assert scene.passed(contender_json("asking", app="web")) == ["nb", "nc"]
    assert scene.passed(contender_json("asking", apart=[apart()["podAntiAffinity"][REQUIRED][0]])) == list(NODES)


def test_in_augment_mode_what_the_pod_prefers_itself_is_left_to_the_plugins() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    soft = evenly(whenUnsatisfiable="ScheduleAnyway")
    scene = AugmentedScene(policy("pinned", nodeName="na"))
    scene.index.upsert(web("nb"))
    body = contender_json("asking", prefers=[{"weight": 7, "podAffinityTerm": term}], spreads=[soft])
    assert prioritize_nodes(extender_args(body, *NODES), scene.index.view, scene.settings) == {}


def test_in_augment_mode_what_a_policy_prefers_scores() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    prefers = {"podAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}}
    scene = AugmentedScene(policy("near", affinity=prefers))
    scene.index.upsert(web("nb"))
    scores = prioritize_nodes(extender_args(contender_json("asking"), *NODES), scene.index.view, scene.settings)
    assert scores == {"na": 0, "nb": 10, "nc": 0}


WISH = evenly(whenUnsatisfiable="ScheduleAnyway", minDomains=5)


def test_a_soft_constraint_with_min_domains_scores_and_is_nothing_that_admission_missed() -> None:
    scene = FilterScene(
        policy("wish", topologySpreadConstraints=[WISH]), answers={"scoreScale": "inTree", "shortlist": 50}
    )
    scene.index.upsert(web("na"))
    body = contender_json("asking", app="web")
    scores = prioritize_nodes(extender_args(body, *NODES), scene.index.view, scene.settings)
    assert scores["na"] < scores["nb"] == scores["nc"]
    assert scene.passed(body) == list(NODES)
    assert scene.verb.policies.counts.total() == 0


@pytest.mark.parametrize(("min_domains", "chosen"), [(1, "na"), (2, "na"), (3, "nc")])
@pytest.mark.parametrize("answers", [None, {"scoreScale": "inTree", "shortlist": 50}], ids=["filter", "prioritize"])
def test_min_domains_of_a_policy_changes_which_node_is_best(
    min_domains: int, chosen: str, answers: Json | None
) -> None:
    """Zone c alone has no pod, and its node has most pods of another constraint."""
    sections = {"answers": answers} if answers else {"placement": "decisive"}
    scene = FilterScene(policy("wish", topologySpreadConstraints=[WISH | {"minDomains": min_domains}]), **sections)
    placed = [("na", "web", 1), ("nb", "web", 1), ("nb", "busy", 1), ("nc", "busy", 2)]
    for node, app, pods in placed:
        for number in range(pods):
            scene.index.upsert(contender(f"{app}-{node}-{number}", on=node, app=app))
    busy = {"labelSelector": {"matchLabels": {"app": "busy"}}}
    by_host = evenly(topologyKey=HOSTNAME, whenUnsatisfiable="ScheduleAnyway", **busy)
    args = extender_args(contender_json("asking", app="web", spreads=[by_host]), *NODES)
    if answers:
        scores = prioritize_nodes(args, scene.index.view, scene.settings)
        assert max(scores, key=scores.__getitem__) == chosen
    else:
        assert list(scene.verb.decide(args, 0).result.passed) == [chosen]


def test_the_example_prefers_a_zone_without_replicas_to_one_with_a_few_of_many() -> None:
    """The file that is shipped. Without minDomains a zone with one of many replicas is as good as an empty one."""
    (example,) = yaml.safe_load_all((EXAMPLES / "three-zones-if-possible.yaml").read_text())
    found = []
    for is_wish in (False, True):
        spec = copy.deepcopy(example["spec"])
        (constraint,) = spec["topologySpreadConstraints"]
        if not is_wish:
            del constraint["minDomains"]
        scene = FilterScene(policy("wish", **spec), answers={"scoreScale": "inTree", "shortlist": 50})
        for number, zone in enumerate("abc"):
            scene.index.upsert(stage(f"n{zone}", labels={ZONE: zone, HOSTNAME: f"n{zone}"}))
            for replica in range((20, 1, 0)[number]):
                body = contender_json(f"{zone}-{replica}", on=f"n{zone}", labels={"example.com/tier": "frontend"})
                scene.index.upsert(read_pod(body))
        args = extender_args(contender_json("asking", labels={"example.com/tier": "frontend"}), *NODES)
        found.append(prioritize_nodes(args, scene.index.view, scene.settings))
    assert found == [{"na": 0, "nb": 186, "nc": 200}, {"na": 0, "nb": 46, "nc": 200}]


@pytest.mark.parametrize(("conflict_policy", "min_domains"), [("KeepPod", [1]), ("Override", [5]), ("Reject", [1])])
def test_a_wish_gives_way_to_the_pods_own_and_rejects_no_pod(conflict_policy: str, min_domains: list[int]) -> None:
    scene = FilterScene(policy("wish", topologySpreadConstraints=[WISH], conflictPolicy=conflict_policy))
    body = contender_json("asking", spreads=[evenly(whenUnsatisfiable="ScheduleAnyway", maxSkew=2)])
    held = effective_pod(extender_args(body).pod, scene.index.view, scene.settings)
    assert [each.min_domains for each in held.signature.spread.soft] == min_domains
    assert scene.passed(body) == list(NODES)


def test_of_two_wishes_for_one_key_the_first_policy_has_its_own() -> None:
    later = policy("b", topologySpreadConstraints=[WISH | {"minDomains": 7}], conflictPolicy="Override")
    scene = FilterScene(policy("a", topologySpreadConstraints=[WISH]), later)
    held = effective_pod(extender_args(contender_json("asking")).pod, scene.index.view, scene.settings)
    assert [each.min_domains for each in held.signature.spread.soft] == [5]


def test_a_wish_of_a_policy_that_audits_scores_nothing() -> None:
    scene = FilterScene(policy("wish", topologySpreadConstraints=[WISH], mode="Audit"))
    assert (
        effective_pod(extender_args(contender_json("asking")).pod, scene.index.view, scene.settings).signature.enforced
        is None
    )


WAYS = ("KeepPod", "Override", "Reject")
ANNOTATION = "placement.extender.dev/injected"


def injected(body: Json, *policies: Policy) -> Json:
    """The pod after the webhook has injected policies."""
    answer = reviewed(verb(*policies), copy.deepcopy(body))
    assert answer.response["allowed"]
    made: Json = answer.obj
    return made


def zone(*values: str) -> Json:
    return requiring(node_term(expression("zone", "In", *values)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"nodeSelector": {"zone": "a"}}, {"nodeSelector": {"zone": "b"}}),
        ({"affinity": zone("a")}, {"affinity": zone("b")}),
        ({"affinity": zone("a")}, {"nodeSelector": {"zone": "b"}}),
        ({"nodeSelector": {"zone": "a"}}, {"affinity": zone("b")}),
    ],
    ids=["selector", "terms", "terms, then selector", "selector, then terms"],
)
def test_a_new_version_holds_against_what_the_old_one_injected(before: Json, after: Json, way: str) -> None:
    """The pod carries zone a, so kube-scheduler leaves it no node of zone b: it is pending until it is made anew."""
    body = injected(contender_json("asking"), policy("zonal", **before))
    scene = FilterScene(policy("zonal", generation=2, conflictPolicy=way, **after))
    assert scene.passed(body) == ["nb"]
    assert scene.verb.policies.counts[CLUSTER_KIND, MISSED] == 1
    assert find_node_elsewhere(extender_args(body, *NODES).pod, scene.index.view, scene.settings, 0) == ("", True)
    result = scene.verb.decide(extender_args(body, "na"), 0).result
    assert result.reasons == {Reason.POLICY}, "it is not refused for a conflict"


@pytest.mark.parametrize(("way", "passed"), [("KeepPod", list(NODES)), ("Override", ["nb"]), ("Reject", [])])
def test_what_the_user_wrote_is_judged_as_before(way: str, passed: list[str]) -> None:
    body = injected(with_spec(nodeSelector={"zone": "a"}), policy("other", nodeSelector={"disk": "ssd"}))
    scene = FilterScene(policy("zonal", generation=2, conflictPolicy=way, nodeSelector={"zone": "b"}))
    assert scene.passed(body) == passed


def test_each_key_is_judged_by_itself() -> None:
    """Zone a was injected, and the disk is the user's."""
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), policy("zonal", nodeSelector={"zone": "a"}))
    scene = FilterScene(policy("zonal", generation=2, nodeSelector={"zone": "b", "disk": "ssd"}))
    enforced = effective_pod(extender_args(body).pod, scene.index.view, scene.settings).signature.enforced
    assert enforced is not None
    assert enforced.nodes.node_selector == (("disk", "hdd"), ("zone", "b"))


def test_what_was_overridden_is_not_required_again() -> None:
    """The user's disk is not in the pod any more, so nothing can hold the pod to it."""
    body = with_spec(nodeSelector={"disk": "hdd", "zone": "a"})
    body = injected(body, policy("p", nodeSelector={"disk": "ssd", "zone": "b"}, conflictPolicy="Override"))
    scene = FilterScene(policy("p", generation=2, nodeSelector={"zone": "c"}))
    assert scene.passed(body) == ["nc"]


@pytest.mark.parametrize("way", WAYS)
def test_a_term_that_an_earlier_policy_left_no_node_is_a_wish_of_the_user_still(way: str) -> None:
    """Of zones a and b the earlier policy left a, which the pod carries. That of today finds b, so no node is left."""
    either = requiring(node_term(expression("zone", "In", "a")), node_term(expression("zone", "In", "b")))
    body = injected(with_spec(affinity=either), policy("zonal", affinity=zone("a")))
    scene = FilterScene(policy("zonal", generation=2, conflictPolicy=way, affinity=zone("b")))
    assert scene.passed(body) == ["nb"], "kube-scheduler rejects it by the zone that the pod carries"


@pytest.mark.parametrize("way", WAYS)
def test_a_new_spread_constraint_holds_against_the_old_one(way: str) -> None:
    def evenly(skew: int) -> Json:
        selector = {"matchLabels": {"app": "web"}}
        fields: Json = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [fields | {"maxSkew": skew}]}

    body = injected(contender_json("asking", app="web"), policy("even", **evenly(5)))
    scene = FilterScene(policy("even", generation=2, conflictPolicy=way, **evenly(1)))
    scene.index.upsert(contender("web-1", on="na", app="web"))
    assert scene.passed(body) == ["nb", "nc"]
    for number in range(2, 7):
        scene.index.upsert(contender(f"web-{number}", on="na", app="web"))
    for name in ("nb", "nc"):
        scene.index.upsert(contender(f"web-{name}", on=name, app="web"))
    assert scene.passed(body) == ["nb", "nc"], "what it carries stays, too"


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_pod_that_todays_policies_injected_lacks_nothing(way: str) -> None:
    """Also where it kept a value of its own, or lost one."""
    today = policy("zonal", conflictPolicy=way, nodeSelector={"zone": "a", "disk": "ssd"}, affinity=zone("a", "b"))
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), today)
    scene = FilterScene(today)
    assert scene.passed(body) == list(NODES), "the rest is left to kube-scheduler"
    assert scene.verb.policies.counts.total() == 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"": 1}', '{"": {"policies": [{"policy": "x", "lists": {"topologySpreadConstraints": [{"a": []}]}}]}}',
     '{"": {"terms": {"before": [1], "after": [[0, {"matchExpressions": [7]}]]}}}',
     '{"": {"terms": {"after": [' + ",".join(["[-1, {}]"] * 1000) + "]}}}"],
    ids=["empty", "cut", "list", "number", "spread", "terms", "many"],
)  # fmt: skip
def test_a_record_that_is_no_record_changes_nothing(text: str) -> None:
    body: dict[str, Any] = with_spec(nodeSelector={"zone": "a"})
    body["metadata"]["annotations"] = {ANNOTATION: text}
    scene = FilterScene(policy("zonal", nodeSelector={"zone": "b"}))
    assert scene.passed(body) == list(NODES)


def test_a_record_cannot_free_a_pod_of_a_policy() -> None:
    """A forged record says that the pod's own value was injected; the pod is held to the policy all the same."""
    body: dict[str, Any] = with_spec(nodeSelector={"zone": "a"})
    record = {"": {"policies": [{"policy": "x", "nodeSelector": {"zone": "a"}, "wasNodeSelector": {"zone": "c"}}]}}
    body["metadata"]["annotations"] = {ANNOTATION: orjson.dumps(record).decode()}
    assert FilterScene(policy("zonal", nodeSelector={"zone": "b"})).passed(body) == ["nb"]

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
from tests.builders import Json, asking, read_pod
from tests.contenders import contender, contender_json, stage
from tests.policies import PREFERRED, REQUIRED, expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import ask, verb
from tests.verbs.policed import NODES, Asker, AugmentedAsker, with_spec

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
    asker = Asker(policy("lonely", affinity=apart()), preemption={"mode": "off"})
    for name in ("na", "nb"):
        asker.index.upsert(web(name))
    assert asker.passed() == ["nc"]
    asker.index.upsert(web("nc"))
    assert asker.ask().result.reasons == {Reason.ANTI_AFFINITY}


@pytest.mark.parametrize(
    ("conflict_policy", "passed"), [("KeepPod", list(NODES)), ("Override", ["nb", "nc"]), ("Reject", [])]
)
def test_a_pod_has_one_constraint_for_a_key_and_action(conflict_policy: str, passed: list[str]) -> None:
    asker = Asker(policy("even", topologySpreadConstraints=[evenly()], conflictPolicy=conflict_policy))
    for number in range(2):
        asker.index.upsert(contender(f"w{number}", on="na", app="web"))
    loose = contender_json("asking", app="web", spreads=[evenly(maxSkew=5)])
    assert asker.passed(loose) == passed
    injected = contender_json("asking", app="web", spreads=[evenly()])
    assert asker.passed(injected) == ["nb", "nc"]
    assert effective_pod(asking(injected).pod, asker.index.view, asker.settings).signature.enforced is None


def test_what_gave_way_to_the_pod_is_applied_once_another_policy_has_overridden_that() -> None:
    first = policy("first", affinity=requiring(node_term(expression("disk", "In", "ssd"))), priority=2)
    second = policy("second", nodeSelector={"disk": "ssd"}, conflictPolicy="Override", priority=1)
    asker = Asker(first, second)
    held = effective_pod(asking(with_spec(nodeSelector={"disk": "hdd"})).pod, asker.index.view, asker.settings)
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
    asker = Asker(first, second)
    assert effective_pod(asking(body).pod, asker.index.view, asker.settings).signature.enforced is None


def test_where_a_policy_overrides_no_field_about_nodes_its_node_selector_says_which_domains_count() -> None:
    soft = evenly(whenUnsatisfiable="ScheduleAnyway")
    directives: Json = {"topologySpreadConstraints": [soft | {"maxSkew": 3}], "nodeSelector": {"zone": "a"}}
    zonal = policy("zonal", conflictPolicy="Override", **directives)
    asker = Asker(zonal)
    asker.index.upsert(contender("w0", on="na", app="web"))
    body = contender_json("asking", app="web", spreads=[evenly(), soft])
    assert "na" in asker.passed(injected(copy.deepcopy(body), zonal)), "NodeAffinity leaves the other nodes out"
    assert asker.passed(body) == ["na"], "zone b is empty, and counts no more"


def test_preferred_pod_terms_of_a_policy_score_once() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    prefers = {"podAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}}
    asker = Asker(policy("near", affinity=prefers), answers={"scoreScale": "inTree", "shortlist": 50})
    asker.index.upsert(web("nb"))
    for body in (contender_json("asking"), with_spec(affinity=prefers)):
        scores = prioritize_nodes(asking(body, *NODES), asker.index.view, asker.settings)
        assert scores == {"na": 0, "nb": 200, "nc": 0}
    held = effective_pod(asking(with_spec(affinity=prefers)).pod, asker.index.view, asker.settings)
    assert held.signature.enforced is None


def test_a_rejection_by_a_policys_anti_affinity_depends_on_the_pods_that_it_counts() -> None:
    asker = Asker(policy("lonely", affinity=apart()), preemption={"mode": "off"})
    for name in NODES:
        asker.index.upsert(web(name))
    asker.ask()
    pod = asking(contender_json("asking")).pod
    version = dependency_version(pod, asker.index.view)
    assert is_unchanged(pod, version, asker.index.view)
    asker.index.delete(web("nb"))
    assert not is_unchanged(pod, version, asker.index.view)


def test_in_augment_mode_too_a_pod_is_held_to_what_the_plugins_do_not_know() -> None:
    asker = AugmentedAsker(
        policy("lonely", affinity=apart(), podSelector={"matchLabels": {"app": "db"}}),
        policy("even", topologySpreadConstraints=[evenly()], podSelector={"matchLabels": {"app": "web"}}),
    )
    asker.index.upsert(web("na"))
    assert asker.passed(contender_json("asking", app="db")) == ["nb", "nc"]
    assert asker.passed(contender_json("asking", app="web")) == ["nb", "nc"]
    assert asker.passed(contender_json("asking", apart=[apart()["podAntiAffinity"][REQUIRED][0]])) == list(NODES)


def test_in_augment_mode_what_the_pod_prefers_itself_is_left_to_the_plugins() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    soft = evenly(whenUnsatisfiable="ScheduleAnyway")
    asker = AugmentedAsker(policy("pinned", nodeName="na"))
    asker.index.upsert(web("nb"))
    body = contender_json("asking", prefers=[{"weight": 7, "podAffinityTerm": term}], spreads=[soft])
    assert prioritize_nodes(asking(body, *NODES), asker.index.view, asker.settings) == {}


def test_in_augment_mode_what_a_policy_prefers_scores() -> None:
    term = apart()["podAntiAffinity"][REQUIRED][0]
    prefers = {"podAffinity": {PREFERRED: [{"weight": 7, "podAffinityTerm": term}]}}
    asker = AugmentedAsker(policy("near", affinity=prefers))
    asker.index.upsert(web("nb"))
    scores = prioritize_nodes(asking(contender_json("asking"), *NODES), asker.index.view, asker.settings)
    assert scores == {"na": 0, "nb": 10, "nc": 0}


WISH = evenly(whenUnsatisfiable="ScheduleAnyway", minDomains=5)


def test_a_soft_constraint_with_min_domains_scores_and_is_nothing_that_admission_missed() -> None:
    asker = Asker(policy("wish", topologySpreadConstraints=[WISH]), answers={"scoreScale": "inTree", "shortlist": 50})
    asker.index.upsert(web("na"))
    body = contender_json("asking", app="web")
    scores = prioritize_nodes(asking(body, *NODES), asker.index.view, asker.settings)
    assert scores["na"] < scores["nb"] == scores["nc"]
    assert asker.passed(body) == list(NODES)
    assert asker.verb.policies.counts.total() == 0


@pytest.mark.parametrize(("min_domains", "chosen"), [(1, "na"), (2, "na"), (3, "nc")])
@pytest.mark.parametrize("answers", [None, {"scoreScale": "inTree", "shortlist": 50}], ids=["filter", "prioritize"])
def test_min_domains_of_a_policy_changes_which_node_is_best(
    min_domains: int, chosen: str, answers: Json | None
) -> None:
    """Zone c alone has no pod, and its node has most pods of another constraint."""
    sections = {"answers": answers} if answers else {"placement": "decisive"}
    asker = Asker(policy("wish", topologySpreadConstraints=[WISH | {"minDomains": min_domains}]), **sections)
    placed = [("na", "web", 1), ("nb", "web", 1), ("nb", "busy", 1), ("nc", "busy", 2)]
    for node, app, pods in placed:
        for number in range(pods):
            asker.index.upsert(contender(f"{app}-{node}-{number}", on=node, app=app))
    busy = {"labelSelector": {"matchLabels": {"app": "busy"}}}
    by_host = evenly(topologyKey=HOSTNAME, whenUnsatisfiable="ScheduleAnyway", **busy)
    args = asking(contender_json("asking", app="web", spreads=[by_host]), *NODES)
    if answers:
        scores = prioritize_nodes(args, asker.index.view, asker.settings)
        assert max(scores, key=scores.__getitem__) == chosen
    else:
        assert list(asker.verb.decide(args, 0).result.passed) == [chosen]


def test_the_example_prefers_a_zone_without_replicas_to_one_with_a_few_of_many() -> None:
    """The file that is shipped. Without minDomains a zone with one of many replicas is as good as an empty one."""
    (example,) = yaml.safe_load_all((EXAMPLES / "three-zones-if-possible.yaml").read_text())
    found = []
    for is_wish in (False, True):
        spec = copy.deepcopy(example["spec"])
        (constraint,) = spec["topologySpreadConstraints"]
        if not is_wish:
            del constraint["minDomains"]
        asker = Asker(policy("wish", **spec), answers={"scoreScale": "inTree", "shortlist": 50})
        for number, zone in enumerate("abc"):
            asker.index.upsert(stage(f"n{zone}", labels={ZONE: zone, HOSTNAME: f"n{zone}"}))
            for replica in range((20, 1, 0)[number]):
                body = contender_json(f"{zone}-{replica}", on=f"n{zone}", labels={"example.com/tier": "frontend"})
                asker.index.upsert(read_pod(body))
        args = asking(contender_json("asking", labels={"example.com/tier": "frontend"}), *NODES)
        found.append(prioritize_nodes(args, asker.index.view, asker.settings))
    assert found == [{"na": 0, "nb": 186, "nc": 200}, {"na": 0, "nb": 46, "nc": 200}]


@pytest.mark.parametrize(("conflict_policy", "min_domains"), [("KeepPod", [1]), ("Override", [5]), ("Reject", [1])])
def test_a_wish_gives_way_to_the_pods_own_and_rejects_no_pod(conflict_policy: str, min_domains: list[int]) -> None:
    asker = Asker(policy("wish", topologySpreadConstraints=[WISH], conflictPolicy=conflict_policy))
    body = contender_json("asking", spreads=[evenly(whenUnsatisfiable="ScheduleAnyway", maxSkew=2)])
    held = effective_pod(asking(body).pod, asker.index.view, asker.settings)
    assert [each.min_domains for each in held.signature.spread.soft] == min_domains
    assert asker.passed(body) == list(NODES)


def test_of_two_wishes_for_one_key_the_first_policy_has_its_own() -> None:
    later = policy("b", topologySpreadConstraints=[WISH | {"minDomains": 7}], conflictPolicy="Override")
    asker = Asker(policy("a", topologySpreadConstraints=[WISH]), later)
    held = effective_pod(asking(contender_json("asking")).pod, asker.index.view, asker.settings)
    assert [each.min_domains for each in held.signature.spread.soft] == [5]


def test_a_wish_of_a_policy_that_audits_scores_nothing() -> None:
    asker = Asker(policy("wish", topologySpreadConstraints=[WISH], mode="Audit"))
    assert (
        effective_pod(asking(contender_json("asking")).pod, asker.index.view, asker.settings).signature.enforced is None
    )


WAYS = ("KeepPod", "Override", "Reject")
ANNOTATION = "placement.extender.dev/injected"


def injected(body: Json, *policies: Policy) -> Json:
    """The pod after the webhook has injected policies."""
    answer = ask(verb(*policies), copy.deepcopy(body))
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
    asker = Asker(policy("zonal", generation=2, conflictPolicy=way, **after))
    assert asker.passed(body) == ["nb"]
    assert asker.verb.policies.counts[CLUSTER_KIND, MISSED] == 1
    assert find_node_elsewhere(asking(body, *NODES).pod, asker.index.view, asker.settings, 0) == ("", True)
    result = asker.verb.decide(asking(body, "na"), 0).result
    assert result.reasons == {Reason.POLICY}, "it is not refused for a conflict"


@pytest.mark.parametrize(("way", "passed"), [("KeepPod", list(NODES)), ("Override", ["nb"]), ("Reject", [])])
def test_what_the_user_wrote_is_judged_as_before(way: str, passed: list[str]) -> None:
    body = injected(with_spec(nodeSelector={"zone": "a"}), policy("other", nodeSelector={"disk": "ssd"}))
    asker = Asker(policy("zonal", generation=2, conflictPolicy=way, nodeSelector={"zone": "b"}))
    assert asker.passed(body) == passed


def test_each_key_is_judged_by_itself() -> None:
    """Zone a was injected, and the disk is the user's."""
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), policy("zonal", nodeSelector={"zone": "a"}))
    asker = Asker(policy("zonal", generation=2, nodeSelector={"zone": "b", "disk": "ssd"}))
    enforced = effective_pod(asking(body).pod, asker.index.view, asker.settings).signature.enforced
    assert enforced is not None
    assert enforced.nodes.node_selector == (("disk", "hdd"), ("zone", "b"))


def test_what_was_overridden_is_not_required_again() -> None:
    """The user's disk is not in the pod any more, so nothing can hold the pod to it."""
    body = with_spec(nodeSelector={"disk": "hdd", "zone": "a"})
    body = injected(body, policy("p", nodeSelector={"disk": "ssd", "zone": "b"}, conflictPolicy="Override"))
    asker = Asker(policy("p", generation=2, nodeSelector={"zone": "c"}))
    assert asker.passed(body) == ["nc"]


@pytest.mark.parametrize("way", WAYS)
def test_a_term_that_an_earlier_policy_left_no_node_is_a_wish_of_the_user_still(way: str) -> None:
    """Of zones a and b the earlier policy left a, which the pod carries. That of today finds b, so no node is left."""
    either = requiring(node_term(expression("zone", "In", "a")), node_term(expression("zone", "In", "b")))
    body = injected(with_spec(affinity=either), policy("zonal", affinity=zone("a")))
    asker = Asker(policy("zonal", generation=2, conflictPolicy=way, affinity=zone("b")))
    assert asker.passed(body) == ["nb"], "kube-scheduler rejects it by the zone that the pod carries"


@pytest.mark.parametrize("way", WAYS)
def test_a_new_spread_constraint_holds_against_the_old_one(way: str) -> None:
    def evenly(skew: int) -> Json:
        selector = {"matchLabels": {"app": "web"}}
        fields: Json = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        return {"topologySpreadConstraints": [fields | {"maxSkew": skew}]}

    body = injected(contender_json("asking", app="web"), policy("even", **evenly(5)))
    asker = Asker(policy("even", generation=2, conflictPolicy=way, **evenly(1)))
    asker.index.upsert(contender("web-1", on="na", app="web"))
    assert asker.passed(body) == ["nb", "nc"]
    for number in range(2, 7):
        asker.index.upsert(contender(f"web-{number}", on="na", app="web"))
    for name in ("nb", "nc"):
        asker.index.upsert(contender(f"web-{name}", on=name, app="web"))
    assert asker.passed(body) == ["nb", "nc"], "what it carries stays, too"


@pytest.mark.parametrize("way", WAYS[:2])
def test_a_pod_that_todays_policies_injected_lacks_nothing(way: str) -> None:
    """Also where it kept a value of its own, or lost one."""
    today = policy("zonal", conflictPolicy=way, nodeSelector={"zone": "a", "disk": "ssd"}, affinity=zone("a", "b"))
    body = injected(with_spec(nodeSelector={"disk": "hdd"}), today)
    asker = Asker(today)
    assert asker.passed(body) == list(NODES), "the rest is left to kube-scheduler"
    assert asker.verb.policies.counts.total() == 0


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
    asker = Asker(policy("zonal", nodeSelector={"zone": "b"}))
    assert asker.passed(body) == list(NODES)


def test_a_record_cannot_free_a_pod_of_a_policy() -> None:
    """A forged record says that the pod's own value was injected; the pod is held to the policy all the same."""
    body: dict[str, Any] = with_spec(nodeSelector={"zone": "a"})
    record = {"": {"policies": [{"policy": "x", "nodeSelector": {"zone": "a"}, "wasNodeSelector": {"zone": "c"}}]}}
    body["metadata"]["annotations"] = {ANNOTATION: orjson.dumps(record).decode()}
    assert Asker(policy("zonal", nodeSelector={"zone": "b"})).passed(body) == ["nb"]

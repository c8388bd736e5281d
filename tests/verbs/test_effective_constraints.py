"""What policies direct about other pods and about spread holds for a pod that admission missed as if it had been injected."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Pod
from extender.model.rejections import Reason
from extender.tasks.rejected_pods.writes import dependency_version, is_unchanged
from extender.verbs.effective_pod import effective_pod
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import Json, asking
from tests.contenders import contender, contender_json, stage
from tests.policies import PREFERRED, REQUIRED, expression, node_term, policy, requiring
from tests.verbs.policed import NODES, Asker, AugmentedAsker, with_spec


def web(on: str, **labels: str) -> Pod:
    """A pod with the label app=web."""
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


def test_affinity_of_a_policy_is_required() -> None:
    near = {"podAffinity": apart()["podAntiAffinity"]}
    asker = Asker(policy("near", affinity=near))
    asker.index.upsert(web("nb"))
    assert asker.passed() == ["nb"]


@pytest.mark.parametrize(("keys", "passed"), [("matchLabelKeys", ["nb", "nc"]), ("mismatchLabelKeys", ["na", "nc"])])
def test_label_keys_of_a_term_are_merged_with_the_labels_of_the_pod(keys: str, passed: list[str]) -> None:
    asker = Asker(policy("lonely", affinity=apart(**{keys: ["version"]})))
    asker.index.upsert(web("na", version="1"))
    asker.index.upsert(web("nb", version="2"))
    assert asker.passed(contender_json("asking", version="1")) == passed


def test_hard_spread_of_a_policy_rejects() -> None:
    asker = Asker(policy("even", topologySpreadConstraints=[evenly()]))
    asker.index.upsert(web("na"))
    assert asker.passed(contender_json("asking", app="web")) == ["nb", "nc"]


def test_spread_counts_only_nodes_that_the_policy_leaves_the_pod() -> None:
    """Without the node selector of the policy the empty zone c would be the minimum, and no zone of the others would pass."""
    zones = requiring(node_term(expression("zone", "In", "a", "b")))
    asker = Asker(policy("even", affinity=zones, topologySpreadConstraints=[evenly()]))
    for name in ("na", "nb"):
        asker.index.upsert(web(name))
    assert asker.passed(contender_json("asking", app="web")) == ["na", "nb"]


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


def test_soft_spread_of_a_policy_scores() -> None:
    soft = evenly(whenUnsatisfiable="ScheduleAnyway")
    asker = Asker(policy("even", topologySpreadConstraints=[soft]), answers={"scoreScale": "inTree", "shortlist": 50})
    asker.index.upsert(web("na"))
    scores = prioritize_nodes(asking(contender_json("asking", app="web"), *NODES), asker.index.view, asker.settings)
    assert scores["na"] < scores["nb"] == scores["nc"]


def test_what_the_pod_requires_of_other_pods_stays() -> None:
    asker = Asker(policy("zonal", nodeSelector={"zone": "a"}))
    own = contender_json("asking", app="web", apart=[apart()["podAntiAffinity"][REQUIRED][0]], spreads=[evenly()])
    asked = asking(own).pod
    held = effective_pod(asked, asker.index.view, asker.settings)
    assert held is not asked
    assert (held.signature.affinity, held.signature.spread) == (asked.signature.affinity, asked.signature.spread)


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


@pytest.mark.parametrize(("min_domains", "chosen"), [(1, "na"), (2, "na"), (3, "nb")])
@pytest.mark.parametrize("answers", [None, {"scoreScale": "inTree", "shortlist": 50}], ids=["filter", "prioritize"])
def test_min_domains_of_a_policy_changes_which_node_is_best(
    min_domains: int, chosen: str, answers: Json | None
) -> None:
    """Zone a has more pods than b, and its node na has none. Only two zones have nodes that the pod may use."""
    sections = {"answers": answers} if answers else {"placement": "decisive"}
    asker = Asker(policy("wish", topologySpreadConstraints=[WISH | {"minDomains": min_domains}]), **sections)
    asker.index.upsert(stage("na2", labels={"zone": "a"}))
    for name, node, pods in (("a", "na2", 5), ("b", "nb", 3)):
        for number in range(pods):
            asker.index.upsert(contender(f"{name}{number}", on=node, app="web"))
    by_host = evenly(topologyKey=HOSTNAME, whenUnsatisfiable="ScheduleAnyway")
    args = asking(contender_json("asking", app="web", spreads=[by_host]), "na", "na2", "nb")
    if answers:
        scores = prioritize_nodes(args, asker.index.view, asker.settings)
        assert max(scores, key=scores.__getitem__) == chosen
    else:
        assert list(asker.verb.decide(args, 0).result.passed) == [chosen]


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

"""No way around a platform's policies: what a tenant writes into pods, policies and annotations takes nothing from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.policies import Items, Moment, Policy, PolicyKey, Size
from extender.settings.policies import Policies
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.json_edits import SpecFields
from extender.verbs.admit.pod_fields import Bounds, Changes
from extender.verbs.admit.term_product import DIRECTIVES, AdmissionBudget
from extender.wire.policies.node_terms import TOLERATIONS, list_item
from tests.builders import REQUIRED, Json
from tests.policies import expression, node_term, policy, preferring, requiring
from tests.verbs.admit.reviewing import pod, review, reviewed, template_spec, verb, workload
from tests.verbs.admit.tenant_pods import (
    MANY,
    PADDED,
    POOL,
    REQUIRES,
    TAINTED,
    admit_pod,
    changes,
    heavy,
    platform,
    tenants,
    tolerating,
    toleration,
)

# Made by the tests that need them: together they take as long as a tenth of the collection of all tests.
HOSTILE: dict[str, Callable[[], list[Policy]]] = {
    "a higher priority": lambda: tenants(1, nodeSelector={"pool": "mine"}, schedulerName="mine", priorityClassName="high"),
    "a value that stays": lambda: tenants(1, nodeSelector={"pool": "mine"}, conflictPolicy="Override"),
    "220 policies of 95 tolerations": lambda: [
        policy(f"t{number:03}", "shop", priority=1000, tolerations=tolerating(95, f"k{number}-"))
        for number in range(220)
    ],
    "terms without number": lambda: [
        policy(f"t{number}", "shop", priority=1000, affinity=requiring(*(
            node_term(expression(f"k{number}", "In", f"v{each}")) for each in range(60)
        )))
        for number in range(40)
    ],
    "all requirements of a pod": lambda: [
        policy(f"t{number}", "shop", priority=1000, nodeSelector={f"k{number}-{each}": "v" for each in range(95)})
        for number in range(3)
    ],
    "a node": lambda: tenants(1, nodeName="n7"),
}  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("conflict_policy", ["KeepPod", "Override"])
def test_policies_of_a_namespace_take_nothing_from_those_of_the_cluster(
    hostile: Callable[[], list[Policy]], conflict_policy: str
) -> None:
    first = platform(
        conflictPolicy=conflict_policy,
        nodeSelector=POOL,
        affinity=REQUIRES,
        tolerations=[TAINTED],
        schedulerName="ours",
        priorityClassName="low",
    )
    gate = policy("gate", when=["Release"], release={"topology": ["zone"]})
    spec = reviewed(verb(first, gate, *hostile()), pod()).obj["spec"]
    assert (spec["nodeSelector"]["pool"], spec["schedulerName"], spec["priorityClassName"]) == (
        "tenants",
        "ours",
        "low",
    )
    assert TAINTED in spec["tolerations"]
    assert [each["name"] for each in spec["schedulingGates"]] == ["placement.extender.dev/group"]
    assert "nodeName" not in spec
    for term in spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]:
        assert {"zone", "disk"} & {each["key"] for each in term["matchExpressions"]}


@pytest.mark.parametrize("name", PADDED)
def test_what_a_padded_pod_has_no_room_for_is_a_failure_of_the_policy(name: str) -> None:
    """With `failurePolicy: Fail` the pod is rejected; else a warning says so, and the filter holds the pod to it."""
    directives = PADDED[name][1]
    refused = admit_pod(name, platform(**directives))
    assert refused.response["allowed"] is False
    assert f"{name} is " in refused.message
    admitted = admit_pod(name, platform(failurePolicy="Ignore", **directives))
    assert admitted.response["allowed"] is True
    assert "(Ignore)" in admitted.warnings[0]


@pytest.mark.parametrize("name", ["nodeRequirements", "nodeSelectorTerms", "tolerations", "podBytes"])
def test_in_augment_mode_what_selects_nodes_is_added_beyond_the_limits(name: str) -> None:
    """There the limits are those of the extender alone: kube-scheduler's own plugins place a pod above them."""
    directives = PADDED[name][1]
    found = admit_pod(name, platform(**directives), rejects_excess=False)
    assert found.response["allowed"] is True
    spec = found.obj["spec"]
    assert spec.get("nodeSelector", {}).get("pool") == directives.get("nodeSelector", {}).get("pool")
    assert (TAINTED in spec.get("tolerations", ())) == ("tolerations" in directives)
    if "affinity" in directives:
        assert spec["affinity"]["nodeAffinity"][REQUIRED] == REQUIRES["nodeAffinity"][REQUIRED]


ABOVE: dict[str, Json] = {
    "tolerations": {"tolerations": tolerating(101)},
    "pairs": {"nodeSelector": {f"k{n}": "v" for n in range(201)}},
    "preferred terms": {"affinity": preferring(*((1, node_term(expression("k", "In", f"v{n}"))) for n in range(101)))},
}


@pytest.mark.parametrize("spec", ABOVE.values(), ids=ABOVE)
def test_in_augment_mode_a_pod_above_a_limit_gets_what_selects_nodes_and_its_gate(spec: Json) -> None:
    first = platform(nodeSelector=POOL, tolerations=[TAINTED], affinity=REQUIRES, schedulerName="ours")
    gate = policy("gate", when=["Release"], release={"topology": ["zone"]})
    admit = verb(first, gate, rejects_excess=False)
    found = reviewed(admit, pod(spec))
    placed = found.obj["spec"]
    assert (placed["nodeSelector"]["pool"], placed["schedulerName"]) == ("tenants", "ours")
    assert TAINTED in placed["tolerations"]
    assert placed["affinity"]["nodeAffinity"][REQUIRED] == REQUIRES["nodeAffinity"][REQUIRED]
    assert placed["schedulingGates"]
    assert reviewed(admit, found.obj).patch == [], "reviewed again, nothing is added twice"


def test_a_pod_above_a_limit_is_refused_where_a_policy_that_must_not_be_missed_cannot_be_applied() -> None:
    spread = [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]
    for rejects in (True, False):
        found = reviewed(
            verb(platform(topologySpreadConstraints=spread), rejects_excess=rejects), pod(ABOVE["tolerations"])
        )
        assert found.response["allowed"] is False
        assert "limits.tolerations is 100" in found.message


def test_a_template_is_held_as_a_pod_is() -> None:
    hostile = tenants(1, targets="Both", nodeSelector={"pool": "mine"}, conflictPolicy="Override")
    found = reviewed(verb(platform(targets="Both", nodeSelector=POOL), *hostile), workload())
    assert template_spec(found.obj)["nodeSelector"] == POOL


@pytest.mark.parametrize(("failure_policy", "allowed"), [("Fail", False), ("Ignore", True)])
@pytest.mark.parametrize(
    "how", [{"matchLabels": {"tenant": "yes"}}, {"matchExpressions": [expression("tenant", "DoesNotExist")]}]
)
def test_an_unknown_namespace_is_not_one_without_labels(failure_policy: str, how: Json, *, allowed: bool) -> None:
    chosen = platform(failurePolicy=failure_policy, namespaceSelector=how, nodeSelector=POOL)
    admit = verb(chosen, namespaces={})
    answer = reviewed(admit, pod())
    assert (answer.response["allowed"], answer.patch) == (allowed, [])
    assert "namespace shop is not known yet" in (answer.warnings[0] if allowed else answer.message)
    assert admit.namespace_of(review(pod())) == "shop"
    assert verb(chosen, namespaces={"shop": {}}).namespace_of(review(pod())) == ""


def test_what_the_name_of_an_unknown_namespace_says_is_decided() -> None:
    named = {"kubernetes.io/metadata.name": "shop"}
    assert reviewed(
        verb(platform(namespaceSelector={"matchLabels": named}, nodeSelector=POOL), namespaces={}), pod()
    ).patch
    other = {"matchLabels": {"kubernetes.io/metadata.name": "bank", "tenant": "yes"}}
    elsewhere = reviewed(verb(platform(namespaceSelector=other, nodeSelector=POOL), namespaces={}), pod())
    assert (elsewhere.response["allowed"], elsewhere.warnings) == (True, [])


# -- What all policies of one object may cost together: their directives are weighed, and the first ones are applied ---

TOO_MUCH = "the policies before it use up the directives that one admission applies"


def test_policies_beyond_the_budget_are_conflicts_and_the_first_ones_are_applied() -> None:
    many = [heavy(number) for number in range(DIRECTIVES // 91 + 2)]
    answer = reviewed(verb(*many, settings=MANY), pod())
    assert len(template_spec(answer.obj)["tolerations"]) == 90
    conflicts = [each for done in changes(many) for each in done]
    assert conflicts[0] != TOO_MUCH
    assert conflicts.count(TOO_MUCH) == 2


@pytest.mark.parametrize("conflict_policy", ["KeepPod", "Override"])
def test_applying_the_same_policies_again_stops_at_the_same_one_and_changes_nothing(conflict_policy: str) -> None:
    """The weight is that of the policies, not of what the pod still lacks."""
    many = [heavy(number, 60, conflictPolicy=conflict_policy, schedulerName="s") for number in range(400)]
    last = policy("last", priority=-1000, priorityClassName="high")
    admit = verb(*many, last, settings=MANY)
    once = reviewed(admit, pod())
    assert "priorityClassName" not in template_spec(once.obj)
    assert reviewed(admit, once.obj).patch == []


def test_a_policy_that_is_applied_again_costs_nothing_more() -> None:
    wanted = heavy(0)
    fields = SpecFields({}, Bounds(), AdmissionBudget(directives=wanted.directives.weight))
    injection = Injection(fields, is_pod=True)
    assert not injection.apply(wanted).conflicts
    assert not injection.apply(wanted).conflicts
    assert [each.message for each in injection.apply(heavy(1, 1)).conflicts] == [TOO_MUCH]


def test_policies_of_a_namespace_have_half_of_what_those_of_the_cluster_have() -> None:
    budget = AdmissionBudget()
    tenants = budget.share(PolicyKey("placement.extender.dev", "shop", "p"))
    assert budget.share(PolicyKey("placement.extender.dev", "", "p")) is budget
    assert (tenants.left * 2, tenants.directives * 2) == (budget.left, budget.directives)


def test_so_many_clauses_are_read_for_conflicts_and_no_more() -> None:
    """For each policy nine terms of 20 clauses are looked at, none of which admits its pair; 12,000 are read for 63."""
    clauses = [expression(f"k{number}", "In", "a") for number in range(19)]
    spec: Json = {"affinity": requiring(*[node_term(*clauses, expression("n", "In", str(n))) for n in range(9)])}
    fields = SpecFields(spec, Bounds(), AdmissionBudget())
    injection = Injection(fields, is_pod=True)
    written = []
    for number in range(70):
        injection.apply(policy(f"p{number}", nodeSelector={"k0": f"b{number}"}))
        written.append("nodeSelector" in fields.spec)
    assert 60 < written.count(False) < 67
    assert written == sorted(written), "from then on a pair is written without a look"


@pytest.mark.parametrize("strict", [False, True])
def test_of_more_policies_than_a_pod_may_have_one_fails_for_all_and_a_strict_one_refuses(*, strict: bool) -> None:
    few = Policies(max_per_pod=2)
    wanted = [policy(f"p{number}", priority=-number, nodeSelector={f"k{number}": "v"}) for number in range(4)]
    last = policy("last", priority=-9, schedulerName="s", failurePolicy="Fail" if strict else "Ignore")
    answer = reviewed(verb(*wanted, last, settings=few), pod())
    text = "5 policies are for the pod, policies.maxPerPod is 2"
    if strict:
        assert answer.response["allowed"] is False
        assert answer.message == f"ClusterPodSchedulingPolicy/last cannot be applied: {text}"
        return
    assert answer.obj["spec"]["nodeSelector"] == {"k0": "v", "k1": "v"}
    assert answer.warnings == [f"ClusterPodSchedulingPolicy/p2 is not applied: {text}"]


def test_a_policy_that_overrides_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may have overridden what a policy gave way to, but none overrides the value of an earlier policy."""
    applied: Counter[str] = Counter()
    apply = Injection.apply

    def counted(self: Injection, given_policy: Policy, moment: Moment = Moment.ADMISSION) -> Changes:
        applied[given_policy.key.name] += 1
        return apply(self, given_policy, moment)

    monkeypatch.setattr(Injection, "apply", counted)
    overriding = [
        policy(f"p{number}", priority=-number, conflictPolicy="Override", schedulerName=f"s{number}")
        for number in range(9)
    ]
    keeping = policy("keeping", priority=5, nodeSelector={"pool": "a"}, priorityClassName="low")
    answer = reviewed(verb(*overriding, keeping), pod({"schedulerName": "mine", "priorityClassName": "high"}))
    assert template_spec(answer.obj)["schedulerName"] == "s0"
    assert applied == {"keeping": 2} | dict.fromkeys((f"p{number}" for number in range(9)), 1)


VALUES = st.lists(st.sampled_from("abcdef"), unique=True).map(
    lambda names: Items(list_item(TOLERATIONS, toleration(name)) for name in names)
)


@given(VALUES, st.sets(st.sampled_from("abcdef")))
def test_what_a_list_lacks_is_the_same_as_when_each_element_is_looked_at(items: Items, known: set[str]) -> None:
    keys = {list_item(TOLERATIONS, toleration(name)).key for name in known}
    left = items.without(keys)
    assert list(left) == [item for item in items if item.key not in keys]
    assert left.keys == {item.key for item in left}
    assert left.size == Size(*map(sum, zip(Size(), *(item.size for item in left), strict=True)))

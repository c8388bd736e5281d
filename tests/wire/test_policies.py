"""Policies from JSON: what their fields mean, defaults, kupid's group, and policies that are not valid."""

from __future__ import annotations

import orjson
import pytest

from extender.model.policies import (
    ConflictPolicy,
    FailurePolicy,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Scope,
    Subject,
    Targets,
)
from extender.wire.errors import WireError
from extender.wire.policies.policies_v1 import PolicyError, decode_policy
from tests.builders import Json, matching
from tests.policies import expression, kupid_policy, node_term, policy, policy_json, requiring


def subject(
    namespace: str = "shop", *, owner: str = "", account: str = "default", priority: str = "", **labels: str
) -> Subject:
    """A pod of a namespace with the label team=a."""
    return Subject(namespace, labels, {"team": "a"}, owner, account, priority)


def selects(found: Policy, who: Subject) -> bool:
    """Whether the policy selects the pod."""
    return found.scope.selects(who)


def test_a_policy_that_says_nothing_has_the_defaults() -> None:
    found = policy(priority=None)
    assert (found.priority, found.targets, found.mode) == (0, Targets.PODS, Mode.ENFORCE)
    assert found.when == {Moment.ADMISSION, Moment.SCHEDULING}
    assert (found.conflict_policy, found.failure_policy) == (ConflictPolicy.KEEP_POD, FailurePolicy.IGNORE)
    assert found.directives.is_empty


def test_a_kupid_policy_is_read_under_its_own_group_and_under_ours() -> None:
    spec: Json = {"nodeSelector": {"pool": "etcd"}, "tolerations": [{"operator": "Exists"}]}
    theirs, ours = kupid_policy(**spec), policy(**spec)
    assert theirs.directives == ours.directives
    assert theirs.scope == ours.scope
    assert (theirs.targets, theirs.conflict_policy) == (Targets.BOTH, ConflictPolicy.COMBINE)
    assert str(theirs.key) == "ClusterPodSchedulingPolicy.kupid.gardener.cloud/policy"
    assert theirs.key != ours.key


@pytest.mark.parametrize(
    ("selectors", "selected"),
    [
        ({"podSelector": {}}, True),
        ({"podSelector": None}, False),
        ({"podSelector": matching(app="web")}, True),
        ({"podSelector": matching(app="db")}, False),
        ({"podSelector": matching(("app", "NotIn", ["db"]))}, True),
        ({"namespaceSelector": None}, False),
        ({"namespaceSelector": matching(team="a")}, True),
        ({"namespaceSelector": matching(team="b")}, False),
        ({"namespaceSelector": matching(("team", "DoesNotExist", []))}, False),
    ],
)
def test_an_absent_selector_selects_nothing_and_an_empty_one_everything(selectors: Json, *, selected: bool) -> None:
    assert selects(policy(**selectors), subject(app="web")) is selected


def test_a_namespaced_policy_concerns_its_namespace_only() -> None:
    found = policy("p", "shop")
    assert selects(found, subject("shop"))
    assert not selects(found, subject("bank"))


def test_a_namespace_is_selected_by_name_also_before_its_object_is_known() -> None:
    found = policy(namespaceSelector=matching(**{"kubernetes.io/metadata.name": "shop"}))
    assert selects(found, Subject("shop", {}, None))
    assert not selects(found, Subject("bank", {}, None))


@pytest.mark.parametrize(
    ("conditions", "who", "selected"),
    [
        ({"ownerKinds": ["ReplicaSet", "Job"]}, subject(owner="Job"), True),
        ({"ownerKinds": ["ReplicaSet"]}, subject(), False),
        ({"ownerKinds": ["Job"], "serviceAccounts": ["robot"]}, subject(owner="Job"), False),
        ({"serviceAccounts": ["robot"]}, subject(account="robot"), True),
        ({"priorityClassNames": ["high"]}, subject(priority="low"), False),
        ({"exclude": {"namespaces": ["shop"]}}, subject(), False),
        ({"exclude": {"ownerKinds": ["DaemonSet"]}}, subject(owner="DaemonSet"), False),
        ({"exclude": {"serviceAccounts": ["robot"]}}, subject(account="robot"), False),
        (
            {"exclude": {"priorityClassNames": ["system-node-critical"]}},
            subject(priority="system-node-critical"),
            False,
        ),
        ({"exclude": {"podSelector": matching(app="web")}}, subject(app="web"), False),
        ({"exclude": {"podSelector": matching(app="web")}}, subject(app="db"), True),
        ({"exclude": {}}, subject(), True),
    ],
)
def test_match_conditions_narrow_what_the_selectors_select(conditions: Json, who: Subject, *, selected: bool) -> None:
    assert selects(policy(matchConditions=conditions), who) is selected


def test_policies_apply_by_priority_then_cluster_wide_ones_first_then_by_name() -> None:
    made = [policy("b"), policy("a", "shop"), policy("a"), policy("z", "shop", priority=5), policy("c", priority=-1)]
    assert [str(each.key) for each in sorted(made, key=lambda each: each.order)] == [
        "PodSchedulingPolicy/shop/z",
        "ClusterPodSchedulingPolicy/a",
        "ClusterPodSchedulingPolicy/b",
        "PodSchedulingPolicy/shop/a",
        "ClusterPodSchedulingPolicy/c",
    ]


def test_min_domains_of_a_soft_constraint_is_kept_for_scores_and_not_for_injection() -> None:
    soft: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}
    hard: Json = {**soft, "whenUnsatisfiable": "DoNotSchedule"}
    found = policy(topologySpreadConstraints=[soft, hard]).directives
    assert found.soft_min_domains == (soft,)
    assert [item.value for item in found.lists["topologySpreadConstraints"]] == [hard]


def test_the_node_part_is_compiled_as_that_of_a_pod() -> None:
    term = node_term(expression("zone", "In", "a", "b"))
    found = policy(nodeSelector={"disk": "ssd"}, affinity=requiring(term)).directives.nodes
    assert found.matches("n", {"zone": "a", "disk": "ssd"})
    assert not found.matches("n", {"zone": "a"})
    assert not found.matches("n", {"zone": "c", "disk": "ssd"})


def test_required_terms_are_read_in_normal_form() -> None:
    a, b = expression("zone", "In", "a"), expression("disk", "In", "ssd")
    never = node_term(a, expression("zone", "In", "b"))
    terms = policy(affinity=requiring(node_term(a, b), never, node_term(a), {})).directives.required_node_terms
    assert terms is not None
    assert [term.value for term in terms] == [node_term(a)]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000])
def test_bytes_that_are_no_object_are_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_policy(body)


def test_a_policy_that_is_not_valid_is_named_with_every_error_and_its_scope() -> None:
    body = policy_json(
        "bad", podSelector=matching(app="web"), nodeName="Bad Name", priority="high", failurePolicy="Fail"
    )
    with pytest.raises(PolicyError) as refused:
        decode_policy(orjson.dumps(body))
    invalid = refused.value.invalid
    assert invalid.key == PolicyKey("placement.extender.dev", "", "bad")
    assert [error.field for error in refused.value.errors] == ["spec.nodeName", "spec.priority"]
    assert invalid.failure_policy is FailurePolicy.FAIL
    assert isinstance(invalid.scope, Scope)
    assert invalid.may_select(subject(app="web"))
    assert not invalid.may_select(subject(app="db"))


@pytest.mark.parametrize("spec", [{"mode": "Audit"}, {"when": ["Scheduling"]}, {"failurePolicy": "Ignore"}])
def test_an_invalid_policy_that_would_change_no_pod_at_admission_refuses_none(spec: Json) -> None:
    fields: Json = {"failurePolicy": "Fail"} | spec
    with pytest.raises(PolicyError) as refused:
        decode_policy(orjson.dumps(policy_json(nodeName="Bad Name", **fields)))
    assert not refused.value.invalid.must_not_be_missed(Moment.ADMISSION, Moment.RELEASE)


def test_a_policy_whose_selector_cannot_be_read_may_concern_every_pod_of_its_namespace() -> None:
    with pytest.raises(PolicyError) as refused:
        decode_policy(orjson.dumps(policy_json("bad", "shop", podSelector={"matchLabels": "app=web"})))
    assert refused.value.invalid.scope is None
    assert refused.value.invalid.may_select(subject("shop"))
    assert not refused.value.invalid.may_select(subject("bank"))

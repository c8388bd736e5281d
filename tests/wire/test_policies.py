"""Policies from JSON: what their fields mean, defaults, kupid's group, and policies that are not valid.

The block ``release`` of a policy as it is read. What is refused: tests/deploy/policies, together with the CRD.

Policies as they are watched: decoded to valid or invalid ones, and applied to the index.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.policies.crds import policy_crds
from extender.model.constraints.labels import ZONE
from extender.model.policies import (
    GROUP,
    KUPID_GROUP,
    ConflictPolicy,
    FailurePolicy,
    InvalidPolicy,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    PolicyScope,
    Subject,
    Targets,
)
from extender.model.release import (
    MOST_LEVELS,
    RELEASE_GATE,
    BroughtToleration,
    Domain,
    GroupSize,
    LaterPods,
    Level,
    NoRoom,
    NoRoomAction,
    ReleaseSpec,
    Strategy,
)
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import Identity, policies_within
from extender.wire.policies.policies_v1 import PolicyError, decode_policy, read_policy
from extender.wire.policies.policy_validation import validate
from extender.wire.snapshots import decode_snapshot
from tests.builders import PREFERRED, REQUIRED, Json, index_of, matching, spread
from tests.deploy.policies.examples import FULL
from tests.deploy.policies.test_schema import schema_of
from tests.policies import expression, kupid_policy, node_term, policy, policy_json, requiring


def subject(
    namespace: str = "shop", *, owner: str = "", account: str = "default", priority: str = "", **labels: str
) -> Subject:
    """A pod of a namespace with the label team=a."""
    return Subject(namespace, labels, {"team": "a"}, owner, account, priority)


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


BY_NAME = {"namespaceSelector": matching(**{"kubernetes.io/metadata.name": "shop"})}
WEB = {"podSelector": matching(app="web")}
CRITICAL = "system-node-critical"
SELECTED: list[tuple[Json, Subject, bool]] = [
    ({"podSelector": {}}, subject(), True),
    ({"podSelector": None}, subject(), False),
    (WEB, subject(app="web"), True),
    (WEB, subject(app="db"), False),
    ({"podSelector": matching(("app", "NotIn", ["db"]))}, subject(app="web"), True),
    ({"namespaceSelector": None}, subject(), False),
    ({"namespaceSelector": matching(team="a")}, subject(), True),
    ({"namespaceSelector": matching(team="b")}, subject(), False),
    ({"namespaceSelector": matching(("team", "DoesNotExist", []))}, subject(), False),
    ({"namespace": "shop"}, subject("shop"), True),
    ({"namespace": "shop"}, subject("bank"), False),
    (BY_NAME, Subject("shop", {}, None), True),  # before the namespace itself is known
    (BY_NAME, Subject("bank", {}, None), False),
    ({"matchConditions": {"ownerKinds": ["ReplicaSet", "Job"]}}, subject(owner="Job"), True),
    ({"matchConditions": {"ownerKinds": ["ReplicaSet"]}}, subject(), False),
    ({"matchConditions": {"ownerKinds": ["Job"], "serviceAccounts": ["robot"]}}, subject(owner="Job"), False),
    ({"matchConditions": {"serviceAccounts": ["robot"]}}, subject(account="robot"), True),
    ({"matchConditions": {"priorityClassNames": ["high"]}}, subject(priority="low"), False),
    ({"matchConditions": {"exclude": {"namespaces": ["shop"]}}}, subject(), False),
    ({"matchConditions": {"exclude": {"ownerKinds": ["DaemonSet"]}}}, subject(owner="DaemonSet"), False),
    ({"matchConditions": {"exclude": {"serviceAccounts": ["robot"]}}}, subject(account="robot"), False),
    ({"matchConditions": {"exclude": {"priorityClassNames": [CRITICAL]}}}, subject(priority=CRITICAL), False),
    ({"matchConditions": {"exclude": WEB}}, subject(app="web"), False),
    ({"matchConditions": {"exclude": WEB}}, subject(app="db"), True),
    ({"matchConditions": {"exclude": {}}}, subject(), True),
]


@pytest.mark.parametrize(("fields", "who", "selected"), SELECTED)
def test_a_policy_selects_pods_by_its_selectors_namespace_and_conditions(
    fields: Json, who: Subject, *, selected: bool
) -> None:
    assert policy(**fields).scope.selects(who) is selected


def test_cluster_wide_policies_apply_first_then_by_priority_then_by_name() -> None:
    made = [policy("b"), policy("a", "shop"), policy("a"), policy("z", "shop", priority=5), policy("c", priority=-1)]
    assert [str(each.key) for each in sorted(made, key=lambda each: each.order)] == [
        "ClusterPodSchedulingPolicy/a",
        "ClusterPodSchedulingPolicy/b",
        "ClusterPodSchedulingPolicy/c",
        "PodSchedulingPolicy/shop/z",
        "PodSchedulingPolicy/shop/a",
    ]


def test_min_domains_of_a_soft_constraint_is_kept_for_scores_and_not_for_injection() -> None:
    soft: Json = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}
    hard: Json = {**soft, "whenUnsatisfiable": "DoNotSchedule"}
    found = policy(topologySpreadConstraints=[soft, hard]).directives
    assert [item.value for item in found.soft_min_domains] == [soft]
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
    assert [error.field for error in refused.value.errors] == ["spec.priority", "spec.nodeName"]
    assert invalid.failure_policy is FailurePolicy.FAIL
    assert isinstance(invalid.scope, PolicyScope)
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


SPOT = (BroughtToleration("spot", "Exists", "", "NoSchedule"), BroughtToleration("spot", "", "yes", "NoExecute", 60))
NEAR = (("cpu", 160_000), ("example.com/gpu", 8), ("memory", 640 * 2**30), ("pods", 40))


def test_only_the_topology_is_needed() -> None:
    found = policy(when=["Release"], release={"topology": [ZONE]})
    assert found.release == ReleaseSpec((ZONE,))
    assert found.acts(Moment.RELEASE)
    assert found.directives.is_empty


def test_every_field_is_read() -> None:
    assert read_policy(FULL).release == ReleaseSpec(
        topology=(ZONE,),
        gate="placement.extender.dev/gang",
        group_label="example.com/gang",
        size=GroupSize(annotation="example.com/gang-size"),
        strategy=Strategy.IN_ORDER,
        exclusive=True,
        later_pods=LaterPods.REPLACE_OR_MOVE,
        domains=(
            Domain("near", ("a", "b"), ("b",), NEAR),
            Domain("far", ("c",), may_grow=True, tolerations=SPOT),
        ),
        max_per_domain=60,
        no_room=(NoRoomAction(NoRoom.GROWING_DOMAIN), NoRoomAction(NoRoom.WAIT, 90.0)),
    )
    other = {"strategy": "LeastFree", "noRoom": [{"action": "SeveralDomains"}, {"action": "CoarserDomain"}]}
    found = policy(when=["Release"], release={"topology": [ZONE, "example.com/rack"], **other})
    assert found.release == ReleaseSpec(
        topology=(ZONE, "example.com/rack"),
        no_room=(NoRoomAction(NoRoom.SEVERAL_DOMAINS), NoRoomAction(NoRoom.COARSER_DOMAIN, 600.0)),
        strategy=Strategy.LEAST_FREE,
    )


def test_an_action_that_comes_later_is_left_out_until_its_time() -> None:
    steps = [{"action": "Preempt"}, {"action": "SeveralDomains", "after": "5m"}, {"action": "Anywhere"}]
    spec = policy(when=["Release"], release={"topology": [ZONE], "noRoom": steps}).release
    assert spec is not None
    assert [step.action for step in spec.at(299.0).no_room] == ["Preempt", "Anywhere"]
    assert spec.at(300.0) is spec
    assert spec.times == (0.0, 300.0, 600.0, 600.0)


def test_pods_are_narrowed_to_the_one_value_of_a_domain_or_to_the_set() -> None:
    release = read_policy(FULL).release
    assert release is not None
    assert [release.level_of(each) for each in release.domains] == [
        Level(ZONE, "a", ("a", "b"), ("b",)),
        Level(ZONE, "c", tolerations=SPOT),
    ]


@pytest.mark.parametrize(
    ("size", "expected"),
    [({"count": 4}, GroupSize(4)), ({"label": "size"}, GroupSize(label="size")), (None, GroupSize())],
    ids=["number", "label", "absent"],
)
def test_the_size_is_a_number_or_where_the_pods_tell_it(size: Json | None, expected: GroupSize) -> None:
    found = policy(when=["Release"], release={"topology": [ZONE], "size": size})
    assert found.release is not None
    assert found.release.size == expected


def test_the_defaults_of_the_schema_are_those_of_the_model() -> None:
    block = schema_of(policy_crds()[0])["properties"]["spec"]["properties"]["release"]["properties"]
    written = {name: part["default"] for name, part in block.items() if "default" in part}
    found = policy(when=["Release"], release={"topology": [ZONE], **written})
    assert found.release == ReleaseSpec((ZONE,))
    assert written["gate"] == RELEASE_GATE
    assert written.keys() | {"topology", "domains", "maxPerDomain", "noRoom", "laterPods"} == block.keys()


def test_an_invalid_policy_of_this_moment_keeps_its_failure_policy() -> None:
    """Its pods would escape the gate, so they are refused where the policy says so."""
    with pytest.raises(PolicyError) as caught:
        read_policy(policy_json(when=["Release"], failurePolicy="Fail"))
    assert caught.value.invalid.failure_policy is FailurePolicy.FAIL
    assert [error.field for error in caught.value.errors] == ["spec.release"]


@pytest.mark.parametrize("block", [7, [], {"topology": "zone"}, {"topology": [7]}, {"topology": ["a"], "size": 4}])
def test_wrong_types_are_named(block: object) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(policy_json(when=["Release"], release=block))
    assert all(error.field.startswith("spec.release") for error in caught.value.errors)


@pytest.mark.parametrize(("levels", "fields"), [(MOST_LEVELS, []), (MOST_LEVELS + 1, ["spec.release.topology"])])
def test_a_group_may_have_so_many_levels_and_no_more(levels: int, fields: list[str]) -> None:
    block = {"topology": [f"level-{number}" for number in range(levels)]}
    found = validate(policy_json(when=["Release"], release=block), DEFAULT_LIMITS)
    assert [each.field for each in found] == fields


KIND = "PodSchedulingPolicy"
POLICIES = policies_within(ConstraintLimits(), KIND, GROUP)


def line(kind: str = "ADDED", version: str = "7", **spec: Any) -> bytes:
    metadata = {"name": "one", "namespace": "team", "generation": 2, "resourceVersion": version, "uid": "u"}
    found = {"apiVersion": f"{GROUP}/v1alpha1", "kind": KIND, "metadata": metadata, "spec": spec}
    return orjson.dumps({"type": kind, "object": found})


def test_a_line_of_a_watch_is_a_policy() -> None:
    event = POLICIES.decode_event(line(podSelector={}, schedulerName="ours"))
    assert event.object is not None
    assert (event.type, event.resource_version) == ("ADDED", "7")
    policy = event.object.policy
    assert isinstance(policy, Policy)
    assert (policy.key, policy.generation) == (PolicyKey(GROUP, "team", "one"), 2)
    assert policy.directives.scheduler_names == ("ours",)


def test_an_invalid_one_is_kept_with_its_errors() -> None:
    event = POLICIES.decode_event(line(podSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}))
    assert event.object is not None
    assert isinstance(event.object.policy, InvalidPolicy)
    assert event.object.policy.errors[0].startswith("spec.podSelector.matchExpressions[0].values")


@pytest.mark.parametrize("spec", [b"5", b"null", b'"text"', b"[]"])
def test_a_policy_that_cannot_be_decoded_has_its_identity(spec: bytes) -> None:
    found = POLICIES.decode_object(b'{"metadata": {"name": "one", "namespace": "team"}, "spec": %s}' % spec)
    named = POLICIES.named(Identity(name="one", namespace="team"))
    assert (found.key, named.key) == ("PodSchedulingPolicy/team/one", "PodSchedulingPolicy/team/one")


def test_policies_of_two_groups_have_two_keys() -> None:
    kupid = policies_within(ConstraintLimits(), KIND, KUPID_GROUP)
    identity = Identity(name="one", namespace="team")
    assert kupid.named(identity).key != POLICIES.named(identity).key


def test_the_index_follows_additions_changes_and_deletions() -> None:
    index = index_of()
    pod = Subject("team", {"app": "web"})

    def apply(text: bytes, *, deleted: bool = False) -> bool:
        found = POLICIES.decode_event(text).object
        assert found is not None
        return index.delete(found) if deleted else index.upsert(found)

    assert apply(line(podSelector={}, schedulerName="ours"))
    assert [each.key.name for each in index.policies.select(pod, Moment.ADMISSION)] == ["one"]
    assert not apply(line(version="8", podSelector={}, schedulerName="ours")), "only its status has changed"
    assert apply(line(version="9", podSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}))
    assert index.policies.select(pod, Moment.ADMISSION) == []
    assert index.statistics()["invalid_policies"] == 1
    assert apply(line("DELETED"), deleted=True)
    assert index.statistics()["invalid_policies"] == 0
    assert not apply(line("DELETED"), deleted=True)


def test_a_snapshot_says_the_groups_apart() -> None:
    items = [
        {"apiVersion": f"{group}/v1alpha1", "kind": KIND, "metadata": {"name": "one", "namespace": "a"}, "spec": {}}
        for group in (GROUP, KUPID_GROUP)
    ]
    found = decode_snapshot(orjson.dumps({"kind": "List", "items": items}))
    assert [each.key for each in found.objects] == [
        "PodSchedulingPolicy/a/one",
        "PodSchedulingPolicy.kupid.gardener.cloud/a/one",
    ]


# -- Validation of policies: every error at once, by field and type; what kupid's cases do not cover -------------------


def errors(**spec: Any) -> list[str]:
    """Field and type of each error of a cluster-wide policy, without the words that all fields and types begin with."""
    found = validate(policy_json(**spec), DEFAULT_LIMITS)
    return [f"{each.field.removeprefix('spec.')} {each.type.removeprefix('FieldValue')}" for each in found]


SPREAD = "topologySpreadConstraints[0]"
TERM = f"affinity.podAffinity.{REQUIRED}[0]"
BAD_TERM = {
    "topologyKey": "zone",
    "labelSelector": matching(app="x"),
    "namespaceSelector": {"matchExpressions": [expression("a", "In")]},
    "matchLabelKeys": ["app"],
    "mismatchLabelKeys": ["app"],
}
ERRORS: list[tuple[Json, list[str]]] = [
    ({"when": ["Admission", "Later"]}, ["when[1] NotSupported"]),
    ({"when": []}, ["when Required"]),
    ({"targets": "Nodes"}, ["targets NotSupported"]),
    ({"conflictPolicy": "Combine"}, ["conflictPolicy NotSupported"]),
    ({"failurePolicy": "Panic"}, ["failurePolicy NotSupported"]),
    ({"mode": "Dry"}, ["mode NotSupported"]),
    ({"priority": 2**31}, ["priority Invalid"]),
    ({"priority": True}, ["priority TypeInvalid"]),
    ({"schedulerNames": ["a", "b", "a"]}, ["schedulerNames[2] Duplicate"]),
    ({"schedulerName": "a", "schedulerNames": ["b"]}, ["schedulerNames Forbidden"]),
    ({"schedulerNames": ["Not A Name"]}, ["schedulerNames[0] Invalid"]),
    ({"priorityClassName": "High!"}, ["priorityClassName Invalid"]),
    ({"schedulingGates": [{"name": "x/y"}, {"name": "x/y"}]}, ["schedulingGates[1].name Duplicate"]),
    ({"schedulingGates": [{}]}, ["schedulingGates[0].name Invalid"]),
    ({"schedulingGates": [{"name": "g"}], "nodeName": "n"}, ["schedulingGates Forbidden"]),
    ({"topologySpreadConstraints": [spread(min_domains=2, hard=False)]}, []),
    ({"topologySpreadConstraints": [spread(max_skew=0)]}, [f"{SPREAD}.maxSkew Invalid"]),
    (
        {"topologySpreadConstraints": [{}]},
        [f"{SPREAD}.{name} Required" for name in ("maxSkew", "topologyKey", "whenUnsatisfiable")],
    ),
    (
        {"topologySpreadConstraints": [spread(), spread(max_skew=2)]},
        [f"{SPREAD}.{{topologyKey, whenUnsatisfiable}} Duplicate"],
    ),
    ({"topologySpreadConstraints": [spread(match_label_keys=["app"])]}, [f"{SPREAD}.matchLabelKeys Forbidden"]),
    (
        {"affinity": {"podAffinity": {REQUIRED: [BAD_TERM]}}},
        [f"{TERM}.namespaceSelector.matchExpressions[0].values Required", f"{TERM}.matchLabelKeys[0] Invalid"],
    ),
    ({"matchConditions": {"ownerKinds": "Job"}}, ["matchConditions.ownerKinds TypeInvalid"]),
    ({"matchConditions": {"exclude": {"namespaces": ["A B"]}}}, ["matchConditions.exclude.namespaces[0] Invalid"]),
    ({"tolerations": {}}, ["tolerations TypeInvalid"]),
    ({"tolerations": ["x"]}, ["tolerations[0] TypeInvalid"]),
    ({"nodeSelector": {"a": 1}}, ["nodeSelector[a] TypeInvalid"]),
    (
        {"affinity": requiring(node_term(expression("n", "Gt", "1", "2")))},
        [f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values Required"],
    ),
    (
        {"nodeName": "Bad Name", "mode": "Dry", "tolerations": [{}]},
        ["mode NotSupported", "nodeName Invalid", "tolerations[0].operator Invalid"],
    ),
]


@pytest.mark.parametrize(("spec", "found"), ERRORS)
def test_each_error_names_its_field_and_type(spec: Json, found: list[str]) -> None:
    assert errors(**spec) == found


def test_a_namespaced_policy_needs_a_namespace_and_may_not_select_others() -> None:
    body = policy_json("p", "shop", namespaceSelector={})
    del body["metadata"]["namespace"]
    assert [(each.field, each.type) for each in validate(body, DEFAULT_LIMITS)] == [
        ("metadata.namespace", "FieldValueRequired"),
        ("spec.namespaceSelector", "FieldValueForbidden"),
    ]


def test_a_cluster_policy_has_no_namespace() -> None:
    body = policy_json()
    body["metadata"]["namespace"] = "shop"
    assert [each.field for each in validate(body, DEFAULT_LIMITS)] == ["metadata.namespace"]


def test_an_error_reads_as_that_of_the_api_server() -> None:
    (error,) = validate(policy_json(nodeName="Bad Name"), DEFAULT_LIMITS)
    assert str(error).startswith('spec.nodeName: Invalid value: "Bad Name": a lowercase RFC 1123 subdomain')
    (error,) = validate(policy_json(mode="Dry"), DEFAULT_LIMITS)
    assert str(error) == 'spec.mode: Unsupported value: "Dry": supported values: "Enforce", "Audit"'


def test_a_policy_that_alone_is_above_a_limit_is_refused_with_the_numbers() -> None:
    tolerations = [{"key": f"k{number}", "operator": "Exists"} for number in range(6)]
    (error,) = validate(policy_json(tolerations=tolerations), ConstraintLimits(tolerations=5))
    assert str(error) == "spec.tolerations: Too many: 6: limits.tolerations is 5"


def test_an_object_of_another_kind_is_no_policy() -> None:
    assert [each.field for each in validate({"kind": "Pod", "metadata": {"name": "p"}}, DEFAULT_LIMITS)] == ["kind"]
    assert [each.type for each in validate([], DEFAULT_LIMITS)] == ["FieldValueTypeInvalid"]


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(["", "In", "a", "zone", "Bad Name"]),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            *("podSelector", "matchLabels", "matchExpressions", "key", "operator", "values", "affinity", "nodeAffinity"),
            *(REQUIRED, PREFERRED),
            *("nodeSelectorTerms", "podAffinity", "labelSelector", "tolerations", "topologySpreadConstraints", "when"),
            *("schedulingGates", "name", "matchConditions", "exclude", "nodeSelector", "priority", "schedulerNames"),
        ]),
        below,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(JSON, JSON)
def test_whatever_the_json_is_a_policy_is_read_or_refused_with_fields(metadata: Any, spec: Any) -> None:
    for body in (
        {"kind": "ClusterPodSchedulingPolicy", "metadata": metadata, "spec": spec},
        policy_json() | {"spec": spec},
    ):
        try:
            read_policy(body)
        except PolicyError as refused:
            fields = [error.field for error in refused.errors]
        else:
            fields = ["none is wrong"]
        assert fields
        assert all(fields)

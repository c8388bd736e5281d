"""What gardener/kupid does wrong when it injects, row by row, and what happens here instead: values, terms, fields.

The rows that need a cluster (certificates, readiness, metrics, permissions, enforcement while pods are scheduled) are
tested where they are built.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import orjson
import pytest

from extender.model.policies import INJECTED_ANNOTATION
from extender.settings.policies import Policies
from extender.wire.objects.kinds import PODS
from tests.builders import Json
from tests.policies import PREFERRED, REQUIRED, expression, kupid_policy, node_term, policy, requiring
from tests.verbs.admit.directives import (
    DEFAULTED,
    DIRECTIVES,
    inject,
    lacks,
    node_affinity,
    pod_affinity,
    requiring_affinity,
    terms_of,
)
from tests.verbs.admit.reviewing import LABELS, ask, pod, template_spec, verb, workload

ZONE_A, ZONE_B = (node_term(expression("zone", "In", zone)) for zone in "ab")
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")


class TestPrecedence:
    """kupid: the order of policies varies from call to call."""

    def test_the_cluster_wide_kind_wins_then_the_higher_priority_then_the_name(self) -> None:
        ranked = [
            policy("zz", priority=1, nodeName="first"),
            policy("y", nodeName="second"),
            policy("z", nodeName="third"),
            policy("z", "shop", priority=9, nodeName="fourth"),
            policy("a", "shop", nodeName="fifth"),
        ]
        for left in range(len(ranked)):
            for order in itertools.permutations(ranked[left:]):
                assert ask(verb(*order), pod()).obj["spec"]["nodeName"] == ranked[left].directives.node_name

    def test_a_policy_that_applies_later_does_not_override_an_earlier_one(self) -> None:
        found = ask(verb(policy("a", nodeName="one"), policy("b", nodeName="two", conflictPolicy="Override")), pod())
        assert found.obj["spec"]["nodeName"] == "one"
        assert "a policy that applies first has set this value" in found.warnings[0]

    def test_the_winner_is_recorded_on_the_pod(self) -> None:
        found = ask(verb(policy("a", nodeName="one"), policy("b", nodeName="two")), pod()).obj
        record = orjson.loads(found["metadata"]["annotations"][INJECTED_ANNOTATION])
        assert [each["policy"] for each in record[""]["policies"]] == ["ClusterPodSchedulingPolicy/a"]


class TestConflicts:
    """kupid: conflicts are skipped silently, and contradictions make pods that no node can take."""

    def test_both_values_are_told_and_long_ones_are_cut(self) -> None:
        found = ask(verb(policy(nodeName="two")), pod({"nodeName": "one"}))
        assert 'the pod has "one", the policy "two"' in found.warnings[0]
        found = ask(verb(policy(nodeName="two")), pod({"nodeName": "n" * 65}))
        assert f'the pod has "{"n" * 64}…", the policy "two"' in found.warnings[0]

    @pytest.mark.parametrize(
        ("own", "directed", "field"),
        [
            ({"nodeSelector": {"zone": "b"}}, {"nodeSelector": {"zone": "a"}}, "nodeSelector[zone]"),
            ({"affinity": requiring(ZONE_B)}, {"affinity": requiring(ZONE_A)}, "affinity.nodeAffinity"),
            ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "a"}}, "affinity.nodeAffinity"),
            ({"nodeSelector": {"zone": "b"}}, {"affinity": requiring(ZONE_A)}, "affinity.nodeAffinity"),
            (
                {"affinity": requiring(node_term(expression("cores", "Lt", "8")))},
                {"affinity": requiring(node_term(expression("cores", "Gt", "7")))},
                "affinity.nodeAffinity",
            ),
            (
                {"affinity": requiring(node_term(expression("gpu", "DoesNotExist")))},
                {"affinity": requiring(node_term(expression("gpu", "Exists")))},
                "affinity.nodeAffinity",
            ),
            ({"nodeName": "n2"}, {"nodeName": "n1"}, "nodeName"),
            ({"schedulerName": "own"}, {"schedulerName": "other"}, "schedulerName"),
            ({"priorityClassName": "low"}, {"priorityClassName": "high"}, "priorityClassName"),
            (
                {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 2}]},
                {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]},
                "topologySpreadConstraints[zone, DoNotSchedule]",
            ),
        ],
    )  # fmt: skip
    def test_each_conflict_policy_does_what_it_says(self, own: Json, directed: Json, field: str) -> None:
        kept = ask(verb(policy(**directed, conflictPolicy="KeepPod")), pod(own))
        assert kept.obj == pod(own)
        assert len(kept.warnings) == 1
        assert field in kept.warnings[0]
        overridden = ask(verb(policy(**directed, conflictPolicy="Override")), pod(own)).obj["spec"]
        assert {name: overridden[name] for name in directed} == directed
        rejected = ask(verb(policy(**directed, conflictPolicy="Reject")), pod(own))
        assert rejected.response["allowed"] is False
        assert rejected.response["status"]["code"] == 403
        assert "ClusterPodSchedulingPolicy/policy" in rejected.message
        assert field in rejected.message

    @pytest.mark.parametrize(
        ("own", "directed", "node", "selector"),
        [
            ({"nodeSelector": {"zone": "b", "disk": "ssd"}}, {"affinity": requiring(ZONE_A)}, {"zone": "a"}, {"disk": "ssd"}),
            ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "a"}}, {"zone": "a"}, {"zone": "a"}),
            (
                {"nodeSelector": {"disk": "ssd"}, "affinity": requiring(ZONE_B)},
                {"affinity": requiring(node_term(expression("zone", "In", "a"), expression("disk", "Exists")))},
                {"zone": "a"},
                {"disk": "ssd"},
            ),
            (
                {
                    "nodeSelector": {"zone": "b", "disk": "ssd"},
                    "affinity": requiring(
                        node_term(expression("zone", "Exists"), expression("disk", "In", "hdd")),
                        node_term(expression("zone", "In", "b"), expression("disk", "In", "ssd")),
                    ),
                },
                {"nodeSelector": {"zone": "a"}},
                {"zone": "a"},
                {"zone": "a", "disk": "ssd"},
            ),
        ],
    )  # fmt: skip
    def test_an_override_takes_away_all_that_excludes_the_policy_s_nodes_and_no_more(
        self, own: Json, directed: Json, node: Json, selector: Json
    ) -> None:
        found = ask(verb(policy(**directed, conflictPolicy="Override")), pod(own)).obj["spec"]
        assert found["nodeSelector"] == selector
        read = PODS.decode_object(orjson.dumps({"metadata": {"name": "p", "uid": "u"}, "spec": found}))
        assert read.signature.node_affinity.matches("n", node | {"disk": "ssd"})
        assert not read.signature.node_affinity.matches("n", {"zone": "b", "disk": "ssd"})

    def test_terms_that_match_no_node_are_not_replaced_by_those_of_a_policy(self) -> None:
        """The API allows an empty term, and it matches nothing."""
        found = ask(verb(policy(affinity=requiring(ZONE_A))), pod({"affinity": requiring({})})).obj["spec"]
        read = PODS.decode_object(orjson.dumps({"metadata": {"name": "p", "uid": "u"}, "spec": found}))
        assert not read.signature.node_affinity.matches("n", {"zone": "a"})

    def test_an_override_gives_way_to_policies_that_apply_first(self) -> None:
        first = policy("a", nodeSelector={"zone": "b"})
        second = policy("b", affinity=requiring(ZONE_A), conflictPolicy="Override")
        found = ask(verb(first, second), pod()).obj["spec"]
        assert found["nodeSelector"] == {"zone": "b"}
        assert "affinity" not in found

    def test_a_conflict_in_one_field_leaves_the_others_of_the_policy(self) -> None:
        directed: Json = {"nodeSelector": {"zone": "a", "disk": "ssd"}, "schedulerName": "ours"}
        found = ask(verb(policy(**directed)), pod({"nodeSelector": {"zone": "b"}})).obj["spec"]
        assert found["nodeSelector"] == {"zone": "b", "disk": "ssd"}
        assert found["schedulerName"] == "ours"

    def test_requirements_that_a_node_can_match_together_are_no_conflict(self) -> None:
        own = requiring(node_term(expression("zone", "In", "a", "b")), ZONE_B)
        found = ask(verb(policy(affinity=requiring(ZONE_A))), pod({"affinity": own}))
        assert found.warnings == []
        assert terms_of(found.obj["spec"]) == [
            node_term(expression("zone", "In", "a", "b"), expression("zone", "In", "a"))
        ]

    def test_gates_and_a_node_name_never_meet_in_one_pod(self) -> None:
        """The API server refuses such a pod."""
        gated = pod({"schedulingGates": [{"name": "g"}]})
        assert ask(verb(policy(nodeName="n")), gated).obj == gated
        bound = pod({"nodeName": "n"})
        assert ask(verb(policy(schedulingGates=[{"name": "g"}])), bound).obj == bound


class TestRequiredAffinity:
    """kupid: the product of terms grows with every update, and an empty term is widened."""

    def test_many_updates_leave_the_terms_of_the_first(self) -> None:
        terms = [node_term(expression("pool", "In", name)) for name in "abc"]
        admit = verb(policy(targets="Templates", affinity=requiring(*terms)))
        obj = ask(admit, workload(spec={"affinity": requiring(ZONE_A, ZONE_B)})).obj
        assert len(terms_of(template_spec(obj))) == 6
        for _ in range(5):
            found = ask(admit, obj, "UPDATE", old=obj)
            assert found.patch == []
            obj = found.obj

    def test_an_empty_term_still_matches_no_node(self) -> None:
        own = pod({"affinity": requiring({}, ZONE_A)})
        found = ask(verb(policy(affinity=requiring(node_term(expression("pool", "Exists"))))), own).obj["spec"]
        assert terms_of(found) == [{}, node_term(expression("zone", "In", "a"), expression("pool", "Exists"))]

    @pytest.mark.parametrize(
        "never", [[{}], [{}, node_term(expression("a", "Exists"), expression("a", "DoesNotExist"))]]
    )
    def test_a_policy_whose_terms_match_no_node_widens_nothing(self, never: list[Json]) -> None:
        own = pod({"affinity": requiring(ZONE_A)})
        kept = ask(verb(policy(affinity=requiring(*never))), own)
        assert kept.obj == own
        assert "no node can match" in kept.warnings[0]
        combined = ask(verb(kupid_policy(affinity=requiring(*never))), own).obj["spec"]
        read = PODS.decode_object(orjson.dumps({"metadata": {"name": "p", "uid": "u"}, "spec": combined}))
        assert not read.signature.node_affinity.matches("n", {"zone": "a"})
        assert not read.signature.node_affinity.matches("n", {"zone": "a", "a": "b"})

    def test_more_terms_than_the_cap_are_a_conflict_with_the_number(self) -> None:
        mine = [node_term(expression("rack", "In", f"r{number}")) for number in range(5)]
        theirs = [node_term(expression("pool", "In", f"p{number}")) for number in range(4)]
        own = pod({"affinity": requiring(*mine)})
        found = ask(verb(policy(affinity=requiring(*theirs)), settings=Policies(max_terms=19)), own)
        assert found.obj == own
        assert "20 or more node selector terms, policies.maxTerms is 19" in found.warnings[0]
        enough = ask(verb(policy(affinity=requiring(*theirs)), settings=Policies(max_terms=20)), own)
        assert len(terms_of(enough.obj["spec"])) == 20


class TestExistingValues:
    """kupid: what the API server fills in counts as set, so a scheduler name is never injected."""

    def test_the_defaults_of_the_api_server_count_as_unset(self) -> None:
        directed: Json = {"schedulerName": "ours", "priorityClassName": "high", "nodeSelector": {"a": "b"}}
        found = ask(verb(policy(**directed)), pod(DEFAULTED))
        assert {name: found.obj["spec"][name] for name in directed} == directed
        assert found.warnings == []

    def test_a_new_priority_class_takes_along_what_was_computed_from_the_old_one(self) -> None:
        """Else the API server would refuse the pod: it computes both again after the webhook."""
        found = ask(verb(policy(priorityClassName="high")), pod(DEFAULTED)).obj["spec"]
        assert "priority" not in found
        assert "preemptionPolicy" not in found
        again = pod(found | {"priority": 7, "preemptionPolicy": "PreemptLowerPriority"})
        assert ask(verb(policy(priorityClassName="high")), again).patch == []

    def test_a_default_toleration_gives_way_to_the_policy_s_for_the_same_taint(self) -> None:
        """Both together would count as the shorter time."""
        short = {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 9,
        }
        found = ask(verb(policy(tolerations=[short])), pod(DEFAULTED)).obj["spec"]
        assert found["tolerations"] == [DEFAULTED["tolerations"][1], short]
        forever: Json = {"operator": "Exists"}
        found = ask(verb(policy(tolerations=[forever])), pod(DEFAULTED)).obj["spec"]
        assert found["tolerations"] == [forever]

    def test_a_toleration_of_the_user_stays(self) -> None:
        """In a template nothing was filled in, and another time than the default was chosen."""
        policies = verb(policy(targets="Both", tolerations=[{"operator": "Exists"}]))
        defaults = DEFAULTED["tolerations"]
        assert template_spec(ask(policies, workload(spec={"tolerations": defaults})).obj)["tolerations"][:2] == defaults
        chosen = {**defaults[0], "tolerationSeconds": 30}
        assert ask(policies, pod({"tolerations": [chosen]})).obj["spec"]["tolerations"][0] == chosen


class TestRemovalAndChange:
    """kupid: a changed policy adds to what its former version left, a deleted one leaves everything."""

    @pytest.mark.parametrize("kind", [kind for kind in WORKLOADS if kind != "Job"])
    def test_a_renamed_pool_replaces_the_old_one(self, kind: str) -> None:
        def version(generation: int, pool: str) -> Any:
            term = node_term(expression("pool", "In", pool))
            return policy(
                targets="Templates", generation=generation, affinity=requiring(term), tolerations=[{"key": pool}]
            )

        first = ask(verb(version(1, "old")), workload(kind)).obj
        second = ask(verb(version(2, "new")), first, "UPDATE", old=first).obj
        assert terms_of(template_spec(second)) == [node_term(expression("pool", "In", "new"))]
        assert template_spec(second)["tolerations"] == [{"key": "new"}]
        assert '"generation":2' in second["metadata"]["annotations"][INJECTED_ANNOTATION]
        assert ask(verb(), second, "UPDATE", old=second).obj == workload(kind)

    def test_what_an_override_replaced_comes_back(self) -> None:
        own = workload(spec={"nodeSelector": {"zone": "b"}, "schedulerName": "default-scheduler"})
        override = policy(targets="Both", conflictPolicy="Override", nodeSelector={"zone": "a"}, schedulerName="ours")
        first = ask(verb(override), own).obj
        assert template_spec(first)["nodeSelector"] == {"zone": "a"}
        assert ask(verb(), first, "UPDATE", old=first).obj == own

    def test_the_annotation_stands_on_the_workload_and_not_on_its_template(self) -> None:
        """There it would roll the workload out with every generation of a policy."""
        found = ask(verb(policy(targets="Both", nodeSelector={"a": "b"})), workload()).obj
        assert found["spec"]["template"]["metadata"] == {"labels": LABELS}
        second = ask(verb(policy(targets="Both", nodeSelector={"a": "b"}, generation=2)), found, "UPDATE", old=found)
        assert {step["path"].split("/")[1] for step in second.patch} == {"metadata"}

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"":3}', '{"/spec/template":{"policies":[{}]}}', '{"/spec/template":{"terms":{"after":[[9,{}]]}}}']
    )  # fmt: skip
    def test_an_annotation_of_another_form_is_replaced_and_not_followed(self, text: str) -> None:
        own = workload(spec={"affinity": requiring(ZONE_A)}, annotations={INJECTED_ANNOTATION: text, "other": "x"})
        found = ask(verb(policy(targets="Both", nodeSelector={"a": "b"})), own).obj
        assert template_spec(found)["affinity"] == requiring(ZONE_A)
        assert template_spec(found)["nodeSelector"] == {"a": "b"}
        assert found["metadata"]["annotations"]["other"] == "x"

    def test_a_forged_record_takes_nothing_from_a_pod(self) -> None:
        """A pod is created once, so its record is never subtracted: another webhook's work cannot be taken out with it."""
        record = {"": {"policies": [{"policy": "x", "nodeSelector": {"tenant": "a"}}]}}
        forged = pod(
            {"nodeSelector": {"tenant": "a"}}, annotations={INJECTED_ANNOTATION: orjson.dumps(record).decode()}
        )
        assert ask(verb(policy(schedulerName="s")), forged).obj["spec"]["nodeSelector"] == {"tenant": "a"}


class TestTargets:
    """kupid: templates are mutated, which rolls workloads out, and pods are not."""

    def test_pods_are_the_default_and_templates_are_left_alone(self) -> None:
        assert ask(verb(policy(nodeName="n")), pod()).obj["spec"]["nodeName"] == "n"
        assert ask(verb(policy(nodeName="n")), workload()).patch == []

    def test_templates_only(self) -> None:
        policies = verb(policy(targets="Templates", nodeName="n"))
        assert ask(policies, pod()).patch == []
        assert template_spec(ask(policies, workload()).obj)["nodeName"] == "n"

    def test_both_inject_once(self) -> None:
        policies = verb(policy(targets="Both", affinity=requiring(ZONE_A, ZONE_B), tolerations=[{"key": "k"}]))
        template = template_spec(ask(policies, workload()).obj)
        assert ask(policies, pod(template)).patch == []


UNKNOWN: Json = {"nextYear": {"deep": [{"x": 1, "y": None}, True, 1.5]}}


class TestFieldLoss:
    """kupid: every field that is younger than its types is removed."""

    def test_unknown_fields_at_every_level_survive(self) -> None:
        term = {**node_term({**expression("zone", "In", "a"), **UNKNOWN}), "matchSomething": [{"a": 1}]}
        spec: Json = {
            "containers": [{"name": "c", "resizePolicy": [{"resourceName": "cpu"}], **UNKNOWN}],
            "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
            "schedulingGates": [{"name": "theirs", **UNKNOWN}],
            "resourceClaims": [{"name": "gpu"}],
            "tolerations": [{"key": "k", **UNKNOWN}],
            "topologySpreadConstraints": [{"topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", **UNKNOWN}],
            "affinity": {
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term], **UNKNOWN}, **UNKNOWN},
                "podAffinity": {REQUIRED: [{"topologyKey": "zone", "matchLabelKeys": ["a"], **UNKNOWN}], **UNKNOWN},
                **UNKNOWN,
            },
            **UNKNOWN,
        }
        directed: Json = {
            "schedulingGates": [{"name": "ours"}],
            "tolerations": [{"key": "ours"}],
            "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}],
            "affinity": {
                **requiring(node_term(expression("pool", "Exists"))),
                "podAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": {}, "mismatchLabelKeys": ["b"]}]},
            },
            "nodeSelector": {"a": "b"},
        }
        for obj in (pod(spec) | UNKNOWN, workload(spec=spec) | UNKNOWN):
            obj["metadata"] |= UNKNOWN
            found = ask(verb(policy(targets="Both", **directed)), copy.deepcopy(obj))
            assert {step["op"] for step in found.patch} == {"add"}
            assert lacks(found.obj, obj) == []
            joined = terms_of(template_spec(found.obj))[0]
            assert joined["matchExpressions"] == [*term["matchExpressions"], expression("pool", "Exists")]

    def test_a_match_without_an_effect_has_no_patch(self) -> None:
        assert ask(verb(policy()), pod(UNKNOWN)).patch == []

    def test_unknown_fields_of_a_policy_s_terms_are_injected(self) -> None:
        term = {**node_term(expression("zone", "In", "a")), **UNKNOWN}
        found = ask(
            verb(policy(affinity=requiring(term))),
            pod({"affinity": requiring(node_term(expression("pool", "Exists")))}),
        )
        assert terms_of(found.obj["spec"]) == [
            {"matchExpressions": [expression("pool", "Exists"), expression("zone", "In", "a")], **UNKNOWN}
        ]


# -- The scenarios of kupid's own injector tests, restated: what each directive does with nothing, a conflict, or
#    something else
# kupid's tests give a mutated spec beside the original one. Here there is one spec, as the API server sends it.

CONTAINERS: Json = {"containers": [{"name": "c", "image": "i"}]}
EXISTING: dict[str, Json] = {
    **DIRECTIVES,
    "nodeName": {"nodeName": "old-node"},
    "schedulerName": {"schedulerName": "old-scheduler"},
}
OTHER: dict[str, tuple[Json, Json]] = {
    "pod affinity": (
        {"affinity": pod_affinity("podAffinity", "old", 10)},
        {"affinity": {"podAffinity": {
            name: [*pod_affinity("podAffinity", "old", 10)["podAffinity"][name],
                   *pod_affinity("podAffinity", "new", 100)["podAffinity"][name]]
            for name in (PREFERRED, REQUIRED)
        }}},
    ),
    "pod anti-affinity": (
        {"affinity": pod_affinity("podAntiAffinity", "old", 10)},
        {"affinity": {"podAntiAffinity": {
            name: [*pod_affinity("podAntiAffinity", "old", 10)["podAntiAffinity"][name],
                   *pod_affinity("podAntiAffinity", "new", 100)["podAntiAffinity"][name]]
            for name in (PREFERRED, REQUIRED)
        }}},
    ),
    "nodeSelector": (
        {"nodeSelector": {"oldKey": "oldValue"}},
        {"nodeSelector": {"oldKey": "oldValue", "newKey": "newValue"}},
    ),
    "tolerations": (
        {"tolerations": [{"key": "oldKey"}]},
        {"tolerations": [{"key": "oldKey"}, *DIRECTIVES["tolerations"]["tolerations"]]},
    ),
}  # fmt: skip
directives = pytest.mark.parametrize("name", DIRECTIVES)


@directives
@pytest.mark.parametrize("empty", [{}, {"affinity": {}, "nodeSelector": {}, "tolerations": [], "schedulerName": ""}])
def test_1_to_3_a_policy_without_the_value_changes_nothing(name: str, empty: Json) -> None:
    others = {other: value for each, spec in DIRECTIVES.items() if each != name for other, value in spec.items()}
    without = {field: value for field, value in others.items() if field not in DIRECTIVES[name]}
    result = inject(CONTAINERS | empty, kupid_policy(**without))
    for field in DIRECTIVES[name]:
        assert result.get(field) == empty.get(field)
    assert inject(CONTAINERS | empty, kupid_policy()) == CONTAINERS | empty


@directives
def test_4_to_7_without_the_policy_s_value_an_existing_one_stays(name: str) -> None:
    assert inject(CONTAINERS | EXISTING[name], kupid_policy()) == CONTAINERS | EXISTING[name]


@directives
def test_8_an_existing_value_wins_over_that_of_the_policy(name: str) -> None:
    assert inject(CONTAINERS | EXISTING[name], kupid_policy(**DIRECTIVES[name])) == CONTAINERS | EXISTING[name]


@directives
def test_9_an_empty_spec_gets_exactly_the_policy_s_value_and_twice_is_as_once(name: str) -> None:
    assert inject(CONTAINERS, kupid_policy(**DIRECTIVES[name])) == CONTAINERS | DIRECTIVES[name]


@pytest.mark.parametrize("name", OTHER)
def test_10_other_values_stay_in_front_of_the_policy_s(name: str) -> None:
    existing, expected = OTHER[name]
    assert inject(CONTAINERS | existing, kupid_policy(**DIRECTIVES[name])) == CONTAINERS | expected


def test_10_node_affinity_joins_the_required_terms_and_appends_the_preferred_ones() -> None:
    old, new = node_affinity("old")["nodeAffinity"], node_affinity("new")["nodeAffinity"]
    found = inject(CONTAINERS | {"affinity": node_affinity("old")}, kupid_policy(affinity=node_affinity("new")))
    affinity = found["affinity"]["nodeAffinity"]
    assert affinity[PREFERRED] == [*old[PREFERRED], *new[PREFERRED]]
    (mine,), (theirs,) = (each[REQUIRED]["nodeSelectorTerms"] for each in (old, new))
    assert affinity[REQUIRED]["nodeSelectorTerms"] == [
        {name: [*mine[name], *theirs[name]] for name in ("matchExpressions", "matchFields")}
    ]


A, B, C, D, E = (expression(key, "Exists") for key in "abcde")
F: Json = {"key": "metadata.name", "operator": "In", "values": ["f"]}


@pytest.mark.parametrize("without", [{}, requiring_affinity(), {"affinity": {"nodeAffinity": {}}}])
def test_the_product_of_terms_of_a_pod_with_none_is_that_of_the_policy(without: Json) -> None:
    policy = kupid_policy(**requiring_affinity(node_term(D), node_term(E, fields=[F])))
    assert terms_of(inject(CONTAINERS | without, policy)) == [node_term(D), node_term(E, fields=[F])]


def test_the_product_of_terms_with_a_policy_without_any_is_that_of_the_pod() -> None:
    pod = CONTAINERS | requiring_affinity(node_term(A, B), node_term(C))
    assert inject(pod, kupid_policy(affinity={"nodeAffinity": {}})) == pod
    assert inject(CONTAINERS | requiring_affinity(), kupid_policy()) == CONTAINERS | requiring_affinity()


def test_the_product_of_terms_has_a_term_for_each_pair_with_the_pod_s_requirements_in_front() -> None:
    """The pairs are kupid's; the order within a term is the pod's first, so that a gated pod may be narrowed likewise."""
    pod = CONTAINERS | requiring_affinity(node_term(A, B), node_term(C))
    policy = kupid_policy(**requiring_affinity(node_term(D), node_term(E, fields=[F])))
    assert terms_of(inject(pod, policy)) == [
        node_term(A, B, D),
        node_term(A, B, E, fields=[F]),
        node_term(C, D),
        node_term(C, E, fields=[F]),
    ]

"""Validation of policies: every error at once, by field and type; what kupid's cases do not cover."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.settings.limits import Limits
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from extender.wire.policies.policy_validation import validate
from tests.builders import Json, matching
from tests.policies import expression, node_term, policy_json, requiring


def errors(**spec: Any) -> list[tuple[str, str]]:
    """Field and type of each error of a cluster-wide policy, without the words that all types begin with."""
    return [
        (each.field, each.type.removeprefix("FieldValue")) for each in validate(policy_json(**spec), DEFAULT_LIMITS)
    ]


def spread(**changes: Any) -> Json:
    """A sound constraint with some fields changed."""
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | changes


NODE_TERM = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
TERM = "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"when": ["Admission", "Later"]}, [("spec.when[1]", "NotSupported")]),
        ({"when": []}, [("spec.when", "Required")]),
        ({"targets": "Nodes"}, [("spec.targets", "NotSupported")]),
        ({"conflictPolicy": "Combine"}, [("spec.conflictPolicy", "NotSupported")]),
        ({"failurePolicy": "Panic"}, [("spec.failurePolicy", "NotSupported")]),
        ({"mode": "Dry"}, [("spec.mode", "NotSupported")]),
        ({"priority": 2**31}, [("spec.priority", "Invalid")]),
        ({"priority": True}, [("spec.priority", "TypeInvalid")]),
        ({"schedulerNames": ["a", "b", "a"]}, [("spec.schedulerNames[2]", "Duplicate")]),
        ({"schedulerName": "a", "schedulerNames": ["b"]}, [("spec.schedulerNames", "Forbidden")]),
        ({"schedulerNames": ["Not A Name"]}, [("spec.schedulerNames[0]", "Invalid")]),
        ({"priorityClassName": "High!"}, [("spec.priorityClassName", "Invalid")]),
        ({"schedulingGates": [{"name": "x/y"}, {"name": "x/y"}]}, [("spec.schedulingGates[1].name", "Duplicate")]),
        ({"schedulingGates": [{}]}, [("spec.schedulingGates[0].name", "Invalid")]),
        ({"schedulingGates": [{"name": "g"}], "nodeName": "n"}, [("spec.schedulingGates", "Forbidden")]),
        ({"topologySpreadConstraints": [spread(minDomains=2, whenUnsatisfiable="ScheduleAnyway")]}, []),
        ({"topologySpreadConstraints": [spread(maxSkew=0)]}, [("spec.topologySpreadConstraints[0].maxSkew", "Invalid")]),
        (
            {"topologySpreadConstraints": [{}]},
            [
                ("spec.topologySpreadConstraints[0].maxSkew", "Required"),
                ("spec.topologySpreadConstraints[0].topologyKey", "Required"),
                ("spec.topologySpreadConstraints[0].whenUnsatisfiable", "Required"),
            ],
        ),
        (
            {"topologySpreadConstraints": [spread(), spread(maxSkew=2)]},
            [("spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}", "Duplicate")],
        ),
        (
            {"topologySpreadConstraints": [spread(matchLabelKeys=["app"])]},
            [("spec.topologySpreadConstraints[0].matchLabelKeys", "Forbidden")],
        ),
        (
            {
                "affinity": {
                    "podAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "zone",
                                "labelSelector": matching(app="x"),
                                "namespaceSelector": {"matchExpressions": [expression("a", "In")]},
                                "matchLabelKeys": ["app"],
                                "mismatchLabelKeys": ["app"],
                            }
                        ]
                    }
                }
            },
            [
                (f"{TERM}.namespaceSelector.matchExpressions[0].values", "Required"),
                (f"{TERM}.matchLabelKeys[0]", "Invalid"),
            ],
        ),
        ({"matchConditions": {"ownerKinds": "Job"}}, [("spec.matchConditions.ownerKinds", "TypeInvalid")]),
        (
            {"matchConditions": {"exclude": {"namespaces": ["A B"]}}},
            [("spec.matchConditions.exclude.namespaces[0]", "Invalid")],
        ),
        ({"tolerations": {}}, [("spec.tolerations", "TypeInvalid")]),
        ({"tolerations": ["x"]}, [("spec.tolerations[0]", "TypeInvalid")]),
        ({"nodeSelector": {"a": 1}}, [("spec.nodeSelector[a]", "TypeInvalid")]),
        ({"affinity": requiring(node_term(expression("n", "Gt", "1", "2")))}, [
            (f"{NODE_TERM}.matchExpressions[0].values", "Required")
        ]),
        ({"nodeName": "Bad Name", "mode": "Dry", "tolerations": [{}]}, [
            ("spec.nodeName", "Invalid"),
            ("spec.tolerations[0].operator", "Invalid"),
            ("spec.mode", "NotSupported"),
        ]),
    ],
)  # fmt: skip
def test_each_error_names_its_field_and_type(spec: Json, found: list[tuple[str, str]]) -> None:
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
    (error,) = validate(policy_json(tolerations=tolerations), Limits(tolerations=5))
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
            *("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"),
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

"""The CRDs and the validation of the webhook agree: on the good examples, on the bad ones, and on the fields at fault."""

from __future__ import annotations

from enum import StrEnum

import pytest

from deploy.policies.crds import policy_crds
from extender.model.policies import ConflictPolicy, FailurePolicy, Mode, Moment, Targets
from extender.settings.limits import ConstraintLimits
from extender.wire.policies.policies_v1 import read_policy
from extender.wire.policies.policy_fields import SPEC_FIELDS, Fields, spec_fields
from extender.wire.policies.policy_validation import validate
from tests.deploy.policies.examples import BAD, FULL, Json, namespaced_full, policy
from tests.deploy.policies.test_schema import schema_of

SPEC = schema_of(policy_crds()[0])["properties"]["spec"]["properties"]
KUPID_ONLY = {ConflictPolicy.COMBINE}  # what kupid does where a policy and a pod disagree; not offered in our own group

# They do no harm where the schema is an older one: they select nothing, repeat something, or say what has no effect.
SCHEMA_ONLY = {
    "owner kind: a plural",
    "service account: malformed",
    "exclude: a namespace twice",
    "terms: too many",
    "term: no integer with Lt",
    "pod term: a key of the selector",
    "scheduler names: none",
    "scheduler name at scheduling",
    "gates at scheduling",
    "priority class at scheduling",
}


def errors_of(found: Json) -> list[str]:
    """The fields at fault by the webhook."""
    return [each.field for each in validate(found, ConstraintLimits(), kind=found["kind"])]


@pytest.mark.parametrize("found", [FULL, namespaced_full()], ids=lambda found: str(found["kind"]))
def test_a_policy_with_every_field_is_valid_for_the_webhook_too(found: Json) -> None:
    assert errors_of(found) == []


def test_the_webhook_refuses_what_the_schema_refuses_but_for_what_only_the_schema_checks() -> None:
    """A policy reaches the webhook only after it has passed the schema, so these need no second check."""
    assert {case for case, (spec, _) in BAD.items() if not errors_of(policy(**spec))} == SCHEMA_ONLY


@pytest.mark.parametrize(
    ("release", "field"),
    [
        ({"domains": [{"name": "a", "values": ["x"]}, {"name": "b", "values": ["y", "x"]}]}, "domains[1].values"),
        ({"domains": [{"name": "a", "values": ["x"]}, {"name": "a", "values": ["y"]}]}, "domains[1].name"),
        ({"domains": [{"name": "a", "values": ["x", "x"]}]}, "domains[0].values[1]"),
        ({"domains": [{"name": "a", "values": ["x", "y"]}], "topology": ["zone", "rack"]}, "domains[0].values"),
    ],
    ids=["a value in two domains", "a name twice", "a value twice", "finer than a set"],
)
def test_domains_of_which_it_is_not_clear_where_a_pod_counts_are_refused(release: Json, field: str) -> None:
    """A value in two domains is for the webhook alone: to compare all with all is more than the API server lets a rule cost."""
    found = policy(when=["Release"], release={"topology": ["zone"], **release})
    assert errors_of(found) == [f"spec.release.{field}"]


def test_an_action_that_comes_earlier_than_the_one_before_it_is_refused() -> None:
    actions = [{"action": "Preempt", "after": "5m"}, {"action": "SeveralDomains", "after": "1m"}, {"action": "Wait"}]
    found = policy(when=["Release"], release={"topology": ["zone"], "noRoom": actions})
    assert errors_of(found) == ["spec.release.noRoom[1].after"]


@pytest.mark.parametrize("crd", policy_crds(), ids=lambda crd: str(crd["spec"]["names"]["kind"]))
def test_the_fields_that_are_read_are_those_of_the_schema(crd: Json) -> None:
    fields = schema_of(crd)["properties"]["spec"]["properties"]
    assert set(spec_fields(is_cluster=crd["spec"]["scope"] == "Cluster")) == set(fields)


def fields_of(schema: Json) -> Fields | None:
    """The fields of a schema in the form of the webhook."""
    schema = schema.get("items", schema)
    properties: Json = schema.get("properties", {})
    return {name: fields_of(part) for name, part in properties.items()} or None


def test_the_fields_that_are_known_at_any_depth_are_those_of_the_schema() -> None:
    assert fields_of({"properties": SPEC}) == SPEC_FIELDS


@pytest.mark.parametrize(
    ("field", "choices"),
    [("targets", Targets), ("conflictPolicy", ConflictPolicy), ("failurePolicy", FailurePolicy), ("mode", Mode)],
)
def test_the_choices_and_the_default_are_those_of_the_model(field: str, choices: type[StrEnum]) -> None:
    assert set(SPEC[field]["enum"]) == {str(each) for each in choices if each not in KUPID_ONLY}
    read = read_policy({**FULL, "spec": {"podSelector": {}}})
    default = {
        "targets": read.targets,
        "conflictPolicy": read.conflict_policy,
        "failurePolicy": read.failure_policy,
        "mode": read.mode,
    }
    assert SPEC[field]["default"] == str(default[field])


def test_the_moments_are_those_of_the_model() -> None:
    assert SPEC["when"]["items"]["enum"] == [str(each) for each in Moment]
    read = read_policy({**FULL, "spec": {"podSelector": {}}})
    assert {str(each) for each in read.when} == set(SPEC["when"]["default"])

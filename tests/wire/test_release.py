"""The block ``release`` of a policy as it is read. What is refused: tests/deploy/policies, together with the CRD."""

from __future__ import annotations

import pytest

from extender.model.policies import FailurePolicy, Moment
from extender.model.release import (
    RELEASE_GATE,
    GroupSize,
    OnTimeout,
    ReleaseMode,
    ReleaseSpec,
    Replacement,
    Strategy,
)
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from tests.builders import Json
from tests.deploy.policies.crds import crds
from tests.deploy.policies.examples import FULL
from tests.deploy.policies.test_schema import schema_of
from tests.policies import policy, policy_json

ZONE = "topology.kubernetes.io/zone"


def test_only_the_topology_is_needed() -> None:
    found = policy(when=["Release"], release={"topology": [ZONE]})
    assert found.release == ReleaseSpec((ZONE,))
    assert found.acts(Moment.RELEASE)
    assert found.directives.is_empty


def test_every_field_is_read() -> None:
    assert read_policy(FULL).release == ReleaseSpec(
        topology=(ZONE, "example.com/rack"),
        gate="placement.extender.dev/gang",
        group_label="example.com/gang",
        size=GroupSize(annotation="example.com/gang-size"),
        mode=ReleaseMode.PREFERRED,
        strategy=Strategy.LEAST_FREE,
        exclusive=True,
        decision_timeout=90.0,
        on_timeout=OnTimeout.UNGATE_AT_COARSER_LEVEL,
        replacement=Replacement.REDECIDE,
    )


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
    block = schema_of(crds()[0])["properties"]["spec"]["properties"]["release"]["properties"]
    written = {name: part["default"] for name, part in block.items() if "default" in part}
    found = policy(when=["Release"], release={"topology": [ZONE], **written})
    assert found.release == ReleaseSpec((ZONE,))
    assert written["gate"] == RELEASE_GATE
    assert written.keys() | {"topology"} == block.keys()


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

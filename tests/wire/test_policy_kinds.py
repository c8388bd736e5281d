"""Policies as they are watched: decoded to valid or invalid ones, and applied to the index."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.policies import GROUP, KUPID_GROUP, InvalidPolicy, Moment, Policy, PolicyKey, Subject
from extender.rules.catalog import counts_of_rules
from extender.settings.limits import Limits
from extender.settings.rules import Rules
from extender.wire.manifests import decode_snapshot
from extender.wire.objects.kinds import Identity, policies_within

KIND = "PodSchedulingPolicy"
POLICIES = policies_within(Limits(), KIND, GROUP)


def line(kind: str = "ADDED", version: str = "7", **spec: Any) -> bytes:
    """A line of a watch."""
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
def test_a_spec_of_another_type_breaks_nothing(spec: bytes) -> None:
    found = POLICIES.decode_object(b'{"metadata": {"name": "one", "namespace": "team"}, "spec": %s}' % spec)
    assert found.key == "PodSchedulingPolicy/team/one"


def test_one_that_cannot_be_decoded_has_its_identity() -> None:
    found = POLICIES.named(Identity(name="one", namespace="team"))
    assert found.key == "PodSchedulingPolicy/team/one"


def test_policies_of_two_groups_have_two_keys() -> None:
    kupid = policies_within(Limits(), KIND, KUPID_GROUP)
    identity = Identity(name="one", namespace="team")
    assert kupid.named(identity).key != POLICIES.named(identity).key


def test_the_index_follows_additions_changes_and_deletions() -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
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


def test_a_snapshot_tells_the_groups_apart() -> None:
    items = [
        {"apiVersion": f"{group}/v1alpha1", "kind": KIND, "metadata": {"name": "one", "namespace": "a"}, "spec": {}}
        for group in (GROUP, KUPID_GROUP)
    ]
    found = decode_snapshot(orjson.dumps({"kind": "List", "items": items}))
    assert [each.key for each in found.objects] == [
        "PodSchedulingPolicy/a/one",
        "PodSchedulingPolicy.kupid.gardener.cloud/a/one",
    ]

"""The names of groups: a pod of its own never meets the group of another, and logs show where a group is."""

from __future__ import annotations

from extender.model.constraints.labels import is_label_value
from extender.model.release import GroupKey, Level, own_group


def test_a_pod_of_its_own_cannot_be_named_by_a_label() -> None:
    """Else a tenant could make its pods join the group of a pod without an owner."""
    assert not is_label_value(own_group("0b1c"))


def test_a_group_and_a_domain_are_shown_in_short() -> None:
    assert str(GroupKey("team-a", "PodSchedulingPolicy/team-a/gangs", "job-1")) == "team-a/job-1"
    assert str(Level("topology.kubernetes.io/zone", "zone-a")) == "topology.kubernetes.io/zone=zone-a"

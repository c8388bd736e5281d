"""GroupPlacements: the bodies of the writes are read back as they were meant, by one name for each group."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.kube.writer import path_of
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.release import Decision, GroupKey, Level, Phase, own_group
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.wire.api_calls import PLACEMENT
from extender.wire.objects.kinds import GROUP_PLACEMENTS, Identity
from extender.wire.policies.group_placements import decision_body, status_body, undecided_body

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GROUP = GroupKey("team", "PodSchedulingPolicy/team/gangs", "train-7")
DECISION = Decision(GROUP, "placement.extender.dev/group", 4, (Level("zone", "a"), Level("rack", "r1")), NOON)


def read(body: dict[str, Any]) -> GroupPlacement:
    """An object as the watch shows it."""
    return GROUP_PLACEMENTS.decode_object(orjson.dumps(body))


def test_a_decision_is_read_back_as_it_was_written() -> None:
    body = decision_body(DECISION, "17", {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"})
    assert body["metadata"]["resourceVersion"] == "17"
    assert body["metadata"]["ownerReferences"][0]["name"] == "train"
    assert read(body).decision == DECISION


def test_nothing_is_decided_without_a_time() -> None:
    found = read(undecided_body(GROUP, "g", 4))
    assert (found.decision, found.group, found.size, found.levels) == (None, GROUP, 4, ())
    broken = decision_body(DECISION)
    broken["spec"]["decided"] = "noon"
    assert read(broken).decision is None


def test_a_decision_without_levels_is_one() -> None:
    unpinned = replace(DECISION, levels=())
    assert read(decision_body(unpinned)).decision == unpinned


@pytest.mark.parametrize("phase", Phase)
def test_a_status_is_read_back_as_it_was_written(phase: Phase) -> None:
    status = PlacementStatus(phase, 4, 3, 2, "NoRoom", "no zone holds 4 pods")
    found = read(undecided_body(GROUP, "g", 4) | {"status": status_body(status, NOON)})
    assert found.status == status


def test_the_condition_is_true_once_the_group_is_bound() -> None:
    (bound,) = status_body(PlacementStatus(Phase.BOUND), NOON)["conditions"]
    (waits,) = status_body(PlacementStatus(Phase.DECIDING, reason="NoRoom", message="x" * 5000), NOON)["conditions"]
    assert (bound["type"], bound["status"], bound["reason"]) == ("Placed", "True", "Bound")
    assert (waits["status"], waits["reason"], len(waits["message"])) == ("False", "NoRoom", 1024)


@pytest.mark.parametrize(
    "status", [None, {}, {"phase": "Later"}, {"conditions": None}, {"conditions": [{"type": "Other", "reason": "R"}]}]
)
def test_an_unknown_status_is_that_of_a_group_that_begins(status: dict[str, Any] | None) -> None:
    assert read(undecided_body(GROUP, "g", 4) | {"status": status}).status == PlacementStatus()


@pytest.mark.parametrize(
    "group",
    [
        GROUP,
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", "Train_7.A"),
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", own_group("0b6f-11")),
        GroupKey("team", "ClusterPodSchedulingPolicy/" + "p" * 253, "v" * 253),
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", "---"),
    ],
    ids=str,
)
def test_a_name_is_one_that_an_object_may_have(group: GroupKey) -> None:
    assert path_of(PLACEMENT.get, "default", placement_name(group)).endswith(f"/{placement_name(group)}")


def test_groups_that_read_alike_have_names_of_their_own() -> None:
    alike = [GROUP, GROUP._replace(policy="ClusterPodSchedulingPolicy/gangs"), GROUP._replace(value="train_7")]
    assert len({placement_name(each) for each in alike}) == 3
    assert all(placement_name(each).startswith("gangs-train-7-") for each in alike)


def test_the_index_holds_the_object_of_a_group_and_no_other_that_names_it() -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    seen: list[tuple[bool, bool]] = []
    index.placements.changes.subscribe(lambda change: seen.append((change.old is None, change.new is None)))
    body = decision_body(DECISION)
    assert index.upsert(read(body))
    assert not index.upsert(read(body)), "the same again"
    assert index.placements.of(GROUP) == read(body)
    body["metadata"]["name"] = "another"
    index.upsert(read(body))
    assert index.placements.of(GROUP) == read(decision_body(DECISION))
    gone = GROUP_PLACEMENTS.named(Identity(name=placement_name(GROUP), namespace="team"))
    assert index.delete(gone)
    assert index.placements.of(GROUP) is None
    assert seen == [(True, False), (True, False), (False, True)]

"""The CRD of group placements: structural, bounded, and with every field that the extender writes."""

from __future__ import annotations

from datetime import UTC, datetime

from deploy.policies.crds import placement_crd
from extender.model.group_placements import PLACEMENT_KIND, PLACEMENTS, PlacementStatus
from extender.model.release import GroupDecision, GroupKey, GroupPhase, Level
from extender.wire.policies.group_placements import decision_body, status_body
from tests.deploy.policies.test_schema import kept, schema_of, test_the_schema_is_structural_and_has_no_unbounded_part

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GROUP = GroupKey("team", "PodSchedulingPolicy/team/gangs", "train-7")
DECISION = GroupDecision(GROUP, "placement.extender.dev/group", 4, (Level("zone", "a"), Level("rack", "r1")), NOON)


def test_the_schema_is_structural_and_bounded() -> None:
    test_the_schema_is_structural_and_has_no_unbounded_part(placement_crd())


def test_nothing_that_is_written_is_pruned() -> None:
    status = status_body(PlacementStatus(GroupPhase.BOUND, 4, 4, 4, "Bound", "every pod has a node"), NOON)
    whole = decision_body(DECISION) | {"status": status, "metadata": {}}
    assert kept(schema_of(placement_crd()), whole) == whole


def test_the_names_are_those_that_the_extender_asks_for() -> None:
    names = placement_crd()["spec"]["names"]
    assert (names["kind"], names["plural"], names["shortNames"]) == (PLACEMENT_KIND, PLACEMENTS, ["gpl"])
    assert placement_crd()["spec"]["scope"] == "Namespaced"

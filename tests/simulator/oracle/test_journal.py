"""What a journal says of the pace of a run."""

import pytest

from extender.simulator.apiserver.kinds import NODES, PODS, ServedKind
from extender.simulator.apiserver.store import ADDED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.oracle.journal import Journal, StoreChange


def happened(at: float, event: str, node: str = "", before: str | None = None, kind: ServedKind = PODS) -> StoreChange:
    """A change of an object that has a node, and had one before or was not there."""
    previous = None if before is None else Stored("team/web", 1, b"{}", before)
    return StoreChange(kind, ServedChange(event, Stored("team/web", 2, b"{}", node), previous, b"", at))


def journal(*entries: StoreChange) -> Journal:
    made = Journal(Store())
    made.entries += entries
    return made


def test_pods_are_bound_per_second_from_the_first_arrival_to_the_last_binding() -> None:
    made = journal(
        happened(5.0, ADDED, kind=NODES),
        happened(10.0, ADDED),
        happened(10.1, ADDED),
        happened(11.0, MODIFIED, "n1", ""),
        happened(14.0, MODIFIED, "n2", ""),
        happened(99.0, MODIFIED, "n2", "n2"),
    )
    assert made.bound_per_second() == pytest.approx(2 / 4)


def test_without_a_binding_none_are() -> None:
    assert journal(happened(10.0, ADDED)).bound_per_second() == 0.0

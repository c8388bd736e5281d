"""Answers of others before one's own: what came later and was served before."""

import orjson
import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.store import ADDED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.oracle.journal import Journal, StoreChange
from extender.simulator.oracle.turns import Turn, gate_turns, overtakings

BAD = {"bad"}


def turn(namespace: str, came: float, served: float, uid: str = "") -> Turn:
    return Turn(namespace, uid or f"{namespace}-{came}", came, served)


@pytest.mark.parametrize("pace", [0.001, 1.0])
def test_what_waits_in_front_has_not_overtaken_at_any_pace(pace: float) -> None:
    """A queue in order, a hundred of others in front: however long one takes, none came later."""
    line = [turn("bad", number * 1e-6, number * pace + 1) for number in range(100)]
    line.append(turn("good", 1e-3, 100 * pace + 1, "web"))
    line.append(turn("bad", 2e-3, 101 * pace + 1))
    assert overtakings(line, BAD) == {"web": 0}


def test_what_comes_later_and_is_served_before_is_counted_for_each_pod_of_others() -> None:
    line = [
        turn("good", 1.0, 9.0, "starved"),
        turn("bad", 2.0, 3.0),
        turn("bad", 4.0, 5.0),
        turn("good", 4.5, 8.0, "later"),
        turn("bad", 6.0, 7.0),
        turn("bad", 8.5, 9.5),  # served after them
        turn("good", 6.5, 6.9, "in time"),
    ]
    assert overtakings(line, BAD) == {"starved": 3, "later": 1, "in time": 0}


def test_where_namespaces_take_turns_the_turns_of_the_own_namespace_are_as_many_for_others() -> None:
    """A group of four is released beside a larger one that came a moment later, in turns."""
    line = [turn("good", 1.0, 2.0 + number, f"web-{number}") for number in range(4)]
    line += [turn("bad", 1.1, 2.5 + number) for number in range(10)]
    assert overtakings(line, BAD, by_namespace=True) == dict.fromkeys([f"web-{number}" for number in range(4)], 0)
    assert max(overtakings(line, BAD).values()) == 3
    line += [turn("bad", 1.2, 1.5) for _ in range(3)]
    assert max(overtakings(line, BAD, by_namespace=True).values()) == 2  # three before the first, which is due one


def change(at: float, event: str, uid: str, *, gated: bool, gang: str = "") -> StoreChange:
    spec = {"schedulingGates": [{"name": "group"}]} if gated else {}
    labels = {"example.com/gang": gang} if gang else {}
    raw = orjson.dumps({"metadata": {"uid": uid, "name": uid, "namespace": "team", "labels": labels}, "spec": spec})
    return StoreChange(PODS, ServedChange(event, Stored(f"team/{uid}", 1, raw, ""), None, b"", at))


def test_the_wait_at_a_gate_ends_with_the_release() -> None:
    journal = Journal(Store())
    journal.entries += [
        change(1.0, ADDED, "free", gated=False),
        change(2.0, ADDED, "held", gated=True),
        change(3.0, ADDED, "released", gated=True),
        change(4.0, MODIFIED, "released", gated=True),
        change(5.0, MODIFIED, "released", gated=False),
        change(6.0, MODIFIED, "released", gated=False),
        change(7.0, MODIFIED, "free", gated=False),
    ]
    assert gate_turns(journal) == [Turn("team", "released", 3.0, 5.0)]


def test_a_gated_pod_is_in_the_line_once_its_group_is_whole() -> None:
    journal = Journal(Store())
    journal.entries += [
        change(1.0, ADDED, "a-0", gated=True, gang="a"),
        change(2.0, ADDED, "b-0", gated=True, gang="b"),
        change(3.0, ADDED, "a-1", gated=True, gang="a"),
        change(4.0, MODIFIED, "b-0", gated=False, gang="b"),
        change(5.0, MODIFIED, "a-0", gated=False, gang="a"),
        change(6.0, MODIFIED, "a-1", gated=False, gang="a"),
        change(7.0, ADDED, "b-1", gated=True, gang="b"),  # the group grows
    ]
    turns = {turn.uid: (turn.came, turn.served) for turn in gate_turns(journal, ["example.com/gang"])}
    assert turns == {"a-0": (3.0, 5.0), "a-1": (3.0, 6.0), "b-0": (4.0, 4.0)}

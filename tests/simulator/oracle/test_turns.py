"""Answers of others before one's own: what came later and was served before."""

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.store import ADDED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.oracle.journal import Journal, StoreChange
from extender.simulator.oracle.turns import Turn, gate_turns, overtakings, whole_waits

BAD = {"bad"}


def turn(namespace: str, came: float, served: float, uid: str = "") -> Turn:
    return Turn(namespace, uid or f"{namespace}-{came}", came, served)


@pytest.mark.parametrize("pace", [0.001, 1.0])
def test_what_waits_in_front_has_not_overtaken_at_any_pace(pace: float) -> None:
    """A queue in order, a hundred of others in front: however long one takes, none came later."""
    line = [turn("bad", number * 1e-6, number * pace + 1) for number in range(100)]
    line.append(turn("good", 1e-3, 100 * pace + 1, "web"))
    line.append(turn("bad", 2e-3, 101 * pace + 1))
    assert overtakings(line, line, BAD) == {"web": 0}


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
    assert overtakings(line, line, BAD) == {"starved": 3, "later": 1, "in time": 0}


def test_a_pod_that_was_rejected_waits_on_until_its_last_answer() -> None:
    answers = [turn("good", 1.0, 2.0, "web"), turn("bad", 3.0, 4.0), turn("good", 5.0, 6.0, "web")]
    assert overtakings(answers, answers, BAD) == {"web": 0}
    assert overtakings(whole_waits(answers), answers, BAD) == {"web": 1}


def change(at: float, event: str, uid: str, *, gated: bool) -> StoreChange:
    spec = b'{"schedulingGates":[{"name":"group"}]}' if gated else b"{}"
    raw = b'{"metadata":{"uid":"%s","name":"%s","namespace":"team"},"spec":%s}' % (uid.encode(), uid.encode(), spec)
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
    assert list(gate_turns(journal)) == [Turn("team", "released", 3.0, 5.0)]

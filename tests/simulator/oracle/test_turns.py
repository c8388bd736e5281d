"""Answers of others before one's own: what came later and was served before."""

import orjson
import pytest

from extender.simulator.apiserver.kinds import GROUP_PLACEMENTS, PODS
from extender.simulator.apiserver.store import ADDED, MODIFIED, ServedChange, Store, Stored
from extender.simulator.oracle.journal import Journal, StoreChange
from extender.simulator.oracle.turns import Turn, overtakings, overtakings_at_gates

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


def change(at: float, event: str, uid: str, namespace: str = "team", *, gated: bool, gang: str = "") -> StoreChange:
    spec = {"schedulingGates": [{"name": "group"}]} if gated else {}
    labels = {"example.com/gang": gang} if gang else {}
    raw = orjson.dumps({"metadata": {"uid": uid, "name": uid, "namespace": namespace, "labels": labels}, "spec": spec})
    return StoreChange(PODS, ServedChange(event, Stored(f"{namespace}/{uid}", 1, raw, ""), None, b"", at))


def decision(at: float, namespace: str, gang: str, *, decided: bool = True) -> StoreChange:
    spec = {"group": gang, **({"decided": "2026-01-01T00:00:00Z"} if decided else {})}
    raw = orjson.dumps({"metadata": {"name": gang, "namespace": namespace}, "spec": spec})
    return StoreChange(
        GROUP_PLACEMENTS, ServedChange(MODIFIED, Stored(f"{namespace}/{gang}", 1, raw, ""), None, b"", at)
    )


def overtaken(*entries: StoreChange, labels: tuple[str, ...] = ("example.com/gang",)) -> dict[str, int]:
    journal = Journal(Store())
    in_order: list[StoreChange] = sorted(entries, key=lambda entry: entry.change.at)
    journal.entries += in_order
    return dict(overtakings_at_gates(journal, labels, BAD))


def gang(namespace: str, name: str, whole: float, decided: float | None, *released: float) -> list[StoreChange]:
    """A group whose last pod comes at this time, with its decision and the releases of its pods."""
    pods = [f"{name}-{number}" for number in range(len(released))]
    came = [
        change(whole - 0.01 * number, ADDED, pod, namespace, gated=True, gang=name) for number, pod in enumerate(pods)
    ]
    left = [
        change(at, MODIFIED, pod, namespace, gated=False, gang=name) for pod, at in zip(pods, released, strict=True)
    ]
    return [*came, *left, *([] if decided is None else [decision(decided, namespace, name)])]


def test_the_wait_at_a_gate_ends_with_the_release() -> None:
    late = [change(3.0 + number, ADDED, f"late-{number}", "bad", gated=True) for number in (0.1, 0.2, 0.3)]
    early = [
        change(at, MODIFIED, f"late-{number}", "bad", gated=False) for at, number in ((4.0, 0.1), (4.5, 0.2), (7, 0.3))
    ]
    pods = [
        change(1.0, ADDED, "free", gated=False),
        change(2.0, ADDED, "held", gated=True),
        change(3.0, ADDED, "released", gated=True),
        change(4.0, MODIFIED, "released", gated=True),
        change(5.0, MODIFIED, "released", gated=False),
        change(6.0, MODIFIED, "released", gated=False),
        change(7.0, MODIFIED, "free", gated=False),
    ]
    assert overtaken(*pods, *late, *early, labels=()) == {"released": 1}  # two before it, and one is due


def test_a_group_waits_for_its_decision_once_it_is_whole() -> None:
    """Groups of others that came before its last pod are earlier ones."""
    good = gang("team", "a", 3.0, 6.0, 6.1, 6.2)
    bad = [
        entry for n, whole in enumerate((2.9, 3.1, 3.2, 3.3)) for entry in gang("bad", f"b-{n}", whole, whole + 1, 9.0)
    ]
    assert overtaken(*good, *bad) == {"a-0": 2, "a-1": 2}  # three later ones, and one is due


def test_a_group_that_is_decided_first_by_chance_is_one_turn_and_not_one_for_each_pod() -> None:
    """The API server answers the later one of two writes first, and eight pods are released meanwhile."""
    good = gang("team", "a", 1.0, 2.0, 2.1, 2.2)
    bad = gang("bad", "b", 1.01, 1.8, *(1.81 + 0.01 * number for number in range(8)))
    assert overtaken(*good, *bad) == {"a-0": 0, "a-1": 0}
    more = gang("bad", "c", 1.02, 1.8, 9.0)
    assert overtaken(*good, *bad, *more) == {"a-0": 1, "a-1": 1}


def test_pods_of_a_decided_group_wait_for_their_release() -> None:
    good = gang("team", "a", 1.0, 2.0, 6.0)
    bad = gang("bad", "b", 1.5, 2.5, *(3.0 + 0.1 * number for number in range(8)))
    assert overtaken(*good, *bad) == {"a-0": 7}


def test_a_group_that_grows_has_not_waited_for_its_later_pods() -> None:
    good = [*gang("team", "a", 1.0, 2.0, 2.1), change(7.0, ADDED, "a-9", gated=True, gang="a")]
    good.append(change(9.5, MODIFIED, "a-9", gated=False))
    bad = [entry for n in range(4) for entry in gang("bad", f"b-{n}", 1.5, 1.9, 9.0)]
    late = [change(8.0, ADDED, "b-9", "bad", gated=True, gang="b-0"), change(9.1, MODIFIED, "b-9", "bad", gated=False)]
    assert overtaken(*good, *bad, *late) == {
        "a-0": 3,
        "a-9": 0,
    }  # four groups came later and were decided before; one is due

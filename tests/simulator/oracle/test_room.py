"""What the oracle says of room on a node, and of pods that wait although a node would take them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.operations import Operations
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.oracle.brute_force import ClusterState
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.room import room_on
from extender.simulator.oracle.violations import violations
from tests.simulator.plain import namespace, node, pod, spread


def ported(name: str, port: int, **more: Any) -> JsonObject:
    made = pod(name, **more)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return made


def with_init(name: str, cpu: str) -> JsonObject:
    made = pod(name)
    made["spec"]["initContainers"] = [{"name": "first", "resources": {"requests": {"cpu": cpu}}}]
    return made


@pytest.mark.parametrize(
    ("incoming", "reason"),
    [
        pytest.param(pod("a", cpu="3"), "", id="all that is left"),
        pytest.param(pod("a", cpu="3001m"), "node has too little cpu", id="a little more"),
        pytest.param(with_init("a", "4"), "node has too little cpu", id="an init container"),
        pytest.param(ported("a", 80, cpu="1"), "a host port is taken", id="a host port"),
        pytest.param(ported("a", 81, cpu="1"), "", id="another host port"),
    ],
)
def test_a_node_holds_what_it_offers_beside_its_pods(incoming: JsonObject, reason: str) -> None:
    state = ClusterState([node("n1", cpu="4")], [namespace("default")])
    state.place("x", ported("x", 80, cpu="1"), "n1")
    assert room_on(incoming, "n1", state).reason == reason


def test_a_node_runs_so_many_pods() -> None:
    full = node("n1")
    full["status"]["allocatable"]["pods"] = "1"
    state = ClusterState([full], [namespace("default")])
    state.place("x", pod("x"), "n1")
    assert room_on(pod("a"), "n1", state).reason == "node runs too many pods"


def journal_of(*objects: JsonObject) -> Journal:
    store = Store()
    store.load([namespace("default"), *objects])
    return Journal(store)


def decide(journal: Journal, name: str, cpu: str, *, begun: float | None = None) -> None:
    now = time.monotonic()
    made = pod(name, cpu=cpu)
    made["metadata"]["uid"] = name
    journal.decided(now if begun is None else begun, now, name, made, "n1")


def test_the_second_of_two_decisions_about_one_room_is_a_violation() -> None:
    journal = journal_of(node("n1", cpu="4"))
    decide(journal, "a", "3")
    decide(journal, "b", "2")
    found = [str(each) for each in violations(journal, several=True)]
    assert found == ["decision 2: default/b on n1: node has too little cpu"]
    assert violations(journal) == [], "one scheduler counts room itself"


def test_requests_that_overlap_do_not_excuse_a_node_that_is_too_full() -> None:
    journal, begun = journal_of(node("n1", cpu="4")), time.monotonic() - 1
    decide(journal, "a", "3", begun=begun)
    decide(journal, "b", "2", begun=begun)
    assert len(violations(journal, several=True)) == 1


def test_a_pod_that_waits_although_a_node_takes_it_is_found() -> None:
    journal = journal_of(node("n1", cpu="4"), pod("small", cpu="4"), pod("large", cpu="5"))
    found = [str(each) for each in violations(journal, several=True)]
    assert found == ["refusal: default/small: waits although n1 takes it"]


def uid_of_pending(journal: Journal, name: str) -> str:
    """The UID that the store has given to a pod."""
    (found,) = [uid_of(stored.read()) for stored in journal.start[PODS] if stored.key == f"default/{name}"]
    return found


def fail(journal: Journal, name: str, cpu: str, *, decided_again: bool = False) -> None:
    """The binding of a pending pod to n1 fails; then it may be decided again."""
    uid, now = uid_of_pending(journal, name), time.monotonic()
    journal.decided(now, now, uid, pod(name, cpu=cpu), "n1")
    journal.undone(uid, now)
    if decided_again:
        journal.decided(now, now, uid, pod(name, cpu=cpu), "n2")


WAITS = "refusal: default/small: waits although n1 takes it"


@pytest.mark.parametrize(
    ("cpu", "decided_again", "expected"),
    [("2", False, []), ("1", False, [WAITS]), ("2", True, [WAITS])],
    ids=["it may be for the room of the binding", "there is room beside it", "the room was given back"],
)
def test_a_pod_that_waits_is_judged_also_after_a_binding_failed(
    cpu: str, *, decided_again: bool, expected: list[str]
) -> None:
    """The extender may not have learned of the failure, unless the pod was decided again."""
    journal = journal_of(node("n1", cpu="4"), node("n2", cpu="2"), pod("other", cpu=cpu), pod("small", cpu="3"))
    fail(journal, "other", cpu, decided_again=decided_again)
    found = [str(each) for each in violations(journal, several=True)]
    assert [each for each in found if "small" in each] == expected


def test_the_failed_binding_of_a_pod_is_no_ground_for_its_own_waiting() -> None:
    """A new request about a pod ends what was assumed of it."""
    journal = journal_of(node("n1", cpu="4"), pod("small", cpu="3"))
    fail(journal, "small", "3")
    assert [str(each) for each in violations(journal, several=True)] == [WAITS]


@pytest.mark.parametrize(
    ("is_reported", "doubt", "wrong"),
    [(False, 5.0, 0), (True, 5.0, 1), (False, 1.0, 1)],
    ids=["the extender cannot know", "the condition has told it", "it doubts the binding"],
)
def test_a_failed_binding_excuses_a_decision_until_the_extender_can_know_of_it(
    *, is_reported: bool, doubt: float, wrong: int
) -> None:
    """Two seconds later a pod goes beside the one in z1, as if the other were still in z2. The report of a failure may fail too."""
    even = [spread(labels={"app": "web"})]
    pods = [pod(name, labels={"app": "web"}, topologySpreadConstraints=even) for name in ("other", "late")]
    bound = pod("old", labels={"app": "web"}, nodeName="n1")
    store = Store()
    store.load([namespace("default"), node("n1", "z1"), node("n2", "z2"), bound, *pods])
    journal, now = Journal(store), time.monotonic()
    other, late = (uid_of_pending(journal, name) for name in ("other", "late"))
    journal.decided(now, now, other, pods[0], "n2")
    journal.undone(other, now)
    if is_reported:
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
        Operations(store).change(PODS, "default/other", lambda each: each["status"].update(conditions=[unscheduled]))
    journal.decided(now + 2, now + 2, late, pods[1], "n1")
    assert len(violations(journal, doubt=doubt)) == wrong

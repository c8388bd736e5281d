"""The soak in small: every mode and placement, and each fault at least once; and that its judge sees what it should."""

from __future__ import annotations

import gc
import weakref
from typing import Final

import pytest

from extender.compose.process import freeze_gc
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, ServedKind
from extender.simulator.apiserver.operations import Operations
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, labels_of, uid_of
from extender.tasks.filter_service import SchedulerCounts
from tests.simulator import plain
from tests.soak.faults import CONDITION_NAMES, Blow
from tests.soak.judge import Judge
from tests.soak.life import HISTORY_AT_REST, MODES, PLACEMENTS, Life
from tests.soak.running import MEMORY, Soak, grown, objects_by_type, soak
from tests.soak.virtual_time import LoopClock, VirtualLoop

pytestmark = pytest.mark.usefixtures("without_log")

HAPPENED: Final = {
    *CONDITION_NAMES,
    *(blow.value for blow in Blow if blow.value),
    "namespace relabelled",
    "node relabelled",
    "node cordoned or uncordoned",
    "node added",
    "node deleted",
    "pod relabelled",
    "late bindings",
    "failed bindings",
    "preempt calls",
    "placed",
    "rejected",
    "not decided",
}


def test_some_thousand_decisions_under_every_fault_are_right_and_leave_nothing_wrong() -> None:
    result = soak(2_400, seed=4, parts=2, under_faults=25)
    assert result.problems == []
    assert result.drift == 0
    assert set(result.decisions) == {f"{mode} {placement}" for mode in MODES for placement in PLACEMENTS}
    assert all(count >= 400 for count in result.decisions.values())
    assert HAPPENED - set(result.happened) == set()


def test_the_judge_sees_a_service_that_forgets_what_it_has_passed() -> None:
    life = Life("offload", "decisive", 1, assumedPods={"enabled": False}, rejectedPods={"nominateElsewhere": False})
    life.begin()
    life.run(600)
    life.close()
    assert life.happened()["violations"] > 5
    assert "pods are counted otherwise: " in life.problems[0]


def test_at_rest_the_cluster_keeps_a_short_history() -> None:
    life = Life("offload", "decisive", 1)
    life.begin()
    life.run(300)
    kept = {kind: len(table.changes) for kind, table in life.api.store.tables.items()}
    life.close()
    assert max(kept.values()) == kept[PODS] == HISTORY_AT_REST


LEAKING: Final = {
    part: {MEMORY: 100.0 + part, "objects: Few": 3.0, "objects: Leak": part * 1.0} for part in range(1, 101)
}


def test_what_is_kept_at_a_tenth_may_be_kept_in_the_end() -> None:
    decisions = {"offload decisive": 500_000}
    assert grown(Soak(kept={part: {MEMORY: 100.0, "objects: Few": 3.0} for part in LEAKING}, decisions=decisions)) == {}
    assert set(grown(Soak(kept=LEAKING, decisions=decisions))) == {MEMORY, "objects: Leak"}


def test_a_short_run_says_nothing_of_growth() -> None:
    assert grown(Soak(kept=LEAKING, decisions={"offload decisive": 50_000})) == {}


def test_what_is_kept_has_what_the_service_has_frozen() -> None:
    held = [SchedulerCounts() for _ in range(100)]
    freeze_gc()
    assert objects_by_type()["objects: SchedulerCounts"] >= len(held)


@pytest.fixture
def store() -> Store:
    """Two nodes in two zones, and a pod on one of them."""
    made = Store()
    objects = [plain.namespace("default"), plain.node("a", "x"), plain.node("b", "y")]
    made.load([*objects, plain.pod("first", on="a", labels={"app": "web"})])
    return made


APART: Final[JsonObject] = {"affinity": plain.anti_affinity(plain.term(plain.HOSTNAME, app="web"))}


class Judged:
    """A judge, and a service that has handled what a test says."""

    def __init__(self, store: Store) -> None:
        self.operations = Operations(store)
        self._handled: dict[ServedKind, int] = {}
        self._tables = {kind: store.table(kind) for kind in (NAMESPACES, NODES, PODS)}
        self.judge = Judge(store, self._handled)

    def handle(self) -> None:
        """The service has handled all events so far."""
        self._handled.update({kind: table.end for kind, table in self._tables.items()})
        self.judge.catch_up()

    def pending(self, name: str) -> JsonObject:
        """A pending pod that keeps away from its like."""
        return self.operations.create(PODS, plain.pod(name, labels={"app": "web"}, **APART)).read()

    def is_right(self, name: str, node: str) -> bool:
        """Whether a new pod may go to the node; all before it is handled."""
        pod = self.pending(name)
        self.handle()
        return self.judge.decided(pod, node) is None


def test_a_decision_against_what_is_handled_is_a_violation(store: Store) -> None:
    judged = Judged(store)
    assert not judged.is_right("second", "a")
    assert judged.is_right("third", "b")
    assert not judged.is_right("fourth", "b"), "the third is on it by its decision"


def test_what_is_not_handled_may_be_known_or_not(store: Store) -> None:
    judged = Judged(store)
    pods = [judged.pending(name) for name in ("second", "third", "fourth")]
    judged.handle()
    judged.operations.change(PODS, "default/first", lambda pod: labels_of(pod).update(app="other"))
    assert judged.judge.decided(pods[0], "a") is None, "as the newest state allows"
    judged.operations.create(PODS, plain.pod("late", on="b", labels={"app": "web"}))
    assert judged.judge.decided(pods[1], "b") is None, "as it was before"
    judged.handle()
    assert judged.judge.decided(pods[2], "b") is not None


def test_a_pod_that_is_decided_before_its_creation_is_handled_counts_at_once(store: Store) -> None:
    judged = Judged(store)
    judged.operations.change(PODS, "default/first", lambda pod: labels_of(pod).update(app="other"))
    pods = [judged.pending(name) for name in ("second", "third", "fourth")]
    assert judged.judge.decided(pods[0], "a") is None, "as the newest state allows"
    assert judged.judge.decided(pods[1], "a") is not None, "the second is on it by its decision"
    assert judged.judge.placed()[uid_of(pods[0])] == "a", "although the judge has looked at its creation again"
    judged.judge.undone(uid_of(pods[1]))
    judged.judge.undone(uid_of(pods[0]))
    judged.handle()
    assert judged.judge.would_take(pods[2], ["a"]) == "", "the second may count"


@pytest.mark.parametrize(
    ("shown", "now", "is_right"), [("web", "web", False), ("web", "other", True), ("other", "web", True)]
)
def test_a_pod_that_is_relabelled_is_judged_by_either_label_until_that_is_handled(
    store: Store, shown: str, now: str, *, is_right: bool
) -> None:
    judged = Judged(store)
    judged.operations.create(PODS, plain.pod("guard", on="b", labels={"app": "guard"}, **APART))  # from web alone
    judged.operations.create(PODS, plain.pod("second", labels={"app": shown}))
    judged.handle()
    pod = judged.operations.change(PODS, "default/second", lambda each: labels_of(each).update(app=now)).read()
    assert (judged.judge.decided(pod, "b") is None) is is_right


def test_a_pod_whose_binding_failed_may_count_until_it_is_asked_about(store: Store) -> None:
    judged = Judged(store)
    second, third = judged.pending("second"), judged.pending("third")
    judged.handle()
    assert judged.judge.decided(second, "b") is None
    judged.judge.undone(second["metadata"]["uid"])
    assert judged.judge.would_take(third, ["a", "b"]) == "", "the rejection of both is right if it counts"
    assert judged.judge.decided(third, "b") is None
    assert judged.judge.decided(second, "b") is not None


@pytest.mark.parametrize("is_undone_first", [False, True])
def test_a_pod_whose_binding_failed_may_count_by_its_new_labels(store: Store, *, is_undone_first: bool) -> None:
    judged = Judged(store)
    second = judged.operations.create(PODS, plain.pod("second", labels={"app": "other"})).read()
    guard = judged.operations.create(
        PODS, plain.pod("guard", labels={"app": "guard"}, **APART)
    ).read()  # from web alone
    judged.handle()
    assert judged.judge.decided(second, "b") is None
    if is_undone_first:
        judged.judge.undone(uid_of(second))
    assert judged.judge.would_take(guard, ["b"]) == "b"
    judged.operations.change(PODS, "default/second", lambda pod: labels_of(pod).update(app="web"))
    judged.handle()
    judged.judge.undone(uid_of(second))
    assert judged.judge.would_take(guard, ["b"]) == ""


@pytest.mark.parametrize("is_undone_first", [False, True])
def test_a_deleted_pod_whose_binding_failed_counts_no_more(store: Store, *, is_undone_first: bool) -> None:
    judged = Judged(store)
    second, third = judged.pending("second"), judged.pending("third")
    judged.handle()
    assert judged.judge.decided(second, "b") is None
    if is_undone_first:
        judged.judge.undone(uid_of(second))
    store.remove(PODS, "default/second")
    judged.handle()
    judged.judge.undone(uid_of(second))
    assert judged.judge.would_take(third, ["a", "b"]) == "b"


def test_a_judge_that_is_replaced_leaves_nothing_to_the_collector(store: Store) -> None:
    judged = Judged(store)
    assert not judged.is_right("second", "a")
    judged.judge.feasible(judged.pending("third"), ["a", "b"])
    state = weakref.ref(judged.judge.replay.state)
    gc.disable()  # what the service freezes in a run is collected no more
    try:
        del judged.judge
        assert state() is None
    finally:
        gc.enable()


def test_virtual_time_passes_only_while_nothing_is_ready() -> None:
    loop = VirtualLoop()

    async def work() -> list[float]:
        clock, begun = LoopClock(), loop.time()
        await clock.sleep(3600.0)
        slept = clock.now() - begun
        loop.jump(60.0)
        await clock.sleep(0.0)
        return [slept, clock.now() - begun]

    assert loop.run_until_complete(work()) == pytest.approx([3600.0, 3660.0], abs=0.1)
    loop.close()

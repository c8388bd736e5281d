"""What the oracle says of room on a node, and of pods that wait although a node would take them."""

from __future__ import annotations

import time

import pytest

from extender.simulator.apiserver.kinds import PODS
from extender.simulator.apiserver.operations import Operations
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, uid_of
from extender.simulator.oracle.brute_force import ClusterState
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.room import room_on
from extender.simulator.oracle.violations import violations
from tests.simulator.oracle.steps import play
from tests.simulator.plain import namespace, node, pod, spread


def ported(port: int, cpu: str = "1") -> JsonObject:
    made = pod("a", cpu=cpu)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return made


@pytest.mark.parametrize(
    ("incoming", "pods", "reason"),
    [
        pytest.param(pod("a", cpu="3"), "2", "", id="all that is left"),
        pytest.param(pod("a", cpu="3001m"), "2", "node has too little cpu", id="a little more"),
        pytest.param(
            pod("a", initContainers=[{"name": "first", "resources": {"requests": {"cpu": "4"}}}]),
            "2",
            "node has too little cpu",
            id="an init container",
        ),
        pytest.param(ported(80), "2", "a host port is taken", id="a host port"),
        pytest.param(ported(81), "2", "", id="another host port"),
        pytest.param(pod("a"), "1", "node runs too many pods", id="the number of pods"),
    ],
)
def test_a_node_holds_what_it_offers_beside_its_pods(incoming: JsonObject, pods: str, reason: str) -> None:
    offering = node("n1", cpu="4")
    offering["status"]["allocatable"]["pods"] = pods
    state = ClusterState([offering], [namespace("default")])
    state.place("x", ported(80), "n1")
    assert room_on(incoming, "n1", state).reason == reason


class Run:
    """A node with four processors and one with two, and pods with so many each."""

    def __init__(self, *objects: JsonObject) -> None:
        self.store = Store()
        self.store.load([namespace("default"), *(objects or (node("n1", cpu="4"), node("n2", cpu="2")))])
        self.journal = Journal(self.store)

    def create(self, name: str, cpu: str) -> None:
        Operations(self.store).create(PODS, pod(name, cpu=cpu))

    def decide(self, name: str, on: str, *, cpu: str = "", after: float = 0.0, took: float = 0.0) -> None:
        now, found = time.monotonic() + after, pod(name, cpu=cpu)
        if not cpu:
            found = self.store.find(PODS, f"default/{name}").read()
        self.journal.decided(now - took, now, found["metadata"].get("uid", name), found, on)

    def decide_new(self, name: str, cpu: str, took: str = "0") -> None:
        self.decide(name, "n1", cpu=cpu, took=float(took))

    def fail(self, name: str, on: str = "n1") -> None:
        """The binding of a pending pod."""
        self.decide(name, on)
        self.journal.undone(uid_of(self.store.find(PODS, f"default/{name}").read()), time.monotonic())


TOO_FULL = "decision 2: default/b on n1: node has too little cpu"
SMALL, OTHER = (f"refusal: default/{name}: waits although n1 takes it" for name in ("small", "other"))


@pytest.mark.parametrize(
    ("steps", "several", "found"),
    [
        pytest.param("decide_new a -> 3; decide_new b -> 2", True, [TOO_FULL], id="too full"),
        pytest.param("decide_new a -> 3; decide_new b -> 2", False, [], id="one scheduler counts room itself"),
        pytest.param("decide_new a -> 3 1; decide_new b -> 2 1", True, [TOO_FULL], id="requests that overlap"),
        pytest.param("create small -> 4; create large -> 5", True, [SMALL], id="pending beside room"),
        pytest.param(
            "create other -> 2; create small -> 3; fail other", True, [OTHER], id="for the room of a failed binding"
        ),
        pytest.param(
            "create other -> 1; create small -> 3; fail other", True, [OTHER, SMALL], id="room beside a failed binding"
        ),
        pytest.param(
            "create other -> 2; create small -> 3; fail other; decide other -> n2",
            True,
            [OTHER, SMALL],
            id="the room is free since the pod was decided again",
        ),
        pytest.param("create small -> 3; fail small", True, [SMALL], id="its own failed binding"),
    ],
)
def test_room_is_given_once_and_no_pod_is_pending_beside_it(steps: str, found: list[str], *, several: bool) -> None:
    """The extender may not have learned of a failed binding, unless a new request for the pod ended what was assumed of it."""
    run = Run()
    play(run, steps)
    assert [str(violation) for violation in violations(run.journal, several=several)] == found


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
    run = Run(node("n1", "z1"), node("n2", "z2"), bound, *pods)
    run.fail("other", "n2")
    if is_reported:
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
        Operations(run.store).change(
            PODS, "default/other", lambda found: found["status"].update(conditions=[unscheduled])
        )
    run.decide("late", "n1", after=2)
    assert len(violations(run.journal, doubt=doubt)) == wrong

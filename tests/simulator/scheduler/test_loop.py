"""The loop by itself: its own filters, its order, its assumptions, and which pods an event requeues."""

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, ServedKind, Target
from extender.simulator.apiserver.patching import MERGE, apply_patch
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.journal import FailedBinding
from extender.simulator.scheduler.cache import nodes_to_find
from tests.fakes import until
from tests.simulator.fake_extender import Cluster, FakeExtender, accept_all, cluster, refuse_all
from tests.simulator.plain import HOSTNAME, node, pod

TAINT: JsonObject = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("there", "incoming", "reason"),
    [
        (node("n1", taints=[TAINT]), pod("a"), "1 node(s) had untolerated taint(s)"),
        (node("n1", unschedulable=True), pod("a"), "1 node(s) were unschedulable"),
        (node("n1"), pod("a", nodeSelector={"x": "y"}), "1 node(s) didn't match Pod's node affinity/selector"),
        (node("n1", cpu="50m"), pod("a"), "1 Insufficient cpu"),
    ],
    ids=["taint", "cordon", "selector", "resources"],
)
async def test_the_own_filters_reject_in_the_real_words(there: JsonObject, incoming: JsonObject, reason: str) -> None:
    async with cluster(there) as found:
        found.create(incoming)
        await found.quiet()
        assert found.reason_of("a") == ("Unschedulable", f"0/1 nodes are available: {reason}.")


@pytest.mark.parametrize(
    ("there", "spec", "on"),
    [
        ([node("n1", taints=[TAINT])], {"tolerations": [TAINT | {"operator": "Equal"}]}, "n1"),
        ([node("n1"), node("n2"), pod("old", on="n1", cpu="2")], {}, "n2"),
        ([node("n1")], {"schedulerName": "other"}, ""),
    ],
    ids=["a tolerated taint", "the emptiest node", "another scheduler"],
)
async def test_a_pod_goes_to_the_emptiest_node_that_it_tolerates(
    there: list[JsonObject], spec: JsonObject, on: str
) -> None:
    async with cluster(*there) as found:
        found.create(pod("a", **spec))
        await found.quiet()
        assert found.node_of("a") == on


async def test_decisions_run_ahead_of_bindings_and_count_at_once() -> None:
    async with cluster(node("n1", cpu="2"), node("n2", cpu="2"), bind_delay=(0.2, 0.2)) as there:
        for name in ("a", "b", "c"):
            there.create(pod(name, cpu="1500m"))
        await until(lambda: len(there.decided) == 2)
        assert [there.node_of(name) for name in ("a", "b", "c")] == ["", "", ""]
        await there.quiet()
        assert sorted(there.node_of(name) for name in ("a", "b", "c")) == ["", "n1", "n2"]


async def test_more_important_pods_come_first() -> None:
    async with cluster() as there:
        for number, priority in enumerate([0, 10, 5]):
            there.create(pod(f"p{number}", priority=priority))
        await there.quiet()
        there.api.operations.create(NODES, node("n1"))
        await there.quiet()
        assert there.decided == ["p1", "p2", "p0"]


async def test_gated_pods_wait_for_their_gates() -> None:
    extender = FakeExtender()
    async with cluster(node("n1"), extender=extender) as there:
        there.create(pod("a", schedulingGates=[{"name": "hold"}, {"name": "keep"}]))
        await there.quiet()
        narrowed: JsonObject = {"spec": {"nodeSelector": {HOSTNAME: "n1"}, "schedulingGates": [{"name": "hold"}]}}
        there.api.operations.patch(Target(PODS, "default", "a"), narrowed, MERGE)
        await there.quiet()
        assert extender.requests == []
        there.api.operations.change(PODS, "default/a", lambda obj: obj["spec"].pop("schedulingGates"))
        await until(lambda: there.node_of("a") == "n1")


async def test_a_binding_that_is_rejected_undoes_the_decision_and_is_tried_again() -> None:
    async with cluster(node("n1"), node("n2"), bind_delay=(0.05, 0.05)) as there:
        there.create(pod("a"))
        await until(lambda: there.decided)
        there.api.operations.change(PODS, "default/a", lambda obj: obj["spec"].update(schedulingGates=[{"name": "x"}]))
        await until(lambda: there.reason_of("a")[0] == "SchedulerError")
        assert sum(isinstance(entry, FailedBinding) for entry in there.loop.journal.entries) == 1
        assert there.loop.cache.nodes["n1"].claims == there.loop.cache.nodes["n2"].claims == {}


async def test_a_pod_whose_binding_is_carried_out_although_its_call_failed_is_bound() -> None:
    """As kube-scheduler learns it: by its watch."""
    failing = FakeExtender(scores=lambda _: 504)
    async with cluster(node("n1"), extender=failing, entry={"prioritize_verb": "", "bind_verb": "bind"}) as there:
        there.create(pod("a"))
        await until(lambda: there.reason_of("a")[0] == "SchedulerError")
        assert there.loop.bound == {}
        there.api.operations.change(PODS, "default/a", lambda obj: obj["spec"].update(nodeName="n1"))
        await there.quiet()
        assert list(there.loop.bound.values()) == ["n1"]
        assert not any(isinstance(entry, FailedBinding) for entry in there.loop.journal.judged())


async def test_a_pod_deleted_before_its_binding_leaves_nothing_behind() -> None:
    async with cluster(node("n1"), bind_delay=(0.05, 0.05)) as there:
        there.create(pod("a"))
        await until(lambda: there.decided)
        there.api.pods.delete(Target(PODS, "default", "a"), {})
        await there.quiet()
        assert there.loop.cache.nodes["n1"].claims == {}
        assert there.loop.queue.pods == {}


async def test_changes_reach_the_loop_after_the_cache_delay() -> None:
    async with cluster(cache_delay=0.2) as there:
        there.create(pod("a"))
        await until(lambda: there.loop.messages)
        there.api.operations.create(NODES, node("n1"))
        added_at = there.api.store.table(NODES).changes[-1].at
        await until(lambda: there.decided)
        (decision,) = there.decisions
        assert decision.requested_at >= added_at + 0.2


async def test_each_search_begins_where_the_last_one_ended() -> None:
    extender = FakeExtender()
    nodes = [node(f"n{number:03}", "z1") for number in range(150)]
    async with cluster(*nodes, extender=extender, percentage_of_nodes_to_score=1) as there:
        for name in ("a", "b"):
            there.create(pod(name))
            await there.quiet()
    first, second = (extender.filters_for(name)[0]["NodeNames"] for name in ("a", "b"))
    names = [f"n{number:03}" for number in range(150)]
    assert first == names[:100]
    assert second == names[100:] + names[:50]


async def test_nodes_are_tried_zone_by_zone_in_turn() -> None:
    extender = FakeExtender()
    async with cluster(node("a1", "a"), node("a2", "a"), node("b1", "b"), extender=extender) as there:
        there.create(pod("p"))
        await there.quiet()
    assert extender.requests[0][1]["NodeNames"] == ["a1", "b1", "a2"]


@pytest.mark.parametrize(
    ("percentage", "total", "enough"),
    [
        (0, 5_000, 500),
        (0, 99, 99),
        (0, 100, 100),
        (0, 1_000, 420),
        (0, 10_000, 500),
        (100, 5_000, 5_000),
        (1, 5_000, 100),
    ],
)
def test_enough_nodes_are_as_many_as_the_real_scheduler_looks_for(percentage: int, total: int, enough: int) -> None:
    assert nodes_to_find(percentage, total) == enough


async def test_room_held_for_a_nominated_pod_is_not_taken_by_a_lesser_one() -> None:
    extender = FakeExtender(refuse_all)
    async with cluster(node("n1", cpu="1"), extender=extender) as there:
        there.create(pod("first", cpu="800m", priority=10))
        await there.quiet()
        extender.answer = lambda _: {"NodeNames": [], "FailedNodes": {"n1": "soon"}}
        there.api.operations.change(PODS, "default/first", lambda obj: obj["status"].update(nominatedNodeName="n1"))
        await there.quiet()
        extender.answer = accept_all
        there.create(pod("lesser", cpu="800m", priority=1))
        await until(lambda: there.reason_of("lesser")[0])
        assert there.reason_of("lesser")[1] == "0/1 nodes are available: 1 Insufficient cpu."


# -- which pods an event requeues


LABELLED = {"metadata": {"labels": {"touched": "yes"}}}
ANNOTATED = {"metadata": {"annotations": {"touched": "yes"}}}
PATCHES: dict[str, tuple[ServedKind, str, JsonObject]] = {
    "own annotation": (PODS, "a", ANNOTATED),
    "own nomination": (PODS, "a", {"status": {"nominatedNodeName": "n1"}}),
    "pod relabelled": (PODS, "old", LABELLED),
    "node relabelled": (NODES, "n1", LABELLED),
    "node annotated": (NODES, "n1", ANNOTATED),
    "namespace relabelled": (NAMESPACES, "default", LABELLED),
    "node bigger": (NODES, "n1", {"status": {"allocatable": {"cpu": "4500m"}}}),
}


def change(there: Cluster, event: str) -> None:
    if event in PATCHES:
        kind, name, fields = PATCHES[event]
        key = f"default/{name}" if kind is PODS else name
        there.api.operations.change(kind, key, lambda found: found.update(apply_patch(found, fields, MERGE)))
    elif event == "pod deleted":
        there.api.pods.delete(Target(PODS, "default", "old"), {})
    else:
        created = {"pod bound": (PODS, pod("new", on="n1")), "node added": (NODES, node("n2"))}
        there.api.operations.create(*created[event])


REQUEUES = {
    True: (
        *("own annotation", "own nomination", "pod relabelled", "pod deleted", "pod bound"),
        *("node added", "node relabelled", "node annotated", "node bigger"),
    ),
    False: ("own annotation", "pod deleted", "node relabelled"),
}


@pytest.mark.parametrize(
    ("queueing_hints", "event"),
    [
        *((True, event) for event in (*REQUEUES[True], "namespace relabelled")),
        *((False, event) for event in (*REQUEUES[False], "own nomination", "pod bound")),
    ],
)
async def test_what_requeues_a_pod_rejected_by_the_extender(event: str, *, queueing_hints: bool) -> None:
    """Without queueing hints its own status alone does not."""
    extender = FakeExtender(refuse_all)
    async with cluster(node("n1"), pod("old", on="n1"), extender=extender, queueing_hints=queueing_hints) as there:
        there.create(pod("a"))
        await there.quiet()
        extender.requests.clear()
        change(there, event)
        if event in REQUEUES[queueing_hints]:
            await until(lambda: extender.filters_for("a"))
        else:
            await there.quiet()
            assert extender.requests == []


@pytest.mark.parametrize(
    ("event", "requeues"),
    [
        ("pod deleted", True),
        ("node bigger", True),
        ("node added", True),
        ("own annotation", False),
        ("node annotated", False),
        ("node relabelled", False),
        ("pod bound", False),
    ],
)
async def test_a_pod_without_room_is_requeued_only_by_room(event: str, *, requeues: bool) -> None:
    async with cluster(node("n1", cpu="4"), pod("old", on="n1", cpu="1"), extender=FakeExtender()) as there:
        there.create(pod("a", cpu="3500m"))
        await there.quiet()
        attempts = next(iter(there.loop.queue.pods.values())).attempts
        queued = next(iter(there.loop.queue.pods.values()))
        change(there, event)
        await there.quiet()
        assert (queued.attempts > attempts) is requeues

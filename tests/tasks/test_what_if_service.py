"""What-ifs in a real child process: its answer, its budget, its end, and that the service and its index are left alone."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import orjson
import pytest
from msgspec import structs

from extender.compose.foundation import make_index
from extender.index.audit import audit
from extender.index.state import state_of
from extender.model.answers.explanations import NoAnswerCause
from extender.model.answers.what_if import NotComputed, Placement, Spent, WhatIfAnswer
from extender.model.bounded import Steps
from extender.model.objects import Object
from extender.model.units import Duration
from extender.tasks.what_if import computing
from extender.tasks.what_if.computing import answer_body
from extender.tasks.what_if.service import Meter, start_child
from extender.wire.errors import WireError
from tests.builders import (
    Json,
    index_of,
    matching,
    namespace,
    node,
    node_json,
    pod,
    pod_json,
    read_pod,
    resizing,
    settings,
    term,
)
from tests.explaining import finished
from tests.fakes import PATIENCE, until
from tests.policies import policy_json
from tests.tasks.what_if_scene import (
    BUDGET,
    CHANGES,
    OWNER,
    ROOM,
    SETTINGS,
    children,
    cluster,
    computed,
    endless,
    endless_service,
    exceed,
    greedy,
    is_running,
    kinded,
    nodes,
    on_each_loop,
    on_loop,
    open_descriptors,
    open_in,
    raising,
    reading,
    service,
    spending,
    stuck,
    without,
)


@on_each_loop
async def test_the_answer_is_that_of_the_same_changes_made_here_and_the_index_is_unchanged() -> None:
    index, copy = cluster(), cluster()
    before, version = list(state_of(index)), index.view.dependency_version
    counted = [version(index.view.compiled(each.signature)) for each in index.pods.values()]
    found = msgspec.json.decode(await service(index).answer(orjson.dumps(CHANGES)), type=WhatIfAnswer)
    expected = finished(answer_body(orjson.dumps(CHANGES), copy, SETTINGS))
    assert msgspec.structs.replace(found, budget=None) == expected
    assert found.budget is not None
    assert 0 < found.budget.bytes < SETTINGS.what_if.memory
    assert {each.pod: each.state for each in found.placements}["default/on-n0"] == "placed"
    assert list(state_of(index)) == before
    assert [version(index.view.compiled(each.signature)) for each in index.pods.values()] == counted
    assert audit(index) == []


@on_each_loop
async def test_what_becomes_of_each_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    what_ifs = service(cluster())
    assert set(what_ifs.outcomes.values()) == {0}
    first = asyncio.create_task(what_ifs.answer(b"{}"))
    await asyncio.sleep(0)
    assert what_ifs.running == 1
    with pytest.raises(NotComputed, match="another what-if") as error:
        await what_ifs.answer(b"{}")
    assert error.value.cause is NoAnswerCause.BUSY
    await first
    assert what_ifs.running == 0
    assert (took := what_ifs.seconds) > 0
    with pytest.raises(WireError):
        await what_ifs.answer(b"[")
    assert what_ifs.seconds > took
    monkeypatch.setattr("extender.tasks.what_if.service._encoded", lambda *_: endless(Meter(BUDGET)))
    deleted = asyncio.create_task(what_ifs.answer(b"{}"))
    await asyncio.sleep(0)
    deleted.cancel()
    await asyncio.gather(deleted, return_exceptions=True)
    await what_ifs.stop()
    with pytest.raises(NotComputed):
        await what_ifs.answer(b"{}")
    assert {name: count for name, count in what_ifs.outcomes.items() if count} == dict.fromkeys(
        ("done", "busy", "invalid", "abandoned", "unavailable"), 1
    )


@on_each_loop
async def test_a_bad_change_is_named_and_nothing_else_comes_of_it() -> None:
    what_ifs = service(cluster())
    with pytest.raises(WireError, match="Node n9 is not known") as error:
        await what_ifs.answer(orjson.dumps({"delete": [{"kind": "Node", "name": "n9"}]}))
    assert error.value.path == "delete[0].name"
    assert msgspec.json.decode(await what_ifs.answer(b"{}"), type=WhatIfAnswer).summary.rejected == 2


@pytest.mark.parametrize(
    ("work", "seconds", "text"),
    [
        (endless, 0.2, "more than whatIf.seconds"),
        (greedy, 30, "more than whatIf.memory"),  # the pages take some 20 ms, where the machine is fast
    ],
)
@on_each_loop
async def test_a_child_that_exceeds_its_budget_says_which(
    work: Callable[[Meter], Steps[bytes]], seconds: float, text: str
) -> None:
    await exceed(work, seconds, text)


@on_loop  # on one, because it takes three seconds of the processor
async def test_a_child_with_a_step_that_does_not_end_is_ended_by_the_system() -> None:
    await exceed(stuck, 0.2, "a single step needs more")


@on_each_loop
async def test_a_child_that_is_killed_gives_an_error_that_says_so() -> None:
    child = start_child(endless, SETTINGS.what_if)
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(NotComputed, match=r"was ended \(SIGKILL\), perhaps for its memory") as error:
        await child.result()
    assert error.value.cause is NoAnswerCause.UNAVAILABLE


@on_each_loop
async def test_a_failure_in_the_child_comes_with_its_traceback() -> None:
    with pytest.raises(NotComputed, match=r"(?s)Traceback.*ZeroDivisionError: because") as error:
        await start_child(partial(raising, ZeroDivisionError("because")), BUDGET).result()
    assert error.value.cause is NoAnswerCause.FAILED


@on_each_loop
async def test_a_system_that_refuses_a_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    before = open_descriptors()
    with pytest.raises(NotComputed, match="the system refuses a process for it") as error:
        await service(cluster()).answer(b"{}")
    assert error.value.cause is NoAnswerCause.UNAVAILABLE
    assert open_descriptors() == before


@on_each_loop
async def test_a_request_that_is_cancelled_ends_its_child(monkeypatch: pytest.MonkeyPatch) -> None:
    what_ifs = endless_service(monkeypatch)
    incoming = asyncio.create_task(what_ifs.answer(b"{}"))
    await until(lambda: len(children()) == 1)
    incoming.cancel()
    with pytest.raises(asyncio.CancelledError):
        await incoming
    assert children() == []
    monkeypatch.undo()
    await what_ifs.answer(b"{}")


@on_each_loop
async def test_stopping_ends_the_child_and_no_other_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    what_ifs = endless_service(monkeypatch)
    incoming = asyncio.create_task(what_ifs.answer(b"{}"))
    await until(lambda: len(children()) == 1)
    await what_ifs.stop()
    assert children() == []
    for refused in (incoming, what_ifs.answer(b"{}")):
        with pytest.raises(NotComputed, match="the service is stopping"):
            await refused


@on_each_loop
async def test_the_child_has_no_descriptor_of_the_service_but_its_pipe() -> None:
    ours, peer = socket.socketpair()
    with pytest.raises(NotComputed, match="Bad file descriptor"):
        await start_child(partial(reading, ours.fileno()), BUDGET).result()
    child = start_child(endless, SETTINGS.what_if)
    await until(lambda: open_in(child.pid) == {os.devnull, "pipe"})
    ours.close()
    peer.settimeout(PATIENCE)
    assert peer.recv(1) == b""
    peer.close()
    await child.end()


@on_each_loop
async def test_a_signal_to_the_child_is_none_to_the_service() -> None:
    received: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, received.append, "TERM")
    child = start_child(endless, SETTINGS.what_if)
    os.kill(child.pid, signal.SIGTERM)
    with pytest.raises(NotComputed, match="SIGTERM"):
        await child.result()
    await asyncio.sleep(0)
    assert received == []
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: received == ["TERM"])
    loop.remove_signal_handler(signal.SIGTERM)


@pytest.mark.parametrize("work", [endless, stuck])
def test_the_child_of_a_service_that_is_gone_ends_at_once(work: Callable[[Meter], Steps[bytes]]) -> None:
    """Also within a single step. The parent of the child is a process between it and the test."""
    reading_end, writing_end = os.pipe()
    between = os.fork()
    if not between:
        child = start_child(work, structs.replace(SETTINGS.what_if, seconds=Duration(3600)))
        while os.getpriority(os.PRIO_PROCESS, child.pid) == os.getpriority(os.PRIO_PROCESS, 0):
            os.sched_yield()  # until it has begun to work
        os.write(writing_end, f"{child.pid}".encode())
        os._exit(0)
    os.waitpid(between, 0)
    pid = int(os.read(reading_end, 20))
    for descriptor in (reading_end, writing_end):
        os.close(descriptor)
    asyncio.run(until(lambda: not is_running(pid)))


@on_each_loop
async def test_what_it_took_is_counted_from_the_fork() -> None:
    spent = msgspec.json.decode(await start_child(spending, SETTINGS.what_if).result(), type=Spent)
    assert 16 * 2**20 < spent.bytes < 64 * 2**20


# -- Changes of a what-if: which pods are displaced, gone and placed, in which order, and what policies and
#    namespaces change


def test_pods_of_a_deleted_node_are_placed_again_unless_they_belong_to_it() -> None:
    here: dict[str, Any] = {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}],
    }
    away = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
    found = without(
        "n0",
        *nodes(),
        pod("usual", on="n0", owner=OWNER),
        pod("bare", on="n0"),
        pod("on-the-other", on="n1"),
        pod("agent", on="n0", owner=("DaemonSet", "agents")),
        pod("mirror", on="n0", owner=("Node", "n0")),
        pod("named", on="n0", node_terms=[here], owner=OWNER),
        pod("not-named", on="n0", node_terms=[away], owner=OWNER),
        pod("either", on="n0", node_terms=[here, away], owner=OWNER),
        pod("leaving", on="n0", terminating=True, owner=OWNER),
    )
    assert found == {
        "usual": ("placed", "n1"),
        "not-named": ("placed", "n1"),
        "either": ("placed", "n1"),
        **dict.fromkeys(("agent", "mirror", "named", "leaving", "bare"), ("gone", "")),
    }


def test_a_pod_of_a_deleted_node_comes_back_with_the_requests_of_its_spec() -> None:
    """What the kubelet had allocated for it, or would not grant, was a matter of that node."""
    objects = [node("n0", allocatable=ROOM), node("n1", allocatable=ROOM | {"cpu": "1"})]
    for wanted, had, state in (("1500m", "1", "rejected"), ("1", "1500m", "placed")):
        body = pod_json("resized", on="n0", requests={"cpu": wanted}, owner=OWNER)
        body = resizing(body, allocated={"cpu": had}, actual={"cpu": had}, pending="Infeasible")
        found = without("n0", *objects, read_pod(body))
        assert found["resized"][0] == state


def test_all_pods_of_a_deleted_node_are_gone_where_that_is_asked() -> None:
    assert without("n0", *nodes(), pod("usual", on="n0"), displaced="gone") == {"usual": ("gone", "")}


def test_pods_that_are_assumed_on_a_deleted_node_are_displaced_or_pending_again() -> None:
    index = index_of(*nodes(3), pod("one"), pod("several"), pod("elsewhere"))
    index.assume(index.pods["uid-one"], ["n0"], 0.0)
    index.assume(index.pods["uid-several"], ["n0", "n1"], 0.0)
    index.assume(index.pods["uid-elsewhere"], ["n2"], 0.0)
    found = computed(index, delete=[{"kind": "Node", "name": name} for name in ("n0", "n1")])
    assert {(each.pod, each.origin, each.was, each.node) for each in found.placements} == {
        ("default/one", "displaced", "n0", "n2"),
        ("default/several", "pending", "", "n2"),
    }


def test_pods_are_placed_by_priority_then_given_and_displaced_ones_then_by_creation() -> None:
    objects: list[Object] = [
        *nodes(),
        pod("moved", on="n0", owner=OWNER),
        pod("high", priority=9),
        pod("gated", gates=["later"]),
    ]
    objects += [structs.replace(pod(name), created=created) for name, created in (("b", "2026-01"), ("a", "2026-02"))]
    given = [kinded("Pod", pod_json(name)) for name in ("z", "y")]
    found = computed(index_of(*objects), delete=[{"kind": "Node", "name": "n0"}], apply=given, place={"limit": 2})
    assert [each.pod.partition("/")[2] for each in found.placements] == ["high", "moved", "z", "y", "b"]
    assert found.summary.not_tried == 1


def test_a_given_pod_replaces_the_one_of_its_name_and_is_not_placed_where_it_names_its_node_or_is_gated() -> None:
    index = index_of(*nodes(), pod("web", on="n0", requests={"cpu": "3"}), pod("same-uid", on="n1"))
    given = [
        kinded("Pod", pod_json("web", requests={"cpu": "4"})),
        kinded("Pod", pod_json("bound", on="n1", requests={"cpu": "3"})),
        kinded("Pod", pod_json("waits", gates=["later"])),
        kinded("Pod", pod_json("copy", uid="uid-same-uid")),
    ]
    found = computed(index, apply=given)
    assert [(each.pod, each.state, each.node, each.was) for each in found.placements] == [
        ("default/waits", "gated", "", ""),
        ("default/web", "placed", "n0", "n0"),
        ("default/copy", "placed", "n1", ""),
    ]
    assert {each.full_name for each in index.pods.values()} >= {"default/same-uid", "default/copy"}


def test_a_namespace_is_deleted_with_its_pods_and_one_with_other_labels_reaches_others() -> None:
    apart = [term("host", namespace_selector=matching(team="a"), app="web")]
    index = index_of(node("n0", allocatable=ROOM), namespace("other", team="b"), namespace("old", team="a"))
    index.upsert(pod("in-old", namespace="old", on="n0", app="web"))
    index.upsert(pod("asking", apart=apart))
    index.upsert(pod("in-other", namespace="other", on="n0", app="web"))
    renamed = kinded("Namespace", {"metadata": {"name": "other", "labels": {"team": "a"}}})
    found = computed(index, delete=[{"kind": "Namespace", "name": "old"}], apply=[renamed])
    (placement,) = found.placements
    assert (placement.state, [each.reason for each in placement.obstacles]) == ("rejected", ["anti_affinity"])
    assert {each.full_name for each in index.pods.values()} == {"default/asking", "other/in-other"}
    index = index_of(node("n0", allocatable=ROOM), namespace("old", team="a"), pod("asking", apart=apart))
    index.upsert(pod("in-old", namespace="old", on="n0", app="web"))
    assert computed(index, delete=[{"kind": "Namespace", "name": "old"}]).summary.placed == 1


def test_a_policy_that_is_given_counts_for_pods_on_nodes_and_one_that_is_deleted_does_not() -> None:
    """Its term is about web pods, and the pods that it selects are on their nodes already."""
    chosen = settings(policies={"enabled": True})
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", app="web")]}}
    selector = {"matchLabels": {"app": "db"}}
    policy = policy_json("alone", "default", affinity=apart, podSelector=selector, when=["Scheduling"])
    index = make_index(chosen)
    for obj in (node("n0", allocatable=ROOM), pod("on-n0", on="n0", app="db"), pod("asking", app="web")):
        index.upsert(obj)
    (placement,) = computed(index, chosen, apply=[policy]).placements
    assert [each.reason for each in placement.obstacles] == ["existing_anti_affinity"]
    removal = {"kind": "PodSchedulingPolicy", "namespace": "default", "name": "alone"}
    assert computed(index, chosen, delete=[removal]).summary.placed == 1


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"delete": [{"kind": "PodSchedulingPolicy", "name": "none"}]}, "delete[0].kind"),
        ({"delete": [{"kind": "Service", "name": "none"}]}, "delete[0].name"),
        ({"delete": [{"kind": "Namespace", "name": "none"}]}, "delete[0].name"),
        ({"delete": [{"kind": "Node", "name": "n0"}, {"kind": "Node", "name": "n0"}]}, "delete[1].name"),
        ({"delete": [{"kind": "Pod", "name": "web"}, {"kind": "Pod", "name": "web"}]}, "delete[1].name"),
        ({"delete": [{"kind": "Node", "name": ""}]}, "delete[0].name"),
        (
            {"apply": [{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": "high"}}]},
            "apply[0].spec.priority",
        ),
        ({"apply": [1]}, "apply[0]"),
        ({"place": {"limit": 20_001}}, "place.limit"),
    ],
)
def test_a_change_that_cannot_be_made_is_named(body: Json, path: str) -> None:
    with pytest.raises(WireError) as error:
        computed(index_of(*nodes(), pod("web", on="n0")), **body)
    assert error.value.path.startswith(path)


def test_an_invalid_policy_is_rejected_with_what_is_wrong_in_it() -> None:
    policy = policy_json("wrong", "default", nodeSelector={"zone": "a b"})
    with pytest.raises(WireError, match="nodeSelector") as error:
        computed(index_of(*nodes()), settings(policies={"enabled": True}), apply=[policy])
    assert error.value.path == "apply[0].spec"


def test_a_node_that_one_pod_fills_takes_no_other_like_it() -> None:
    index = index_of(*nodes(1), *(pod(name, requests={"cpu": "3"}) for name in ("first", "second")))
    first, second = computed(index).placements
    assert (first.state, second.state) == ("placed", "rejected")
    assert second.reason == "0/1 nodes are available: 1 node(s) had too few resources left."


def test_the_reason_counts_the_nodes_that_a_rule_rejects_with_those_that_do_not_fit() -> None:
    apart = [term("host", app="web")]
    index = index_of(*nodes(), pod("web", on="n0", app="web"), pod("full", on="n1", requests={"cpu": "4"}))
    index.upsert(pod("asking", apart=apart, requests={"cpu": "1"}))
    (found,) = computed(index).placements
    assert found.reason == (
        "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 node(s) had too few resources left."
    )


def test_a_node_that_is_given_by_hand_has_its_host_name() -> None:
    apart = [term("host", app="web")]
    given = kinded("Node", node_json("new", hostname=False, allocatable=ROOM))
    index = index_of(pod("first", app="web", apart=apart), pod("second", app="web", apart=apart))
    found = computed(index, apply=[given])
    assert (found.summary.placed, found.summary.rejected) == (1, 1)


def test_only_the_first_different_rejected_pods_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "MOST_EXPLAINED", 1)
    index = index_of(*nodes(), pod("large-1", requests={"cpu": "8"}), pod("large-2", requests={"cpu": "8"}))
    index.upsert(pod("larger", requests={"cpu": "9"}))
    found = {each.pod.partition("/")[2]: each for each in computed(index).placements}
    assert found["large-1"].obstacles == found["large-2"].obstacles != ()
    assert (found["larger"].obstacles, found["larger"].reason) == ((), found["large-1"].reason)


def test_a_pod_with_needs_that_are_not_seen_says_so() -> None:
    index = index_of(*nodes(), structs.replace(pod("asking"), has_unseen_needs=True))
    found: tuple[Placement, ...] = computed(index).placements
    assert "which the extender does not see" in found[0].unchecked

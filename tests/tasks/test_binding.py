"""The bind verb: the pod counts on its node from the call on, and no longer when the binding fails."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.kube.effects import PodRef
from extender.kube.errors import Conflict
from extender.settings.configuration import Settings
from extender.tasks.preempt_and_bind import BindService
from extender.wire.errors import WireError
from extender.wire.extender_v1 import BindingArgs, decode_binding_args, encode_binding
from extender.wire.objects.kinds import NODES, PODS
from tests.fakes import FakeClock, FakeWriter, until

JsonObject = dict[str, Any]

POD: JsonObject = {"metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "spec": {}}
GATED = POD | {"spec": {"schedulingGates": [{"name": "quota"}]}}
BOUND = POD | {"spec": {"nodeName": "n1"}}
NOT_ANSWERED = "no answer of the extender lets the pod go to this node"
ARGS = BindingArgs("ns", "w", "u", "n2")


def cluster() -> ClusterIndex:
    """Two nodes and a pending pod that was let through to either."""
    index = ClusterIndex(Settings().rules)
    for name in ("n1", "n2"):
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name}})))
    pod = PODS.decode_object(orjson.dumps(POD))
    index.upsert(pod)
    index.assume(pod, ("n1", "n2"), 0.0)
    return index


class HeldWriter(FakeWriter):
    """A writer whose bindings take until the test lets them go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.go = asyncio.Event()

    async def bind(self, pod: PodRef, node: str) -> None:
        """Once it may."""
        self.asked += 1
        await self.go.wait()
        await super().bind(pod, node)


async def test_a_bound_pod_counts_on_its_node_before_the_watch_tells() -> None:
    index, writer = cluster(), FakeWriter()
    assert await BindService(index, writer, FakeClock()).bind(ARGS) == ""
    assert writer.effects == ["bind w n2"]
    assert list(index.view.pods_on(index.view.known["n2"])) == ["u"]
    assert index.assumed.several == 0


async def test_a_failed_binding_is_reported_and_the_pod_counts_nowhere() -> None:
    index, writer = cluster(), FakeWriter(failures=[Conflict("pod w is already assigned to node n1")])
    assert "already assigned" in await BindService(index, writer, FakeClock()).bind(ARGS)
    assert index.assumed.held == {}


async def test_a_binding_that_fails_frees_the_place_only_once_nothing_is_under_way() -> None:
    """A second call for the same pod must not end the assumption on which the first one rests."""
    index, writer = cluster(), HeldWriter()
    binding = BindService(index, writer, FakeClock())
    first = asyncio.create_task(binding.bind(ARGS))
    await until(lambda: writer.asked)
    assert await binding.bind(ARGS) == "not bound: the pod is being bound already"
    assert list(index.assumed.held) == ["u"]
    writer.go.set()
    assert await first == ""
    assert writer.effects == ["bind w n2"]


FORGED = {
    "a pod that does not exist": (POD, BindingArgs("ns", "w", "made-up", "n2"), "the watch does not show this pod yet"),
    "another name": (POD, BindingArgs("ns", "x", "u", "n2"), "the watch shows a pod of another name under this UID"),
    "another namespace": (
        POD,
        BindingArgs("y", "w", "u", "n2"),
        "the watch shows a pod of another name under this UID",
    ),
    "a gated pod": (GATED, ARGS, "the watch shows scheduling gates on this pod"),
    "a bound pod": (BOUND, ARGS, "the watch shows this pod on a node already"),
    "a node of no answer": (POD, BindingArgs("ns", "w", "u", "n3"), NOT_ANSWERED),
}


@pytest.mark.parametrize(("shown", "args", "problem"), FORGED.values(), ids=FORGED)
async def test_nothing_is_bound_on_the_word_of_a_request(shown: JsonObject, args: BindingArgs, problem: str) -> None:
    index, writer = cluster(), FakeWriter()
    index.upsert(PODS.decode_object(orjson.dumps(shown)))
    assert await BindService(index, writer, FakeClock()).bind(args) == f"not bound: {problem}"
    assert writer.effects == []


async def test_a_pod_that_no_filter_has_let_through_is_not_bound() -> None:
    index, writer = cluster(), FakeWriter()
    index.assumed.forget("u")
    assert await BindService(index, writer, FakeClock()).bind(ARGS) == f"not bound: {NOT_ANSWERED}"
    assert writer.effects == []


def test_the_bodies_are_in_go_s_casing() -> None:
    body = b'{"PodName":"w","PodNamespace":"ns","PodUID":"u","Node":"n2"}'
    assert decode_binding_args(body) == ARGS
    assert encode_binding("") == b'{"Error":""}'


def test_a_missing_field_is_named() -> None:
    with pytest.raises(WireError, match="Node"):
        decode_binding_args(b'{"PodName":"w","PodNamespace":"ns","PodUID":"u"}')

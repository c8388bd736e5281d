"""The bind verb: the pod counts on its node from the call on, and no longer when the binding fails."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.kube.errors import Conflict
from extender.settings import Settings
from extender.tasks.binding import Binding
from extender.wire.errors import WireError
from extender.wire.extender_v1 import BindingArgs, decode_binding_args, encode_binding
from extender.wire.kinds import NODES, PODS
from tests.fakes import FakeClock, FakeWriter

POD: dict[str, Any] = {"metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "spec": {}}
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


async def test_a_bound_pod_counts_on_its_node_before_the_watch_tells() -> None:
    index, writer = cluster(), FakeWriter()
    assert await Binding(index, writer, FakeClock()).bind(ARGS) == ""
    assert writer.effects == ["bind w n2"]
    assert list(index.view.pods_on(index.view.known["n2"])) == ["u"]
    assert index.assumed.several == 0


async def test_a_failed_binding_is_told_and_the_pod_counts_nowhere() -> None:
    index, writer = cluster(), FakeWriter(failures=[Conflict("pod w is already assigned to node n1")])
    assert "already assigned" in await Binding(index, writer, FakeClock()).bind(ARGS)
    assert index.assumed.held == {}


async def test_a_pod_that_nobody_has_seen_is_bound_all_the_same() -> None:
    index, writer = ClusterIndex(Settings().rules), FakeWriter()
    assert await Binding(index, writer, FakeClock()).bind(ARGS) == ""
    assert writer.effects == ["bind w n2"]


def test_the_bodies_are_in_go_s_casing() -> None:
    body = b'{"PodName":"w","PodNamespace":"ns","PodUID":"u","Node":"n2"}'
    assert decode_binding_args(body) == ARGS
    assert encode_binding("") == b'{"Error":""}'


def test_a_missing_field_is_named() -> None:
    with pytest.raises(WireError, match="Node"):
        decode_binding_args(b'{"PodName":"w","PodNamespace":"ns","PodUID":"u"}')

"""A wrong count is found while the service runs, and cured; answers are right again at once."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import orjson
import pytest

from extender.index.audit import audit, audit_steps
from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.tasks.index_upkeep import Auditing
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS
from tests.fakes import FakeClock, until

HOST = "kubernetes.io/hostname"
APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": HOST,
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "namespaceSelector": {"matchLabels": {"team": "a"}},
                }
            ]
        }
    }
}


def pod_json(name: str, on: str = "") -> dict[str, Any]:
    meta = {"name": name, "uid": name, "namespace": "ns", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {**APART, **({"nodeName": on} if on else {})}}


def cluster() -> ClusterIndex:
    """Three nodes, a web pod on two of them, one assumed on the third, one let through to two; all asked about."""
    index = ClusterIndex(Settings().rules, counts_of_rules())
    index.upsert(NAMESPACES.decode_object(orjson.dumps({"metadata": {"name": "ns", "labels": {"team": "a"}}})))
    for name in ("n1", "n2", "n3"):
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
    for name in ("n1", "n2"):
        index.upsert(PODS.decode_object(orjson.dumps(pod_json(f"on-{name}", name))))
    index.assume(PODS.decode_object(orjson.dumps(pod_json("assumed"))), ("n3",), 0.0)
    index.assume(PODS.decode_object(orjson.dumps(pod_json("somewhere"))), ("n1", "n2"), 0.0)
    index.view.compiled(PODS.decode_object(orjson.dumps(pod_json("asking"))).signature)
    return index


def counted(index: ClusterIndex) -> list[dict[str, int]]:
    question = index.view.compiled(PODS.decode_object(orjson.dumps(pod_json("asking"))).signature)
    groups = question.filter_groups()
    return [{group.key.value(domain): count for domain, count in group.counts.items()} for group in groups]


async def test_a_planted_difference_is_found_and_cured() -> None:
    index = cluster()
    before = counted(index)
    (group, *_) = (group for _, groups in index.counts.selections.acquired() for group in groups)
    group.counts[next(iter(group.counts))] += 5
    assert len(audit(index)) == 1
    auditing = Auditing(index, partial(audit_steps, index), FakeClock(), 1.0)
    running = asyncio.create_task(auditing.run())
    await until(lambda: auditing.rounds >= 2)
    running.cancel()
    assert auditing.differences == 1
    assert counted(index) == before
    assert audit(index) == ["the index had to be rebuilt once"]


async def test_a_true_index_is_left_alone() -> None:
    index = cluster()
    auditing = Auditing(index, partial(audit_steps, index), FakeClock(), 1.0)
    running = asyncio.create_task(auditing.run())
    await until(lambda: auditing.rounds >= 2)
    running.cancel()
    assert (auditing.differences, index.drifts) == (0, 0)


@pytest.mark.parametrize("gone", ["on-n1", "on-n2"])
def test_a_change_that_cannot_be_counted_is_counted_anew_instead(gone: str) -> None:
    """A count that would become negative shows that one was lost before; nothing of the change is."""
    index = cluster()
    for group in (group for _, groups in index.counts.selections.acquired() for group in groups):
        group.counts.clear()
        group._levels = None
    pod = index.pods[gone]
    assert index.delete(pod)
    assert index.drifts == 1
    assert audit(index) == ["the index had to be rebuilt once"]
    assert gone not in index.pods


def test_counting_anew_keeps_every_answer() -> None:
    index = cluster()
    before, sizes = counted(index), index.statistics()
    index.rebuild()
    assert counted(index) == before
    assert index.statistics() == {**sizes, "drifts": 1}
    assert index.view.is_undetermined(
        index.view.compiled(PODS.decode_object(orjson.dumps(pod_json("asking"))).signature)
    )

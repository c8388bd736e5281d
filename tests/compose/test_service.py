"""What the settings switch on and off when the service is built."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.compose.service import service_of_cluster
from extender.kube.timing import SystemClock
from tests.builders import asking, node, pod, pod_json, settings, term


class Unconnected:
    """A session that sends nothing."""

    reads = writes = removals = None


@pytest.mark.parametrize("requeue", [True, False])
async def test_rejected_pods_are_recorded_and_reviewed_only_where_they_are_to_be_requeued(*, requeue: bool) -> None:
    used = settings(rejectedPods={"requeue": requeue}, preemption={"mode": "off"})
    service = service_of_cluster(used, Unconnected(), SystemClock(), Random(1))  # type: ignore[arg-type]  # not connected
    web: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")]}
    for obj in (node("n1"), pod("there", on="n1", app="web"), pod("incoming", **web)):
        service.index.upsert(obj)
    result = await service.verbs.filter(asking(pod_json("incoming", **web), "n1"))
    assert (list(result.passed), result.error) == ([], "")
    assert ("requeue rejected pods" in dict(service.jobs), len(service.index.rejected)) == (requeue, int(requeue))

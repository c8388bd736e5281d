"""What the rules say of every node of an index, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from extender.index.cluster import ClusterIndex
from extender.model.rejections import Code, Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame
from extender.rules.rule import PreparedScore
from extender.settings.configuration import Settings
from extender.settings.rules import InterPodAffinitySettings, Rules
from extender.tasks.rejected_pods import RejectedPodWriter, Requeuer
from extender.verbs.filter import FilterDecision, FilterVerb
from extender.verbs.select_host import find_node_elsewhere
from extender.wire.extender_v1 import ExtenderArgs
from tests.builders import Json, extender_args, read_pod
from tests.contenders import contender_json
from tests.fakes import FakeClock, FakeWriter, until


def prepared(index: ClusterIndex, incoming: Json) -> PreparedFilters:
    """The filters of every rule that is active for the pod."""
    pod = read_pod(incoming)
    return catalog.prepare_filters(pod, index.view.compiled(pod.signature), index.view, IndexFrame())


def rejections(index: ClusterIndex, incoming: Json) -> dict[str, Reason | None]:
    """The reason against each node, None where the pod may stand there; both ways of asking agree."""
    filters = prepared(index, incoming)
    found = {name: filters.reason(number) for name, number in sorted(index.view.known.items())}
    for name, number in index.view.known.items():
        parts = filters.verdict(number)
        assert found[name] is (None if parts is None else parts.reason)
    if filters.rejects_all is not None:
        assert set(found.values()) == {filters.rejects_all.reason}
    passing = set(filters.passing(list(index.view.known.values())))
    assert {name for name, number in index.view.known.items() if number in passing} == {
        name for name, reason in found.items() if reason is None
    }
    assert not (filters.rejects_every_node and passing)
    return found


def against_all(index: ClusterIndex, incoming: Json) -> Reason | None:
    """The reason against every node without looking at any, if there is one, and it is the right one."""
    rejections(index, incoming)
    certain = prepared(index, incoming).rejects_all
    return None if certain is None else certain.reason


def passing(index: ClusterIndex, incoming: Json) -> list[str]:
    """The nodes on which the pod may stand."""
    return [name for name, reason in rejections(index, incoming).items() if reason is None]


def reason(index: ClusterIndex, incoming: Json, node: str) -> Reason | None:
    """Why one node is refused."""
    return rejections(index, incoming)[node]


def parts(index: ClusterIndex, incoming: Json, node: str) -> Rejection | None:
    """The rejection of one node with its parts."""
    return prepared(index, incoming).verdict(index.view.known[node])


def scored(index: ClusterIndex, incoming: Json, *names: str, hard_weight: int = 1) -> list[PreparedScore]:
    """What each rule that has something to add gives these nodes, or all nodes."""
    compiled = index.view.compiled(read_pod(incoming).signature)
    nodes = [index.view.known[name] for name in names or sorted(index.view.known)]
    rules = Rules(inter_pod_affinity=InterPodAffinitySettings(hard_pod_affinity_weight=hard_weight))
    return catalog.prepare_scores(compiled, index.view, IndexFrame(), nodes, rules)


def raw(index: ClusterIndex, incoming: Json, *names: str, hard_weight: int = 1) -> list[int] | None:
    """The raw scores of the one rule that has something to add; None where there is none."""
    found = scored(index, incoming, *names, hard_weight=hard_weight)
    if not found:
        return None
    (only,) = found
    assert only.status.code is Code.SUCCESS
    return only.raw()


def normalized(index: ClusterIndex, incoming: Json, *names: str, hard_weight: int = 1) -> list[int]:
    """The scores from 0 to 100 of the one rule that has something to add."""
    (only,) = scored(index, incoming, *names, hard_weight=hard_weight)
    return only.normalized()


class FilterScene:
    """A filter verb over an index, and requests for some nodes that differ in little. Each pod has the ``fields``."""

    def __init__(self, index: ClusterIndex, settings: Settings, nodes: tuple[str, ...], **fields: Any) -> None:
        self.index = index
        self.settings = settings
        self.verb = FilterVerb(index.view, settings)
        self._nodes = nodes
        self._fields = fields

    def args(self, name: str = "c", *nodes: str, **fields: Any) -> ExtenderArgs:
        return extender_args(contender_json(name, **(self._fields | fields)), *(nodes or self._nodes))

    def filter(self, name: str = "c", *nodes: str, **fields: Any) -> FilterDecision:
        return self.verb.decide(self.args(name, *nodes, **fields), 0)

    def passed(self, name: str = "c", *nodes: str, **fields: Any) -> list[str]:
        return list(self.filter(name, *nodes, **fields).result.passed)

    async def requeued(self, args: ExtenderArgs, subscribers: Sized, change: Callable[[], object]) -> list[str]:
        """What is written for a pod that is rejected now, after a change that notifies the subscribers."""
        assert not self.verb.decide(args, 0).result.passed
        writer, view = FakeWriter(), self.index.view
        found = RejectedPodWriter(self.index, writer, lambda pod: find_node_elsewhere(pod, view, self.settings, 0))
        requeuer = Requeuer(found, FakeClock(), per_second=50)
        requeuer.consider(args)
        running = asyncio.create_task(requeuer.run())
        try:
            await until(lambda: len(subscribers))
            change()
            await until(lambda: writer.effects)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return writer.effects

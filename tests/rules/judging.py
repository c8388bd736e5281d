"""What the rules say of every node of an index, by name."""

from __future__ import annotations

import orjson

from extender.index.cluster import ClusterIndex
from extender.model.rejections import Code, Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters
from extender.rules.frames import IndexFrame
from extender.rules.rule import PreparedScore
from extender.settings.rules import InterPodAffinity, Rules
from extender.wire.objects.kinds import PODS
from tests.builders import Json


def prepared(index: ClusterIndex, asked: Json) -> PreparedFilters:
    """The filters of every rule that is active for the pod."""
    pod = PODS.decode_object(orjson.dumps(asked))
    return catalog.prepare_filters(pod, index.view.compiled(pod.signature), index.view, IndexFrame())


def rejections(index: ClusterIndex, asked: Json) -> dict[str, Reason | None]:
    """The reason against each node, None where the pod may stand there; both ways of asking agree."""
    filters = prepared(index, asked)
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


def against_all(index: ClusterIndex, asked: Json) -> Reason | None:
    """The reason that is told against every node without looking at any, if there is one, and it is the right one."""
    rejections(index, asked)
    certain = prepared(index, asked).rejects_all
    return None if certain is None else certain.reason


def passing(index: ClusterIndex, asked: Json) -> list[str]:
    """The nodes on which the pod may stand."""
    return [name for name, reason in rejections(index, asked).items() if reason is None]


def reason(index: ClusterIndex, asked: Json, node: str) -> Reason | None:
    """Why one node is refused."""
    return rejections(index, asked)[node]


def parts(index: ClusterIndex, asked: Json, node: str) -> Rejection | None:
    """The rejection of one node with its parts."""
    return prepared(index, asked).verdict(index.view.known[node])


def scored(index: ClusterIndex, asked: Json, *names: str, hard_weight: int = 1) -> list[PreparedScore]:
    """What each rule that has something to add gives these nodes, or all nodes."""
    compiled = index.view.compiled(PODS.decode_object(orjson.dumps(asked)).signature)
    nodes = [index.view.known[name] for name in names or sorted(index.view.known)]
    rules = Rules(inter_pod_affinity=InterPodAffinity(hard_pod_affinity_weight=hard_weight))
    return catalog.prepare_scores(compiled, index.view, IndexFrame(), nodes, rules)


def raw(index: ClusterIndex, asked: Json, *names: str, hard_weight: int = 1) -> list[int] | None:
    """The raw scores of the one rule that has something to add; None where there is none."""
    found = scored(index, asked, *names, hard_weight=hard_weight)
    if not found:
        return None
    (only,) = found
    assert only.status.code is Code.SUCCESS
    return only.raw()


def normalized(index: ClusterIndex, asked: Json, *names: str, hard_weight: int = 1) -> list[int]:
    """The scores from 0 to 100 of the one rule that has something to add."""
    (only,) = scored(index, asked, *names, hard_weight=hard_weight)
    return only.normalized()

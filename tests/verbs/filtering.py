"""Requests to the filter verb, and pods whose node is undetermined."""

from __future__ import annotations

from collections.abc import Sequence

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import FilterResult
from tests.builders import Json, extender_args, index_of, matching, namespace, node, pod, pod_json, settings, term
from tests.deciding import filter_nodes

WHOLE = settings()


def two_nodes(*occupied: str) -> ClusterIndex:
    """Nodes n1 and n2, with a web pod on those that are named."""
    return index_of(node("n1"), node("n2"), *(pod(f"web-{name}", on=name, app="web") for name in occupied))


def filtered(index: ClusterIndex, incoming: Json, *names: str) -> FilterResult:
    result = filter_nodes(extender_args(incoming, *names), index.view, WHOLE, seed=0)
    if Reason.MALFORMED_POD not in result.reasons:  # those texts quote the parser
        assert set(result.unresolvable.values()) == {reason.text for reason in result.reasons}
    return result


def filtered_nodes(index: ClusterIndex, incoming: Json, nodes: Sequence[Json]) -> FilterResult:
    return filter_nodes(extender_args(incoming, nodes=nodes), index.view, WHOLE, seed=0)


NAMES = ("n1", "n2", "n3", "n4")
ALL, TWO, ONE = (settings(answers={"shortlist": most}) for most in (0, 2, 1))


def zoned(*objects: Object) -> ClusterIndex:
    """Two nodes in each of two zones."""
    zones = zip(NAMES, ("z1", "z1", "z2", "z2"), strict=True)
    return index_of(*(node(name, zone=zone) for name, zone in zones), *objects)


def coming(index: ClusterIndex, *names: str, name: str = "w", app: str = "web") -> ClusterIndex:
    """A pod that was let through to these nodes."""
    index.assume(pod(name, app=app), names, now=0.0)
    return index


def waits(index: ClusterIndex, incoming: Json, chosen: Settings = TWO, names: Sequence[str] = NAMES) -> bool:
    return FilterVerb(index.view, chosen).should_wait(extender_args(incoming, *names))


def passed(index: ClusterIndex, incoming: Json, chosen: Settings = TWO) -> list[str]:
    return sorted(filter_nodes(extender_args(incoming, *NAMES), index.view, chosen, seed=0).passed)


NEAR_TEAM_A = term("host", selector=matching(app="web"), namespace_selector=matching(t="a"))


class FilterScene:
    """Three nodes with a web pod on n1 and n2, for which requests come, so that not every node is rejected."""

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self.settings = settings(placement="cooperative", answers={"rejectionCacheBytes": most_bytes})
        self.index = index_of(*map(node, ("n0", "n1", "n2")), *(pod(f"web-{n}", on=n, app="web") for n in ("n1", "n2")))
        self.verb = FilterVerb(self.index.view, self.settings)
        self.memory = self.verb.rejections
        self.requests = 0
        self.relabel(t="a")

    def relabel(self, **labels: str) -> None:
        self.index.upsert(namespace(labels=labels))

    def filter(self, *names: str) -> FilterResult:
        args = extender_args(pod_json("asking", apart=[NEAR_TEAM_A]), *(names or ("n1", "n2")))
        self.signature = args.pod.signature
        self.requests += 1
        return self.verb.decide(args, 0).result

    @property
    def decided(self) -> int:
        """How many requests the cache did not answer."""
        return self.requests - self.memory.hits

"""Pods whose constraints are as large as a request may be, and the work that the index does for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import orjson
from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from tests.builders import Json, extender_args, matching, node, pod_json, read_pod, requirement, spread, term, weighted
from tests.deciding import filter_nodes
from tests.laws.observing import WHOLE_ANSWERS

SIZES: Final = (1, 20, 120, 900)


def _words(count: int, prefix: str) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def _product(size: int) -> Json:
    clause = ("app", "In", _words(size, "evil-"))
    return {"apart": [term("host", selector=matching(clause), namespaces=_words(size, "space-"))]}


def _terms(size: int) -> list[Json]:
    return [term("zone", evil=f"e{number}") for number in range(size)]


KINDS: Final[dict[str, Callable[[int], Json]]] = {
    "namespaces times values": _product,
    "affinity": lambda size: {"near": _terms(size)},
    "anti-affinity": lambda size: {"apart": _terms(size)},
    "preferences": lambda size: {"prefers": [weighted(1, each) for each in _terms(size)]},
    "keys": lambda size: {"apart": [term(f"key-{number}", evil="e") for number in range(size)]},
    "requirements": lambda size: {"apart": [term("host", selector=matching(**dict.fromkeys(_words(size, "l"), "v")))]},
    "hard constraints": lambda size: {"spreads": [spread(f"key-{number}", evil="e") for number in range(size)]},
    "soft constraints": lambda size: {
        "spreads": [spread("host", hard=False, evil=f"e{number}") for number in range(size)]
    },
    "node selector terms": lambda size: {
        "node_terms": [{"matchExpressions": [requirement("slots", "NotIn", [f"s{n}"])]} for n in range(size)],
        "spreads": [spread("host", evil="e")],
    },
    "node requirements": lambda size: {
        "node_terms": [{"matchExpressions": [requirement("slots", "NotIn", [f"s{n}"]) for n in range(size)]}],
        "spreads": [spread("zone", evil="e")],
    },
    "tolerations": lambda size: {
        "tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(size)],
        "spreads": [spread("host", taints_policy="Honor", evil="e")],
    },
    "labels": lambda size: {"labels": dict.fromkeys(_words(size, "label-"), "v"), "apart": _terms(1)},
}


@st.composite
def hostile_pods(draw: st.DrawFn) -> list[Json]:
    """A few of them, pending or on a node that does not exist, where they keep no pod away."""
    drawn = draw(st.lists(st.tuples(st.sampled_from(list(KINDS)), st.sampled_from(SIZES), st.booleans()), max_size=4))
    return [
        pod_json(f"evil-{n}", namespace="evil", evil="e", on="ghost" if stands else "", **KINDS[kind](size))
        for n, (kind, size, stands) in enumerate(drawn)
    ]


def meet(index: ClusterIndex, pods: list[Json]) -> None:
    """The pods come, and those that wait are asked about."""
    for body in pods:
        index.upsert(read_pod(body))
        if not body["spec"].get("nodeName"):
            filter_nodes(extender_args(body, *index.view.known), index.view, WHOLE_ANSWERS, seed=0)


def leave(index: ClusterIndex, pods: list[Json]) -> None:
    """They are gone."""
    for body in pods:
        index.delete(read_pod(body))


def calls_during(work: Callable[[], None]) -> int:
    """How many functions are called meanwhile, ours and built-in ones: a measure of work that no clock is needed for."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def work_for(kind: str, size: int, *, nodes: int = 30) -> tuple[int, int]:
    """The calls that a pod costs from its first bytes to its deletion, asked about once; and those bytes."""
    index = ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules())
    for number in range(nodes):
        index.upsert(node(f"n{number}", zone=f"z{number % 3}"))
    body = pod_json(f"work-{kind}-{size}", namespace="evil", evil="e", **KINDS[kind](size))

    def live() -> None:
        meet(index, [body])
        leave(index, [body])

    return calls_during(live), len(orjson.dumps(body))

"""The number of entries in each table of an index, and pods that each add to other tables."""

from __future__ import annotations

import gc
import tracemalloc
from array import array
from collections.abc import Callable, Iterator, Sized

from extender.index.cluster import ClusterIndex
from extender.model.bounded import DictInParts
from extender.model.objects import Pod
from tests.builders import index_of, matching, namespace, node, pod, pod_json, spread, term
from tests.index.counting import compiled_of, unlimited

ROUNDS = 60


def entries(index: ClusterIndex) -> int:
    """How many entries all containers of the index have together; what the objects of the API hold is left out."""
    return sum(map(len, containers(index)))


def containers(index: ClusterIndex) -> Iterator[Sized]:
    """Every container that can be reached from the index, but not through objects of the API."""
    seen = set[int]()
    left: list[object] = [index]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            yield each
            left += [*each, *each.values()]
        elif isinstance(each, DictInParts):
            left += each.parts
        elif isinstance(each, (list, tuple, set, frozenset, array)):
            yield each
            left += [] if isinstance(each, array) else each
        elif type(each).__module__.startswith("extender.index"):
            left += list(_parts(each))


def _parts(each: object) -> Iterator[object]:
    yield from vars(each).values() if hasattr(each, "__dict__") else ()
    for kind in type(each).__mro__:
        names = kind.__dict__.get("__slots__", ())
        yield from (getattr(each, name) for name in names if hasattr(each, name) and name != "__weakref__")


def incoming(number: int) -> Pod:
    app = f"app-{number}"
    return unlimited(
        pod_json(
            f"p{number}",
            on="n1",
            app=app,
            near=[term("zone", app=app, namespace_selector=matching(team=f"t{number}"))],
            apart=[term(app=app)],
            prefers=[{"weight": 1, "podAffinityTerm": term("zone", app=app)}],
            spreads=[spread("zone", app=app), spread("host", hard=False, app=app)],
            node_selector={"disk": app},
        )
    )


def labelled(number: int) -> Pod:
    """A pod with label pairs of its own, one of which it asks about."""
    labels = {f"k{number}-{each}": f"v{number}" for each in range(10)}
    return pod(
        f"p{number}", on="n1", labels=labels, apart=[term(selector=matching((f"k{number}-0", "In", ["a", "b"])))]
    )


def keyed(number: int) -> Pod:
    """A pod with a term over each of many topology keys that no node carries."""
    keys = [term(f"example.com/k{number}-{each}", app="web") for each in range(50)]
    return unlimited(pod_json(f"p{number}", on="n1", app="web", apart=keys, near=keys[:5]))


def wide(number: int) -> Pod:
    """A pod with a term of many namespaces and values."""
    names = [f"ns{number}-{each}" for each in range(100)]
    return unlimited(
        pod_json(f"p{number}", on="n1", apart=[term(namespaces=names, selector=matching(("app", "In", names)))])
    )


def lost(number: int) -> Pod:
    """A pod on a node that does not exist."""
    return pod(f"p{number}", on=f"ghost-{number}", app="web", apart=[term(app="web")])


def standing() -> ClusterIndex:
    """Nodes, web pods, a namespace and questions about them, which stay."""
    made = index_of(
        *(node(f"n{number}", zone=f"z{number % 2}") for number in range(20)),
        *(pod(f"w{number}", on=f"n{number}", app="web", spreads=[spread("zone", app="web")]) for number in range(20)),
        namespace("default", team="a"),
    )
    compiled_of(made, pod_json(app="web", near=[term("zone", app="web")], spreads=[spread("zone", app="web")]))
    for each in list(made.pods.values()):
        made.view.compiled(each.signature)
    return made


def bytes_of(make: Callable[[int], Pod], *, requested: bool) -> int:
    """What `ROUNDS` such pods hold while they are there."""
    index, here = standing(), list[Pod]()
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(ROUNDS):
            here.append(make(number))
            index.upsert(here[-1])
            if requested:
                index.view.compiled(here[-1].signature)
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()

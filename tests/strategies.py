"""Hypothesis makers of small clusters and of sequences of changes to them.

Names are few on purpose, so that changes meet: pods move, are relabelled and come back, nodes leave with pods on them.
Choices are drawn from short lists rather than built freely, which keeps examples quick to make and to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, TypeVar

import orjson
from hypothesis import strategies as st

from extender.model.objects import Object
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, Kind
from tests.builders import (
    Json,
    matching,
    namespace_json,
    node_json,
    pod_json,
    requirement,
    spread,
    taint,
    term,
    weighted,
)

T = TypeVar("T")

NODE_NAMES: Final = ("n1", "n2", "n3", "n4")
POD_NAMES: Final = ("p1", "p2", "p3", "p4", "p5", "p6")
NAMESPACE_NAMES: Final = ("red", "blue", "bare")
KEYS: Final = ("host", "zone", "rack")

SELECTORS: Final[tuple[Json | None, ...]] = (
    None,
    {},
    matching(app="web"),
    matching(app="db"),
    matching(("app", "In", ["web", "db"])),
    matching(("app", "NotIn", ["web"])),
    matching(("tier", "Exists", [])),
    matching(("tier", "DoesNotExist", [])),
    matching(("tier", "In", ["x"]), app="web"),
)
UNPARSABLE: Final = matching(("app", "In", []))
NAMESPACE_SELECTORS: Final[tuple[Json | None, ...]] = (
    None,
    None,
    {},
    matching(team="a"),
    matching(("team", "NotIn", ["a"])),
    matching(("team", "Exists", [])),
    matching(("frozen", "DoesNotExist", [])),
)
NAMESPACE_LISTS: Final[tuple[list[str] | None, ...]] = (None, None, [], ["red"], ["blue", "bare"], ["nowhere"])
TOLERATIONS: Final[tuple[list[Json], ...]] = (
    [],
    [{"operator": "Exists"}],
    [{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
)
NODE_TERMS: Final[tuple[list[Json] | None, ...]] = (
    None,
    None,
    [],
    [{"matchExpressions": [requirement("rack", "In", ["r1"])]}],
    [{"matchExpressions": [requirement("slots", "Gt", ["4"])]}, {}],
    [{"matchFields": [requirement("metadata.name", "NotIn", ["n1"])]}],
)
SERVICE_SELECTORS: Final[tuple[dict[str, str] | None, ...]] = (None, {}, {"app": "web"}, {"tier": "x"})


# Every combination is one choice, which is much quicker to draw than its parts one by one.
_MOSTLY_READABLE: Final = (*SELECTORS, *SELECTORS, UNPARSABLE)
TERMS: Final = [
    term(key, selector=selector, namespaces=names, namespace_selector=chosen)
    for selector, chosen, names, key in product(_MOSTLY_READABLE, NAMESPACE_SELECTORS, NAMESPACE_LISTS, KEYS)
]
WEIGHTED: Final = [weighted(weight, each) for each in TERMS for weight in (1, 7, 100)]
CONSTRAINTS: Final = [
    spread(
        key,
        skew,
        hard=hard,
        selector=selector,
        min_domains=least,  # beside ScheduleAnyway only a policy can have it
        affinity_policy=affinity,
        taints_policy=taints,
        match_label_keys=keys,
    )
    for selector, hard, key, skew, least, affinity, taints, keys in product(
        _MOSTLY_READABLE,
        (True, True, False),
        KEYS,
        (1, 2),
        (None, 2, 3),
        (None, "Ignore"),
        (None, "Honor"),
        (None, None, ["tier", "absent"]),
    )
]


@dataclass(frozen=True)
class Change:
    """An object as it is now (`body`), or its disappearance (None); `kind` is a name of the list below."""

    kind: str
    key: str
    body: Json | None


@dataclass(frozen=True)
class Request:
    """A request for a pod, so that the groups of its constraints exist from here on."""

    pod: Json


Step = Change | Request

_KINDS: Final[dict[str, Kind[Any]]] = {
    "pods": PODS,
    "nodes": NODES,
    "namespaces": NAMESPACES,
    "services": SERVICES,
    "replicasets": REPLICA_SETS,
    "replicationcontrollers": REPLICATION_CONTROLLERS,
}


def decoded(kind: str, body: Json) -> Object:
    made: Object = _KINDS[kind].decode_object(orjson.dumps(body))
    return made


def one_of(values: Iterable[T]) -> st.SearchStrategy[T]:
    return st.sampled_from(list(values))


def by_weight(*weighed: tuple[int, st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of these, drawn as often as its weight says: `st.one_of` counts a strategy that is named twice once."""
    strategies = [strategy for weight, strategy in weighed for _ in range(weight)]
    return st.sampled_from(range(len(strategies))).flatmap(strategies.__getitem__)


def few(items: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
    """None, mostly; else one, two, or the same one twice."""
    return st.one_of(st.just([]), st.just([]), st.lists(items, max_size=2), items.map(lambda item: [item, item]))


# Strategies are made once: drawing from one that is made anew for each draw costs more than the draw.
LABELS = one_of(
    [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "tier": "x"}, {"app": "db", "tier": "y"}, {"tier": ""}]
)
FEW_TERMS = few(one_of(TERMS))
PREFERENCES = few(one_of(WEIGHTED))
# The API lets a key stand once for each action.
OWN_CONSTRAINTS = few(one_of(CONSTRAINTS)).map(
    lambda listed: list({(each["topologyKey"], each["whenUnsatisfiable"]): each for each in listed}.values())
)
_STATES = one_of(["", "", "", "terminating", "Succeeded"])
_OWNERS = one_of([None, None, ("ReplicaSet", "rs"), ("ReplicationController", "rc")])
_WISHES = st.tuples(one_of([{}, {}, {"rack": "r1"}]), one_of(NODE_TERMS), one_of(TOLERATIONS), one_of([None, 0, 10]))


@st.composite
def pods(draw: st.DrawFn, name: str = "asking", *, on: Sequence[str] = ("",)) -> Json:
    """A pod of any shape on one of these nodes; terminating, finished or unassigned now and then."""
    state = draw(_STATES)
    node_selector, node_terms, tolerations, priority = draw(_WISHES)
    return pod_json(
        name,
        on=draw(st.sampled_from(on)),
        namespace=draw(st.sampled_from(NAMESPACE_NAMES)),
        labels=draw(LABELS),
        near=draw(FEW_TERMS),
        apart=draw(FEW_TERMS),
        prefers=draw(PREFERENCES),
        avoids=draw(PREFERENCES),
        spreads=draw(OWN_CONSTRAINTS),
        node_selector=node_selector,
        node_terms=node_terms,
        tolerations=tolerations,
        owner=draw(_OWNERS),
        priority=priority,
        terminating=state == "terminating",
        phase=state if state == "Succeeded" else "",
    )


# Each counts the web pods of its own namespace, so that two pods with one of them are in each other's way.
_LINKS: st.SearchStrategy[dict[str, Any]] = one_of(
    [
        *({"apart": [term(key, app="web")]} for key in KEYS),
        {"apart": [term("host", app="web")], "near": [term("zone", tier="x")]},
        {"near": [term("zone", app="web")], "apart": [term("host", tier="x")]},
        *({"spreads": [spread(key, skew, app="web")]} for key in ("host", "zone") for skew in (1, 2)),
    ]
)


@st.composite
def linked_pods(draw: st.DrawFn, name: str = "asking") -> Json:
    """A web pod whose one hard constraint counts all pods of this strategy."""
    labels = draw(one_of([{"app": "web"}, {"app": "web", "tier": "x"}]))
    return pod_json(name, namespace=NAMESPACE_NAMES[0], labels=labels, **draw(_LINKS))


def mostly_linked(name: str) -> st.SearchStrategy[Json]:
    """Five times in six such a pod, else one of any shape."""
    return by_weight((5, linked_pods(name)), (1, pods(name)))


def running_pods(name: str) -> st.SearchStrategy[Json]:
    """A pod on a node, on a node that does not exist, or on none yet."""
    return pods(name, on=(*NODE_NAMES, *NODE_NAMES, "ghost", ""))


_NODE_LABELS = st.tuples(
    one_of([{}, {"rack": "r1"}, {"rack": "r2"}, {"rack": ""}, {"rack": "r1", "slots": "5"}]),
    one_of([{}, {}, {}, {"kubernetes.io/hostname": "shared"}]),
)
_TAINTS = one_of([[], [], [taint("gpu", "yes")], [taint("busy", effect="PreferNoSchedule")]])


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    """A node in three zones and two racks, some keys missing or empty, two nodes sharing a hostname now and then."""
    racked, shared = draw(_NODE_LABELS)
    return node_json(
        name,
        zone=draw(st.sampled_from(("z1", "z2", "z3", ""))),
        hostname=draw(st.sampled_from((True, True, True, False))),
        labels=racked | shared,
        taints=draw(_TAINTS),
        unschedulable=draw(st.booleans()),
    )


def namespaces(name: str) -> st.SearchStrategy[Json]:
    """A namespace with labels that the selectors above tell apart."""
    made = one_of([{}, {"team": "a"}, {"team": "b"}, {"team": "a", "frozen": "yes"}])
    return made.map(lambda labels: namespace_json(name, labels))


@st.composite
def workloads(draw: st.DrawFn) -> Change:
    """A Service, ReplicaSet or ReplicationController made, changed or removed."""
    kind, name = draw(one_of([("services", "svc"), ("replicasets", "rs"), ("replicationcontrollers", "rc")]))
    namespace = draw(one_of(NAMESPACE_NAMES))
    selector = draw(one_of(SELECTORS if kind == "replicasets" else SERVICE_SELECTORS))
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
    return Change(kind, f"{namespace}/{name}", draw(st.one_of(st.just(body), st.none())))


def _changed(
    kind: str, names: Iterable[str], make: Callable[[str], st.SearchStrategy[Json]]
) -> st.SearchStrategy[Step]:
    """One of these objects made, changed or removed; there are more of the first two."""
    named = one_of(names)
    put = named.flatmap(lambda name: make(name).map(lambda body: Change(kind, name, body)))
    return by_weight((2, put), (1, named.map(lambda name: Change(kind, name, None))))


def steps() -> st.SearchStrategy[Step]:
    return by_weight(
        (2, _changed("pods", POD_NAMES, running_pods)),
        (1, _changed("nodes", NODE_NAMES, nodes)),
        (1, _changed("namespaces", NAMESPACE_NAMES[:2], namespaces)),
        (1, workloads()),
        (1, pods().map(Request)),
    )


def _there(kind: str, name: str, made: st.SearchStrategy[Json]) -> st.SearchStrategy[Step]:
    return made.map(lambda body: Change(kind, name, body))


def histories_with_room() -> st.SearchStrategy[list[Step]]:
    """As `histories`, and at last a node alone in its zone, on which hardly a pod stands."""
    name = NODE_NAMES[3]
    alone = Change("nodes", name, node_json(name, zone="z4"))
    return histories().map(lambda history: [*history, alone])


def histories(most: int = 10) -> st.SearchStrategy[list[Step]]:
    """A sequence of changes and questions, starting with three nodes, pods on them and two namespaces."""
    start = st.tuples(
        *(_there("nodes", name, nodes(name)) for name in NODE_NAMES[:3]),
        *(_there("namespaces", name, namespaces(name)) for name in NAMESPACE_NAMES[:2]),
        *(_there("pods", name, pods(name, on=NODE_NAMES[:3])) for name in POD_NAMES[:3]),
    )
    return st.builds(lambda made, more: [*made, *more], start, st.lists(steps(), max_size=most))

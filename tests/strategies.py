"""Hypothesis makers of small clusters and of sequences of changes to them.

Names are few on purpose, so that changes meet: pods move, are relabelled and come back, nodes leave with pods on them.
Choices are drawn from short lists rather than built freely, which keeps examples quick to make and to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import orjson
from hypothesis import strategies as st

from extender.model.objects import Object
from extender.wire.kinds import NAMESPACES, NODES, PODS, REPLICA_SETS, REPLICATION_CONTROLLERS, SERVICES, Kind
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


@dataclass(frozen=True)
class Change:
    """An object as it is now (`body`), or its disappearance (None); `kind` is a name of the list below."""

    kind: str
    key: str
    body: Json | None


@dataclass(frozen=True)
class Ask:
    """A pod is asked about, so that the groups of its question exist from here on."""

    pod: Json


Step = Change | Ask

_KINDS: Final[dict[str, Kind[Any]]] = {
    "pods": PODS,
    "nodes": NODES,
    "namespaces": NAMESPACES,
    "services": SERVICES,
    "replicasets": REPLICA_SETS,
    "replicationcontrollers": REPLICATION_CONTROLLERS,
}


def decoded(kind: str, body: Json) -> Object:
    """The object of a kind, by the real decoding."""
    made: Object = _KINDS[kind].decode_object(orjson.dumps(body))
    return made


def one_of(values: Iterable[T]) -> st.SearchStrategy[T]:
    """One of a short list, the first being the simplest."""
    return st.sampled_from(list(values))


def rarely(value: T, otherwise: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """Mostly the other one."""
    return st.integers(0, 19).flatmap(lambda n: st.just(value) if n == 19 else otherwise)


def labels() -> st.SearchStrategy[dict[str, str]]:
    """Labels of a pod."""
    return one_of(
        [{}, {"app": "web"}, {"app": "db"}, {"app": "web", "tier": "x"}, {"app": "db", "tier": "y"}, {"tier": ""}]
    )


def terms() -> st.SearchStrategy[Json]:
    """Affinity terms, a few of them unparsable."""
    return st.builds(
        lambda key, selector, names, chosen: term(key, selector=selector, namespaces=names, namespace_selector=chosen),
        one_of(KEYS),
        rarely(UNPARSABLE, one_of(SELECTORS)),
        one_of(NAMESPACE_LISTS),
        one_of(NAMESPACE_SELECTORS),
    )


def constraints() -> st.SearchStrategy[Json]:
    """Topology spread constraints, hard more often than soft."""
    return st.builds(
        lambda key, skew, hard, selector, least, affinity, taints, keys: spread(
            key,
            skew,
            hard=hard,
            selector=selector,
            min_domains=least if hard else None,
            affinity_policy=affinity,
            taints_policy=taints,
            match_label_keys=keys,
        ),
        one_of(KEYS),
        one_of([1, 1, 2]),
        one_of([True, True, False]),
        rarely(UNPARSABLE, one_of(SELECTORS)),
        one_of([None, None, 2, 3]),
        one_of([None, "Ignore"]),
        one_of([None, "Honor"]),
        one_of([None, None, ["tier", "absent"]]),
    )


def few(items: st.SearchStrategy[Json]) -> st.SearchStrategy[list[Json]]:
    """None, mostly; else one, two, or the same one twice."""
    return st.one_of(st.just([]), st.just([]), st.lists(items, max_size=2), items.map(lambda item: [item, item]))


def preferences() -> st.SearchStrategy[list[Json]]:
    """Preferred terms."""
    return few(st.builds(weighted, one_of([1, 7, 100]), terms()))


def own_constraints() -> st.SearchStrategy[list[Json]]:
    """Constraints of one pod; the API lets a key stand once for each action."""
    return st.lists(constraints(), max_size=2, unique_by=lambda c: (c["topologyKey"], c["whenUnsatisfiable"]))


@st.composite
def pods(draw: st.DrawFn, name: str = "asking", *, on: Iterable[str] = ("",)) -> Json:
    """A pod of any shape on one of these nodes; terminating, finished or unassigned now and then."""
    state = draw(one_of(["", "", "", "terminating", "Succeeded"]))
    return pod_json(
        name,
        on=draw(one_of(on)),
        namespace=draw(one_of(NAMESPACE_NAMES)),
        labels=draw(labels()),
        near=draw(few(terms())),
        apart=draw(few(terms())),
        prefers=draw(preferences()),
        avoids=draw(preferences()),
        spreads=draw(own_constraints()),
        node_selector=draw(one_of([{}, {}, {"rack": "r1"}])),
        node_terms=draw(one_of(NODE_TERMS)),
        tolerations=draw(one_of(TOLERATIONS)),
        owner=draw(one_of([None, None, ("ReplicaSet", "rs"), ("ReplicationController", "rc")])),
        priority=draw(one_of([None, 0, 10])),
        terminating=state == "terminating",
        phase=state if state == "Succeeded" else "",
    )


def running_pods(name: str) -> st.SearchStrategy[Json]:
    """A pod on a node, on a node that does not exist, or on none yet."""
    return pods(name, on=(*NODE_NAMES, *NODE_NAMES, "ghost", ""))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Json:
    """A node in two zones and two racks, some keys missing or empty, two nodes sharing a hostname now and then."""
    made = draw(one_of([{}, {"rack": "r1"}, {"rack": "r2"}, {"rack": ""}, {"rack": "r1", "slots": "5"}]))
    taints = draw(one_of([[], [], [taint("gpu", "yes")], [taint("busy", effect="PreferNoSchedule")]]))
    return node_json(
        name,
        zone=draw(one_of(["z1", "z2", "z3", ""])),
        hostname=draw(one_of([True, True, True, False])),
        labels=made | draw(one_of([{}, {}, {}, {"kubernetes.io/hostname": "shared"}])),
        taints=taints,
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
    return st.one_of(put, put, named.map(lambda name: Change(kind, name, None)))


def steps() -> st.SearchStrategy[Step]:
    """One change, or a question."""
    pod_steps = _changed("pods", POD_NAMES, running_pods)
    return st.one_of(
        pod_steps,
        pod_steps,
        _changed("nodes", NODE_NAMES, nodes),
        _changed("namespaces", NAMESPACE_NAMES[:2], namespaces),
        workloads(),
        pods().map(Ask),
    )


def _there(name: str) -> st.SearchStrategy[Step]:
    return nodes(name).map(lambda body: Change("nodes", name, body))


def histories(most: int = 14) -> st.SearchStrategy[list[Step]]:
    """A sequence of changes and questions from an empty cluster, starting with some nodes."""
    start = st.tuples(*map(_there, NODE_NAMES[:3]))
    return st.builds(lambda made, more: [*made, *more], start, st.lists(steps(), max_size=most))

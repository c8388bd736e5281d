"""What one event costs the service by its kind, and how the cost grows with objects that the event does not concern.

What an event concerns is found by a look-up, so its cost is flat in the number of all other objects. The growth is measured in
counted operations, because these are equal in each run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from extender.model.release import RELEASE_GATE
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, key_of, kind_of
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.costs.building import a_pod, a_term, apart, base
from tests.costs.judging import PAGE, as_text
from tests.costs.measuring import Meter, Operations, Seconds, World
from tests.costs.rows_of_policies import policy
from tests.simulator import plain
from tests.simulator.plain import HOSTNAME, ZONE

NODES_OF_CLUSTER: Final = 1000
MOST_GROWTH: Final = 1.2  # with many in place of few
_CROWDED: Final = 100  # of the nodes
_EVENTS: Final = 40  # of each kind in one round
_ROUNDS: Final = 3
_SECTIONS: Final = {"audit": {"pause": "1h"}}


def _workload(at: int, name: str = "", **spec: object) -> JsonObject:
    """A pod of a workload with constraints of its own."""
    labels = {"app": f"shop-{at}"}
    spreads = [plain.spread(ZONE, skew=1000, labels=labels)]
    affinity = apart(a_term({"matchLabels": labels}, HOSTNAME))
    return a_pod(name or f"of-{at}", labels=labels, affinity=affinity, topologySpreadConstraints=spreads, **spec)


def _workloads(n: int) -> list[JsonObject]:
    """On nodes that no event changes, as each pod on a node is counted again when the node is relabelled."""
    return [_workload(at, on=f"node-{at % _CROWDED}", cpu="1m") for at in range(n)]


def _policies(n: int) -> list[JsonObject]:
    return [
        policy(f"policy-{at}", podSelector={"matchLabels": {"app": f"none-{at}"}}, nodeSelector={"pool": "a"})
        for at in range(n)
    ]


def _waiting(n: int) -> list[JsonObject]:
    return [_workload(at, f"waits-{at}") for at in range(n)]


def _gated(n: int) -> list[JsonObject]:
    release = {"topology": [ZONE], "group": {"label": "group"}, "size": {"count": 10_000}}
    gate = [{"name": RELEASE_GATE}]
    pods = [
        a_pod(f"gated-{at}", labels={"group": f"g-{at}"}, namespace="other", schedulingGates=gate) for at in range(n)
    ]
    return [policy("gang", "other", when=["Release"], release=release), *pods]


@dataclass(frozen=True)
class Crowd:
    """Objects that no measured event concerns: few and many of them."""

    name: str
    make: Callable[[int], list[JsonObject]]
    few: int
    many: int


CROWDS: Final = (
    Crowd("workloads of the namespace", _workloads, 100, 5000),
    Crowd("policies", _policies, 10, 1000),
    Crowd("waiting pods", _waiting, 10, 5000),
    Crowd("gated pods", _gated, 10, 5000),
)


def _own(at: int) -> JsonObject:
    """The first pod of its workload, so that the groups that count it are looked up."""
    return _workload(10**6 + at, f"own-{at}", cpu="1m")


def _added(api: ApiServer, at: int) -> None:
    body = {name: value for name, value in _own(at).items() if name not in ("kind", "apiVersion")}
    body["metadata"] = {"uid": api.store.new_uid(), **body["metadata"]}
    api.store.put(PODS, body)


def _bound(api: ApiServer, at: int) -> None:
    api.operations.change(
        PODS, key_of(PODS, _own(at)), lambda pod: pod["spec"].update(nodeName=f"node-{_CROWDED + at}")
    )


def _reported(api: ApiServer, at: int) -> None:
    condition = {"type": "Ready", "status": "True"}
    api.operations.change(PODS, key_of(PODS, _own(at)), lambda pod: pod["status"].update(conditions=[condition]))


def _deleted(api: ApiServer, at: int) -> None:
    api.store.remove(PODS, key_of(PODS, _own(at)))


def _resized(api: ApiServer, at: int) -> None:
    def change(node: JsonObject) -> None:
        allocatable = node["status"]["allocatable"]
        allocatable["example.com/x"] = str(int(allocatable.get("example.com/x", "0")) + 1)

    api.operations.change(NODES, f"node-{_CROWDED + at}", change)


def _relabelled(api: ApiServer, at: int) -> None:
    def change(node: JsonObject) -> None:
        labels = node["metadata"]["labels"]
        labels["other"] = f"{int(labels.get('other', '0')) + 1}"

    api.operations.change(NODES, f"node-{_CROWDED + at}", change)


def _namespace(api: ApiServer, at: int) -> None:
    def change(namespace: JsonObject) -> None:
        namespace["metadata"]["labels"]["team"] = f"team-{at}"

    api.operations.change(NAMESPACES, "third", change)


_THE_POLICY: Final = policy("own", podSelector={"matchLabels": {"app": "own"}}, nodeSelector={"pool": "a"})


def _policy(api: ApiServer, at: int) -> None:
    kind = kind_of(_THE_POLICY)
    api.operations.change(kind, key_of(kind, _THE_POLICY), lambda found: found["spec"].update(priority=at + 1))


def _idle(_api: ApiServer, _at: int) -> None:
    """Nothing happens, and the jobs go on."""


_NOTHING: Final = "nothing"
EVENTS: Final[Mapping[str, Callable[[ApiServer, int], None]]] = {
    "a pod is added": _added,
    "a pod is bound": _bound,
    "a pod reports its status": _reported,
    "a pod is deleted": _deleted,
    "a node offers more": _resized,
    "a node gets a label": _relabelled,
    "a namespace gets a label": _namespace,
    "a policy changes": _policy,
}
ANSWER: Final = "a filter request is answered"
FIRST_ANSWER: Final = "the first request of a workload is answered"
KINDS: Final = (*EVENTS, ANSWER, FIRST_ANSWER)


def by_kind(
    crowd: Crowd, size: int, meter: Meter, *, nodes: int = NODES_OF_CLUSTER, rounds: int = 1
) -> dict[str, float]:
    """Seconds of one event of each kind beside a crowd of this size: the least of some rounds, beside what runs without events."""
    world = World(meter, base(nodes), _SECTIONS)
    known = _own(10**6)
    firsts = [_workload(2 * 10**6 + at, f"first-{at}") for at in range(_EVENTS * (1 + rounds))]
    found = dict.fromkeys((_NOTHING, *KINDS), inf)
    try:
        with world.holding([_THE_POLICY, known, *firsts, *crowd.make(size)]):
            for number in range(1 + rounds):  # the first one meets cold caches
                spent = {name: world.spent_on(happen, _EVENTS) for name, happen in {_NOTHING: _idle, **EVENTS}.items()}
                spent[ANSWER] = world.spent_on_requests([known] * _EVENTS)
                spent[FIRST_ANSWER] = world.spent_on_requests(firsts[number * _EVENTS :][:_EVENTS])
                found = {name: min(found[name], spent[name]) for name in found}
    finally:
        world.close()
    if world.errors:
        raise RuntimeError(f"{crowd.name}: {world.errors[0]}")
    return {kind: found[kind] - (found[_NOTHING] if kind in EVENTS else 0.0) for kind in KINDS}


@dataclass(frozen=True)
class CostOfEvents:
    """Seconds of one event by its kind beside few of a crowd, and how many times the counted operations are with many."""

    crowd: str
    seconds: Mapping[str, float]
    growth: Mapping[str, float]

    @property
    def problems(self) -> list[str]:
        """Kinds of events whose cost grows."""
        return [
            f"{kind}: grows {growth:.1f} times with {self.crowd}"
            for kind, growth in self.growth.items()
            if growth > MOST_GROWTH
        ]


def measured_events(name: str) -> CostOfEvents:
    """For a process that is given only the name of a crowd."""
    logging.disable(logging.CRITICAL)
    crowd = next(crowd for crowd in CROWDS if crowd.name == name)
    few, many = (by_kind(crowd, size, Operations(), rounds=2) for size in (crowd.few, crowd.many))
    seconds = by_kind(crowd, crowd.few, Seconds(), rounds=_ROUNDS)
    return CostOfEvents(name, seconds, {kind: many[kind] / few[kind] for kind in KINDS})


_HEAD: Final = ("event", "time", *(f"beside {crowd.many:,} {crowd.name}" for crowd in CROWDS))


def table(found: Sequence[CostOfEvents]) -> list[tuple[str, ...]]:
    """A row for each kind of event: the time, and how many times the operations are with many of each crowd."""
    growth = {costs.crowd: costs.growth for costs in found}
    rows = [
        (
            kind,
            f"{min(costs.seconds[kind] for costs in found) * 1e6:.0f} µs",
            *(f"{growth[crowd.name][kind]:.2f}" if crowd.name in growth else "" for crowd in CROWDS),
        )
        for kind in KINDS
    ]
    return [_HEAD, *rows]


_TITLE: Final = "| event |"


def written() -> list[str]:
    """The kinds of events that the page names."""
    return [line.split("|")[1].strip() for line in _of_page()[2:]]


def _of_page() -> list[str]:
    _, title, rest = PAGE.read_text("utf-8").partition(_TITLE)
    return (title + rest).partition("\n\n")[0].splitlines()


def write(found: Sequence[CostOfEvents]) -> None:
    """Puts the table in place of the one of the page."""
    text = PAGE.read_text("utf-8")
    PAGE.write_text(text.replace("\n".join(_of_page()), as_text(table(found)).rstrip()), "utf-8")

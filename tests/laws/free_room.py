"""A state machine: several schedulers place pods on nodes with little room, in any order of events."""

from __future__ import annotations

from dataclasses import dataclass, field

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.verbs.filter import FilterVerb
from tests.builders import extender_args, settings
from tests.contenders import contender, contender_json, stage

NODES = ("n0", "n1", "n2")
ROOM = 4
PODS = tuple(f"p{number}" for number in range(7))
SIZES = {name: 1 + number % 3 for number, name in enumerate(PODS)}
PORTS = {"p0": [80], "p3": [80], "p5": [81]}
DOUBT = AssumptionTimeouts(expiry=100.0, failure_grace=0.0, doubt=1.0)


def shown(name: str, **fields: object) -> Pod:
    return contender(name, cpu=1000 * SIZES[name], host_ports=PORTS.get(name, ()), **fields)


@dataclass
class World:
    """The index and the verb, and where each pod is in truth: ``taken`` by pod, bound or being bound."""

    index: ClusterIndex = field(default_factory=lambda: ClusterIndex(Rules(), counts_of_rules(), counts_room=True))
    taken: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in NODES:
            self.index.upsert(stage(name, cpu=1000 * ROOM))
        for name in PODS:
            self.index.upsert(shown(name))
        self.verb = FilterVerb(self.index.view, settings(schedulers="many", placement="decisive"))

    def filter(self, name: str) -> None:
        """A scheduler asks about a pod that it is not binding."""
        if name in self.deleted or name in self.taken:
            return
        self.index.assumed.forget(f"uid-{name}")
        body = contender_json(name, cpu=1000 * SIZES[name], host_ports=PORTS.get(name, ()))
        passed = self.verb.decide(extender_args(body, *NODES), len(self.taken)).result.passed
        assert len(passed) <= 1, "every pod gets one node"
        if passed:
            self.index.assume(self.index.pods[f"uid-{name}"], passed, 0.0)
            self.taken[name] = passed[0]

    def step(self, operation: str, subject: str) -> None:
        match operation:
            case "request":
                self.filter(subject)
            case "show" if subject in self.taken:
                self.written.add(subject)
                self.index.upsert(shown(subject, on=self.taken[subject]))
            case "fail" if subject in self.taken and subject not in self.written:
                del self.taken[subject]  # noticed with the next request for the pod
            case "delete" if subject not in self.deleted:
                self.deleted.add(subject)
                self.index.delete(shown(subject, on=self.taken.pop(subject, "")))
                self.written.discard(subject)
            case "doubt":
                self.index.assumed.review(2.0, DOUBT)
            case "nominate" if subject not in self.taken and subject not in self.deleted:
                self.index.upsert(shown(subject, nominated="n1"))
            case "node":
                self.index.delete(stage(subject, cpu=1000 * ROOM))
                self.index.upsert(stage(subject, cpu=1000 * ROOM))

    def check(self) -> None:
        for node in NODES:
            here = [name for name, there in self.taken.items() if there == node]
            assert sum(SIZES[name] for name in here) <= ROOM, f"{here} on {node}"
            assert not {"p0", "p3"} <= set(here), f"two pods with one host port on {node}"
        assert audit(self.index) == []

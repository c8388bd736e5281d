"""Parses bench scenarios: the cluster, the incoming pods, the dimensions, and the bounds of figures.

An unknown field or a wrong type is an error with its path. Called by the command line and by tests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from extender.model.documents import DocumentError, read_document, without_nulls
from extender.settings.configuration import Settings, default_settings
from extender.settings.limits import NamespaceLimits
from extender.simulator.scenario.language import BIND_PATH, Arrive, Expect, Play, ScenarioStep

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
# "decisive": placement decisive; "best50": cooperative with a shortlist of 50 nodes; "all": cooperative with all nodes.
Answer: TypeAlias = Annotated[str, Meta(pattern="^(decisive|all|best[1-9][0-9]*)\\Z")]
Place: TypeAlias = dict[str, int | str]
Measure: TypeAlias = Literal[
    "requests",
    "events",
    "retries",
    "relabel",
    "policies",
    "gangs",
    "hostile",
    "tenants",
    "service",
    "scale",
    "standby",
    "control",
]

# Measures that need a service, and not the index in this process.
OVER_HTTP: Final = frozenset({"service", "scale", "standby"})

# The dimensions of a point, in the order of the tables.
_VARIED: Final = ("pods", "selectors", "names", "answer")
DIMENSIONS: Final = ("nodes", *_VARIED, "mode")


class Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts of a scenario."""


class PodTemplate(Part, frozen=True):
    """The template of incoming and existing pods.

    In a text `{v}` is the number of the pod's selector. The text `{t}` becomes a number from 1 to `turns`.
    """

    labels: dict[str, str]
    spec: dict[str, Any] = {}
    turns: Positive = 1


class ClusterPart(Part, frozen=True):
    """The cluster. `oneNamespace`: all pods are in one namespace, because spread counts only within a namespace.

    `replicaSets`: the owners of the pods exist, so that pods without constraints get the default ones of the system.
    `nodeLabels`: further labels of each node. `mostPerSelector`: further existing pods have no terms (required anti-affinity allows no more pods than nodes).
    """

    nodes: Positive = 5000
    zones: Positive = 10
    namespaces: Positive = 100
    node_labels: Annotated[int, Meta(ge=0)] = 0
    namespace_labels: dict[str, str] = {}
    one_namespace: bool = False
    replica_sets: bool = False
    most_per_selector: Positive = 1_000_000


class RequestsPart(Part, frozen=True):
    """The requests of each point: their number, and the share of incoming pods with a node selector.

    `perSecond` limits their rate over HTTP, as a scheduler has other work between requests; 0 is no limit.
    """

    count: Positive = 1000
    node_selector_share: Share = 0.0
    per_second: Annotated[float, Meta(ge=0)] = 0.0


class Case(Part, frozen=True):
    """A part of the matrix: every combination of its lists is a point. `measure` selects the measurements.

    `nodes` replaces those of the cluster, and is then a dimension too; 0 does not.
    """

    labels: tuple[str, ...]
    nodes: Annotated[int, Meta(ge=0)] = 0
    measure: tuple[Measure, ...] = ("requests",)
    pods: tuple[Positive, ...] = (5000,)
    selectors: tuple[Positive, ...] = (100,)
    names: tuple[Positive, ...] = (500,)
    answer: tuple[Answer, ...] = ("decisive",)
    rate: Annotated[float, Meta(ge=0)] = 0.0  # pod events per second during requests over HTTP


class Bound(Part, frozen=True):
    """One bound: a figure is at most (or at least) a number, or that many times another figure.

    `relativeTo` names another figure of the same point; `baseline` the point, by differing dimensions, with the same
    figure to compare. `where` limits the bound to points with these values, `via` to one way of measuring.
    """

    figure: str
    via: Literal["process", "http"] | None = None
    at_most: float | None = None
    at_least: float | None = None
    relative_to: str = ""
    baseline: Place = {}
    where: Place = {}

    def __post_init__(self) -> None:
        """Rejects a bound without a limit or with unknown dimensions."""
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("figure: expected either atMost or atLeast")
        if self.relative_to and self.baseline:
            raise ValueError("relativeTo: must not be set together with baseline")
        unknown = sorted({*self.baseline, *self.where} - set(DIMENSIONS))
        if unknown:
            raise ValueError(f"where: expected dimensions ({', '.join(DIMENSIONS)}), got {', '.join(unknown)}")


class BenchScenario(Part, frozen=True, kw_only=True):
    """A workload with its matrix and its bounds. `namespaceLimits` are `limits.perNamespace` of the service.

    `control` names the scenario of the same run that the measure `control` plays in turns with this one.
    """

    api_version: Literal["placement.extender.dev/v1alpha1"]
    kind: Literal["BenchScenario"]
    name: str
    control: str = ""
    description: str = ""
    seed: int = 1
    template: PodTemplate
    cluster: ClusterPart = ClusterPart()
    requests: RequestsPart = RequestsPart()
    namespace_limits: NamespaceLimits = NamespaceLimits()
    cases: tuple[Case, ...]
    bounds: tuple[Bound, ...] = ()


class Point(Struct, frozen=True):
    """One combination of the matrix within a load of the cluster."""

    names: int
    answer: str
    measures: frozenset[str]

    @property
    def settings(self) -> Settings:
        """The settings of a service with this form of answers."""
        settings = default_settings("offload")
        if self.answer == "decisive":
            return settings
        shortlist = 0 if self.answer == "all" else int(self.answer.removeprefix("best"))
        answers = msgspec.structs.replace(settings.answers, shortlist=shortlist)
        return msgspec.structs.replace(settings, placement="cooperative", answers=answers)


class Load(Struct, frozen=True):
    """One cluster, which is loaded in its own process, and the points to measure on it.

    `is_sized`: its nodes are those of the case. `control`: what its scenario is compared with.
    """

    scenario: BenchScenario
    pods: int
    selectors: int
    points: tuple[Point, ...]
    rate: float = 0.0
    is_sized: bool = False
    control: BenchScenario | None = None

    def place(self, point: Point) -> Place:
        """The point's dimensions by name; `nodes` only where the case sets them."""
        place: Place = {"nodes": self.scenario.cluster.nodes} if self.is_sized else {}
        place |= {"pods": self.pods, "selectors": self.selectors}
        return place | {"names": point.names, "answer": point.answer}


def parse_bench(document: object) -> BenchScenario:
    """Builds a scenario from a parsed YAML document. Raises DocumentError with every problem and its path."""
    scenario = read_document(without_nulls(document), BenchScenario)
    problems = [text for number, case in enumerate(scenario.cases) for text in _problems(case, number, scenario)]
    if problems:
        raise DocumentError(problems)
    return scenario


def _problems(case: Case, number: int, scenario: BenchScenario) -> Iterator[str]:
    """The problems of a case that its own types do not exclude."""
    for dimension in _VARIED:
        if not getattr(case, dimension):
            yield f"cases[{number}].{dimension}: must not be empty"
    if "control" in case.measure and not scenario.control:
        yield f"cases[{number}].measure: control is measured where the scenario names its control"
    nodes = case.nodes or scenario.cluster.nodes
    if max(case.names, default=0) > nodes:
        yield f"cases[{number}].names: must not be more than {'' if case.nodes else 'cluster.'}nodes, {nodes}"


def plan(scenario: BenchScenario, label: str = "") -> list[Load]:
    """The clusters to load for the cases with the label (all for an empty one), each point once."""
    measures: dict[tuple[int, int, int], dict[tuple[int, str], set[str]]] = {}
    rates: dict[tuple[int, int, int], float] = {}
    for case in labelled(scenario.cases, label):
        for size in itertools.product([case.nodes], case.pods, case.selectors):
            points = measures.setdefault(size, {})
            rates[size] = max(case.rate, rates.get(size, 0.0))
            for key in itertools.product(case.names, case.answer):
                points.setdefault(key, set()).update(case.measure)
    return [
        Load(
            _with_nodes(scenario, size[0]),
            *size[1:],
            tuple(Point(*point, frozenset(found)) for point, found in points.items()),
            rates[size],
            is_sized=bool(size[0]),
        )
        for size, points in measures.items()
    ]


def _with_nodes(scenario: BenchScenario, nodes: int) -> BenchScenario:
    if not nodes:
        return scenario
    return msgspec.structs.replace(scenario, cluster=msgspec.structs.replace(scenario.cluster, nodes=nodes))


CaseT = TypeVar("CaseT", "Case", "ModesCase")


def labelled(cases: Iterable[CaseT], label: str) -> Iterator[CaseT]:
    return (case for case in cases if not label or label in case.labels)


def labels_in(scenarios: Iterable[AnyScenario]) -> list[str]:
    return sorted({label for scenario in scenarios for case in scenario.cases for label in case.labels})


Mode: TypeAlias = Literal["decisive", "bind", "cooperative"]
KIND: Final = "ModesScenario"
# decisive: filter answers one node; cooperative: several, and the scheduler selects one; bind: as cooperative, and the
# extender binds.
MODES: Final[tuple[Mode, ...]] = ("decisive", "bind", "cooperative")


class ModesCase(Part, frozen=True):
    """Numbers of pods, each played once with each seed; `join` merges the runs."""

    labels: tuple[str, ...]
    pods: tuple[Positive, ...] = (2000,)
    seeds: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        """Rejects a case without pods or seeds."""
        if not (self.pods and self.seeds):
            raise ValueError("pods: there must be at least one size and one seed")


class ModesScenario(Part, frozen=True, kw_only=True):
    """A burst, its sizes, and bounds."""

    api_version: Literal["placement.extender.dev/v1alpha1"]
    kind: Literal["ModesScenario"]
    name: str
    description: str = ""
    burst: str
    cases: tuple[ModesCase, ...]
    bounds: tuple[Bound, ...] = ()


AnyScenario: TypeAlias = BenchScenario | ModesScenario


@dataclass(frozen=True, slots=True)
class ModesLoad:
    """One size of the burst. ``settings`` are those of the burst's own file."""

    scenario: ModesScenario
    burst: Play
    settings: Settings
    pods: int
    seeds: tuple[int, ...]

    def place(self, mode: Mode) -> Place:
        """The dimensions of a mode's row by name."""
        return {"pods": self.pods, "mode": mode}

    def settings_in(self, mode: Mode) -> Settings:
        """The service's settings for the mode."""
        placement: Literal["decisive", "cooperative"] = "decisive" if mode == "decisive" else "cooperative"
        server = self.settings.server
        paths = msgspec.structs.replace(server.paths, bind=BIND_PATH if mode == "bind" else "")
        server = msgspec.structs.replace(server, paths=paths)
        return msgspec.structs.replace(self.settings, placement=placement, server=server)

    def burst_in(self, mode: Mode) -> Play:
        """The burst with this number of pods; in mode bind its scheduler calls the extender to bind."""
        scheduler = msgspec.structs.replace(self.burst.scenario.scheduler, bind=mode == "bind")
        scenario = msgspec.structs.replace(self.burst.scenario, scheduler=scheduler)
        steps = tuple(self._sized(step) for step in self.burst.steps if not isinstance(step.action, Expect))
        return replace(self.burst, scenario=scenario, steps=steps)

    def _sized(self, step: ScenarioStep) -> ScenarioStep:
        if isinstance(step.action, Arrive):
            return replace(step, action=msgspec.structs.replace(step.action, count=self.pods))
        return step


def parse_modes(document: object) -> ModesScenario:
    """Builds a scenario from a parsed YAML document. Raises DocumentError with every problem and its path."""
    return read_document(without_nulls(document), ModesScenario)


def plan_modes(scenario: ModesScenario, burst: Play, settings: Settings, label: str = "") -> list[ModesLoad]:
    """One load for each size of the cases with the label. Raises DocumentError if the burst has not exactly one arrival."""
    if sum(isinstance(step.action, Arrive) for step in burst.steps) != 1:
        raise DocumentError([f"burst: expected a scenario with exactly one step arrive, which {scenario.burst} is not"])
    return [
        ModesLoad(scenario, burst, settings, pods, case.seeds)
        for case in labelled(scenario.cases, label)
        for pods in case.pods
    ]

"""Bench scenario files: the cluster, the incoming pods, what is varied, and which bounds the figures must keep.

Read strictly, each fault named by its path. Nothing is played here. Called by the command line and by tests.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from extender.model.documents import DocumentError, read_document, without_nulls
from extender.settings import Settings, default_settings

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
# "decisive" names one node where a pod's place matters to others; "best50" the best 50 nodes, "all" every one.
Answer: TypeAlias = Annotated[str, Meta(pattern="^(decisive|all|best[1-9][0-9]*)\\Z")]
Place: TypeAlias = dict[str, int | str]
Measure: TypeAlias = Literal["questions", "events", "herd", "relabel", "hostile", "service"]

# What a point of the matrix is told apart by, in the order in which tables show it.
_VARIED: Final = ("pods", "selectors", "names", "answer")
DIMENSIONS: Final = (*_VARIED, "mode")


class Part(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all parts of a scenario have in common."""


class PodTemplate(Part, frozen=True):
    """What asking and existing pods have in common.

    In texts `{v}` is the number of the pod's selector; a text that is just `{t}` becomes a number from 1 to `turns`.
    """

    labels: dict[str, str]
    spec: dict[str, Any] = {}
    turns: Positive = 1


class ClusterPart(Part, frozen=True):
    """The cluster. Pods stand in all namespaces, or with `oneNamespace` all in one, as spread counts within one only.

    `replicaSets`: the pods' owners exist, so that pods without constraints get the default ones of the system.
    `mostPerSelector`: further existing pods carry no terms (required anti-affinity has no room for more than nodes).
    """

    nodes: Positive = 5000
    zones: Positive = 10
    namespaces: Positive = 100
    namespace_labels: dict[str, str] = {}
    one_namespace: bool = False
    replica_sets: bool = False
    most_per_selector: Positive = 1_000_000


class AskingPart(Part, frozen=True):
    """How questions are asked: so many of each point, and a share of incoming pods that want nodes with an SSD.

    `perSecond` limits them over HTTP (0: as fast as they are answered), as a scheduler is busy in between.
    """

    questions: Positive = 1000
    node_selector_share: Share = 0.0
    per_second: Annotated[float, Meta(ge=0)] = 0.0


class Case(Part, frozen=True):
    """A part of the matrix: every combination of its lists is a point, and `measure` says what is measured there."""

    labels: tuple[str, ...]
    measure: tuple[Measure, ...] = ("questions",)
    pods: tuple[Positive, ...] = (5000,)
    selectors: tuple[Positive, ...] = (100,)
    names: tuple[Positive, ...] = (500,)
    answer: tuple[Answer, ...] = ("decisive",)
    rate: Annotated[float, Meta(ge=0)] = 0.0  # pod events per second while a service is asked over HTTP


class Bound(Part, frozen=True):
    """One bound: a figure is at most (or at least) a number, or that many times another figure.

    `relativeTo` names a figure of the same point; `baseline` the same figure of the point that differs in these
    dimensions. `where` limits the bound to points with these values, `via` to one of
    the ways of playing them.
    """

    figure: str
    via: Literal["process", "http"] | None = None
    at_most: float | None = None
    at_least: float | None = None
    relative_to: str = ""
    baseline: Place = {}
    where: Place = {}

    def __post_init__(self) -> None:
        """Refuse a bound that bounds nothing, or that looks at dimensions that do not exist."""
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("figure: expected either atMost or atLeast")
        if self.relative_to and self.baseline:
            raise ValueError("relativeTo: must not be set together with baseline")
        unknown = sorted({*self.baseline, *self.where} - set(DIMENSIONS))
        if unknown:
            raise ValueError(f"where: expected dimensions ({', '.join(DIMENSIONS)}), got {', '.join(unknown)}")


class Labelled(Protocol):
    """A case of any kind of bench scenario."""

    @property
    def labels(self) -> tuple[str, ...]:
        """By which it is chosen."""


CaseT = TypeVar("CaseT", bound=Labelled)


class Bounded(Protocol):
    """A bench scenario of any kind, as far as what all of them have."""

    @property
    def name(self) -> str:
        """What its rows are called."""

    @property
    def cases(self) -> Sequence[Labelled]:
        """What may be played."""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """What the figures must keep."""


class BenchScenario(Part, frozen=True, kw_only=True):
    """A workload with its matrix and its bounds."""

    api_version: Literal["placement.extender.dev/v1alpha1"]
    kind: Literal["BenchScenario"]
    name: str
    description: str = ""
    seed: int = 1
    template: PodTemplate
    cluster: ClusterPart = ClusterPart()
    asking: AskingPart = AskingPart()
    cases: tuple[Case, ...]
    bounds: tuple[Bound, ...] = ()


class Point(Struct, frozen=True):
    """One combination of the matrix within a load of the cluster."""

    names: int
    answer: str
    measures: frozenset[str]

    @property
    def settings(self) -> Settings:
        """What makes a service answer so."""
        settings = default_settings("offload")
        if self.answer == "decisive":
            return settings
        shortlist = 0 if self.answer == "all" else int(self.answer.removeprefix("best"))
        answers = msgspec.structs.replace(settings.answers, shortlist=shortlist)
        return msgspec.structs.replace(settings, placement="cooperative", answers=answers)


class Load(Struct, frozen=True):
    """One cluster to be loaded, in a process of its own, and the points that are played on it."""

    scenario: BenchScenario
    pods: int
    selectors: int
    points: tuple[Point, ...]
    rate: float = 0.0

    def place(self, point: Point) -> Place:
        """The point's dimensions by name."""
        return {"pods": self.pods, "selectors": self.selectors, "names": point.names, "answer": point.answer}


def parse_bench(document: object) -> BenchScenario:
    """Read a parsed YAML document. Raises DocumentError with every problem and its path."""
    scenario = read_document(without_nulls(document), BenchScenario)
    problems = [text for number, case in enumerate(scenario.cases) for text in _problems(case, number, scenario)]
    if problems:
        raise DocumentError(problems)
    return scenario


def _problems(case: Case, number: int, scenario: BenchScenario) -> Iterator[str]:
    """What is wrong with a case as a part of its scenario."""
    for dimension in _VARIED:
        if not getattr(case, dimension):
            yield f"cases[{number}].{dimension}: must not be empty"
    if max(case.names, default=0) > scenario.cluster.nodes:
        yield f"cases[{number}].names: must not be more than cluster.nodes, {scenario.cluster.nodes}"


def plan(scenario: BenchScenario, label: str = "") -> list[Load]:
    """The clusters to load for the cases that carry the label (all without one), each point once."""
    measures: dict[tuple[int, int], dict[tuple[int, str], set[str]]] = {}
    rates: dict[tuple[int, int], float] = {}
    for case in labelled(scenario.cases, label):
        for pods, selectors in itertools.product(case.pods, case.selectors):
            points = measures.setdefault((pods, selectors), {})
            rates[pods, selectors] = max(case.rate, rates.get((pods, selectors), 0.0))
            for key in itertools.product(case.names, case.answer):
                points.setdefault(key, set()).update(case.measure)
    return [
        Load(scenario, *key, tuple(Point(*point, frozenset(found)) for point, found in points.items()), rates[key])
        for key, points in measures.items()
    ]


def labelled(cases: Iterable[CaseT], label: str) -> Iterator[CaseT]:
    """The cases that carry a label; an empty label is carried by all."""
    return (case for case in cases if not label or label in case.labels)


def labels_in(scenarios: Iterable[Bounded]) -> list[str]:
    """Every label that stands in the scenarios."""
    return sorted({label for scenario in scenarios for case in scenario.cases for label in case.labels})

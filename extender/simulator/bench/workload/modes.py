"""Parses scenarios that play one burst of pods in each mode. Called by the command line and by tests.

The burst is another file, a scenario of `extender simulate`, with the cluster, the pods and the delay of bindings. An
unknown field or a wrong type is an error with its path.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import msgspec

from extender.model.documents import DocumentError, read_document, without_nulls
from extender.settings.configuration import Settings
from extender.simulator.bench.workload.scenario import Bound, Part, Place, Positive, labelled
from extender.simulator.scenario.language import BIND_PATH, Arrive, Expect, Play, Step

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

    def _sized(self, step: Step) -> Step:
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

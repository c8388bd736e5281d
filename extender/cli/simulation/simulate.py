"""`extender simulate`: plays a scenario with a simulated cluster and the real service, and checks the result.

The last line is `placed P, pending Q, violations V`. The exit code is 1 if a constraint was violated or the result
differs from what the scenario expects. A scenario with a `comparison` is played with and without some pods, to measure what
they cost the others (`comparison.py`).
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Self

import msgspec

from extender.cli.command import CommandError, Commands
from extender.cli.simulation.comparison import Round, describe, excesses, measure
from extender.cli.simulation.scenarios import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import StartError, service_running
from extender.compose.process import run_on_loop
from extender.compose.service import Service
from extender.index.audit import audit
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.simulator.scenario.language import CostComparison, Play
from extender.simulator.scenario.play import Narrator, Player, StepFailed
from extender.simulator.scenario.report import Cost, Report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.telemetry.logs import configure

_SHOWN = 10  # pods and violations listed by name; the JSON form lists all


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser("simulate", help="play a scenario on a simulated cluster and check the placements")
    parser.add_argument("scenario", metavar="SCENARIO", help="a scenario file, such as config/demo/scenario.yaml")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (the scenario's)")
    parser.add_argument(
        "--without",
        metavar="NAMESPACES",
        help="omit the pods of these namespaces, such as hostile-*, and the scenario's comparison",
    )
    parser.add_argument(
        "--short", action="store_true", help="fewer pods and shorter pauses, where the scenario has {full: A, short: B}"
    )
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="json: one document on standard output"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the result is as expected and no constraint was violated, else 1."""
    configure("error", "text")
    as_json, short = arguments.output == "json", arguments.short
    return simulate(arguments.scenario, arguments.seed, as_json=as_json, without=arguments.without, short=short)


def simulate(
    path: str, seed: int | None, *, as_json: bool = False, without: str | None = None, short: bool = False
) -> int:
    """Plays a scenario file and prints the result. If it has a comparison, plays all of its other runs first."""
    play = read_scenario(path, short=short)
    settings = scenario_settings(play, path)
    objects = read_objects(play, path)
    narrate: Narrator = _to_stderr if as_json else print
    used = play.scenario.seed if seed is None else seed
    comparison = play.scenario.comparison if without is None else None
    earlier, less = _played_before(path, used, comparison, short=short) if comparison else ([], None)
    try:
        report = run_on_loop(perform(play, settings, used, objects, narrate, without or ""))
    except StepFailed as error:
        raise CommandError(f"{path}: {error}") from None
    except StartError as error:
        raise CommandError(str(error)) from None
    compared: list[str] = []
    if comparison and less:
        rounds = [*earlier, Round(less, report.cost)]
        report = replace(report, failures=(*report.failures, *excesses(rounds, comparison)))
        compared = [*describe(rounds, comparison)]
    _print(report, as_json=as_json, compared=compared)
    return 0 if report.is_good else 1


def _played_before(path: str, seed: int, comparison: CostComparison, *, short: bool) -> tuple[list[Round], Cost]:
    """All runs of a comparison but the last: whole rounds, and the first run of the last round."""
    rounds = [
        Round(measure(path, seed, comparison.without, short=short), measure(path, seed, "", short=short))
        for _ in range(comparison.rounds - 1)
    ]
    return rounds, measure(path, seed, comparison.without, short=short)


async def perform(
    play: Play, settings: Settings, seed: int, objects: list[dict[str, object]], narrate: Narrator, without: str = ""
) -> Report:
    """Starts the simulated cluster and the service, runs all steps, finds violations, and recounts the index."""
    async with (
        SimulatedCluster(play, seed, objects, without=without) as simulated,
        _Extender(simulated, settings, seed) as extender,
    ):
        await simulated.begin(await extender.start(settings))
        simulated.restart_extender = extender.restart
        player = Player(simulated, narrate)
        await player.run(play.steps)
        report = await player.finish()
        # A run also fails if a count of the index differs from a recount.
        return replace(report, failures=(*report.failures, *audit(extender.service.index)))


class _Extender:
    """The service of a run, which a step of the scenario can kill and start again on the same address."""

    service: Service

    def __init__(self, simulated: SimulatedCluster, settings: Settings, seed: int) -> None:
        self._simulated = simulated
        self._settings = settings
        self._seed = seed
        self._running = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def start(self, settings: Settings) -> str:
        """Starts it with these settings; returns its URL when the webhook is reached too."""
        running = service_running(settings, self._simulated.api.url, self._seed, self._simulated.clock)
        url, self.service = await self._running.enter_async_context(running)
        await lead_to_webhook(self._simulated, self.service)
        server = msgspec.structs.replace(settings.server, bind_address=Address(url.rpartition("/")[2]))
        self._settings = msgspec.structs.replace(settings, server=server)
        return url

    async def restart(self, down: float) -> None:
        """Ends it in the middle of what it does, without a last write, and starts another one after a time."""
        await self._running.aclose()
        self._running = AsyncExitStack()
        await self._simulated.clock.sleep(down)
        await self.start(self._settings)


def _print(report: Report, *, as_json: bool, compared: Sequence[str] = ()) -> None:
    if as_json:
        print(json.dumps(report.document(), indent=2))
        _to_stderr(report.last_line)
        return
    print(
        f"\n{report.decisions} decisions on {report.nodes_used} nodes in {report.seconds:.1f} s, "
        f"{report.decisions_per_second:.0f}/s, {report.calls} calls of the extender"
    )
    for line in compared or (f"filter: {report.cost}",):
        print(line)
    if report.policies.pods:
        judged, missed = report.policies
        print(f"policies: {judged} pods judged, {missed} of them missed by admission")
        for row in report.policy_rows:
            print(row)
    for message, count in Counter(message for _, message in report.waiting).most_common(_SHOWN):
        first = next(pod for pod, said in report.waiting if said == message)
        others = f" and {count - 1} more" if count > 1 else ""
        print(f"pending: {first}{others}: {message or 'no attempt yet'}")
    for violation in (*report.violations, *report.gang_violations)[:_SHOWN]:
        print(f"violation: {violation}")
    for failure in report.failures:
        print(f"unexpected: {failure}")
    print(report.last_line)


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)

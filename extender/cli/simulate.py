"""`extender simulate`: plays a scenario with a simulated cluster and the real service, and checks the result.

The last line is `placed P, pending Q, violations V`. The exit code is 1 if a constraint was violated or the result differs from
what the scenario expects.

A scenario with a `comparison` measures what some pods cost the others:

1. A round is one run without these pods and one run with them.
2. Each run has a process of its own, because memory is compared too. The last run uses the process of the caller.
3. The median of the rounds is judged. The 99th percentile of a thousand calls depends on the ten longest, so a single round
   would show the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec

from extender.cli.files import read_yaml, read_yaml_documents
from extender.cli.main import CommandError, Commands, say
from extender.cli.progress import progress
from extender.cli.sources import add_output, print_document
from extender.compose.embedded import FREE_PORT, StartError, service_running
from extender.compose.process import run_on_loop
from extender.compose.service import Service
from extender.index.audit import audit
from extender.model.documents import DocumentError
from extender.model.units import Address, counted
from extender.settings.configuration import API_VERSION, DEFAULT_NAMESPACE, KIND, Settings, parse_settings
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from extender.simulator.scenario.language import BIND_PATH, CostComparison, Play, parse_scenario
from extender.simulator.scenario.play import Narrator, Player, StepFailed
from extender.simulator.scenario.report import Cost, Report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.simulator.scenario.synthetic import template_errors
from extender.telemetry.logs import configure

_SHOWN = 10  # pods and violations listed by name; the other forms list all
_DOCUMENTS: Final = ("json", "yaml")  # forms with one document on standard output


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    parser = commands.add_parser(
        "simulate",
        help="play a scenario on a simulated cluster and check the placements",
        examples=["config/demo/scenario.yaml --seed 1"],
    )
    parser.add_argument("scenario", metavar="SCENARIO", help="a scenario file, such as config/demo/scenario.yaml")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (the scenario's)")
    parser.add_argument(
        "--without",
        metavar="NAMESPACES",
        help="omit what steps create in these namespaces, such as hostile-*, and the scenario's comparison",
    )
    parser.add_argument(
        "--short", action="store_true", help="fewer pods and shorter pauses, where the scenario has {full: A, short: B}"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if the result is as expected and no constraint was violated, else 1."""
    configure("error", "text")
    given, short = arguments.scenario, arguments.short
    return simulate(given, arguments.seed, form=arguments.output, without=arguments.without, short=short)


def simulate(
    path: str, seed: int | None, *, form: str = "table", without: str | None = None, short: bool = False
) -> int:
    """Plays a scenario file and prints the result. If it has a comparison, plays all of its other runs first."""
    play = read_scenario(path, short=short)
    settings = scenario_settings(play, path)
    objects = read_objects(play, path)
    narrate: Narrator = _to_stderr if form in _DOCUMENTS else say
    used = play.scenario.seed if seed is None else seed
    comparison = play.scenario.comparison if without is None else None
    # The runs alternate, so that a machine that slows down in the meantime slows both kinds. This process plays the last
    # run, other processes play the rest.
    runs = [comparison.without, ""] * comparison.rounds if comparison else []
    costs = list[Cost]()
    for number, run in enumerate(runs[:-1], 1):
        narrate(f"run {number} of {len(runs)}{f', without {run}' if run else ''}")
        with progress(f"plays run {number}"):
            costs.append(measure(path, used, run, short=short))
    try:
        with progress(f"plays {path}"):
            report = run_on_loop(perform(play, settings, used, objects, narrate, without or ""))
    except StepFailed as error:
        raise CommandError(f"{path}: {error}") from None
    except StartError as error:
        raise CommandError(str(error)) from None
    compared: list[str] = []
    if comparison:
        costs.append(report.cost)
        # Even places: runs without the pods. Odd places: runs with them.
        rounds = [Round(*pair) for pair in zip(costs[::2], costs[1::2], strict=True)]
        report = replace(report, failures=(*report.failures, *excesses(rounds, comparison)))
        compared = [*describe(rounds, comparison)]
    _print(report, form, compared)
    return 0 if report.is_good else 1


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
        # The placements may be right by chance: a run also fails if a count of the index differs from a recount.
        return replace(report, failures=(*report.failures, *audit(extender.service.index)))


class _Extender:
    """The service of a run. A step of the scenario can kill it and start it again on the same address."""

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
        # The first start takes a free port. A restart must take the same one, because the scheduler keeps the URL.
        server = msgspec.structs.replace(settings.server, bind_address=Address(url.rpartition("/")[2]))
        self._settings = msgspec.structs.replace(settings, server=server)
        return url

    async def restart(self, down: float) -> None:
        """Ends the service at any point of its work, without a last write, and starts another one after ``down`` seconds."""
        await self._running.aclose()
        self._running = AsyncExitStack()
        await self._simulated.clock.sleep(down)
        await self.start(self._settings)


def _print(report: Report, form: str, compared: Sequence[str] = ()) -> None:
    most = sys.maxsize if form == "wide" else _SHOWN
    if form in _DOCUMENTS:
        print_document(report.document(), form)
        _to_stderr(report.last_line)
        return
    say(
        "",
        f"{report.decisions} decisions on {report.nodes_used} nodes in {report.seconds:.1f} s, "
        f"{report.decisions_per_second:.0f}/s, {report.calls} calls of the extender",
    )
    for line in compared or (f"filter: {report.cost}",):
        say(line)
    if report.policies.pods:
        judged, missed = report.policies
        say(f"policies: {judged} pods judged, {missed} of them missed by admission")
        for row in report.policy_rows:
            say(row)
    for namespace, moves in report.moves.items():
        say(
            f"moves in {namespace}: {counted(moves.evictions, 'eviction')}, {len(moves.in_vain)} in vain, at most {moves.worst} "
            f"not ready; broken now: {len(moves.broken)}, could be mended: {len(moves.mendable)}"
        )
    for message, count in Counter(message for _, message in report.waiting).most_common(most):
        first = next(pod for pod, said in report.waiting if said == message)
        others = f" and {count - 1} more" if count > 1 else ""
        say(f"pending: {first}{others}: {message or 'no attempt yet'}")
    for violation in (*report.violations, *report.gang_violations)[:most]:
        say(f"violation: {violation}")
    for failure in report.failures:
        say(f"unexpected: {failure}")
    say(report.last_line)


def _to_stderr(text: str) -> None:
    say(text, to=sys.stderr)


_MEGABYTE: Final = 1e6


class Round(NamedTuple):
    """The costs of one round for the other pods."""

    without: Cost
    beside: Cost

    @property
    def slowdown(self) -> float:
        """How many times the 99th percentile of processor time per call grows beside these pods."""
        # Processor time, not elapsed time: other programs on the machine must not fail a run.
        return self.beside.processor / self.without.processor if self.without.processor else 1.0

    @property
    def delay(self) -> float:
        """How many times as long the other pods wait. Reported only, because it depends on the speed of the machine."""
        return self.beside.waited / self.without.waited if self.without.waited else 1.0

    @property
    def growth(self) -> float:
        """The growth of memory in megabytes."""
        return self.beside.resident - self.without.resident


def measure(path: str, seed: int, without: str, *, short: bool) -> Cost:
    """Plays the scenario without these pods in another process. Raises CommandError if its result is not as expected."""
    command = [sys.executable, "-m", "extender", "simulate", path]
    command += ["--seed", str(seed), "--without", without, "--output", "json", *(["--short"] if short else [])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (this program)
    run = f"{path}: the run without {without or 'any'}"
    try:
        report = json.loads(ended.stdout)
        answers = report["answers"]
        times = (answers["p50Seconds"], answers["p99Seconds"], answers["p99ProcessorSeconds"])
        waited, overtaken = report["p90WaitSeconds"], report["p99Overtaken"]
        cost = Cost(answers["count"], *times, report["residentMegabytes"], waited, overtaken)
    except (ValueError, KeyError):
        raise CommandError(f"{run} failed: {ended.stderr.strip()}") from None
    # Without these pods all others must be placed. A run with them may leave some of these pods pending.
    if report["violations"] or report["failures"] or (without and report["pending"]):
        raise CommandError(f"{run} has violations, failures or pending pods: {ended.stderr.strip()}")
    return cost


def describe(rounds: Sequence[Round], comparison: CostComparison) -> Iterator[str]:
    """Two lines for each round, and one for what is judged."""
    for round_ in rounds:
        yield f"filter without {comparison.without}: {round_.without}"
        yield f"filter with these pods, for all other pods: {round_.beside}"
    slowdown, growth, overtaken = _medians(rounds)
    delay = median(round_.delay for round_ in rounds)
    of = f" (the median of {', '.join(f'{round_.slowdown:.2f}' for round_ in rounds)})" if rounds[1:] else ""
    yield (
        f"p99 of processor time {slowdown:.2f} times{of}, overtaken by {overtaken:g}, waiting {delay:.2f} times, "
        f"memory {growth:+.0f} MB"
    )


def excesses(rounds: Sequence[Round], comparison: CostComparison) -> Iterator[str]:
    """The bounds of the scenario that were exceeded."""
    slowdown, growth, overtaken = _medians(rounds)
    if comparison.max_slowdown is not None and slowdown > comparison.max_slowdown:
        yield f"comparison.maxSlowdown: expected at most {comparison.max_slowdown:g}, got {slowdown:.2f}"
    if comparison.max_overtaken is not None and overtaken > comparison.max_overtaken:
        yield f"comparison.maxOvertaken: expected at most {comparison.max_overtaken}, got {overtaken:g}"
    if comparison.max_growth is not None and growth * _MEGABYTE > comparison.max_growth:
        yield f"comparison.maxGrowth: expected at most {comparison.max_growth / _MEGABYTE:g} MB, got {growth:.0f} MB"


def _medians(rounds: Sequence[Round]) -> tuple[float, float, float]:
    figures = ((round_.slowdown, round_.growth, float(round_.beside.overtaken)) for round_ in rounds)
    slowdowns, growths, overtaken = zip(*figures, strict=True)
    return median(slowdowns), median(growths), median(overtaken)


_WEBHOOK_WITHIN_SECONDS: Final = 60.0


def read_scenario(path: str, *, short: bool = False) -> Play:
    """Reads a scenario file. Raises CommandError with a line for each problem. ``short``: its short run."""
    try:
        play = parse_scenario(read_yaml(path), short=short)
    except DocumentError as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from None
    if problems := template_errors(play.templates):
        raise CommandError(*(f"{path}: {problem}" for problem in problems))
    return play


def read_objects(play: Play, path: str) -> list[dict[str, Any]]:
    """The Kubernetes objects of the files and folders that a scenario names. Their paths are relative to its folder."""
    objects: list[dict[str, Any]] = []
    for name in play.scenario.cluster.files:
        place = Path(path).parent / name
        files = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
        for file in files:
            objects += _documents(str(file))
    return objects


def _documents(path: str) -> Iterator[dict[str, Any]]:
    for document in read_yaml_documents(path):
        if not isinstance(document, dict):
            if document is not None:
                raise CommandError(f"{path}: expected Kubernetes objects, got {type(document).__name__}")
            continue
        yield from document.get("items", [document])


def scenario_settings(play: Play, path: str, address: Address = FREE_PORT) -> Settings:
    """The extender's settings in a scenario, with this address. Raises CommandError."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **play.scenario.extender}
    try:
        settings = parse_settings(document)
    except DocumentError as error:
        raise CommandError(*(f"{path}: extender.{problem}" for problem in error.problems)) from None
    # Otherwise every binding of the run would get 404.
    if play.scenario.scheduler.bind and settings.server.paths.bind != BIND_PATH:
        raise CommandError(f"{path}: scheduler.bind: needs extender.server.paths.bind: {BIND_PATH}")
    server = msgspec.structs.replace(settings.server, bind_address=address)
    webhook = msgspec.structs.replace(settings.policies.webhook, bind_address=FREE_PORT)
    policies = msgspec.structs.replace(settings.policies, webhook=webhook)
    return msgspec.structs.replace(settings, server=server, policies=policies)


async def lead_to_webhook(simulated: SimulatedCluster, service: Service) -> None:
    """Makes the webhook's Service lead to its port, and waits until its configurations do. Raises CommandError.

    Does nothing without policies. The objects that the extender fills in (two webhook configurations and the Secret of its
    certificates) have to be in the scenario's cluster.
    """
    admission = service.admission
    if admission is None:
        return
    webhook, api = service.settings.policies.webhook, simulated.api
    home = webhook.service_namespace or DEFAULT_NAMESPACE
    needed = [(kind, str(webhook.configuration)) for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
    if webhook.certificates == "own":
        needed.append((SECRETS, f"{home}/{webhook.secret}"))
    missing = [f"{kind.kind} {key}" for kind, key in needed if key not in api.store.table(kind).objects]
    if missing:
        raise CommandError(*(f"cluster.files: extender.policies.enabled needs the {kind}" for kind in missing))
    place = urlsplit(admission.url)
    # The simulated API server resolves the Service by this table, as a real one does by ClusterIP.
    api.admission.services[home, webhook.service] = (place.hostname or "", place.port or 0)
    # A pod that is created before the CA is in the configurations would miss the policies, and the run would not
    # repeat.
    correct = admission.keeper.configurations.correct
    try:
        async with asyncio.timeout(_WEBHOOK_WITHIN_SECONDS):
            while not all(correct.values()):  # noqa: ASYNC110 (the task has no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise CommandError(f"the webhook was not configured within {_WEBHOOK_WITHIN_SECONDS:g} s") from None

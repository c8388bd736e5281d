"""`extender demo`: runs the service with a small simulated cluster, and shows it until Ctrl-C.

The API server and the scheduler are simulated; the extender is the real service, on 127.0.0.1:8888. `--once` plays the
scenario as `extender simulate` does.
"""

import argparse
import asyncio
import sys
from collections import deque
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from extender.cli.files import own_file
from extender.cli.main import CommandError, Commands, say
from extender.cli.simulate import lead_to_webhook, read_objects, read_scenario, scenario_settings, simulate
from extender.compose.embedded import StartError, service_running
from extender.compose.process import run_on_loop, until_signal
from extender.model.units import Address
from extender.simulator.scenario.overview import MOMENTS, TERMINATING, PodRow, ScenarioSummary, look
from extender.simulator.scenario.play import Player, StepFailed
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.telemetry.logs import configure

_SCENARIO: Final = "demo/scenario.yaml"
_ADDRESS: Final = "127.0.0.1:8888"


def add_parser(commands: Commands) -> None:
    """Adds the parser, with the defaults of `make run`."""
    parser = commands.add_parser("demo", help="run the extender with a small simulated cluster", examples=["--once"])
    parser.add_argument("--once", action="store_true", help="play the scenario once, check the placements, and exit")
    parser.add_argument("--scenario", metavar="FILE", help=f"scenario file (config/{_SCENARIO})")
    parser.add_argument("--seed", type=int, help="seed of the random numbers (the scenario's)")
    parser.add_argument("--bind-address", metavar="HOST:PORT", default=_ADDRESS, help="address (%(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 after Ctrl-C; with --once as `extender simulate`."""
    configure("error", "text")  # other log lines would break the table
    path = arguments.scenario or str(own_file(_SCENARIO))
    if arguments.once:
        return simulate(path, arguments.seed)
    try:
        address = Address.parse(arguments.bind_address)
    except ValueError as error:
        raise CommandError(f"--bind-address: {error}") from None
    try:
        run_on_loop(_show(path, arguments.seed, address))
    except StepFailed as error:
        raise CommandError(f"{path}: {error}") from None
    except StartError as error:
        raise CommandError(str(error)) from None
    return 0


async def _show(path: str, seed: int | None, address: Address) -> None:
    play = read_scenario(path)
    settings = scenario_settings(play, path, address)
    used = play.scenario.seed if seed is None else seed
    async with (
        SimulatedCluster(play, used, read_objects(play, path)) as simulated,
        service_running(settings, simulated.api.url, used, simulated.clock) as (url, service),
    ):
        await lead_to_webhook(simulated, service)
        # The scheduler starts last, because it calls the extender for the first pod.
        await simulated.begin(url)
        screen = LiveScreen(simulated, url) if sys.stdout.isatty() else LinePrinter(simulated, url)
        player = Player(simulated, screen.narrate)
        with screen:
            await until_signal(_play_on(player), screen.follow())


async def _play_on(player: Player) -> None:
    """Runs the steps once, then the steps of `forever` again and again, until cancelled."""
    play = player.simulated.play
    await player.run(play.steps)
    while play.forever:
        await player.run(play.forever)
    # All steps are done, and the cluster stays to be looked at.
    await asyncio.Event().wait()


_EVERY_SECONDS: Final = 0.25
_TITLES: Final = 4


class LiveScreen:
    """The cluster as one page that is redrawn at intervals."""

    def __init__(self, simulated: SimulatedCluster, url: str) -> None:
        self._simulated = simulated
        self._url = url
        self._titles: deque[str] = deque(maxlen=_TITLES)
        self._live = Live(console=Console(), auto_refresh=False, transient=False, vertical_overflow="crop")

    def narrate(self, text: str) -> None:
        """Shows the title of a step above the tables."""
        self._titles.append(text)

    async def follow(self) -> None:
        """Redraws the cluster until cancelled."""
        while True:
            self._live.update(page(look(self._simulated), self._url, list(self._titles)), refresh=True)
            await asyncio.sleep(_EVERY_SECONDS)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()


class LinePrinter:
    """One line for each step and for each pod that changes, for pipes and logs."""

    def __init__(self, simulated: SimulatedCluster, url: str) -> None:
        self._simulated = simulated
        self._url = url
        self._shown: dict[str, PodRow] = {}

    def narrate(self, text: str) -> None:
        """Prints the changes before the step, then its title."""
        self.print_changes()
        say(f"-- {text}")

    async def follow(self) -> None:
        """Prints changes until cancelled."""
        while True:
            self.print_changes()
            await asyncio.sleep(_EVERY_SECONDS)

    def print_changes(self) -> None:
        """Prints the pods that were added, deleted or changed."""
        rows = {row.name: row for row in look(self._simulated).pods}
        for name, row in rows.items():
            if self._shown.get(name) != row:
                say(_line(row))
        for name in self._shown.keys() - rows.keys():
            say(f"{name}: deleted")
        self._shown = rows

    def __enter__(self) -> Self:
        say(f"the extender listens on {self._url}; stop with Ctrl-C")
        return self

    def __exit__(self, *_: object) -> None:
        say("stopped")


def _line(row: PodRow) -> str:
    if row.node:
        policies = f" ({row.policies})" if row.policies else ""
        return f"{row.name}: on {row.node} in {row.zone}{', terminating' if row.message else ''}{policies}"
    return f"{row.name}: pending{': ' if row.message else ''}{row.message}"


def page(seen: ScenarioSummary, url: str, titles: list[str]) -> Panel:
    """The whole page at one moment."""
    story = Text("\n".join(titles), style="italic")
    right = Group(_spread_table(seen), Text(), _policy_table(seen), Text(), _reason_table(seen))
    columns = Table.grid(padding=(0, 3))
    columns.add_row(_pod_table(seen), right)
    title = f"extender demo · listening on {url} · Ctrl-C to stop"
    return Panel(Group(story, Text(), columns), title=title, title_align="left")


def _table(title: str, *columns: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=None, pad_edge=False)


def _pod_table(seen: ScenarioSummary) -> Table:
    table = _table("Pods", "pod", "node", "zone", "message")
    # Pending pods come first, because the page is cut at the height of the terminal.
    for row in sorted(seen.pods, key=lambda row: (bool(row.node), row.app, row.name)):
        style = "dim" if row.message == TERMINATING else "" if row.node else "yellow"
        table.add_row(row.name, row.node or "pending", row.zone, row.message or row.policies, style=style)
    return table


def _spread_table(seen: ScenarioSummary) -> Table:
    zones = list(seen.spreads[0].counts) if seen.spreads else []
    table = _table("Pods per zone", "workload", *zones, "skew")
    for row in seen.spreads:
        table.add_row(row.app, *(str(row.counts[zone]) for zone in zones), str(row.skew))
    return table


def _policy_table(seen: ScenarioSummary) -> Table:
    table = _table("Pods under policies", "policy", *map(str.lower, MOMENTS))
    for row in seen.policies:
        table.add_row(row.policy, *(str(row.pods[moment]) for moment in MOMENTS))
    return table


def _reason_table(seen: ScenarioSummary) -> Table:
    table = _table("Rejections", "count", "reason")
    for reason, count in seen.reasons:
        table.add_row(str(count), reason)
    return table

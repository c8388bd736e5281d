"""`extender demo`: runs the service with a small simulated cluster, and shows it until Ctrl-C.

The API server and the scheduler are simulated; the extender is the real service, on 127.0.0.1:8888. `--once` plays the
scenario as `extender simulate` does.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable
from typing import Final

from extender.cli.command import CommandError, Commands
from extender.cli.files import own_file
from extender.cli.simulation.demo_screen import LinePrinter, LiveScreen, Screen
from extender.cli.simulation.scenarios import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.cli.simulation.simulate import simulate
from extender.compose.embedded import StartError, service_running
from extender.compose.process import run_on_loop
from extender.model.units import Address
from extender.simulator.scenario.play import Player, StepFailed
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.telemetry.logs import configure

_SCENARIO: Final = "demo/scenario.yaml"
_ADDRESS: Final = "127.0.0.1:8888"


def add_parser(commands: Commands) -> None:
    """Adds the parser. The defaults are those of `make run`."""
    parser = commands.add_parser("demo", help="run the extender with a small simulated cluster")
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
        screen: Screen = LiveScreen(simulated, url) if sys.stdout.isatty() else LinePrinter(simulated, url)
        player = Player(simulated, screen.narrate)
        with screen:
            await _until_signal(_play_on(player), screen.follow())


async def _play_on(player: Player) -> None:
    """Runs the steps once, then those of `forever` repeatedly, until cancelled."""
    play = player.simulated.play
    await player.run(play.steps)
    while play.forever:
        await player.run(play.forever)
    await asyncio.Event().wait()


async def _until_signal(*work: Awaitable[None]) -> None:
    """Runs all jobs until Ctrl-C or SIGTERM, or until one fails."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    tasks = [asyncio.ensure_future(each) for each in (stopped.wait(), *work)]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    for task in done:  # raises the error of a job that has failed
        task.result()

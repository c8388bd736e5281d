"""README's picture of the demo: `python -m tests.grafana demo` plays it and draws the page as a terminal shows it."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from rich.console import Console

from extender.cli.files import own_file
from extender.cli.simulation.demo_screen import page
from extender.cli.simulation.scenarios import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.model.units import Address
from extender.simulator.scenario.language import Expect
from extender.simulator.scenario.overview import Overview, look
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from tests.grafana.files import FOLDER

DEMO_PICTURE: Final = FOLDER / "pictures" / "demo.svg"
_SHOWN_URL: Final = "http://127.0.0.1:8888"
_WIDTH: Final = 146
_TITLES: Final = 4
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


async def write_demo_picture() -> None:
    """Play the demo up to the first state that it expects, in which pods are pending, and draw that."""
    path = str(own_file("demo/scenario.yaml"))
    play = read_scenario(path)
    settings = scenario_settings(play, path, Address.parse("127.0.0.1:0"))
    seed = play.scenario.seed
    titles: list[str] = []
    async with (
        SimulatedCluster(play, seed, read_objects(play, path)) as simulated,
        service_running(settings, simulated.api.url, seed, simulated.clock) as (url, service),
    ):
        await lead_to_webhook(simulated, service)
        await simulated.begin(url)
        steps = takewhile(lambda step: not isinstance(step.action, Expect), play.steps)
        await Player(simulated, titles.append).run(steps)
        DEMO_PICTURE.write_text(demo_svg(look(simulated), titles[-_TITLES:]), "utf-8")


def demo_svg(seen: Overview, titles: list[str]) -> str:
    """The page as an SVG, in the colours of a terminal."""
    with Path("/dev/null").open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=_WIDTH, file=nowhere, force_terminal=True, legacy_windows=False)
        console.print(page(seen, _SHOWN_URL, titles))
        svg = console.export_svg(title="make run", unique_id="demo")
    svg = _FONT.sub("", svg)  # rich names a font by URL; a picture on a web page may load nothing
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def words(svg: str) -> list[str]:
    """The texts of a picture, without the spaces around them and what is only a frame."""
    root = ET.fromstring(svg)  # noqa: S314 -- our own file
    pieces = (found.text or "" for found in root.iter("{http://www.w3.org/2000/svg}text"))
    return [word for piece in pieces for word in re.split(r"\s{2,}|[│╭╮╰╯─]+", piece.replace("\xa0", " ").strip())]

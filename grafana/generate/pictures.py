"""Pictures of the dashboards from a real run: `python -m grafana.generate pictures` plays it, asks and draws.

The demo is played by more and more players; for a while faults are provoked and the apiserver comes back without its
past. The queries, legends and places are those of the files in grafana/dashboards. No test holds the figures.
"""

import asyncio
import json
import math
import re
import shutil
import tempfile
import time
from itertools import takewhile
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

from rich.console import Console

from extender.cli.demo import page
from extender.cli.files import own_file
from extender.cli.simulate import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.model.units import Address
from extender.simulator.scenario.language import Expect
from extender.simulator.scenario.overview import ScenarioSummary, look
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from grafana.generate.drawing import Series, Span, draw
from grafana.generate.files import DASHBOARDS, FOLDER
from grafana.generate.observed import Prometheus, Scene, going_on, scene
from grafana.generate.panels import Json

PICTURES = FOLDER / "pictures"

_SPAN = Span(length=300.0, step=2.0, marked=(120.0, 210.0))
_RESTART_AT = 165.0
_DOWN = 2.0
_PLAYERS = 8
_ANOTHER_EVERY = 12.0
_ROUND = 1.5
_FILLED_IN = {"$__rate_interval": "20s", "$cluster": ".*", "$namespace": ".*", "$job": ".*", "$instance": ".*"}


async def write_pictures() -> None:
    """Play, ask, draw. SystemExit where Prometheus is missing or a panel shows nothing."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("prometheus is not installed: apt-get install prometheus")
    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder), program) as found:
            begun = await _played(found)
            version = (await found.server.get("status/buildinfo"))["version"]
            caption = f"Prometheus {version}, {_SPAN.length / 60:g} minutes of the demo; in the shaded time faults were provoked"
            documents = {dashboard.file: _document(dashboard.file) for dashboard in DASHBOARDS}
            answers = {file: await _answers(found.server, each, begun) for file, each in documents.items()}
    PICTURES.mkdir(exist_ok=True)
    for file, document in documents.items():
        picture = draw(document, answers[file], _SPAN, caption)
        (PICTURES / file).with_suffix(".svg").write_text(picture, "utf-8")


async def _played(found: Scene) -> float:
    """The Unix time at which it began, once all of it is over."""
    await Player(found.simulated).run(found.simulated.play.steps)
    begun = time.time()
    async with going_on(_players(found.simulated)):
        await _until(begun + _SPAN.marked[0])
        async with going_on(found.provoked.run(_ROUND)):
            await _until(begun + _RESTART_AT)
        await found.simulated.api.restart(_DOWN, new_history=True)
        async with going_on(found.provoked.run(_ROUND)):
            await _until(begun + _SPAN.marked[1])
        found.provoked.clear_away()
        await _until(begun + _SPAN.length)
    return begun


async def _players(simulated: SimulatedCluster) -> None:
    """One after the other begins what the demo does for ever."""
    async with asyncio.TaskGroup() as group:
        for _ in range(_PLAYERS):
            group.create_task(_for_ever(Player(simulated)))
            await asyncio.sleep(_ANOTHER_EVERY)


async def _for_ever(player: Player) -> None:
    while True:
        await player.run(player.simulated.play.forever)


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


def _document(file: str) -> Json:
    found: Json = json.loads((FOLDER / "dashboards" / file).read_text("utf-8"))
    return found


async def _answers(server: Prometheus, document: Json, begun: float) -> dict[int, list[Series]]:
    """The series of each panel by its id. SystemExit for a panel without any."""
    found: dict[int, list[Series]] = {}
    for panel in document["panels"]:
        series = found[panel["id"]] = []
        for target in panel.get("targets", []):
            expression = re.sub(r"\$\w+", lambda variable: _FILLED_IN[variable.group()], target["expr"])
            rows = await server.curves(expression, begun, _SPAN.length, _SPAN.step)
            series += [_series(target["legendFormat"], row, begun) for row in rows]
        if panel["type"] != "row" and not any(each.points for each in series):
            raise SystemExit(f"{document['title']} / {panel['title']}: no data")
    return found


def _series(legend: str, row: dict[str, Any], begun: float) -> Series:
    """An answer under the legend as Grafana fills it in, without the values that are no numbers."""
    name = re.sub(r"{{(\w+)}}", lambda label: row["metric"].get(label[1], ""), legend)
    values = [(float(at) - begun, float(value)) for at, value in row["values"]]
    return Series(name, [(at, value) for at, value in values if math.isfinite(value)])


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


def demo_svg(seen: ScenarioSummary, titles: list[str]) -> str:
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

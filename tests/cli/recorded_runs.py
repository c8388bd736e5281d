"""A recorded run, and the differences that a replay reports."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import orjson
import pytest
import yaml

from extender.cli.main import main
from extender.cli.simulate import lead_to_webhook, read_objects, read_scenario, scenario_settings
from extender.compose.embedded import service_running
from extender.settings.jobs import RecorderSettings
from extender.simulator.apiserver.kinds import KINDS, PODS
from extender.simulator.scenario.language import RestartExtender
from extender.simulator.scenario.play import Player
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.wire.recordings.redaction import WORDS
from tests.fakes import PATIENCE

LAST_POD = {"metadata": {"name": "last", "namespace": "default"}, "spec": {"schedulerName": "of-the-last-question"}}


async def record(
    scenario: str,
    path: Path,
    names: set[str] | None = None,
    key: bytes = b"",
    *,
    until: Callable[[], bool] = lambda: True,
    **chosen: Any,
) -> int:
    """Plays the short run of a scenario with the real service, which records; returns how many questions it decided.

    ``names`` is given the names, labels and annotations of all objects that the simulated API server had. After the play
    the service is asked about one pod more, again and again, until ``until`` holds. The API server has that pod, because a
    service records no question about a pod that its watch does not show.
    """
    play = read_scenario(scenario, short=True)
    settings = scenario_settings(play, scenario)
    settings = msgspec.structs.replace(settings, recorder=RecorderSettings(path=str(path), **chosen))
    async with (
        SimulatedCluster(play, 1, read_objects(play, scenario)) as simulated,
        service_running(settings, simulated.api.url, 1, simulated.clock, key) as (url, service),
    ):
        await lead_to_webhook(simulated, service)
        await simulated.begin(url)
        player = Player(simulated)
        await player.run(step for step in play.steps if not isinstance(step.action, RestartExtender))
        await player.finish()
        if not until():
            await _filter_until(until, url, simulated.api.store.put(PODS, LAST_POD).read())
        if names is not None:
            names |= {
                name
                for kind in KINDS
                for each in simulated.api.store.table(kind).latest()
                for name in own_names(each.read())
            }
    assert service.filter_service is not None
    return service.filter_service.requests


async def _filter_until(holds: Callable[[], bool], url: str, pod: Any) -> None:
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        while not holds():
            async with session.post(f"{url}/filter", json={"Pod": pod, "NodeNames": ["open-0"]}) as answer:
                assert answer.status == 200
            await asyncio.sleep(0.01)


def own_names(obj: Any) -> set[str]:
    """The names of an object, its labels and its annotations, as far as they are no words of Kubernetes."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    found = {str(metadata.get(name) or "") for name in ("name", "namespace", "uid")}
    found |= {str(spec.get(name) or "") for name in ("nodeName", "serviceAccountName", "priorityClassName")}
    for pairs in (metadata.get("labels") or {}, metadata.get("annotations") or {}):
        found |= {part for key, value in pairs.items() for text in (key, value) for part in parts_of(text)}
    words = {part for word in WORDS for part in (word, *word.split("/"))}
    return {each for each in found - words - {""} if not each.isdecimal()}


def parts_of(text: str) -> set[str]:
    """A text and the parts of a key or a pair; of JSON only the texts in it."""
    return texts_of(orjson.loads(text)) if text.startswith("{") else {text, *text.split("/")}


def texts_of(value: Any) -> set[str]:
    """All texts of a JSON value, with the parts of each."""
    if isinstance(value, str):
        return parts_of(value)
    if isinstance(value, dict):
        return {text for each in (*value, *value.values()) for text in texts_of(each)}
    return {text for each in value for text in texts_of(each)} if isinstance(value, list) else set()


def replayed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """The exit code and the document of ``-o json``."""
    capsys.readouterr()
    code = main(["replay", *map(str, arguments), "-o", "json"])
    return code, orjson.loads(capsys.readouterr().out)


def arrivals_of_gangs(folder: Path, placement: str) -> str:
    """The shipped scenario of gangs without what restarts the extender or changes nodes."""
    source = Path("config/scenarios/gangs.yaml")
    scenario = yaml.safe_load(source.read_text("utf-8"))
    arrivals = [step for step in scenario["steps"] if "arriveGroups" in step or "arrive" in step]
    scenario["steps"] = [*arrivals, {"settle": {"calm": "2s", "timeout": "1m"}}]
    scenario["extender"]["placement"] = placement
    shutil.copytree(source.with_suffix(""), folder / "gangs")
    (folder / "gangs.yaml").write_text(yaml.safe_dump(scenario), "utf-8")
    return str(folder / "gangs.yaml")


def with_shortlists(folder: Path, name: str) -> str:
    """A shipped scenario whose answers are lists, so that kube-scheduler scores nodes and asks for our scores."""
    source = Path(f"config/scenarios/{name}.yaml")
    scenario = yaml.safe_load(source.read_text("utf-8"))
    scenario["extender"]["answers"] = {"names": "shortlist"}
    shutil.copytree(source.with_suffix(""), folder / name)
    (folder / source.name).write_text(yaml.safe_dump(scenario), "utf-8")
    return str(folder / source.name)


def readme_block(path: str, beginning: str) -> str:
    """The block of text in a README that has a line which begins so."""
    blocks = Path(path).read_text("utf-8").split("```")[1::2]
    (block,) = (each for each in blocks if f"\n{beginning}" in each)
    return block.removeprefix("text\n")


def without_counts(printed: str) -> list[str]:
    """The lines in their order, those about pods sorted; how often pods were tried depends on the machine."""
    lines = [re.sub(r"\d+ (questions|changes|answers)", r"N \1", line) for line in printed.splitlines()]
    return sorted(lines) if lines else []

"""Three ways to preempt, timed on one cluster, and the lines that record them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import orjson
import pytest

from tests.e2e.making_room import WAYS, Crowd, Ground, Outcome, ground

RESULTS = Path(__file__).resolve().parents[2] / "results" / "e2e-preemption.json"


def sizes() -> list[int]:
    """The numbers of nodes that were asked for."""
    return [int(number) for number in os.environ.get("PREEMPTION_NODES", "").split()] or [100, 300, 500]


async def play(assets: Path, folder: Path, capsys: pytest.CaptureFixture[str], crowd: Crowd, rounds: int = 1) -> None:
    """Every way in turn, so many times; the table; and what must hold of all."""
    report = teller(capsys)
    report(f"{crowd.nodes} nodes, {crowd.preemptors} preemptors")
    async with ground(assets, folder, crowd) as course:
        outcomes = [await measured(course, crowd, way, report) for way in in_turns(rounds)]
    report(comparison(crowd, outcomes))
    record(crowd, outcomes)
    check(crowd, outcomes)


def in_turns(rounds: int) -> list[str]:
    """Every way in each round, another one first each time: what comes first meets a control plane that is still cold."""
    ways = [*WAYS]
    return [way for at in range(rounds) for way in ways[at % len(ways) :] + ways[: at % len(ways)]]


def teller(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a line at once."""

    def report(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}", end="", flush=True)  # noqa: T201 -- minutes pass between two lines

    return report


async def measured(course: Ground, crowd: Crowd, way: str, report: Callable[[str], None], slowed: str = "") -> Outcome:
    """One run, told."""
    outcome = await course.measure(way, slowed)
    report(line(outcome, crowd))
    return outcome


def check(crowd: Crowd, outcomes: list[Outcome]) -> None:
    """All have room, none is stuck; with ours no more pods than needed had to go. What the scheduler takes is its own."""
    assert {(each.bound, each.stuck) for each in outcomes} == {(crowd.preemptors, 0)}
    assert {each.victims for each in outcomes if each.way == "execute"} == {crowd.needed}


def line(outcome: Outcome, crowd: Crowd) -> str:
    """One run, for people."""
    per_preemption = sum(outcome.calls.values()) / crowd.preemptors
    cpu = "/".join(f"{seconds:.1f}" for seconds in outcome.cpu.values())
    return (
        f"{outcome.way:8} last bound {outcome.seconds:6.2f} s  others {outcome.others:5.1f}/s, wait {outcome.wait:6.3f} s  "
        f"{per_preemption:5.1f} calls and {outcome.cycles / crowd.preemptors:4.1f} cycles each  victims {outcome.victims}/{crowd.needed}  stuck {outcome.stuck}  "
        f"cpu {cpu} s  load {outcome.load}"
    )


def comparison(crowd: Crowd, outcomes: list[Outcome]) -> str:
    """Execute against the better of the two others, by the medians of all rounds. Processor time is that of all programs."""

    def medians(of: Callable[[Outcome], float]) -> dict[str, float]:
        return {way: median(of(each) for each in outcomes if each.way == way) for way in WAYS}

    def against(found: dict[str, float], better: Callable[[float, float], float]) -> float:
        return found["execute"] / better(found["async"], found["sync"])

    ratio = f"execute/best: time {against(medians(lambda each: each.seconds), min):.2f}"
    if not crowd.others:
        used = against(medians(lambda each: sum(each.cpu.values())), min)
        return f"{ratio}, processor time {used:.2f}\n"
    rate, wait = against(medians(lambda each: each.others), max), against(medians(lambda each: each.wait), min)
    return f"{ratio}, others' rate {rate:.2f}, others' wait {wait:.2f}\n"


def record(crowd: Crowd, outcomes: list[Outcome]) -> None:
    """All figures, added to the file."""
    RESULTS.parent.mkdir(exist_ok=True)
    earlier = orjson.loads(RESULTS.read_bytes()) if RESULTS.exists() else []
    entry = {"crowd": asdict(crowd), "runs": [asdict(each) for each in outcomes]}
    RESULTS.write_bytes(orjson.dumps([*earlier, entry], option=orjson.OPT_INDENT_2))

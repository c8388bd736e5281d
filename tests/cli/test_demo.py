"""`extender demo`: once through with a verdict, or live until told to end; on a terminal a page, else plain lines."""

import asyncio
import os
import pty
import re
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from extender.cli.demo import page
from extender.cli.main import main
from extender.model.policies import Moment
from extender.simulator.scenario.overview import PodRow, PolicyTimeline, ScenarioSummary, SpreadRow
from tests.fakes import PATIENCE

README = Path(__file__).parents[2] / "README.md"
DEMO = (sys.executable, "-m", "extender", "demo", "--bind-address", "127.0.0.1:0")


def test_once_plays_the_scenario_and_shows_policies_at_admission_at_scheduling_and_at_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The README quotes this output: what is not a measured time is the same there."""
    assert main(["demo", "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Web servers keep apart from each other across both storefront namespaces" in lines
    acted = "injected nodeSelector into 3 pods at admission, held 1 that admission missed"
    shown = [
        "policies: 4 pods judged, 1 of them missed by admission",
        f"policy lab/batch-on-ssd: {acted}",
        "policy lab/gangs-in-one-zone: released 4 pods from their gate",
        "placed 34, pending 0, violations 0",
    ]
    assert lines[-4:] == shown
    assert "\n".join(shown) in README.read_text("utf-8")


async def _seen_until(words: str, times: int = 1) -> str:
    """What the demo prints until it has said this so many times; ended by Ctrl-C then."""
    process = await asyncio.create_subprocess_exec(*DEMO, stdout=PIPE)
    assert process.stdout
    seen = ""
    async with asyncio.timeout(PATIENCE):
        while seen.count(words) < times:
            line = (await process.stdout.readline()).decode()
            assert line, f"it ended by itself:\n{seen}"
            seen += line
        process.send_signal(signal.SIGINT)
        await process.stdout.read()
        assert await process.wait() == 0
    return seen


async def test_it_shows_which_fields_admission_injected_and_which_pod_filter_held() -> None:
    seen = (await _seen_until("held by filter")).splitlines()
    placed = [line for line in seen if re.match(r"lab/batch-[123]: on ", line)]
    injected = r"lab/batch-\d: on (n1|n2|e1|e2|s1|s2) in \w+ \(lab/batch-on-ssd: injected nodeSelector disk=ssd\)"
    assert len(placed) == 3
    assert all(re.fullmatch(injected, line) for line in placed)
    held = r"lab/batch-4: on (n1|n2|e1|e2|s1|s2) in \w+ \(lab/batch-on-ssd: missed by admission, held by filter\)"
    assert re.fullmatch(held, seen[-1])


async def test_it_shows_a_gang_that_waits_at_its_gate_and_is_released_into_one_zone() -> None:
    seen = await _seen_until("released with group nets", times=4)
    waiting = re.findall(r"^lab/trainer-\d: (.*)$", seen.partition("The fourth is created")[0], re.MULTILINE)
    assert set(waiting) == {"pending: held at the gate placement.extender.dev/group"}
    released = r"^lab/trainer-\d: on \S+ in (\w+) \(lab/gangs-in-one-zone: released with group nets\)$"
    zones = re.findall(released, seen, re.MULTILINE)
    assert (len(zones), len(set(zones))) == (4, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_without_a_terminal_it_prints_lines_until_it_is_reported_to_end(number: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(*DEMO, stdout=PIPE)
    assert process.stdout
    seen = ""
    async with asyncio.timeout(PATIENCE):
        while not re.search(r"^shop\S*/web-0: on \S+ in \w+$", seen, re.MULTILINE):
            line = (await process.stdout.readline()).decode()
            assert line, f"it ended by itself:\n{seen}"
            seen += line
        process.send_signal(number)
        rest = (await process.stdout.read()).decode()
        assert await process.wait() == 0
    assert re.match(r"the extender listens on http://127\.0\.0\.1:\d+; stop with Ctrl-C\n", seen)
    assert rest.endswith("stopped\n")


async def test_on_a_terminal_it_draws_a_page_and_ctrl_c_ends_it() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "50"}
    process = await asyncio.create_subprocess_exec(
        *DEMO, stdin=theirs, stdout=theirs, stderr=DEVNULL, env=environment, start_new_session=True
    )
    os.close(theirs)
    loop = asyncio.get_running_loop()
    seen = b""
    try:
        async with asyncio.timeout(PATIENCE):
            while b"Pods per zone" not in seen:
                seen += await loop.run_in_executor(None, os.read, ours, 65_536)
            process.send_signal(signal.SIGINT)
            await _drain(ours)
            assert await process.wait() == 0
    finally:
        os.close(ours)
    assert "extender demo · listening on http://127.0.0.1:".encode() in seen


async def _drain(terminal: int) -> None:
    """Read what is still drawn; Linux says EIO at the end."""
    loop = asyncio.get_running_loop()
    try:
        while await loop.run_in_executor(None, os.read, terminal, 65_536):
            pass
    except OSError:
        return


def test_a_page_shows_pods_skew_and_rejections() -> None:
    pods = [
        PodRow("team/web-0", "web", "n1", "z1", ""),
        PodRow("team/web-1", "web", "", "", "0/2 nodes are available."),
        PodRow("team/web-2", "web", "n1", "z1", "ending"),
    ]
    pods.append(PodRow("lab/batch-1", "batch", "n1", "z1", "", "lab/ssd: injected nodeSelector disk=ssd"))
    policies = [
        PolicyTimeline("lab/ssd", ("nodeSelector",), {Moment.ADMISSION: 5, Moment.SCHEDULING: 6, Moment.RELEASE: 0}),
        PolicyTimeline("lab/gangs", (), {Moment.ADMISSION: 0, Moment.SCHEDULING: 0, Moment.RELEASE: 4}),
    ]
    seen = ScenarioSummary(pods, [SpreadRow("web", {"z1": 2, "z2": 0})], [("too crowded", 3)], policies)
    output = StringIO()
    Console(width=120, file=output).print(page(seen, "http://here:1", ["A step"]))
    text = output.getvalue()
    assert re.search(r"team/web-1 +pending +0/2 nodes are available\.", text)
    assert re.search(r"web +2 +0 +2 ", text)
    assert re.search(r"3 +too crowded", text)
    assert re.search(r"lab/batch-1 +n1 +z1 +lab/ssd: injected nodeSelector disk=ssd", text)
    assert re.search(r"policy +admission +scheduling +release", text)
    assert re.search(r"lab/ssd +5 +6 +0", text)
    assert re.search(r"lab/gangs +0 +0 +4", text)
    assert text.index("team/web-1") < text.index("team/web-0")  # the waiting pod stands first
    assert "A step" in text


def test_an_address_that_cannot_be_had_is_reported_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["demo", "--bind-address", address]) == 1
    assert f"extender: cannot listen on {address}: " in capsys.readouterr().err
    assert main(["demo", "--bind-address", "nonsense"]) == 1
    assert "extender: --bind-address: " in capsys.readouterr().err


def test_a_demo_that_is_not_there_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "scenario.yaml")
    assert main(["demo", "--scenario", missing]) == 1
    assert f"extender: {missing}: No such file or directory" in capsys.readouterr().err

"""The recorder never holds up an answer: a full queue, a full disk and a small limit drop records, which it counts."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import msgspec
import orjson
import pytest

from extender.model.units import ByteSize
from extender.settings.jobs import RecorderSettings
from extender.tasks import recorder as recorder_module
from extender.verbs.preempt import decide_preemption
from tests.builders import extender_args, node, pod, pod_json, preempting, settings, term
from tests.contenders import contender, contender_json, stage
from tests.fakes import PATIENCE, until
from tests.tasks.recorded_requests import Recorded, chosen, replayed


async def test_questions_are_written_with_what_they_depend_on(tmp_path: Path) -> None:
    path = tmp_path / "file"
    recorded = Recorded(chosen(path))
    async with recorded.running():
        recorded.request(1)
        recorded.index.upsert(pod("existing", on="n1"))
        recorded.request(2)
    replay = replayed(path)
    assert (replay.asked, replay.changes, replay.versions) == (2, 3, ["test"])
    assert recorded.recorder.results() == {"written": 6, "dropped": 0}
    assert recorded.recorder.bytes == path.stat().st_size
    assert path.stat().st_mode & 0o077 == 0


async def test_a_sample_has_its_share_of_the_questions_and_every_change(tmp_path: Path) -> None:
    path = tmp_path / "file"
    recorded = Recorded(chosen(path, sampling=0.25))
    async with recorded.running():
        for number in range(40):
            recorded.request(number)
            recorded.index.upsert(pod(f"existing-{number}", on="n1"))
    replay = replayed(path)
    assert (replay.asked, replay.changes) == (10, 42)


async def test_a_full_queue_drops_and_the_recording_goes_on_with_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_WAITING", 10)
    path = tmp_path / "file"
    recorded = Recorded(chosen(path))
    recorded.request(0)
    for number in range(20):
        recorded.index.upsert(pod(f"existing-{number}", on="n1"))
    assert recorded.recorder.dropped == 13
    async with recorded.running():
        await until(lambda: path.exists() and b"existing-19" in path.read_bytes())
        recorded.request(1)
    replay = replayed(path)
    assert (replay.asked, len(replay.versions)) == (2, 2)


async def test_a_victim_that_was_deleted_before_the_state_was_written_is_deleted_in_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler offers pods for a moment after their deletion. The index knows them by hashes, which no state has."""
    monkeypatch.setattr(recorder_module, "MOST_WAITING", 10)
    path, used = tmp_path / "file", settings(preemption={"mode": "execute"})
    recorded = Recorded(msgspec.structs.replace(chosen(path), preemption=used.preemption))
    index = recorded.index
    full = [(stage(f"n{number}"), contender(f"v{number}", on=f"n{number}", cpu=4000)) for number in (1, 2)]
    for machine, victim in full:
        index.upsert(machine)
        index.upsert(victim)
    index.upsert(contender("waits", cpu=2000, priority=9))
    deleted = contender("deleted", on="n1", cpu=100)
    index.upsert(deleted)
    index.delete(deleted)
    for number in range(20):
        index.upsert(pod(f"existing-{number}"))
    args = preempting(
        contender_json("waits", cpu=2000, priority=9), {"n1": ["uid-v1", "uid-deleted"], "n2": ["uid-v2"]}
    )
    async with recorded.running():
        await until(lambda: path.exists() and b"existing-19" in path.read_bytes())
        for seed in (0, 1):
            decision = decide_preemption(args, index.view, used, seed)
            assert decision.plan is not None
            assert decision.plan.node == f"n{seed + 1}"
            recorded.recorder.record_preempt(args, seed, decision)
    assert replayed(path).asked == 2


async def test_objects_that_are_listed_before_the_first_question_are_not_counted_as_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MOST_WAITING", 10)
    path = tmp_path / "file"
    recorded = Recorded(chosen(path))
    for number in range(20):
        recorded.index.upsert(pod(f"existing-{number}", on="n1"))
    async with recorded.running():
        await until(lambda: path.exists() and b"existing-19" in path.read_bytes())
        recorded.request(1)
    assert recorded.recorder.dropped == 0
    assert replayed(path).asked == 1


async def test_a_recorder_that_is_stopped_while_it_writes_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, writing, goes_on = tmp_path / "file", threading.Event(), threading.Event()
    recorded = Recorded(chosen(path))
    write = os.write

    def slowly(descriptor: int, piece: bytes) -> int:
        writing.set()
        goes_on.wait(PATIENCE)
        return write(descriptor, piece)

    monkeypatch.setattr(os, "write", slowly)
    async with recorded.running():
        recorded.request(1)
        await until(writing.is_set)
        recorded.request(2)
        asyncio.get_running_loop().call_later(0.01, goes_on.set)
    assert replayed(path).asked == 2
    assert recorded.recorder.results() == {"written": 5, "dropped": 0}


async def test_a_disk_that_is_full_for_a_time_costs_the_records_of_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    recorded = Recorded(chosen(path))
    write, is_full = os.write, True

    def part_of_it(descriptor: int, piece: bytes) -> int:
        if not is_full:
            return write(descriptor, piece)
        if len(piece) <= 7:
            raise OSError(28, "No space left on device")
        return write(descriptor, piece[: len(piece) - 7])

    monkeypatch.setattr(os, "write", part_of_it)
    async with recorded.running():
        recorded.request(1)
        await until(lambda: recorded.recorder.dropped)
        recorded.request(2)
        is_full = False
        await until(lambda: recorded.recorder.written)
        recorded.request(3)
    replay = replayed(path)
    assert 1 <= replay.asked < 3  # never the first one
    assert replay.changes == 2


async def test_a_folder_that_does_not_exist_hinders_no_answer(tmp_path: Path) -> None:
    recorded = Recorded(chosen(tmp_path / "absent" / "file"))
    async with recorded.running():
        recorded.request(1)
        await until(lambda: recorded.recorder.dropped >= 3)
    assert recorded.recorder.written == 0


async def test_a_limit_below_the_state_ends_the_recording(tmp_path: Path) -> None:
    recorded = Recorded(chosen(tmp_path / "file", max_bytes=ByteSize(1024)))
    async with recorded.running():
        await until(lambda: recorded.index.journal.note is None)
    recorded.request(1)
    assert recorded.recorder.dropped > 0


async def test_the_file_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"earlier")
    recorded = Recorded(chosen(path))
    async with recorded.running():
        recorded.request(1)
    assert (tmp_path / "file.1").read_bytes() == b"earlier"
    assert orjson.loads(path.read_bytes().splitlines()[0])["type"] == "start"


async def test_a_node_that_was_chosen_because_it_is_seldom_offered_is_chosen_again_by_a_replay(tmp_path: Path) -> None:
    """Also from a sample of the questions, which does not tell what was offered before."""
    path, lonely = tmp_path / "file", pod_json("lonely", app="web", apart=[term("host", app="web")])
    used = settings(placement="decisive")
    recorded = Recorded(msgspec.structs.replace(used, recorder=RecorderSettings(path=str(path), sampling=0.5)))
    for name in ("n3", "n4", "n5"):
        recorded.index.upsert(node(name))
    recorded.index.upsert(pod("web", on="n5", app="web"))
    answers: list[str] = []
    async with recorded.running():
        for names in (("n1", "n2", "n5"), ("n1", "n2", "n3", "n5"), ("n1", "n2", "n5"), ("n1", "n2", "n4", "n5")):
            answers += recorded.verb.decide(extender_args(lonely, *names), seed=0).result.passed
    assert answers[1::2] == ["n3", "n4"]
    assert replayed(path).asked == 2

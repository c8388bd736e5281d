"""A recorder with a small queue and a small disk, and the records that it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from extender.compose.replay import Replay
from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.jobs import RecorderSettings
from extender.tasks.recorder import RecordedFilterVerb, Recorder
from tests.builders import extender_args, node, pod_json, settings
from tests.fakes import FakeClock


def chosen(path: object, **more: Any) -> Settings:
    return msgspec.structs.replace(settings(), recorder=RecorderSettings(path=str(path), **more))


class Recorded:
    """An index with two nodes, its recorder and the verb."""

    def __init__(self, used: Settings) -> None:
        self.index = ClusterIndex(used.rules, counts_of_rules())
        self.recorder = Recorder(self.index, used, FakeClock(), lambda: 0.0, "test")
        self.verb = RecordedFilterVerb(self.recorder, self.index, used)
        for name in ("n1", "n2"):
            self.index.upsert(node(name))

    def request(self, number: int) -> None:
        """One question, about a pod that the watch does not show."""
        self.verb.decide(extender_args(pod_json(f"asking-{number}"), "n1", "n2"), seed=number)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the recorder runs; afterwards everything is written."""
        task = asyncio.create_task(self.recorder.run())
        await asyncio.sleep(0)  # a task that is cancelled before it begins ends nothing
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def replayed(path: Path) -> Replay:
    """The replay of a file that is not compressed."""
    replay = Replay()
    replay.run(path.read_bytes().splitlines(keepends=True))
    assert replay.differences == []
    return replay

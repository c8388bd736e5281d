"""What-ifs in child processes that end, spin, grow or raise."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import pytest

from extender.compose.process import LOOP_FACTORY
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.timing import SystemClock
from extender.model.answers.explanations import NoAnswerCause
from extender.model.answers.what_if import NotComputed, WhatIfAnswer
from extender.model.bounded import Steps
from extender.model.objects import Object
from extender.model.units import ByteSize, Duration
from extender.settings.configuration import Settings
from extender.settings.jobs import WhatIfSettings
from extender.tasks.what_if.computing import answer_body
from extender.tasks.what_if.service import Meter, WhatIfService, start_child
from tests.builders import Json, index_of, node, node_json, pod, pod_json, term
from tests.explaining import finished

ROOM: Final = {"cpu": "4", "pods": "9"}
OWNER: Final = ("ReplicaSet", "web")
SETTINGS: Final = Settings()
CHANGES: Final = {
    "delete": [{"kind": "Node", "name": "n0"}],
    "apply": [
        node_json("n9", zone="z9", allocatable=ROOM) | {"kind": "Node"},
        pod_json("given", app="web", apart=[term("zone", app="web")]) | {"kind": "Pod"},
    ],
}
LOOPS: Final = [asyncio.new_event_loop, *([LOOP_FACTORY] if LOOP_FACTORY is not None else [])]


def on_loop(
    test: Callable[..., Coroutine[Any, Any, None]], loops: Sequence[object] = LOOPS[-1:]
) -> Callable[..., None]:
    """Plays a test on the loop of the service; no child is left after it."""

    @wraps(test)
    def play(make_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test(**fixtures))
        assert children() == []

    given = inspect.Parameter("make_loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.signature(test)
    play.__signature__ = signature.replace(parameters=[given, *signature.parameters.values()])  # type: ignore[attr-defined]  # pytest reads it
    pytest.mark.parametrize("make_loop", loops, ids=lambda make: make.__module__.partition(".")[0])(play)
    return play


on_each_loop = partial(on_loop, loops=LOOPS)


def children() -> list[int]:
    """The forks of this process, zombies included. Programs that other tests of this process have started are none."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text("ascii")
    own = command_line(os.getpid())
    return [int(pid) for pid in found.split() if command_line(int(pid)) in (own, b"")]  # that of a zombie is empty


def command_line(pid: int) -> bytes:
    """Empty for a zombie and for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def cluster() -> ClusterIndex:
    """Three zones with a web pod each, and two pods that need room without one."""
    index = index_of(*(node(f"n{at}", zone=f"z{at}", allocatable=ROOM) for at in range(3)))
    for at in range(3):
        index.upsert(pod(f"on-n{at}", on=f"n{at}", app="web", owner=OWNER))
    for at in range(2):
        index.upsert(pod(f"asking-{at}", app="web", apart=[term("zone", app="web")]))
    return index


def service(index: ClusterIndex) -> WhatIfService:
    return WhatIfService(index, SETTINGS, SystemClock(), pause=0.0)


def is_running(pid: int) -> bool:
    """Whether a process, which need not be a child, still runs."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return False


def endless(_meter: Meter) -> Steps[bytes]:
    while True:
        yield


def greedy(_meter: Meter) -> Steps[bytes]:
    """Steps that use more and more memory."""
    held: list[bytes] = []
    while True:
        held.append(bytes(2**16))
        yield


def stuck(_meter: Meter) -> Steps[bytes]:
    yield sum(1 for _ in range(10**12))  # type: ignore[misc]  # what it yields is not read
    return b""


def raising(error: Exception, _meter: Meter) -> Steps[bytes]:
    yield
    raise error


def reading(descriptor: int, meter: Meter) -> Steps[bytes]:
    """Reads from a descriptor of the parent."""
    yield
    meter.check()
    return os.read(descriptor, 1)


def open_in(pid: int) -> set[str]:
    """What the descriptors of a process are, without the numbers of pipes and sockets; empty while it closes some."""
    try:
        return {str(each.readlink()).partition(":")[0] for each in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:
        return set()


def open_descriptors() -> list[str]:
    """The numbers of those of this process."""
    return sorted(each.name for each in Path("/proc/self/fd").iterdir())


BUDGET: Final = WhatIfSettings(seconds=Duration(0.2), memory=ByteSize(32 * 2**20))


async def exceed(work: Callable[[Meter], Steps[bytes]], seconds: float, text: str) -> None:
    with pytest.raises(NotComputed, match=text) as error:
        await start_child(work, WhatIfSettings(seconds=Duration(seconds), memory=BUDGET.memory)).result()
    assert error.value.cause is NoAnswerCause.TOO_EXPENSIVE


def endless_service(monkeypatch: pytest.MonkeyPatch) -> WhatIfService:
    """A service whose children compute until they are ended."""
    monkeypatch.setattr("extender.tasks.what_if.service._encoded", lambda *_: endless(Meter(BUDGET)))
    return service(cluster())


def spending(meter: Meter) -> Steps[bytes]:
    held = bytes(range(256)) * 2**16
    yield
    assert held
    return msgspec.json.encode(meter.spent())


def computed(index: ClusterIndex, chosen: Settings | None = None, **body: Any) -> WhatIfAnswer:
    """The answer to a body; the index is changed, and its counts stay true."""
    found = finished(answer_body(orjson.dumps(body), index, chosen or Settings()))
    assert audit(index) == []
    return found


def without(name: str, *objects: Object, **body: Any) -> dict[str, tuple[str, str]]:
    """The state and the node of each pod where a node is deleted."""
    found = computed(index_of(*objects), delete=[{"kind": "Node", "name": name}], **body)
    return {each.pod.partition("/")[2]: (each.state, each.node) for each in found.placements}


def nodes(count: int = 2) -> list[Object]:
    return [node(f"n{at}", zone=f"z{at}", allocatable=ROOM) for at in range(count)]


def kinded(kind: str, body: Json) -> Json:
    return {"kind": kind, **body}

"""The decisions that `extender bench` measures in process: the verbs as the service binds them, without the service.

There is no loop here, so nothing may wait; nothing has to, as the bench tells where a pod went before it asks again.
Named to the bench by `bench.py`, called in its child process.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from extender.cli.service import settle_memory
from extender.index.cluster import ClusterIndex
from extender.kube.timing import SystemClock
from extender.settings import Settings
from extender.simulate.bench.subject import Decisions, Subject
from extender.tasks.settling import Settling, SettlingOptions
from extender.verbs.filtering import filter_nodes
from extender.verbs.prioritizing import prioritize_nodes
from extender.verbs.remembering import RefusalMemory
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class _Bound:
    filter: Callable[[ExtenderArgs], FilterResult]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]


def make_subject() -> Subject:
    """An empty index and what binds decisions to it."""
    index, chance = ClusterIndex(Settings().rules), Random(_SEED)
    return Subject(index, lambda settings: _bind(index, settings, chance), settle_memory)


def _bind(index: ClusterIndex, settings: Settings, chance: Random) -> Decisions:
    memory = RefusalMemory(settings.answers.refusal_memory_bytes)

    def decide(args: ExtenderArgs, avoid: str) -> FilterResult:
        def afresh(args: ExtenderArgs) -> FilterResult:
            return filter_nodes(args, index.view, settings, chance.getrandbits(32), avoid)

        return memory.filter(args, index.view, afresh)

    settling = Settling(index, SystemClock(), SettlingOptions(), decide=decide, answered=lambda _, __: None)
    return _Bound(
        filter=lambda args: _at_once(settling.filter(args)),
        prioritize=lambda args: prioritize_nodes(args, index.view, settings),
    )


def _at_once(work: Coroutine[Any, Any, FilterResult]) -> FilterResult:
    """What a coroutine gives that has nothing to wait for. Raises RuntimeError if it has."""
    try:
        work.send(None)
    except StopIteration as done:
        result: FilterResult = done.value
        return result
    work.close()
    raise RuntimeError("a question waits for a pod that the bench has left unsettled")

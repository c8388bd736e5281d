"""The lives of one process, and what they keep from part to part.

There are the six services of a seed, one for each mode and placement. They live to the end of the run, and take turns, each in
virtual time of its own. The run is cut into a hundred parts; what is kept after the tenth of them may be kept after the last.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Final

from tests.process_memory import resident_megabytes
from tests.soak.life import MODES, PLACEMENTS, UNDER_FAULTS, Life

PARTS: Final = 100
_LONG_REST_EVERY: Final = 10  # parts
_MEAN_OF: Final = 5  # parts, for each of both figures that are compared
_MOST, _MOST_MEMORY = 2.0, 1.5  # times as much in the end as at the tenth part: a leak would be ten times
# Entries of caches that are bounded, by number or in bytes, and seldom used here: notes on rejected pods, rejections, dry runs.
_BOUNDED: Final = frozenset({"objects: _Told", "objects: _CachedRejection", "objects: _Tried"})
_ENOUGH: Final = 150_000  # decisions of one process
_FEW: Final = 20  # objects, more or less, are no leak


@dataclass
class Soak:
    """What came of the lives of one process. ``kept``: by part, about a tenth of all and the last, by what is kept, how much."""

    problems: list[str] = field(default_factory=list)
    kept: dict[int, dict[str, float]] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)
    decisions: dict[str, int] = field(default_factory=dict)
    drift: int = 0


def soak(decisions: int, seed: int, parts: int = PARTS, under_faults: int = UNDER_FAULTS) -> Soak:
    """So many decisions of all lives together."""
    lives = [Life(mode, placement, seed, under_faults) for mode in MODES for placement in PLACEMENTS]
    result, measured = Soak(), {*_tenth(parts), *_last(parts)}
    for life in lives:
        life.begin()
    for part in range(1, parts + 1):
        for life in lives:
            goal = decisions * part // parts // len(lives)
            life.run(goal - life.decisions, is_long=part % _LONG_REST_EVERY == 0 or part == parts)
        if part in measured:  # which takes half a second
            result.kept[part] = _kept(lives)
    for life in lives:
        result.problems += life.problems
        result.happened += life.happened()
        result.decisions[life.name] = life.decisions
        result.drift += life.drift()
        life.close()
    return result


def grown(result: Soak) -> dict[str, float]:
    """What is kept in the end although it was not at a tenth of the run: by name, how many times as much.

    Both figures are means over some parts. The tenth part of a run that is too short has not seen what caches hold: compiled
    constraints are at 60 % of their number after 2,000 decisions of a service, and at 90 % after 8,000.
    """
    if sum(result.decisions.values()) < _ENOUGH:
        return {}
    parts = max(result.kept)
    early, late = _means(result, _tenth(parts)), _means(result, _last(parts))
    times = {name: (late[name] + _FEW) / (early.get(name, 0) + _FEW) for name in late}
    most = {MEMORY: _MOST_MEMORY}
    return {name: each for name, each in times.items() if each > most.get(name, _MOST) and name not in _BOUNDED}


def _tenth(parts: int) -> range:
    """Some parts about the tenth of all."""
    return range(parts // 10 - _MEAN_OF // 2, parts // 10 + _MEAN_OF // 2 + 1)


def _last(parts: int) -> range:
    return range(parts - _MEAN_OF + 1, parts + 1)


def _means(result: Soak, parts: Sequence[int]) -> dict[str, float]:
    found = [result.kept[part] for part in parts]
    names = {name for each in found for name in each}
    return {name: sum(each.get(name, 0) for each in found) / len(found) for name in names}


def _kept(lives: Sequence[Life]) -> dict[str, float]:
    """How much the services hold: sizes by their own account, their objects by type, and memory in use."""
    kept = objects_by_type()
    for life in lives:
        index = life.service.index
        kept.update({f"index: {name}": size for name, size in index.statistics().items()})
        kept["index: names"] += len(index.topology.names)
        kept["metrics: lines"] += life.service.metrics.render().count(b"\n")
    return {**kept, MEMORY: resident_megabytes()}


def objects_by_type() -> Counter[str]:
    """How many objects of the product there are. Frozen ones are not shown otherwise, and the service freezes what has survived.

    Without them each type seems to begin at nothing, and to grow while its objects are replaced one by one.
    """
    gc.unfreeze()
    gc.collect()
    gc.unfreeze()  # again, because the collection may freeze
    types = Counter(type(found) for found in gc.get_objects())
    gc.freeze()  # as it was: else each full collection visits all that six services hold
    return Counter({f"objects: {kind.__qualname__}": count for kind, count in types.items() if _is_ours(kind)})


MEMORY: Final = "memory: MB"


def _is_ours(kind: type[Any]) -> bool:
    """Whether objects of a type are the product's; the embedded cluster is not."""
    module = str(kind.__module__)  # of some types in C it is a descriptor
    return module.startswith("extender.") and not module.startswith("extender.simulator")


def run_lives(pipe: Connection, decisions: int, seed: int) -> None:
    """In a process of its own: sends what came of it."""
    logging.getLogger("extender").setLevel(logging.CRITICAL)  # a line for each fault
    pipe.send(soak(decisions, seed))

"""The service put together: each part is built once, here, and handed to those who need it.

`serve` runs it against a cluster or a snapshot, the demo and the scenarios against the embedded control plane.
"""

import gc
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from extender.cli.version import installed_version
from extender.index.cluster import ClusterIndex
from extender.kube.list_watch import ListWatch
from extender.kube.options import WatchOptions
from extender.kube.session import Session
from extender.kube.timing import BackoffOptions, Clock
from extender.model.objects import Object
from extender.server.app import listening, make_app
from extender.server.collaborators import Verbs
from extender.settings import Settings, Watch
from extender.tasks.feeding import Feeding, FeedingOptions, reads_workloads
from extender.tasks.readiness import Readiness
from extender.telemetry.metrics import Metrics
from extender.verbs.filtering import filter_nodes
from extender.verbs.preemption import advise_preemption
from extender.verbs.prioritizing import prioritize_nodes
from extender.verbs.remembering import RefusalMemory
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from extender.wire.kinds import (
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
)

_LOG = logging.getLogger(__name__)

_ALWAYS: Final[tuple[Kind[Any], ...]] = (NAMESPACES, NODES, PODS)
_FOR_DEFAULT_CONSTRAINTS: Final[tuple[Kind[Any], ...]] = (
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
# A watch is replaced after `inactivityTimeout`; only if that does not help either is the index not to be trusted.
_STALE_FACTOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class Service:
    """The parts. `feeding` is None where the index was filled once, from a file."""

    settings: Settings
    index: ClusterIndex
    readiness: Readiness
    metrics: Metrics
    memory: RefusalMemory
    chance: Random
    feeding: Feeding | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Answer the scheduler until the block is left; yields the base URL. Raises OSError if the address is taken."""
        app = make_app(self.settings, self.verbs(), self.readiness, self.metrics, installed_version())
        async with listening(app, self.settings.server.bind_address) as url:
            _LOG.info("answering", extra={"url": url, "mode": self.settings.mode})
            yield url

    def verbs(self) -> Verbs:
        """The decisions, bound to this index, these settings and this source of chance."""
        view, settings, memory, chance = self.index.view, self.settings, self.memory, self.chance

        def decide(args: ExtenderArgs) -> FilterResult:
            return filter_nodes(args, view, settings, chance.getrandbits(32))

        return Verbs(
            filter=lambda args: memory.filter(args, view, decide),
            prioritize=lambda args: prioritize_nodes(args, view, settings),
            preempt=lambda args: advise_preemption(args, view, settings),
        )


def service_of_cluster(settings: Settings, session: Session, clock: Clock, chance: Random) -> Service:
    """A service whose index follows a cluster. Its feeding's jobs are still to be run."""
    index = ClusterIndex(settings.rules)
    kinds = _ALWAYS + (_FOR_DEFAULT_CONSTRAINTS if reads_workloads(settings.rules.topology_spread) else ())
    options = watch_options(settings.kube.watch)
    feeds = [ListWatch(session.reads, kind, options, clock, chance) for kind in kinds]
    stale_after = settings.kube.watch.inactivity_timeout * _STALE_FACTOR
    feeding = Feeding(index, feeds, clock, FeedingOptions(stale_after=stale_after), settle_memory)
    service = _join(settings, index, Readiness(feeding), chance, feeding)
    service.metrics.report_feeds(lambda: feeding.statuses().values())
    service.metrics.report_lag(lambda: {kind: status.lag(clock.now()) for kind, status in feeding.statuses().items()})
    return service


def service_of_objects(settings: Settings, objects: Iterable[Object], chance: Random) -> Service:
    """A service that answers from given objects for as long as it runs."""
    index = ClusterIndex(settings.rules)
    for found in objects:
        index.upsert(found)
    settle_memory()
    return _join(settings, index, Readiness(), chance)


def _join(
    settings: Settings, index: ClusterIndex, readiness: Readiness, chance: Random, feeding: Feeding | None = None
) -> Service:
    """What both kinds of service have in common."""
    metrics = Metrics(installed_version())
    memory = RefusalMemory(settings.answers.refusal_memory_bytes)
    metrics.report_index(index.statistics)
    metrics.report_memory(lambda: memory.hits, lambda: memory.bytes)
    return Service(settings, index, readiness, metrics, memory, chance, feeding)


def watch_options(watch: Watch) -> WatchOptions:
    """The settings in the words of the door to the apiserver."""
    return WatchOptions(
        page_limit=watch.list_page_size,
        watch_list=watch.watch_list,
        max_silence=watch.inactivity_timeout,
        backoff=BackoffOptions(first=watch.backoff.initial, longest=watch.backoff.max),
    )


def settle_memory() -> None:
    """Take what stands in the index now out of the garbage collector's rounds: it would walk through it for nothing."""
    gc.collect()
    gc.freeze()

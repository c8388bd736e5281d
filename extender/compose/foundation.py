"""The foundation of all other parts of a service: the index, its reflectors, and leader election."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeAlias

from extender.compose.leadership import Replica
from extender.compose.process import freeze_gc, join_pages_in_background, limit_gc
from extender.features.quotas.table import quota_table
from extender.index.cluster import ClusterIndex
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import WatchOptions
from extender.kube.session import Connection, Session
from extender.kube.timing import BackoffOptions, Clock, WallClock
from extender.kube.writer import PolicyObjects, Writer
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.connections import WatchSettings
from extender.settings.rules import with_both_rules
from extender.tasks.api_server_check import ApiServerCheck
from extender.tasks.reflectors import ObjectIndex, Reflectors, ReflectorsOptions
from extender.telemetry.metrics import Metrics
from extender.verbs.effective_pod import policy_terms
from extender.wire.objects.kinds import PODS, watched_kinds

Job: TypeAlias = tuple[str, Callable[[], Awaitable[None]]]
"""A job that runs until the service ends, with its name."""

COMPONENT: Final = "placement-extender"
"""The name of the extender in Events and as a field manager."""

_MANY_PODS: Final = 20_000  # with fewer a fork takes less than 2 ms anyway

# A watch is replaced after `inactivityTimeout`. Only if that does not help the index counts as stale, after this many timeouts.
_STALE_FACTOR: Final = 1.2


@dataclass(frozen=True, slots=True)
class Foundation:
    """Passed to the builder of each part. ``namespace``: this pod's. ``wall``: the time of day, which decisions compare with dates."""

    settings: Settings
    index: ClusterIndex
    session: Session
    clock: Clock
    rng: Random
    reflectors: Reflectors
    metrics: Metrics
    replica: Replica
    namespace: str
    wall: WallClock
    api_server: ApiServerCheck

    def while_leading(self, name: str, run: Callable[[], Awaitable[None]]) -> Job:
        """A job that runs while this replica leads."""
        return name, self.replica.run_while_leading(run)

    def writer(self, connection: Connection | None = None) -> Writer:
        """The writer for objects. Its writes raise ``LeadershipLost`` while this replica does not lead."""
        observe, check = self.metrics.record_write, self.replica.check_term
        return Writer(connection or self.session.writes, COMPONENT, socket.gethostname(), observe=observe, check=check)

    def policy_writer(self) -> PolicyObjects:
        """The writer for policies and events about them, as `writer`."""
        observe, check = self.metrics.record_write, self.replica.check_term
        return PolicyObjects(self.session.writes, COMPONENT, socket.gethostname(), observe=observe, check=check)


def make_index(settings: Settings) -> ClusterIndex:
    """An empty index. In augment mode a pod above a limit is left to the in-tree plugins."""
    index = ClusterIndex(
        settings.rules,
        counts_of_rules(),
        rejects_excess=settings.mode == "offload",
        policies=settings.policies,
        namespace_limits=settings.limits.per_namespace,
        counts_room=settings.schedulers == "many",
        holds_to_domains=settings.release.enabled,
        shadow=with_both_rules(settings.rules) if settings.shadow else None,
        tables=(quota_table(settings.quota),),
    )
    # Set after the index exists, because it reads the view. The index must not import the verbs.
    if settings.policies.enabled:
        index.counts.policy_terms = partial(policy_terms, view=index.view, settings=settings)
    return index


def make_reflectors(
    index: ClusterIndex, sink: ObjectIndex, settings: Settings, session: Session, clock: Clock, rng: Random
) -> Reflectors:
    """The reflectors of every kind that the settings need."""
    options = watch_options(settings.kube.watch)
    kinds = [watched.within(settings.limits) for watched in watched_kinds(settings)]
    reflectors = [Reflector(session.reads, kind, options, clock, rng) for kind in kinds]
    stale_after = settings.kube.watch.inactivity_timeout * _STALE_FACTOR
    limit_gc()

    # A complete list ends assumptions of pods that it does not have: the watch may never show their deletion.
    def listed(kind: str, begun: float) -> None:
        if kind == PODS.name:
            index.assumed.listed(index.pods, begun)

    options_of_all, readable = ReflectorsOptions(stale_after=stale_after), session.reads.sockets.readable
    return Reflectors(
        sink, reflectors, clock, options_of_all, partial(settle_memory, index, settings), listed, readable
    )


def settle_memory(index: ClusterIndex, settings: Settings) -> None:
    """Call it after all objects were read, before any request. It saves later costs of the garbage collector and of forks."""
    freeze_gc()
    if settings.what_if.enabled and len(index.pods) >= _MANY_PODS:
        join_pages_in_background()


def watch_options(watch: WatchSettings) -> WatchOptions:
    """The settings as options of `kube`. Caps the list timeouts at `inactivityTimeout`."""
    # A list that hangs must not delay the detection of a dead connection for longer than a silent watch.
    usual, patience = WatchOptions(), watch.inactivity_timeout
    return WatchOptions(
        page_limit=watch.list_page_size,
        watch_list=watch.watch_list,
        list_timeout=min(usual.list_timeout, patience),
        confirm_timeout=min(usual.confirm_timeout, patience),
        initial_silence=min(usual.initial_silence, patience),
        max_silence=patience,
        backoff=BackoffOptions(first=watch.backoff.initial, longest=watch.backoff.max),
    )

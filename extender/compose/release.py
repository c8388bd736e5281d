"""Builds the release of pod groups: the reconciler, its writes, and its metrics. Called by `service`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from extender.compose.foundation import Foundation, Job
from extender.compose.preemption import PreemptionTask
from extender.index.cluster import ClusterIndex
from extender.index.trial import TrialSteps
from extender.kube.errors import KubeError, NotFound
from extender.kube.listing import WatchFreshness
from extender.kube.timing import BackoffOptions, Clock
from extender.kube.writer import ReleaseObjects
from extender.model.release import GroupKey, Level, NoRoom, Proposal
from extender.settings.configuration import Settings
from extender.tasks.events import EventRecorder
from extender.tasks.fair_queue import RateLimiter
from extender.tasks.reflectors import Reflectors
from extender.tasks.release.orphans import OrphanReleaser
from extender.tasks.release.reconciler import GroupReconciler, removes_nothing
from extender.tasks.release.writes import PlacementWriter, PodReleaser
from extender.tasks.takeover import is_caught_up
from extender.telemetry import catalogue
from extender.verbs.release.choice import Rest, propose_in_steps
from extender.verbs.release.progress import GroupState
from extender.wire.objects.kinds import GROUP_PLACEMENTS

_LOG = logging.getLogger(__name__)
_CATCH_UP_PAUSE = 0.5
_PLACEMENT_WRITES = 8
_PLACEMENT_WRITES_PER_SECOND = 100.0


def release_of_cluster(base: Foundation, preemption: PreemptionTask | None = None) -> list[Job]:
    """The jobs of the release; none if the settings disable it. They begin once the index holds the whole cluster.

    ``preemption`` removes pods for groups; None where the settings execute no preemption.
    """
    settings, index, clock, metrics = base.settings, base.index, base.clock, base.metrics
    if not (settings.policies.enabled and settings.release.enabled):
        return []
    chosen, utc_now, recorder = settings.release, base.wall.utc, metrics.release()
    # Two rate limiters, so that the many patches of pods do not delay the writes of decisions.
    store = ReleaseObjects(base.session.writes, observe=metrics.record_write, check=base.replica.check_term)
    patches = RateLimiter(clock, chosen.max_parallel_patches, chosen.patches_per_second)
    releaser = PodReleaser(store, patches, clock, BackoffOptions(first=0.1, longest=2.0), base.rng)
    writes = RateLimiter(clock, _PLACEMENT_WRITES, _PLACEMENT_WRITES_PER_SECOND)
    placements = PlacementWriter(store, index.placements, writes, utc_now)
    events = EventRecorder(base.writer().create_event, clock, urgent=patches)
    groups = GroupReconciler(
        index,
        placements,
        releaser,
        partial(_propose, index, settings),
        partial(_takes_pods, index),
        events,
        recorder,
        clock,
        utc_now,
        chosen,
        partial(_catch_up, base.reflectors, WatchFreshness(base.session.reads, GROUP_PLACEMENTS, clock), clock),
        preemption.target.make_room if preemption is not None else removes_nothing,
        lambda: base.reflectors.freshness.is_stale,
    )
    orphans = OrphanReleaser(
        index.gated.orphans,
        index.pods,
        index.gated.orphan_changes,
        releaser,
        recorder,
        clock,
        utc_now,
        chosen.orphan_grace,
    )
    metrics.report(catalogue.RELEASE_GROUPS, groups.memory.counts)
    metrics.report(catalogue.RELEASE_OLDEST, lambda: groups.memory.oldest(clock.now()))
    metrics.report(catalogue.RELEASE_EXPECTATIONS, groups.memory.expected)
    metrics.report(catalogue.RELEASE_EXPECTATIONS_EXPIRED, lambda: groups.expired)
    metrics.report(catalogue.RELEASE_FAILURES, lambda: groups.failures)
    metrics.report(catalogue.RELEASE_ORPHANS, orphans.states)

    def synced(run: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        async def begin() -> None:
            # Before the policies are listed, every gated pod looks like an orphan.
            await base.reflectors.wait_until_synced()
            await run()

        return begin

    return [
        base.while_leading("release of groups", synced(groups.run)),
        base.while_leading("release of orphans", synced(orphans.run)),
        base.while_leading("events of groups", events.run),
    ]


async def _catch_up(reflectors: Reflectors, freshness: WatchFreshness, clock: Clock) -> None:
    """Returns when the watch has shown every GroupPlacement that was written before this call."""
    while True:
        try:
            if await is_caught_up(
                lambda: reflectors.statuses()[GROUP_PLACEMENTS.name].resource_version, freshness, clock
            ):
                return
        except NotFound:
            return  # the CRD is missing: nothing was ever decided
        except KubeError as error:
            _LOG.warning("the decisions of an earlier leader are not known yet", extra={"error": str(error)})
        await clock.sleep(_CATCH_UP_PAUSE)


def _takes_pods(index: ClusterIndex, name: str) -> bool:
    number = index.view.known.get(name)
    node = None if number is None else index.view.node(number)
    return node is not None and not node.unschedulable


def _propose(
    index: ClusterIndex,
    settings: Settings,
    group: GroupState,
    levels: Sequence[Level] | None,
    taken: Sequence[tuple[GroupKey, Sequence[Level]]],
    excess: Callable[[Sequence[Level]], str],
) -> TrialSteps[Proposal]:
    pods, siblings = (*group.waiting, *group.released), (*group.released, *group.bound)
    may = group.spec.does(NoRoom.PREEMPT) and levels is None
    # While victims of the group are being removed their room is the group's, and no other pods are removed for it.
    preempts = may and not (group.released or group.bound or index.reserved.pods_of(group.key))
    rest = Rest(group.key, group.spec, pods, siblings, levels, taken, excess, preempts)
    return propose_in_steps(rest, index.view, settings)

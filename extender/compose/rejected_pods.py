"""Builds the tasks that follow rejections: nominations elsewhere, requeues, and events. Called by `service`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from extender.compose.foundation import Foundation, Job
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.tasks.filter_service import OnRejection
from extender.tasks.overlooked_pods import OverlookedPods
from extender.tasks.rejected_pods import Nominator, NominatorOptions, Rechecker, RejectedPodWriter, Requeuer
from extender.tasks.rejection_events import Explain, RejectionEvents
from extender.tasks.sliced_work import Traffic
from extender.telemetry import catalogue
from extender.verbs.filter import FilterVerb
from extender.verbs.preempt import node_with_victims
from extender.verbs.select_host import find_node_elsewhere


def rejected_pods_of_cluster(
    base: Foundation, verb: FilterVerb, explain: Explain, traffic: Traffic
) -> tuple[list[OnRejection], Callable[[], None], list[Job]]:
    """The target of each rejection, the target of refused preemptions, and the jobs that the settings enable."""
    chosen, index, clock, writer = base.settings.rejected_pods, base.index, base.clock, base.writer()
    executes = base.settings.preemption.mode == "execute"

    def find(pod: Pod) -> tuple[str, bool]:
        return find_node_elsewhere(pod, index.view, base.settings, base.rng.getrandbits(32))

    def find_victims(pod: Pod) -> Steps[str]:
        if executes or chosen.nominate_elsewhere:  # else it has no permission to nominate
            return (yield from node_with_victims(pod, index.view, base.settings, base.rng.getrandbits(32)))
        return ""

    # One for all tasks, so that their results are one metric.
    shared = RejectedPodWriter(index, writer, find)
    base.metrics.report(catalogue.REJECTED_POD_ACTIONS, lambda: shared.results)
    calls, jobs, search_elsewhere = list[OnRejection](), list[Job](), list[OnRejection]()
    requeuer = Requeuer(shared, clock, chosen.per_second, traffic)
    if chosen.nominate_elsewhere:
        on_nomination = [requeuer.await_request] if chosen.requeue else []
        nominator = Nominator(shared, clock, NominatorOptions(per_second=chosen.per_second), on_nomination)
        search_elsewhere.append(nominator.consider)
        jobs.append(base.while_leading("nominate elsewhere", nominator.run))
    if chosen.requeue:
        rechecker = Rechecker(shared, clock, chosen.per_second, verb.would_pass, search_elsewhere)
        calls += [requeuer.consider, rechecker.consider]
        jobs.append(base.while_leading("requeue rejected pods", requeuer.run))
        jobs.append(base.while_leading("recheck rejected pods", rechecker.run))
    # It reviews all pending pods, so it needs the complete index.
    note = requeuer.note_pending if chosen.requeue else None
    overlooked = OverlookedPods(shared, find_victims, clock, chosen.per_second, note)

    async def look() -> None:
        await base.reflectors.wait_until_synced()
        await overlooked.run()

    if chosen.requeue or executes:
        jobs.append(base.while_leading("requeue overlooked pods", look))
    if chosen.events:
        events = RejectionEvents(shared, writer, explain, clock, partial(datetime.now, UTC))
        calls.append(events.consider)
        jobs.append(base.while_leading("events on rejected pods", events.run))
        base.metrics.report(catalogue.REJECTION_EVENTS, lambda: events.results)
    return [*calls, *search_elsewhere], overlooked.note_refused, jobs

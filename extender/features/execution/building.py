"""Builds the part that moves pods: the mover, its writes, its events and its metrics. Called by `compose/service.py`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from extender.compose.foundation import Foundation, Job
from extender.features.execution.answers import MovesAnswer
from extender.features.execution.blocks import Outcome
from extender.features.execution.broken import measure
from extender.features.execution.mover import Mover
from extender.features.execution.moves import Move
from extender.index.policies import PolicyTable
from extender.model.policies import JsonObject, PolicyKey
from extender.tasks.events import EventLimit, EventRecorder
from extender.tasks.policy_status import PolicyStatus
from extender.telemetry import catalogue
from extender.telemetry.verb_metrics import Distribution

_EVENTS: Final = EventLimit(repeated_after=3600.0)
MOST_REASONS: Final = 8  # in the status of a policy
_LONGEST_REASON: Final = 128


def moves_of_cluster(
    base: Foundation, status: PolicyStatus | None, asks: Callable[[str], bool]
) -> tuple[Callable[[str, int], MovesAnswer] | None, list[Job]]:
    """What answers about moves, and the jobs; nothing if the settings disable them. ``status`` gets the numbers of policies.

    ``asks``: whether a scheduler has sent requests.
    """
    settings, seconds = base.settings, Distribution(catalogue.MOVE_SECONDS.buckets)
    if not (settings.policies.enabled and settings.execution.enabled):
        return None, []
    events = EventRecorder(base.writer().create_event, base.clock, _EVENTS)

    def ended(outcome: Outcome, _move: Move, duration: float) -> None:
        if outcome not in (Outcome.REFUSED, Outcome.FAILED):
            seconds.observe(duration)

    mover = Mover(
        base.index,
        settings,
        _Writes(base),
        base.clock,
        base.wall.utc,
        lambda: base.reflectors.freshness.is_ready,
        ended,
        events.record,
        asks,
    )
    if status is not None:
        status.execution = lambda: states_of_policies(mover, base.index.policies)
    base.metrics.report(catalogue.EXECUTION_BROKEN, mover.broken.by_kind)
    base.metrics.report(catalogue.EXECUTION_PHI, lambda: mover.broken.measure)
    base.metrics.report(catalogue.MOVES, lambda: mover.outcomes)
    base.metrics.report(catalogue.MOVE_SECONDS, lambda: seconds)
    if base.replica.takeover is not None:
        base.replica.takeover.before_answers.append(mover.recover)

    async def run() -> None:
        await base.reflectors.wait_until_synced()
        await mover.run()

    jobs = [
        base.while_leading("moves of pods", run),
        base.while_leading("events of moves", events.run),
    ]
    return mover.answer, jobs


class _Writes:
    """The calls of the mover to the API server."""

    def __init__(self, base: Foundation) -> None:
        writer = base.writer()
        self.read_pod, self.evict = writer.read_pod, writer.evict
        self._policies = base.policy_writer()

    async def write_moves(self, policy: PolicyKey, moves: Sequence[JsonObject]) -> None:
        """A merge patch, so that the numbers that `PolicyStatus` writes beside them stay."""
        await self._policies.patch_policy_status(policy, "", {"execution": {"moves": list(moves)}})


def states_of_policies(mover: Mover, policies: PolicyTable) -> Mapping[PolicyKey, JsonObject]:
    """`status.execution` of each policy that acts while pods run. O(policies + what is broken)."""
    broken, planned, stuck = Counter[PolicyKey](), Counter[PolicyKey](), defaultdict[PolicyKey, Counter[str]](Counter)
    for watched in mover.broken.found.values():
        broken[watched.policy.key] += measure(watched.found)
    for under_way in mover.under_way.values():
        planned[under_way.watched.policy.key] += 1
    for each in mover.planned:
        key = each.watched.policy.key
        planned[key] += each.move is not None
        # The text up to a colon is the reason, and what follows has numbers that change with the cluster.
        stuck[key].update(one.why.partition(":")[0][:_LONGEST_REASON] for one in each.stuck)
    return {
        policy.key: {
            "broken": broken[policy.key],
            "planned": planned[policy.key],
            "moved": mover.moved[policy.key],
            "stuck": stuck[policy.key].total(),
            "stuckReasons": [
                {"reason": reason, "constraints": count}
                for reason, count in sorted(stuck[policy.key].items(), key=lambda item: (-item[1], item[0]))[
                    :MOST_REASONS
                ]
            ],
        }
        for policy in policies
        if policy.execution is not None
    }

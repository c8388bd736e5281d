"""The kinds that the index is built from: the decoder of each, and the settings that need it. One row per kind.

`compose` creates a reflector for each row that the settings need, `doctor.permissions` reviews list and watch on it,
tests compare the rows with the role of deploy/base, and snapshots are decoded with the same rows. To add a kind, add a
row, a class in `model.objects` and a case in `ClusterIndex`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from extender.settings import Limits, Settings
from extender.wire.kinds import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
    pods_within,
)


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """``api_kind``: the ``kind`` of one object. ``why`` tells the administrator what needs list and watch."""

    api_kind: str
    kind: Kind[Any]
    why: str
    is_needed: Callable[[Settings], bool]

    def within(self, limits: Limits) -> Kind[Any]:
        """The kind under the limits of the settings, which apply to pods."""
        return pods_within(limits) if self.kind is PODS else self.kind


def _always(_settings: Settings) -> bool:
    return True


def _derives_selectors(settings: Settings) -> bool:
    """Only default constraints read workloads. Most ReplicaSets of a cluster are old revisions, so this saves memory."""
    spread = settings.rules.topology_spread
    return spread.enabled and (spread.defaulting_type == "System" or bool(spread.default_constraints))


def _plans_preemptions(settings: Settings) -> bool:
    return settings.preemption.mode != "off"


_INDEX: Final = "the index is built from it"
_SELECTORS: Final = "default constraints of topology spread derive their selectors from it"
_BUDGETS: Final = "preemption avoids victims that a budget protects"

WATCHED_KINDS: Final = (
    WatchedKind("Namespace", NAMESPACES, _INDEX, _always),
    WatchedKind("Node", NODES, _INDEX, _always),
    WatchedKind("Pod", PODS, _INDEX, _always),
    WatchedKind("Service", SERVICES, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicationController", REPLICATION_CONTROLLERS, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicaSet", REPLICA_SETS, _SELECTORS, _derives_selectors),
    WatchedKind("StatefulSet", STATEFUL_SETS, _SELECTORS, _derives_selectors),
    WatchedKind("PodDisruptionBudget", DISRUPTION_BUDGETS, _BUDGETS, _plans_preemptions),
)


def watched_kinds(settings: Settings) -> list[WatchedKind]:
    """The kinds that these settings need, in the order of the table."""
    return [each for each in WATCHED_KINDS if each.is_needed(settings)]

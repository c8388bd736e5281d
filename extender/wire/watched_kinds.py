"""The kinds that the index is built from: how each is decoded, and which settings need it. One row per kind.

`compose` makes a reflector for each row that the settings need, `doctor.permissions` asks for list and watch on it, the
tests compare the rows with the role of deploy/base, and a snapshot is read with the same rows. A new kind begins with a
row here, a class in `model.objects`, and a case in `ClusterIndex`.
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
    """``api_kind``: the ``kind`` of one object; ``why`` is for the administrator who grants list and watch."""

    api_kind: str
    kind: Kind[Any]
    why: str
    is_needed: Callable[[Settings], bool]

    def within(self, limits: Limits) -> Kind[Any]:
        """The kind as it is decoded under the limits of the settings, which apply to pods."""
        return pods_within(limits) if self.kind is PODS else self.kind


def _always(_settings: Settings) -> bool:
    return True


def _deduces_selectors(settings: Settings) -> bool:
    """Only default constraints read workloads. Clusters hold ten times more ReplicaSets than are in use."""
    spread = settings.rules.topology_spread
    return spread.enabled and (spread.defaulting_type == "System" or bool(spread.default_constraints))


def _plans_preemptions(settings: Settings) -> bool:
    return settings.preemption.mode != "off"


_INDEX: Final = "the index is built from it"
_SELECTORS: Final = "default constraints of topology spread deduce their selectors from it"
_BUDGETS: Final = "preemption spares pods that a budget protects"

WATCHED_KINDS: Final = (
    WatchedKind("Namespace", NAMESPACES, _INDEX, _always),
    WatchedKind("Node", NODES, _INDEX, _always),
    WatchedKind("Pod", PODS, _INDEX, _always),
    WatchedKind("Service", SERVICES, _SELECTORS, _deduces_selectors),
    WatchedKind("ReplicationController", REPLICATION_CONTROLLERS, _SELECTORS, _deduces_selectors),
    WatchedKind("ReplicaSet", REPLICA_SETS, _SELECTORS, _deduces_selectors),
    WatchedKind("StatefulSet", STATEFUL_SETS, _SELECTORS, _deduces_selectors),
    WatchedKind("PodDisruptionBudget", DISRUPTION_BUDGETS, _BUDGETS, _plans_preemptions),
)


def watched_kinds(settings: Settings) -> list[WatchedKind]:
    """The kinds that these settings need, in the order of the table."""
    return [each for each in WATCHED_KINDS if each.is_needed(settings)]

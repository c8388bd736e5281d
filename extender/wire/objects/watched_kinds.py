"""The kinds that the index is built from: the decoder of each, and the settings that need it. One row per kind.

`compose` creates a reflector for each row that the settings need, `doctor.permissions` reviews list and watch on it,
tests compare the rows with the role of deploy/base, and snapshots are decoded with the same rows. To add a kind, add a
row, a class in `model.objects` and a case in `ClusterIndex`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from extender.model.group_placements import PLACEMENT_KIND
from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND
from extender.settings.configuration import Settings
from extender.settings.limits import Limits
from extender.wire.objects.kinds import (
    DISRUPTION_BUDGETS,
    GROUP_PLACEMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_QUOTAS,
    SERVICES,
    STATEFUL_SETS,
    Kind,
    pods_within,
    policies_within,
)
from extender.wire.objects.limits import DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """``api_kind``: the ``kind`` of one object. ``why`` tells the administrator what needs list and watch."""

    api_kind: str
    kind: Kind[Any]
    why: str
    is_needed: Callable[[Settings], bool]
    limited: Callable[[Limits], Kind[Any]] | None = None

    def within(self, limits: Limits) -> Kind[Any]:
        """The kind under the limits of the settings, which apply to pods and policies."""
        return self.kind if self.limited is None else self.limited(limits)


def _always(_settings: Settings) -> bool:
    return True


def _derives_selectors(settings: Settings) -> bool:
    """Only default constraints read workloads. Most ReplicaSets of a cluster are old revisions, so this saves memory."""
    spread = settings.rules.topology_spread
    return spread.enabled and (spread.defaulting_type == "System" or bool(spread.default_constraints))


def _plans_preemptions(settings: Settings) -> bool:
    return settings.preemption.mode != "off"


def _admits(settings: Settings) -> bool:
    return settings.policies.enabled


def _admits_kupid(settings: Settings) -> bool:
    return settings.policies.enabled and settings.policies.kupid


def _limits_quotas(settings: Settings) -> bool:
    return settings.quota.enabled


def _releases(settings: Settings) -> bool:
    return settings.policies.enabled and settings.release.enabled


def _policies(api_kind: str, group: str, is_needed: Callable[[Settings], bool]) -> WatchedKind:
    def limited(limits: Limits) -> Kind[Any]:
        return policies_within(limits, api_kind, group)

    return WatchedKind(api_kind, limited(DEFAULT_LIMITS), _POLICIES, is_needed, limited)


_POLICIES: Final = "policies are applied to pods"
_PLACED: Final = "the release of a group of gated pods continues from what was decided"
_INDEX: Final = "the index is built from it"
_SELECTORS: Final = "default constraints of topology spread derive their selectors from it"
_QUOTAS: Final = "quotas limit pods with affinity across namespaces"
_BUDGETS: Final = "preemption avoids victims that a budget protects"

WATCHED_KINDS: Final = (
    WatchedKind("Namespace", NAMESPACES, _INDEX, _always),
    WatchedKind("Node", NODES, _INDEX, _always),
    WatchedKind("Pod", PODS, _INDEX, _always, pods_within),
    WatchedKind("Service", SERVICES, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicationController", REPLICATION_CONTROLLERS, _SELECTORS, _derives_selectors),
    WatchedKind("ReplicaSet", REPLICA_SETS, _SELECTORS, _derives_selectors),
    WatchedKind("StatefulSet", STATEFUL_SETS, _SELECTORS, _derives_selectors),
    WatchedKind("PodDisruptionBudget", DISRUPTION_BUDGETS, _BUDGETS, _plans_preemptions),
    WatchedKind("ResourceQuota", RESOURCE_QUOTAS, _QUOTAS, _limits_quotas),
    *(_policies(kind, GROUP, _admits) for kind in (NAMESPACED_KIND, CLUSTER_KIND)),
    *(_policies(kind, KUPID_GROUP, _admits_kupid) for kind in (NAMESPACED_KIND, CLUSTER_KIND)),
    WatchedKind(PLACEMENT_KIND, GROUP_PLACEMENTS, _PLACED, _releases),
)


def watched_kinds(settings: Settings) -> list[WatchedKind]:
    """The kinds that these settings need, in the order of the table."""
    return [each for each in WATCHED_KINDS if each.is_needed(settings)]


def policy_kinds(settings: Settings) -> list[str]:
    """The names of the kinds of policies that these settings need."""
    return [each.kind.name for each in watched_kinds(settings) if is_policy_kind(each)]


def is_policy_kind(watched: WatchedKind) -> bool:
    """Whether it is a kind of policies."""
    return watched.why == _POLICIES

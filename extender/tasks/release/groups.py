"""The groups of the index as the manager reads them, and how much of the cluster a namespace may have reserved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.index.claims.reserved import Reservations
from extender.index.gated import GatedGroups, Role
from extender.model.objects import Pod
from extender.model.release import GroupKey
from extender.model.resources import PODS, Resources, total
from extender.model.units import agreeing, counted
from extender.settings.release import Release
from extender.verbs.release.progress import GroupState


class IndexGroups:
    """Implements `ports.Groups`."""

    def __init__(self, gated: GatedGroups, pods: Mapping[str, Pod]) -> None:
        self._gated = gated
        self._pods = pods

    def __iter__(self) -> Iterator[GroupKey]:
        return iter(list(self._gated.groups))

    def of(self, key: GroupKey) -> GroupState | None:
        """A group, None where no pod of it is left. O(its pods)."""
        found = self._gated.groups.get(key)
        if found is None:
            return None
        by_role: dict[Role, list[Pod]] = {role: [] for role in Role}
        for uid, role in found.roles.items():
            by_role[role].append(self._pods[uid])
        waiting, blocked = by_role[Role.READY], by_role[Role.BLOCKED]
        created = [pod.gating.created for pod in (*waiting, *blocked) if pod.gating is not None and pod.gating.created]
        return GroupState(
            key,
            found.release,
            found.size,
            tuple(waiting),
            tuple((pod, _others(pod, found.release.gate)) for pod in blocked),
            tuple(by_role[Role.RELEASED]),
            tuple(by_role[Role.BOUND]),
            min(created, default=None),
        )


class NamespaceBudget:
    """Implements `ports.Budget`, by the limits per namespace in the settings. ``offered``: what all nodes offer together."""

    def __init__(self, reservations: Reservations, offered: Resources, settings: Release) -> None:
        self._reservations = reservations
        self._offered = offered
        self._settings = settings

    def excess(self, group: GroupState) -> str:
        """Why room may not be reserved for one more group, empty where it may. O(groups with room + its pods)."""
        namespace, settings = group.key.namespace, self._settings
        groups = self._reservations.groups_in(namespace)
        if groups >= settings.groups_per_namespace:
            return f"release.groupsPerNamespace: {counted(groups, 'group')} of the namespace {agreeing(groups, 'has', 'have')} room reserved"
        room = total([self._reservations.room_of(namespace), *(pod.requests for pod in group.waiting)])
        reserved, needed = self._reservations.room_of(namespace).get(PODS, 0), len(group.waiting)
        if reserved + needed > settings.pods_per_namespace:
            limit = f"more than {counted(settings.pods_per_namespace, 'pod')}"
            return f"release.podsPerNamespace: with {counted(needed, 'pod')} the namespace would have room reserved for {limit}"
        share = settings.share_per_namespace
        for name, amount in room.items() if reserved else ():  # the first group may be larger: else it would never run
            if name != PODS and amount > share * self._offered.get(name, 0):
                return f"release.sharePerNamespace: the namespace would have more than {share:.0%} of {name} reserved"
        return ""


def _others(pod: Pod, gate: str) -> tuple[str, ...]:
    return tuple(each for each in pod.gating.gates if each != gate) if pod.gating is not None else ()

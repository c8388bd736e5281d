"""Writes decisions and their status to GroupPlacements.

A decision is written before the first pod of its group is touched. Where the object exists already with a decision, made by
an earlier leader and not shown by the watch yet, that decision stands. Between a write and its watch event the
written object counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from extender.kube.effects import PodRef
from extender.kube.errors import Conflict, NotFound
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.release import Decision, GroupKey
from extender.tasks.namespace_limiter import NamespaceLimiter
from extender.tasks.release.pods import PodStore
from extender.wire.policies.group_placements import decision_body, undecided_body

JsonObject = dict[str, Any]


class PlacementStore(Protocol):
    """Reads and writes GroupPlacements."""

    async def get_placement(self, namespace: str, name: str) -> tuple[GroupPlacement, str]:
        """The object and its resourceVersion."""

    async def create_placement(self, body: JsonObject) -> GroupPlacement:
        """Creates it."""

    async def update_placement(self, body: JsonObject) -> GroupPlacement:
        """Replaces its spec at the version in the body."""

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        """Merges into its status."""

    async def delete_placement(self, placement: GroupPlacement) -> None:
        """Deletes exactly this object."""


class ShownPlacements(Protocol):
    """What the watch shows."""

    def of(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group."""


class PlacementWriter:
    """The writes, under a rate limiter of their own. Each method raises ``KubeError``."""

    def __init__(
        self,
        store: PlacementStore,
        shown: ShownPlacements,
        rate_limiter: NamespaceLimiter,
        utc_now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._shown = shown
        self._rate_limiter = rate_limiter
        self._utc_now = utc_now
        self._written: dict[GroupKey, GroupPlacement] = {}

    def find(self, group: GroupKey) -> GroupPlacement | None:
        """The object of a group, as it was written last or as the watch shows it."""
        return self._written.get(group) or self._shown.of(group)

    def observe(self, group: GroupKey) -> None:
        """The watch shows the object of a group anew: with the same decision it counts, and not the written one."""
        written, shown = self._written.get(group), self._shown.of(group)
        if (
            written is not None
            and shown is not None
            and shown.uid == written.uid
            and shown.decision == written.decision
        ):
            del self._written[group]

    def forget(self) -> None:
        """Another leader may have written since."""
        self._written.clear()

    async def decide(
        self, decision: Decision, replaces: Decision | None, owner: Mapping[str, str] | None = None
    ) -> Decision:
        """Writes a decision down; returns the one that stands. ``replaces``: the decision that may be overwritten."""
        group = decision.group
        async with self._rate_limiter.acquire(group.namespace):
            known = self.find(group)
            if known is None:
                try:
                    self._written[group] = await self._store.create_placement(decision_body(decision, owner=owner))
                except Conflict:
                    pass  # it exists; it is read below
                else:
                    return decision
            try:
                found, version = await self._store.get_placement(group.namespace, placement_name(group))
            except NotFound:
                self._written.pop(group, None)  # the watch shows one that was deleted
                self._written[group] = await self._store.create_placement(decision_body(decision, owner=owner))
                return decision
            stands = found.decision
            if stands is not None and stands != replaces:
                self._written[group] = found
                return stands
            self._written[group] = await self._store.update_placement(decision_body(decision, version, owner))
            return decision

    async def begin(self, group: GroupKey, gate: str, size: int) -> None:
        """Creates the object of a group that nothing is decided for, so that its status can tell why."""
        async with self._rate_limiter.acquire(group.namespace):
            try:
                self._written[group] = await self._store.create_placement(undecided_body(group, gate, size))
            except Conflict:
                found, _ = await self._store.get_placement(group.namespace, placement_name(group))
                self._written[group] = found

    async def tell(self, group: GroupKey, status: PlacementStatus, since: datetime | None = None) -> None:
        """Writes the status. Does nothing where there is no object."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            try:
                await self._store.patch_placement_status(known, status, since or self._utc_now())
            except (NotFound, Conflict):
                self._written.pop(group, None)
                raise

    async def delete(self, group: GroupKey) -> None:
        """Deletes the object of a group whose pods are gone."""
        known = self.find(group)
        if known is None:
            return
        async with self._rate_limiter.acquire(group.namespace):
            with suppress(NotFound, Conflict):
                await self._store.delete_placement(known)
            self._written.pop(group, None)


class ReleaseStore(PodStore, PlacementStore, Protocol):
    """Implemented by `kube.release_objects`."""


class LeaderReleaseStore:
    """``check``: raises ``LeadershipLost``; called before each write. What was decided in an earlier term is not written."""

    def __init__(self, store: ReleaseStore, check: Callable[[], None]) -> None:
        self._store = store
        self._check = check
        self.get_pod = store.get_pod
        self.get_placement = store.get_placement

    async def release_pod(self, pod: PodRef, patch: JsonObject) -> JsonObject:
        """As `PodStore`."""
        self._check()
        return await self._store.release_pod(pod, patch)

    async def create_placement(self, body: JsonObject) -> GroupPlacement:
        """As `PlacementStore`."""
        self._check()
        return await self._store.create_placement(body)

    async def update_placement(self, body: JsonObject) -> GroupPlacement:
        """As `PlacementStore`."""
        self._check()
        return await self._store.update_placement(body)

    async def patch_placement_status(self, placement: GroupPlacement, status: PlacementStatus, since: datetime) -> None:
        """As `PlacementStore`."""
        self._check()
        await self._store.patch_placement_status(placement, status, since)

    async def delete_placement(self, placement: GroupPlacement) -> None:
        """As `PlacementStore`."""
        self._check()
        await self._store.delete_placement(placement)

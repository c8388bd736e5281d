"""Subscriptions to changes: what a subscriber is told, of every object of a table or of one pod.

Subscribers are called after the change has been applied to every count, on the event loop, and in the order in which
they subscribed. They must return at once: most of them set an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from extender.model.objects import Pod

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """One object before and after a change; None before it existed, and after it was deleted."""

    old: T | None
    new: T | None


class Subscribers(Generic[T]):
    """The subscribers to every change of one table."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Change[T]], None]] = []

    def __len__(self) -> int:
        return len(self._callbacks)

    def subscribe(self, callback: Callable[[Change[T]], None]) -> None:
        """Calls it after each change from now on. O(1)."""
        self._callbacks.append(callback)

    def unsubscribe(self, callback: Callable[[Change[T]], None]) -> None:
        """Ends a `subscribe`. O(subscribers)."""
        self._callbacks.remove(callback)

    def notify(self, old: T | None, new: T | None) -> None:
        """Tells all subscribers of a change. O(subscribers); without any it makes no `Change`."""
        if self._callbacks:
            change = Change(old, new)
            for callback in tuple(self._callbacks):
                callback(change)


class PodSubscribers:
    """Subscribers to the changes of single pods, by UID: a pod without a subscriber costs one look-up."""

    def __init__(self) -> None:
        self._of: dict[str, Subscribers[Pod]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def subscribe(self, uid: str, callback: Callable[[Change[Pod]], None]) -> None:
        """Calls it after each change of the pod from now on, also of a pod that does not exist yet. O(1)."""
        self._of.setdefault(uid, Subscribers()).subscribe(callback)

    def unsubscribe(self, uid: str, callback: Callable[[Change[Pod]], None]) -> None:
        """Ends a `subscribe`. O(subscribers of the pod)."""
        here = self._of[uid]
        here.unsubscribe(callback)
        if not here:
            del self._of[uid]

    def notify(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """Tells the subscribers of a pod. O(1) where it has none."""
        here = self._of.get(uid)
        if here is not None:
            here.notify(old, new)

"""Subscriptions to changes of every object of a table, or of one pod.

Subscribers are called on the event loop, after the change was applied to every count, in the order in which they
subscribed. They must return at once; most of them set an event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from extender.model import changes
from extender.model.objects import Pod

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IndexChange(Generic[T]):
    """One object before and after a change. None: it did not exist before, or is deleted."""

    old: T | None
    new: T | None


class Subscribable(Protocol):
    """A source of changes for subscribers that need not know what changed: `Subscribers` of any table."""

    def subscribe(self, callback: Callable[[object], None]) -> None:
        """Calls it after each change from now on."""

    def unsubscribe(self, callback: Callable[[object], None]) -> None:
        """Ends a `subscribe`."""


class Subscribers(Generic[T]):
    """The subscribers to every change of one table."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[IndexChange[T]], None]] = []

    def __len__(self) -> int:
        return len(self.callbacks)

    def subscribe(self, callback: Callable[[IndexChange[T]], None]) -> None:
        """Calls it after each change from now on. O(1)."""
        self.callbacks.append(callback)

    def unsubscribe(self, callback: Callable[[IndexChange[T]], None]) -> None:
        """Ends a `subscribe`. O(subscribers)."""
        self.callbacks.remove(callback)

    def notify(self, old: T | None, new: T | None) -> None:
        """Calls all subscribers. O(subscribers); makes no `IndexChange` if there are none."""
        if self.callbacks:
            change = IndexChange(old, new)
            for callback in tuple(self.callbacks):
                callback(change)


class PodSubscribers:
    """Subscribers to the changes of single pods, by UID. Most pods have none; then `notify` need not be called."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Subscribers[Pod]] = {}

    def __len__(self) -> int:
        return len(self.by_uid)

    def subscribe(self, uid: str, callback: Callable[[IndexChange[Pod]], None]) -> None:
        """Calls it after each change of the pod from now on. The pod need not exist yet. O(1)."""
        self.by_uid.setdefault(uid, Subscribers()).subscribe(callback)

    def unsubscribe(self, uid: str, callback: Callable[[IndexChange[Pod]], None]) -> None:
        """Ends a `subscribe`. O(subscribers of the pod)."""
        here = self.by_uid[uid]
        here.unsubscribe(callback)
        if not here:
            del self.by_uid[uid]

    def notify(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """Calls the subscribers of a pod that is in ``by_uid``. O(subscribers of the pod)."""
        self.by_uid[uid].notify(old, new)


class ChangeJournal:
    """One for a whole index. ``note`` must not raise. None: nothing is recorded, and a change costs only this check.

    Changes that leave the index unchanged are not noted. Neither is what follows from a change of an object, such as
    the end of an assumption.
    """

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: Callable[[changes.Change], None] | None = None

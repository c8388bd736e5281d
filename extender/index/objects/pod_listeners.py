"""Callbacks for single pods: called after a change of that pod has been applied, so that waiting costs no polling."""

from __future__ import annotations

from collections.abc import Callable

Callback = Callable[[], None]


class PodListeners:
    """Callbacks by UID, kept until they are removed."""

    def __init__(self) -> None:
        self._held: dict[str, list[Callback]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, uid: str, callback: Callback) -> None:
        """Calls it after each change of the pod from now on. O(1)."""
        self._held.setdefault(uid, []).append(callback)

    def remove(self, uid: str, callback: Callback) -> None:
        """Ends an `add`. O(callbacks of the pod)."""
        callbacks = self._held[uid]
        callbacks.remove(callback)
        if not callbacks:
            del self._held[uid]

    def notify(self, uid: str) -> None:
        """The pod has changed, come or gone. O(1) where no callback waits for it."""
        for callback in self._held.get(uid, ()):
            callback()

"""The labels of namespaces for admission reviews, also of one that the watch has not shown yet.

The API server sends reviews of the first pods of a new namespace before our watch shows the namespace. It must not count as one
without labels: a gate or a node selector that a policy directs for it could never be added later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from extender.index.objects.namespaces import Namespaces
from extender.kube.errors import KubeError
from extender.model.constraints.labels import Labels, is_dns_label
from extender.wire.errors import WireError

WAIT_SHARE: Final = 0.1  # of the webhook's time, for the watch; it seldom takes more than 50 ms
READ_SHARE: Final = 0.4
# Reviews that wait. So a client that forges reviews causes no more calls to the API server, and leaves places to real reviews.
_MOST_WAITING: Final = 32
_MOST_READ: Final = 256  # namespaces


class NamespacesOfReviews:
    """Waits a moment for the watch, then reads. ``read`` returns the labels of a namespace, None where there is none.

    ``timeout``: seconds that the API server waits for the webhook.
    """

    def __init__(self, known: Namespaces, read: Callable[[str], Awaitable[Labels | None]], timeout: float) -> None:
        self._known = known
        self._read = read
        self._timeout = timeout
        self._found: dict[str, Labels] = {}
        self._waiting: dict[str, list[asyncio.Timeout]] = {}

    def labels(self, name: str) -> Labels | None:
        """The labels as the watch shows them, or as the latest review read them; None if both are unknown. O(1)."""
        labels = self._known.labels(name)
        return self._found.get(name) if labels is None else labels

    async def find(self, name: str, peer: str = "") -> None:
        """Returns when the labels are known, or at the end of the time. ``peer``: the sender of the review."""
        if self._known.labels(name) is not None or not is_dns_label(name) or not self._has_place(peer):
            return
        self._found.pop(name, None)  # of a namespace of that name that may be gone
        places = self._waiting.setdefault(peer, [])
        place = asyncio.timeout(None)
        places.append(place)
        try:
            async with place:
                if not await self._shown(name):
                    async with asyncio.timeout(self._timeout * READ_SHARE):
                        labels = await self._read(name)
                    if labels is not None:
                        self._found[name] = labels
                        if len(self._found) > _MOST_READ:
                            del self._found[next(iter(self._found))]
        except (KubeError, TimeoutError, WireError):
            return  # the failure policies of the policies decide
        finally:
            self._leave(peer, place)

    def _has_place(self, peer: str) -> bool:
        """Whether one more review of a peer may wait. If all places are taken, the peer with most reviews loses its last place.

        O(peers).
        """
        if sum(map(len, self._waiting.values())) < _MOST_WAITING:
            return True
        most = max(self._waiting, key=lambda name: len(self._waiting[name]))
        if len(self._waiting[most]) <= len(self._waiting.get(peer, ())):
            return False
        last = self._waiting[most][-1]
        self._leave(most, last)
        last.reschedule(asyncio.get_running_loop().time())
        return True

    def _leave(self, peer: str, place: asyncio.Timeout) -> None:
        places = self._waiting.get(peer, [])
        if place in places:
            places.remove(place)
        if not places:
            self._waiting.pop(peer, None)

    async def _shown(self, name: str) -> bool:
        """Whether the watch shows the namespace within its share of the time."""
        changed = asyncio.Event()

        def wake(_change: object) -> None:
            if self._known.labels(name) is not None:
                changed.set()

        self._known.changes.subscribe(wake)
        try:
            async with asyncio.timeout(self._timeout * WAIT_SHARE):
                await changed.wait()
        except TimeoutError:
            return False
        finally:
            self._known.changes.unsubscribe(wake)
        return True

"""Limits of connections, in total and per peer, and which connection is closed for a new one.

A table of values without I/O: `connections` accepts, reports what each connection is doing, and closes those chosen here.
A connection without a complete request is closed for a new one, the oldest first; one whose request is being decided never
is. So a flood closes its own connections, and a probe or a scheduler that sends its request at once is answered.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

_LOOPBACK: Final = "loopback"
_NEW_SECONDS: Final = 1.0  # seconds within which a well-behaved client has sent its request
_NETWORK: Final = 64  # bits of an IPv6 address that identify the network; a host owns all addresses within it


class Stage(IntEnum):
    """What a connection is doing, in the order in which connections are closed."""

    SILENT = 0  # in the handshake, or the head of a request is not complete
    IDLE = 1  # between two requests
    READING = 2  # the body is not complete
    DECIDING = 3  # the request is complete


def peer_of(address: str) -> str:
    """The peer of an address: all of loopback is one peer, and so is an IPv6 network of 64 bits."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            return _LOOPBACK if found.is_loopback else str(IPv6Address(int(found) >> _NETWORK << _NETWORK))
        found = found.ipv4_mapped
    return _LOOPBACK if found.is_loopback else str(found)


@dataclass(eq=False, slots=True)
class ConnectionSlot:
    """One connection. Times are those of the loop's clock; `blocked`: since when its client has not read its answer."""

    peer: str
    since: float
    stage: Stage = Stage.SILENT
    blocked: float | None = None
    close: Callable[[], None] = field(default=lambda: None)
    waiting_bytes: Callable[[], int] = field(default=lambda: 0)


class ConnectionSlots:
    """All connections: at most `most`, and at most `per_peer` of one peer. Finding one to close is O(connections)."""

    def __init__(self, most: int, per_peer: int) -> None:
        self._most = most
        self._per_peer = per_peer
        self._slots: dict[ConnectionSlot, None] = {}
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[ConnectionSlot]:
        return iter([*self._slots])

    def acquire(self, peer: str, now: float) -> tuple[ConnectionSlot | None, ConnectionSlot | None]:
        """A slot for a new connection, and the connection to close for it; no slot where none can be closed."""
        closed = None
        if self._of_peer[peer] >= self._per_peer:
            closed = _first_to_close((slot for slot in self._slots if slot.peer == peer), now)
        elif len(self._slots) >= self._most:
            largest = self._largest()
            closed = _first_to_close((slot for slot in self._slots if slot.peer == largest), now)
            closed = closed or _first_to_close(self._slots, now)
        if closed is None and self._is_full(peer):
            return None, None
        if closed is not None:
            self.release(closed)
        slot = ConnectionSlot(peer, now)
        self._slots[slot] = None
        self._of_peer[peer] += 1
        return slot, closed

    def release(self, slot: ConnectionSlot) -> None:
        """Frees the slot of a connection that is closed or about to be. Idempotent."""
        if slot not in self._slots:
            return
        del self._slots[slot]
        self._of_peer[slot.peer] -= 1
        if not self._of_peer[slot.peer]:
            del self._of_peer[slot.peer]

    def overdue(self, now: float, seconds: float) -> list[ConnectionSlot]:
        """The connections that were silent for longer than that, or whose client has not read its answer."""
        return [
            slot
            for slot in self._slots
            if (slot.stage is Stage.SILENT and now - slot.since > seconds)
            or (slot.blocked is not None and now - slot.blocked > seconds)
        ]

    def beyond(self, most_bytes: int) -> list[ConnectionSlot]:
        """The connections with unread answers, the oldest first, that together hold the bytes beyond `most_bytes`."""
        blocked = sorted((slot for slot in self._slots if slot.blocked is not None), key=lambda slot: slot.blocked or 0)
        held = sum(slot.waiting_bytes() for slot in blocked)
        found = []
        for slot in blocked:
            if held <= most_bytes:
                break
            held -= slot.waiting_bytes()
            found.append(slot)
        return found

    def _is_full(self, peer: str) -> bool:
        return len(self._slots) >= self._most or self._of_peer[peer] >= self._per_peer

    def _largest(self) -> str:
        """The peer with the most connections."""
        return self._of_peer.most_common(1)[0][0]


def _first_to_close(slots: Iterable[ConnectionSlot], now: float) -> ConnectionSlot | None:
    """The connection in the earliest stage, and of these the one that has been in it for the longest.

    New connections are closed last, the oldest of them first: otherwise, among many idle connections, each handshake would
    be ended by the next one.
    """
    candidates = (slot for slot in slots if slot.stage is not Stage.DECIDING)
    return min(candidates, key=lambda slot: _rank(slot, now), default=None)


def _rank(slot: ConnectionSlot, now: float) -> tuple[bool, int, float]:
    begins = now - slot.since < _NEW_SECONDS
    return begins, 0 if begins else slot.stage, slot.since

"""Limits of connections, in total and per peer, and which connection is closed for a new one.

This is a table of values. `connections` accepts connections, reports their stages, and closes the connections that are chosen here.

1. For a new connection the oldest connection without a complete request is closed. So a flood closes its own connections, and a
   probe or a scheduler that sends its request at once is answered.
2. A connection with a complete request is never closed for a new one: the request would be carried out, but its client would see a
   failure. It counts towards neither limit, because kube-scheduler has a connection for each binding in progress.
3. Requests have limits of their own (`server.maxInFlight`, `maxBindsInFlight`); above these they are refused by an answer.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

_LOOPBACK: Final = "loopback"
_NEW_SECONDS: Final = 1.0  # seconds within which a well-behaved client has sent its request
_COMPARED: Final = 32  # connections that are compared before one is closed; each takes a system call
_NETWORK: Final = 64  # bits of an IPv6 address that identify the network; a host owns all addresses within it


class Stage(IntEnum):
    """What a connection is doing, in the order in which connections are closed."""

    SILENT = 0  # in the handshake, or no request has begun although bytes may have come
    IDLE = 1  # between two requests
    READING = 2  # the body is not complete
    DECIDING = 3  # the request is complete, and not answered yet


def peer_of(address: str) -> str:
    """The peer of an address. All loopback addresses are one peer; all addresses of an IPv6 /64 network are one peer."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None:
            return _LOOPBACK if ip.is_loopback else str(IPv6Address(int(ip) >> _NETWORK << _NETWORK))
        ip = ip.ipv4_mapped
    return _LOOPBACK if ip.is_loopback else str(ip)


@dataclass(eq=False)
class ConnectionSlot:
    """What the limits know of one connection. Times are of `monotonic`.

    `since`: when it entered its stage. `blocked`: since when its client has not read its answer. `is_counted`: towards the limits.
    """

    peer: str
    since: float
    stage: Stage = Stage.SILENT
    blocked: float | None = None
    is_counted: bool = False

    def has_unread(self) -> bool:
        """Whether its socket has unread bytes. One system call."""
        return False

    def waiting_bytes(self) -> int:
        """The bytes of its answer that the client has not read."""
        return 0


class ConnectionSlots:
    """All open connections. At most `most` have no complete request, at most `per_peer` of these belong to one peer."""

    def __init__(self, most: int, per_peer: int) -> None:
        self._most = most
        self._per_peer = per_peer
        self._open: dict[ConnectionSlot, None] = {}
        self._counted: dict[ConnectionSlot, None] = {}
        self._of_peer: Counter[str] = Counter()  # counted connections

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[ConnectionSlot]:
        return iter(list(self._open))

    def acquire(self, slot: ConnectionSlot, now: float) -> ConnectionSlot | None:
        """Counts a new connection. Returns the connection to close for it, which does not count any more."""
        closed = None if self.has_room(slot.peer) else self.first_to_close(slot.peer, now)
        if closed is not None:
            self.set_apart(closed)
        self._open[slot] = None
        self.rejoin(slot)
        return closed

    def has_room(self, peer: str) -> bool:
        """Whether the peer may have one more connection without a complete request."""
        # Connections with a complete request are set apart only now, all at once: each request would otherwise pay for two changes.
        if self._is_full(peer):
            for slot in [slot for slot in self._counted if slot.stage is Stage.DECIDING]:
                self.set_apart(slot)
        return not self._is_full(peer)

    def first_to_close(self, peer: str, now: float, *, since: float | None = None) -> ConnectionSlot | None:
        """The connection to close for a new one of the peer, where `has_room` is False. O(connections without a complete request).

        ``since``: leave out connections that entered their stage at that time or later, and connections that have just begun.
        """
        # A peer at its own limit loses one of its own connections. Else the peer with the most connections loses one; only if that
        # peer has none to close, any other.
        is_full = self._of_peer[peer] >= self._per_peer
        crowd = peer if is_full else self._of_peer.most_common(1)[0][0]
        waiting = [slot for slot in self._counted if slot.stage is not Stage.DECIDING]
        closed = _first_to_close((slot for slot in waiting if slot.peer == crowd), now, since)
        if closed is None and not is_full:
            closed = _first_to_close(waiting, now, since)
        return closed

    def set_apart(self, slot: ConnectionSlot) -> None:
        """Counts a connection no longer: it has a complete request, or is about to be closed. Idempotent."""
        if slot.is_counted:
            slot.is_counted = False
            del self._counted[slot]
            self._of_peer[slot.peer] -= 1
            if not self._of_peer[slot.peer]:
                del self._of_peer[slot.peer]

    def rejoin(self, slot: ConnectionSlot) -> None:
        """Counts a connection again: its request is answered. A released connection stays released. Idempotent."""
        if slot in self._open and not slot.is_counted:
            slot.is_counted = True
            self._counted[slot] = None
            self._of_peer[slot.peer] += 1

    def release(self, slot: ConnectionSlot) -> None:
        """Drops a connection that is closed. Idempotent."""
        self.set_apart(slot)
        self._open.pop(slot, None)

    def _is_full(self, peer: str) -> bool:
        return len(self._counted) >= self._most or self._of_peer[peer] >= self._per_peer

    def overdue(self, now: float, seconds: float) -> list[ConnectionSlot]:
        """The connections that are too long without a request, or with an answer that the client does not read."""
        return [
            slot
            for slot in self._open
            if (slot.stage is Stage.SILENT and now - slot.since > seconds)
            or (slot.blocked is not None and now - slot.blocked > seconds)
        ]

    def beyond(self, most_bytes: int) -> list[ConnectionSlot]:
        """The oldest connections with unread answers: so many that the other unread answers have at most `most_bytes` together."""
        blocked = sorted((slot for slot in self._open if slot.blocked is not None), key=lambda slot: slot.blocked or 0)
        held = sum(slot.waiting_bytes() for slot in blocked)
        excess = []
        for slot in blocked:
            if held <= most_bytes:
                break
            held -= slot.waiting_bytes()
            excess.append(slot)
        return excess


def _first_to_close(slots: Iterable[ConnectionSlot], now: float, since: float | None) -> ConnectionSlot | None:
    """The connection to close first.

    1. Connections of an earlier stage come first; of one stage the connection that has been in it for the longest time.
    2. New connections come last, the oldest of them first. Otherwise, among many idle connections, each handshake would be ended by
       the next one.
    3. Of the first few connections one without unread bytes is preferred. Unread bytes may be a request, which the next iteration of
       the event loop reads. Where all have unread bytes (handshakes that wait for their turn), the first one is closed.
    """

    def rank(slot: ConnectionSlot) -> tuple[bool, int, float]:
        begins = now - slot.since < _NEW_SECONDS
        return begins, 0 if begins else slot.stage, slot.since

    # Where `since` is given, a connection that has just begun is left out too.
    ordered = sorted(
        (slot for slot in slots if since is None or (slot.since < since and now - slot.since >= _NEW_SECONDS)), key=rank
    )
    first = ordered[0] if ordered else None
    return next((slot for slot in ordered[:_COMPARED] if not slot.has_unread()), first)

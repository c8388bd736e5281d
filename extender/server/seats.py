"""Who may stay connected: how many connections there are, in all and from one peer, and which one gives way.

A table of values without I/O: `connections` accepts, reports what each connection is doing, and closes what is named
here. A connection that is full of promise, still silent or unfinished, gives way to a new one, the oldest first; one
whose question is being decided never does. So a flood ends its own connections, and a probe or a scheduler that sends
its request at once gets through.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final

_HOME: Final = "loopback"
_BEGINNING: Final = 1.0  # seconds in which a client that means it has sent its request
_NETWORK: Final = 64  # bits of an IPv6 address that tell networks apart; a host has all addresses behind them


class Stage(IntEnum):
    """What a connection is doing, in the order in which connections give way."""

    SILENT = 0  # in the handshake, or the head of a request is not complete
    IDLE = 1  # between two requests
    READING = 2  # the body is not complete
    DECIDING = 3  # the question is complete


def peer_of(address: str) -> str:
    """Who an address counts as: all of loopback is one peer, and so is an IPv6 network of 64 bits."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is None:
            return _HOME if found.is_loopback else str(IPv6Address(int(found) >> _NETWORK << _NETWORK))
        found = found.ipv4_mapped
    return _HOME if found.is_loopback else str(found)


@dataclass(eq=False, slots=True)
class Seat:
    """One connection. Times are those of the loop's clock; `blocked` is since when its answer has not been taken."""

    peer: str
    since: float
    stage: Stage = Stage.SILENT
    blocked: float | None = None
    close: Callable[[], None] = field(default=lambda: None)
    waiting_bytes: Callable[[], int] = field(default=lambda: 0)

    def enter(self, stage: Stage, now: float) -> None:
        """The connection does something else from now on."""
        self.stage, self.since = stage, now


class Seats:
    """All connections: at most `most`, and at most `per_peer` of one peer. Finding one that gives way is O(connections)."""

    def __init__(self, most: int, per_peer: int) -> None:
        self._most = most
        self._per_peer = per_peer
        self._seats: dict[Seat, None] = {}
        self._of_peer: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter([*self._seats])

    def take(self, peer: str, now: float) -> tuple[Seat | None, Seat | None]:
        """A seat for a new connection, and the one that is to be closed for it; no seat where nothing gives way."""
        leaving = None
        if self._of_peer[peer] >= self._per_peer:
            leaving = _first_to_leave((seat for seat in self._seats if seat.peer == peer), now)
        elif len(self._seats) >= self._most:
            crowd = self._largest()
            leaving = _first_to_leave((seat for seat in self._seats if seat.peer == crowd), now)
            leaving = leaving or _first_to_leave(self._seats, now)
        if leaving is None and self._is_full(peer):
            return None, None
        if leaving is not None:
            self.leave(leaving)
        seat = Seat(peer, now)
        self._seats[seat] = None
        self._of_peer[peer] += 1
        return seat, leaving

    def leave(self, seat: Seat) -> None:
        """A connection is gone, or as good as gone. Twice is once."""
        if seat not in self._seats:
            return
        del self._seats[seat]
        self._of_peer[seat.peer] -= 1
        if not self._of_peer[seat.peer]:
            del self._of_peer[seat.peer]

    def overdue(self, now: float, seconds: float) -> list[Seat]:
        """Those that have been silent for longer than that, or have not taken their answer."""
        return [
            seat
            for seat in self._seats
            if (seat.stage is Stage.SILENT and now - seat.since > seconds)
            or (seat.blocked is not None and now - seat.blocked > seconds)
        ]

    def beyond(self, most_bytes: int) -> list[Seat]:
        """Those whose answers are not taken, the oldest first, as many as hold what is more than `most_bytes` in all."""
        blocked = sorted((seat for seat in self._seats if seat.blocked is not None), key=lambda seat: seat.blocked or 0)
        held = sum(seat.waiting_bytes() for seat in blocked)
        found = []
        for seat in blocked:
            if held <= most_bytes:
                break
            held -= seat.waiting_bytes()
            found.append(seat)
        return found

    def _is_full(self, peer: str) -> bool:
        return len(self._seats) >= self._most or self._of_peer[peer] >= self._per_peer

    def _largest(self) -> str:
        """The peer with the most connections."""
        return self._of_peer.most_common(1)[0][0]


def _first_to_leave(seats: Iterable[Seat], now: float) -> Seat | None:
    """The one in the earliest stage, and of these the one that has been in it for the longest.

    Those that have just begun go last, the oldest of them first: else in a crowd of idle connections each handshake would
    be ended by the next one.
    """
    candidates = (seat for seat in seats if seat.stage is not Stage.DECIDING)
    return min(candidates, key=lambda seat: _rank(seat, now), default=None)


def _rank(seat: Seat, now: float) -> tuple[bool, int, float]:
    begins = now - seat.since < _BEGINNING
    return begins, 0 if begins else seat.stage, seat.since

"""TLS handshakes that come together are spread over iterations of the event loop, and silent connections delay none."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from extender.model.units import Address, Duration
from extender.server.app import listening
from extender.server.transport.connection_slots import ConnectionSlot, ConnectionSlots, Stage, peer_of
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Server
from tests.fakes import until
from tests.pki import Pki
from tests.server.raw import head_of, wire
from tests.server.serving import app_with

COUNT = 40
PER_ITERATION = 2


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@asynccontextmanager
async def served(pki: Pki, tls: ServerTls, seconds: float = 4) -> AsyncIterator[str]:
    """The service with this TLS and this time for a handshake; yields its URL."""
    app = app_with(server=Server(tls=pki.tls, request_timeout=Duration(seconds)))
    async with listening(app, Address("127.0.0.1:0"), tls) as url:
        yield url


async def probed(url: str, pki: Pki) -> int:
    """The status of a probe on a new connection."""
    async with wire(url, pki.client()) as connection:
        await connection.send(head_of("GET", "/livez"))
        return await connection.status()


def client_hello(context: ssl.SSLContext) -> bytes:
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("accepted", [False, True], ids=["with their connections", "on connections accepted before"])
async def test_of_handshakes_that_come_together_few_begin_in_one_iteration(pki: Pki, *, accepted: bool) -> None:
    loop, iteration, handshakes = asyncio.get_running_loop(), 0, Counter[int]()

    def count_iterations() -> None:
        nonlocal iteration
        iteration += 1
        if handshakes.total() < COUNT:
            loop.call_soon(count_iterations)

    def record(_handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        handshakes[iteration] += 1

    tls = ServerTls(pki.tls)
    tls.context.sni_callback = record
    hello = client_hello(pki.client())
    async with served(pki, tls) as url, AsyncExitStack() as stack:
        address = (urlsplit(url).hostname, urlsplit(url).port)
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(COUNT)]
        if accepted:
            assert await probed(url, pki) == 200  # on a newer connection
            handshakes.clear()
        for client in clients:  # the loop does not run: all of them have arrived when it does
            client.sendall(hello)
        count_iterations()
        await until(lambda: handshakes.total() == COUNT)
    assert max(handshakes.values()) <= PER_ITERATION


async def test_connections_that_never_begin_their_handshake_hold_up_none_and_are_closed(pki: Pki) -> None:
    async with served(pki, ServerTls(pki.tls), seconds=1) as url, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(wire(url)) for _ in range(COUNT)]
        assert await probed(url, pki) == 200
        assert all([await each.closed() for each in silent])


async def test_a_shutdown_does_not_wait_for_a_handshake_that_has_not_begun(pki: Pki) -> None:
    before = asyncio.all_tasks()
    async with AsyncExitStack() as stack:
        async with served(pki, ServerTls(pki.tls), seconds=3600) as url:
            silent = await stack.enter_async_context(wire(url))
            assert await probed(url, pki) == 200
        assert await silent.closed()
    assert asyncio.all_tasks() <= before


# -- Which connection gives way to a new one ---------------------------------------------------------------------------


@dataclass(eq=False)
class Slot(ConnectionSlot):
    """A connection without a socket."""

    is_unread: bool = False
    waiting: int = 0

    def has_unread(self) -> bool:
        return self.is_unread

    def waiting_bytes(self) -> int:
        return self.waiting


def sitting(slots: ConnectionSlots, peer: str, stage: Stage, since: float) -> Slot:
    """A connection that does something since then."""
    slot, leaving = entering(slots, peer, since)
    assert leaving is None
    slot.stage, slot.since = stage, since
    return slot


def entering(slots: ConnectionSlots, peer: str, now: float) -> tuple[Slot, ConnectionSlot | None]:
    """A new connection, and the one that is closed for it."""
    slot = Slot(peer, now)
    leaving = slots.acquire(slot, now)
    if leaving is not None:
        slots.release(leaving)
    return slot, leaving


def test_loopback_is_one_peer_and_so_is_a_network_of_ipv6() -> None:
    assert {peer_of(each) for each in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.2")} == {"loopback"}
    assert peer_of("::ffff:10.0.0.1") == peer_of("10.0.0.1") == "10.0.0.1"
    assert peer_of("fd00::1:2:3:4") == peer_of("fd00::9") != peer_of("fd00:0:0:1::9")
    assert peer_of("fe80::1%eth0") == peer_of("fe80::2")


def test_the_silent_go_before_the_idle_and_the_half_sent_and_the_oldest_first() -> None:
    slots = ConnectionSlots(most=4, per_peer=4)
    reading = sitting(slots, "a", Stage.READING, 1)
    idle = sitting(slots, "a", Stage.IDLE, 2)
    young, old = sitting(slots, "a", Stage.SILENT, 4), sitting(slots, "a", Stage.SILENT, 3)
    deleted: list[ConnectionSlot | None] = []
    now = 10.0
    while len(deleted) < 4:
        slot, leaving = entering(slots, "a", now)
        deleted.append(leaving)
        slot.stage, slot.since = Stage.READING, now
        now += 1
    assert deleted == [old, young, idle, reading]
    assert len(slots) == 4


def test_a_connection_whose_request_is_decided_is_never_closed_for_another_and_takes_no_place() -> None:
    slots = ConnectionSlots(most=1, per_peer=1)
    deciding = [sitting(slots, "a", Stage.DECIDING, now) for now in range(100)]
    assert len(slots) == 100
    waiting = sitting(slots, "a", Stage.SILENT, 100)
    assert not slots.has_room("a")
    assert entering(slots, "a", 200)[1] is waiting
    assert [slot for slot in slots if slot.stage is Stage.DECIDING] == deciding


def test_a_connection_that_was_set_apart_counts_again_once_it_is_answered() -> None:
    slots = ConnectionSlots(most=2, per_peer=2)
    slot, other = sitting(slots, "a", Stage.DECIDING, 0), sitting(slots, "a", Stage.IDLE, 0)
    assert slots.has_room("a")
    assert (slot.is_counted, other.is_counted) == (False, True)
    slot.stage, slot.since = Stage.IDLE, 1
    slots.rejoin(slot)
    assert not slots.has_room("a")
    slots.release(other)
    assert slots.first_to_close("a", 1.5, since=1.4) is None, "it has just begun to wait"
    assert slots.first_to_close("a", 3, since=1) is None, "it was not waiting yet"
    assert slots.first_to_close("a", 3, since=1.1) is slot
    slots.release(slot)
    slots.rejoin(slot)
    assert len(slots) == 0, "what was closed stays closed"


def test_a_connection_with_unread_data_is_closed_only_where_all_others_have_some_too() -> None:
    slots = ConnectionSlots(most=3, per_peer=3)
    silent, idle, other = (sitting(slots, "a", Stage.IDLE, since) for since in range(3))
    silent.stage = Stage.SILENT
    for slot in (silent, idle):
        slot.is_unread = True
    found, closed = entering(slots, "a", 9)
    assert closed is other
    found.is_unread = True
    assert entering(slots, "a", 9)[1] is silent


def test_a_peer_at_its_limit_gives_way_to_itself_only() -> None:
    slots = ConnectionSlots(most=10, per_peer=2)
    other = sitting(slots, "other", Stage.SILENT, 0)
    first = sitting(slots, "crowd", Stage.SILENT, 1)
    sitting(slots, "crowd", Stage.SILENT, 2)
    assert entering(slots, "crowd", 3)[1] is first
    assert other in list(slots)


def test_where_all_are_taken_the_largest_peer_gives_way() -> None:
    slots = ConnectionSlots(most=3, per_peer=3)
    sitting(slots, "scheduler", Stage.SILENT, 0)
    first = sitting(slots, "crowd", Stage.IDLE, 1)
    sitting(slots, "crowd", Stage.IDLE, 2)
    _, leaving = entering(slots, "kubelet", 3)
    assert leaving is first


def test_nothing_is_kept_of_a_peer_that_has_gone() -> None:
    slots = ConnectionSlots(most=3, per_peer=3)
    slot = sitting(slots, "a", Stage.IDLE, 0)
    slots.release(slot)
    slots.release(slot)
    assert len(slots) == 0
    assert not slots._of_peer


def test_overdue_are_the_silent_and_those_that_do_not_take_their_answer() -> None:
    slots = ConnectionSlots(most=9, per_peer=9)
    silent = sitting(slots, "a", Stage.SILENT, 0)
    slow = sitting(slots, "a", Stage.DECIDING, 0)
    slow.blocked = 1.0
    for stage in (Stage.IDLE, Stage.READING, Stage.DECIDING):
        sitting(slots, "a", stage, 0)
    sitting(slots, "a", Stage.SILENT, 4)
    assert slots.overdue(6.0, 4.0) == [silent, slow]


def test_answers_that_are_not_taken_are_bounded_in_all() -> None:
    slots = ConnectionSlots(most=9, per_peer=9)
    for number in range(4):
        slot = sitting(slots, "a", Stage.DECIDING, number)
        slot.blocked, slot.waiting = float(number), 100
    assert [slot.blocked for slot in slots.beyond(250)] == [0.0, 1.0]
    assert slots.beyond(400) == []


def test_a_handshake_in_a_crowd_of_idle_or_half_sent_connections_is_not_ended_by_the_next() -> None:
    for stage in (Stage.IDLE, Stage.READING):
        slots = ConnectionSlots(most=3, per_peer=3)
        old = [sitting(slots, "a", stage, since) for since in (0.0, 1.0, 2.0)]
        newcomers = [entering(slots, "a", 9.0 + number / 10) for number in range(3)]
        assert [leaving for _, leaving in newcomers] == old


def test_among_those_that_have_just_begun_the_oldest_goes() -> None:
    slots = ConnectionSlots(most=2, per_peer=2)
    first = sitting(slots, "a", Stage.IDLE, 5.0)
    sitting(slots, "a", Stage.SILENT, 5.1)
    assert entering(slots, "a", 5.2)[1] is first

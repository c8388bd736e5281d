"""How fresh a reflector is goes by what has been read, and a question can wait for what lay in the socket when it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from socket import socketpair
from typing import Any

import pytest

from extender.kube.byte_stream import StreamSockets
from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorPhase, WatchOptions
from extender.kube.session import Session, open_session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import FakeClock, FakeHandler, until
from tests.kube.scripted import bookmark, event, namespace
from tests.kube.unread import Server, Socket

FULL = 1_000_000  # bytes in a socket that may have held up its sender


KNOWN: dict[str, list[tuple[int, float, int, float | None]]] = {
    "read to the last byte": [(100, 5.0, 0, 5.0)],
    "more is unread: at 7 all that lay there at 5 is in, but not what came by 7": [
        *((100, 5.0, 250, None), (200, 6.0, 90, None), (90, 7.0, 40, 5.0), (40, 8.0, 0, 8.0)),
    ],
    "a full socket, whose sender may have had to wait": [(FULL, 5.0, FULL, None), (FULL, 6.0, 0, 6.0)],
    "frames of HTTP and TLS, which are no part of the stream": [(100, 5.0, 50, None), (40, 6.0, 0, 5.0)],
}


@pytest.mark.parametrize("chunks", KNOWN.values(), ids=KNOWN)
def test_what_is_read_is_known_up_to_a_moment(chunks: list[tuple[int, float, int, float | None]]) -> None:
    """Each chunk has its size, the time at which it is read, and what is left in the socket then."""
    found = Socket()
    for size, now, left, known in chunks:
        found.read(size, now, left)
        assert found.backlog.note_handled() == known


def test_a_stream_that_never_stops_is_known_as_well_as_it_is_read() -> None:
    """Something always lies there, and yet the reader is never more than a chunk behind."""
    found, known = Socket(), list[float]()
    for moment in range(1, 20):
        found.read(100, float(moment), left=100)
        if (until := found.backlog.note_handled()) is not None:
            known.append(until)
    assert known[-1] >= 17.0


def test_a_stream_that_broke_off_proves_nothing() -> None:
    found = Socket()
    found.read(100, 5.0, left=250)
    found.backlog.end()
    found.backlog.begin(Socket())
    assert found.backlog.note_handled() is None


def test_a_request_learns_without_a_look_at_the_socket_whether_there_may_be_news() -> None:
    found = Socket()
    assert not found.backlog.may_be_behind(())
    assert not found.backlog.may_be_behind({8})
    assert found.backlog.may_be_behind({7}), "the socket holds unread bytes"
    found.buffered = 10
    assert found.backlog.may_be_behind(()), "what was received has not been given out"
    found.buffered = 0
    found.read(100, 5.0, left=0)
    assert found.backlog.may_be_behind(()), "what was given out has not been handled"
    found.backlog.note_handled()
    assert not found.backlog.may_be_behind(())
    found.backlog.end()
    assert not found.backlog.may_be_behind({7}), "the number may be another socket's by now"


def test_one_poll_names_the_sockets_with_unread_bytes_and_those_that_have_ended() -> None:
    pairs = [socketpair() for _ in range(3)]
    (quiet, _), (busy, to_busy), (ended, to_ended) = pairs
    sockets = StreamSockets()
    for each in (quiet, busy, ended):
        sockets.add(each.fileno())
    assert sockets.readable() == []
    to_busy.send(b"news")
    to_ended.close()
    assert set(sockets.readable()) == {busy.fileno(), ended.fileno()}
    sockets.discard(ended.fileno())
    assert set(sockets.readable()) == {busy.fileno()}
    for pair in pairs:
        for each in pair:
            each.close()


def test_a_number_that_was_used_again_is_polled_until_its_last_stream_has_ended() -> None:
    one, other = socketpair()
    other.send(b"news")
    sockets = StreamSockets()
    sockets.add(one.fileno())
    sockets.add(one.fileno())
    sockets.discard(one.fileno())
    assert sockets.readable() == [one.fileno()]
    sockets.discard(one.fileno())
    assert sockets.readable() == []
    one.close()
    other.close()


def test_a_stream_without_a_socket_is_not_polled() -> None:
    sockets = StreamSockets()
    sockets.add(-1)
    assert sockets.readable() == []
    sockets.discard(-1)


async def test_a_request_that_finds_nothing_unread_does_not_wait() -> None:
    found = Socket()
    found.read(100, 5.0, left=0)
    found.backlog.note_handled()
    assert not found.backlog.is_behind
    await found.backlog.wait_until_handled()


@pytest.mark.parametrize("ending", ["reached", "emptied", "broken off"])
async def test_a_request_waits_for_what_lay_there_and_not_for_what_comes_meanwhile(ending: str) -> None:
    found = Socket()
    found.read(100, 5.0, left=50)
    assert found.backlog.is_behind
    waiting = asyncio.create_task(found.backlog.wait_until_handled())
    await asyncio.sleep(0)
    found.backlog.note_handled()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "the fifty bytes that lay in the socket are still to come"
    match ending:
        case "reached":
            found.read(60, 6.0, left=900)
            found.backlog.note_handled()
        case "emptied":
            found.read(40, 6.0, left=0)
            found.backlog.note_handled()
        case _:
            found.backlog.end()
    await waiting


async def test_bytes_that_turn_out_to_be_no_data_are_not_waited_for() -> None:
    """The end of a frame, a ticket of TLS: the transport reads them, and no reader is woken."""
    found = Socket()
    found.in_socket = 2
    assert found.backlog.is_behind
    waiting = asyncio.create_task(found.backlog.wait_until_handled())
    await asyncio.sleep(0)
    assert not waiting.done()
    found.in_socket = 0
    await waiting


# -- A loop that got no processor time: what the API server wrote meanwhile lies unread, and the reflector
#    knows it
# The server runs in threads, so that it can go on while the loop of the test stands still.


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in threads of its own."""
    found = Server()
    yield found
    found.close()


@asynccontextmanager
async def reflecting(
    server: Server, handler: FakeHandler[Namespace]
) -> AsyncIterator[tuple[Session, FakeClock, Reflector[Namespace]]]:
    """A reflector that watches the server and has handled an event."""
    clock = FakeClock()
    async with open_session(Access(host=server.url), clock) as session:
        reflector = Reflector(session.reads, NAMESPACES, WatchOptions(watch_list=False), clock, Random(1))
        task = asyncio.create_task(reflector.run(handler))
        await until(lambda: reflector.status.phase is ReflectorPhase.WATCHING)
        server.write(event("ADDED", namespace("b", 2)))
        await until(lambda: "b" in handler.objects)
        yield session, clock, reflector
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert session.reads.sockets.readable() == [], "a stream that has ended is not polled"


async def test_what_the_server_wrote_while_the_loop_stood_still_counts_before_a_request_is_answered(
    server: Server,
) -> None:
    handler = FakeHandler[Namespace]()
    async with reflecting(server, handler) as (session, clock, reflector):
        readable = session.reads.sockets.readable
        assert (reflector.backlog.is_behind, reflector.backlog.may_be_behind(readable())) == (False, False)
        clock.time += 60.0
        server.write(event("ADDED", namespace("c", 3)))
        assert (reflector.backlog.is_behind, "c" in handler.objects) == (True, False)
        assert reflector.backlog.may_be_behind(readable())
        assert reflector.status.last_heard == clock.time - 60.0, "nothing was read since"
        await reflector.backlog.wait_until_handled()
        assert (reflector.backlog.is_behind, "c" in handler.objects) == (False, True)
        assert reflector.status.last_heard == clock.time
        assert not reflector.backlog.may_be_behind(readable())


async def test_a_reflector_is_no_fresher_than_what_lies_unread_behind_the_news_that_it_reads(server: Server) -> None:
    """The first chunk after a pause was sent in the pause. What else was sent is still to be read."""
    handler = _Slow()
    async with reflecting(server, handler) as (_, clock, reflector):
        heard = reflector.status.last_heard
        handler.on_apply = lambda: server.write(bookmark(4))  # it comes while the one before is being taken in
        clock.time += 60.0
        server.write(event("ADDED", namespace("c", 3)))
        await until(lambda: "c" in handler.objects)
        await reflector.backlog.wait_until_handled()
        assert reflector.status.last_heard == heard + 60.0


class _Slow(FakeHandler[Namespace]):
    """Something happens while it takes a batch in, once."""

    on_apply: Any = None

    async def apply(self, changes: Any) -> None:
        if self.on_apply is not None:
            once, self.on_apply = self.on_apply, None
            once()
        await super().apply(changes)

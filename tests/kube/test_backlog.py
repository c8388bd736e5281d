"""How fresh a feed is goes by what has been read, and a question can wait for what lay in the socket when it came."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from socket import socketpair
from typing import Any

import orjson
import pytest

from extender.kube.byte_stream import Backlog, StreamSockets
from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import ReflectorPhase, WatchOptions
from extender.kube.session import open_session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import PATIENCE, FakeClock, FakeSink, until
from tests.kube.scripted import bookmark, event, namespace

FULL = 1_000_000  # bytes in a socket that may have held up its sender


class Socket:
    """A stream whose unread bytes the test sets."""

    def __init__(self) -> None:
        self.in_socket = 0
        self.buffered = 0
        self.descriptor = 7
        self.backlog = Backlog()
        self.backlog.begin(self)

    def unread(self) -> int:
        """In the socket or out of it."""
        return self.in_socket + self.buffered

    def read(self, size: int, now: float, left: int) -> None:
        """A chunk is read, and so much is left."""
        self.in_socket = left
        self.backlog.note_received(size, now)


def test_what_is_read_to_the_last_byte_is_known_up_to_the_moment_of_reading() -> None:
    found = Socket()
    found.read(100, 5.0, left=0)
    assert found.backlog.note_handled() == 5.0


def test_while_more_lies_unread_nothing_newer_is_known_than_before() -> None:
    found = Socket()
    found.read(100, 5.0, left=250)
    assert found.backlog.note_handled() is None
    found.read(200, 6.0, left=90)
    assert found.backlog.note_handled() is None
    found.read(90, 7.0, left=40)
    assert found.backlog.note_handled() == 5.0, "all that lay there at 5 is in, but not what had come by 7"
    found.read(40, 8.0, left=0)
    assert found.backlog.note_handled() == 8.0


def test_a_stream_that_never_stops_is_known_as_well_as_it_is_read() -> None:
    """Something always lies there, and yet the reader is never more than a chunk behind."""
    found, known = Socket(), list[float]()
    for moment in range(1, 20):
        found.read(100, float(moment), left=100)
        if (until := found.backlog.note_handled()) is not None:
            known.append(until)
    assert known[-1] >= 17.0


def test_a_full_socket_proves_nothing_as_its_sender_may_have_had_to_wait() -> None:
    found = Socket()
    found.read(FULL, 5.0, left=FULL)
    assert found.backlog.note_handled() is None
    found.read(FULL, 6.0, left=0)
    assert found.backlog.note_handled() == 6.0


def test_bytes_that_are_no_part_of_the_stream_do_not_hold_up_what_is_known() -> None:
    """The socket's count has the frames of HTTP and TLS in it, which never come out as data."""
    found = Socket()
    found.read(100, 5.0, left=50)
    assert found.backlog.note_handled() is None
    found.read(40, 6.0, left=0)
    assert found.backlog.note_handled() == 5.0


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


# -- A loop that got no processor time: what the API server told meanwhile lies unread, and the feed knows that it
#    does
# The server runs in threads, so that it can go on while the loop of the test stands still.

LIST = orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": [namespace("a")]})


class Server:
    """The same list to all clients, and one watch that gets what `tell` is given."""

    def __init__(self) -> None:
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._written: queue.Queue[None] = queue.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Answers in HTTP/1.0: a watch ends with its connection."""

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                if "watch=true" not in self.path:
                    self.wfile.write(LIST)
                    return
                while (line := outer._lines.get()) is not None:
                    self.wfile.write(line)
                    self.wfile.flush()
                    outer._written.put(None)

            def log_message(self, *_: Any) -> None:
                """Not to the test's output."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def tell(self, *lines: dict[str, Any]) -> None:
        """Write lines into the watch. Nothing else happens in the test's loop until they are written."""
        self._lines.put(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        self._written.get(timeout=PATIENCE)

    def close(self) -> None:
        self._lines.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in threads of its own."""
    found = Server()
    yield found
    found.close()


async def test_what_the_server_told_while_the_loop_stood_still_counts_before_a_request_is_answered(
    server: Server,
) -> None:
    clock, sink = FakeClock(), FakeSink[Namespace]()
    async with open_session(Access(host=server.url), clock) as session:
        feed = Reflector(session.reads, NAMESPACES, WatchOptions(watch_list=False), clock, Random(1))
        task = asyncio.create_task(feed.run(sink))
        await until(lambda: feed.status.phase is ReflectorPhase.WATCHING)
        server.tell(event("ADDED", namespace("b", 2)))
        await until(lambda: "b" in sink.objects)
        readable = session.reads.sockets.readable
        assert (feed.backlog.is_behind, feed.backlog.may_be_behind(readable())) == (False, False)
        clock.time += 60.0
        server.tell(event("ADDED", namespace("c", 3)))
        assert (feed.backlog.is_behind, "c" in sink.objects) == (True, False)
        assert feed.backlog.may_be_behind(readable())
        assert feed.status.last_heard == clock.time - 60.0, "nothing was read since"
        await feed.backlog.wait_until_handled()
        assert (feed.backlog.is_behind, "c" in sink.objects, feed.status.last_heard) == (False, True, clock.time)
        assert not feed.backlog.may_be_behind(readable())
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert readable() == [], "a stream that has ended is not polled"


async def test_a_feed_is_no_fresher_than_what_lies_unread_behind_the_news_that_it_reads(server: Server) -> None:
    """The first chunk after a pause was sent in the pause. What else was sent is still to be read."""
    clock, sink = FakeClock(), _Slow()
    async with open_session(Access(host=server.url), clock) as session:
        feed = Reflector(session.reads, NAMESPACES, WatchOptions(watch_list=False), clock, Random(1))
        task = asyncio.create_task(feed.run(sink))
        await until(lambda: feed.status.phase is ReflectorPhase.WATCHING)
        server.tell(event("ADDED", namespace("b", 2)))
        await until(lambda: "b" in sink.objects)
        heard = feed.status.last_heard
        sink.on_apply = lambda: server.tell(bookmark(4))  # it comes while the one before is being taken in
        clock.time += 60.0
        server.tell(event("ADDED", namespace("c", 3)))
        await until(lambda: "c" in sink.objects)
        await feed.backlog.wait_until_handled()
        assert feed.status.last_heard == heard + 60.0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Slow(FakeSink[Namespace]):
    """Something happens while it takes a batch in, once."""

    on_apply: Any = None

    async def apply(self, changes: Any) -> None:
        if self.on_apply is not None:
            told, self.on_apply = self.on_apply, None
            told()
        await super().apply(changes)

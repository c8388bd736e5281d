"""A loop that got no processor time: what the API server told meanwhile lies unread, and the feed knows that it does.

The server runs in threads, so that it can go on while the loop of the test stands still.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

import orjson
import pytest

from extender.kube.credentials import Access
from extender.kube.reflector import Reflector
from extender.kube.reflector_status import Phase, WatchOptions
from extender.kube.session import open_session
from extender.model.objects import Namespace
from extender.wire.objects.kinds import NAMESPACES
from tests.fakes import FakeClock, FakeSink, until
from tests.kube.scripted import bookmark, event, namespace

PATIENCE = 30.0
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
                """A list or the watch."""
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
        """End all threads."""
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
        await until(lambda: feed.status.phase is Phase.WATCHING)
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
        await until(lambda: feed.status.phase is Phase.WATCHING)
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

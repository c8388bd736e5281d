"""Streams with unread bytes: one whose socket the test sets, and a server that writes while the loop stands still."""

from __future__ import annotations

import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from extender.kube.byte_stream import Backlog
from tests.fakes import PATIENCE
from tests.kube.scripted import namespace


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


LIST = orjson.dumps({"metadata": {"resourceVersion": "1"}, "items": [namespace("a")]})


class Server:
    """The same list to all clients, and one watch that gets what `write` is given."""

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

    def write(self, *lines: dict[str, Any]) -> None:
        """Write lines into the watch. Nothing else happens in the test's loop until they are written."""
        self._lines.put(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        self._written.get(timeout=PATIENCE)

    def close(self) -> None:
        self._lines.put(None)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

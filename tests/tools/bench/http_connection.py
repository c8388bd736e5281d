"""A connection of a client that sends one request after the other, and times the answers."""

import socket
from time import perf_counter_ns
from typing import Final
from urllib.parse import urlsplit

_CHUNK: Final = 1 << 18
_OK: Final = b"HTTP/1.1 200"
_TIMEOUT_SECONDS: Final = 60.0


class BadAnswer(Exception):  # noqa: N818 (names what came)
    """Raised for an answer that is not 200 or not complete."""


class Connection:
    """A connection to the base URL of a service."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._host = f"{parts.hostname}:{parts.port}"
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get(self, path: str) -> bytes:
        """The body of the answer to a GET."""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        return self._receive()

    def post(self, path: str, body: bytes) -> tuple[bytes, int]:
        """The body of the answer to a POST, and the nanoseconds from the first byte sent to the last byte received."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nUser-Agent: Go-http-client/1.1\r\n"
        head += f"Content-Length: {len(body)}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        request = head.encode() + body
        started = perf_counter_ns()
        self._socket.sendall(request)
        answer = self._receive()
        return answer, perf_counter_ns() - started

    def close(self) -> None:
        self._socket.close()

    def _receive(self) -> bytes:
        received = self._more(b"")
        while (end := received.find(b"\r\n\r\n")) < 0:
            received = self._more(received)
        head = received[:end].lower()
        if not received.startswith(_OK):
            raise BadAnswer(received.decode(errors="replace"))
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        whole = end + 4 + length
        while len(received) < whole:
            received = self._more(received)
        return received[end + 4 :]

    def _more(self, received: bytes) -> bytes:
        chunk = self._socket.recv(_CHUNK)
        if not chunk:
            raise BadAnswer(f"the connection was closed after {len(received)} bytes of an answer")
        return received + chunk

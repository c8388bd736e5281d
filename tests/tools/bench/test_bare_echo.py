"""The echo that other figures are compared with: it answers names of the request, however the bytes of requests come."""

from __future__ import annotations

from contextlib import closing

import orjson
import pytest

from tests.tools.bench.bare_echo import EchoProtocol, bare_echo_running
from tests.tools.bench.http_connection import Connection

BODY = orjson.dumps({"Pod": {"metadata": {"name": "web"}}, "NodeNames": ["a", "b", "c"]})
REQUEST = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


class Transport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def answers(limit: int | None, *received: bytes) -> list[object]:
    """The names of each answer to these pieces of bytes."""
    transport, protocol = Transport(), EchoProtocol(limit)
    protocol.connection_made(transport)  # type: ignore[arg-type]
    for piece in received:
        protocol.data_received(piece)
    bodies = [written.partition(b"\r\n\r\n") for written in transport.written]
    assert all(b"Content-Length: %d" % len(body) in head for head, _, body in bodies)
    return [orjson.loads(body)["NodeNames"] for _, _, body in bodies]


@pytest.mark.parametrize(("limit", "names"), [(1, ["a"]), (None, ["a", "b", "c"])])
def test_it_answers_the_first_name_or_all_names(limit: int | None, names: list[str]) -> None:
    assert answers(limit, REQUEST) == [names]


def test_a_request_in_pieces_gets_one_answer_and_two_in_one_piece_get_two() -> None:
    pieces = [REQUEST[place : place + 1] for place in range(len(REQUEST))]
    assert answers(1, *pieces) == [["a"]]
    assert answers(1, REQUEST + REQUEST[:30], REQUEST[30:]) == [["a"], ["a"]]


def test_it_runs_in_a_process_of_its_own_with_an_address_for_each_kind_of_answer() -> None:
    with bare_echo_running() as echo:
        before = echo.process.call("processor")
        for name, names in (("one", ["a"]), ("all", ["a", "b", "c"])):
            with closing(Connection(echo.connections[name].url)) as connection:
                assert orjson.loads(connection.post("/filter", BODY)[0])["NodeNames"] == names
        assert echo.post(BODY, names=1) > 0
        assert echo.post(BODY, names=3) > 0
        assert echo.process.call("processor") > before

"""How fresh a feed is goes by what has been read, and a question can wait for what lay in the socket when it came."""

from __future__ import annotations

import asyncio
from socket import socketpair

import pytest

from extender.kube.byte_stream import Backlog, StreamSockets

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

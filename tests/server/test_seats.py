"""Which connection gives way to a new one."""

from extender.server.seats import Seat, Seats, Stage, peer_of


def sitting(seats: Seats, peer: str, stage: Stage, since: float) -> Seat:
    """A connection that does something since then."""
    seat, leaving = seats.take(peer, since)
    assert seat is not None
    assert leaving is None
    seat.enter(stage, since)
    return seat


def test_loopback_is_one_peer_and_so_is_a_network_of_ipv6() -> None:
    assert {peer_of(each) for each in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.2")} == {"loopback"}
    assert peer_of("::ffff:10.0.0.1") == peer_of("10.0.0.1") == "10.0.0.1"
    assert peer_of("fd00::1:2:3:4") == peer_of("fd00::9") != peer_of("fd00:0:0:1::9")
    assert peer_of("fe80::1%eth0") == peer_of("fe80::2")


def test_the_silent_go_before_the_idle_and_the_half_sent_and_the_oldest_first() -> None:
    seats = Seats(most=5, per_peer=5)
    deciding = sitting(seats, "a", Stage.DECIDING, 0)
    reading = sitting(seats, "a", Stage.READING, 1)
    idle = sitting(seats, "a", Stage.IDLE, 2)
    young, old = sitting(seats, "a", Stage.SILENT, 4), sitting(seats, "a", Stage.SILENT, 3)
    gone = []
    for now in range(10, 15):
        seat, leaving = seats.take("a", now)
        gone.append(leaving)
        if seat is not None:
            seat.enter(Stage.DECIDING, now)
    assert gone == [old, young, idle, reading, None]
    assert len(seats) == 5
    assert deciding in list(seats)


def test_a_peer_at_its_limit_gives_way_to_itself_only() -> None:
    seats = Seats(most=10, per_peer=2)
    other = sitting(seats, "other", Stage.SILENT, 0)
    first = sitting(seats, "crowd", Stage.SILENT, 1)
    sitting(seats, "crowd", Stage.SILENT, 2)
    assert seats.take("crowd", 3)[1] is first
    assert other in list(seats)


def test_where_all_are_taken_the_largest_peer_gives_way() -> None:
    seats = Seats(most=3, per_peer=3)
    sitting(seats, "scheduler", Stage.SILENT, 0)
    first = sitting(seats, "crowd", Stage.IDLE, 1)
    sitting(seats, "crowd", Stage.IDLE, 2)
    seat, leaving = seats.take("kubelet", 3)
    assert seat is not None
    assert leaving is first


def test_nothing_is_kept_of_a_peer_that_has_gone() -> None:
    seats = Seats(most=3, per_peer=3)
    seat = sitting(seats, "a", Stage.IDLE, 0)
    seats.leave(seat)
    seats.leave(seat)
    assert len(seats) == 0
    assert not seats._of_peer


def test_overdue_are_the_silent_and_those_that_do_not_take_their_answer() -> None:
    seats = Seats(most=9, per_peer=9)
    silent = sitting(seats, "a", Stage.SILENT, 0)
    slow = sitting(seats, "a", Stage.DECIDING, 0)
    slow.blocked = 1.0
    for stage in (Stage.IDLE, Stage.READING, Stage.DECIDING):
        sitting(seats, "a", stage, 0)
    sitting(seats, "a", Stage.SILENT, 4)
    assert seats.overdue(6.0, 4.0) == [silent, slow]


def test_answers_that_are_not_taken_are_bounded_in_all() -> None:
    seats = Seats(most=9, per_peer=9)
    for number in range(4):
        seat = sitting(seats, "a", Stage.DECIDING, number)
        seat.blocked, seat.waiting_bytes = float(number), lambda: 100
    assert [seat.blocked for seat in seats.beyond(250)] == [0.0, 1.0]
    assert seats.beyond(400) == []


def test_a_handshake_in_a_crowd_of_idle_or_half_sent_connections_is_not_ended_by_the_next() -> None:
    for stage in (Stage.IDLE, Stage.READING):
        seats = Seats(most=3, per_peer=3)
        old = [sitting(seats, "a", stage, since) for since in (0.0, 1.0, 2.0)]
        newcomers = [seats.take("a", 9.0 + number / 10) for number in range(3)]
        assert [leaving for _, leaving in newcomers] == old


def test_among_those_that_have_just_begun_the_oldest_goes() -> None:
    seats = Seats(most=2, per_peer=2)
    first = sitting(seats, "a", Stage.IDLE, 5.0)
    sitting(seats, "a", Stage.SILENT, 5.1)
    assert seats.take("a", 5.2)[1] is first

"""The log of decisions: the latest first, by pod, in bounded memory."""

from __future__ import annotations

import tracemalloc

from extender.telemetry.decision_log import DecisionLog


def filled(log: DecisionLog, count: int) -> DecisionLog:
    """As many rejections of two pods in turn."""
    for number in range(count):
        pod = ("shop", f"web-{number % 2}", f"uid-{number}")
        log.add(float(number), "filter", pod, 500, (), ("spread_skew", "anti_affinity"))
    return log


def test_the_latest_decisions_come_first_by_pod_or_namespace() -> None:
    log = filled(DecisionLog(), 5)
    log.add(5.0, "filter", ("data", "web-1", "uid-5"), 3, ["n1", "n2", "n3", "n4"])
    assert [each.uid for each in log.latest("", "web-1", 10)] == ["uid-5", "uid-3", "uid-1"]
    assert [each.uid for each in log.latest("shop", "web-1", 1)] == ["uid-3"]
    assert log.latest("shop", "", 1)[0].reasons == ("anti_affinity", "spread_skew")
    assert (log.latest("data", "", 9)[0].passed, log.latest("data", "", 9)[0].such_as) == (4, ("n1", "n2", "n3"))


def test_the_oldest_decisions_make_room_and_every_byte_is_counted() -> None:
    log = filled(DecisionLog(most_bytes=10_000), 1000)
    assert len(log.latest("", "", 1000)) == len(log) < 25
    assert log.latest("", "", 1)[0].uid == "uid-999"
    assert log.bytes == sum(each.size for each in log.latest("", "", 1000)) <= 10_000


def test_decisions_after_a_number_come_the_oldest_first() -> None:
    log = filled(DecisionLog(most_bytes=10_000), 1000)
    assert (log.number, log.first) == (1000, 1001 - len(log))
    assert [each.uid for each in log.after(997, 2)] == ["uid-997", "uid-998"]
    assert [each.uid for each in log.after(log.first - 1, 1)] == [f"uid-{log.first - 1}"]
    assert log.after(1000, 5) == []


def test_the_latest_filter_answer_about_each_pod_is_found() -> None:
    log = filled(DecisionLog(), 5)
    log.add(6.0, "filter", ("shop", "web-1", "uid-1"), 3, ["n1"])
    log.add(7.0, "bind", ("shop", "web-1", "uid-1"))
    found = log.latest_of({"uid-1", "uid-2", "none"})
    assert {uid: each.time for uid, each in found.items()} == {"uid-1": 6.0, "uid-2": 2.0}


def test_the_sizes_that_are_counted_are_not_below_those_that_are_held() -> None:
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    log = filled(DecisionLog(most_bytes=2**20), 5000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held - before <= 1.1 * log.bytes


def test_a_long_error_is_cut() -> None:
    log = DecisionLog()
    log.add(1.0, "bind", ("shop", "web", "u"), error="x" * 10_000)
    assert len(log.latest("", "", 1)[0].error) == 500

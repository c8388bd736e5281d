"""Pods above a limit: counted while they are there, and told once for each shape."""

from __future__ import annotations

import pytest

from extender.model.objects import Excess, Node, Pod, PodSignature
from extender.tasks.reflectors import OverLimits
from tests.fakes import FakeClock, FakeIndex

PLAIN = PodSignature("team-a")


def above(limit: str = "affinityTerms") -> PodSignature:
    return PodSignature("team-a", excess=Excess(limit, f"too many, limits.{limit} is 1"))


def pod(number: int, signature: PodSignature) -> Pod:
    return Pod(f"uid-{number}", f"pod-{number}", signature)


def counted(found: OverLimits) -> dict[str, int]:
    return {limit: pods for limit, pods in found.counts().items() if pods}


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [(record.message, vars(record)["pod"], vars(record)["limit"]) for record in caplog.records]


def test_what_comes_is_passed_on() -> None:
    index = FakeIndex()
    found = OverLimits(index, FakeClock())
    assert found.upsert(pod(1, above()))
    assert found.upsert(Node("n1"))
    assert found.delete(pod(1, above()))
    assert found.delete(Node("n1"))
    assert index.calls == ["upsert pods/uid-1", "upsert nodes/n1", "delete pods/uid-1", "delete nodes/n1"]


def test_pods_count_by_limit_until_they_are_gone_or_within() -> None:
    found = OverLimits(FakeIndex(), FakeClock())
    signature = above()
    for each in (pod(1, signature), pod(1, signature), pod(2, signature), pod(3, above("podBytes")), pod(4, PLAIN)):
        found.upsert(each)
    assert counted(found) == {"affinityTerms": 2, "podBytes": 1}
    found.upsert(pod(1, PLAIN))
    found.upsert(pod(2, above("podBytes")))
    found.delete(pod(3, above("podBytes")))
    found.delete(pod(4, PLAIN))
    assert counted(found) == {"podBytes": 1}


def test_every_limit_has_a_count_also_where_no_pod_is_above_it() -> None:
    assert {"affinityTerms", "podBytes", "tolerations"} < OverLimits(FakeIndex(), FakeClock()).counts().keys()


def test_each_signature_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    found = OverLimits(FakeIndex(), clock)
    signature = above()
    found.upsert(pod(1, signature))
    clock.time += 3600
    found.upsert(pod(2, signature))
    found.upsert(pod(3, above()))
    text = "too many, limits.affinityTerms is 1"
    assert told(caplog) == [("pod is above a limit", f"team-a/pod-{number}", text) for number in (1, 3)]


def test_of_many_signatures_the_first_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = OverLimits(FakeIndex(), FakeClock())
    for number in range(100):
        found.upsert(pod(number, above()))
    assert len(told(caplog)) == 1

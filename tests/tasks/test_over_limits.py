"""Pods above a limit: counted while they are there, and told once for each shape."""

from __future__ import annotations

import msgspec
import pytest

from extender.model.objects import Node, PodSignature
from extender.model.policies import GROUP, PolicyKey
from extender.tasks.reflectors import OverLimits
from tests.fakes import FakeClock, FakeIndex
from tests.tasks.over_limits_scene import Scene, above, counted, limited_pod, logged, recorded_pod

PLAIN = PodSignature("team-a")


def test_what_comes_is_passed_on() -> None:
    index = FakeIndex()
    found = OverLimits(index, FakeClock())
    assert found.upsert(limited_pod(1, above()))
    assert found.upsert(Node("n1"))
    assert found.delete(limited_pod(1, above()))
    assert found.delete(Node("n1"))
    assert index.calls == ["upsert pods/uid-1", "upsert nodes/n1", "delete pods/uid-1", "delete nodes/n1"]


def test_pods_count_by_limit_until_they_are_gone_or_within() -> None:
    found = OverLimits(FakeIndex(), FakeClock())
    signature = above()
    for each in (
        limited_pod(1, signature),
        limited_pod(1, signature),
        limited_pod(2, signature),
        limited_pod(3, above("podBytes")),
        limited_pod(4, PLAIN),
    ):
        found.upsert(each)
    assert counted(found) == {"affinityTerms": 2, "podBytes": 1}
    found.upsert(limited_pod(1, PLAIN))
    found.upsert(limited_pod(2, above("podBytes")))
    found.delete(limited_pod(3, above("podBytes")))
    found.delete(limited_pod(4, PLAIN))
    assert counted(found) == {"podBytes": 1}


def test_every_limit_has_a_count_also_where_no_pod_is_above_it() -> None:
    assert {"affinityTerms", "podBytes", "tolerations"} < OverLimits(FakeIndex(), FakeClock()).counts().keys()


def test_each_signature_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    found = OverLimits(FakeIndex(), clock)
    signature = above()
    found.upsert(limited_pod(1, signature))
    clock.time += 3600
    found.upsert(limited_pod(2, signature))
    found.upsert(limited_pod(3, above()))
    text = "too many, limits.affinityTerms is 1"
    assert logged(caplog) == [("pod is above a limit", f"team-a/pod-{number}", text) for number in (1, 3)]


def test_of_many_signatures_the_first_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = OverLimits(FakeIndex(), FakeClock())
    for number in range(100):
        found.upsert(limited_pod(number, above()))
    assert len(logged(caplog)) == 1


# -- Which policies a new pod says were injected into it ---------------------------------------------------------------

OURS = PolicyKey(GROUP, "shop", "apart")
WIDE = PolicyKey(GROUP, "", "zones")


def test_each_new_pod_says_its_policies_once() -> None:
    scene = Scene()
    first = recorded_pod("1", str(OURS), str(WIDE))
    for each in (
        first,
        msgspec.structs.replace(first, rejection="later"),
        recorded_pod("2", str(OURS), str(WIDE)),
        recorded_pod("3"),
    ):
        assert scene.pods.upsert(each)
    assert scene.reported == [("shop", (OURS, WIDE))] * 2
    assert set(scene.index.known) == {"1", "2", "3"}
    assert scene.pods.delete(first)
    assert set(scene.index.known) == {"2", "3"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Pod/x",
        "PodSchedulingPolicy/one",
        "ClusterPodSchedulingPolicy/a/b",
        "PodSchedulingPolicy.kupid.gardener.cloud/a/b",
    ],
)
def test_a_name_that_is_no_policy_of_ours_is_passed_over(name: str) -> None:
    scene = Scene()
    scene.pods.upsert(recorded_pod("1", name, str(OURS)))
    assert scene.reported == [("shop", (OURS,))]


@pytest.mark.parametrize("text", ["{", "[]", '{"": 5}', '{"": {"policies": [{"policy": 5}]}}'])
def test_an_annotation_of_another_form_says_nothing(text: str) -> None:
    scene = Scene()
    assert scene.pods.upsert(recorded_pod("1", text=text))
    assert scene.reported == [("shop", ())]

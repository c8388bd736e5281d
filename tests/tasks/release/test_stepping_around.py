"""What a tenant may write into its own pods frees no quota of a domain, and uses none up for others.

A quota of four pods in zone a, unless a test says otherwise. The real choice of a domain and the real filter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.errors import KubeError
from extender.model.policies import PolicyObject
from extender.model.rejections import Reason
from extender.model.release import RELEASED_ANNOTATION, own_group
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from extender.verbs.filter import FilterVerb
from tests.fake_api import never
from tests.gangs import release_policy
from tests.tasks.release.quota_scene import domain
from tests.tasks.release.tenant_writes import LISTED, TEAM, Held, audited, both, relabel, strip


@pytest.fixture(params=["the same leader", "another one"])
def is_restarted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "another one")


@pytest.mark.parametrize("change", [strip, relabel, both])
async def test_released_pods_are_charged_until_they_are_gone_whatever_is_written_into_them(
    change: Callable[[Held, str], None], *, is_restarted: bool
) -> None:
    scene = Held()
    scene.gang("w", 1, 2)
    scene.gang("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
    for name in ("w-1", "w-2", "x-1", "x-2"):
        change(scene, name)
    if is_restarted:
        scene.restarted()
    assert (scene.used(), audit(scene.index)) == (4, [])
    scene.gang("y", 1, 2)
    async with scene.leading():
        await scene.pass_time(5)
        assert scene.released("y") == {}
        scene.delete("w-1")
        scene.delete("x-1")
        await scene.pass_time(2)
        assert set(scene.released("y")) == {"y-1", "y-2"}
        assert scene.used() == 4


async def test_pods_into_which_the_annotation_is_written_use_no_quota_up(*, is_restarted: bool) -> None:
    """They never had the gate; the group that they name exists, or does not."""
    scene = Held()
    scene.gang("mine", 1)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
    marks = {RELEASED_ANNOTATION: "{}@2026-01-01T00:00:00Z"}
    for number, group in enumerate(("mine", "none") * 3):
        scene.plain(f"p{number}", on="a" if number < 3 else "", node_selector={"zone": "a"})
        annotations = {key: text.format(group) for key, text in marks.items()}
        scene.api.pods.edit(f"default/p{number}", "metadata", annotations=annotations)
    scene.plain("huge", cpu=10**9)
    forged = {RELEASED_ANNOTATION: "mine@2026-01-01T00:00:00Z"}
    scene.api.pods.edit("default/huge", "metadata", annotations=forged)
    scene.show()
    if is_restarted:
        scene.restarted()
    assert scene.used() == 1
    scene.gang("others", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(3)
        assert len(scene.released("others")) == 3


async def test_a_pod_whose_gate_was_removed_by_hand_goes_to_listed_domains_only_as_far_as_their_quota_goes() -> None:
    scene = Held()
    scene.gang("x", 1, 2, 3)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
    for name in ("p", "q", "r"):
        scene.gang(name, 1)
        scene.ungate(f"{name}-1")
    assert scene.passing("p-1") == ["a"]
    found = scene.filter("q-1")
    assert (list(found.passed), found.unresolvable) == (
        [],
        {"a": Reason.RELEASE_QUOTA.text, "b": Reason.RELEASE_QUOTA.text, "other": Reason.RELEASE_DOMAIN.text},
    )
    scene.bind_to("p-1", "a")
    assert scene.used() == 4
    assert not scene.passing("q-1")
    scene.delete("p-1")
    assert scene.passing("q-1") == ["a"]


async def test_a_pod_that_came_without_the_gate_is_recorded_once_it_is_bound() -> None:
    """So a leader that takes over knows it, and its labels can be changed as little as those of a released pod."""
    scene = Held()
    for number in range(4):
        scene.plain(f"p{number}")
    async with scene.leading():
        for number in range(4):
            assert scene.passing(f"p{number}") == ["a"]
            scene.bind_to(f"p{number}", "a")
        await scene.pass_time(2)
        assert {body["spec"]["group"] for body in scene.api.placements.values()} == {
            own_group(f"uid-p{number}") for number in range(4)
        }
        assert scene.status(own_group("uid-p1"))["phase"] == "Bound"
    for number in range(4):
        scene.relabel(f"p{number}", {"team": None})
    scene.restarted()
    assert scene.used() == 4
    scene.plain("q")
    assert not scene.passing("q")
    async with scene.leading():
        for number in range(4):
            scene.delete(f"p{number}")
        await scene.pass_time(2 * scene.budget.keep_empty)
        assert (dict(scene.api.placements), scene.index.gated.records, scene.used()) == ({}, {}, 0)


async def test_a_domain_that_is_listed_without_a_quota_takes_any_number_and_others_none() -> None:
    scene = Held((domain("a"),))
    for number in range(9):
        scene.plain(f"p{number}")
        assert scene.passing(f"p{number}") == ["a"]
        scene.bind_to(f"p{number}", "a")
    assert scene.index.gated.records == {}, "nothing is limited"


async def test_pods_that_no_such_policy_selects_are_held_to_nothing() -> None:
    scene = Held()
    scene.plain("other-team", labels={"team": "b"})
    scene.plain("of-a-daemon-set", owner=("DaemonSet", "d"), labels=TEAM)
    for name in ("other-team", "of-a-daemon-set"):
        assert scene.passing(name, "other") == ["other"]
    scene.plain("audited")
    scene.policy = release_policy(selector={"matchLabels": TEAM}, domains=LISTED, topology=("zone",))
    scene.index.upsert(PolicyObject(audited(scene.policy)))
    assert scene.passing("audited", "other") == ["other"]


async def test_no_pod_is_held_where_the_release_is_switched_off() -> None:
    scene = Held()
    scene.index = ClusterIndex(Rules(), counts_of_rules(), holds_to_domains=False)
    for zone, room in scene.rooms.items():
        scene.add_node(zone, room)
    scene.index.upsert(PolicyObject(scene.policy))
    scene.plain("p")
    assert scene.passing("p", "other") == ["other"]
    assert not FilterVerb(scene.index.view, Settings()).meter.filtered["ReleaseDomains"]


async def test_what_was_released_before_the_policy_had_domains_is_recorded_from_then_on() -> None:
    scene = Held(())
    scene.gang("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
        zone = scene.released()["x-1"]
        assert [body["spec"].get("pods") for body in scene.api.placements.values()] == [None]
        scene.change_policy(domains=(domain(zone, 4),))
        assert scene.used(zone) == 2, "by what the pods say"
        await scene.pass_time(2)
        assert [body["spec"]["pods"] for body in scene.api.placements.values()] == [["uid-x-1", "uid-x-2"]]
    scene.strip("x-1")
    assert scene.used(zone) == 2


async def test_a_pod_is_released_only_after_it_is_recorded() -> None:
    scene = Held((domain("a", 9),))
    scene.gang("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
        scene.api.fail = lambda call, _: KubeError("down") if call == "update groupplacements" else None
        scene.create("x", 3, 4, size=2)
        for number in (3, 4):
            scene.relabel(f"x-{number}", TEAM)
        await scene.pass_time(5)
        assert set(scene.released()) == {"x-1", "x-2"}
        assert scene.why("x") == ("PatchFailed", "the pods cannot be recorded: down")
        scene.api.fail = never
        await scene.pass_time(10)
        assert len(scene.released()) == 4
        (body,) = scene.api.placements.values()
        assert body["spec"]["pods"] == [f"uid-x-{number}" for number in range(1, 5)]


async def test_a_recorded_pod_that_lost_its_gate_before_it_was_narrowed_is_held_to_its_domain() -> None:
    scene = Held((domain("a", 2), domain("b", 2)))
    scene.gang("x", 1, 2)
    scene.api.fail = lambda call, _: KubeError("down") if call == "patch pods" else None
    async with scene.leading():
        await scene.pass_time(2)
        assert scene.released() == {}
        scene.ungate("x-1")
        assert scene.used() == 1
        assert scene.filter("x-1", "b").unresolvable == {"b": Reason.RELEASE_DOMAIN.text}
        assert scene.passing("x-1") == ["a"]


async def test_a_group_records_no_more_pods_than_its_object_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extender.tasks.release.writes.MOST_RECORDED", 3)
    scene = Held((domain("a", 90),))
    scene.gang("x", 1, 2)
    async with scene.leading():
        await scene.pass_time(2)
        scene.bind()
        scene.create("x", 3, 4, size=2)
        for number in (3, 4):
            scene.relabel(f"x-{number}", TEAM)
        await scene.pass_time(5)
        assert (len(scene.released()), scene.why("x")[1]) == (2, "the object of a group records no more than 3 pods")

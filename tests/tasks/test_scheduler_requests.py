"""Whether a scheduler looks at a pending pod: what is said of it, when, and the event on one that none looks at."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from extender.model.answers.pages import PendingQuestion
from extender.model.units import rfc3339
from extender.settings.configuration import Settings
from extender.tasks.browse_service import ExplainService
from extender.tasks.scheduler_requests import LOOK_SECONDS, REASON
from extender.verbs.browse.pending import pending_page
from tests.explaining import finished
from tests.fakes import running, until
from tests.tasks.scheduler_requests_scene import Events, Scene


def test_a_pod_whose_scheduler_name_is_misspelt_is_unasked_and_the_others_are_named() -> None:
    scene = Scene()
    web = scene.add()
    scene.hear("batch", 10)
    scene.hear("default-scheduler", 110)
    scene.clock.time += 3
    found = scene.about(web)
    assert found.is_unasked
    assert found.text == (
        'no scheduler named default-schedular has sent a request about any pod for 2 minutes, did you mean "default-scheduler"?; '
        "others have: default-scheduler 3 s ago, batch 2 minutes ago"
    )
    assert (found.scheduler, found.since, found.last) == ("default-schedular", "2026-11-20T12:00:00Z", "")
    assert [(each.name, each.asked) for each in found.schedulers] == [
        ("default-scheduler", "2026-11-20T12:02:00Z"),
        ("batch", "2026-11-20T12:00:10Z"),
    ]
    assert scene.asking.unasked(web) == found.text


def test_when_a_pod_was_last_asked_about_and_what_was_answered_is_said() -> None:
    scene = Scene()
    web = scene.add(scheduler="default-scheduler")
    scene.hear("default-scheduler", 100, web)
    scene.clock.time += 4
    found = scene.about(web)
    assert found.text == "default-scheduler sent its last request about it 4 s ago: none of 6 nodes passed (affinity)"
    assert (found.last, found.answer, found.is_unasked) == (
        "2026-11-20T12:01:40Z",
        "none of 6 nodes passed (affinity)",
        False,
    )
    scene.hear("default-scheduler", 1, web, ("n0", "n1"))
    assert scene.about(web).text == "default-scheduler sent its last request about it 0 s ago: 2 of 6 nodes passed"


@pytest.mark.parametrize(
    ("heard", "fields", "text"),
    [
        ([], {}, "no scheduler has sent a request here for 3 minutes, since this replica answers"),
        (
            ["default-schedular"],
            {},
            "default-schedular sent a request 0 s ago, but none about this pod as far as answers are kept",
        ),
        (
            ["a"],
            {"rejection": "Unschedulable: no"},
            "default-schedular has tried it and sends no request here: its plugins",
        ),
        ([f"s{number}" for number in range(40)], {}, "default-schedular has sent no request yet"),
    ],
    ids=["nothing heard", "asks about others", "tried without asking", "more names than are kept"],
)
def test_no_pod_is_unasked_where_that_is_not_certain(heard: list[str], fields: dict[str, Any], text: str) -> None:
    scene = Scene()
    web = scene.add(**fields)
    scene.clock.time += 180
    for name in heard:
        scene.hear(name)
    found = scene.about(web)
    assert (found.is_unasked, found.text[: len(text)], scene.asking.unasked(web)) == (False, text, "")


def test_nothing_is_said_within_a_minute_of_the_start_or_of_a_takeover_nor_by_a_replica_that_stands_by() -> None:
    scene = Scene()
    web = scene.add()
    scene.hear("default-scheduler", 59)
    assert scene.asking.unasked(web) == ""
    scene.clock.time += 1
    assert scene.asking.unasked(web) != ""
    scene.since = scene.clock.now()  # a new term: what was heard before it says nothing
    scene.clock.time += 61
    assert scene.about(web).text == "no scheduler has sent a request here for 1 minute, since this replica answers"
    scene.since = None
    assert (scene.asking.about(web), scene.asking.unasked(web)) == (None, "")


async def test_an_explanation_and_the_page_of_pending_pods_say_it() -> None:
    scene = Scene()
    scene.add()
    scene.add("gated", gated=True)
    scene.hear("default-scheduler", 120)
    explainer = ExplainService(scene.index.view, Settings(), scene.clock, asked_about=scene.asking.about)
    found = await explainer.explain("default", "web")
    assert (found.fitting, found.asked is not None and found.asked.is_unasked) == (6, True)
    assert (await explainer.explain("default", "gated")).asked is None
    page = finished(pending_page(PendingQuestion(), scene.index.view, (), scene.asking.unasked))
    assert [(row.pod, row.scheduler, row.unasked[:38]) for row in page.pods] == [
        ("gated", "default-schedular", ""),
        ("web", "default-schedular", "no scheduler named default-schedular h"),
    ]


async def test_each_such_pod_gets_one_event() -> None:
    scene = Scene()
    scene.add("a")
    scene.add("b")
    scene.add("known", scheduler="default-scheduler")
    scene.add("placed", scheduler="default-scheduler", node="n1")
    scene.hear("default-scheduler", 120)
    events = Events(scene)
    async with running(events.run):
        await until(lambda: scene.clock.slept.count(LOOK_SECONDS) > 3)
    assert sorted(events.pods) == ["a", "b"]
    assert {(each.type, each.reason) for each in events.written} == {("Warning", REASON)}
    assert "others have: default-scheduler" in events.written[0].note
    assert max(len(each.note.encode()) for each in events.written) < 1024


async def test_a_scheduler_that_places_pods_without_asking_exists() -> None:
    """Beside kube-scheduler another one may run that does not call the extender."""
    scene = Scene()
    waits = scene.add("waits", scheduler="another")
    scene.add("typo")
    scene.add("placed", scheduler="another", node="n1")
    scene.hear("default-scheduler", 120)
    events = Events(scene)
    async with running(events.run):
        await until(lambda: events.pods == ["typo"])
    text = "another has pods on nodes, and has sent no request here for "
    assert (scene.about(waits).is_unasked, scene.about(waits).text[: len(text)]) == (False, text)
    assert events.pods == ["typo"]


async def test_a_pod_of_the_last_minute_is_waited_for() -> None:
    scene = Scene()
    scene.hear("default-scheduler", 120)
    created = scene.now() - timedelta(seconds=20)
    scene.index.upsert(structs.replace(scene.add("young"), created=rfc3339(created)))
    events = Events(scene)
    async with running(events.run):
        await until(lambda: events.pods == ["young"])
    assert events.written[0].at - created >= timedelta(seconds=60)


def test_the_note_fits_into_an_event_with_the_longest_names() -> None:
    scene = Scene()
    names = [f"{letter * 63}.{letter * 63}.{letter * 63}.{letter * 61}" for letter in "abcdef"]
    web = scene.add(scheduler=names[0])
    scene.clock.time += 120
    for name in names[1:]:
        scene.hear(name)
    assert len(scene.asking.unasked(web).encode()) < 1024

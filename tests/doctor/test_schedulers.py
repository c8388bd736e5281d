"""What `doctor` finds about the schedulers whose pods the service is asked about."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from extender.doctor.facts import Facts, Finding, Sample, SchedulerCalls
from extender.doctor.scheduler_config import examine_scheduler
from extender.doctor.surroundings import examine_schedulers, unasked_names
from extender.settings.configuration import Settings
from extender.wire.scheduler_config import Extender, KubeSchedulerConfiguration
from tests.doctor.facts import NOW, settings

MANY = settings(schedulers="many")


def requested(*names: str, ours: Settings | None = None) -> Facts:
    """A service that was asked about pods of these schedulers, and once had a series of another."""
    samples = [
        Sample("extender_scheduler_decisions_total", {"scheduler": each, "result": "passed"}, 9) for each in names
    ]
    none = Sample("extender_scheduler_decisions_total", {"scheduler": "none", "result": "passed"}, 0)
    return Facts(ours or Settings(), NOW, samples=[*samples, none])


def brief(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.severity, each.problem) for each in findings]


@pytest.mark.parametrize(
    ("facts", "profiles"),
    [
        pytest.param(Facts(Settings(), NOW), None, id="a service that was not reached"),
        pytest.param(requested(), None, id="no question yet"),
        pytest.param(requested("a"), None, id="one scheduler"),
        pytest.param(requested("a", "b"), {"a", "b"}, id="two profiles of one scheduler"),
        pytest.param(requested("b"), {"a"}, id="one scheduler, and the file of another"),
        pytest.param(requested("a", "b", ours=MANY), None, id="several, as configured"),
        pytest.param(requested("a", "b", ours=MANY), {"a"}, id="several, and the file of one"),
        pytest.param(requested(ours=MANY), {"a"}, id="several, no question yet"),
    ],
)
def test_schedulers_that_fit_the_settings_give_no_finding(facts: Facts, profiles: set[str] | None) -> None:
    assert examine_schedulers(facts, profiles) == []


def test_pods_for_a_scheduler_that_nothing_is_known_of_are_a_warning() -> None:
    facts = dataclasses.replace(requested("a"), queue=SchedulerCalls(unasked={"default-schedular": 3, "b": 1}))
    assert brief(examine_schedulers(facts, {"a"})) == [
        ("warning", "3 pods wait for a scheduler named default-schedular, which has tried no pod and sent no request"),
        ("warning", "1 pod waits for a scheduler named b, which has tried no pod and sent no request"),
    ]


def test_only_pods_that_have_waited_for_an_unknown_scheduler_are_counted_and_not_right_after_the_start() -> None:
    old, young = NOW - 300, NOW - 30
    waiting = [("typo", old), ("typo", old), ("typo", young), ("typo", 0.0), ("a", old), ("profile", old), ("x", young)]
    assert unasked_names(requested("a"), {"profile"}, waiting) == {"typo": 2}
    assert unasked_names(requested(), {"profile"}, waiting) == {}, "no scheduler has asked at all"
    assert unasked_names(requested("a", "(others)"), {"profile"}, waiting) == {}, "not every name is kept"
    facts = requested("a")
    begun = Sample("process_start_time_seconds", {}, young)
    assert (
        unasked_names(dataclasses.replace(facts, samples=[*(facts.samples or ()), begun]), {"profile"}, waiting) == {}
    )


def test_a_scheduler_beside_the_one_that_room_is_left_to_is_a_warning() -> None:
    (found,) = examine_schedulers(requested("a", "b"), {"a"})
    assert (found.severity, found.check) == ("warning", "schedulers")
    assert "requests came for pods of b" in found.problem
    assert found.remedy.startswith("set schedulers: many")


def test_names_alone_may_be_profiles_of_one_scheduler() -> None:
    names = [f"s{number}" for number in range(7)]
    assert brief(examine_schedulers(requested(*names), None)) == [
        ("info", "schedulers is one, but requests came for pods of 7 schedulers (s0, s1, s2, s3, s4 and 2 more)")
    ]


def test_a_profile_that_never_asks_may_lack_the_extender() -> None:
    (found,) = examine_schedulers(requested("a", ours=MANY), {"a", "b"})
    assert (found.severity, found.problem.split(" since")[0]) == ("info", "no request came for pods of b")


def test_several_schedulers_must_not_go_on_without_the_extender() -> None:
    entry = Extender(url_prefix="http://127.0.0.1:8888", filter_verb="filter", ignorable=True)
    augment = settings(schedulers="many", mode="augment")
    found = examine_scheduler(KubeSchedulerConfiguration(extenders=(entry,)), augment)
    assert "ignorable is on with schedulers many: while the extender is down schedulers give one room away twice" in {
        finding.problem for finding in found if finding.severity == "error"
    }
    found = examine_scheduler(KubeSchedulerConfiguration(extenders=(replace(entry, ignorable=False),)), augment)
    assert not any("ignorable" in finding.remedy for finding in found)

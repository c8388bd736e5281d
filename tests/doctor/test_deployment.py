"""What `doctor` finds about what runs beside the service: replicas, the Lease of schedulers, other extenders, the admission policy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from extender.doctor.deployment import examine_deployment
from extender.doctor.facts import Deployment, Facts
from extender.wire.scheduler_config import Extender, KubeSchedulerConfiguration, Profile, SchedulerLeaderElection
from tests.doctor.facts import GOOD, settings

LED = settings(leaderElection={"enabled": True})
FIRST = KubeSchedulerConfiguration()
SECOND = KubeSchedulerConfiguration(
    profiles=(Profile(scheduler_name="placement-scheduler"),),
    leader_election=SchedulerLeaderElection(resource_name="placement-scheduler"),
)
OTHER = Extender(url_prefix="http://127.0.0.1:9251", filter_verb="predicate")
REMOTE = Extender(url_prefix="http://10.0.0.9:9251", filter_verb="predicate")


def deployed(facts: Facts = GOOD, **fields: object) -> Facts:
    return replace(facts, deployment=replace(Deployment(), **fields))  # type: ignore[arg-type]


def without_election(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    return changed(config, leader_election=changed(config.leader_election, leader_elect=False))


def with_first_lease(config: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
    return changed(config, leader_election=SchedulerLeaderElection())


def silent(*urls: str) -> Facts:
    return replace(GOOD, unserved=dict.fromkeys(urls, "Connection refused"))


MISTAKES = {
    "two replicas without leader election": (
        deployed(replicas=2),
        None,
        ("error", "2 replicas of the extender run and leaderElection.enabled is false"),
    ),
    "two first schedulers without leader election": (
        deployed(first_schedulers=2),
        without_election(FIRST),
        ("error", "leaderElection.leaderElect is false, and 2 instances of this scheduler run"),
    ),
    "two second schedulers without leader election": (
        deployed(schedulers=2, first_schedulers=1),
        without_election(SECOND),
        ("error", "leaderElection.leaderElect is false, and 2 instances of this scheduler run"),
    ),
    "one scheduler without leader election": (
        deployed(schedulers=1, first_schedulers=3),
        without_election(SECOND),
        ("info", "leaderElection.leaderElect is false, so a second instance would place the same pods"),
    ),
    "the Lease of the first scheduler": (
        deployed(first_schedulers=1),
        with_first_lease(SECOND),
        ("error", "leaderElection names the Lease kube-system/kube-scheduler of the default scheduler"),
    ),
    "the Lease that a first scheduler would have": (
        GOOD,
        with_first_lease(SECOND),
        ("warning", "leaderElection names the Lease kube-system/kube-scheduler of the default scheduler"),
    ),
    "another extender that is not there": (
        silent(OTHER.url_prefix),
        changed(FIRST, extenders=(Extender(), OTHER)),
        (
            "error",
            "nothing answers at extenders[1], http://127.0.0.1:9251, (Connection refused): the scheduler places no pod",
        ),
    ),
    "one that may be left out": (
        silent(OTHER.url_prefix),
        changed(FIRST, extenders=(changed(OTHER, ignorable=True),)),
        ("warning", "nothing answers at extenders[0], http://127.0.0.1:9251, (Connection refused): its part"),
    ),
    "one that this machine may not reach": (
        silent(REMOTE.url_prefix),
        changed(FIRST, extenders=(REMOTE,)),
        ("warning", "nothing answers at extenders[0], http://10.0.0.9:9251,"),
    ),
    "no admission policy": (
        deployed(guard="policy"),
        None,
        ("warning", "no ValidatingAdmissionPolicy limits the extender"),
    ),
    "no binding of it": (
        deployed(guard="binding"),
        None,
        ("warning", "the ValidatingAdmissionPolicy of the extender has no binding that denies"),
    ),
}


@pytest.mark.parametrize(("facts", "scheduler", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_wrong_deployment_gives_exactly_one_finding(
    facts: Facts, scheduler: KubeSchedulerConfiguration | None, expected: tuple[str, str]
) -> None:
    (found,) = examine_deployment(facts, scheduler)
    assert found.severity == expected[0]
    assert found.problem.startswith(expected[1])
    assert found.remedy


@pytest.mark.parametrize(
    ("facts", "scheduler"),
    [
        (GOOD, None),
        (deployed(replace(GOOD, settings=LED), replicas=2), FIRST),
        (deployed(replicas=1, schedulers=2, first_schedulers=3), SECOND),
        (deployed(replace(GOOD, knows_settings=False), replicas=2), FIRST),
        (deployed(first_schedulers=3), FIRST),
        (silent("http://127.0.0.1:1"), changed(FIRST, extenders=(OTHER,))),
    ],
    ids=["nothing known", "replicas", "a second scheduler", "unknown settings", "a control plane", "another URL"],
)
def test_a_right_deployment_gives_none(facts: Facts, scheduler: KubeSchedulerConfiguration | None) -> None:
    assert examine_deployment(facts, scheduler) == []

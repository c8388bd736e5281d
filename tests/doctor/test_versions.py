"""What `doctor` finds about versions of the API server and of schedulers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.doctor.facts import Deployment, Facts
from extender.doctor.versions import PLACEHOLDER, examine_versions
from extender.wire.api_server import ApiServer
from tests.doctor.facts import GOOD

ALL = frozenset({"validatingadmissionpolicies"})


def server(minor: int, **fields: object) -> Facts:
    return replace(GOOD, api_server=replace(ApiServer(f"v1.{minor}.1", minor, ALL), **fields))  # type: ignore[arg-type]


def beside(minor: int, *tags: str) -> Facts:
    pods = {tag: (f"kube-system/placement-scheduler-{number}",) for number, tag in enumerate(tags)}
    return replace(server(minor), deployment=Deployment(scheduler_tags=pods))


CASES = {
    "a scheduler that needs kinds of a newer API server": (
        beside(33, "v1.36.0"),
        ("error", "kube-scheduler v1.36.0 (kube-system/placement-scheduler-0) is newer than the API server v1.33.1"),
    ),
    "the placeholder": (beside(33, PLACEHOLDER), ("error", "never starts: its tag is the placeholder")),
    "two minor versions behind": (beside(33, "v1.31.9"), ("warning", "older than the API server v1.33.1 by more than")),
    "a scheduler before the oldest": (beside(29, "v1.28.15"), ("warning", "was not tried; tried are 1.29 to 1.36")),
    "an API server after the newest": (server(37), ("info", "is newer than the versions that were tried")),
    "an API server before the oldest": (
        server(28),
        ("warning", "the API server v1.28.1 lacks supported-version (1.29): nothing was tried with this version"),
    ),
    "an API server without a number": (
        replace(GOOD, api_server=ApiServer("v0.0.0-master+0123456", None, ALL)),
        (
            "warning",
            "the API server v0.0.0-master+0123456 lacks supported-version (1.29): nothing was tried with this version",
        ),
    ),
    "label keys": (server(30), ("info", "lacks affinity-label-keys (1.31): it drops matchLabelKeys")),
    "no admission policy": (
        server(31, resources=frozenset()),
        ("info", "lacks validating-admission-policy (1.30): no admission policy limits the writes"),
    ),
    "a gate that is off": (
        replace(server(32), dropped_fields=("schedulingGates",)),
        ("error", "drops the field schedulingGates of new pods: policies release no groups"),
    ),
}


@pytest.mark.parametrize(("facts", "expected"), CASES.values(), ids=CASES)
def test_each_case_is_found(facts: Facts, expected: tuple[str, str]) -> None:
    found = examine_versions(facts)
    assert (expected[0], True) in [(each.severity, expected[1] in each.problem) for each in found]
    assert all(each.remedy and each.check == "versions" for each in found)


@pytest.mark.parametrize("tags", [("v1.33.0",), ("v1.32.4", "v1.33.1"), ("my-own",), ()])
def test_what_fits_is_not_reported(tags: tuple[str, ...]) -> None:
    assert examine_versions(beside(33, *tags)) == []


def test_nothing_is_compared_with_an_unknown_api_server() -> None:
    unknown = beside(33, "v1.36.0")
    assert examine_versions(replace(unknown, api_server=None)) == []
    (found,) = examine_versions(replace(unknown, api_server=ApiServer("v0.0.0-master", None, ALL)))
    assert (
        found.problem
        == "the API server v0.0.0-master lacks supported-version (1.29): nothing was tried with this version"
    )


def test_the_remedy_names_the_tag() -> None:
    (found,) = examine_versions(beside(33, "v1.36.0"))
    assert "set the tag of registry.k8s.io/kube-scheduler to v1.33.1" in found.remedy

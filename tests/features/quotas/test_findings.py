"""What `doctor` finds of quotas for affinity across namespaces: those that hold no tenant back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.features.quotas.report import examine_quotas
from tests.doctor.facts import GOOD
from tests.features.quotas.tenants import SCOPE, limited, quota

MISTAKES: dict[str, tuple[Any, str, str]] = {
    "nothing of pods": (
        quota(hard={"count/secrets": "5"}),
        "warning",
        (
            "ResourceQuota team/cross can charge no pod: spec.hard limits nothing that pods use up; to the API server it may "
            "still satisfy deny by default"
        ),
    ),
    "scopes that exclude each other": (
        limited(5, scopes=[SCOPE, "BestEffort", "NotBestEffort"]),
        "warning",
        (
            "ResourceQuota team/cross can charge no pod: its scopes exclude each other; to the API server it may still satisfy "
            "deny by default"
        ),
    ),
    "no number": (
        quota(hard={"requests.cpu": "5", "memory": "1Gi"}),
        "warning",
        (
            "ResourceQuota team/cross does not limit the number of pods, only memory, requests.cpu: it covers no pod for "
            "quota.default"
        ),
    ),
    "another scope": (
        limited(5, scopes=[SCOPE, "Terminating"]),
        "info",
        "ResourceQuota team/cross charges only pods that match Terminating too, and for quota.default covers no others",
    ),
}


@pytest.mark.parametrize(("found", "severity", "problem"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_quota_that_does_not_hold_is_named(found: Any, severity: str, problem: str) -> None:
    (finding,) = examine_quotas(replace(GOOD, quotas=[found]))
    assert (finding.severity, finding.check, finding.problem) == (severity, "quotas", problem)
    assert finding.remedy


@pytest.mark.parametrize("quotas", [None, [limited(0), limited(5, in_namespace="other")], [limited(5, scopes=())]])
def test_quotas_that_hold_and_those_without_the_scope_give_no_finding(quotas: Any) -> None:
    assert examine_quotas(replace(GOOD, quotas=quotas)) == []


def test_many_of_one_sort_are_counted() -> None:
    found = [quota(f"q{number}", {"count/secrets": "5"}) for number in range(25)]
    findings = examine_quotas(replace(GOOD, quotas=found))
    assert len(findings) == 11
    assert findings[-1].problem == "15 more quotas of this sort"

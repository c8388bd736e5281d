"""Findings about quotas for affinity across namespaces: those that hold no tenant back, or fewer pods than they seem to.

https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from extender.doctor.facts import Facts, Finding
from extender.model.objects import PodQuota
from extender.model.quotas import CROSS_NAMESPACE_SCOPE, can_charge, limits_pods

_MOST_NAMED: Final = 10  # of one sort; the others are counted
_CHECK: Final = "quotas"
_SEE: Final = "see `kubectl get resourcequotas -A`"


def examine_quotas(facts: Facts) -> list[Finding]:
    """Every finding about them. O(quotas)."""
    quotas = [each for each in facts.quotas or () if each.scopes]
    inert = [each for each in quotas if not can_charge(each)]
    numberless = [each for each in quotas if can_charge(each) and not limits_pods(each)]
    narrow = [each for each in quotas if can_charge(each) and limits_pods(each) and _other_scopes(each)]
    return [
        *_bounded("warning", [(_inert(each), "add `pods` to spec.hard, or delete it") for each in inert]),
        *_bounded("warning", [(_numberless(each), "add `pods` to spec.hard") for each in numberless]),
        *_bounded("info", [(_narrow(each), "use the scope alone, or add a quota for the others") for each in narrow]),
    ]


def _bounded(severity: str, problems: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    level: Final = "warning" if severity == "warning" else "info"
    for problem, remedy in problems[:_MOST_NAMED]:
        yield Finding(level, _CHECK, problem, remedy)
    if len(problems) > _MOST_NAMED:
        yield Finding(level, _CHECK, f"{len(problems) - _MOST_NAMED} more quotas of this sort", _SEE)


def _other_scopes(quota: PodQuota) -> list[str]:
    return sorted({each.name for each in quota.scopes} - {CROSS_NAMESPACE_SCOPE})


def _inert(quota: PodQuota) -> str:
    why = "its scopes exclude each other" if quota.hard else "spec.hard limits nothing that pods use up"
    return f"ResourceQuota {quota.key} can charge no pod: {why}; to the API server it may still satisfy deny by default"


def _numberless(quota: PodQuota) -> str:
    names = ", ".join(sorted(quota.hard))
    return (
        f"ResourceQuota {quota.key} does not limit the number of pods, only {names}: it covers no pod for quota.default"
    )


def _narrow(quota: PodQuota) -> str:
    names = ", ".join(_other_scopes(quota))
    return f"ResourceQuota {quota.key} charges only pods that match {names} too, and for quota.default covers no others"

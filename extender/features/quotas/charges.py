"""What a quota of the scope CrossNamespacePodAffinity charges for a pod: whether its scopes match, and the amounts.

The rules equal Kubernetes' quota evaluator for pods (``pkg/quota/v1/evaluator/core``), with one intended
difference. Here a quota *covers* a pod only if all its scopes match the pod, and it limits the number of pods. In
Kubernetes a quota that names the scope covers every pod with such terms, even if its other scopes do not match and it
limits, say, only CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from extender.model.objects import Pod, PodQuota, QuotaScope
from extender.model.resources import CPU, MEMORY, PODS, Resources

CROSS_NAMESPACE_SCOPE: Final = "CrossNamespacePodAffinity"
COUNT_OF_PODS: Final = "count/pods"
NUMBERS: Final = (PODS, COUNT_OF_PODS)

_FEW: Final = 64
_REQUESTS, _LIMITS = "requests.", "limits."


def is_charged(name: str) -> bool:
    """Whether pods use up a limit of this name."""
    return name in (*NUMBERS, CPU, MEMORY, _LIMITS + CPU, _LIMITS + MEMORY) or (
        # `requests.storage` limits PersistentVolumeClaims, not pods.
        name.startswith(("requests.", "hugepages-")) and name != "requests.storage"
    )


def charged(name: str, pod: Pod) -> int:
    """How much of a limit a pod uses up: 1 of a number of pods, else its effective requests or limits. O(1)."""
    if name in NUMBERS:
        return 1
    if name.startswith(_LIMITS):
        return pod.quota.limits.get(name.removeprefix(_LIMITS), 0)
    return _requests(pod).get(name.removeprefix(_REQUESTS), 0)


def _requests(pod: Pod) -> Resources:
    return pod.requests if pod.quota.requests is None else pod.quota.requests


def charges(hard: Resources, pod: Pod) -> Iterator[tuple[str, int]]:
    """The limits that a pod uses up, with the amounts. O(limits), or O(requests) if there are many limits."""
    names: Iterable[str] = hard
    # A quota may have many limits and a pod few resources: then look up the pod's resources among the limits.
    if len(hard) > _FEW:
        requests = chain(_requests(pod), (_REQUESTS + name for name in _requests(pod)))
        mentioned = chain(NUMBERS, requests, (_LIMITS + name for name in pod.quota.limits))
        names = [name for name in mentioned if name in hard]
    for name in names:
        amount = charged(name, pod)
        if amount:
            yield name, amount


def limits_pods(quota: PodQuota) -> bool:
    """Whether the quota limits the number of pods. A quota of CPU alone lets any number of small pods through."""
    return any(name in quota.hard for name in NUMBERS)


def matches(quota: PodQuota, pod: Pod) -> bool:
    """Whether every scope of the quota matches a pod that is in the scope CrossNamespacePodAffinity. O(scopes)."""
    return all(_matches(scope, pod) for scope in quota.scopes)


def _matches(scope: QuotaScope, pod: Pod) -> bool:
    """Whether one scope matches. The operators of all scopes but PriorityClass are ignored, as in Kubernetes."""
    match scope.name:
        case "CrossNamespacePodAffinity":
            return True
        case "Terminating" | "NotTerminating":
            return pod.quota.has_deadline is (scope.name == "Terminating")
        case "BestEffort" | "NotBestEffort":
            return pod.quota.best_effort is (scope.name == "BestEffort")
        case "PriorityClass":
            return _matches_class(scope, pod.signature.priority_class)
        case _:
            return False


def _matches_class(scope: QuotaScope, name: str) -> bool:
    """Whether the scope matches the name of a priority class (empty: the pod has none)."""
    match scope.operator:
        case "Exists" | "DoesNotExist":
            return bool(name) is (scope.operator == "Exists")
        case "In" | "NotIn":
            # A pod without a class matches NotIn.
            return (bool(name) and name in scope.values) is (scope.operator == "In")
        case _:
            return False


def can_charge(quota: PodQuota) -> bool:
    """Whether the quota can charge a pod: it limits what pods use up, and no two scopes exclude each other."""
    names = {scope.name for scope in quota.scopes}
    return bool(quota.hard) and not any(
        pair <= names for pair in ({"Terminating", "NotTerminating"}, {"BestEffort", "NotBestEffort"})
    )

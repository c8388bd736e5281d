"""One case of a pod that may be resized in place, and what Kubernetes says that it requests.

``onNode``: what kube-scheduler counts on the pod's node. ``bySpec``: what it requests without a node. ``quotaRequests`` and
``quotaLimits``: what the quota evaluator charges. The answers are those of PodRequests and PodLimits of component-helpers 1.36, with
the options of kube-scheduler and of the quota evaluator. A resource of which nothing is requested may be named or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from extender.features.quotas.charges import charged
from extender.model.objects import Pod
from extender.model.resources import CPU, MEMORY, parse_resources
from tests.builders import read_pod

Case = dict[str, Any]

# Only pods with such a term are charged to the quotas that are counted here.
_TERM = {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {}}
_AFFINITY = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}}


def differences(case: Case) -> list[str]:
    """A line for each answer that is another one; empty when none is."""
    body, want = case["pod"], case["resize"]
    pod = _read(body)
    pending = _read({**body, "spec": {name: each for name, each in body["spec"].items() if name != "nodeName"}})
    quota = _read({**body, "spec": {**body["spec"], "affinity": _AFFINITY}})
    got = {
        "onNode": pod.requests,
        "bySpec": pod.recreated().requests,
        "quotaRequests": {name: charged(f"requests.{name}", quota) for name in want["quotaRequests"]},
        "quotaLimits": {name: charged(f"limits.{name}", quota) for name in (CPU, MEMORY)},
    }
    expected = {name: _some(parse_resources(amounts)) for name, amounts in want.items()}
    expected["quotaLimits"] = {name: each for name, each in expected["quotaLimits"].items() if name in (CPU, MEMORY)}
    found = [
        f"{name}: {_some(got[name])}, expected {amounts}"
        for name, amounts in expected.items()
        if _some(got[name]) != amounts
    ]
    if _some(pending.requests) != expected["bySpec"]:
        found.append(f"pending: {pending.requests}, expected {expected['bySpec']}")
    return found


def _read(body: Case) -> Pod:
    found: Pod = read_pod(body)
    return found


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}

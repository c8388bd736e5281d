"""Pods as a person writes them."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from extender.wire.pods.new_pod import complete_and_check
from tests.builders import CONTAINER, PREFERRED, REQUIRED, Json, spread, term
from tests.wire.spoiling import spoil

GPU = "nvidia.com/gpu"


HASH = "pod-template-hash"


def a_pod(*, labels: Json | None = None, **spec: Any) -> Json:
    """A pod with these fields; its label is app=web if no others are given."""
    return {
        "kind": "Pod",
        "metadata": {"name": "new", "labels": labels or {"app": "web"}},
        "spec": {"containers": [CONTAINER], **spec},
    }


def completed(pod: Json) -> Json:
    found = deepcopy(pod)
    assert complete_and_check(found) == ()
    return found


def limited(resources: Json, **more: Any) -> list[Json]:
    return [CONTAINER | {"resources": resources, **more}]


KEYED = {"matchLabelKeys": [HASH, "absent"], "mismatchLabelKeys": ["tenant"]}


def keyed_pod(**metadata: Any) -> Json:
    wanted = term("host", app="web") | KEYED
    sides = {
        side: {REQUIRED: [deepcopy(wanted)], PREFERRED: [{"weight": 1, "podAffinityTerm": deepcopy(wanted)}]}
        for side in ("podAffinity", "podAntiAffinity")
    }
    spreads = [spread("zone", 1, app="web") | {"matchLabelKeys": [HASH]}]
    pod = a_pod(labels={"app": "web", HASH: "new", "tenant": "a"}, affinity=sides, topologySpreadConstraints=spreads)
    pod["metadata"] |= metadata
    return pod


def selectors(pod: Json) -> list[Json]:
    found = []
    for side in pod["spec"]["affinity"].values():
        found += [side[REQUIRED][0]["labelSelector"], side[PREFERRED][0]["podAffinityTerm"]["labelSelector"]]
    return found


def spreading(**changes: Any) -> Json:
    constraint = {**spread("zone", 1, app="web"), **changes}
    return {"topologySpreadConstraints": [{name: value for name, value in constraint.items() if value is not None}]}


def apart(**changes: Any) -> Json:
    wanted = {**term("host", app="web"), **changes}
    kept = {name: value for name, value in wanted.items() if value is not None}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [kept]}}}


def amounts(**resources: Any) -> Json:
    return {"containers": limited(resources)}


@st.composite
def spoiled(draw: st.DrawFn) -> Json:
    """A pod with much in it, of which one value is another one."""
    pod = keyed_pod()
    pod["spec"] |= {
        "hostNetwork": True,
        "containers": limited({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, ports=[{"containerPort": 1}]),
        "initContainers": limited({"limits": {"cpu": "1"}}, name="before"),
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "os": {"name": "linux"},
        "schedulingGates": [{"name": "example.com/gate"}],
    }
    return spoil(pod, draw)

"""Random pods as a person would write them, what the completion makes of them, and what the apiserver stores."""

from __future__ import annotations

import re
from copy import deepcopy
from random import Random
from typing import Any, Final

from extender.model.objects import Pod
from extender.simulator.json_objects import JsonObject
from extender.wire.pods.new_pod import complete_and_check
from extender.wire.policies.field_errors import ErrorType
from tests.builders import REQUIRED, read_pod
from tests.e2e.client import Api
from tests.wire.given_pods import a_pod

_PODS: Final = "/api/v1/namespaces/default/pods"
_STRICT: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_UNKNOWN: Final = re.compile(r'unknown field "([^"]*)"')
_UNDECODED: Final = "a field of the wrong type, of which the apiserver names no path"


# The apiserver names the term or constraint, and the number of the key as if the term were a list.
_NUMBERED_KEY: Final = re.compile(r"\.matchLabelKeys(\[\d+\])$")


async def refused_or_stored(api: Api, pod: JsonObject) -> tuple[set[str], JsonObject]:
    """The fields that the apiserver refuses, and the pod as it would be stored."""
    answer = await api.request("POST", _PODS, pod, params=_STRICT, allow=[400, 422])
    if answer["kind"] != "Status":
        return set(), answer
    causes = answer.get("details", {}).get("causes") or []
    fields = {cause["field"] for cause in causes} | set(_UNKNOWN.findall(answer["message"]))
    return fields or {_UNDECODED}, {}


def completed(pod: JsonObject) -> tuple[set[str], JsonObject]:
    """The same by the completion."""
    made = deepcopy(pod)
    made["metadata"]["namespace"] = "default"
    errors = complete_and_check(made)
    if any(error.type is ErrorType.TYPE_INVALID for error in errors):
        return {_UNDECODED}, {}
    return {_NUMBERED_KEY.sub(r"\1", error.field) for error in errors}, {} if errors else made


def read(pod: JsonObject) -> tuple[object, ...]:
    """What decisions read of a pod, without what tells one pod from another."""
    metadata = {"name": "p", "namespace": "default", "labels": pod["metadata"].get("labels") or {}}
    found: Pod = read_pod({"metadata": metadata, "spec": pod["spec"]})
    known = found.signature
    constraints = (known.labels, known.affinity, known.spread, known.node_affinity, known.tolerations)
    return (*constraints, found.requests, found.host_ports, found.priority, found.never_preempts)


async def compare(api: Api, pods: dict[str, JsonObject]) -> dict[str, object]:
    """What is different, by the name of the pod."""
    different = dict[str, object]()
    for name, pod in pods.items():
        real, stored = await refused_or_stored(api, pod)
        ours, made = completed(pod)
        if real != ours:
            different[name] = ("refused", real, "by us", ours, pod)
        elif stored and read(stored) != read(made):
            different[name] = (pod, "stored", stored["spec"], "by us", made["spec"])

    return different


_AMOUNTS: Final = {
    "cpu": ("1", "500m", 2),
    "memory": ("1Gi", "512Mi"),
    "nvidia.com/gpu": ("1", "2"),
    "hugepages-2Mi": ("2Mi", "4Mi"),
}


def random_pod(rng: Random) -> JsonObject:
    """A pod with amounts, ports, label keys and constraints, of which some are wrong."""
    containers = [_container(f"c{number}", rng) for number in range(rng.choice((1, 1, 2)))]
    spec: dict[str, Any] = {"containers": containers}
    if rng.random() < 0.4:
        spec["initContainers"] = [_container(f"i{number}", rng) | _sidecar(rng) for number in range(rng.choice((1, 2)))]
    if rng.random() < 0.3:
        spec["resources"] = _resources(rng, ("cpu", "memory", "hugepages-2Mi"))
    if rng.random() < 0.3:
        spec["hostNetwork"] = True
    if rng.random() < 0.5:
        spec["topologySpreadConstraints"] = [_constraint(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.5:
        spec["affinity"] = {rng.choice(("podAffinity", "podAntiAffinity")): {REQUIRED: [_term(rng)]}}
    if rng.random() < 0.3:
        spec["tolerations"] = [
            {
                "key": rng.choice(("a", "node.kubernetes.io/not-ready")),
                "operator": rng.choice(("Exists", "Exists", "Equal", "exists")),
            }
        ]
    return a_pod(labels={"app": "web", "track": "a"}, **spec)


def _container(name: str, rng: Random) -> JsonObject:
    found: JsonObject = {
        "name": name,
        "image": "registry.example/main:1",
        "resources": _resources(rng, tuple(_AMOUNTS)),
    }
    if rng.random() < 0.3:
        found["ports"] = [
            {"containerPort": rng.choice((80, 81)), **rng.choice(({}, {}, {"hostPort": 80}, {"protocol": "UDP"}))}
        ]
    return found


def _sidecar(rng: Random) -> JsonObject:
    return rng.choice(({}, {"restartPolicy": "Always"}))


def _resources(rng: Random, names: tuple[str, ...]) -> JsonObject:
    chosen = rng.sample(names, rng.choice((0, 1, 1, 2)))
    found: JsonObject = {"limits": {name: rng.choice(_AMOUNTS[name]) for name in chosen}}
    if rng.random() < 0.4:
        found["requests"] = {name: rng.choice(_AMOUNTS[name]) for name in rng.sample(names, 1)}
    return found


def _selector(rng: Random) -> JsonObject:
    return rng.choice(
        ({"matchLabels": {"app": "web"}}, {"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {})
    )


def _constraint(rng: Random) -> JsonObject:
    return {
        "maxSkew": rng.choice((1, 1, 1, 2, 0)),
        "topologyKey": rng.choice(("zone", "rack", "kubernetes.io/hostname")),
        "whenUnsatisfiable": rng.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": _selector(rng),
        **rng.choice(({}, {"minDomains": 2})),
        **rng.choice(({}, {"matchLabelKeys": ["track"]}, {"matchLabelKeys": ["app"]})),
    }


def _term(rng: Random) -> JsonObject:
    return {
        "topologyKey": rng.choice(("zone", "zone", "zone", "")),
        **rng.choice(({"labelSelector": _selector(rng)}, {"labelSelector": _selector(rng)}, {})),
        **rng.choice(({}, {"matchLabelKeys": ["track"]}, {"mismatchLabelKeys": ["track", "absent"]})),
    }

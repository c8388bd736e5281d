"""Pods at and above the limits on what a pod may request, and what is read of them."""

from __future__ import annotations

from typing import Any, Final

import orjson

from extender.model.objects import Pod
from extender.settings.limits import ConstraintLimits
from extender.wire.objects.kinds import Kind, pods_within
from tests.builders import REQUIRED, Json, pod_json, requirement, spread, term

LIMITS: Final = ConstraintLimits()


def read(body: Json, limits: ConstraintLimits = LIMITS) -> Pod:
    """The pod as the service reads it under these limits."""
    kind: Kind[Pod] = pods_within(limits)
    return kind.decode_object(orjson.dumps(body))


def excess(body: Json, limits: ConstraintLimits = LIMITS) -> str:
    """The text of the limit that the pod exceeds, empty where it is within all limits."""
    found = read(body, limits).signature.excess
    return "" if found is None else found.text


def terms(count: int) -> list[Json]:
    return [term(app=f"a{number}") for number in range(count)]


def over_keys(count: int) -> Json:
    """Terms and constraints over so many keys in all."""
    return {"apart": [term(f"k{n}", app="a") for n in range(count // 2)]} | {
        "spreads": [spread(f"k{n}", app="a") for n in range(count // 2, count)]
    }


def values(count: int) -> list[str]:
    return [f"v{number}" for number in range(count)]


def node_terms(count: int, clauses: int = 1) -> list[Json]:
    """So many terms of node affinity with so many requirements each."""
    each = [requirement(f"k{number}", "Exists", []) for number in range(clauses)]
    return [{"matchExpressions": [*each[1:], requirement("zone", "In", [f"z{number}"])]} for number in range(count)]


def labels(count: int) -> dict[str, str]:
    return {f"k{number}": "v" for number in range(count)}


def toleration(key: str) -> Json:
    return {"key": key, "operator": "Exists"}


def with_ports(count: int, **fields: Any) -> Json:
    """A pod with so many host ports, half of them in a sidecar, and a port that is not one of the host."""
    ports = [{"containerPort": 1, "hostPort": 1000 + number} for number in range(count)]
    body = pod_json(**fields)
    body["spec"]["containers"] = [{"name": "main", "ports": [*ports[::2], {"containerPort": 1}]}]
    body["spec"]["initContainers"] = [{"name": "sidecar", "restartPolicy": "Always", "ports": ports[1::2]}]
    return body


def pod_of(**spec: Any) -> Json:
    """A request about a pod with this spec."""
    return {"Pod": {"metadata": {"uid": "u"}, "spec": spec}, "NodeNames": []}


def by_uid(victims: list[Json]) -> Json:
    return {"NodeNameToMetaVictims": {"n": {"Pods": victims}}}


def in_full(victims: list[Json]) -> Json:
    return {"NodeNameToVictims": {"n": {"Pods": victims}}}


def pod_with(**fields: Any) -> Json:
    """A pod with these labels and this spec."""
    return {"metadata": {"name": "a", "namespace": "ns", "labels": fields.pop("labels", {})}, "spec": fields}


def apart(terms: list[Json]) -> Json:
    return {"podAntiAffinity": {REQUIRED: terms}}


def requesting(amounts: Json) -> list[Json]:
    return [{"resources": {"requests": amounts}}]


def amounts(number: int, count: int) -> Json:
    return {f"example.com/r{number}-{each}": "1" for each in range(count)}

"""Scheduling policies for tests, as the API's own JSON, passed through the real decoding."""

from __future__ import annotations

from typing import Any

import orjson

from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND, Policy
from extender.wire.policies.policies_v1 import decode_policy
from tests.builders import PREFERRED, REQUIRED, Json


def policy_json(
    name: str = "policy", namespace: str = "", *, group: str = GROUP, generation: int = 1, **spec: Any
) -> Json:
    """A policy that selects every pod (of its namespace, where it has one) unless `spec` says which."""
    scope: Json = {"podSelector": {}} if namespace else {"podSelector": {}, "namespaceSelector": {}}
    metadata: Json = {"name": name, "generation": generation}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": NAMESPACED_KIND if namespace else CLUSTER_KIND,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "spec": scope | spec,
    }


def policy(name: str = "policy", namespace: str = "", **spec: Any) -> Policy:
    """The same, decoded."""
    return decode_policy(orjson.dumps(policy_json(name, namespace, **spec)))


def kupid_policy(name: str = "policy", **spec: Any) -> Policy:
    """A cluster-wide policy of kupid's group."""
    return policy(name, group=KUPID_GROUP, **spec)


def expression(key: str, operator: str, *values: str) -> Json:
    """A requirement; without values the list is absent."""
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def node_term(*expressions: Json, fields: list[Json] | None = None) -> Json:
    made: Json = {"matchExpressions": list(expressions)} if expressions else {}
    return made | ({"matchFields": fields} if fields else {})


def requiring(*terms: Json) -> Json:
    """An affinity that requires a node that matches one of the terms."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def preferring(*terms: tuple[int, Json]) -> Json:
    """An affinity that prefers nodes that match terms, each with its weight."""
    return {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": each} for weight, each in terms]}}

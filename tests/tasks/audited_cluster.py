"""A cluster whose counts are spoiled while its service runs."""

from __future__ import annotations

from typing import Any

import orjson

from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.wire.objects.kinds import NAMESPACES, NODES
from tests.builders import read_pod

HOST = "kubernetes.io/hostname"
APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": HOST,
                    "labelSelector": {"matchLabels": {"app": "web"}},
                    "namespaceSelector": {"matchLabels": {"team": "a"}},
                }
            ]
        }
    }
}


def pod_json(name: str, on: str = "") -> dict[str, Any]:
    meta = {"name": name, "uid": name, "namespace": "ns", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {**APART, **({"nodeName": on} if on else {})}}


def cluster() -> ClusterIndex:
    """Three nodes, a web pod on two of them, one assumed on the third, one let through to two; all asked about."""
    index = ClusterIndex(Settings().rules, counts_of_rules())
    index.upsert(NAMESPACES.decode_object(orjson.dumps({"metadata": {"name": "ns", "labels": {"team": "a"}}})))
    for name in ("n1", "n2", "n3"):
        index.upsert(NODES.decode_object(orjson.dumps({"metadata": {"name": name, "labels": {HOST: name}}})))
    for name in ("n1", "n2"):
        index.upsert(read_pod(pod_json(f"on-{name}", name)))
    index.assume(read_pod(pod_json("assumed")), ("n3",), 0.0)
    index.assume(read_pod(pod_json("somewhere")), ("n1", "n2"), 0.0)
    index.view.compiled(read_pod(pod_json("asking")).signature)
    return index


def counted(index: ClusterIndex) -> list[dict[str, int]]:
    question = index.view.compiled(read_pod(pod_json("asking")).signature)
    groups = question.filter_groups()
    return [{group.key.value(domain): count for domain, count in group.counts.items()} for group in groups]

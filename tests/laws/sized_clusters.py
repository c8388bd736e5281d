"""Clusters with resources and labels, and the rows of a page recounted from the objects."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from extender.index.cluster import ClusterIndex
from extender.model.constraints.selectors import LabelSelector
from extender.rules.catalog import counts_of_rules
from extender.wire.objects.constraints import parse_label_selector
from tests.builders import Json
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, apply
from tests.strategies import Change, Step, histories

_ALLOCATABLE: Final = {"cpu": "4", "memory": "2Gi", "pods": "9"}
_REQUESTS: Final = {"cpu": "1500m", "memory": "3Gi"}  # of the second pod on a node there is less than none left


def sized(step: Step) -> Step:
    """The step with resources on nodes and in pods, and a creation time that depends on the pod."""
    if not isinstance(step, Change) or step.body is None:
        return step
    body: dict[str, Any] = step.body
    if step.kind == "nodes":
        return Change(step.kind, step.key, body | {"status": {"allocatable": _ALLOCATABLE}})
    if step.kind == "pods":
        wishes = {"containers": [{"name": "main", "resources": {"requests": _REQUESTS}}]}
        created = {"creationTimestamp": f"2026-01-01T00:00:0{len(body['metadata'].get('labels', ()))}Z"}
        return Change(
            step.kind, step.key, body | {"spec": body["spec"] | wishes, "metadata": body["metadata"] | created}
        )
    return step


def clusters() -> st.SearchStrategy[tuple[ClusterIndex, Cluster]]:
    """An index after a history, and the table of its objects."""

    def build(history: list[Step]) -> tuple[ClusterIndex, Cluster]:
        index, cluster = ClusterIndex(SYSTEM_DEFAULTS.rules, counts_of_rules()), Cluster()
        for step in history:
            apply(index, cluster, sized(step))
        return index, cluster

    return histories().map(build)


def running(cluster: Cluster) -> list[Json]:
    return [pod for pod in cluster.of("pods") if pod["status"]["phase"] != "Succeeded"]


def name_of(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def counts_for(pod: Json, namespace: str, labels: dict[str, str] | None) -> bool:
    own: dict[str, str] = pod["metadata"].get("labels", {})
    is_there = namespace in ("", pod["metadata"]["namespace"])
    return is_there and (labels or {}).items() <= own.items()


def selector_of(labels: dict[str, str] | None) -> LabelSelector | None:
    text = b"{}" if not labels else b'{"matchLabels": {"app": "%s"}}' % labels["app"].encode()
    return None if labels is None else parse_label_selector(text, "selector")


Row = tuple[int, int, int, int, int, int]  # nodes, cordoned ones, pods, matching ones, free milli-CPU, free memory


def rows_by_hand(cluster: Cluster, key: str, namespace: str, labels: dict[str, str] | None) -> dict[str, Row]:
    """What each domain is to show, from the JSON objects."""
    found: dict[str, Row] = {}
    for node in cluster.of("nodes"):
        domain = node["metadata"]["labels"].get(key)
        if domain is None:
            continue
        here = [pod for pod in running(cluster) if pod["spec"].get("nodeName") == node["metadata"]["name"]]
        of_node = (
            1,
            int("unschedulable" in node["spec"]),
            len(here),
            sum(counts_for(pod, namespace, labels) for pod in here),
            4000 - 1500 * len(here),
            2 * 2**30 - 3 * 2**30 * len(here),
        )
        before = found.get(domain, (0, 0, 0, 0, 0, 0))
        found[domain] = tuple(map(sum, zip(before, of_node, strict=True)))  # type: ignore[assignment]  # six numbers
    return found

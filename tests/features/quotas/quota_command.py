"""extender quota as a command, and snapshots with affinity across namespaces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.builders import Json, namespace_json, node_json, pod_json, term, weighted
from tests.cli.printing import Result

Run = Callable[..., Result]


def of(kind: str, body: Json, version: str = "v1") -> Json:
    return {"apiVersion": version, "kind": kind, **body}


def quota(name: str, namespace: str, *more: str, **hard: str) -> Json:
    scopes = ["CrossNamespacePodAffinity", *more]
    meta = {"name": name, "namespace": namespace}
    return of("ResourceQuota", {"metadata": meta, "spec": {"hard": hard, "scopes": scopes}})


ALL = term("zone", app="web", namespace_selector={})
OWN = term("zone", app="web", namespaces=["shop"])
NODES = [of("Node", node_json(f"n{number}", zone=f"z{number // 2}")) for number in range(4)]
NAMESPACES = [of("Namespace", namespace_json(name)) for name in ("shop", "lab", "kube-system")]


def pods() -> list[Json]:
    """Two placed pods and three pending ones of a workload in lab, one that names its own namespace, and one without terms."""
    made = [
        pod_json(f"web-{number}", on=f"n{number}" if number < 2 else "", namespace="lab", apart=[ALL])
        for number in range(5)
    ]
    for number, each in enumerate(made):
        each["metadata"]["creationTimestamp"] = f"2026-01-0{9 - number}T00:00:00Z"
    made.append(pod_json("own", on="n3", namespace="shop", avoids=[weighted(1, OWN)]))
    made.append(pod_json("plain", on="n3", namespace="shop", apart=[term("zone", app="web")]))
    made.append(pod_json("system", namespace="kube-system", apart=[ALL]))
    return [of("Pod", each) for each in made]


def workload(kind: str, name: str, version: str = "apps/v1", **metadata: Any) -> Json:
    spec = pod_json(apart=[ALL, term("zone", app="x")], prefers=[weighted(1, OWN)])["spec"]
    meta = {"name": name, "namespace": "lab", **metadata}
    return of(kind, {"metadata": meta, "spec": {"template": {"spec": spec}}}, version)


def snapshot(folder: Path, *objects: Json) -> str:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [*NODES, *NAMESPACES, *objects]}), "utf-8")
    return str(path)


def report(run: Run, folder: Path, *objects: Json, limit: int | None = None) -> Any:
    found = run(
        "report",
        "--snapshot",
        snapshot(folder, *objects),
        "-o",
        "json",
        *([] if limit is None else ["--limit", str(limit)]),
    )
    assert (found.code, found.err) == (0, "")
    return found.document


def generated(run: Run, *arguments: str) -> list[Json]:
    found = run("generate", *arguments)
    assert (found.code, found.err) == (0, "")
    return list(yaml.safe_load_all(found.out))

"""The chart rendered by `helm template`, and its objects beside the objects of the overlays."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from typing import Any, Final

import pytest
import yaml

from tests.deploy.building import DEPLOY, Json
from tests.fakes import PATIENCE
from tests.programs import tool

CHART: Final = DEPLOY / "chart"
NAMESPACES: Final = {
    "secondScheduler": "kube-system",
    "service": "placement-extender",
    "schedulers": "placement-shared",
}
OVERLAY_OF: Final = {"secondScheduler": "second-scheduler", "service": "service", "schedulers": "schedulers"}
LAYOUTS: Final = tuple(NAMESPACES)
_HASH: Final = re.compile(r"^(placement-\w+-config)-[0-9a-z]{10}$")

_HASH_OF_JOB: Final = re.compile(r"-[0-9a-f]{8}$")


class ValueRefusedError(ValueError):
    """Helm refuses the values; the text is what it prints."""


def helm(*arguments: str, values: Json | None = None) -> str:
    """What a command of helm prints. ValueRefusedError where it fails."""
    if not (CHART / "files" / "base").exists():
        pytest.skip("this is no checkout: the links of the chart to the overlays are missing")
    text = json.dumps(values or {})
    command = [tool("helm"), *arguments, *(["--values=-"] if values is not None else [])]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise ValueRefusedError(done.stderr)
    return done.stdout


@cache
def _rendered(values: str, namespace: str, flags: tuple[str, ...]) -> str:
    return helm("template", "release", str(CHART), f"--namespace={namespace}", *flags, values=json.loads(values))


def chart(layout: str = "secondScheduler", *flags: str, namespace: str = "", **values: Any) -> list[Json]:
    """The objects of a layout with some values."""
    text = _rendered(json.dumps({"layout": layout, **values}), namespace or NAMESPACES.get(layout, "any"), flags)
    return [one for one in yaml.load_all(text, yaml.CSafeLoader) if one]


def by_name(documents: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Each object by kind, namespace and name, without what Helm and kustomize add by their own means.

    These are labels of objects, the hash in the name of a ConfigMap, and the hash in an annotation of pods. The files in a ConfigMap
    are compared as documents. The overlay `schedulers` adds its suffix to the suffix of `service`. The namespace is made by `helm install --create-namespace`.
    """
    found = {}
    for document in documents:
        if document["kind"] == "Namespace":
            continue
        one = _plain(json.loads(json.dumps(document).replace("-service-schedulers", "-schedulers")))
        metadata = one["metadata"]
        found[one["kind"], metadata.get("namespace", ""), metadata["name"]] = one
    assert len(found) == len([one for one in documents if one["kind"] != "Namespace"]), "no object stands twice"
    return found


def _plain(document: Json) -> Json:
    metadata = document["metadata"]
    metadata.pop("labels", None)
    metadata["name"] = _HASH.sub(r"\1", metadata["name"])
    if (
        document["kind"] == "Job"
    ):  # of the chart it stays, under a name with a hash; of an overlay it is deleted after a while
        metadata["name"] = _HASH_OF_JOB.sub("", metadata["name"])
        document["spec"].pop("ttlSecondsAfterFinished", None)
    if document["kind"] == "CustomResourceDefinition":
        metadata.pop("annotations", None)
    if document["kind"] == "ConfigMap":
        document["data"] = {file: yaml.safe_load(text) for file, text in document["data"].items()}
    if template := document.get("spec", {}).get("template"):
        annotations = template["metadata"].pop("annotations", {})
        assert set(annotations) <= {"checksum/config"}
        _sort(template["spec"])
        for volume in template["spec"].get("volumes", []):
            if "configMap" in volume:
                volume["configMap"]["name"] = _HASH.sub(r"\1", volume["configMap"]["name"])
    return document


def _sort(spec: Json) -> None:
    """By name: a patch of kustomize puts what it adds first, and their order means nothing."""
    for container in spec["containers"]:
        for field in ("ports", "env", "volumeMounts"):
            container.get(field, []).sort(key=json.dumps)
    for field in ("containers", "volumes"):
        spec.get(field, []).sort(key=lambda one: str(one["name"]))

"""Overlays built by `kubectl kustomize`, as lists of documents."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import yaml

from tests.fakes import PATIENCE
from tests.programs import tool

Json: TypeAlias = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ("sidecar", "second-scheduler", "service", "service-cert-manager", "schedulers")
CLUSTER_SCOPED = ("ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
KUBERNETES = "1.36"
DEPLOYED = OVERLAYS[1:]  # those with pods of their own


class SchemaError(ValueError):
    """A document has a field that its kind does not have, or one of another type."""


@cache
def _built(folder: Path) -> str:
    command = [tool("kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "kustomize warns"
    return done.stdout


def built(folder: Path) -> list[Json]:
    """The documents of a kustomization. AssertionError when it does not build, or not without a warning."""
    return list(yaml.load_all(_built(folder), yaml.CSafeLoader))


def overlay(name: str) -> list[Json]:
    return built(DEPLOY / "overlays" / name)


def overlay_with(component: str, name: str, *more: str) -> list[Json]:
    """The documents of an overlay to which a component was added, or several."""
    return list(yaml.load_all(_with_components((component, *more), name), yaml.CSafeLoader))


@cache
def _with_components(components: tuple[str, ...], name: str) -> str:
    added = ", ".join(f"../../{each}" for each in components)
    with TemporaryDirectory() as folder:
        shutil.copytree(DEPLOY, Path(folder) / "deploy")
        file = Path(folder) / "deploy" / "overlays" / name / "kustomization.yaml"
        file.write_text(f"{file.read_text('utf-8')}components: [{added}]\n", "utf-8")
        return _built(file.parent)


def kustomized(**parts: list[str]) -> list[Json]:
    """The documents of a kustomization beside deploy/, with resources and components from there."""
    with TemporaryDirectory() as folder:
        shutil.copytree(DEPLOY, Path(folder) / "deploy")
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(parts), "utf-8")
        return built(Path(folder))


def of_kind(documents: list[Json], *kinds: str) -> list[Json]:
    return [document for document in documents if document["kind"] in kinds]


def named(documents: list[Json], kind: str, name: str) -> Json:
    """The one document of this kind and name."""
    (found,) = [document for document in of_kind(documents, kind) if document["metadata"]["name"] == name]
    return found


def pod_of(documents: list[Json]) -> Json:
    """The pod template of the overlay's Deployment."""
    (deployment,) = of_kind(documents, "Deployment")
    template: Json = deployment["spec"]["template"]
    return template


def extender_of(documents: list[Json]) -> Json:
    """The container of the extender in the overlay's Deployment."""
    (found,) = [one for one in pod_of(documents)["spec"]["containers"] if one["name"] == "extender"]
    return dict(found)


def images_of(documents: list[Json]) -> set[str]:
    return {container["image"] for template in templates(documents) for container in template["spec"]["containers"]}


def templates(documents: list[Json]) -> list[Json]:
    """Those of all workloads of the overlay."""
    return [one["spec"]["template"] for one in of_kind(documents, "Deployment", "StatefulSet")]


def rules(documents: list[Json], *kinds: str) -> Iterator[tuple[str, str, str]]:
    """(group, resource with subresource, verb) of the roles of the extender, one by one."""
    for role in of_kind(documents, *kinds):
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield from ((group, resource, verb) for verb in rule["verbs"])


def load(path: Path) -> Any:
    """One YAML file."""
    return yaml.safe_load(path.read_text("utf-8"))


def load_all(path: Path) -> list[Json]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def validate(document: Json) -> None:
    """By the schema of its kind; else SchemaError. The library takes a second to import: not while tests are collected."""
    library = import_module("kubernetes_validate")
    try:
        library.validate(document, KUBERNETES, strict=True)
    except library.ValidationError as error:
        raise SchemaError(str(error)) from error

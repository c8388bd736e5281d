"""Overlays in one cluster: what one applies is never another object under a name that is taken."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from extender.kube.credentials import ACCOUNT_FOLDER
from tests.deploy.building import CLUSTER_SCOPED, OVERLAYS, Json, of_kind, overlay


def identity(document: Json) -> tuple[str, str, str]:
    """Kind, namespace (empty for what is in none) and name: the apiserver holds one object of each."""
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def by_identity(name: str) -> dict[tuple[str, str, str], Json]:
    """The documents of an overlay. AssertionError when one stands twice."""
    found = {identity(document): document for document in overlay(name)}
    assert len(found) == len(overlay(name))
    return found


@pytest.mark.parametrize(("one", "other"), list(combinations(OVERLAYS, 2)))
def test_no_two_overlays_give_one_name_to_different_objects(one: str, other: str) -> None:
    first, second = by_identity(one), by_identity(other)
    assert {key for key in first.keys() & second.keys() if first[key] != second[key]} == set()


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_is_in_no_namespace_is_named_for_its_overlay(name: str) -> None:
    """Even where two would be equal today: removing one overlay must leave the other's."""
    own = "service" if name == "service-cert-manager" else name
    names = [document["metadata"]["name"] for document in of_kind(overlay(name), *CLUSTER_SCOPED)]
    assert len(names) >= 6
    assert {found for found in names if not found.endswith(f"-{own}")} == set()


def subjects(documents: list[Json], *roles: str) -> set[str]:
    """The subjects bound to cluster roles whose names begin so."""
    bindings = of_kind(documents, "ClusterRoleBinding")
    return {
        subject["name"]
        for binding in bindings
        if binding["roleRef"]["name"].startswith(roles)
        for subject in binding["subjects"]
    }


def test_the_second_scheduler_and_its_extender_have_an_account_each() -> None:
    documents = overlay("second-scheduler")
    (deployment,) = of_kind(documents, "Deployment")
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    scheduler, extender = spec["containers"]
    (secret,) = of_kind(documents, "Secret")
    assert subjects(documents, "system:") == {spec["serviceAccountName"]} == {"placement-scheduler"}
    assert subjects(documents, "placement-extender-") == {"placement-extender"}
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "placement-extender"

    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in extender["volumeMounts"]}
    token = mounts[str(ACCOUNT_FOLDER)]["projected"]
    assert token["defaultMode"] == 0o440
    given, *others = token["sources"]
    assert given["secret"] == {"name": secret["metadata"]["name"], "items": [{"key": "token", "path": "token"}]}
    assert {item["path"] for other in others for part in other.values() for item in part["items"]} == {
        "ca.crt",
        "namespace",
    }
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"], "or the file could not be read"
    assert str(ACCOUNT_FOLDER) not in {mount["mountPath"] for mount in scheduler["volumeMounts"]}

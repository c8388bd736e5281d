"""The component deploy/user-roles: what the roles view, edit and admin of Kubernetes get."""

from __future__ import annotations

import pytest

from deploy.policies.crds import all_crds
from tests.deploy.building import DEPLOYED, of_kind, overlay_with, rules, validate

AGGREGATED = "rbac.authorization.k8s.io/aggregate-to-"
READ = {"get", "list", "watch"}


def granted(name: str, role: str) -> dict[str, set[str]]:
    """Resources with their verbs that a role of Kubernetes gets."""
    found: dict[str, set[str]] = {}
    for one in of_kind(overlay_with("policies", name, "user-roles"), "ClusterRole"):
        if one["metadata"].get("labels", {}).get(f"{AGGREGATED}{role}") == "true":
            validate(one)
            assert one["metadata"]["name"].endswith(f"-{name.removesuffix('-cert-manager')}") or "cert-manager" in name
            for group, resource, verb in rules([one], "ClusterRole"):
                assert group == "placement.extender.dev"
                found.setdefault(resource, set()).add(verb)
    return found


@pytest.mark.parametrize("name", DEPLOYED)
def test_all_kinds_can_be_viewed_and_only_namespaced_policies_edited(name: str) -> None:
    kinds = {crd["spec"]["names"]["plural"] for crd in all_crds()}
    assert granted(name, "view") == dict.fromkeys(kinds, READ)
    writes = {"create", "update", "patch", "delete", "deletecollection"}
    edited = dict.fromkeys(kinds, READ) | {"podschedulingpolicies": READ | writes}
    assert granted(name, "edit") == granted(name, "admin") == edited

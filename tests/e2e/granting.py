"""What deploy/base grants on a real apiserver: applied, cut short by a rule, and a kubeconfig of the account it is for.

Built by kubectl; where it is missing a test is skipped and says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from extender.simulator.json_objects import JsonObject, name_of
from tests.deploy.building import DEPLOY, built
from tests.e2e.client import Api
from tests.e2e.control_plane import ControlPlane

NAMESPACE = "kube-system"
ACCOUNT = "placement-extender-tried"  # others of these tests use the roles under their own names
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_FOLDERS = {
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{NAMESPACE}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
}


def granted() -> list[JsonObject]:
    """Account, roles, bindings and admission policy, in the namespace of these tests and under names of their own."""
    documents = deepcopy(built(DEPLOY / "base"))
    for document in documents:
        for named in (document["metadata"], document.get("roleRef"), *document.get("subjects", [])):
            if named:
                named["name"] += "-tried"
        for subject in document.get("subjects", []):
            subject["namespace"] = NAMESPACE
        if document["kind"] == "ValidatingAdmissionPolicy":
            user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
            document["spec"]["matchConditions"][0]["expression"] = f'request.userInfo.username == "{user}"'
        if document["kind"] == "ValidatingAdmissionPolicyBinding":
            document["spec"]["policyName"] += "-tried"
    return documents


def without(documents: list[JsonObject], group: str, resource: str, verb: str = "") -> list[JsonObject]:
    """The same, less one resource in every rule, or less one verb on it."""
    return [
        {**one, "rules": list(_cut(one["rules"], group, resource, verb))} if "rules" in one else one
        for one in documents
    ]


def _cut(rules: list[JsonObject], group: str, resource: str, verb: str) -> list[JsonObject]:
    found: list[JsonObject] = []
    for rule in rules:
        if group not in rule["apiGroups"] or resource not in rule["resources"]:
            found.append(rule)
            continue
        others = [name for name in rule["resources"] if name != resource]
        verbs = [name for name in rule["verbs"] if verb and name != verb]
        found += [{**rule, "resources": others}] if others else []
        found += [{**rule, "resources": [resource], "verbs": verbs}] if verbs else []
    return found


@asynccontextmanager
async def applied(api: Api, documents: list[JsonObject]) -> AsyncIterator[None]:
    """They stand in the cluster until the block is left."""
    paths = [f"{_FOLDERS[one['kind']]}/{name_of(one)}" for one in documents]
    try:
        for one in documents:
            await api.request("POST", _FOLDERS[one["kind"]], one)
        yield
    finally:
        for path in paths:
            await api.delete(path)


async def kubeconfig_of_account(
    api: Api, plane: ControlPlane, folder: Path, account: str = ACCOUNT, namespace: str = NAMESPACE
) -> Path:
    """A kubeconfig with a fresh token of the account, as the kubelet would give it to a pod."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = await api.request("POST", where, request)
    document: dict[str, Any] = yaml.safe_load(plane.kubeconfig.read_text("utf-8"))
    document["users"][0]["user"] = {"token": answer["status"]["token"]}
    path = folder / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path

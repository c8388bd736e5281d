"""The CRDs of scheduling policies on a real apiserver, which refuses bad policies by them alone: there is no webhook here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from extender.simulator.json_objects import JsonObject
from tests.deploy.policies.examples import BAD, FULL, STATUS, TO_COPY, namespaced_full, policy, to_copy
from tests.e2e.client import Api, path_of
from tests.e2e.cluster import Cluster
from tests.e2e.policing import established, without_policies
from tests.fakes import PATIENCE
from tests.programs import tool
from tests.test_policy_files import CLUSTER_OF_KUPID, follow_the_page, kupids_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_NO_NAME = str.maketrans({":": "", " ": "-"})


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """A client of an apiserver that serves the kinds; what a test creates is removed."""
    await established(cluster.api)
    yield cluster.api
    await without_policies(cluster.api)


@pytest.mark.core("policies: schema and rules")
async def test_the_crds_are_established_and_nothing_in_their_schemas_is_refused(cluster: Cluster) -> None:
    for crd in await established(cluster.api):
        conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}  # NonStructuralSchema is absent


@pytest.mark.parametrize("found", [FULL, namespaced_full()], ids=lambda found: str(found["kind"]))
async def test_a_policy_with_every_field_is_kept_as_it_was_written(api: Api, found: JsonObject) -> None:
    created = await api.request("POST", path_of(found), found, params={"fieldValidation": "Strict"})
    assert created["spec"] == found["spec"]


def with_defaults(written: JsonObject, stored: JsonObject) -> JsonObject:
    """What was written with the fields that the apiserver added, in nested objects too."""
    both = {
        name: value for name, value in written.items() if isinstance(value, dict) and isinstance(stored.get(name), dict)
    }
    return stored | written | {name: with_defaults(value, stored[name]) for name, value in both.items()}


@pytest.mark.parametrize("name", TO_COPY)
async def test_a_policy_to_copy_is_accepted(api: Api, name: str) -> None:
    found = to_copy(name)
    namespace = found["metadata"].get("namespace")
    if namespace:
        await api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, allow=[409])
    params = {"fieldValidation": "Strict", "dryRun": "All"}
    created = await api.request("POST", path_of(found), found, params=params)
    assert created["spec"] == with_defaults(found["spec"], created["spec"])


async def test_what_is_left_out_gets_the_documented_defaults(api: Api) -> None:
    created = await api.request("POST", path_of(policy()), policy())
    assert created["spec"] == policy()["spec"] | {
        "when": ["Admission", "Scheduling"],
        "targets": "Pods",
        "priority": 0,
        "conflictPolicy": "KeepPod",
        "failurePolicy": "Ignore",
        "mode": "Enforce",
    }


@pytest.mark.core("policies: schema and rules")
@pytest.mark.parametrize("kind", ["ClusterPodSchedulingPolicy", "PodSchedulingPolicy"])
async def test_each_bad_policy_is_refused_with_its_field(api: Api, kind: str) -> None:
    named: dict[str, list[str]] = {}
    wanted = {
        case: field for case, (_, field) in BAD.items() if kind.startswith("Cluster") or "namespaceS" not in field
    }
    for case in wanted:
        found = policy(kind, case.lower().translate(_NO_NAME), **BAD[case][0])
        answer = await api.request("POST", path_of(found), found, allow=[422])
        named[case] = [cause["field"] for cause in answer["details"]["causes"]] if answer["kind"] == "Status" else []
    assert {case: fields for case, fields in named.items() if wanted[case] not in fields} == {}


async def test_the_namespaced_kind_refuses_a_namespace_selector(api: Api) -> None:
    found = policy("PodSchedulingPolicy", namespaceSelector={})
    answer = await api.request("POST", path_of(found), found, allow=[400], params={"fieldValidation": "Strict"})
    assert 'unknown field "spec.namespaceSelector"' in answer["message"]


async def test_the_status_is_written_through_its_subresource_only(api: Api) -> None:
    path = f"{path_of(policy())}/one"
    created = await api.request("POST", path_of(policy()), {**policy(), "status": STATUS})
    assert "status" not in created
    await api.patch(path, {"status": STATUS})
    assert "status" not in await api.request("GET", path)
    assert (await api.patch(f"{path}/status", {"status": STATUS}))["status"] == STATUS


async def test_kubectl_get_shows_the_columns(api: Api) -> None:
    await api.create(policy(priority=7))
    await api.patch(f"{path_of(policy())}/one/status", {"status": STATUS})
    as_table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}  # what kubectl get asks for
    table = await api.request("GET", path_of(policy()), headers=as_table)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Priority", "When", "Mode", "Matched", "Broken", "Valid", "Age"]
    (row,) = table["rows"]
    assert row["cells"][:-1] == ["one", 7, '["Admission","Scheduling"]', "Enforce", 12, 3, "True"]


def kupids_crd(kind: str, scope: str) -> JsonObject:
    """A kind of kupid's group whose fields are not described."""
    singular = kind.lower()
    plural = f"{singular.removesuffix('y')}ies"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"kind": kind, "plural": plural, "singular": singular, "listKind": f"{kind}List"}
    spec = {"group": "kupid.gardener.cloud", "scope": scope, "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return head | {"metadata": {"name": f"{plural}.kupid.gardener.cloud"}, "spec": spec}


async def test_kupids_policies_are_moved_by_the_commands_of_the_page(
    cluster: Cluster, api: Api, tmp_path: Path
) -> None:
    """config/how-to/move-from-kupid.md with a real kubectl and API server, and kinds of kupid without its webhook."""
    folder = tmp_path / "moving"
    folder.mkdir()
    wanted = kupids_policy()
    wanted["metadata"] = {"name": "kupid-policy-etcd", "annotations": wanted["metadata"]["annotations"]}
    path = "/apis/kupid.gardener.cloud/v1alpha1/clusterpodschedulingpolicies"
    async with AsyncExitStack() as stack:
        for kind, scope in (("PodSchedulingPolicy", "Namespaced"), ("ClusterPodSchedulingPolicy", "Cluster")):
            crd = kupids_crd(kind, scope)
            await api.request("POST", _CRDS, crd)
            stack.push_async_callback(api.delete, f"{_CRDS}/{crd['metadata']['name']}")
        async with asyncio.timeout(PATIENCE):
            while '"items"' not in await api.text(path):  # noqa: ASYNC110 -- no event across processes
                await asyncio.sleep(0.05)
        await api.request("POST", path, wanted)
        await api.create(*CLUSTER_OF_KUPID[:2])
        await api.create(CLUSTER_OF_KUPID[2])
        kubectl = f'exec {tool("kubectl")} --kubeconfig={cluster.plane.kubeconfig} "$@"'
        said = await asyncio.to_thread(follow_the_page, folder, {}, kubectl=kubectl)
    assert "clusterpodschedulingpolicy.placement.extender.dev/kupid-policy-etcd created" in said
    created = await api.request("GET", f"{path_of(policy('ClusterPodSchedulingPolicy'))}/kupid-policy-etcd")
    assert created["spec"] == with_defaults(wanted["spec"], created["spec"])
    assert "annotations" not in created["metadata"]

"""Overlays on a real control plane: each keeps its permissions when another one follows, and its scheduler starts."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

import pytest
import yaml

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import DEPLOY, OVERLAYS, of_kind, overlay, overlay_with, rules
from tests.deploy.reading import blocks
from tests.e2e.client import Api
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.control_plane import ControlPlane
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE
from tests.programs import tool
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

BUDGET = "poddisruptionbudget.policy/placement-extender"
VERSIONS = "custom-columns=KIND:.kind,NAME:.metadata.name,VERSION:.metadata.resourceVersion"
FOREIGN = {"Certificate", "Issuer"}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def kubectl(cluster: Cluster, *arguments: str, documents: list[JsonObject]) -> str:
    """What kubectl prints, given the documents. AssertionError with what it says when it fails."""
    command = [tool("kubectl"), f"--kubeconfig={cluster.plane.kubeconfig}", *arguments, "-f", "-"]
    text = yaml.safe_dump_all(documents)
    done = await asyncio.to_thread(
        subprocess.run, command, input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def known(name: str) -> list[JsonObject]:
    """Those of an overlay."""
    return namespace_first(overlay(name))


def namespace_first(documents: list[JsonObject]) -> list[JsonObject]:
    """The documents that an apiserver knows without any operator, the namespace first."""
    ours = [document for document in documents if document["kind"] not in FOREIGN]
    return sorted(ours, key=lambda document: str(document["kind"]) != "Namespace")


def user_of(subject: JsonObject) -> str:
    """As the apiserver names it."""
    if subject["kind"] == "User":
        return str(subject["name"])
    return f"system:serviceaccount:{subject['namespace']}:{subject['name']}"


def extender_of(name: str) -> str:
    """The user that the extender of an overlay is."""
    bindings = of_kind(overlay(name), "ClusterRoleBinding")
    (user,) = {user_of(one["subjects"][0]) for one in bindings if "reader" in one["metadata"]["name"]}
    return user


def granted_by(name: str) -> set[tuple[str, str, str]]:
    """What the roles of an overlay grant."""
    return set(rules(overlay(name), "ClusterRole"))


async def may(api: Api, user: str, group: str, resource: str, verb: str) -> bool:
    name, _, subresource = resource.partition("/")
    asked = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": asked},
    }
    answer = await api.request("POST", REVIEWS, review)
    return bool(answer["status"]["allowed"])


async def missing(api: Api, user: str, wanted: Iterable[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """What a user may not do of that."""
    return {rule for rule in wanted if not await may(api, user, *rule)}


async def eventually_granted(api: Api, name: str) -> None:
    """Return once the extender of an overlay may do all that its roles grant; the authorizer hears of them by a watch."""
    async with asyncio.timeout(PATIENCE):
        while await missing(api, extender_of(name), granted_by(name)):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(("first", "second"), list(permutations(OVERLAYS, 2)))
async def test_an_overlay_keeps_its_permissions_when_another_one_is_applied_after_it(
    cluster: Cluster, first: str, second: str
) -> None:
    api = cluster.api
    await kubectl(cluster, "apply", documents=known(first))
    await kubectl(cluster, "apply", documents=known(second))
    try:
        for name in (first, second):
            await eventually_granted(api, name)
            assert not await may(api, extender_of(name), "", "pods/binding", "create"), "kube-scheduler's own"
            assert not await may(api, extender_of(name), "", "secrets", "get")
        if "second-scheduler" in (first, second):
            account = "system:serviceaccount:kube-system:placement-scheduler"
            assert await may(api, account, "", "pods/binding", "create")
        await kubectl(cluster, "delete", "--wait=false", documents=known(second))
        if {first, second} != {"service", "service-cert-manager"}:  # the same one, with certificates from elsewhere
            assert await missing(api, extender_of(first), granted_by(first)) == set()
    finally:
        both = [*known(first), *known(second)]
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=both)


@pytest.mark.parametrize("name", OVERLAYS)
async def test_what_is_applied_again_is_unchanged(cluster: Cluster, name: str) -> None:
    documents = namespace_first(overlay_with("policies", name, "bind", "kubectl"))
    await kubectl(cluster, "apply", documents=documents)
    try:
        versions = await kubectl(cluster, "get", "-o", VERSIONS, documents=documents)
        said = await kubectl(cluster, "apply", documents=documents)
        again = [line for line in said.splitlines() if not line.endswith(" unchanged")]
        # kubectl prints this for every budget: its selector has the patch strategy "replace", so it is in each patch.
        assert again == [f"{BUDGET} configured" for each in documents if each["kind"] == "PodDisruptionBudget"]
        assert await kubectl(cluster, "get", "-o", VERSIONS, documents=documents) == versions, "nothing was written"
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=documents)


def installed(name: str, file: str, certificates: Path, plane: ControlPlane) -> JsonObject:
    """A configuration of an overlay, with the paths of this machine in place of those that its installation names."""
    text = (DEPLOY / "overlays" / name / file).read_text("utf-8")
    places = {
        "/etc/kubernetes/scheduler.conf": plane.kubeconfig,
        "/etc/kubernetes/placement-extender/kubeconfig": plane.extender_kubeconfig,
        "/etc/kubernetes/placement-extender": certificates,
        "/etc/placement-extender-client/tls": certificates / "client",
        "/etc/placement-extender-client": certificates,
        "/etc/placement-extender-tls/tls": certificates / "server",
        "/etc/placement-extender-tls": certificates,
    }
    for place, here in places.items():
        text = text.replace(place, str(here))
    document: JsonObject = yaml.safe_load(text)
    return document


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("sidecar", "kube-scheduler.yaml"),
        ("second-scheduler", "kube-scheduler.yaml"),
        ("service", "kube-scheduler.yaml"),
        ("schedulers", "placement-scheduler-1.yaml"),
    ],
)
async def test_with_the_configurations_and_accounts_of_an_overlay_a_real_scheduler_places_pods(
    cluster: Cluster, tmp_path: Path, name: str, file: str
) -> None:
    certificates, plane = tmp_path / "certificates", cluster.plane
    await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(certificates)))
    settings = installed(name, "extender.yaml", certificates, plane)
    document = installed(name, file, certificates, plane)
    (profile,) = document.get("profiles", [{"schedulerName": "default-scheduler"}])
    await kubectl(cluster, "apply", documents=known(name))
    try:
        kubeconfigs = {
            account["metadata"]["name"]: await kubeconfig_of_account(
                cluster.api, plane, tmp_path, account["metadata"]["name"], account["metadata"]["namespace"]
            )
            for account in of_kind(overlay(name), "ServiceAccount")
        }
        settings["logging"] = {"format": "text"}  # whose lines tell the tests the address
        if settings.get("leaderElection"):
            (deployment,) = of_kind(overlay(name), "Deployment")
            settings["leaderElection"]["leaseNamespace"] = deployment["metadata"]["namespace"]  # in a pod its own
            # The scheduler asks this process; test_rollout.py has the Service.
            del settings["leaderElection"]["service"]
        kubeconfig = kubeconfigs.get("placement-extender", plane.extender_kubeconfig)
        settings["kube"] = {"kubeconfig": str(kubeconfig)}
        with Extender(tmp_path, kubeconfig, settings, certificates / "ca.crt") as extender:
            await eventually_ready(extender)
            document["extenders"][0]["urlPrefix"] = extender.url
            if "clientConnection" not in document:  # in a pod the token of its account
                document["clientConnection"] = {"kubeconfig": str(kubeconfigs["placement-scheduler"])}
            own = kubeconfigs.get("placement-scheduler", plane.kubeconfig)
            flags = [f"--{what}-kubeconfig={own}" for what in ("authentication", "authorization")]
            await place_apart(cluster, document, profile["schedulerName"], *flags)
    finally:
        plane.scheduler.stop()
        await kubectl(cluster, "delete", "--wait=false", documents=known(name))
    assert "forbidden" not in plane.scheduler.log()


async def place_apart(cluster: Cluster, document: JsonObject, scheduler: str, *flags: str) -> None:
    """Start kube-scheduler and have two pods placed that only an extender keeps apart in offload mode."""
    await cluster.add_nodes(zones=1, per_zone=2)
    await asyncio.to_thread(cluster.plane.start_scheduler, document, *flags)
    apart = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{n}", labels={"app": "web"}, affinity=apart, schedulerName=scheduler) for n in range(2)]
    await cluster.api.create(*pods)
    assert len(set(await cluster.board.bound(*pods))) == 2


@pytest.mark.parametrize(
    ("title", "name", "namespace"),
    [("Second scheduler", "second-scheduler", "kube-system"), ("Service", "service", "placement-extender")],
)
async def test_the_commands_of_the_readme_install_everything_that_the_pods_mount(
    cluster: Cluster, tmp_path: Path, title: str, name: str, namespace: str
) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    lines = blocks(title)[0].splitlines(keepends=True)
    commands = "".join(line for line in lines if "rollout status" not in line)  # nothing makes pods of it here
    environment = {
        **os.environ,
        "KUBECONFIG": str(cluster.plane.kubeconfig),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [tool("bash"), "-euo", "pipefail", "-c", commands]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        (deployment,) = of_kind(overlay(name), "Deployment")
        volumes = [
            volume["secret"] for volume in deployment["spec"]["template"]["spec"]["volumes"] if "secret" in volume
        ]
        assert volumes
        for volume in volumes:
            path = f"/api/v1/namespaces/{namespace}/secrets/{volume['secretName']}"
            secret = await cluster.api.request("GET", path)
            if secret["type"] == "Opaque":  # the other is filled in by the control plane
                assert set(secret["data"]) == {"tls.crt", "tls.key", "ca.crt"}
                await cluster.api.delete(path)
    finally:
        await kubectl(cluster, "delete", "--wait=false", "--ignore-not-found", documents=known(name))

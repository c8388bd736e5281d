"""Overlays installed on a real control plane, and the permissions that each one grants."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable
from pathlib import Path

import yaml

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import DEPLOY, of_kind, overlay, rules
from tests.e2e.client import Api
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import ControlPlane
from tests.fakes import PATIENCE
from tests.programs import tool
from tests.simulator.plain import HOSTNAME, anti_affinity, pod, term

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
    requested = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": requested},
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


async def place_apart(cluster: Cluster, document: JsonObject, scheduler: str, *flags: str) -> None:
    """Start kube-scheduler and have two pods placed that only an extender keeps apart in offload mode."""
    await cluster.add_nodes(zones=1, per_zone=2)
    await asyncio.to_thread(cluster.plane.start_scheduler, document, *flags)
    apart = anti_affinity(term(HOSTNAME, app="web"))
    pods = [pod(f"web-{n}", labels={"app": "web"}, affinity=apart, schedulerName=scheduler) for n in range(2)]
    await cluster.api.create(*pods)
    assert len(set(await cluster.board.bound(*pods))) == 2

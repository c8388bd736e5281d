"""`kubectl placement` with a real API server: kubectl calls it, and it reaches the service over a port-forward of kubectl."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
import yaml
from aiohttp import ClientSession

from extender.cli.kubectl import LEADER_SLICE, SECRET
from extender.simulator.json_objects import JsonObject
from tests.deploy.building import DEPLOY
from tests.e2e.client import pod_path
from tests.e2e.cluster import Cluster, eventually_ready
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.installed_service import NAMESPACE, Installed, pod_of_the_overlay
from tests.e2e.port_forwarding import ForwardingKubelet
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.programs import tool
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

README = Path("README.md").read_text("utf-8")
SERVICE = f"system:serviceaccount:{NAMESPACE}:placement-extender"
_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
_ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"


@pytest.fixture
async def installed(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Installed]:
    """Beside it two pods of shop, of which one waits, and a user of this namespace."""
    api, plane, certificates = cluster.api, cluster.plane, tmp_path / "certificates"
    await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(certificates)))
    tls = {"certFile": "server.crt", "keyFile": "server.key", "clientCAFile": "ca.crt"}
    settings: dict[str, Any] = yaml.safe_load((DEPLOY / "overlays" / "service" / "extender.yaml").read_text("utf-8"))
    settings["server"]["tls"] |= {name: str(certificates / file) for name, file in tls.items()}
    election = {"enabled": True, "leaseNamespace": NAMESPACE}  # in a pod its own
    changes = {"mode": "offload", "server": {"tls": settings["server"]["tls"]}, "leaderElection": election}
    kubelet = ForwardingKubelet(plane.folder)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kubelet.listening())
        await api.create(*(namespace(name) for name in (NAMESPACE, "shop")), kubelet.node("machine"))
        extender = stack.enter_context(Extender(tmp_path, plane.kubeconfig, changes, certificates / "ca.crt"))
        await eventually_ready(extender)
        address = urlsplit(extender.url)
        for name, port in (("0", 1), ("1", address.port or 0)):  # the latter leads
            kubelet.targets[f"{NAMESPACE}/extender-{name}"] = ("127.0.0.1", port)
            await api.create(made := pod_of_the_overlay(f"extender-{name}"))
            conditions = [{"type": "Ready", "status": "True"}]
            await api.patch(f"{pod_path(made)}/status", {"status": {"phase": "Running", "conditions": conditions}})
        target = {"kind": "Pod", "namespace": NAMESPACE, "name": "extender-1"}
        files = {"ca.crt": "ca.crt", "tls.crt": "admin.crt", "tls.key": "admin.key"}
        data = {key: base64.b64encode((certificates / file).read_bytes()).decode() for key, file in files.items()}
        role: JsonObject = yaml.safe_load((DEPLOY / "kubectl" / "role.yaml").read_text("utf-8"))
        alice = {"kind": "ServiceAccount", "name": "alice", "namespace": "shop"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]}
        leading = {"endpoints": [{"addresses": ["10.9.0.1"], "targetRef": target}], "addressType": "IPv4", "ports": []}
        objects: list[tuple[str, JsonObject]] = [
            (_SLICES, {"metadata": {"name": LEADER_SLICE}, **leading}),
            (_SECRETS, {"metadata": {"name": SECRET}, "data": data}),
            (_ROLES, role),
            (f"{_ROLES[:-5]}rolebindings", {"metadata": {"name": "alice"}, "roleRef": reference, "subjects": [alice]}),
            ("/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "alice"}}),
            ("/api/v1/namespaces/shop/serviceaccounts", {"metadata": {"name": "stranger"}}),
        ]
        for folder, made in objects:
            await api.request("POST", folder, made)
            stack.push_async_callback(api.delete, f"{folder}/{made['metadata']['name']}")
        user = await kubeconfig_of_account(api, plane, tmp_path, "alice", "shop")
        document = yaml.safe_load(user.read_text("utf-8"))
        document["contexts"][0]["context"]["namespace"] = "shop"
        user.write_text(yaml.safe_dump(document), "utf-8")
        await api.create(node("node-a"), node("node-b", taints=[{"key": "gpu", "effect": "NoSchedule"}]))
        web: dict[str, Any] = {"labels": {"app": "web"}, "affinity": anti_affinity(term(HOSTNAME, app="web"))}
        await api.create(pod("web-1", "shop", on="node-a", **web), waiting := pod("web-2", "shop", **web))
        tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}  # no scheduler runs here
        await api.patch(f"{pod_path(waiting)}/status", {"status": {"conditions": [tried]}})
        yield Installed(cluster, kubelet, extender, user, certificates)


async def test_a_user_with_the_role_alone_asks_the_leader_about_pods_of_the_namespace_of_the_context(
    installed: Installed,
) -> None:
    code, table, error = await installed.placement("explain", "web-2", "-o", "wide")
    assert (code, table.splitlines()[:1], error) == (0, ["shop/web-2: pending"], "")
    assert "anti_affinity" in table
    assert installed.kubelet.forwarded == [f"{NAMESPACE}/extender-1"]
    code, document, _ = await installed.placement("explain", "web-2", "-n", "shop", "-o", "json", "--context", "e2e")
    assert (code, orjson.loads(document)["pod"]) == (0, "shop/web-2")
    (line,) = [each for each in README.splitlines() if each.startswith("    kubectl placement whatif")]
    code, table, _ = await installed.kubectl(*line.split()[1:])
    assert (code, f"{line}\n\n```text\n{table}```" in README) == (0, True), table
    code, _, error = await installed.placement("explain", "web-2", "-n", "data")
    assert (code, "pod data/web-2 is not known" in error) == (1, True), error


async def test_the_page_is_shown_through_the_port_forward_until_it_is_interrupted(installed: Installed) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(tool("kubectl"), "placement", "ui", "--no-browser"),
        env={**os.environ, "PATH": path, "KUBECONFIG": str(installed.user)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().strip()
    try:
        async with ClientSession() as http:
            async with http.get(address) as answer:
                assert "<title>placement-extender</title>" in await answer.text()
            async with http.get(f"{address.removesuffix('ui/')}v1/pending") as answer:
                assert [each["pod"] for each in (await answer.json())["pods"]] == ["web-2"]
    finally:
        process.send_signal(signal.SIGINT)
        _, error = await process.communicate()
    assert (process.returncode, error.decode()) == (0, "Ctrl-C ends it.\n")


async def test_an_administrator_has_the_commands_that_read_the_cluster(installed: Installed) -> None:
    admin = installed.cluster.plane.kubeconfig
    code, out, error = await installed.placement("doctor", account=admin)
    assert (code, "error: permissions: the account may not list pods" in out) == (4, True), (out, error)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subjects = [{"kind": "ServiceAccount", "name": "placement-extender", "namespace": NAMESPACE}]
    folder = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {"metadata": {"name": "of-the-service"}, "roleRef": reference, "subjects": subjects}
    await installed.cluster.api.request("POST", folder, binding)
    try:
        code, out, error = await installed.placement("doctor", account=admin)
    finally:
        await installed.cluster.api.delete(f"{folder}/of-the-service")
    assert code == 3, (out, error)
    assert "no ValidatingAdmissionPolicy limits the extender" in out
    assert re.search(r"0 errors, 1 warning; checked: service https://127\.0\.0\.1:\d+, cluster\n$", out), out
    code, out, error = await installed.placement("groups", "-A", account=admin)
    assert (code, out) == (0, "no groups of gated pods\n"), error
    code, out, error = await installed.placement("quota", "report", "-o", "json", account=admin)
    assert (code, orjson.loads(out)["pods"]) == (0, []), error


async def test_a_user_with_the_role_alone_is_reported_what_the_doctor_could_not_check_and_no_more(
    installed: Installed,
) -> None:
    code, out, error = await installed.placement("doctor", "-o", "json")
    found = {(each["severity"], each["check"]): each["problem"] for each in orjson.loads(out)["findings"]}
    assert (code, set(found)) == (3, {("warning", "called"), ("info", "account")}), error  # no scheduler runs here
    assert "pods is forbidden" in found["warning", "called"]
    assert f"permissions of {SERVICE} were not checked" in found["info", "account"]


async def test_kubectl_itself_completes_the_words_of_the_plugin(installed: Installed) -> None:
    for words, found in (
        (("explain", "-n", "shop", "web"), ["web-1", "web-2"]),
        (("explain", "web-2", "-o", "w"), ["wide"]),
        (("groups", "--context", ""), ["e2e"]),
    ):
        code, out, error = await installed.kubectl(
            "__complete", "placement", *words, account=installed.cluster.plane.kubeconfig
        )
        assert (code, out.splitlines()) == (0, [*found, ":4"]), error


async def test_each_way_to_fail_says_what_to_do(installed: Installed, tmp_path: Path) -> None:
    api = installed.cluster.api
    stranger = await kubeconfig_of_account(api, installed.cluster.plane, tmp_path, "stranger", "shop")
    code, _, error = await installed.placement("explain", "web-2", "-n", "shop", account=stranger)
    assert (code, "this account may not list pods in placement-extender" in error) == (1, True), error
    assert "--role=placement-extender-kubectl --user=system:serviceaccount:shop:stranger" in error
    where = f"{_ROLES}/placement-extender-kubectl"
    role = await api.request("GET", where)
    await api.patch(where, {"rules": [each for each in role["rules"] if each["resources"] != ["pods/portforward"]]})
    code, _, error = await installed.placement("ui", "--no-browser")
    assert (code, "may not create pods/portforward in placement-extender, for a port-forward" in error) == (1, True), (
        error
    )
    assert "kubectl -n placement-extender apply -f deploy/kubectl/role.yaml" in error
    assert "--role=placement-extender-kubectl --user=system:serviceaccount:shop:alice" in error
    await api.patch(where, {"rules": [each for each in role["rules"] if each["resources"] != ["secrets"]]})
    code, _, error = await installed.placement("ui", "--no-browser")
    assert (code, f"may not get Secret {NAMESPACE}/{SECRET}: 403" in error) == (1, True), error
    await api.patch(where, {"rules": role["rules"]})
    await api.delete(f"{_SECRETS}/{SECRET}")
    code, _, error = await installed.placement("explain", "web-2")
    assert (code, f"Secret {NAMESPACE}/{SECRET} cannot be read: 404" in error) == (1, True), error
    files = {"ca": "ca.crt", "cert": "admin.crt", "key": "admin.key"}
    given = [f"--{name}-file={installed.certificates / file}" for name, file in files.items()]
    assert (await installed.placement("explain", "web-2", *given))[0] == 0
    await asyncio.to_thread(installed.extender.program.stop)
    code, _, error = await installed.placement("explain", "web-2", *given)
    assert (code, "pod placement-extender/extender-1 does not answer: " in error) == (1, True), error
    assert "an error occurred forwarding" in error

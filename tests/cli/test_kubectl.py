"""`kubectl placement` without a kubelet: a program that only says it forwards takes the place of kubectl, as tests/e2e has the real one."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from base64 import b64encode
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import orjson
import pytest
import yaml
from aiohttp import web
from pytest_aiohttp import AiohttpServer

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.cli.kubectl import COMMANDS, LEADER_SLICE, SECRET
from extender.server.request_checks import client_names
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import LEASES, SECRETS
from extender.simulator.apiserver.kinds import NAMESPACES as SPACES
from tests.cli.kubectl_plugin import Plugin, as_program
from tests.pki import serving
from tests.simulator.plain import namespace, node, pod


async def test_a_pod_of_the_context_s_namespace_is_explained_by_the_service(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system")
    code, table, _ = await plugin.run("explain", "web-2")
    assert (code, table.splitlines()[0]) == (0, "shop/web-2: pending")
    assert plugin.forwarded()[0].split()[:1] == ["--namespace=kube-system"]
    assert "pod/extender-1 :8888" in plugin.forwarded()[0]
    code, _, error = await plugin.run("explain", "web-2", "--context", "other")
    assert (code, "kubectl placement: pod kube-system/extender-1: pod lab/web-2 is not known" in error) == (1, True)
    assert "--context=other" in plugin.forwarded()[1]


async def test_a_manifest_and_a_removal_without_a_namespace_are_in_that_of_the_context(
    plugin: Plugin, tmp_path: Path
) -> None:
    plugin.add("extender-1", "kube-system")
    new = pod("new", "shop", labels={"app": "api"})
    del new["metadata"]["namespace"]
    (tmp_path / "new.yaml").write_text(yaml.safe_dump(new), "utf-8")
    more = ["-f", str(tmp_path / "new.yaml"), "--delete", "pod/web-1", "-o", "json"]
    code, document, error = await plugin.run("whatif", *more)
    assert code == 0, error
    placed = {each["pod"]: each["state"] for each in orjson.loads(document)["placements"]}
    assert placed == {"shop/web-2": "placed", "shop/new": "placed"}


async def test_a_service_elsewhere_is_asked_at_its_address_without_a_port_forward(plugin: Plugin) -> None:
    code, _, error = await plugin.run("explain", "web-2", "--url", "http://127.0.0.1:1")
    assert (code, "http://127.0.0.1:1/v1/explain/shop/web-2 cannot be reached" in error) == (1, True)
    assert plugin.forwarded() == []


async def test_the_commands_that_read_the_cluster_take_the_context(plugin: Plugin, tmp_path: Path) -> None:
    assert await plugin.run("groups") == (0, "no groups of gated pods\n", "")
    code, document, _ = await plugin.run("quota", "report", "-o", "yaml")
    assert (code, yaml.safe_load(document)["pods"]) == (0, [])
    code, table, error = await plugin.run("moves", "--plan")
    assert (code, table.splitlines()[-1]) == (0, "no watched constraint is broken"), error
    policy = {"podSelector": {}, "when": ["Admission"], "nodeSelector": {"disk": "ssd"}}
    meta = {"apiVersion": "placement.extender.dev/v1alpha1", "kind": "PodSchedulingPolicy"}
    given = {**meta, "metadata": {"name": "ssd", "namespace": "shop"}, "spec": policy}
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(given), "utf-8")
    code, table, error = await plugin.run("policy", "test", str(tmp_path / "policy.yaml"))
    assert (code, "Pod shop/web-2" in table, "2 objects: 2 changed, 0 refused" in table) == (1, True, True), error
    assert plugin.forwarded() == []


async def test_a_domain_is_excluded_in_the_cluster_of_the_context(plugin: Plugin) -> None:
    code, table, error = await plugin.run("domain", "exclude", "zone-a", "--for", "1h")
    assert (code, table.startswith("topology.kubernetes.io/zone=zone-a is excluded until ")) == (0, True), error
    code, table, _ = await plugin.run("domain", "list", "-o", "wide", "--context", "other")
    assert (code, "zone-a  no        until" in table) == (0, True), table
    assert plugin.forwarded() == []


async def test_a_snapshot_needs_no_cluster(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    (tmp_path / "cluster.json").write_bytes(orjson.dumps({"kind": "List", "items": [node("n1"), pod("a")]}))
    code, table, _ = await plugin.run("explain", "default/a", "--snapshot", str(tmp_path / "cluster.json"))
    assert (code, table.splitlines()[0]) == (0, "default/a: pending")


async def test_a_pod_that_is_not_found_or_does_not_run_is_said(plugin: Plugin) -> None:
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, "no pod of the extender was found in any namespace" in error) == (1, True)
    plugin.add("starting", "placement-shared", phase="Pending")
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, "no pod of the extender runs: placement-shared/starting" in error) == (1, True)
    assert "name your image" not in error


async def test_an_image_that_is_a_placeholder_is_said(plugin: Plugin) -> None:
    waiting = {"image": "placement-extender:0.1.0", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    plugin.add("starting", "placement-shared", phase="Pending", containerStatuses=[waiting])
    code, _, error = await plugin.run("doctor")
    assert code == 1
    assert "placement-shared/starting (ImagePullBackOff, image placement-extender:0.1.0)" in error
    assert "name your image in the overlay, as deploy/docs/image.md says" in error
    plugin.add("extender-1", "kube-system")
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, "several namespaces: kube-system, placement-shared" in error, "--extender-namespace" in error) == (
        1,
        True,
        True,
    )
    assert (await plugin.run("explain", "web-2", "--extender-namespace", "kube-system"))[0] == 0
    assert len(plugin.forwarded()) == 1


async def test_pods_with_the_labels_are_asked_elsewhere_only_where_the_cluster_or_the_user_says_so(
    plugin: Plugin,
) -> None:
    """A tenant can write the labels, and the Secret of the certificate that a pod would be shown."""
    plugin.add("of-a-tenant", "shop", scheme="HTTPS")
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, plugin.forwarded()) == (1, [])
    assert "pods in shop have the labels of the extender, which any tenant can write" in error
    assert "choose the namespace of the extender with --extender-namespace" in error
    plugin.api.operations.create(SPACES, namespace("own"))
    plugin.add("extender-1", "own")
    plugin.api.granted = "own"
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, error) == (0, "asks pods in own, the namespace of ClusterRoleBinding placement-extender-reader…\n")
    plugin.api.granted = ""
    assert (await plugin.run("explain", "web-2", "--extender-namespace", "own"))[0] == 0
    plugin.add("unready", "placement-extender", ready="False")
    plugin.add("usual", "placement-extender")
    plugin.api.granted = "own"
    assert (await plugin.run("explain", "web-2"))[0] == 0
    requested = [line.split("pod/")[1].strip() for line in plugin.forwarded()]
    assert requested == ["extender-1 :8888", "extender-1 :8888", "usual :8888"]


async def test_a_probe_of_a_port_without_a_number_is_that_of_the_manifests(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system", port="metrics")
    assert (await plugin.run("explain", "web-2"))[0] == 0
    assert "pod/extender-1 :8888" in plugin.forwarded()[0]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"[" * 200_000, "unexpected answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 200006\r\n\r\n" + b'{"x":' + b"[" * 200_001, "unexpected answer"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"pod":"\xff"}', "unexpected answer"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "cannot be reached"),
    ],
    ids=["deep", "deep in a field", "no UTF-8", "no HTTP"],
)
async def test_an_answer_that_is_none_of_the_service_is_said(plugin: Plugin, answer: bytes, problem: str) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for command in (("explain", "web-2"), ("whatif", "--delete", "pod/web-1")):
            code, _, error = await plugin.run(*command, "--url", url)
            assert (code, problem in error) == (1, True), error


async def test_of_several_ready_pods_the_leader_is_asked(plugin: Plugin) -> None:
    for name in ("extender-1", "extender-2"):
        plugin.add(name, "placement-extender")
    plugin.api.leader = "extender-2"
    assert (await plugin.run("explain", "web-2"))[0] == 0
    assert "pod/extender-2 " in plugin.forwarded()[0]


@pytest.mark.parametrize(
    ("lease", "holder", "asked"),
    [
        ("placement-scheduler", "second-2_11111111-aaaa", "second-2"),
        ("any-name", "second-2_11111111-aaaa", "second-2"),
        ("kube-scheduler", "node-b_11111111-aaaa", "second-2"),
        ("kube-controller-manager", "node-b_11111111-aaaa", "second-1"),
        ("placement-scheduler", "", "second-1"),
    ],
    ids=["pod", "other name", "node", "other component", "no holder"],
)
async def test_of_several_schedulers_with_an_extender_each_the_holder_of_the_lease_is_asked(
    plugin: Plugin, lease: str, holder: str, asked: str
) -> None:
    plugin.add("second-1", "kube-system")
    plugin.add("second-2", "kube-system", node="node-b")
    metadata = {"name": lease, "namespace": "kube-system"}
    plugin.api.operations.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": holder}})
    assert (await plugin.run("explain", "web-2"))[0] == 0
    assert f"pod/{asked} " in plugin.forwarded()[0]


async def test_a_port_forward_that_fails_says_what_kubectl_said(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system")
    kubectl = Path(os.environ["PATH"].partition(os.pathsep)[0], "kubectl")
    as_program(kubectl, "echo 'error: pods is forbidden' >&2", "exit 1")
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, error.splitlines()[:2]) == (
        1,
        [
            "kubectl placement: pod kube-system/extender-1 cannot be reached by a port-forward",
            "kubectl placement: pods is forbidden",
        ],
    )
    log = """E1126 1 portforward.go:424] "Unhandled Error" err="an error occurred: refused" """
    as_program(kubectl, f"echo '{log.strip()}' >&2", "echo 'Forwarding from 127.0.0.1:1 -> 8888'", "exec sleep 600")
    code, _, error = await plugin.run("explain", "web-2")
    assert "pod kube-system/extender-1 does not answer: an error occurred: refused\n" in error
    os.environ["PATH"] = "/nowhere"
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, "kubectl is not in PATH" in error) == (1, True)


class Denying(Faults):
    """Answers 403 to requests for a path that ends like this."""

    def __init__(self, ending: str, resource: str) -> None:
        self._ending, self._resource = ending, resource

    async def before_answer(self, call: Call) -> None:
        if call.path.endswith(self._ending):
            message = f'{self._resource} is forbidden: User "a b" cannot get resource "{self._resource}" in API group "" in the namespace'
            raise ApiError(HTTPStatus.FORBIDDEN, "Forbidden", message)


def granting(namespace: str, user: str) -> list[str]:
    """What an administrator is to run."""
    where = f"kubectl -n {namespace}"
    return [
        f"kubectl placement: an administrator grants it, with what else this command needs: {where} apply -f deploy/kubectl/role.yaml",
        f"kubectl placement: and: {where} create rolebinding NAME --role=placement-extender-kubectl --user={user}",
    ]


@pytest.mark.parametrize("command", [("ui", "--no-browser"), ("explain", "web-2")], ids=["ui", "explain"])
async def test_a_user_who_may_not_forward_is_told_the_permission_and_how_to_grant_it(
    plugin: Plugin, command: tuple[str, ...]
) -> None:
    plugin.add("extender-1", "kube-system")
    kubectl = Path(os.environ["PATH"].partition(os.pathsep)[0], "kubectl")
    for verb, resource in (("create", "pods/portforward"), ("get", "pods")):
        answer = f'pods "extender-1" is forbidden: User "alice" cannot {verb} resource "{resource}" in API group ""'
        as_program(kubectl, f"echo 'error: error upgrading connection: {answer}' >&2", "exit 1")
        code, out, error = await plugin.run(*command)
        first = f"kubectl placement: this account may not {verb} {resource} in kube-system, for a port-forward to pod extender-1"
        assert (code, out, error.splitlines()) == (1, "", [first, *granting("kube-system", "alice")])


async def test_a_user_who_may_not_list_pods_or_read_the_secret_is_told_how_to_grant_it(plugin: Plugin) -> None:
    plugin.add("extender-1", "kube-system", scheme="HTTPS")
    plugin.api.faults = Denying(f"/secrets/{SECRET}", "secrets")
    code, _, error = await plugin.run("ui", "--no-browser")
    lines = error.splitlines()
    assert code == 1
    assert f"this account may not get Secret kube-system/{SECRET}: 403 " in lines[0]
    assert lines[1:] == [
        *granting("kube-system", "'a b'"),
        "kubectl placement: give --ca-file, --cert-file and --key-file",
    ]
    plugin.api.faults = Denying("/pods", "pods")
    code, _, error = await plugin.run("ui", "--no-browser", "--extender-namespace", "own")
    lines = error.splitlines()
    assert code == 1
    assert lines[0].endswith("no pod of the extender was found, and this account may not list pods in own")
    assert lines[1:] == granting("own", "'a b'")
    code, _, error = await plugin.run("ui", "--no-browser")
    assert error.splitlines()[1:] == granting("NAMESPACE-OF-THE-EXTENDER", "'a b'")


async def test_a_user_who_may_not_read_which_replica_leads_is_told_so_and_one_is_asked(plugin: Plugin) -> None:
    for name in ("extender-1", "extender-2"):
        plugin.add(name, "placement-extender")
    plugin.api.faults = Denying(f"/endpointslices/{LEADER_SLICE}", "endpointslices")
    code, _, error = await plugin.run("explain", "web-2")
    assert code == 0
    assert (
        f"this account may not get EndpointSlice {LEADER_SLICE} in placement-extender, which names the leader" in error
    )


async def test_a_service_that_is_not_ready_says_what_it_lacks(plugin: Plugin, aiohttp_server: AiohttpServer) -> None:
    async def not_ready(_: web.Request) -> web.Response:
        return web.json_response({"error": "not ready: pods: listing (12 objects)"}, status=503)

    app = web.Application()
    app.router.add_get("/v1/explain/shop/web-2", not_ready)
    server = await aiohttp_server(app)
    plugin.add("extender-1", "kube-system", ready="False")
    kubectl = Path(os.environ["PATH"].partition(os.pathsep)[0], "kubectl")
    earlier = "echo 'error: a connection that was closed before' >&2"  # not why it did not explain
    as_program(kubectl, earlier, f"echo 'Forwarding from 127.0.0.1:{server.port} -> 8888'", "exec sleep 600")
    code, _, error = await plugin.run("explain", "web-2")
    assert (code, "pod kube-system/extender-1: not ready: pods: listing (12 objects)" in error) == (1, True), error


async def test_the_certificates_of_the_secret_are_shown_and_that_of_the_service_need_not_name_the_port_forward(
    plugin: Plugin, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority = Authority.make("placement-extender", now, days=1)
    server = authority.issue("service", now, 1, SERVER, ("placement-extender.placement-extender.svc",))
    admin = authority.issue("placement-extender-admin", now, 1, CLIENT)
    files = {"ca.crt": authority.pair.certificate_pem, "tls.crt": admin.certificate_pem, "tls.key": admin.key_pem}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    trust = serving(tmp_path, server)
    trust.load_verify_locations(tmp_path / "ca.crt")
    trust.verify_mode = ssl.CERT_REQUIRED
    shown: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        shown.extend(client_names(request))
        return web.json_response({"error": "busy"}, status=429)

    app = web.Application()
    app.router.add_get("/v1/explain/shop/web-2", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    try:
        forwarding = f"echo 'Forwarding from 127.0.0.1:{runner.addresses[0][1]} -> 8888'"
        kubectl = Path(os.environ["PATH"].partition(os.pathsep)[0], "kubectl")
        as_program(kubectl, forwarding, "exec sleep 600")
        plugin.add("extender-1", "kube-system", scheme="HTTPS")
        code, _, error = await plugin.run("explain", "web-2")
        assert (code, f"Secret kube-system/{SECRET} cannot be read: 404" in error, "--ca-file" in error) == (
            1,
            True,
            True,
        )
        data = {name: b64encode(content).decode() for name, content in files.items()}
        metadata = {"name": SECRET, "namespace": "kube-system"}
        secret = {"kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": {"ca.crt": data["ca.crt"]}}
        key = plugin.api.operations.create(SECRETS, secret).key
        code, _, error = await plugin.run("explain", "web-2")
        assert (code, f"Secret kube-system/{SECRET}: data: tls.crt is missing" in error) == (1, True)
        plugin.api.operations.change(SECRETS, key, lambda one: one.update(data=data))
        code, _, error = await plugin.run("explain", "web-2")
        assert (code, "pod kube-system/extender-1: busy" in error, shown) == (1, True, ["placement-extender-admin"]), (
            error
        )
    finally:
        await runner.cleanup()


async def test_without_a_context_the_plugin_says_how_to_set_one(
    plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, error = await plugin.run("groups", "--context", "none")
    assert (code, "no context is named none" in error) == (1, True)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    code, _, error = await plugin.run("groups")
    assert (code, "/nowhere: it does not exist, or sets no current context" in error, "use-context" in error) == (
        1,
        True,
        True,
    )


async def test_words_are_completed_from_the_commands_and_from_the_cluster(plugin: Plugin) -> None:
    assert await plugin.completed("") == [*sorted(COMMANDS), "version", "completion", ":4"]
    assert await plugin.completed("quota", "") == ["report", "generate", ":4"]
    assert await plugin.completed("explain", "--no") == ["--node", ":4"]
    assert await plugin.completed("explain", "-o", "") == ["table", "wide", "json", "yaml", ":4"]
    assert await plugin.completed("explain", "web") == ["web-1", "web-2", ":4"]
    assert await plugin.completed("explain", "shop/web") == ["shop/web-1", "shop/web-2", ":4"]
    assert await plugin.completed("explain", "lab/web") == [":4"]
    assert await plugin.completed("explain", "-n", "lab", "web") == [":4"]
    assert await plugin.completed("explain", "x", "--node", "") == ["node-a", ":4"]
    assert await plugin.completed("groups", "-n", "s") == ["shop", ":4"]
    assert await plugin.completed("groups", "--context", "o") == ["other", ":4"]
    assert await plugin.completed("explain", "-f", "") == [":0"]
    assert await plugin.completed("policy", "test", "") == [":0"]
    assert await plugin.completed("policy", "test", "x", "--pod", "") == [":0"]
    assert await plugin.completed("explain", "--context", "none", "x") == [":4"]

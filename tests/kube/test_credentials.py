"""The API server's address and our credentials: service accounts, kubeconfigs, and tokens that are replaced on disk."""

from __future__ import annotations

import asyncio
import logging
import ssl
import subprocess
import sys
from base64 import b64encode
from pathlib import Path

import pytest
import yaml

from extender.certificates.authority import CLIENT
from extender.kube.credentials import Access, Credentials, contexts_of, load_credentials
from extender.kube.errors import BadAccess
from extender.kube.session import open_session
from tests.fakes import FakeClock
from tests.kube.scripted import ScriptedApi, body
from tests.pki import NOW, Pki


def write_kubeconfig(path: Path, server: str, user: dict[str, object], **cluster: object) -> Access:
    document = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "here", "user": "me"}},
            {"name": "two", "context": {"cluster": "there", "user": "me"}},
        ],
        "clusters": [
            {"name": "here", "cluster": {"server": server, **cluster}},
            {"name": "there", "cluster": {"server": "http://there:1"}},
        ],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return Access(kubeconfig=str(path))


def test_of_several_kubeconfigs_the_first_that_sets_something_determines_it(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "b", "http://here:1", {})
    first = {"contexts": [{"name": "one", "context": {"cluster": "here", "namespace": "shop"}}]}
    (tmp_path / "a").write_text(yaml.safe_dump(first))
    paths = [str(tmp_path / name) for name in ("a", "missing", "b")]
    assert contexts_of(Access(kubeconfig=":".join(paths))) == ("one", {"one": "shop", "two": "default"})
    assert contexts_of(Access(kubeconfig=paths[2], context="two"))[0] == "two"
    for access, problem in (
        (Access(kubeconfig=paths[0]), "sets no current context"),
        (Access(kubeconfig=paths[1]), "does not exist"),
        (Access(kubeconfig=paths[2], context="three"), "no context is named three"),
    ):
        with pytest.raises(BadAccess, match=problem):
            contexts_of(access)
    (tmp_path / "a").write_text("contexts: [{}]")
    with pytest.raises(BadAccess, match="'name'"):
        contexts_of(Access(kubeconfig=paths[0]))


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A service account's folder as the kubelet mounts it."""
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_bytes(Pki(tmp_path).authority.pair.certificate_pem)
    return tmp_path


async def of_account(folder: Path, clock: FakeClock) -> Credentials:
    return await load_credentials(Access(host="https://10.0.0.1:443", account_folder=str(folder)), clock)


async def test_a_service_account_s_token_is_read_again_after_a_minute(account: Path) -> None:
    clock = FakeClock()
    found = await of_account(account, clock)
    assert found.host == "https://10.0.0.1:443"
    (account / "token").write_text("second")
    assert await found.authorization() == "Bearer first", "not at every request"
    clock.time += 61
    assert await found.authorization() == "Bearer second"


@pytest.mark.parametrize("bad", [None, "", "x\r\nImpersonate-User: admin"], ids=["away", "empty", "a line break"])
async def test_a_token_that_cannot_be_used_for_a_moment_costs_a_warning(
    account: Path, caplog: pytest.LogCaptureFixture, bad: str | None
) -> None:
    clock = FakeClock()
    found = await of_account(account, clock)
    (account / "token").unlink()
    if bad is not None:
        (account / "token").write_text(bad)
    clock.time += 61
    with caplog.at_level(logging.WARNING):
        assert await found.authorization() == "Bearer first"
    assert "credentials not refreshed" in caplog.text
    (account / "token").write_text("third")
    clock.time += 61
    assert await found.authorization() == "Bearer third"


@pytest.mark.parametrize(("name", "content"), [("token", ""), ("token", "a\nb"), ("ca.crt", "no certificate")])
async def test_a_service_account_that_cannot_be_used_is_rejected_at_the_start(
    account: Path, name: str, content: str
) -> None:
    (account / name).write_text(content)
    with pytest.raises(BadAccess, match="the service account: "):
        await of_account(account, FakeClock())


async def test_a_kubeconfig_s_token_is_sent(tmp_path: Path, api: ScriptedApi) -> None:
    api.script("/api/v1/x", body(b"{}"))
    access = write_kubeconfig(tmp_path / "config", api.url, {"token": "secret"})
    async with open_session(access, FakeClock()) as session:
        await session.reads.call("GET", "/api/v1/x")
    assert api.requests[0].headers["Authorization"] == "Bearer secret"


async def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    access = write_kubeconfig(tmp_path / "config", "http://here:1", {})
    chosen = Access(kubeconfig=access.kubeconfig, context="two")
    assert (await load_credentials(access, FakeClock())).host == "http://here:1"
    assert (await load_credentials(chosen, FakeClock())).host == "http://there:1"


async def test_a_kubeconfig_s_token_file_is_read_again(tmp_path: Path) -> None:
    clock, token = FakeClock(), tmp_path / "token"
    token.write_text("first\n")
    found = await load_credentials(
        write_kubeconfig(tmp_path / "config", "http://here:1", {"tokenFile": "token"}), clock
    )
    token.write_text("second\n")
    assert await found.authorization() == "Bearer first"
    clock.time += 61
    assert await found.authorization() == "Bearer second"


def write_plugin(folder: Path, expiry: str) -> Path:
    """A credential plugin whose token is the number of times it was called."""
    plugin, calls = folder / "plugin", folder / "calls"
    plugin.write_text(
        f"#!/bin/sh\necho x >> {calls}\n"
        'echo \'{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":'
        f' {{"token": "\'$(wc -l < {calls} | tr -d " ")\'", "expirationTimestamp": "{expiry}"}}}}\'\n'
    )
    plugin.chmod(0o755)
    return plugin


async def test_a_plugin_s_token_is_renewed_before_it_runs_out_and_not_earlier(tmp_path: Path) -> None:
    clock, plugin = FakeClock(), write_plugin(tmp_path, "2000-01-01T00:00:00Z")
    user: dict[str, object] = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    found = await load_credentials(write_kubeconfig(tmp_path / "config", "http://here:1", user), clock)
    write_plugin(tmp_path, "2999-01-01T00:00:00Z")
    clock.time += 61
    assert await found.authorization() == "Bearer 2"
    clock.time += 61
    assert await found.authorization() == "Bearer 2"


@pytest.mark.parametrize("command", ["no-such-plugin", "bin/no-such-plugin"])
async def test_a_plugin_that_is_not_there_is_named(tmp_path: Path, command: str) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "installHint": "install the other"}
    access = write_kubeconfig(tmp_path / "config", "http://here:1", {"exec": plugin})
    with pytest.raises(BadAccess, match=f"the credential plugin {command} is not installed, .*: install the other"):
        await load_credentials(access, FakeClock())


@pytest.mark.parametrize(
    "content",
    ["", "{", "current-context: gone\ncontexts: []\nclusters: []\nusers: []\n", "- a list\n", "current-context: [a]\n"],
    ids=["empty", "no YAML", "context missing", "no mapping", "context no text"],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(BadAccess, match=str(path)):
        await load_credentials(Access(kubeconfig=str(path)), FakeClock())
    with pytest.raises(BadAccess, match=str(path)):
        contexts_of(Access(kubeconfig=str(path)))


@pytest.mark.parametrize("field", ["token", "installHint", "server", "current-context"])
@pytest.mark.parametrize("files", [1, 2])
async def test_aliases_of_a_kubeconfig_do_not_fill_the_memory(tmp_path: Path, field: str, files: int) -> None:
    """The text has a few hundred bytes and stands for 10,000,000,000 values."""
    path, other = tmp_path / "config", tmp_path / "other"
    other.write_text("{}\n")
    access = write_kubeconfig(path, "https://here:1", {"exec": {"command": "gone"}, "token": "secret"})
    levels = ["level0: &level0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"level{n}: &level{n} [{', '.join([f'*level{n - 1}'] * 10)}]" for n in range(1, 10)]
    document = path.read_text()
    value = {"installHint": "command: gone"}.get(field, f"{field}:")
    (line,) = [line for line in document.splitlines() if value in line and "there" not in line]
    path.write_text("\n".join([*levels, document.replace(line, f"{line.partition(field)[0]}{field}: *level9")]))
    names = ":".join([str(path), str(other)][:files])
    with pytest.raises(BadAccess, match="more than 100,000 values, counting the values of each alias"):
        await load_credentials(Access(kubeconfig=names, context=access.context), FakeClock())
    with pytest.raises(BadAccess, match="more than 100,000 values"):
        contexts_of(Access(kubeconfig=names))


@pytest.mark.parametrize(
    "user",
    [
        {},
        {"token": "secret\n"},
        {"tokenFile": "token"},
        {"token": "one", "tokenFile": "token"},
        {"username": "me", "password": "p"},
    ],
    ids=str,
)
async def test_what_is_read_here_is_what_the_client_library_reads(tmp_path: Path, user: dict[str, object]) -> None:
    (tmp_path / "token").write_text("from a file\n")
    cluster = {"tls-server-name": "api.ours", "proxy-url": "http://proxy:1", "insecure-skip-tls-verify": True}
    access = write_kubeconfig(tmp_path / "config", "https://here:1/", user, **cluster)
    ours = await load_credentials(access, FakeClock())
    theirs = await load_credentials(Access(kubeconfig=f"{access.kubeconfig}:/nowhere"), FakeClock())
    for found in (ours, theirs):
        assert (found.host, found.server_name, found.proxy) == ("https://here:1", "api.ours", "http://proxy:1")
        assert found.tls is not None
        assert found.tls.verify_mode is ssl.CERT_NONE
    assert await ours.authorization() == await theirs.authorization()


@pytest.mark.parametrize("reader", ["beside the file", "within it", "by the library"])
async def test_a_kubeconfig_s_certificates_are_shown_and_checked(tmp_path: Path, reader: str) -> None:
    pki, seen = Pki(tmp_path), list[object]()
    me = pki.authority.issue("me", NOW, 5, CLIENT)
    files = {
        "certificate-authority": pki.authority.pair.certificate_pem,
        "client-certificate": me.certificate_pem,
        "client-key": me.key_pem,
    }
    named: dict[str, object] = {}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        named |= {f"{name}-data": b64encode(content).decode()} if reader == "within it" else {name: name}
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "certificate-authority"))
    context.load_cert_chain(pki.tls.cert_file, pki.tls.key_file)
    context.verify_mode = ssl.CERT_REQUIRED

    async def answer(given: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await given.readuntil(b"\r\n\r\n")
        seen.append(writer.get_extra_info("peercert")["subject"])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        authority = {name: value for name, value in named.items() if name.startswith("certificate-authority")}
        access = write_kubeconfig(tmp_path / "config", url, named, **authority)
        if reader == "by the library":
            access = Access(kubeconfig=f"{access.kubeconfig}:/nowhere")
        async with open_session(access, FakeClock()) as session:
            assert await session.reads.call("GET", "/a") == b"{}"
    assert seen == [((("commonName", "me"),),)]


async def test_certificates_that_cannot_be_read_are_reported_at_the_start(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("this is no certificate")
    user: dict[str, object] = {"client-certificate": "cert", "client-key": "key"}
    access = write_kubeconfig(tmp_path / "config", "https://127.0.0.1:1", user)
    with pytest.raises(BadAccess, match="kubeconfig"):
        await load_credentials(access, FakeClock())


def test_serve_does_not_import_the_client_library() -> None:
    """56 MB and 0.2 s of processor time, which a service account and most kubeconfigs do not need."""
    script = "import sys, extender.cli.serve; print('kubernetes_asyncio' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"

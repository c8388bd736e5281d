"""The apiserver's address and our credentials: service accounts, kubeconfigs, and tokens that are replaced on disk."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml
from aiohttp.test_utils import unused_port

from extender.kube.client_library import Configuration
from extender.kube.connection import Access
from extender.kube.credentials import load_configuration
from extender.kube.errors import BadAccess
from extender.kube.session import open_session
from tests.fakes import FakeClock
from tests.kube.scripted import ScriptedApi, body


async def token_of(configuration: Configuration) -> str:
    """The header that the next request would carry."""
    settings = await configuration.auth_settings()
    return str(settings["BearerToken"]["value"]) if settings else ""


def write_kubeconfig(path: Path, server: str, user: dict[str, object]) -> Access:
    document = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "here", "user": "me"}},
            {"name": "two", "context": {"cluster": "there", "user": "me"}},
        ],
        "clusters": [
            {"name": "here", "cluster": {"server": server}},
            {"name": "there", "cluster": {"server": "http://there:1"}},
        ],
        "users": [{"name": "me", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return Access(kubeconfig=str(path))


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account's folder as the kubelet mounts it."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("not looked at here")
    return tmp_path


async def test_a_service_account_s_token_is_read_again_after_a_minute(account: Path) -> None:
    clock = FakeClock()
    configuration = await load_configuration(Access(in_cluster=True, account_folder=str(account)), clock)
    assert configuration.host == "https://10.0.0.1:443"
    (account / "token").write_text("second")
    assert await token_of(configuration) == "Bearer first", "not at every request"
    clock.time += 61
    assert await token_of(configuration) == "Bearer second"


async def test_a_token_file_that_is_away_for_a_moment_costs_a_warning(
    account: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    configuration = await load_configuration(Access(in_cluster=True, account_folder=str(account)), clock)
    (account / "token").unlink()
    clock.time += 61
    with caplog.at_level(logging.WARNING):
        assert await token_of(configuration) == "Bearer first"
    assert "credentials not refreshed" in caplog.text
    (account / "token").write_text("third")
    clock.time += 61
    assert await token_of(configuration) == "Bearer third"


async def test_outside_a_pod_the_service_account_is_rejected_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(BadAccess, match="Service host/port is not set"):
        await load_configuration(Access(in_cluster=True, account_folder=str(tmp_path)), FakeClock())


async def test_a_kubeconfig_s_token_is_sent(tmp_path: Path, api: ScriptedApi) -> None:
    api.script("/api/v1/x", body(b"{}"))
    access = write_kubeconfig(tmp_path / "config", api.url, {"token": "secret"})
    async with open_session(access, FakeClock()) as session:
        await session.reads.call("GET", "/api/v1/x")
    assert api.requests[0].headers["Authorization"] == "Bearer secret"


async def test_a_context_can_be_chosen(tmp_path: Path) -> None:
    access = write_kubeconfig(tmp_path / "config", "http://here:1", {})
    chosen = Access(kubeconfig=access.kubeconfig, context="two")
    assert (await load_configuration(access, FakeClock())).host == "http://here:1"
    assert (await load_configuration(chosen, FakeClock())).host == "http://there:1"


async def test_a_kubeconfig_s_token_file_is_read_again(tmp_path: Path) -> None:
    """The client itself would send the first token for ever."""
    clock, token = FakeClock(), tmp_path / "token"
    token.write_text("first\n")
    access = write_kubeconfig(tmp_path / "config", "http://here:1", {"tokenFile": str(token)})
    configuration = await load_configuration(access, clock)
    token.write_text("second\n")
    assert await token_of(configuration) == "Bearer first"
    clock.time += 61
    assert await token_of(configuration) == "Bearer second"


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
    configuration = await load_configuration(write_kubeconfig(tmp_path / "config", "http://here:1", user), clock)
    write_plugin(tmp_path, "2999-01-01T00:00:00Z")
    clock.time += 61
    assert await token_of(configuration) == "Bearer 2"
    clock.time += 61
    assert await token_of(configuration) == "Bearer 2"


@pytest.mark.parametrize(
    "content",
    ["", "{", "current-context: gone\ncontexts: []\nclusters: []\nusers: []\n", "- a list\n"],
    ids=["empty", "no YAML", "context missing", "no mapping"],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(BadAccess, match=str(path)):
        await load_configuration(Access(kubeconfig=str(path)), FakeClock())


async def test_certificates_that_cannot_be_read_are_reported_at_the_start(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("this is no certificate")
    user: dict[str, object] = {"client-certificate": "cert", "client-key": "key"}
    access = write_kubeconfig(tmp_path / "config", f"https://127.0.0.1:{unused_port()}", user)
    with pytest.raises(BadAccess, match="credentials"):
        async with open_session(access, FakeClock()):
            pass

"""What `extender doctor` and the runbook tell a user to run can be run as printed; tests/e2e runs it with a real API server."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cli import kubectl
from extender.cli.main import main
from extender.simulator.apiserver.kinds import TOPOLOGY_DOMAINS
from tests.cli.doctor_set_up import set_up
from tests.deploy.building import CLUSTER_SCOPED, OVERLAYS, ROOT, Json, load_all, overlay, overlay_with
from tests.deploy.commands import VARIABLES, in_sources, of_doctor, of_runbook

COMMANDS = list(dict.fromkeys([*of_doctor(), *of_runbook()]))
OURS = [command for command in COMMANDS if command.startswith(("extender", "kubectl placement"))]
_CLUSTER_SCOPED = {*CLUSTER_SCOPED, "Namespace", "CustomResourceDefinition"}
_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def test_commands_are_found_in_both() -> None:
    assert len(of_runbook()) >= 20
    assert set(of_doctor()) >= {
        "kubectl apply -k deploy/overlays/${OVERLAY:?}",
        "kubectl apply -f deploy/policies/crds.yaml",
    }
    assert in_sources() - {"extender doctor"} == set(of_doctor())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_no_place_to_fill_in_but_variables_that_stop_it_where_they_are_not_set(command: str) -> None:
    used = set(re.findall(r"\$\{(\w+):\?\}", command))
    left = re.sub(r"\$\{\w+:\?\}", "", command)
    assert used <= VARIABLES.keys()
    assert not re.search(r"[<$]|\.\.\.|\b[A-Z]{3,}\b", left)


@pytest.mark.parametrize("command", [command for command in COMMANDS if " apply " in command])
def test_what_is_applied_is_complete(command: str) -> None:
    """A namespaced object without its namespace goes to that of the user's context, and a webhook without an address is refused."""
    for documents in _applied(command):
        assert documents
        for document in documents:
            assert document["kind"] in (*_CLUSTER_SCOPED, *_CONFIGURATIONS) or document["metadata"].get("namespace")
            for webhook in document.get("webhooks", ()):
                assert len({"service", "url"} & webhook["clientConfig"].keys()) == 1
                assert webhook["clientConfig"].get("service", {"namespace": "-"}).get("namespace")


def _applied(command: str) -> Iterator[list[Json]]:
    path = shlex.split(command)[-1]
    if not path.endswith("${OVERLAY:?}"):
        yield load_all(ROOT / path)
        return
    for name in OVERLAYS:
        yield overlay(name)
        yield overlay_with("policies-cert-manager" if name == "service-cert-manager" else "policies", name)


@pytest.mark.parametrize("command", OURS)
async def test_a_command_of_ours_runs_as_printed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}
    pod |= {"metadata": {"name": VARIABLES["POD"], "namespace": VARIABLES["TENANT"], "uid": "u"}}
    async with set_up(tmp_path, pods=[pod]) as setup:
        monkeypatch.setenv("KUBECONFIG", setup.kubeconfig)
        monkeypatch.chdir(tmp_path)
        for name, value in (VARIABLES | {"SCHEDULER_CONFIG": setup.scheduler()}).items():
            monkeypatch.setenv(name, value)
        assert await asyncio.to_thread(main, ["certs", "--out", "certs"]) == 0
        assert await asyncio.to_thread(main, ["domain", "exclude", VARIABLES["DOMAIN"]]) == 0
        words = [re.sub(r"\$\{(\w+):\?\}", lambda found: _value(found[1]), word) for word in shlex.split(command)]
        of_plugin = words[0] == "kubectl"
        given = words[2:] if of_plugin else words[1:]
        # The plugin asks a pod by a port-forward; here the service is a process.
        given += ["--url", setup.url] if given[0] in {"doctor", "explain"} else []
        assert await asyncio.to_thread(kubectl.main if of_plugin else main, given) == 0, capsys.readouterr()
        if given[:2] == ["domain", "include"]:
            zones = setup.api.store.find(TOPOLOGY_DOMAINS, "topology.kubernetes.io-zone")
            assert zones.read()["spec"]["excluded"] == []


def _value(name: str) -> str:
    return os.environ[name]

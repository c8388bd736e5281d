"""A cluster for `kubectl placement`, without a kubelet."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from msgspec.structs import replace

from extender.cli.kubectl import NAMESPACES
from extender.compose.embedded import service_running
from extender.model.units import Address
from extender.settings.configuration import default_settings
from extender.simulator.json_objects import JsonObject
from tests.cli.kubectl_plugin import Leading, Plugin, as_program
from tests.simulator.plain import HOSTNAME, anti_affinity, namespace, node, pod, term

APART = anti_affinity(term(HOSTNAME, app="web"))


@pytest.fixture
async def plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Plugin]:
    """The context has the namespace shop, where web-2 waits."""
    calls, programs = tmp_path / "calls", tmp_path / "programs"
    programs.mkdir()
    async with Leading() as api:
        objects: list[JsonObject] = [*map(namespace, ("shop", *NAMESPACES)), node("node-a")]
        web: dict[str, Any] = {"labels": {"app": "web"}, "affinity": APART}
        objects += [pod("web-1", "shop", on="node-a", **web), pod("web-2", "shop", **web)]
        api.store.load(objects)
        document = api.kubeconfig()
        document["contexts"][0]["context"]["namespace"] = "shop"
        document["contexts"].append(
            {"name": "other", "context": {**document["contexts"][0]["context"], "namespace": "lab"}}
        )
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document), "utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
        settings = default_settings("offload")
        settings = replace(settings, server=replace(settings.server, bind_address=Address("127.0.0.1:0")))
        async with service_running(settings, api.url, 1) as (url, _):
            answer = f"Forwarding from 127.0.0.1:{urlsplit(url).port} -> 8888"
            as_program(programs / "kubectl", f'echo "$2 $6 $7 $8 $9" >> {calls}', f'echo "{answer}"', "exec sleep 600")
            yield Plugin(api, calls, capsys)

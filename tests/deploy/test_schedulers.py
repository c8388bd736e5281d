"""The overlay with several schedulers: their files are the generated ones, and fit their pods and permissions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from extender.cli.main import main
from tests.deploy.building import DEPLOY, ROOT, of_kind, overlay, templates
from tests.deploy.reading import trust


def test_several_schedulers_have_the_generated_configurations_and_ask_one_extender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DEPLOY / "overlays/schedulers"
    documents, more = overlay("schedulers"), trust("/etc/placement-extender-client", "tls")
    (service,) = of_kind(documents, "Service")
    host = f"--host={service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    shared = [f"--config={folder / 'extender.yaml'}", "--layout=service", host, "--schedulers=3", f"--out={tmp_path}"]
    assert main(["config", "generate", *shared, *more]) == 0
    written = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in sorted(written)]
    assert written == {name: (folder / name).read_text("utf-8") for name in written}
    (stateful,) = of_kind(documents, "StatefulSet")
    names = [f"{stateful['metadata']['name']}-{number}" for number in range(stateful["spec"]["replicas"])]
    assert sorted(written) == sorted(["policy.yaml", *(f"{name}.yaml" for name in names)]), (
        "pods read the file of their name"
    )
    (leases,) = [one for one in of_kind(documents, "Role") if one["metadata"]["namespace"] == "kube-system"]
    assert [rule["resourceNames"] for rule in leases["rules"] if "resourceNames" in rule] == [names]
    assert {template["spec"]["schedulerName"] for template in templates(documents)} == {"default-scheduler"}


def test_the_command_of_the_readme_writes_the_files_of_the_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text("utf-8").replace("\\\n", "")
    (command,) = re.findall(r"^    \.venv/bin/extender (config generate .*)", text, re.MULTILINE)
    monkeypatch.chdir(ROOT)
    assert main([str(tmp_path) if word == "schedulers" else word for word in shlex.split(command)]) == 0
    for path in tmp_path.iterdir():
        assert path.read_text("utf-8") == (DEPLOY / "overlays" / "schedulers" / path.name).read_text("utf-8")
    assert len(list(tmp_path.iterdir())) == 4

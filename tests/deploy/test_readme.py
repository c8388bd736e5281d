"""The pages of deploy/: the sidecar's commands do what they say, on copies and without a cluster; what they name is there."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.release.image import version
from deploy.release.manifests import write_manifests
from extender.settings.configuration import Settings, parse_settings
from tests.deploy.building import DEPLOY, DEPLOYED, ROOT, built, images_of, load, load_all, of_kind
from tests.deploy.reading import PAGES, blocks, indented, section
from tests.programs import tool

PATCH = "overlays/sidecar/patches/kube-scheduler0+strategic.yaml"


def stand_in(folder: Path, *names: str) -> Path:
    """Commands that need a cluster or root: they succeed, and print a line as if it was a key."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho secret\n", "utf-8")
        (folder / name).chmod(0o755)
    return folder


def follow(commands: str, folder: Path, programs: Path) -> None:
    """Run a block in a copy of the repository's folder."""
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [tool("bash"), "-euo", "pipefail", "-c", f"umask 022\n{commands}"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def test_the_manifests_of_a_release_get_your_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool("kubectl")
    write_manifests(tmp_path)
    monkeypatch.setenv("REGISTRY", "registry.example")
    follow(blocks("The image")[2], tmp_path, stand_in(tmp_path / "bin"))
    for name in DEPLOYED:
        images = images_of(load_all(tmp_path / f"install-{name}.yaml"))
        assert f"registry.example/placement-extender:{version()}" in images


@pytest.mark.parametrize("digests", [["sha256:aa"], ["sha256:aa", "sha256:bb"]], ids=["first", "upgrade"])
def test_your_image_is_named_in_every_overlay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digests: list[str]
) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    programs = stand_in(tmp_path / "bin", "kubectl", "podman", "make")
    monkeypatch.setenv("REGISTRY", "registry.example.com/team")
    for digest in digests:
        (tmp_path / "digest").write_text(f"{digest}\n", "utf-8")
        follow(blocks("The image")[0], tmp_path, programs)
        follow(blocks("Sidecar, with kubeadm")[0], tmp_path, programs)
    wanted = f"registry.example.com/team/placement-extender@{digests[-1]}"
    static = {one["name"]: one.get("image") for one in load(tmp_path / "deploy" / PATCH)["spec"]["containers"]}
    assert static == {"kube-scheduler": None, "placement-extender": wanted}
    for name in DEPLOYED:
        images = images_of(built(tmp_path / "deploy" / "overlays" / name))
        assert wanted in images
        assert {each for each in images if "placement-extender" in each} == {wanted}


def test_a_command_without_your_registry_stops_and_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    programs = stand_in(tmp_path / "bin", "kubectl", "podman", "make")
    monkeypatch.delenv("REGISTRY", raising=False)
    for title in ("The image", "Sidecar, with kubeadm"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            follow(blocks(title)[0], tmp_path, programs)
        assert "REGISTRY: parameter null or not set" in failed.value.stderr.decode()


def test_every_tool_that_a_command_needs_is_named_before_it() -> None:
    named = set(re.findall(r"`([a-z]+)`", section("What the commands need")))
    found: set[str] = set()
    for block in (block for text in PAGES.values() for block in indented(text)):
        if not block.startswith("policies:"):  # YAML
            block = re.sub(r"\\\n +", "", block)  # noqa: PLW2901 -- continued lines
            found |= set(re.findall(r"(?:^|[|;&(] *|=\$\()([a-z]+)(?= )", block, re.MULTILINE))
    assert {"kubectl", "extender", "podman", "kubeadm", "helm"} <= found
    assert found - named == {"cd", "chown", "printf", "umask", "until", "for", "do", "done", "cat", "while"} & found


def test_the_sidecars_kubeconfig_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    here = tmp_path / "kubernetes"
    here.mkdir()
    commands = blocks("Sidecar, with kubeadm")[1].replace("/etc/kubernetes", str(here)).replace("-o 65532", "")
    follow(commands, tmp_path, stand_in(tmp_path / "bin", "kubectl", "kubeadm", "chown"))
    folder = here / "placement-extender"
    assert (folder / "kubeconfig").read_text("utf-8") == "secret\n"
    assert stat.S_IMODE((folder / "kubeconfig").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == {"extender.yaml", "kube-scheduler.yaml", "kubeconfig"}


def test_the_commands_for_policies_enable_them_in_an_overlay(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY, tmp_path / "deploy")
    follow(blocks("Scheduling policies")[1], tmp_path, stand_in(tmp_path / "bin", "kubectl"))
    documents = built(tmp_path / "deploy" / "overlays" / "service")
    (configuration,) = of_kind(documents, "ConfigMap")
    assert parse_settings(yaml.safe_load(configuration["data"]["extender.yaml"])).policies.enabled
    assert len(of_kind(documents, "CustomResourceDefinition", "MutatingWebhookConfiguration")) == 5


def test_the_settings_for_cert_manager_are_settings() -> None:
    document = yaml.safe_load(blocks("Scheduling policies")[2])
    head = {"apiVersion": Settings().api_version, "kind": Settings().kind}
    webhook = parse_settings({**head, **document}).policies.webhook
    mounts = load(DEPLOY / "policies-cert-manager" / "kustomization.yaml")["patches"][1]["patch"]
    assert webhook.certificates == "cert-manager"
    assert f"mountPath: {Path(webhook.cert_file).parent}" in mounts


def test_paths_lead_to_files() -> None:
    """Links are followed in tests/test_documents.py."""
    named = {ROOT / path.rstrip(".,;") for text in PAGES.values() for path in re.findall(r"\bdeploy/[\w./+-]+", text)}
    assert len(named) >= 6
    assert {path for path in named if not path.exists()} == set()


def test_doctor_says_what_the_table_of_wrong_set_ups_quotes() -> None:
    files = [*(ROOT / "extender" / "doctor").glob("*.py"), ROOT / "extender" / "cli" / "doctor.py"]
    texts = "".join(file.read_text("utf-8") for file in files)
    rows = re.findall(r"^\| .* \| (.*) \|$", section("Checking the installation"), re.MULTILINE)
    quoted = [text for row in rows[1:] for text in re.findall("`([^`]+)`", row)]
    assert len(quoted) > len(rows)
    assert [text for text in quoted if text not in texts] == []


def test_alerts_that_the_table_of_failures_names_exist() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (ROOT / "grafana" / "alerts.yaml").read_text("utf-8")))
    named = set(re.findall(r"`(Extender\w+)`", section("What can fail")))
    assert len(named) >= 6
    assert named - alerts == set()

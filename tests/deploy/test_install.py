"""`make deploy`, `make deploy-cert-manager` and `make undeploy`, with a kubectl that writes down what it is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.install import LAYOUTS, main
from deploy.release.image import version
from extender.settings.configuration import parse_settings
from tests.deploy.building import DEPLOY, ROOT, Json, of_kind, overlay, overlay_with
from tests.fakes import PATIENCE
from tests.programs import tool

DIGEST: Final = f"sha256:{'7' * 64}"
IMAGE: Final = f"registry.example.com/team/placement-extender@{DIGEST}"
EACH: Final = pytest.mark.parametrize("name", LAYOUTS)
ORDER: Final = (
    "podschedulingpolicies.placement.extender.dev,clusterpodschedulingpolicies.placement.extender.dev",
    "clusterrolebinding",
    "mutatingwebhookconfiguration,validatingwebhookconfiguration",
    "--kustomize",
    "lease",
)
# It builds what it is to apply or to delete. The environment says what it answers, by a word of the command.
STUB: Final = """#!{python}
import json, os, pathlib, subprocess, sys
words, told = sys.argv[1:], pathlib.Path(os.environ["TOLD"])
if words[0] == "kustomize":  # of the test itself
    os.execv("{real}", ["{real}", *words])
with (told / "commands").open("a") as file:
    file.write(json.dumps(words) + chr(10))
if "--kustomize" in words:
    folder = words[words.index("--kustomize") + 1]
    text = subprocess.run(["{real}", "kustomize", folder], check=True, capture_output=True).stdout
    (told / f"{{words[0]}}.yaml").write_bytes(text)
answers = json.loads(os.environ["ANSWERS"])
if (told / "apply.yaml").exists():
    answers |= json.loads(os.environ.get("THEN", "{{}}"))
for word, (status, text) in answers.items():
    if word in words:
        print(text, file=sys.stderr if status else sys.stdout)
        sys.exit(status)
"""
ANSWERS: Final[dict[str, tuple[int, str]]] = {
    "version": (0, json.dumps({"serverVersion": {"gitVersion": "v1.33.5-gke.1080000"}})),
    "config": (0, "a-cluster"),
}


class Told:
    """A folder with the stub, and what it was told."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        program = folder / "kubectl"
        program.write_text(STUB.format(python=sys.executable, real=tool("kubectl")), "utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("TOLD", str(folder))
        self.answer()

    def answer(self, **answers: tuple[int, str]) -> None:
        """What the stub says where a command has this word; before that, what every cluster says."""
        self._monkeypatch.setenv("ANSWERS", json.dumps({**answers, **ANSWERS, **answers}))

    def answer_after_apply(self, **answers: tuple[int, str]) -> None:
        """What the stub says once an overlay is applied, by a word of the command."""
        self._monkeypatch.setenv("THEN", json.dumps(answers))

    @property
    def commands(self) -> list[list[str]]:
        file = self._folder / "commands"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def objects(self, step: str) -> list[Json]:
        """What was given to `apply` or `delete`."""
        return list(yaml.load_all((self._folder / f"{step}.yaml").read_text("utf-8"), yaml.CSafeLoader))

    def is_told(self, *words: str) -> bool:
        """Whether one command has all of these words."""
        return any(set(words) <= set(command) for command in self.commands)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, monkeypatch)


def images(documents: Sequence[Json]) -> set[str]:
    """The images of all workloads, Jobs and CronJobs included."""
    found = set()

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            found.update([value["image"]] if isinstance(value.get("image"), str) else [])
            value = list(value.values())
        for each in value if isinstance(value, list) else []:
            visit(each)

    visit(list(documents))
    return found


def without_images(documents: Sequence[Json]) -> list[Json]:
    text = json.dumps(documents)
    for image in images(documents):
        text = text.replace(json.dumps(image), '"IMAGE"')
    return sorted(json.loads(text), key=json.dumps)


@EACH
def test_deploy_applies_the_overlay_with_certificates_of_the_cluster_and_the_image(
    told: Told, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["deploy", "--image", IMAGE, "--layout", name]) == 0
    layout, applied = LAYOUTS[name], told.objects("apply")
    wanted = overlay_with(layout.components[0], name, *layout.components[1:]) if layout.components else overlay(name)
    assert without_images(applied) == without_images(wanted)
    scheduler = set() if "service" in name else {"registry.k8s.io/kube-scheduler:v1.33.5"}
    assert images(applied) == {IMAGE, *scheduler}, "the tag of kube-scheduler is that of the API server"
    for workload in layout.workloads:
        assert told.is_told("--namespace", layout.namespace, "rollout", "status", workload)
    said = capsys.readouterr().out
    assert "to the cluster of context a-cluster (v1.33.5)" in said
    assert layout.then in said
    assert f"make undeploy LAYOUT={name}" in said


def test_an_image_of_kube_scheduler_that_its_operator_has_named_in_the_overlay_is_kept(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "deploy", tmp_path / "clone" / "deploy")
    monkeypatch.setattr("deploy.install.ROOT", tmp_path / "clone")
    file = tmp_path / "clone" / "deploy" / "overlays" / "second-scheduler" / "kustomization.yaml"
    given = file.read_text("utf-8").replace("newTag: set-the-version-of-your-cluster", "newTag: v1.32.9")
    file.write_text(given, "utf-8")
    assert main(["deploy", "--image", IMAGE]) == 0
    assert images(told.objects("apply")) == {IMAGE, "registry.k8s.io/kube-scheduler:v1.32.9"}
    mirror = given.replace(
        "newTag: v1.32.9", "newName: registry.example.com/kube-scheduler\n    newTag: set-the-version-of-your-cluster"
    )
    file.write_text(mirror, "utf-8")
    assert main(["deploy", "--image", IMAGE]) == 0
    assert images(told.objects("apply")) == {IMAGE, "registry.example.com/kube-scheduler:v1.33.5"}


def test_an_image_of_kube_scheduler_that_was_changed_in_the_cluster_alone_is_named(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    live = "registry.k8s.io/kube-scheduler:v1.32.9"
    told.answer(**{"deployment/placement-scheduler": (0, live)})
    told.answer_after_apply(**{"deployment/placement-scheduler": (0, "registry.k8s.io/kube-scheduler:v1.33.5")})
    assert main(["deploy", "--image", IMAGE]) == 0
    said = capsys.readouterr().out
    assert f"kube-scheduler had {live}, and has registry.k8s.io/kube-scheduler:v1.33.5 now" in said
    assert "name it in deploy/overlays/second-scheduler/kustomization.yaml" in said


@EACH
def test_with_policies_the_component_is_applied_and_switched_on(told: Told, name: str) -> None:
    assert main(["deploy", "--image", IMAGE, "--layout", name, "--policies"]) == 0
    applied = told.objects("apply")
    assert len(of_kind(applied, "MutatingWebhookConfiguration")) == 1
    files = [text for each in of_kind(applied, "ConfigMap") for text in [each["data"].get("extender.yaml")] if text]
    (settings,) = [parse_settings(yaml.safe_load(text)) for text in files]
    assert settings.policies.enabled
    assert settings.policies.webhook.certificates == ("cert-manager" if name.endswith("cert-manager") else "own")


def test_a_checkout_is_left_as_it_is(told: Told) -> None:
    files = {path: path.read_bytes() for path in (DEPLOY / "overlays").rglob("*.yaml")}
    assert main(["deploy", "--image", IMAGE, "--policies"]) == 0
    assert told.is_told("apply")
    assert {path: path.read_bytes() for path in (DEPLOY / "overlays").rglob("*.yaml")} == files


def test_an_image_without_tag_has_that_of_make_image(told: Told) -> None:
    assert main(["deploy", "--image", "localhost:5000/placement-extender"]) == 0
    assert f"localhost:5000/placement-extender:{version()}" in images(told.objects("apply"))


def test_the_job_of_an_earlier_deploy_is_deleted_because_its_image_cannot_be_changed(told: Told) -> None:
    assert main(["deploy", "--image", IMAGE]) == 0
    steps = [next((word for word in ("job", "apply") if word in command), "") for command in told.commands]
    assert told.is_told("delete", "job", "placement-extender-certificates", "--ignore-not-found")
    assert [step for step in steps if step] == ["job", "apply"]


def test_cert_manager_gets_the_address_of_the_service(told: Told) -> None:
    told.answer(service=(0, "10.96.0.50"))
    assert main(["deploy", "--image", IMAGE, "--layout", "service-cert-manager"]) == 0
    assert told.is_told(
        "patch", "certificate", "placement-extender-tls", '--patch={"spec": {"ipAddresses": ["10.96.0.50"]}}'
    )


@pytest.mark.parametrize(
    ("arguments", "answers", "text"),
    [
        (["--image", ""], {}, "IMAGE=... names no image of a registry"),
        (["--image", "placement-extender:0.1.0"], {}, "names no image of a registry"),
        (["--image", "r.example.com/x@sha256:12"], {}, "names no image of a registry"),
        (["--layout", "sidecar"], {}, "a sidecar is files on the machines"),
        (["--layout", "schedulers-cert-manager"], {}, "the chart, with tls.mode=certManager"),
        (["--layout", "two"], {}, "LAYOUT=two is none of second-scheduler, service, schedulers"),
        (
            [],
            {"version": (1, "connection to the server localhost:8080 was refused")},
            "does not answer, or there is none",
        ),
        ([], {"apply": (1, "admission webhook denied it")}, "admission webhook denied it"),
        ([], {"rollout": (1, "timed out")}, "is applied and not ready: timed out"),
    ],
)
def test_what_fails_is_said(
    told: Told,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    answers: dict[str, tuple[int, str]],
    text: str,
) -> None:
    told.answer(**answers)
    assert main(["deploy", *([] if "--image" in arguments else ["--image", IMAGE]), *arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith("make deploy: ")
    assert text in said


def test_escapes_in_a_kubeconfig_and_in_an_answer_do_not_reach_the_terminal(
    told: Told, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\033]0;owned\007{{ .X }}"
    told.answer(config=(0, hostile), rollout=(1, f"error: {hostile}"))
    assert main(["deploy", "--image", IMAGE]) == 1
    said = capsys.readouterr()
    for text in said:
        assert "\\u001b]0;owned\\u0007{{ .X }}" in text
        assert not {"\033", "\007"} & set(text)


def test_without_kubectl_nothing_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["deploy", "--image", IMAGE]) == 1
    assert "kubectl is not installed, or not on PATH" in capsys.readouterr().err


@EACH
def test_undeploy_deletes_what_deploy_applied(told: Told, name: str) -> None:
    assert main(["deploy", "--image", IMAGE, "--layout", name]) == 0
    assert main(["undeploy", "--layout", name]) == 0
    assert without_images(told.objects("delete")) == without_images(told.objects("apply"))
    assert not told.is_told("delete", "--all-namespaces"), "there are no policies"
    for arguments in LAYOUTS[name].left:
        assert told.is_told("--namespace", "kube-system", "delete", *arguments)


def test_policies_are_removed_before_the_overlay_and_the_webhooks_after_the_permission(told: Told) -> None:
    told.answer(clusterrolebinding=(0, "clusterrolebinding/placement-extender-webhook-schedulers"))
    assert main(["undeploy", "--layout", "schedulers"]) == 0
    steps = [next((word for word in ORDER if word in command), "") for command in told.commands if "delete" in command]
    assert [step for step in steps if step] == list(ORDER)
    assert len(of_kind(told.objects("delete"), "MutatingWebhookConfiguration")) == 1


def test_undeploy_waits_for_gates_and_stops_where_they_stay(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.answer(
        clusterrolebinding=(0, "clusterrolebinding/placement-extender-webhook-second-scheduler"),
        **{"--output=jsonpath={.items[*].spec.schedulingGates[*].name}": (0, "placement.extender.dev/group")},
    )
    assert main(["undeploy", "--timeout", "0"]) == 1
    assert "pods still have the extender's gate" in capsys.readouterr().err
    assert not told.is_told("delete", "--kustomize")


def test_undeploy_counts_the_pods_that_no_scheduler_will_place(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.answer(**{"--field-selector=spec.nodeName=,spec.schedulerName=placement-scheduler": (0, "pod/a\npod/b")})
    assert main(["undeploy"]) == 0
    assert "2 pods with schedulerName placement-scheduler have no node" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["deploy", f"IMAGE={IMAGE}"], f'deploy --image "{IMAGE}" --layout "second-scheduler"'),
        (["deploy", "LAYOUT=service", "POLICIES=1"], 'deploy --image "" --layout "service" --policies'),
        (["deploy-cert-manager"], 'deploy --image "" --layout "service-cert-manager"'),
        (["undeploy", "LAYOUT=schedulers", "TIMEOUT=9"], 'undeploy --layout "schedulers"  --timeout "9"'),
    ],
)
def test_make_has_a_target_for_each_step(command: list[str], arguments: str) -> None:
    done = subprocess.run(
        [tool("make"), "--dry-run", *command], cwd=ROOT, check=False, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert " ".join(arguments.split()) in " ".join(done.stdout.split())

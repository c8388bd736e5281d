"""`extender config generate`: a configuration that kube-scheduler takes, that fits ours, and that protects."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.config import CANDIDATES
from extender.cli.main import main
from extender.doctor.scheduler_config import SAMPLED_PERCENTAGE
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.policy_validation import validate
from tests.builders import Json
from tests.cli.doctor_set_up import Strict
from tests.cli.generated import (
    TLS,
    TRUST,
    TRUSTED,
    audited,
    generated,
    ignorable,
    kubeconfig,
    names_of_profile,
    percentage,
    plugins,
    plugins_of_profiles,
    profiles,
    rejected,
    score_plugins,
    several,
    stanza,
    strategy,
    weights,
)
from tests.cli.serving import configuration

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mode", ["offload", "augment"])
def test_beside_the_scheduler_it_is_the_file_that_we_ship(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = yaml.safe_load((ROOT / f"config/kube-scheduler-{mode}.yaml").read_text("utf-8"))
    assert generated(capsys, "--mode", mode, "--layout", "sidecar") == shipped


HTTPS = {"server": {"tls": TLS}}
OF_KUBEADM, OF_ROOT = "/etc/kubernetes/scheduler.conf", "/root/.kube/config"
NAMED = f"--scheduler-kubeconfig {OF_ROOT}"
OURS = {"bindAddress": "127.0.0.1:9000", "requestTimeout": "2500ms", "paths": {"filter": "/v1/filter"}}
PACKED = {"scoringStrategy": "MostAllocated"}
FEWER = {"DefaultPreemption": CANDIDATES}
GENERATED: dict[str, tuple[Json, str, Callable[[Any], Any], Any]] = {
    "a sidecar has the kubeconfig of kubeadm": (HTTPS, "--layout sidecar", kubeconfig, OF_KUBEADM),
    "a second scheduler has its own account": (HTTPS, "--layout second-scheduler", kubeconfig, None),
    "a service has the kubeconfig of kubeadm": (HTTPS, "--layout service", kubeconfig, OF_KUBEADM),
    "a kubeconfig for a sidecar": (HTTPS, f"--layout sidecar {NAMED}", kubeconfig, OF_ROOT),
    "a kubeconfig for a second scheduler": (HTTPS, f"--layout second-scheduler {NAMED}", kubeconfig, OF_ROOT),
    "no kubeconfig": (HTTPS, "--layout sidecar --scheduler-kubeconfig=", kubeconfig, None),
    "names of its own": (
        {"mode": "augment"}, "--layout second-scheduler", names_of_profile,
        ([{"schedulerName": "placement-scheduler"}], "placement-scheduler"),
    ),
    "paths, port and time limit": (
        {"server": OURS}, "", lambda document: [stanza(document)[name] for name in ("urlPrefix", "filterVerb", "httpTimeout")],
        ["http://127.0.0.1:9000", "v1/filter", "3s"],
    ),
    "only a plugin whose rule we decide is disabled": (
        {"rules": {"topologySpread": {"enabled": False}}}, "", plugins_of_profiles, ([["InterPodAffinity"]] * 2, True),
    ),
    "a profile for all nodes": (
        {}, "", profiles, [("default-scheduler", None), ("default-scheduler-all-nodes", 100)],
    ),
    "a profile for all nodes of a second scheduler": (
        {}, "--layout second-scheduler", profiles, [("placement-scheduler", None), ("placement-scheduler-all-nodes", 100)],
    ),
    "one profile where all are for all nodes": (
        {"rejectedPods": {"nominateElsewhere": False}}, "", profiles, [("default-scheduler", None)],
    ),
    "no profile for all nodes in mode augment": (
        {"mode": "augment"}, "--layout second-scheduler", profiles, [("placement-scheduler", None)],
    ),
    "quotas need the extender": ({"mode": "augment", "quota": {"enabled": True}}, "", ignorable, False),
    "a reach needs the extender": ({"mode": "augment", "quota": audited()}, "", ignorable, False),
    "audits do not": ({"mode": "augment", "quota": audited(mode="Audit")}, "", ignorable, True),
    "no quotas": ({"mode": "augment", "quota": {"enabled": False}}, "", ignorable, True),
    "fewer candidates where the extender chooses": ({"mode": "offload"}, "", plugins, FEWER),
    "candidates in preemption mode advise": ({"preemption": {"mode": "advise"}}, "", plugins, {}),
    "candidates without preemption": ({"preemption": {"mode": "off"}}, "", plugins, {}),
    "candidates in mode augment": ({"mode": "augment"}, "", plugins, {}),
    "bin packing, and preemption": ({"answers": PACKED}, "", strategy, ("MostAllocated", True)),
    "bin packing alone": ({"answers": PACKED, "preemption": {"mode": "off"}}, "", strategy, ("MostAllocated", False)),
    "weights beside scores in tree scale": ({"answers": {"scoreScale": "inTree"}}, "", weights, (FEWER, 30, 20, 10)),
    "weights of score plugins": (
        {"answers": {"scores": {"nodeAffinity": 5, "taintToleration": 0}}}, "", score_plugins,
        ([{"name": "NodeAffinity", "weight": 5}], [{"name": "TaintToleration"}]),
    ),
    "weights in mode augment": (
        {"mode": "augment", "answers": {"scores": {"nodeAffinity": 5}}}, "", score_plugins,
        ([{"name": "NodeAffinity", "weight": 5}], []),
    ),
    "a sample of nodes": ({}, "", percentage, SAMPLED_PERCENTAGE),
    "a sample in mode augment": ({"mode": "augment"}, "", percentage, None),
    "no sample without nominations": ({"rejectedPods": {"nominateElsewhere": False}}, "", percentage, 100),
    "HTTPS, with an authority and a certificate": (
        {"server": {"tls": TLS | {"clientCAFile": "/etc/tls/ca.crt"}}}, "--layout service",
        lambda document: [stanza(document)[name] for name in ("urlPrefix", "enableHTTPS", "tlsConfig")],
        ["https://placement-extender.placement-extender.svc:8888", True, TRUSTED],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sections", "arguments", "read", "expected"), GENERATED.values(), ids=GENERATED)
def test_the_configuration_of_the_scheduler_follows_from_the_layout_and_from_ours(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    sections: Json,
    arguments: str,
    read: Callable[[Any], Any],
    expected: Any,
) -> None:
    config = configuration(tmp_path, **sections)
    trust = TRUST if "server" in sections and "tls" in sections["server"] else []
    assert read(generated(capsys, "--config", config, *arguments.split(), *trust)) == expected


@pytest.mark.parametrize(
    ("layout", "name"), [("sidecar", "default-scheduler"), ("second-scheduler", "placement-scheduler")]
)
def test_the_policy_for_all_nodes_gives_pods_the_second_profile_of_the_layout(
    layout: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = generated(capsys, "--layout", layout)["profiles"][1]["schedulerName"]
    assert main(["config", "generate", "--layout", layout, "--all-nodes-policy"]) == 0
    policy, binding = yaml.safe_load_all(capsys.readouterr().out)
    (mutation,), conditions = policy["spec"]["mutations"], policy["spec"]["matchConditions"]
    assert f"value: '{wanted}'" in mutation["jsonPatch"]["expression"]
    assert conditions[0]["expression"] == f"object.spec.schedulerName == '{name}'"
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]


@pytest.mark.parametrize(
    ("sections", "more"),
    [
        ({"mode": "augment"}, []),
        ({"rejectedPods": {"nominateElsewhere": False}}, []),
        ({"schedulers": "many", "server": {"tls": TLS}}, ["--layout", "service", "--schedulers", "3", *TRUST]),
    ],
    ids=["augment", "no sample", "several schedulers"],
)
def test_no_policy_names_a_profile_that_the_configuration_lacks(
    sections: Json, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, **sections)
    said = rejected(capsys, "--config", config, *more, "--all-nodes-policy")
    assert "--all-nodes-policy: the generated configuration has no profile for all nodes" in said


def test_files_can_be_put_into_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(b"an authority")
    config = configuration(tmp_path, server={"tls": TLS})
    (stanza,) = generated(capsys, "--config", config, "--ca-file", str(authority), "--embed")["extenders"]
    assert base64.b64decode(stanza["tlsConfig"]["caData"]) == b"an authority"


@pytest.mark.parametrize(
    ("server", "arguments", "problem"),
    [
        ({"tls": TLS}, [], "--ca-file is needed"),
        ({"tls": TLS | {"clientCAFile": "/ca.crt"}}, TRUST[:2], "--cert-file and --key-file are needed"),
        ({}, ["--layout", "service"], "set server.tls first"),
        ({}, ["--mode", "augment"], "the configuration sets the mode"),
    ],
    ids=["no authority", "no client certificate", "plain HTTP over the network", "a mode beside a configuration"],
)
def test_what_would_not_work_or_not_be_secure_is_rejected(
    server: Any, arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in rejected(capsys, "--config", configuration(tmp_path, server=server), *arguments)


def test_several_schedulers_have_names_and_leases_of_their_own_and_ask_one_extender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "generate", *several(tmp_path)]) == 0
    *documents, policy = yaml.safe_load_all(capsys.readouterr().out)
    names = [f"placement-scheduler-{number}" for number in range(3)]
    assert [[each["schedulerName"] for each in one["profiles"]] for one in documents] == [[name] for name in names]
    assert [one["leaderElection"]["resourceName"] for one in documents] == names
    assert len({one["extenders"][0]["urlPrefix"] for one in documents}) == 1
    assert policy["spec"]["schedulerNames"] == names
    assert validate(policy, DEFAULT_LIMITS) == []


def test_the_policy_leaves_out_the_namespace_of_the_extender(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = several(tmp_path, count=2, mode="augment")
    assert main(["config", "generate", *arguments, "--host", "placement-extender.tools.svc"]) == 0
    first, *_, policy = yaml.safe_load_all(capsys.readouterr().out)
    assert first["extenders"][0]["ignorable"] is False, "without the extender one room would be given away twice"
    (namespaces,) = policy["spec"]["namespaceSelector"]["matchExpressions"]
    assert (namespaces["operator"], namespaces["values"]) == ("NotIn", ["kube-system", "tools"])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": 0}, "--schedulers: expected 2 to 32, got 0"),
        ({"count": 33}, "--schedulers: expected 2 to 32, got 33"),
        (
            {"schedulers": "one"},
            "--schedulers: give a configuration of the extender with `schedulers: many` (--config)",
        ),
        ({"layout": "sidecar"}, "--schedulers: layout sidecar gives each scheduler an extender of its own"),
    ],
)
def test_several_schedulers_that_would_not_share_one_extender_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], problem: str
) -> None:
    assert problem in rejected(capsys, *several(tmp_path, **changes))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    assert "--out" in rejected(capsys, *several(tmp_path), "--out", str(tmp_path / "taken"))


@pytest.mark.parametrize("version", ["1.29", "v1.33.4", "1.36", "1.99"])
def test_all_supported_versions_read_the_same_configuration(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generated(capsys, "--mode", "offload", "--kubernetes", version) == generated(capsys, "--mode", "offload")


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("1.28", "--kubernetes: 1.29 is the oldest supported version, got 1.28"),
        ("newest", "--kubernetes: expected a version such as 1.36, got newest"),
    ],
)
def test_a_version_that_is_not_supported_is_refused(
    version: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "generate", "--kubernetes", version]) == 1
    assert problem in capsys.readouterr().err


def test_the_policy_for_all_nodes_is_refused_for_a_version_that_cannot_apply_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["config", "generate", "--all-nodes-policy", "--kubernetes", "1.35"]) == 1
    assert "Kubernetes 1.35 does not serve MutatingAdmissionPolicy in version v1, 1.36 does" in capsys.readouterr().err
    assert main(["config", "generate", "--all-nodes-policy", "--kubernetes", "1.36"]) == 0


async def test_without_a_version_the_current_cluster_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Strict() as api:
        api.requests, api.version = [], "v1.34.2"
        monkeypatch.setenv("KUBECONFIG", str(api.write_kubeconfig(tmp_path / "kubeconfig")))
        assert await asyncio.to_thread(main, ["config", "generate", "--all-nodes-policy"]) == 1
    assert "Kubernetes 1.34 does not serve" in capsys.readouterr().err

"""`extender config generate`: a configuration that kube-scheduler takes, that fits ours, and that protects."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.config import CANDIDATES
from extender.cli.main import main
from extender.doctor.scheduler_config import SAMPLED_PERCENTAGE
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.policy_validation import validate
from tests.cli.serving import configuration

ROOT = Path(__file__).resolve().parents[2]
TLS = {"certFile": "/etc/tls/tls.crt", "keyFile": "/etc/tls/tls.key"}
_FILES = {"ca": "ca.crt", "cert": "c.crt", "key": "c.key"}
TRUST = [part for name, file in _FILES.items() for part in (f"--{name}-file", f"/etc/kubernetes/{file}")]


def generated(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["config", "generate", *arguments]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def rejected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said instead of a document."""
    assert main(["config", "generate", *arguments]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


@pytest.mark.parametrize("mode", ["offload", "augment"])
def test_beside_the_scheduler_it_is_the_file_that_we_ship(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = yaml.safe_load((ROOT / f"config/kube-scheduler-{mode}.yaml").read_text("utf-8"))
    assert generated(capsys, "--mode", mode, "--layout", "sidecar") == shipped


@pytest.mark.parametrize(
    ("arguments", "kubeconfig"),
    [
        (["sidecar"], "/etc/kubernetes/scheduler.conf"),
        (["second-scheduler"], ""),
        (["service"], "/etc/kubernetes/scheduler.conf"),
        (["sidecar", "--scheduler-kubeconfig", "/root/.kube/config"], "/root/.kube/config"),
        (["second-scheduler", "--scheduler-kubeconfig", "/root/.kube/config"], "/root/.kube/config"),
        (["sidecar", "--scheduler-kubeconfig", ""], ""),
    ],
    ids=" ".join,
)
def test_a_scheduler_that_is_no_pod_of_its_own_account_gets_the_kubeconfig_of_kubeadm_or_the_named_one(
    arguments: list[str], kubeconfig: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, server={"tls": TLS})
    document = generated(capsys, "--config", config, "--layout", *arguments, *TRUST)
    assert document.get("clientConnection", {"kubeconfig": ""}) == {"kubeconfig": kubeconfig}


def test_a_second_scheduler_has_a_name_and_a_lease_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    document = generated(capsys, "--mode", "augment", "--layout", "second-scheduler")
    assert document["profiles"] == [{"schedulerName": "placement-scheduler"}]
    assert document["leaderElection"]["resourceName"] == "placement-scheduler"


def test_paths_port_and_time_limit_are_those_of_our_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = {"bindAddress": "127.0.0.1:9000", "requestTimeout": "2500ms", "paths": {"filter": "/v1/filter"}}
    (stanza,) = generated(capsys, "--config", configuration(tmp_path, server=server))["extenders"]
    assert (stanza["urlPrefix"], stanza["filterVerb"]) == ("http://127.0.0.1:9000", "v1/filter")
    assert stanza["httpTimeout"] == "3s"


def test_only_a_plugin_whose_rule_we_decide_is_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(tmp_path, rules={"topologySpread": {"enabled": False}})
    (profile,) = generated(capsys, "--config", config)["profiles"]
    assert profile["plugins"]["multiPoint"]["disabled"] == [{"name": "InterPodAffinity"}]


@pytest.mark.parametrize(
    ("quota", "ignorable"),
    [
        ({"enabled": True}, False),
        ({"enabled": True, "mode": "Audit", "reach": {"maxNamespaces": {"limit": 5}}}, False),
        ({"enabled": True, "mode": "Audit", "reach": {"maxNamespaces": {"limit": 5, "mode": "Audit"}}}, True),
        ({"enabled": False}, True),
    ],
    ids=["quotas", "reach", "audits only", "disabled"],
)
def test_the_scheduler_does_not_go_on_without_an_extender_that_holds_pods_to_quotas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quota: Any, *, ignorable: bool
) -> None:
    document = generated(capsys, "--config", configuration(tmp_path, mode="augment", quota=quota))
    assert document["extenders"][0]["ignorable"] is ignorable


@pytest.mark.parametrize(
    ("settings", "is_set"),
    [
        ({"mode": "offload"}, True),
        ({"mode": "offload", "preemption": {"mode": "advise"}}, False),
        ({"mode": "offload", "preemption": {"mode": "off"}}, False),
        ({"mode": "augment"}, False),
    ],
    ids=["offload", "advise", "off", "augment"],
)
def test_the_scheduler_offers_fewer_candidates_only_where_the_extender_chooses_among_all_nodes(
    settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_set: bool
) -> None:
    document = generated(capsys, "--config", configuration(tmp_path, **settings))
    plugins = [entry["name"] for profile in document.get("profiles", []) for entry in profile.get("pluginConfig", [])]
    assert plugins == (["DefaultPreemption"] if is_set else [])


@pytest.mark.parametrize("mode", ["execute", "off"])
def test_bin_packing_is_for_the_pods_too_for_which_the_scheduler_chooses_the_node(
    mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, answers={"scoringStrategy": "MostAllocated"}, preemption={"mode": mode})
    (profile,) = generated(capsys, "--config", config)["profiles"]
    arguments = {each["name"]: each["args"] for each in profile["pluginConfig"]}
    assert arguments["NodeResourcesFit"]["scoringStrategy"]["type"] == "MostAllocated"
    assert ("DefaultPreemption" in arguments) == (mode == "execute")


def test_with_scores_in_tree_scale_the_other_weights_are_multiplied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (profile,) = generated(capsys, "--config", configuration(tmp_path, answers={"scoreScale": "inTree"}))["profiles"]
    assert profile["pluginConfig"][0]["args"] == CANDIDATES
    weights = {entry["name"]: entry["weight"] for entry in profile["plugins"]["multiPoint"]["enabled"]}
    assert (weights["TaintToleration"], weights["NodeAffinity"], weights["ImageLocality"]) == (30, 20, 10)


@pytest.mark.parametrize(
    ("settings", "percentage"),
    [
        ({}, SAMPLED_PERCENTAGE),
        ({"mode": "augment"}, None),
        ({"rejectedPods": {"nominateElsewhere": False}}, 100),
    ],
    ids=["offload", "augment", "no nominations"],
)
def test_in_offload_mode_a_small_sample_is_asked_about_if_pods_are_nominated_outside_of_it(
    settings: dict[str, Any], percentage: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = generated(capsys, "--config", configuration(tmp_path, **settings)).get("percentageOfNodesToScore")
    assert found == percentage


def test_https_comes_with_the_authority_and_the_clients_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, server={"tls": TLS | {"clientCAFile": "/etc/tls/ca.crt"}})
    (stanza,) = generated(capsys, "--config", config, "--layout", "service", *TRUST)["extenders"]
    assert stanza["urlPrefix"] == "https://placement-extender.placement-extender.svc:8888"
    assert stanza["enableHTTPS"] is True
    assert stanza["tlsConfig"] == {
        "caFile": "/etc/kubernetes/ca.crt",
        "certFile": "/etc/kubernetes/c.crt",
        "keyFile": "/etc/kubernetes/c.key",
    }


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


def several(folder: Path, *, count: int = 3, layout: str = "service", **sections: Any) -> tuple[str, ...]:
    config = configuration(folder, **({"schedulers": "many", "server": {"tls": TLS}} | sections))
    return ("--config", config, "--layout", layout, "--schedulers", str(count), *TRUST)


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

"""`extender doctor` on a running service, an embedded cluster and files: what is planted is found, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import shutil
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.certificates.authority import SERVER, Authority
from extender.cli.main import main
from extender.cli.service_client import try_as_scheduler, webhook_fault
from extender.doctor.certificate_faults import CertificateFault
from extender.doctor.facts import APPLY_KINDS
from extender.doctor.service import OF_CERTIFICATE
from extender.simulator.apiserver.kinds import (
    GROUP_PLACEMENTS,
    LEASES,
    OWN_POLICY_KINDS,
    SECRETS,
    SERVICES,
    TOPOLOGY_DOMAINS,
    VALIDATING_WEBHOOKS,
)
from tests.cli.doctor_set_up import (
    MUTATING,
    ROOT,
    WEBHOOK,
    Setup,
    Strict,
    checks,
    installed_policies,
    kept,
    secured,
    set_up,
    stands,
    with_policies,
)
from tests.cli.group_objects import POLICY, member
from tests.cli.serving import configuration
from tests.features.quotas.tenants import quota_json
from tests.pki import serving

ADMIN = {"ca": "ca.crt", "cert": "admin.crt", "key": "admin.key"}


async def test_a_good_set_up_gives_no_finding_and_0(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        code, document = await setup.doctor("--scheduler-config", setup.scheduler())
    assert (document["findings"], code) == ([], 0)
    assert len(document["checked"]) == 3


async def test_files_of_the_scheduler_that_are_elsewhere_are_not_tried_and_not_blamed(tmp_path: Path) -> None:
    files = {"caFile": "/nowhere/ca.crt", "certFile": "/nowhere/tls.crt", "keyFile": "/nowhere/tls.key"}
    async with secured(tmp_path) as url:
        setup = Setup(Strict(), url, "", tmp_path)
        scheduler = setup.scheduler(enableHTTPS=True, tlsConfig=files)
        admin = [f"--{part}-file={tmp_path / name}" for part, name in ADMIN.items()]
        _, document = await setup.doctor("--no-cluster", "--scheduler-config", scheduler, *admin)
    assert document["checked"][-1].endswith("without its certificates, which are not on this machine")
    assert "scheduler" not in {one["check"] for one in document["findings"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"serverName": "extender.example"}, "does not have the name in urlPrefix"),
        ({"keyFile": "admin.key"}, "the files of tlsConfig cannot be used"),
    ],
    ids=["right", "another name", "the key of another"],
)
async def test_the_schedulers_files_are_tried_against_the_service(
    changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    async with secured(tmp_path) as url:
        setup = Setup(Strict(), url, "", tmp_path)
        names = {"caFile": "ca.crt", "certFile": "client.crt", "keyFile": "client.key"} | changes
        tls = {field: str(tmp_path / name) if name and "File" in field else name for field, name in names.items()}
        admin = [f"--{part}-file={tmp_path / name}" for part, name in ADMIN.items()]
        scheduler = setup.scheduler(enableHTTPS=True, tlsConfig=tls)
        _, document = await setup.doctor("--no-cluster", "--scheduler-config", scheduler, *admin)
    found = [one["problem"] for one in document["findings"] if one["check"] == "scheduler"]
    assert any(words in problem for problem in found) if words else found == []


async def test_an_expired_certificate_of_the_service_is_reported_from_one_of_another_authority(tmp_path: Path) -> None:
    past = datetime.now(UTC) - timedelta(days=3)
    authority = Authority.make("ca", past, 30)
    pair = authority.issue("server", past, 1, SERVER, ["127.0.0.1"])
    context = serving(tmp_path, pair)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    found = []
    for trusted in (authority, Authority.make("another", past, 30)):
        pem = {"ca": trusted.pair.certificate_pem, "cert": b"", "key": b""}
        found.append(await asyncio.to_thread(try_as_scheduler, url, "127.0.0.1", pem, None))
    server.close()
    assert found == [OF_CERTIFICATE[CertificateFault.EXPIRED], OF_CERTIFICATE[CertificateFault.OTHER_CA]]


@pytest.mark.parametrize(
    ("there", "found", "words"),
    [
        (stands("bound", "node-a"), ("error", "called"), "1 pod was bound meanwhile"),
        (stands("bound", "node-a", scheduler="other"), ("info", "called"), "no pod was bound meanwhile"),
        (stands("kept-out", "", "0/1 nodes are available: 1 taint"), ("info", "called"), "0/1 nodes are available"),
    ],
    ids=["placed without us", "placed by another scheduler", "all nodes tainted"],
)
async def test_why_filter_was_never_called_is_read_from_the_pods(
    there: dict[str, Any], found: tuple[str, str], words: str, tmp_path: Path
) -> None:
    async with set_up(tmp_path, requests=0, pods=[there]) as setup:
        _, document = await setup.doctor("--scheduler-config", setup.scheduler())
    assert checks(document) == [found]
    assert words in document["findings"][0]["problem"]


async def test_pods_that_were_bound_before_the_leader_began_passed_through_the_one_before_it(tmp_path: Path) -> None:
    began = (datetime.now(UTC) + timedelta(hours=2)).isoformat().replace("+00:00", "Z")
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    lease["metadata"] = {"name": "placement-extender", "namespace": "default"}
    lease["spec"] = {"holderIdentity": "one", "acquireTime": began, "renewTime": began}
    election = {"enabled": True, "leaseNamespace": "default"}
    async with set_up(tmp_path, requests=0, pods=[stands("bound", "node-a")], leaderElection=election) as setup:
        setup.api.store.put(LEASES, lease)
        _, document = await setup.doctor("--scheduler-config", setup.scheduler())
    assert ("info", "called") in checks(document)
    assert ("error", "called") not in checks(document)


async def test_the_access_of_the_running_settings_is_used_where_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/kubeconfig")
    async with set_up(tmp_path) as setup:
        with redirect_stdout(io.StringIO()) as out:
            code = await asyncio.to_thread(main, ["doctor", "-o", "json", "--url", setup.url])
        document = json.loads(out.getvalue())
    assert (document["findings"], code) == ([], 0)
    assert "cluster" in document["checked"]


async def test_an_access_that_may_not_be_the_services_is_named(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        other = tmp_path / "other"
        shutil.copy(setup.kubeconfig, other)
        code, document = await setup.doctor("--kubeconfig", str(other))
    assert (checks(document), code) == ([("info", "account")], 0)
    assert str(other) in document["findings"][0]["problem"]


SECRETS_ONLY = {"apiVersion": "v1", **quota_json(hard={"count/secrets": "5"})}
QUOTA = {"quota": {"enabled": True}}
NEVER = "kube-scheduler has not called filter since the service started"
# How the service is set up, what the API server does, the exit code, and the findings.
FOUND: dict[str, tuple[dict[str, Any], dict[str, Any], int, list[str]]] = {
    "an idle cluster": ({"requests": 0}, {}, 0, ["info called: *and no pod was bound meanwhile"]),
    "a clock that is wrong": ({}, {"behind": 3600}, 3, ["warning clock: *"]),
    "permissions": (
        {},
        {"denied": {"patch/pods/status", "watch/nodes"}},
        4,
        [f"error permissions: the account may not {what}" for what in ("watch nodes", "patch pods/status")],
    ),
    "pods that may not be listed, so it is unknown whether filter should have been called": (
        {"requests": 0},
        {"hides_pods": True},
        3,
        [f"warning called: {NEVER}; it is unknown whether any pod*pods is forbidden"],
    ),
    "a quota that charges nothing": (
        {"pods": [SECRETS_ONLY], **QUOTA},
        {},
        3,
        ["warning quotas: ResourceQuota team/cross can charge no pod*"],
    ),
    "the same quota without the feature": ({"pods": [SECRETS_ONLY]}, {}, 0, []),
    "quotas that may not be read": (QUOTA, {"denied": {"list/resourcequotas"}}, 4, ["error permissions: *"]),
}


@pytest.mark.parametrize(("sections", "api", "code", "expected"), FOUND.values(), ids=FOUND)
async def test_what_is_planted_is_found_and_nothing_else(
    tmp_path: Path, sections: dict[str, Any], api: dict[str, Any], code: int, expected: list[str]
) -> None:
    async with set_up(tmp_path, **sections) as setup:
        for name, value in api.items():
            setattr(setup.api, name, value)
        ended, document = await setup.doctor()
    found = [f"{one['severity']} {one['check']}: {one['problem']}" for one in document["findings"]]
    assert (ended, len(found)) == (code, len(expected))
    assert [text for text, pattern in zip(found, expected, strict=True) if not fnmatchcase(text, pattern)] == []
    assert "hides_pods" not in api or "list pods" in document["findings"][0]["remedy"]


async def test_another_account_is_requested_with_its_groups(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        await setup.doctor("--as", "system:serviceaccount:kube-system:placement-extender")
        spec = setup.api.requests[0]
    assert spec["user"] == "system:serviceaccount:kube-system:placement-extender"
    assert spec["groups"] == ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kube-system"]


async def test_a_running_service_that_differs_from_its_file_is_found(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        changed = configuration(tmp_path, kube={"kubeconfig": setup.kubeconfig}, server={"maxInFlight": 7})
        code, document = await setup.doctor("--config", changed)
    assert (checks(document), code) == ([("warning", "configuration")], 3)
    assert document["findings"][0]["problem"] == "server.maxInFlight is 100 in the running service but 7 in the file"


async def test_a_scheduler_that_keeps_its_plugins_is_found(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        code, document = await setup.doctor("--scheduler-config", setup.scheduler("augment", ignorable=False))
    kept = [("warning", "scheduler")] * 2
    assert (checks(document), code) == ([*kept, ("info", "scheduler")], 3)  # and it asks for scores, which are none


async def test_the_lease_of_replicas_is_read_and_leave_for_it_requested(tmp_path: Path) -> None:
    election = {"enabled": True, "leaseNamespace": "default"}
    async with set_up(tmp_path, leaderElection=election) as setup:
        code, document = await setup.doctor()
        requested = [spec["resourceAttributes"] for spec in setup.api.requests]
    assert (document["findings"], code) == ([], 0)
    leases = {(one["verb"], one["namespace"], one["name"]) for one in requested if one["resource"] == "leases"}
    name = "placement-extender"
    assert leases == {("create", "default", ""), ("get", "default", name), ("update", "default", name)}


async def test_a_cluster_that_cannot_be_asked_is_an_error_that_says_how_to_leave_it_out(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        code, document = await setup.doctor("--kubeconfig", "/nowhere/kubeconfig")
        without, _ = await setup.doctor("--kubeconfig", "/nowhere/kubeconfig", "--no-cluster")
    assert (checks(document), code) == ([("error", "cluster")], 4)
    assert "--no-cluster" in document["findings"][0]["remedy"]
    assert without == 0


def test_a_service_that_is_not_there_is_an_error_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-cluster", "--url", "http://127.0.0.1:9"]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error: service: http://127.0.0.1:9/configz cannot be reached: ")
    assert lines[1] == "    check that it runs, and that --url has its address and port"
    assert lines[2].startswith("info: settings: the settings of the extender are not known")
    assert lines[3] == "    give the extender's configuration file with --config"
    assert lines[4] == "1 error, 0 warnings; checked: nothing"


RIGHT = sorted([*ROOT.glob("config/kube-scheduler-*.yaml"), *ROOT.glob("deploy/overlays/*/kube-scheduler.yaml")])


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: str(path.relative_to(ROOT)))
def test_in_an_outage_a_right_configuration_of_the_scheduler_gets_no_advice(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outage = ["doctor", "--no-cluster", "-o", "json", "--url", "http://127.0.0.1:9", "--scheduler-config", str(path)]
    assert main(outage) == 4
    document = json.loads(capsys.readouterr().out)
    assert {one for one in checks(document) if one[0] != "info"} == {("error", "service")}
    assert ("info", "settings") in checks(document)
    assert document["checked"][0].startswith(f"scheduler configuration {path} alone, without the settings")
    ours = path.parent / "extender.yaml"
    if ours.exists() and path.parent.name != "config":  # it says what the running service would
        main([*outage, "--config", str(ours)])
        found = json.loads(capsys.readouterr().out)["findings"]
        assert [one["problem"] for one in found if one["check"] == "scheduler" and one["severity"] != "info"] == []


def test_in_an_outage_what_keeps_the_scheduler_from_starting_is_still_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load((ROOT / "config/kube-scheduler-offload.yaml").read_text("utf-8"))
    (path := tmp_path / "kube-scheduler.yaml").write_text(json.dumps(document | {"parallelism": 0}), "utf-8")
    main(["doctor", "--no-cluster", "-o", "json", "--url", "http://127.0.0.1:9", "--scheduler-config", str(path)])
    found = json.loads(capsys.readouterr().out)
    assert ("error", "scheduler") in checks(found)


async def test_in_an_outage_no_permission_is_compared_with_settings_that_may_not_be_in_use(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        setup.api.denied = frozenset({"delete/pods", "patch/pods/status"})
        setup.url = "http://127.0.0.1:9"
        _, document = await setup.doctor()
    assert checks(document) == [("error", "service"), ("info", "settings")]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((), "certificate verify failed"),
        (("ca",), "it requires a client certificate"),
        (("ca", "cert", "key"), "has not called filter"),
    ],
    ids=["no authority", "no client certificate", "all there"],
)
async def test_the_chain_of_certificates_is_proven_by_asking(
    files: tuple[str, ...], found: str, tmp_path: Path
) -> None:
    async with secured(tmp_path) as url:
        setup = Setup(Strict(), url, "", tmp_path)
        given = [f"--{name}-file={tmp_path / ADMIN[name]}" for name in files]
        code, document = await setup.doctor("--no-cluster", *given)
    assert code == 4
    assert [problem for problem in (one["problem"] for one in document["findings"]) if found in problem]
    assert checks(document)[0][1] == ("tls" if len(files) < 3 else "called")


async def test_a_key_that_every_account_may_read_is_reported(tmp_path: Path) -> None:
    async with secured(tmp_path) as url:
        (tmp_path / "client.key").chmod(0o644)
        given = [f"--{name}-file={tmp_path / file}" for name, file in (("ca", "ca.crt"), ("key", "client.key"))]
        _, document = await Setup(Strict(), url, "", tmp_path).doctor("--no-cluster", *given)
    (found,) = [one for one in document["findings"] if one["check"] == "key"]
    assert (found["severity"], found["remedy"]) == ("warning", f"chmod 600 {tmp_path / 'client.key'}")


NO_NUMBER = 'spec.priority: Invalid value: "high": must be an integer'


async def test_policies_that_are_invalid_or_match_nothing_are_named(tmp_path: Path) -> None:
    async with set_up(tmp_path, pods=installed_policies(), policies=with_policies()) as setup:
        await kept(setup)
        code, document = await setup.doctor()
    assert code == 3
    assert [one["problem"] for one in document["findings"]] == [
        f"ClusterPodSchedulingPolicy/old is invalid, so it is not applied: {NO_NUMBER}",
        "PodSchedulingPolicy/default/idle matches no pod of the cluster",
    ]


async def test_each_kind_that_is_not_served_is_named_with_what_is_missing_then(tmp_path: Path) -> None:
    async with set_up(tmp_path, pods=installed_policies(), policies=with_policies()) as setup:
        await kept(setup)
        setup.api.lacks = frozenset({TOPOLOGY_DOMAINS, GROUP_PLACEMENTS, *OWN_POLICY_KINDS})
        _, document = await setup.doctor()
    found = {one["problem"].split()[-1]: one["remedy"] for one in document["findings"] if one["check"] == "crds"}
    assert found.keys() == {
        "topologydomains.placement.extender.dev",
        "groupplacements.placement.extender.dev",
        "podschedulingpolicies.placement.extender.dev",
        "clusterpodschedulingpolicies.placement.extender.dev",
    }
    assert all(remedy.startswith(APPLY_KINDS) for remedy in found.values())
    assert "no domain can be declared or excluded" in found["topologydomains.placement.extender.dev"]
    assert "no group of gated pods is released" in found["groupplacements.placement.extender.dev"]


async def test_a_webhook_that_the_api_server_cannot_call_is_found(tmp_path: Path) -> None:
    async with set_up(tmp_path, pods=installed_policies(), policies=with_policies()) as setup:
        await kept(setup)
        store = setup.api.store
        store.remove(VALIDATING_WEBHOOKS, "placement-extender")
        store.remove(SERVICES, f"default/{WEBHOOK}")
        other = Authority.make("other", now := datetime.now(UTC), 1).issue("other", now, 1, SERVER)
        data = {"tls.crt": base64.b64encode(other.certificate_pem).decode()}
        store.put(SECRETS, {**store.find(SECRETS, f"default/{WEBHOOK}").read(), "data": data})
        _, document = await setup.doctor()
    assert [one["problem"] for one in document["findings"] if one["check"] == "webhook"] == [
        "ValidatingWebhookConfiguration placement-extender does not exist: the API server calls no webhook",
        f"the caBundle of {MUTATING} does not verify the serving certificate: every call of the webhook fails",
        f"the Service default/{WEBHOOK} of the webhook does not exist",
    ]


async def test_an_address_without_a_webhook_is_reported_from_one_that_has_it(tmp_path: Path) -> None:
    async with set_up(tmp_path) as setup:
        found = [await asyncio.to_thread(webhook_fault, f"{setup.url}{path}", b"") for path in ("/nowhere", "/livez")]
    assert found == [("404 Not Found", True), ("", True)]


# -- groups of gated pods, and quotas ----------------------------------------------------------------------


async def test_a_group_that_is_held_longer_than_its_policy_allows_is_found(tmp_path: Path) -> None:
    objects = [*installed_policies(), POLICY, member("a-0", minutes=20), member("b-0", "b", minutes=2)]
    async with set_up(tmp_path, pods=objects, policies=with_policies()) as setup:
        _, document = await setup.doctor()
    (found,) = [one for one in document["findings"] if one["check"] == "gates"]
    assert found["problem"] == (
        "group shop/a (ClusterPodSchedulingPolicy/rings): 1 pod is held at its gate for 20 minutes, "
        "its time in release.noRoom is 10 minutes: 1 of 3 pods exists"
    )
    assert "release.size" in found["remedy"]


async def test_pods_that_no_policy_releases_are_found(tmp_path: Path) -> None:
    lost = member("lost", minutes=20)
    lost["spec"]["schedulingGates"] = [{"name": "placement.extender.dev/of-a-deleted-policy"}]
    async with set_up(tmp_path, pods=[*installed_policies(), POLICY, lost], policies=with_policies()) as setup:
        _, document = await setup.doctor()
    (found,) = [one for one in document["findings"] if one["check"] == "gates"]
    assert found["problem"].endswith("such as shop/lost (placement.extender.dev/of-a-deleted-policy)")

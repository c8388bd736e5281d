"""A real control plane on loopback: etcd and kube-apiserver, and kube-scheduler once a configuration is given.

Everything lives in one temporary folder and on free ports, and goes away with `stop`, also when starting has failed.
Admission that needs controllers we do not run (service accounts, node conditions as taints) is off, and so are the
limits on requests, which a load of thousands of pods would meet.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import secrets
import shutil
import ssl
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from tests.e2e.certificates import AUTHORITY, CERTIFICATE, KEY, TOKEN_KEY, TOKEN_PUBLIC_KEY, write_certificates
from tests.e2e.programs import NOT_TRIED, Program, free_ports

HOST = "127.0.0.1"
CONFIG = Path(__file__).resolve().parents[2] / "config"
# Only the manifests give permissions to this account.
EXTENDER_ACCOUNT = "system:serviceaccount:kube-system:placement-extender"
_DOCUMENT_FIELDS = {"percentageOfNodesToScore", "profiles"}
_NO_ADMISSION = "ServiceAccount,TaintNodesByCondition"
# The apiserver authorizes it by the roles that it makes itself, as in any cluster.
SCHEDULER_ACCOUNT = "system:kube-scheduler"
# Of all files only the scheduling cycle's speaks at level 3: one line when the scheduler takes up a pod. `judging.py`
# reads the order of decisions from it.
_LOG_CYCLES = "--vmodule=schedule_one=3"


# kube-scheduler as before 1.32, for `@pytest.mark.parametrize("scheduler_flags", HINTS_ON_AND_OFF)`: the gate is locked from
# 1.34 on.
WITHOUT_HINTS = ("--emulated-version=1.33", "--feature-gates=SchedulerQueueingHints=false")
# Only the newest binary emulates the version. Older ones have no hints by themselves, or are not tried without.
EMULATES = pytest.mark.needs(NOT_TRIED, scheduler=36)
HINTS_ON_AND_OFF = (pytest.param((), id="hints"), pytest.param(WITHOUT_HINTS, id="without hints", marks=EMULATES))


# One line for each write of pods and events that has been answered, with the client that made it.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [
                {"group": "", "resources": ["pods", "pods/status", "pods/binding", "pods/eviction", "events"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ],
        },
        {"level": "None"},
    ],
}


# Deny by default for pods with affinity across namespaces, as far as the API server can: a quota must name their scope.
_DENY_UNCOVERED = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "ResourceQuota",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "ResourceQuotaConfiguration",
                "limitedResources": [
                    {
                        "resource": "pods",
                        "matchScopes": [{"scopeName": "CrossNamespacePodAffinity", "operator": "Exists"}],
                    }
                ],
            },
        }
    ],
}


class ControlPlane:
    """The processes and how to reach them. `url`, `token` and `authority` are for clients, kubeconfigs for programs.

    `audited`: the apiserver writes down every write of pods and events in `audit_log`. `denies_uncovered`: it denies pods with
    affinity across namespaces where no quota names their scope (limitedResources). `versions`: by program another folder that it comes
    from, at its next start.
    """

    def __init__(
        self,
        assets: Path,
        *,
        audited: bool = False,
        denies_uncovered: bool = False,
        versions: Mapping[str, Path] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="placement-e2e-"))
        self.token = secrets.token_hex(16)
        self._extender_token = secrets.token_hex(16)
        self._scheduler_token = secrets.token_hex(16)
        etcd_port, peer_port, self._port = free_ports(3)
        self.url = f"https://{HOST}:{self._port}"
        self.kubeconfig = self.folder / "kubeconfig"
        self.extender_kubeconfig = self.folder / "extender.kubeconfig"
        self.authority = self.folder / AUTHORITY
        self.audit_log = self.folder / "audit.log"
        self._audited = audited
        self._denies_uncovered = denies_uncovered
        self._etcd_port = etcd_port
        self._assets = assets
        self.versions = dict(versions or {})
        self._scheduler_port = 0
        self.etcd = Program("etcd", self._etcd_command(peer_port), self.folder)
        self.apiserver = Program("kube-apiserver", [], self.folder)
        self.scheduler = Program("kube-scheduler", [], self.folder)

    # -- beginning and end --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start etcd and kube-apiserver; returns when objects can be written."""
        write_certificates(self.folder)
        tokens = [
            f'{self.token},e2e,e2e,"system:masters"',
            f"{self._scheduler_token},{SCHEDULER_ACCOUNT},scheduler",
            f"{self._extender_token},{EXTENDER_ACCOUNT},extender",
        ]
        (self.folder / "tokens.csv").write_text("\n".join(tokens), "utf-8")
        self._write_kubeconfig(self.kubeconfig, self.url, self.token)
        self._write_kubeconfig(self.extender_kubeconfig, self.url, self._extender_token)
        (self.folder / "audit-policy.yaml").write_text(yaml.safe_dump(_AUDIT_POLICY), "utf-8")
        (self.folder / "admission.yaml").write_text(yaml.safe_dump(_DENY_UNCOVERED), "utf-8")
        self.etcd.start(lambda: _answers(http.client.HTTPConnection(HOST, self._etcd_port, timeout=5), "/health"))
        self.start_apiserver()

    def write_access(self, url: str, for_scheduler: Path, for_extender: Path) -> None:
        """Write the kubeconfigs with which the two reach the apiserver at a URL, its own or that of a way round.

        Both with an account of their own: a client in `system:masters` is authorized without a look at the roles, which
        costs the apiserver less for each call.
        """
        self._write_kubeconfig(for_scheduler, url, self._scheduler_token)
        self._write_kubeconfig(for_extender, url, self._extender_token)

    def _write_kubeconfig(self, file: Path, url: str, token: str) -> None:
        file.write_text(yaml.safe_dump(self._access(url, token)), "utf-8")

    def start_apiserver(self) -> None:
        """Start it, for the first time or again on the same port and data."""
        self.apiserver.command = self._apiserver_command()
        # The namespace is written by a hook of the start, a moment after readyz.
        self.apiserver.start(lambda: self._answers("/readyz") and self._answers("/api/v1/namespaces/default"))

    def start_scheduler(self, document: Mapping[str, Any], *flags: str) -> None:
        """Start kube-scheduler with a KubeSchedulerConfiguration; returns when its caches are filled."""
        self._scheduler_port = self.run_scheduler(self.scheduler, document, *flags)

    def scheduling_time(self) -> tuple[float, int]:
        """Seconds in the scheduling algorithm until now, with the calls of extenders, and of how many pods that got a node.

        `scheduler_framework_extension_point_duration_seconds` does not tell: its Filter ends before extenders are called.
        """
        text = _text(_to_scheduler(self._scheduler_port), "/metrics")
        found = dict(
            re.findall(r"^scheduler_scheduling_algorithm_duration_seconds_(sum|count) (\S+)$", text, re.MULTILINE)
        )
        return float(found["sum"]), int(found["count"])

    def another_scheduler(self, name: str) -> Program:
        """A further kube-scheduler, for `run_scheduler`; the caller stops it."""
        return Program(f"kube-scheduler-{name}", [], self.folder)

    def run_scheduler(self, program: Program, document: Mapping[str, Any], *flags: str) -> int:
        """Start one of several; returns its port when its caches are filled."""
        (port,) = free_ports(1)
        file = self.folder / f"{program.name}.yaml"
        file.write_text(yaml.safe_dump(self._filled_in(document)), "utf-8")
        program.command = [
            str(self._program("kube-scheduler")),
            *(f"--config={file}", f"--bind-address={HOST}", f"--secure-port={port}"),
            f"--cert-dir={self.folder / f'{program.name}-certificates'}",
            "--authorization-always-allow-paths=/healthz,/metrics",
            _LOG_CYCLES,
            *flags,
        ]
        program.log_file.unlink(missing_ok=True)
        # kube-scheduler serves /readyz only since 1.31.
        program.start(lambda: _answers(_to_scheduler(port), "/healthz"))
        return port

    def stop(self) -> None:
        """End everything and remove the folder."""
        try:
            for program in (self.scheduler, self.apiserver, self.etcd):
                program.stop()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def compact(self) -> None:
        """Make etcd forget all history: a watch cache that starts afterwards knows no older resourceVersion."""
        key = base64.b64encode(b"any").decode()
        revision = self._call_etcd("/v3/kv/range", {"key": key})["header"]["revision"]
        self._call_etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    # -- commands -----------------------------------------------------------------------------------------------

    def _etcd_command(self, peer_port: int) -> list[str]:
        client, peer = f"http://{HOST}:{self._etcd_port}", f"http://{HOST}:{peer_port}"
        return [
            str(self._assets / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
            *("--unsafe-no-fsync", "--log-level=warn"),  # what it holds need not outlive it
        ]

    def _apiserver_command(self) -> list[str]:
        folder = self.folder
        return [
            str(self._program("kube-apiserver")),
            f"--etcd-servers=http://{HOST}:{self._etcd_port}",
            *(f"--bind-address={HOST}", f"--advertise-address={HOST}", f"--secure-port={self._port}"),
            *(f"--cert-dir={folder}", f"--tls-cert-file={folder / CERTIFICATE}"),
            f"--tls-private-key-file={folder / KEY}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={folder / TOKEN_PUBLIC_KEY}",
            f"--service-account-signing-key-file={folder / TOKEN_KEY}",
            *("--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none"),
            f"--disable-admission-plugins={_NO_ADMISSION}",
            "--enable-priority-and-fairness=false",
            *("--max-requests-inflight=0", "--max-mutating-requests-inflight=0"),
            *self._audit_flags(),
            *([f"--admission-control-config-file={folder / 'admission.yaml'}"] if self._denies_uncovered else []),
        ]

    def _program(self, name: str) -> Path:
        return self.versions.get(name, self._assets) / name

    def _audit_flags(self) -> list[str]:
        policy = self.folder / "audit-policy.yaml"
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"] if self._audited else []

    def _access(self, url: str, token: str) -> dict[str, Any]:
        cluster = {"server": url, "certificate-authority": str(self.authority)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
            "current-context": "e2e",
        }

    def _filled_in(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration with what only this control plane knows; its own client limits would bound the load."""
        filled = deepcopy(dict(document))
        client = {"kubeconfig": str(self.kubeconfig), "qps": 5000, "burst": 10000}
        filled["clientConnection"] = {**client, **filled.get("clientConnection", {})}
        filled.setdefault("leaderElection", {"leaderElect": False})
        return filled

    # -- looking ------------------------------------------------------------------------------------------------

    def _answers(self, path: str) -> bool:
        trust = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection(HOST, self._port, timeout=5, context=trust)
        return _answers(connection, path, {"Authorization": f"Bearer {self.token}"})

    def _call_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        connection = http.client.HTTPConnection(HOST, self._etcd_port, timeout=30)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def scheduler_document(mode: str, extender_url: str, **changes: Any) -> dict[str, Any]:
    """Our own configuration for kube-scheduler, with the extender's address.

    A change replaces a field of the document where it has one of that name, else of the extender's entry.
    """
    document: dict[str, Any] = yaml.safe_load((CONFIG / f"kube-scheduler-{mode}.yaml").read_text("utf-8"))
    del document["clientConnection"]  # kubeadm's kubeconfig; each control plane here has one of its own
    (entry,) = document["extenders"]
    entry["urlPrefix"] = extender_url
    for name, value in changes.items():
        (document if name in _DOCUMENT_FIELDS else entry)[name] = value
    return document


def _to_scheduler(port: int) -> http.client.HTTPSConnection:
    # It makes a certificate of its own for this one port of loopback.
    blind = ssl.create_default_context()
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(HOST, port, timeout=30, context=blind)


def _text(connection: http.client.HTTPConnection, path: str) -> str:
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def _answers(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] | None = None) -> bool:
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()

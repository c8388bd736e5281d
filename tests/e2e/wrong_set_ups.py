"""Wrong set-ups of real binaries, each with the findings that doctor is to report."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.simulator.json_objects import JsonObject, condition_of
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST, scheduler_document
from tests.e2e.overlays import installed
from tests.e2e.programs import our_command
from tests.e2e.serving import Extender
from tests.fakes import PATIENCE

SCHEDULER, ADMIN = "system:kube-scheduler", "placement-extender-admin"
Findings = list[dict[str, str]]


async def doctor(*arguments: str) -> Findings:
    """What it finds, the errors first."""
    command = our_command("doctor", "-o", "json", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    found: Findings = json.loads(out)["findings"]
    return found


def write(folder: Path, name: str, pair: Pair, authority: Authority) -> dict[str, str]:
    """A pair and the authority that signed it as files, by the names in tlsConfig."""
    files = {
        "caFile": (folder / f"{name}.ca.crt", authority.pair.certificate_pem),
        "certFile": (folder / f"{name}.crt", pair.certificate_pem),
        "keyFile": (folder / f"{name}.key", pair.key_pem),
    }
    for file, content in files.values():
        file.write_bytes(content)
        file.chmod(0o600)
    return {field: str(file) for field, (file, _) in files.items()}


class Certificates:
    """Files of two authorities. The extender's own certificate has ten days left, which every row shows."""

    def __init__(self, folder: Path) -> None:
        now = datetime.now(UTC)
        ours, other = (Authority.make(name, now - timedelta(days=30), 400) for name in ("ours", "other"))
        self._ours, self._folder = ours, folder
        self.server = write(folder, "server", ours.issue(HOST, now, 10.1, SERVER, [HOST]), ours)
        self.admin = write(folder, "admin", ours.issue(ADMIN, now, 90, CLIENT), ours)
        self.right = write(folder, "right", ours.issue(SCHEDULER, now, 90, CLIENT), ours)
        self.other = write(folder, "other", other.issue(SCHEDULER, now, 90, CLIENT), other)
        expired = ours.issue(SCHEDULER, now - timedelta(days=20), 10, CLIENT)
        self.expired = write(folder, "expired", expired, ours)
        self.soon = write(folder, "soon", ours.issue(SCHEDULER, now, 10.1, CLIENT), ours)

    def renew_server(self) -> None:
        """The extender reads the files by itself."""
        write(self._folder, "server", self._ours.issue(HOST, datetime.now(UTC), 90, SERVER, [HOST]), self._ours)


@dataclass(frozen=True)
class Row:
    """A wrong set-up of kube-scheduler: changes of its extenders entry, and what doctor says.

    ``path`` follows the extender's URL in urlPrefix, and ``host`` stands in it. ``found``: for each finding a part of its problem, and one of its remedy.
    """

    found: list[tuple[str, str]] = field(default_factory=list)
    entry: dict[str, Any] = field(default_factory=dict)
    tls: dict[str, str] = field(default_factory=dict)
    path: str = ""
    host: str = HOST
    is_bound: bool = False


CALLS = "kube-scheduler's calls fail, 1 pod waits: "
ENDED = f"{CALLS}the extender ends the connection: it rejects the scheduler's client certificate"
ROWS = {
    "right": Row(is_bound=True),
    "bindVerb without server.paths.bind": Row(
        [
            ("bindVerb is set, but the extender does not bind (server.paths.bind is empty)", "remove bindVerb"),
            (f"{CALLS}failed bind with extender at URL", "remove bindVerb or set server.paths.bind"),
        ],
        entry={"bindVerb": "bind"},
    ),
    "a path that the extender does not have": Row(
        [
            ("filterVerb leads to /v2/filter, but the extender answers at /filter", "equal to server.paths"),
            ("preemptVerb leads to /v2/preempt", "equal to server.paths"),
            (f"{CALLS}failed filter with extender at URL", "the extender answers at /filter, /prioritize, /preempt"),
        ],
        path="/v2",
    ),
    "a port where nothing listens": Row(
        [
            (f"{CALLS}nothing listens there", "correct the address and port in urlPrefix"),
        ],
        entry={"urlPrefix": f"https://{HOST}:1"},
    ),
    "the CA of another authority": Row(
        [
            (
                "tlsConfig of the scheduler does not have the CA that signed",
                "put the CA that signed server.tls.certFile",
            ),
            (f"{CALLS}tlsConfig of the scheduler does not have the CA", "put the CA that signed server.tls.certFile"),
        ],
        tls={"caFile": "other"},
    ),
    "a name that the extender's certificate lacks": Row(
        [
            (
                "the extender's certificate does not have the name in urlPrefix",
                "make one for that name (`extender certs",
            ),
            (f"{CALLS}the extender's certificate does not have the name in urlPrefix", "or use a name that it has"),
        ],
        host="localhost",
    ),
    "a client certificate of another authority": Row(
        [
            ("rejects the scheduler's client certificate: another authority", "put a certificate that this CA signed"),
            (ENDED, "put a certificate that this CA"),
        ],
        tls={"certFile": "other", "keyFile": "other"},
    ),
    "an expired client certificate": Row(
        [
            ("rejects the scheduler's client certificate: it has expired", "renew tlsConfig.certFile and keyFile"),
            (ENDED, "put a certificate that this CA"),
        ],
        tls={"certFile": "expired", "keyFile": "expired"},
    ),
    "a client certificate with ten days left": Row(
        [("the certificate in certFile of the scheduler's tlsConfig expires in 10 days", "restart kube-scheduler")],
        tls={"certFile": "soon", "keyFile": "soon"},
        is_bound=True,
    ),
    "a kubeconfig that is not there": Row(
        [("kube-scheduler has not tried 1 pod", "clientConnection.kubeconfig; /etc/kubernetes/nowhere.conf is not on")],
    ),
}
NOT_STARTED = "a kubeconfig that is not there"


def document_of(name: str, url: str, certificates: Certificates) -> JsonObject:
    """The scheduler's configuration of a row, with a profile of its own."""
    row = ROWS[name]
    tls = {field: getattr(certificates, row.tls.get(field, "right"))[field] for field in certificates.right}
    secure = {
        "urlPrefix": f"{url.replace(HOST, row.host)}{row.path}",
        "enableHTTPS": True,
        "tlsConfig": tls,
        **row.entry,
    }
    document = scheduler_document("offload", url, **secure)
    document["profiles"][0]["schedulerName"] = scheduler_of(name)
    document["leaderElection"] = {"resourceName": scheduler_of(name)}
    if name == NOT_STARTED:
        document["clientConnection"] = {"kubeconfig": "/etc/kubernetes/nowhere.conf"}
    return document


def scheduler_of(name: str) -> str:
    return name.lower().replace(" ", "-").replace(".", "-").replace("'", "")


def assert_named(name: str, shown: list[tuple[str, str]], expected: list[tuple[str, str]]) -> None:
    """Each of the findings that are expected is there, and no other."""
    left = list(shown)
    for problem, remedy in expected:
        found = [one for one in left if problem in one[0] and remedy in one[1]]
        assert found, (name, problem, left)
        left.remove(found[0])
    assert left == [], name


async def until_tried(cluster: Cluster, tried: JsonObject, *, is_bound: bool) -> None:
    """Return once its scheduler has bound it, or met an error."""
    if is_bound:
        await cluster.board.bound(tried)
        return
    path = f"/api/v1/namespaces/default/pods/{tried['metadata']['name']}"
    async with asyncio.timeout(PATIENCE):
        while True:
            found = condition_of(await cluster.api.request("GET", path), "PodScheduled")
            if found and found.get("reason") == "SchedulerError":
                return
            await asyncio.sleep(0.1)


async def examined(
    name: str,
    extender: Extender,
    document: JsonObject,
    certificates: Certificates,
    folder: Path,
    *,
    waits: bool = True,
) -> list[tuple[str, str]]:
    """The findings of a row; those of the scheduler that has not started once its pod has waited for long enough."""
    file = folder / f"{scheduler_of(name)}.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    admin = certificates.admin
    access = ["--ca-file", admin["caFile"], "--cert-file", admin["certFile"], "--key-file", admin["keyFile"]]
    async with asyncio.timeout(PATIENCE * 3):
        while True:
            found = await doctor("--url", extender.url, "--scheduler-config", str(file), *access)
            if name != NOT_STARTED or not waits or any("not tried" in one["problem"] for one in found):
                return [(one["problem"], one["remedy"]) for one in found if one["severity"] != "info"]


async def until_nothing_is_found(
    name: str, extender: Extender, document: JsonObject, certificates: Certificates, folder: Path
) -> None:
    """Return once doctor finds no fault of a row any more."""
    async with asyncio.timeout(PATIENCE):
        while await examined(name, extender, document, certificates, folder, waits=False):  # noqa: ASYNC110 -- no event across processes
            await asyncio.sleep(0.1)


# What the service sees in a pod: its account's folder and the address of the API server.
IN_A_POD = """
import sys
from extender.kube import credentials
credentials.ACCOUNT_FOLDER = sys.argv.pop(1)
from extender.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
OVERLAYS = {
    "service": ("placement-extender", "kube-scheduler.yaml"),
    "schedulers": ("placement-shared", "placement-scheduler-0.yaml"),
}


@contextmanager
def in_a_pod(cluster: Cluster, folder: Path, name: str, token: Path) -> Iterator[list[str]]:
    """The extender of an overlay as in a pod of its Deployment; yields doctor's arguments of an administrator elsewhere."""
    plane, (namespace, file) = cluster.plane, OVERLAYS[name]
    certificates, mounted = folder / "certificates", folder / "account"
    names = [HOST, f"placement-extender.{namespace}.svc"]
    subprocess.check_call(our_command("certs", "--out", str(certificates), "--names", *names))
    mounted.mkdir()
    access = yaml.safe_load(token.read_text("utf-8"))
    (mounted / "token").write_text(access["users"][0]["user"]["token"], "utf-8")
    (mounted / "ca.crt").write_bytes(plane.authority.read_bytes())
    (mounted / "namespace").write_text(namespace, "utf-8")
    host, _, port = plane.url.removeprefix("https://").partition(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    environment |= {"POD_NAME": "one", "POD_UID": "11111111-1111-4111-8111-111111111111", "POD_IP": "10.9.0.1"}
    settings = installed(name, "extender.yaml", certificates, plane) | {"logging": {"format": "text"}, "kube": {}}
    extender = Extender(folder, Path(), settings, certificates / "ca.crt", environment)
    (folder / "extender.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    extender.program.command[1:3] = ["-c", IN_A_POD, str(mounted)]
    scheduler = folder / "kube-scheduler.yaml"
    scheduler.write_text(yaml.safe_dump(installed(name, file, certificates, plane)), "utf-8")
    parts = {"ca": "ca.crt", "cert": "admin.crt", "key": "admin.key"}
    with extender:
        yield [
            *("--url", extender.url, "--scheduler-config", str(scheduler), "--kubeconfig", str(plane.kubeconfig)),
            *(f"--{part}-file={certificates / pem}" for part, pem in parts.items()),
            *("--config", str(folder / "extender.yaml")),
            *("--as", f"system:serviceaccount:{namespace}:placement-extender"),
        ]


async def eventually_found(expected: list[tuple[str, str, str]], *arguments: str, looks: int = 12) -> None:
    """Return once doctor says exactly that, besides what is information."""
    found: list[tuple[str, str, str]] = []
    for _ in range(looks):  # each takes a second or two; the service, and the apiserver's view of its roles, need some
        reported = [each for each in await doctor(*arguments) if each["severity"] != "info"]
        found = [(each["check"], each["problem"], each["remedy"]) for each in reported]
        if [each[0] for each in found] == [each[0] for each in expected] and all(
            problem in each[1] and remedy in each[2] for each, (_, problem, remedy) in zip(found, expected, strict=True)
        ):
            return
    raise AssertionError(found)


LEASE = "where deploy/base/lease.yaml grants it: `kubectl apply -k"
LEASE_DENIED = [
    ("ready", "readiness check leadership fails: standby, no replica leads; 403", LEASE),
    ("writes", "the API server forbids the service's call get_lease", LEASE),
    *(
        ("permissions", f"the account may not {verb} leases.coordination.k8s.io", LEASE)
        for verb in ("get", "update", "create")
    ),
    ("lease", "no replica holds the Lease, so none answers", "see the logs of the replicas"),
]
LEADER = "where deploy/overlays/service/leader.yaml grants it: `kubectl apply -k"
SLICE_DENIED = [
    ("writes", "the API server forbids the service's call", LEADER),
    *(
        ("permissions", f"the account may not {verb} endpointslices.discovery.k8s.io", LEADER)
        for verb in ("get", "update", "create", "delete")
    ),
]

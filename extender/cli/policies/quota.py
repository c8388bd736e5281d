"""`extender quota`: reports what affinity across namespaces does in a cluster, and writes objects that limit it at admission.

Changes nothing. The objects are those of a snapshot, or of a cluster by a kubeconfig. Exit codes: 0 reported or written, 1 the
objects cannot be read, 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any, Final

import orjson
import yaml

from extender.cli.command import CommandError, Commands
from extender.cli.files import access_to, read_bytes, read_settings
from extender.cli.policies.quota_report import write_report
from extender.compose.process import run_on_loop
from extender.doctor.quota_report import quota_report
from extender.kube.errors import KubeError, NotFound, Rejected
from extender.kube.listing import read_list
from extender.kube.session import open_session
from extender.kube.timing import SystemClock
from extender.model.constraints.labels import is_dns_label
from extender.model.objects import Namespace
from extender.model.policies import JsonObject
from extender.settings.configuration import Settings
from extender.settings.connections import Kube
from extender.verbs.admit.native import native_quotas
from extender.wire.errors import WireError
from extender.wire.manifests import Snapshot, decode_snapshot

_PATHS: Final = {
    ("v1", "Node"): "/api/v1/nodes",
    ("v1", "Namespace"): "/api/v1/namespaces",
    ("v1", "Pod"): "/api/v1/pods",
    ("v1", "ResourceQuota"): "/api/v1/resourcequotas",
    ("v1", "ReplicationController"): "/api/v1/replicationcontrollers",
    ("apps/v1", "ReplicaSet"): "/apis/apps/v1/replicasets",
    ("apps/v1", "Deployment"): "/apis/apps/v1/deployments",
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/statefulsets",
    ("apps/v1", "DaemonSet"): "/apis/apps/v1/daemonsets",
    ("batch/v1", "Job"): "/apis/batch/v1/jobs",
    ("batch/v1", "CronJob"): "/apis/batch/v1/cronjobs",
}
_NEEDED: Final = frozenset({"Node", "Namespace", "Pod", "ResourceQuota"})
_KUBECTL: Final = (
    "kubectl get nodes,namespaces,pods,resourcequotas,deployments,statefulsets,daemonsets,jobs,cronjobs -A -o json"
)


def add_parser(commands: Commands) -> None:
    """Adds the parser."""
    quota = commands.add_parser("quota", help="report and limit affinity across namespaces")
    actions = quota.add_subparsers(title="actions", metavar="ACTION", required=True)
    report = actions.add_parser(
        "report", help="show pods with affinity across namespaces, and what they close to others"
    )
    report.add_argument(
        "--limit", metavar="K", type=int, help="also show which pods a limit of K for each namespace refuses"
    )
    report.add_argument("-o", "--output", choices=["table", "json"], default="table", help="form of the report")
    report.set_defaults(run=run_report, wrong_usage=report.error)
    generate = actions.add_parser(
        "generate", help="write ResourceQuotas, and an admission policy that denies by default"
    )
    generate.add_argument(
        "--allow",
        metavar="NS=K",
        action="append",
        default=[],
        help="a namespace that may have K such pods (repeatable)",
    )
    generate.add_argument("--audit", action="store_true", help="let the policy warn and record, and refuse nothing")
    generate.set_defaults(run=run_generate, wrong_usage=generate.error)
    for parser, is_needed in ((report, True), (generate, False)):
        source = parser.add_mutually_exclusive_group(required=is_needed)
        source.add_argument("--snapshot", metavar="FILE", help=_KUBECTL)
        source.add_argument("--kubeconfig", metavar="FILE", help="read the objects of this cluster")
        parser.add_argument("--config", metavar="FILE", help="configuration of the extender (default: all defaults)")


def run_report(arguments: argparse.Namespace) -> int:
    """Prints the report. Wrong usage ends the process with 2."""
    if arguments.limit is not None and arguments.limit < 0:
        arguments.wrong_usage("--limit: must not be negative")
    settings = _settings(arguments)
    source, body = _objects(arguments)
    snapshot = _decoded(source, body, settings)
    write_report(quota_report(snapshot.objects, _items(body), settings.quota, arguments.limit), arguments.output)
    return 0


def run_generate(arguments: argparse.Namespace) -> int:
    """Prints the objects as YAML. Wrong usage ends the process with 2."""
    allowed: dict[str, int] = {}
    for each in arguments.allow:
        name, _, number = each.partition("=")
        if not is_dns_label(name) or not number.isdecimal():
            arguments.wrong_usage(f'--allow: expected NAMESPACE=NUMBER, such as "team-a=10", got "{each}"')
        if name in allowed:
            arguments.wrong_usage(f"--allow: {name} is given twice")
        allowed[name] = int(number)
    settings = _settings(arguments)
    names: list[str] = []
    if arguments.snapshot or arguments.kubeconfig:
        source, body = _objects(arguments)
        names = [each.name for each in _decoded(source, body, settings).objects if isinstance(each, Namespace)]
        for name in allowed.keys() - set(names):
            raise CommandError(f"{source}: namespace {name} of --allow does not exist")
    documents = native_quotas(names, allowed, settings.quota, audits=arguments.audit)
    print(yaml.safe_dump_all(documents, sort_keys=False, width=1000), end="")
    return 0


def _settings(arguments: argparse.Namespace) -> Settings:
    return read_settings(arguments.config) if arguments.config else Settings()


def _objects(arguments: argparse.Namespace) -> tuple[str, bytes]:
    """Where the objects come from, and a list of them."""
    if arguments.snapshot:
        return arguments.snapshot, read_bytes(arguments.snapshot)
    try:
        return arguments.kubeconfig, run_on_loop(_read_cluster(Kube(kubeconfig=arguments.kubeconfig)))
    except KubeError as error:
        raise CommandError(f"{arguments.kubeconfig}: {error}") from None


async def _read_cluster(kube: Kube) -> bytes:
    """The objects of a cluster in the form of a snapshot. Workloads that may not be read are left out, with a line."""
    items: list[JsonObject] = []
    async with open_session(access_to(kube), SystemClock()) as session:
        for (version, kind), path in _PATHS.items():
            try:
                found = await read_list(session.reads, path)
            except (Rejected, NotFound) as error:
                if kind in _NEEDED:
                    raise
                print(f"{kind}: left out: {error}", file=sys.stderr)
                continue
            items += ({**orjson.loads(each), "apiVersion": version, "kind": kind} for each in found)
    return orjson.dumps({"kind": "List", "items": items})


def _decoded(source: str, body: bytes, settings: Settings) -> Snapshot:
    try:
        snapshot = decode_snapshot(body, settings.limits)
    except WireError as error:
        raise CommandError(f"{source}: {error}") from None
    for problem in snapshot.unreadable:
        print(f"{source}: skipped: {problem}", file=sys.stderr)
    return snapshot


def _items(body: bytes) -> Iterator[JsonObject]:
    """The objects of a list as JSON. A body that only the decoder of snapshots can read has none."""
    try:
        listed: Any = orjson.loads(body)
    except ValueError:
        return
    yield from (each for each in listed.get("items") or () if isinstance(each, dict))

"""`extender quota`: reports what affinity across namespaces does in a cluster, and writes objects that limit it at admission.

Changes nothing. The objects come from a snapshot, or from a cluster by a kubeconfig. Exit codes: 0 reported or written, 1 the
objects cannot be read, 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from extender.cli.files import read_listed
from extender.cli.main import CommandError, Commands
from extender.cli.parser import add_cluster
from extender.cli.sources import (
    add_config,
    add_output,
    cluster_of,
    decoded,
    print_answer,
    print_yaml,
    read_cluster,
    settings_of,
    table,
)
from extender.features.quotas.native import native_quotas
from extender.features.quotas.report import PodsInScope, QuotaReport, quota_report
from extender.model.constraints.labels import is_dns_label
from extender.model.objects import Namespace
from extender.model.units import listed
from extender.wire.snapshots import objects_of

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
    quota = commands.add_parser(
        "quota", help="report and limit affinity across namespaces", examples=["report", "generate --allow shop=50"]
    )
    actions = quota.add_subparsers(title="actions", metavar="ACTION", required=True)
    report = actions.add_parser(
        "report",
        help="show pods with affinity across namespaces, and what they close to others",
        examples=["--limit 50"],
    )
    report.add_argument(
        "--limit", metavar="K", type=int, help="also show which pods a limit of K for each namespace refuses"
    )
    add_output(report)
    report.set_defaults(run=run_report, wrong_usage=report.error)
    generate = actions.add_parser(
        "generate",
        help="write ResourceQuotas, and an admission policy that denies by default",
        examples=["--allow shop=50 --audit"],
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
    for parser, default in ((report, "as kubectl"), (generate, "none is read")):
        source = parser.add_mutually_exclusive_group()
        source.add_argument("--snapshot", metavar="FILE", help=_KUBECTL)
        add_cluster(parser, source, f"read the objects of this cluster ({default})")
        add_config(parser)


def run_report(arguments: argparse.Namespace) -> int:
    """Prints the report. Wrong usage ends the process with 2."""
    if arguments.limit is not None and arguments.limit < 0:
        arguments.wrong_usage("--limit: must not be negative")
    settings = settings_of(arguments)
    source, body = _objects(arguments)
    snapshot = decoded(source, body, settings.limits)
    report = quota_report(snapshot.objects, objects_of(body), settings.quota, arguments.limit)
    print_answer(report, arguments.output, _lines)
    return 0


def run_generate(arguments: argparse.Namespace) -> int:
    """Prints the objects as YAML. Wrong usage ends the process with 2."""
    allowed: dict[str, int] = {}
    for text in arguments.allow:
        name, _, number = text.partition("=")
        if not is_dns_label(name) or not number.isdecimal():
            arguments.wrong_usage(f'--allow: expected NAMESPACE=NUMBER, such as "team-a=10", got "{text}"')
        if name in allowed:
            arguments.wrong_usage(f"--allow: {name} is given twice")
        allowed[name] = int(number)
    settings = settings_of(arguments)
    names: list[str] = []
    if arguments.snapshot or arguments.kubeconfig:
        source, body = _objects(arguments)
        names = [obj.name for obj in decoded(source, body, settings.limits).objects if isinstance(obj, Namespace)]
        # A typing error in a name would deny a tenant everything, because the written policy denies by default.
        for name in allowed.keys() - set(names):
            raise CommandError(f"{source}: namespace {name} of --allow does not exist")
    documents = native_quotas(names, allowed, settings.quota, audits=arguments.audit)
    print_yaml(*documents)
    return 0


def _objects(arguments: argparse.Namespace) -> tuple[str, bytes]:
    if arguments.snapshot:
        return arguments.snapshot, read_listed(arguments.snapshot)
    # Workloads only show what would come. A user who may not list them still gets the report on pods.
    optional = {kind for _, kind in _PATHS} - _NEEDED
    return arguments.kubeconfig or "the cluster", read_cluster(cluster_of(arguments), _PATHS, optional)


_SHOWN: Final = 3


def _lines(report: QuotaReport, is_wide: bool) -> Iterator[str]:  # noqa: FBT001 (for print_answer)
    for title, headings, rows in _tables(report, sys.maxsize if is_wide else _SHOWN):
        if rows:
            yield from (title, *table([headings, *rows], indent=""), "")
    yield from _summary(report)


def _tables(report: QuotaReport, most: int) -> Iterator[tuple[str, Sequence[str], list[Sequence[str]]]]:
    """``most``: so many names in a cell."""
    headings = ["namespace", "placed", "pending", "limit", "closes nodes"]
    rows: list[Sequence[str]] = []
    for row in report.namespaces:
        limit = "exempt" if row.is_exempt else _number(row.limit)
        cells = [row.namespace, str(row.placed), str(row.pending), limit, str(row.closed_nodes)]
        # The headings of these two cells are added below, under the same condition.
        rows.append(cells + ([] if report.limit is None else [str(row.over), listed(row.refused, most=most)]))
    if report.limit is not None:
        headings += [f"placed over {report.limit}", "refused"]
    yield "Namespaces", headings, rows
    headings = [
        "pod",
        "placed",
        "pending",
        "closes nodes",
        "to namespaces",
        "terms",
    ]  # the longest last: no heading wraps
    yield "Pods with affinity across namespaces", headings, [_pods(row, most) for row in report.pods]
    rows = [[row.object, str(row.terms)] for row in report.templates]
    yield "Workloads whose pods would have it", ["workload", "terms"], rows
    rows = [[row.quota, _number(row.limit), str(row.charged), str(row.in_scope), row.problem] for row in report.quotas]
    yield "Quotas of the scope", ["quota", "limit", "charges", "of", "problem"], rows


def _pods(row: PodsInScope, most: int) -> Sequence[str]:
    terms = "; ".join(f"{term.list} by {term.topology_key} reaches {term.reaches}" for term in row.terms)
    more = f" and {row.placed + row.pending - 1} more" if row.placed + row.pending > 1 else ""
    name = f"{row.namespace}/{row.example}{more}"
    return [
        name,
        str(row.placed),
        str(row.pending),
        str(row.closed_nodes),
        listed(row.closed_to, most=most),
        terms or "none reaches another namespace",
    ]


def _number(limit: int | None) -> str:
    return "none" if limit is None else str(limit)


def _summary(report: QuotaReport) -> Iterator[str]:
    placed, pending = (sum(getattr(row, name) for row in report.namespaces) for name in ("placed", "pending"))
    yield (
        f"{placed + pending} pods with affinity across namespaces, {placed} placed; {len(report.templates)} workloads"
    )
    if report.without_quota:
        yield f"no quota limits their number in: {', '.join(report.without_quota)}"
    if report.limit is not None:
        refused = sum(len(row.refused) for row in report.namespaces)
        over = sum(row.over for row in report.namespaces)
        yield f"with a limit of {report.limit}: {refused} pending pods refused, {over} placed pods over it stay"

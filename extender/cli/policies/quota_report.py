"""What `extender quota report` prints: tables for people, JSON for scripts."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from extender.doctor.quota_report import PodsInScope, QuotaReport

_WIDTH: Final = 200
_SHOWN: Final = 3


def write_report(report: QuotaReport, form: str) -> None:
    """Prints a report."""
    if form == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
        sys.stdout.buffer.flush()
        return
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    for title, headings, rows in _tables(report):
        if rows:
            console.print(_table(title, headings, rows), "", markup=False)
    console.print(_summary(report), markup=False, soft_wrap=True)


def _tables(report: QuotaReport) -> Iterable[tuple[str, Sequence[str], list[Sequence[str]]]]:
    headings = ["namespace", "placed", "pending", "limit", "closes nodes"]
    rows: list[Sequence[str]] = [
        [
            each.namespace,
            str(each.placed),
            str(each.pending),
            _limit(each.limit, each.is_exempt),
            str(each.closed_nodes),
        ]
        + ([] if report.limit is None else [str(each.over), _names(each.refused)])
        for each in report.namespaces
    ]
    if report.limit is not None:
        headings += [f"placed over {report.limit}", "refused"]
    yield "Namespaces", headings, rows
    yield (
        "Pods with affinity across namespaces",
        ["pod", "placed", "pending", "terms", "closes nodes", "to namespaces"],
        [_pods(each) for each in report.pods],
    )
    yield (
        "Workloads whose pods would have it",
        ["workload", "terms"],
        [[each.object, str(each.terms)] for each in report.templates],
    )
    yield (
        "Quotas of the scope",
        ["quota", "limit", "charges", "of", "problem"],
        [
            [each.quota, _limit(each.limit), str(each.charged), str(each.in_scope), each.problem]
            for each in report.quotas
        ],
    )


def _pods(row: PodsInScope) -> Sequence[str]:
    terms = "; ".join(f"{each.list} by {each.topology_key} reaches {each.reaches}" for each in row.terms)
    more = f" and {row.placed + row.pending - 1} more" if row.placed + row.pending > 1 else ""
    name = f"{row.namespace}/{row.example}{more}"
    return [
        name,
        str(row.placed),
        str(row.pending),
        terms or "none reaches another namespace",
        str(row.closed_nodes),
        _names(row.closed_to),
    ]


def _limit(limit: int | None, is_exempt: bool = False) -> str:  # noqa: FBT001, FBT002 (one word in a table)
    return "exempt" if is_exempt else "none" if limit is None else str(limit)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _summary(report: QuotaReport) -> str:
    placed, pending = (sum(getattr(each, name) for each in report.namespaces) for name in ("placed", "pending"))
    lines = [
        f"{placed + pending} pods with affinity across namespaces, {placed} placed; {len(report.templates)} workloads"
    ]
    if report.without_quota:
        lines.append(f"no quota limits their number in: {', '.join(report.without_quota)}")
    if report.limit is not None:
        refused = sum(len(each.refused) for each in report.namespaces)
        over = sum(each.over for each in report.namespaces)
        lines.append(f"with a limit of {report.limit}: {refused} pending pods refused, {over} placed pods over it stay")
    return "\n".join(lines)

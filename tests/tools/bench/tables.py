"""Formats results as tables with one row per point, and the ratios to an earlier run. Pure.

Times are in milliseconds unless their name has another unit. Called by the command line, which prints them.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table

from tests.tools.bench.results import Compared, Results, Row, typical
from tests.tools.bench.scenario import DIMENSIONS

# By title: the figures, each a column of its own; `a/b` is a ratio. Later parts of a name stand for the name before: `.p99`.
_SECTIONS: Final = {
    "Requests": "filter.p50 .p99 .max cpu.p50 .p99 echo.p50 .p99 filter.p50/echo.p50 filter.p50/echoAll.p50 share.decode .decide "
    ".encode prioritize.p50 prioritize.p50/prioritizeEcho.p50 requestsPerSecond bytesIn bytesOut rejectedShare",
    "Beside an echo without a framework": "oneNameShare beside.p50 bareEcho.p50 beside.p50/bareEcho.p50 pod.cpu bareEcho.cpu "
    "pod.cpu/bareEcho.cpu toWin.cpu",
    "Pairs: with / control, in turns": "ofControl.cpu .filter .decide .event",
    "Cluster": "load ready rss rssPeak first.p50 .max event.p50 .max pause.p99 .max pauseWall.max busyShare",
    "Scale": "readyPer100kPods readyCpu listPause.max relabelPods.max restorePods.max taintZones.max loseZones.max "
    "returnZones.max churn.max relist.max scrape.max auditStep.max longestPause relist.peak auditSeconds takeover.seconds "
    ".cpu .lists",
    "Probes": "apply.eventsPerSecond applyDecode.mean watch.eventsPerSecond floodPause.max relistPause.max retry.mean "
    "retrySame.mean relabel.max .pods relabelPause.max policies.unmatched .selected decision.p50 .max gang.bytesPerPod "
    ".eventsPerSecond besideGangs.events .filter hostile.max .slowdown .rss tenant.slowdown .waiting reaching.slowdown "
    ".added .waiting",
    "Modes": "bound.perSecond boundOfDecisive decided.perSecond decidedOfDecisive waited.share .mean .seconds .timeouts "
    "extenderCpu.perPod clusterCpu.perPod pending violations",
}
_WHOLE_FROM: Final = 100
_SHARES: Final = (
    "share.",
    "busyShare",
    "rejectedShare",
    "oneNameShare",
    "waited.share",
    "tenant.waiting",
    "reaching.waiting",
)
_RATIOS: Final = (
    *("filter.p50", "filter.p99", "decide.p50", "echo.p50", "prioritize.p50", "event.p50"),
    *("rss", "load", "ready", "bound.perSecond", "decided.perSecond"),
)


def tables(results: Results) -> Iterator[Table]:
    """Every section and column that has figures."""
    for title, names in _SECTIONS.items():
        shown = [figure for figure in _written_out(names) if any(_text(row, figure) for row in results.rows)]
        rows = [row for row in results.rows if any(_text(row, figure) for figure in shown)]
        if shown:
            places = _places(rows)
            table = _empty(title if "/" in title else f"{title} (ms)", places, shown)
            for row in rows:
                table.add_row(*_names(row, places), *(_text(row, figure) for figure in shown))
            yield table


def _written_out(names: str) -> list[str]:
    found: list[str] = []
    for name in names.split():
        found.append(found[-1].partition(".")[0] + name if name.startswith(".") else name)
    return found


def ratio_table(compared: Sequence[Compared]) -> Table:
    """New / old for each row of both runs, and their geometric mean."""
    columns = [name for name in _RATIOS if typical(compared, name) is not None]
    places = _places([each.row for each in compared])
    table = _empty("New / old", places, columns)
    for each in compared:
        table.add_row(*_names(each.row, places), *(_ratio(each.ratios.get(name)) for name in columns))
    table.add_section()
    table.add_row("all", *[""] * (len(places) + 1), *(_ratio(typical(compared, name)) for name in columns))
    return table


def _empty(title: str, places: Sequence[str], headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in ("scenario", "via", *places):
        table.add_column(heading, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _places(rows: Sequence[Row]) -> list[str]:
    """The dimensions that any of the rows has."""
    return [name for name in DIMENSIONS if any(name in row.place for row in rows)]


def _names(row: Row, places: Sequence[str]) -> list[str]:
    return [row.scenario, row.via, *(str(row.place.get(name, "")) for name in places)]


def _text(row: Row, figure: str) -> str:
    part, _, whole = figure.partition("/")
    value, base = row.figures.get(part), row.figures.get(whole)
    if value is None or (whole and not base):
        return ""
    if base:
        return f"{value / base:.2f}"
    if figure.startswith(_SHARES):
        return f"{value:.0%}"
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

"""Formats results as tables with one row per point, and the ratios to an earlier run. Pure.

Times are in milliseconds unless the heading has another unit. Called by the command line, which prints them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from rich.table import Table

from tests.tools.bench.results import Compared, Results, Row, typical
from tests.tools.bench.scenario import DIMENSIONS

# Heading and figure; a pair of figures is shown as their ratio.
_Column = tuple[str, str | tuple[str, str]]

_REQUESTS: Final[tuple[_Column, ...]] = (
    ("filter p50", "filter.p50"),
    ("p99", "filter.p99"),
    ("max", "filter.max"),
    ("cpu p50", "cpu.p50"),
    ("p99", "cpu.p99"),
    ("echo p50", "echo.p50"),
    ("p99", "echo.p99"),
    ("× echo", ("filter.p50", "echo.p50")),
    ("× echo of all", ("filter.p50", "echoAll.p50")),
    ("decode", "share.decode"),
    ("decide", "share.decide"),
    ("encode", "share.encode"),
    ("prioritize p50", "prioritize.p50"),
    ("× echo", ("prioritize.p50", "prioritizeEcho.p50")),
    ("requests/s", "requestsPerSecond"),
    ("bytes in", "bytesIn"),
    ("out", "bytesOut"),
    ("rejected", "rejectedShare"),
)
_CLUSTER: Final[tuple[_Column, ...]] = (
    ("load s", "load"),
    ("ready s", "ready"),
    ("MB", "rss"),
    ("peak", "rssPeak"),
    ("first p50", "first.p50"),
    ("first max", "first.max"),
    ("event p50", "event.p50"),
    ("event max", "event.max"),
    ("pause p99", "pause.p99"),
    ("pause max", "pause.max"),
    ("wall max", "pauseWall.max"),
    ("busy", "busyShare"),
)
_PROBES: Final[tuple[_Column, ...]] = (
    ("events/s", "apply.eventsPerSecond"),
    ("decode µs", "applyDecode.mean"),
    ("by watch/s", "watch.eventsPerSecond"),
    ("flood pause", "floodPause.max"),
    ("relist pause", "relistPause.max"),
    ("retry mean", "retry.mean"),
    ("same names", "retrySame.mean"),
    ("relabel max", "relabel.max"),
    ("relabel pods", "relabel.pods"),
    ("relabel pause", "relabelPause.max"),
    ("200 policies ×", "policies.unmatched"),
    ("one selects ×", "policies.selected"),
    ("decision p50", "decision.p50"),
    ("max", "decision.max"),
    ("bytes/gated pod", "gang.bytesPerPod"),
    ("gated events/s", "gang.eventsPerSecond"),
    ("others' events ×", "besideGangs.events"),
    ("others' filter ×", "besideGangs.filter"),
    ("hostile max", "hostile.max"),
    ("× alone", "hostile.slowdown"),
    ("hostile MB", "hostile.rss"),
    ("tenant × alone", "tenant.slowdown"),
    ("waiting", "tenant.waiting"),
    ("reaching × alone", "reaching.slowdown"),
    ("adds", "reaching.added"),
    ("waiting", "reaching.waiting"),
)
_MODES: Final[tuple[_Column, ...]] = (
    ("bound/s", "bound.perSecond"),
    ("× decisive", "boundOfDecisive"),
    ("decided/s", "decided.perSecond"),
    ("× decisive", "decidedOfDecisive"),
    ("waited", "waited.share"),
    ("mean wait", "waited.mean"),
    ("waited s", "waited.seconds"),
    ("timed out", "waited.timeouts"),
    ("extender CPU/pod", "extenderCpu.perPod"),
    ("cluster CPU/pod", "clusterCpu.perPod"),
    ("pending", "pending"),
    ("violations", "violations"),
)
_SCALE: Final[tuple[_Column, ...]] = (
    ("ready s/100,000 pods", "readyPer100kPods"),
    ("CPU s", "readyCpu"),
    ("pauses: list", "listPause.max"),
    ("relabel", "relabelPods.max"),
    ("restore", "restorePods.max"),
    ("zones tainted", "taintZones.max"),
    ("lost", "loseZones.max"),
    ("back", "returnZones.max"),
    ("churn", "churn.max"),
    ("relist", "relist.max"),
    ("scrape", "scrape.max"),
    ("audit step", "auditStep.max"),
    ("longest", "longestPause"),
    ("relist peak ×", "relist.peak"),
    ("audit s", "auditSeconds"),
    ("takeover s", "takeover.seconds"),
    ("CPU s", "takeover.cpu"),
    ("lists", "takeover.lists"),
)
_SECTIONS: Final = (
    ("Requests", _REQUESTS),
    ("Cluster", _CLUSTER),
    ("Scale", _SCALE),
    ("Probes", _PROBES),
    ("Modes", _MODES),
)
_WHOLE_FROM: Final = 100
_SHARES: Final = ("share.", "busyShare", "rejectedShare", "waited.share", "tenant.waiting", "reaching.waiting")
_RATIOS: Final = (
    "filter.p50",
    "filter.p99",
    "decide.p50",
    "echo.p50",
    "prioritize.p50",
    "event.p50",
    "rss",
    "load",
    "ready",
    "bound.perSecond",
    "decided.perSecond",
)


def tables(results: Results) -> Iterable[Table]:
    """Every section and column that has figures."""
    for title, columns in _SECTIONS:
        shown = [column for column in columns if any(_value(row, column[1]) is not None for row in results.rows)]
        rows = [row for row in results.rows if any(_value(row, column[1]) is not None for column in shown)]
        if shown:
            yield _table(f"{title} (ms)", shown, rows)


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


def _table(title: str, columns: Sequence[_Column], rows: Sequence[Row]) -> Table:
    places = _places(rows)
    table = _empty(title, places, [heading for heading, _ in columns])
    for row in rows:
        table.add_row(*_names(row, places), *(_text(row, figure) for _, figure in columns))
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


def _value(row: Row, figure: str | tuple[str, str]) -> float | None:
    if isinstance(figure, str):
        return row.figures.get(figure)
    part, whole = (row.figures.get(name) for name in figure)
    return part / whole if part is not None and whole else None


def _text(row: Row, figure: str | tuple[str, str]) -> str:
    value = _value(row, figure)
    if value is None:
        return ""
    if not isinstance(figure, str):
        return f"{value:.2f}"
    if figure.startswith(_SHARES):
        return f"{value:.0%}"
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"

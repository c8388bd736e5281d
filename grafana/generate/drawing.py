"""Draws a dashboard as SVG: its panels, the curves of their series, their units, and the few forms that they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from statistics import fmean

from grafana.generate.panels import Json

Point = tuple[float, float]

_LETTER = 0.52  # of the font's size: the mean width of a letter in a sans-serif font


@dataclass(frozen=True, slots=True)
class Box:
    """A place in the picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height

    def parts(self, number: int, narrowest: float) -> list[Box]:
        """As many equal boxes beside each other, or below each other where they would be too narrow."""
        if self.width / number >= narrowest:
            width = self.width / number
            return [Box(self.x + width * place, self.y, width, self.height) for place in range(number)]
        height = self.height / number
        return [Box(self.x, self.y + height * place, self.width, height) for place in range(number)]


_NARROWEST = 90.0
_BIG = 33.0  # the size of a figure that stands alone, and a tenth for bold letters
_LOWEST = 52.0  # a name and a figure below it


def text(at: Point, content: str, kind: str, color: str = "") -> str:
    """A line of text; `kind` is a class of the style sheet."""
    fill = f' fill="{color}"' if color else ""
    return f'<text class="{kind}" x="{_number(at[0])}" y="{_number(at[1])}"{fill}>{escape(content)}</text>'


def rectangle(box: Box, kind: str, color: str = "") -> str:
    """A filled place."""
    fill = f' fill="{color}"' if color else ""
    size = f'width="{_number(box.width)}" height="{_number(box.height)}"'
    return f'<rect class="{kind}" x="{_number(box.x)}" y="{_number(box.y)}" {size}{fill}/>'


def line(points: Iterable[Point], kind: str, color: str = "") -> str:
    """A line through points; one point alone is a dot."""
    stroke = f' stroke="{color}"' if color else ""
    return f'<path class="{kind}"{stroke} d="{_path(points)}"/>'


def area(points: Iterable[Point], kind: str, color: str) -> str:
    """What lies within a closed line."""
    return f'<path class="{kind}" fill="{color}" d="{_path(points)}Z"/>'


def shortened(content: str, width: float, size: float) -> str:
    """The text, cut where it would not fit."""
    fits = int(width / (size * _LETTER))
    return content if len(content) <= fits else content[: fits - 1] + "…"


def _width(content: str, size: float) -> float:
    return len(content) * size * _LETTER


def _path(points: Iterable[Point]) -> str:
    kept = _without_straight(list(points))
    rest = "".join(f"L{_number(x)} {_number(y)}" for x, y in kept[1:]) or "h0"
    return f"M{_number(kept[0][0])} {_number(kept[0][1])}{rest}"


def _without_straight(points: Sequence[Point]) -> list[Point]:
    """Without the points between others of the same height: a flat line has two."""
    last = len(points) - 1
    return [
        point
        for place, point in enumerate(points)
        if place in {0, last} or not points[place - 1][1] == point[1] == points[place + 1][1]
    ]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True, slots=True)
class Scale:
    """What a number is divided by, and what is written behind it."""

    factor: float
    sign: str

    def write(self, value: float) -> str:
        """The number with at most three digits that say something."""
        scaled = abs(value / self.factor)
        if scaled == 0:
            digits = 0
        elif scaled < 0.1:
            return f"{value / self.factor:.2g}{self.sign}"
        else:
            digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
        text = f"{value / self.factor:.{digits}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text) + self.sign


_KIBI = 1024.0
_SCALES: dict[str, Sequence[Scale]] = {
    "short": (Scale(1, ""), Scale(1e3, " K"), Scale(1e6, " Mil")),
    "s": (
        Scale(1e-6, " µs"),
        Scale(1e-3, " ms"),
        Scale(1, " s"),
        Scale(60, " min"),
        Scale(3600, " h"),
        Scale(86400, " days"),
    ),
    "bytes": (Scale(1, " B"), Scale(_KIBI, " KiB"), Scale(_KIBI**2, " MiB"), Scale(_KIBI**3, " GiB")),
    "Bps": (Scale(1, " B/s"), Scale(1e3, " kB/s"), Scale(1e6, " MB/s")),
    "reqps": (Scale(1, " req/s"), Scale(1e3, " kreq/s")),
    "ops": (Scale(1, " ops/s"), Scale(1e3, " kops/s")),
    "percentunit": (Scale(0.01, " %"),),
}


def scale_for(value: float, unit: str) -> Scale:
    """The largest scale in which the value is not below one. KeyError for a unit that no panel has yet."""
    scales = _SCALES[unit]
    if value == 0:
        return next((scale for scale in scales if scale.factor == 1), scales[0])
    return next((scale for scale in reversed(scales) if abs(value) >= scale.factor), scales[0])


def shown(value: float, unit: str) -> str:
    """A value in a unit of Grafana, as the picture writes it."""
    return scale_for(value, unit).write(value)


COLORS = (
    "#1f78c1",
    "#e0752d",
    "#3f9142",
    "#c4162a",
    "#8f3bb8",
    "#b88a00",
    "#0a8f8f",
    "#d05ca8",
    "#6b6b6b",
    "#7a4b1e",
)

_AXIS = 72.0  # room for the numbers left of the curves
_LINE = 16.0  # of the table
_MOST_LINES = 8
_TABLE = 0.55  # of the height of a panel at most
_COLUMN = 360.0  # a wider panel has a table of several columns
_FIGURE = 73.0
_TICKS = (10, 30, 60, 120, 300, 600)
_TICK = 36.0  # the room of a time below the curves


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: seconds since the beginning, and values that are numbers."""

    name: str
    points: Sequence[Point]

    @property
    def highest(self) -> float:
        """The largest value."""
        return max(value for _, value in self.points)


@dataclass(frozen=True, slots=True)
class Span:
    """The time that a picture shows, in seconds; within `marked` faults were provoked."""

    length: float
    step: float
    marked: tuple[float, float]


def draw_curves(box: Box, found: Sequence[Series], span: Span, unit: str, *, stacked: bool) -> Iterator[str]:
    """Everything below the panel's title."""
    largest = sorted(found, key=lambda series: -series.highest)
    columns = max(1, int(box.width // _COLUMN))
    lines = min(_MOST_LINES, ceil(len(largest) / columns), int(box.height * _TABLE / _LINE) - 1)
    table = Box(box.x, box.bottom - (lines + 1) * _LINE, box.width, (lines + 1) * _LINE)
    plot = Box(box.x + _AXIS, box.y + 6, box.width - _AXIS - 18, box.height - table.height - 30)
    curves = [_filled(series, span) for series in largest]
    base = _stack(curves) if stacked else [{} for _ in curves]
    top = max((value + below.get(at, 0.0) for curve, below in zip(curves, base, strict=True) for at, value in curve))
    scale, step = _axis(top, unit, 4 if plot.height > 100 else 2)
    steps = max(1, ceil(top / scale.factor / step - 1e-9))
    chart = _Chart(plot, span, steps * step * scale.factor)
    yield from chart.frame(scale, step, steps)
    for place in reversed(range(len(curves))):
        yield from chart.curve(curves[place], base[place], COLORS[place % len(COLORS)], stacked=stacked)
    yield from _table(table, largest, unit, columns, lines)


@dataclass(frozen=True, slots=True)
class _Chart:
    """The place of the curves: what second is where, what value is how high."""

    plot: Box
    span: Span
    top: float

    def at(self, second: float, value: float) -> Point:
        return (
            self.plot.x + self.plot.width * second / self.span.length,
            self.plot.bottom - self.plot.height * value / self.top,
        )

    def frame(self, scale: Scale, step: float, steps: int) -> Iterator[str]:
        """The time of faults, the lines across with their values, and the minutes."""
        (left, _), (right, _) = (self.at(second, 0) for second in self.span.marked)
        yield rectangle(Box(left, self.plot.y, right - left, self.plot.height), "marked")
        for number in range(steps + 1):
            value = number * step * scale.factor
            _, y = self.at(0, value)
            yield line([(self.plot.x, y), (self.plot.right, y)], "grid")
            yield text((self.plot.x - 6, y + 4), scale.write(value), "axis end")
        most = min(6.0, self.plot.width / _TICK)
        every = next((tick for tick in _TICKS if self.span.length / tick <= most), _TICKS[-1])
        for second in range(0, int(self.span.length) + 1, every):
            x, _ = self.at(second, 0)
            yield text((x, self.plot.bottom + 15), f"{second // 60}:{second % 60:02}", "axis middle")

    def curve(self, points: Sequence[Point], below: dict[float, float], color: str, *, stacked: bool) -> Iterator[str]:
        """A line, interrupted where there were no values; what lies between it and the one below it where stacked."""
        for part in _parts(points, self.span.step):
            upper = [self.at(at, value + below.get(at, 0.0)) for at, value in part]
            if stacked:
                yield area([*upper, *(self.at(at, below.get(at, 0.0)) for at, _ in reversed(part))], "area", color)
            yield line(upper, "curve", color)


def _filled(series: Series, span: Span) -> list[Point]:
    return [(at, value) for at, value in series.points if 0 <= at <= span.length]


def _stack(curves: Sequence[Sequence[Point]]) -> list[dict[float, float]]:
    """What lies below each curve: the sum of those after it, by second."""
    sums: dict[float, float] = {}
    found: list[dict[float, float]] = []
    for curve in reversed(curves):
        found.append(dict(sums))
        for at, value in curve:
            sums[at] = sums.get(at, 0.0) + value
    return found[::-1]


def _parts(points: Sequence[Point], step: float) -> Iterator[list[Point]]:
    """The stretches in which no value is missing."""
    part = [*points[:1]]
    for before, point in pairwise(points):
        if point[0] - before[0] > step * 1.5:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def _axis(top: float, unit: str, ticks: int) -> tuple[Scale, float]:
    """The scale of the axis, and the distance between its lines in that scale: 1, 2 or 5, and zeros."""
    scale = scale_for(top, unit)
    raw = (top or scale.factor) / scale.factor / ticks
    power = 10.0 ** floor(log10(raw))
    return scale, next(nice * power for nice in (1, 2, 5, 10) if nice * power >= raw * 0.999)


def _table(box: Box, found: Sequence[Series], unit: str, columns: int, lines: int) -> Iterator[str]:
    """The largest series with their mean and their largest value, column by column; without the mean where names would be cut."""
    width = box.width / columns
    room = columns * lines
    listed = found if len(found) <= room else found[: room - 1]
    has_mean = all(_width(series.name, 11) <= width - 2 * _FIGURE - 42 for series in listed)
    for column in range(columns):
        right = box.x + width * (column + 1) - 8
        if has_mean:
            yield text((right - _FIGURE, box.y + 11), "mean", "axis end")
        yield text((right, box.y + 11), "max", "axis end")
    for place, series in enumerate(listed):
        x, y = box.x + place // lines * width, box.y + (place % lines + 1) * _LINE
        right = x + width - 8
        yield rectangle(Box(x + 10, y + 5, 14, 4), "key", COLORS[place % len(COLORS)])
        room_of_name = right - x - (2 if has_mean else 1) * _FIGURE - 34
        yield text((x + 30, y + 11), shortened(series.name, room_of_name, 11), "name")
        if has_mean:
            mean = fmean(value for _, value in series.points)
            yield text((right - _FIGURE, y + 11), shown(mean, unit), "figure end")
        yield text((right, y + 11), shown(series.highest, unit), "figure end")
    if len(listed) < len(found):
        x, y = box.x + (columns - 1) * width, box.y + lines * _LINE
        yield text((x + 30, y + 11), f"and {len(found) - len(listed)} more", "axis")


NO_DATA = "No data"

_WIDTH, _COLUMNS = 1200, 24
_UNIT = 38  # pixels of one row of the grid, as Grafana has them
_GAP = 8
_HEAD = 56
SHADES = {"green": "#2f8f46", "yellow": "#b88a00", "red": "#c4162a"}
_INK = "#24292e"
# On the ground of a dark panel.
DARK: Mapping[str, str] = {
    "#1f78c1": "#5aa9e6",
    "#3f9142": "#6cc070",
    "#c4162a": "#f2707c",
    "#8f3bb8": "#c58be0",
    "#6b6b6b": "#a8a8a8",
    "#7a4b1e": "#c98b4f",
    "#2f8f46": "#57c271",
}
_STYLE = """
text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif}
.head{font-size:18px;font-weight:bold}.sub{font-size:12px;fill:#57606a}.row{font-size:14px;font-weight:bold}
.title{font-size:12.5px;font-weight:bold}.name,.figure,.axis{font-size:11px}.axis{fill:#6e7781}
.end{text-anchor:end}.middle,.value,.label{text-anchor:middle}.label{font-size:12px}
.big{font-size:30px;font-weight:bold}.small{font-size:20px;font-weight:bold}
.page{fill:#f0f2f4}.panel{fill:#fff;stroke:#d8dee4}.marked{fill:#fbe3e0}.marked.key{fill:#f3c3bd}
.grid{stroke:#e4e8ec;fill:none}.curve{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}
.area{fill-opacity:.25}
@media (prefers-color-scheme:dark){
svg{fill:#d8d9da}.sub,.axis{fill:#9fa7b3}.page{fill:#111217}.panel{fill:#181b1f;stroke:#2c3235}
.marked{fill:#3d2325}.marked.key{fill:#7a3a3a}.grid{stroke:#2c3235}
"""
_STYLE += (
    "".join(f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}' for light, dark in DARK.items())
    + "\n}\n"
)


def draw(document: Json, answers: Mapping[int, Sequence[Series]], span: Span, caption: str) -> str:
    """The picture as SVG; `answers` has the series of each panel by its id, the legend as their name."""
    panels = document["panels"]
    height = _HEAD + max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * _UNIT + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" fill="{_INK}">',
        f"<style>{_STYLE}</style>",
        rectangle(Box(0, 0, _WIDTH, height), "page"),
        text((_GAP * 2, 26), document["title"], "head"),
        rectangle(Box(_GAP * 2, 36, 14, 10), "marked key"),
        text((_GAP * 2 + 20, 45), caption, "sub"),
    ]
    for panel in panels:
        parts += _row(panel) if panel["type"] == "row" else _panel(panel, answers.get(panel["id"], ()), span)
    return "\n".join([*parts, "</svg>", ""])


def _place(panel: Json) -> Box:
    grid, column = panel["gridPos"], (_WIDTH - _GAP) / _COLUMNS
    return Box(
        _GAP + grid["x"] * column, _HEAD + grid["y"] * _UNIT, grid["w"] * column - _GAP, grid["h"] * _UNIT - _GAP
    )


def _row(panel: Json) -> Iterator[str]:
    box = _place(panel)
    yield text((box.x + _GAP, box.y + 20), panel["title"], "row")


def _panel(panel: Json, found: Sequence[Series], span: Span) -> Iterator[str]:
    box, defaults = _place(panel), panel["fieldConfig"]["defaults"]
    inner = Box(box.x, box.y + 26, box.width, box.height - 32)
    yield rectangle(box, "panel")
    yield text((box.x + 10, box.y + 19), shortened(panel["title"], box.width - 14, 12.5), "title")
    with_values = [series for series in found if series.points]
    if not with_values:
        yield text((box.x + box.width / 2, box.y + box.height / 2), NO_DATA, "label")
    elif panel["type"] == "stat":
        yield from _figures(inner, with_values, panel)
    else:
        stacked = defaults["custom"]["stacking"]["mode"] == "normal"
        yield from draw_curves(inner, with_values, span, defaults["unit"], stacked=stacked)


def _figures(box: Box, found: Sequence[Series], panel: Json) -> Iterator[str]:
    """The last value of each series, coloured by the thresholds; with its name where the panel wants it."""
    defaults = panel["fieldConfig"]["defaults"]
    named = panel["options"]["textMode"] == "value_and_name" or len(found) > 1
    size = "big" if len(found) == 1 else "small"
    widest = max(_width(series.name, 12) for series in found) + 8 if named else 0.0
    for series, part in zip(found, box.parts(len(found), max(_NARROWEST, widest)), strict=True):
        _, value = series.points[-1]
        x, y = part.x + part.width / 2, part.y + part.height / 2
        color, figure = _color(value, defaults["thresholds"]["steps"]), shown(value, defaults["unit"])
        if named and part.height < _LOWEST:
            # Too low for a name above its figure: both in one line.
            yield text((part.x + 10, y + 4), shortened(series.name, part.width - _FIGURE - 14, 11), "name")
            yield text((part.right - 10, y + 4), figure, "figure end", color)
            continue
        if named:
            yield text((x, y - 12), shortened(series.name, part.width - 8, 12), "label")
        chosen = size if _width(figure, _BIG) <= part.width - 12 else "small"
        yield text((x, y + (18 if named else 8)), figure, f"value {chosen}", color)


def _color(value: float, steps: Sequence[Json]) -> str:
    """That of the last threshold which is not above the value."""
    return SHADES[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]

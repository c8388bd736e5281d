"""A panel of curves: its axes, its lines and the table below them, as Grafana draws a time series. Knows no metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from statistics import fmean

from tests.grafana.svg import Box, Point, area, line, rectangle, shortened, text
from tests.grafana.units import Scale, scale_for, shown

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
_MOST_LINES = 6
_COLUMN = 360.0  # a wider panel has a table of several columns
_FIGURE = 73.0
_TICKS = (10, 30, 60, 120, 300, 600)


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
    lines = min(_MOST_LINES, ceil(len(largest) / columns), int(box.height * 0.45 / _LINE) - 1)
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
        every = next((tick for tick in _TICKS if self.span.length / tick <= 6), _TICKS[-1])
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
    """The largest series with their mean and their largest value, column by column."""
    width = box.width / columns
    room = columns * lines
    listed = found if len(found) <= room else found[: room - 1]
    for column in range(columns):
        right = box.x + width * (column + 1) - 8
        yield text((right - _FIGURE, box.y + 11), "mean", "axis end")
        yield text((right, box.y + 11), "max", "axis end")
    for place, series in enumerate(listed):
        x, y = box.x + place // lines * width, box.y + (place % lines + 1) * _LINE
        right = x + width - 8
        yield rectangle(Box(x + 10, y + 5, 14, 4), "key", COLORS[place % len(COLORS)])
        yield text((x + 30, y + 11), shortened(series.name, right - x - 2 * _FIGURE - 34, 11), "name")
        mean = fmean(value for _, value in series.points)
        yield text((right - _FIGURE, y + 11), shown(mean, unit), "figure end")
        yield text((right, y + 11), shown(series.highest, unit), "figure end")
    if len(listed) < len(found):
        x, y = box.x + (columns - 1) * width, box.y + lines * _LINE
        yield text((x + 30, y + 11), f"and {len(found) - len(listed)} more", "axis")

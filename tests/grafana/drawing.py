"""A dashboard's file and the answers to its queries as one picture: what Grafana would show, without Grafana.

Titles, places, units, legends and thresholds are those of the file. Text stays text, so that a picture can be searched,
and held against the file by a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.grafana.curves import Series, Span, draw_curves
from tests.grafana.panels import Json
from tests.grafana.svg import Box, rectangle, text
from tests.grafana.units import shown

NO_DATA = "No data"

_WIDTH, _COLUMNS = 1200, 24
_UNIT = 38  # pixels of one row of the grid, as Grafana has them
_GAP = 8
_HEAD = 56
_SHADES = {"green": "#2f8f46", "yellow": "#b88a00", "red": "#c4162a"}
_INK = "#24292e"
_STYLE = """
text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif}
.head{font-size:18px;font-weight:bold}.sub{font-size:12px;fill:#57606a}.row{font-size:14px;font-weight:bold}
.title{font-size:12.5px;font-weight:bold}.name,.figure,.axis{font-size:11px}.axis{fill:#6e7781}
.end{text-anchor:end}.middle,.value,.label{text-anchor:middle}.label{font-size:12px}
.big{font-size:30px;font-weight:bold}.small{font-size:20px;font-weight:bold}
.page{fill:#f0f2f4}.panel{fill:#fff;stroke:#d8dee4}.marked{fill:#fbe3e0}.marked.key{fill:#f3c3bd}
.grid{stroke:#e4e8ec;fill:none}.curve{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}
.area{fill-opacity:.25}
"""


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
    yield text((box.x + 10, box.y + 19), panel["title"], "title")
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
    for series, part in zip(found, box.parts(len(found)), strict=True):
        _, value = series.points[-1]
        x, y = part.x + part.width / 2, part.y + part.height / 2
        if named:
            yield text((x, y - 12), series.name, "label")
        color = _color(value, defaults["thresholds"]["steps"])
        yield text((x, y + (18 if named else 8)), shown(value, defaults["unit"]), f"value {size}", color)


def _color(value: float, steps: Sequence[Json]) -> str:
    """That of the last threshold which is not above the value."""
    return _SHADES[[step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]]

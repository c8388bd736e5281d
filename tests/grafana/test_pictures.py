"""The committed pictures belong to the dashboards as they are; and the drawing shows what was answered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree as ET

import pytest

from extender.simulator.scenario.overview import PodRow, ScenarioSummary, SpreadRow
from grafana.generate.drawing import COLORS, DARK, NO_DATA, SHADES, Series, Span, draw, shown
from grafana.generate.files import DASHBOARDS, FOLDER, README
from grafana.generate.panels import Dashboard, Panel
from grafana.generate.pictures import DEMO_PICTURE, PICTURES, demo_svg, words
from tests.grafana.boxes import outside, overlaps

EACH = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.file)
SPAN = Span(100.0, 10.0, (40.0, 60.0))
MOST_BYTES = 300_000


def elements(picture: str, tag: str, kind: str) -> list[ET.Element]:
    """The elements of a class, in order."""
    root = ET.fromstring(picture)  # noqa: S314 -- our own file
    return [
        found for found in root.iter(f"{{http://www.w3.org/2000/svg}}{tag}") if kind in found.get("class", "").split()
    ]


def texts(picture: str, kind: str) -> list[str]:
    """The texts of a class, in order."""
    return [found.text or "" for found in elements(picture, "text", kind)]


def drawn(panel: Panel, series: Sequence[Series]) -> str:
    """The picture of a dashboard that has this panel only."""
    document = Dashboard("one.json", "One", "", {"Row": [panel]}).render()
    answers: Mapping[int, Sequence[Series]] = {found["id"]: series for found in document["panels"]}
    return draw(document, answers, SPAN, "a caption")


def flat(name: str, value: float) -> Series:
    return Series(name, [(second, value) for second in range(0, 101, 10)])


@EACH
def test_each_dashboard_has_a_picture_of_all_its_panels_with_data(dashboard: Dashboard) -> None:
    picture = (PICTURES / dashboard.file).with_suffix(".svg").read_text("utf-8")
    document = json.loads((FOLDER / "dashboards" / dashboard.file).read_text("utf-8"))
    stale = "run `python -m grafana.generate pictures`"
    assert texts(picture, "head") == [document["title"]]
    assert texts(picture, "row") == list(dashboard.rows), stale
    titles = zip(texts(picture, "title"), [panel.title for panel in dashboard.panels], strict=True)
    # A title that is longer than its panel is cut.
    assert [title for title, whole in titles if not whole.startswith(title.removesuffix("…"))] == [], stale
    assert NO_DATA not in picture
    assert (overlaps(picture), outside(picture)) == ([], [])
    assert len(picture.encode()) < MOST_BYTES


def test_the_readme_shows_every_picture_and_no_other_lies_about() -> None:
    names = [dashboard.file.replace(".json", ".svg") for dashboard in DASHBOARDS]
    assert re.findall(r"\(pictures/([^)]+)\)", README.read_text("utf-8")) == names
    assert {path.name for path in PICTURES.glob("*.svg")} == {*names, DEMO_PICTURE.name}


def test_the_picture_of_the_demo_has_the_headings_that_the_demo_prints() -> None:
    picture = DEMO_PICTURE.read_text("utf-8")
    seen = ScenarioSummary([PodRow("a", "a", "", "", "a")], [SpreadRow("a", {"a": 1})], [("a", 1)], [])
    headings = set(words(demo_svg(seen, []))) - {"a", "1", "0", ""}
    assert len(headings) >= 8
    assert headings <= set(words(picture)), "run `python -m grafana.generate demo`"
    assert "url(http" not in picture
    assert "font-face" not in picture
    assert len(picture.encode()) < MOST_BYTES


def test_a_curve_has_its_legend_its_mean_and_its_largest_value() -> None:
    series = Series("filter <p99>", [(0, 0.1), (10, 0.3)])
    picture = drawn(Panel("Latency", "", {"a": "b"}, "s"), [series])
    assert texts(picture, "name") == ["filter <p99>"]
    assert texts(picture, "figure") == ["200 ms", "300 ms"]
    assert texts(picture, "axis")[:4] == ["0 ms", "100 ms", "200 ms", "300 ms"]


def test_a_figure_is_the_last_value_in_the_colour_of_its_threshold() -> None:
    steps = ((None, "green"), (0.05, "yellow"), (0.1, "red"))
    panel = Panel("Filter p99", "", {"p99": "b"}, "s", "stat", 4, 4, steps=steps)
    colors = []
    for value in (0.01, 0.05, 0.2):
        (found,) = elements(drawn(panel, [Series("p99", [(0, 9.0), (10, value)])]), "text", "value")
        colors.append(found.get("fill"))
        assert found.text == shown(value, "s")
    assert len(set(colors)) == 3


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("ground", "changed"), [("#ffffff", {}), ("#181b1f", DARK)], ids=["light", "dark"])
def test_curves_and_figures_are_seen_on_a_light_and_on_a_dark_panel(ground: str, changed: Mapping[str, str]) -> None:
    """By the formula of WCAG 2.2 (1.4.11) for what is no small text: at least 3."""
    for color in {*COLORS, *SHADES.values()}:
        light, dark = sorted([luminance(changed.get(color, color)), luminance(ground)], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, color


def test_a_picture_has_the_colours_of_both_schemes() -> None:
    picture = drawn(Panel("Latency", "", {"a": "b"}, "s"), [flat("a", 1)])
    dark = picture.partition("@media (prefers-color-scheme:dark){")[2].partition("</style>")[0]
    assert dark.count("{") == dark.count("}") - 1
    for color, instead in DARK.items():
        assert f'[stroke="{color}"]{{stroke:{instead}}}' in dark


def test_names_are_not_cut_where_there_is_room_in_lines_or_without_the_mean() -> None:
    modes = [flat(name, 1) for name in ("augment, cooperative", "offload, cooperative", "offload, decisive")]
    panel = Panel.of("Modes", "", {"{{a}}": "a"}, {"kind": "stat", "width": 6, "height": 5})
    assert texts(drawn(panel, modes), "name") == [series.name for series in modes]
    panel = Panel.of("Calls", "", {"{{a}}": "a"}, {"width": 6})
    picture = drawn(panel, [flat("prioritize malformed", 1)])
    assert texts(picture, "name") == ["prioritize malformed"]
    assert "mean" not in texts(picture, "axis")
    assert "mean" in texts(drawn(panel, [flat("short", 1)]), "axis")


def test_the_legend_has_the_eight_series_of_a_panel() -> None:
    picture = drawn(Panel("Calls", "", {"a": "b"}), [flat(f"series {number}", number) for number in range(8)])
    assert len(texts(picture, "name")) == 8
    assert not [found for found in texts(picture, "axis") if "more" in found]


def test_a_panel_without_an_answer_says_so() -> None:
    assert texts(drawn(Panel("Events", "", {"a": "b"}), []), "label") == [NO_DATA]
    assert texts(drawn(Panel("Events", "", {"a": "b"}), [Series("one", [])]), "label") == [NO_DATA]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (0.00035, "s", "350 µs"),
        (0.2018, "s", "202 ms"),
        (90, "s", "1.5 min"),
        (31_536_000, "s", "365 days"),
        (106_600_000, "bytes", "102 MiB"),
        (23_850, "Bps", "23.9 kB/s"),
        (0.449, "percentunit", "44.9 %"),
        (6.41, "reqps", "6.41 req/s"),
        (0.05, "ops", "0.05 ops/s"),
        (200, "short", "200"),
        (12_000, "short", "12 K"),
    ],
)
def test_values_are_written_for_people(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


@EACH
def test_every_unit_of_a_panel_can_be_written(dashboard: Dashboard) -> None:
    assert all(shown(1.0, panel.unit) for panel in dashboard.panels)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [(3, 4), (4, 4), (6, 5), (8, 8)])
def test_no_text_is_printed_over_another_whatever_a_panel_has_room_for(count: int, size: tuple[int, int]) -> None:
    wide, high = size
    found = [flat(f"a series with a long name {number}", 1e-3 * 7**number) for number in range(count)]
    for kind in ("stat", "timeseries"):
        look = {"kind": kind, "width": wide, "height": high, "unit": "s"}
        panel = Panel.of("A title that is longer than the narrowest of the panels", "", {"{{a}}": "a"}, look)
        if kind == "timeseries" and wide < 6:
            continue
        picture = drawn(panel, found)
        assert (overlaps(picture), outside(picture)) == ([], [])


def test_texts_over_each_other_are_found() -> None:
    picture = drawn(Panel.of("Title", "", {"{{a}}": "a"}, {"kind": "stat", "width": 4, "height": 4}), [flat("one", 1)])
    assert overlaps(picture) == []
    assert overlaps(picture.replace("</svg>", '<text class="title" x="20" y="115">over</text></svg>')) != []

"""Results as tables: one row a point, and no column without a value."""

from rich.table import Table

from tests.tools.bench.results import Audit, Played, Row, compare, results_of
from tests.tools.bench.tables import ratio_table, tables

POINT = Row("w1", "process", {"pods": 30, "selectors": 3, "names": 10, "answer": "all"}, {"filter.p50": 1.5})
FIGURES = {"bound.perSecond": 120.4, "boundOfDecisive": 0.3, "waited.share": 0.03, "violations": 0.0}
MODE = Row("modes", "http", {"pods": 30, "mode": "bind"}, FIGURES)


def shown(table: Table) -> list[tuple[str, str]]:
    """Heading and text of the first row."""
    return [(str(column.header), str(next(iter(column.cells)))) for column in table.columns]


def test_each_kind_of_row_has_a_table_with_its_own_dimensions_and_figures() -> None:
    questions, modes = tables(results_of([Played([POINT, MODE], Audit((), 0))]))
    named = [("scenario", "w1"), ("via", "process"), ("pods", "30"), ("selectors", "3"), ("names", "10")]
    assert shown(questions) == [*named, ("answer", "all"), ("filter p50", "1.5")]
    named = [("scenario", "modes"), ("via", "http"), ("pods", "30"), ("mode", "bind")]
    assert shown(modes) == [*named, ("bound/s", "120"), ("× decisive", "0.3"), ("waited", "3%"), ("violations", "0")]


def test_ratios_of_modes_are_shown_beside_their_place() -> None:
    slower = Row(MODE.scenario, MODE.via, MODE.place, {"bound.perSecond": 60.2})
    named = [("scenario", "modes"), ("via", "http"), ("pods", "30"), ("mode", "bind")]
    assert shown(ratio_table(compare([MODE], [slower]))) == [*named, ("bound.perSecond", "2.00")]

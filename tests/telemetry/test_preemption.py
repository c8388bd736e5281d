"""The metrics of preemption, from the plan to the binding."""

from __future__ import annotations

import re

from extender.telemetry import catalogue
from extender.telemetry.metrics import PREEMPTION_RESULTS, Metrics


def page_after(*, fails: bool = False) -> dict[str, float]:
    """The series of preemption after one that took two victims, one of them against a budget."""
    metrics = Metrics("1.2.3")
    counted = metrics.preemption()
    counted.record_start(2)
    counted.record_violation()
    counted.record_execution("error" if fails else "success", 0.25)
    counted.record_end("failed" if fails else "bound", 3.0)
    metrics.report(catalogue.PREEMPTIONS, lambda: {"terminating": 4, "stuck": 1})
    lines = re.findall(r"^(extender_preemption\S*) (\S+)$", metrics.render().decode(), re.MULTILINE)
    return {name: float(value) for name, value in lines}


def test_a_preemption_is_counted_with_its_victims_and_violations() -> None:
    page = page_after()
    names = ("attempts_total", "victims_sum", "pdb_violations_total")
    assert [page[f"extender_preemption_{name}"] for name in names] == [1, 2, 1]


def test_its_writes_and_its_end_are_timed_by_what_came_of_them() -> None:
    page = page_after(fails=True)
    assert page['extender_preemption_execution_seconds_sum{result="error"}'] == 0.25
    assert page['extender_preemption_duration_seconds_sum{outcome="failed"}'] == 3


def test_every_result_has_a_series_before_it_happens_so_that_the_first_error_shows_in_a_rate() -> None:
    page = page_after()
    assert [page[f'extender_preemption_executions_total{{result="{result}"}}'] for result in PREEMPTION_RESULTS] == [
        1,
        0,
        0,
        0,
        0,
    ]


def test_what_is_under_way_is_read_at_the_scrape() -> None:
    page = page_after()
    assert (page['extender_preemptions{phase="terminating"}'], page['extender_preemptions{phase="stuck"}']) == (4, 1)

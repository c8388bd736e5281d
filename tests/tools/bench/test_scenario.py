"""Bench scenarios: read strictly, every fault named, and laid out into loads and points."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.documents import DocumentError
from tests.tools.bench.scenario import KIND, parse_bench, plan
from tests.tools.bench.small_scenario import SHIPPED, document, scenario


@pytest.mark.parametrize(
    "path", [path for path in SHIPPED if KIND not in path.read_text("utf-8")], ids=lambda path: path.stem
)
def test_every_shipped_scenario_is_legal_and_has_something_short(path: Path) -> None:
    read = parse_bench(yaml.safe_load(path.read_text("utf-8")))
    assert read.name == path.stem
    assert plan(read, "short")
    assert read.bounds


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"cluster": {"node": 3}}, 'cluster.node: unknown field, did you mean "nodes"?'),
        ({"cluster": {"nodes": "3"}}, "cluster.nodes: expected `int`, got `str`"),
        ({"cases": [{"labels": [], "pods": [0]}]}, "cases[0].pods[0]: expected `int` >= 1"),
        ({"cases": [{"labels": [], "answer": ["best"]}]}, "cases[0].answer[0]: expected `str` matching regex"),
        ({"cases": [{"labels": [], "measure": ["luck"]}]}, "cases[0].measure[0]: expected"),
        ({"cases": [{"labels": [], "names": [5001]}]}, "cases[0].names: must not be more than cluster.nodes, 5000"),
        ({"cases": [{"labels": [], "pods": []}]}, "cases[0].pods: must not be empty"),
        ({"bounds": [{"figure": "x"}]}, "bounds[0].figure: expected either atMost or atLeast"),
        ({"bounds": [{"figure": "x", "atMost": 1, "where": {"pod": 1}}]}, "bounds[0].where: expected dimensions"),
        (
            {"bounds": [{"figure": "x", "atMost": 1, "relativeTo": "y", "baseline": {"pods": 1}}]},
            "bounds[0].relativeTo: must not be set together with baseline",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_rejected_with_its_path(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        parse_bench(document(**({"cluster": {}} | parts)))
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].replace("`", "").startswith(problem.replace("`", ""))


def test_every_combination_is_a_point_of_the_load_that_it_needs() -> None:
    matrix = {"labels": ["a"], "pods": [5, 9], "selectors": [1, 2], "names": [3, 4], "answer": ["decisive", "all"]}
    loads = plan(scenario(cases=[matrix]))
    assert [(load.pods, load.selectors) for load in loads] == [(5, 1), (5, 2), (9, 1), (9, 2)]
    expected = [(3, "decisive"), (3, "all"), (4, "decisive"), (4, "all")]
    assert all([(point.names, point.answer) for point in load.points] == expected for load in loads)


def test_a_point_that_two_cases_share_is_played_once_with_the_measures_of_both() -> None:
    cases = [{"labels": ["a"], "names": [3]}, {"labels": ["a"], "names": [3], "measure": ["retries"], "rate": 7}]
    (load,) = plan(scenario(cases=cases))
    assert [point.measures for point in load.points] == [{"requests", "retries"}]
    assert load.rate == 7


def test_a_label_chooses_cases() -> None:
    cases = [{"labels": ["short"], "names": [3]}, {"labels": ["nightly"], "names": [4]}]
    assert [load.points[0].names for load in plan(scenario(cases=cases), "nightly")] == [4]


def test_ways_of_answering_become_settings() -> None:
    (load,) = plan(scenario(cases=[{"labels": [], "names": [3], "answer": ["decisive", "best7", "all"]}]))
    made = [(point.settings.placement, point.settings.answers.shortlist) for point in load.points]
    assert made == [("decisive", 50), ("cooperative", 7), ("cooperative", 0)]


def test_a_case_may_have_nodes_of_its_own_which_are_then_a_dimension() -> None:
    cases = [{"labels": ["a"], "names": [3]}, {"labels": ["a"], "names": [201], "nodes": 300}]
    usual, sized = plan(scenario(cases=cases))
    assert (usual.scenario.cluster.nodes, "nodes" in usual.place(usual.points[0])) == (200, False)
    assert (sized.scenario.cluster.nodes, sized.place(sized.points[0])["nodes"]) == (300, 300)

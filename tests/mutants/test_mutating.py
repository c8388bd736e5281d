"""The tool that makes mutants: what it changes, what it leaves alone, and that a mutant is what the tests see."""

from __future__ import annotations

import ast
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.mutants.__main__ import FLOORS, equivalents, modules
from tests.mutants.covering import Covering, covering
from tests.mutants.mutating import mutants_of, mutated, statements_of_functions
from tests.mutants.running import floor_of, mutation

HERE = Path("extender/model/some.py")
SOURCE = '''
"""What it is."""

LIMIT: int = 3


@cache(maxsize=8)
def least(numbers: list[int], most: int = 5) -> int | None:
    """The least."""
    if not numbers:
        return None
    for number in numbers:
        if number < LIMIT and number != 0:
            found.append(number)
            continue
    return min(found) + len("text")
'''
MADE = [
    ("", "LIMIT: int = 3", "LIMIT: int = 4"),
    ("least", "def least(numbers: list[int], most: int=5) -> int | None:", "def least(numbers: list[int], most: int=6) -> int | None:"),
    ("least", "if not numbers:", "if False:"),
    ("least", "if not numbers:", "if True:"),
    ("least", "if not numbers:", "if not not numbers:"),
    ("least", "if number < LIMIT and number != 0:", "if False:"),
    ("least", "if number < LIMIT and number != 0:", "if True:"),
    ("least", "if number < LIMIT and number != 0:", "if number < LIMIT or number != 0:"),
    ("least", "if number < LIMIT and number != 0:", "if number < LIMIT and number == 0:"),
    ("least", "if number < LIMIT and number != 0:", "if number < LIMIT and number != 1:"),
    ("least", "if number < LIMIT and number != 0:", "if number <= LIMIT and number != 0:"),
    ("least", "found.append(number)", "pass"),
    ("least", "continue", "pass"),
    ("least", "return min(found) + len('text')", "return None"),
    ("least", "return min(found) + len('text')", "return min(found) - len('text')"),
]  # fmt: skip


def test_each_part_that_behaves_is_changed_in_each_way_and_texts_annotations_and_decorators_in_none() -> None:
    assert [(each.where, each.old, each.new) for each in mutants_of(HERE, SOURCE)] == MADE


def test_a_mutant_differs_from_the_module_in_what_it_is_named_by_alone() -> None:
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for each in mutants_of(HERE, SOURCE):
        changed = mutated(SOURCE, each.number).splitlines()
        differing = [(a.strip(), b.strip()) for a, b in zip(original, changed, strict=True) if a != b]
        assert differing == [(each.old, each.new)]


def test_a_sample_is_the_same_after_a_change_elsewhere_in_the_file_and_another_for_another_seed() -> None:
    before = {each.key: each for each in mutants_of(HERE, SOURCE)}
    after = {each.key: each for each in mutants_of(HERE, SOURCE.replace("LIMIT: int", "MOST = 9\nLIMIT: int"))}
    assert all(after[key].order(1) == each.order(1) for key, each in before.items())
    orders = [[each.key for each in sorted(before.values(), key=lambda one: one.order(seed))] for seed in (1, 2)]
    assert orders[0] != orders[1]


def test_an_import_of_the_module_gets_the_mutant_and_afterwards_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("extender/model/constraints/labels.py")
    module = import_module("extender.model.constraints.labels")
    mutants = [each for each in mutants_of(path, path.read_text("utf-8")) if each.old == "_MAX_NAME = 63"]
    assert mutants
    for name in ("mutant", "original"):
        monkeypatch.delitem(sys.modules, "extender.model.constraints.labels")
        if name == "mutant":
            with mutation(mutants[0]):
                assert import_module("extender.model.constraints.labels")._MAX_NAME == 64
        else:
            assert import_module("extender.model.constraints.labels")._MAX_NAME == 63
        monkeypatch.setitem(sys.modules, "extender.model.constraints.labels", module)


def test_the_lines_of_a_statement_are_its_own_and_those_of_a_function_all_of_it() -> None:
    lines = {each.old: each.lines for each in mutants_of(HERE, SOURCE)}
    assert lines["if not numbers:"] == range(10, 11)
    assert lines["def least(numbers: list[int], most: int=5) -> int | None:"] == range(8, 17)
    assert list(statements_of_functions(SOURCE)) == [range(line, line + 1) for line in (10, 11, 12, 13, 14, 15, 16)]


def test_a_mutant_meets_the_tests_that_run_its_statement_the_quickest_first() -> None:
    (early, late) = [each for each in mutants_of(HERE, SOURCE) if each.line in {4, 15}]
    found = Covering({HERE: {15: {"slow", "quick"}, 16: {"other"}}}, {"slow": 2.0, "quick": 1.0, "other": 0.5})
    assert found.tests_of(late) == ["quick", "slow"]
    assert found.tests_of(early) == ["other", "quick", "slow"], "it runs at import"
    assert Covering({}, {}).tests_of(late) == []


def test_what_runs_at_import_meets_the_tests_that_import_it() -> None:
    units = Path("extender/model/units.py")
    at_import = next(each for each in mutants_of(units, units.read_text("utf-8")) if not each.where)
    tests = {f"tests/model/test_{name}.py::test": 1.0 for name in ("units", "taints")}
    assert Covering({}, tests).tests_of(at_import) == ["tests/model/test_units.py::test"]


def test_what_one_test_runs_is_recorded_for_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tests = tmp_path / "test_two.py"
    tests.write_text(
        "from extender.model.constraints.labels import is_label_key\n"
        "def test_one(): assert is_label_key('a')\n"
        "def test_none(): pass\n",
        "utf-8",
    )
    monkeypatch.setattr("tests.mutants.covering.TESTS", [os.path.relpath(tests, "tests")])
    found = covering(1)
    run = found.lines[Path("extender/model/constraints/labels.py")]
    assert {test.rpartition("::")[2] for each in run.values() for test in each} == {"test_one"}
    assert {test.rpartition("::")[2] for test in found.seconds} == {"test_one", "test_none"}


def test_every_pure_floor_has_mutants() -> None:
    assert {floor_of(path) for path in modules()} == set(FLOORS)
    for floor in FLOORS:
        assert any(any(mutants_of(path, path.read_text("utf-8"))) for path in modules() if floor_of(path) == floor)


def test_each_equivalent_mutant_has_a_reason() -> None:
    assert all(reason.strip() for reason in equivalents().values())

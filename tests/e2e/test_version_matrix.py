"""The table of versions: which pairs are tried, and what a cell says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.version_matrix import Cell, Pair, column_of, link, pairs_of, table, versions_in

REPORT = """<testsuites><testsuite>
<testcase name="one"><properties><property name="core" value="requeue"/></properties></testcase>
<testcase name="two"><properties><property name="core" value="requeue"/></properties>
  <skipped message="a gate (1.36)"/></testcase>
<testcase name="again"><properties><property name="core" value="augment"/></properties><skipped message="not tried (1.36)"/></testcase>
<testcase name="three"><properties><property name="core" value="augment"/></properties>
  <failure message="AssertionError: assert 1 == 2&#10;more"/></testcase>
<testcase name="four"><properties><property name="core" value="native"/></properties><skipped message="v1 (1.36)"/></testcase>
</testsuite></testsuites>"""


def programs(folder: Path, name: str, *files: str) -> None:
    (folder / name).mkdir()
    for file in files:
        (folder / name / file).touch()


def test_folders_are_versions_and_shared_programs_are_the_newest(tmp_path: Path) -> None:
    both = ("kube-apiserver", "kube-scheduler")
    programs(tmp_path, "1.29", *both, "etcd")
    programs(tmp_path, "30", *both, "etcd", "kubectl")
    programs(tmp_path, "v1.31", "kube-apiserver")
    programs(tmp_path, "logs")
    versions = versions_in(tmp_path)
    assert list(versions) == [29, 30]
    (made := tmp_path / "made").mkdir()
    link(versions, Pair(30, 29), made)
    places = {path.name: path.resolve().parent.name for path in made.iterdir()}
    assert places == {"kube-apiserver": "30", "kube-scheduler": "1.29", "etcd": "30", "kubectl": "30"}


def test_a_scheduler_is_as_old_as_its_api_server_or_one_version_older() -> None:
    assert list(map(str, pairs_of([29, 30, 32]))) == ["1.32", "1.30", "1.30+1.29", "1.29"]


def test_a_cell_works_only_if_it_was_seen_and_nothing_failed(tmp_path: Path) -> None:
    (report := tmp_path / "report.xml").write_text(REPORT, "utf-8")
    column = column_of(report)
    assert {name: str(cell) for name, cell in column.items()} == {
        "requeue": "works in part",
        "augment": "FAILS",
        "native": "lacks",
    }
    lines = list(table({Pair(30, 29): (column, 61.0), Pair(29, 29): ({"requeue": Cell(passed=2)}, 5.0)}))
    assert lines[:3] == [
        "| API server + scheduler | 1.30+1.29 | 1.29 |",
        "|---|---|---|",
        "| requeue | works in part | works |",
    ]
    assert "| tests, seconds | 1, 61 | 2, 5 |" in lines
    assert "- augment: three: AssertionError: assert 1 == 2 (1.30+1.29)" in lines


@pytest.mark.parametrize("name", ["1.29.0", "29a", "latest"])
def test_other_folders_are_left_out(tmp_path: Path, name: str) -> None:
    programs(tmp_path, name, "kube-apiserver", "kube-scheduler")
    assert versions_in(tmp_path) == {}

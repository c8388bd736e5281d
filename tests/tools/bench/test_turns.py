"""The comparison with an earlier version: both are played by their own files, and one line says what is slower."""

import pytest

from tests.earlier import NoEarlierVersionError, commit_of
from tests.tools.bench.turns import is_slower, main, verdict


def test_the_line_names_what_is_slower_the_worst_first() -> None:
    ratios = {"w1": {"answer about 100": 1.2, "event": 1.05}, "w7": {"event": 1.31}}
    assert is_slower(ratios)
    assert verdict(ratios, "0123") == "turns: SLOWER than 0123: w7 event 1.31 ×, w1 answer about 100 1.20 ×"


def test_the_line_says_the_worst_figure_where_nothing_is_slower() -> None:
    ratios = {"w1": {"answer about 100": 0.97}, "w7": {"event": 1.04}}
    assert not is_slower(ratios)
    assert verdict(ratios, "0123") == "turns: nothing is slower than 0123: at most 1.04 × (w7 event)"


def test_a_commit_that_is_not_there_is_named_and_compares_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["w7", "--from", "no-such-commit"]) == 0
    line = capsys.readouterr().out
    assert line.startswith("turns: nothing was compared: ")
    assert line.count("\n") == 1


def test_both_versions_play_a_workload_each_with_its_own_files(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        commit = commit_of("HEAD")
    except NoEarlierVersionError as error:
        pytest.skip(f"{error}; two versions are not compared")
    assert main(["w7", "--from", "HEAD", "--turns", "1"]) in (0, 1)
    line = capsys.readouterr().out
    assert f"than {commit[:12]}: " in line
    assert " × (w7 " in line or "w7 " in line

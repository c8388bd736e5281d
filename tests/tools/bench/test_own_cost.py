"""What each placed pod costs the extender's process: every row of the tables has a figure."""

from __future__ import annotations

import re

import pytest

from tests.tools.bench import own_cost


def test_it_measures_a_pod_each_part_and_each_kind_of_event(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(own_cost, "_SETTLE_SECONDS", 0.1)
    assert own_cost.main(["--nodes", "120", "--pods", "30", "--runs", "1", "--earlier", "."]) == 0
    rows = re.findall(r"^\| ([^|]+?) \| (\d+)", capsys.readouterr().out, re.MULTILINE)
    figures = {title: int(figure) for title, figure in rows}
    parts = set(own_cost.PARTS.values())
    assert figures.keys() >= {
        "this version",
        "version in .",
        "a bare echo of one name, without events",
        "request",
        "event: the pod is bound",
        *parts,
    }
    assert all(figures[part] > 0 for part in parts)
    assert figures["all, with the clocks"] >= sum(figures[part] for part in parts)

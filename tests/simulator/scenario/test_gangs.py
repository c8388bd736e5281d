"""The shipped scenario of gangs: nothing is violated, and the judge finds what breaks when reserved room is not kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from extender.cli.main import main
from extender.rules.reserved_room import ReservedRoomFilter

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "gangs.yaml"


def test_every_gang_lands_whole_or_stays_at_its_gate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(SCENARIO), "--seed", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("violations 0")


def test_a_filter_that_gives_reserved_room_away_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def all_pass(_filter: ReservedRoomFilter, nodes: Sequence[int]) -> Sequence[int]:
        return nodes

    monkeypatch.setattr(ReservedRoomFilter, "passing", all_pass)
    assert main(["simulate", str(SCENARIO)]) == 1
    assert "went to another pod" in capsys.readouterr().out

"""The shipped scenario of gangs: the judge finds what breaks when reserved room is not kept."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from extender.cli.main import main
from extender.rules.reserved_room import ReservedRoomFilter
from extender.verbs import select_host

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "gangs.yaml"


@pytest.fixture
def contended(tmp_path: Path) -> str:
    """The scenario with a gang that fills one of two nodes, and other pods that want both while it is released slowly."""
    scenario = yaml.safe_load(SCENARIO.read_text("utf-8"))
    scenario["extender"]["release"] = {"patchesPerSecond": 8}
    scenario["cluster"]["nodes"] = [
        {"count": 1, "name": zone, "zones": 1, "zone": f"zone-{zone}", "cpu": "40", "memory": "128Gi"} for zone in "ab"
    ]
    gangs = next(step["arriveGroups"] for step in scenario["steps"] if "arriveGroups" in step)
    scenario["steps"] = [
        {"title": "A gang, released in five seconds", "arriveGroups": {**gangs, "groups": 1, "size": [40, 40]}},
        {"pause": {"time": "3s"}},
        {"title": "A backlog", "arrive": {"template": "web", "count": 120, "namespaces": "shop"}},
        {"settle": {"calm": "2s", "timeout": "1m"}},
    ]
    shutil.copytree(SCENARIO.with_suffix(""), tmp_path / "gangs")
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump(scenario), "utf-8")
    return str(tmp_path / "gangs.yaml")


def test_a_filter_that_gives_reserved_room_away_is_found(
    contended: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def all_pass(_filter: ReservedRoomFilter, nodes: Sequence[int]) -> Sequence[int]:
        return nodes

    assert main(["simulate", contended]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "placed 120, pending 40, violations 0"

    # On a busy machine a run may have no other pod that comes at the wrong moment.
    monkeypatch.setattr(ReservedRoomFilter, "passing", all_pass)
    assert 1 in (main(["simulate", contended, "--seed", str(seed)]) for seed in range(1, 11))
    assert "went to another pod" in capsys.readouterr().out


def test_a_filter_that_ignores_preferred_nodes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gang in a zone of two nodes, the second of which has the SSD that its pods prefer."""
    scenario = yaml.safe_load(SCENARIO.read_text("utf-8"))
    group = {"count": 1, "zones": 1, "zone": "zone-a", "cpu": "40", "memory": "128Gi"}
    scenario["cluster"]["nodes"] = [
        {**group, "name": "plain"},
        {**group, "name": "ssd", "labels": {"example.com/disk": "ssd"}},
    ]
    gangs = next(step["arriveGroups"] for step in scenario["steps"] if "arriveGroups" in step)
    scenario["steps"] = [{"pause": {"time": "2s"}}, {"arriveGroups": {**gangs, "groups": 1, "size": [4, 4]}}]
    scenario["steps"] += [{"settle": {"calm": "1s", "timeout": "1m"}}]
    shutil.copytree(SCENARIO.with_suffix(""), tmp_path / "gangs")
    (tmp_path / "gangs.yaml").write_text(yaml.safe_dump(scenario), "utf-8")
    assert main(["simulate", str(tmp_path / "gangs.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "placed 4, pending 0, violations 0"

    monkeypatch.setattr(select_host, "node_preferences", lambda nodes, _signature: [0] * len(nodes))
    assert main(["simulate", str(tmp_path / "gangs.yaml")]) == 1
    assert "a pod landed on plain, and prefers ssd, which has room" in capsys.readouterr().out

"""The shipped scenario of tenants: the judge finds what a hostile tenant gets where its share is not kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from extender.cli.main import main
from extender.tasks.release import choosing

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "tenants.yaml"


@pytest.fixture
def hoarding(tmp_path: Path) -> str:
    """The scenario with nothing but the groups of the hostile tenant: two of its three fit into its share."""
    scenario = yaml.safe_load(SCENARIO.read_text("utf-8"))
    del scenario["comparison"]
    groups = [step for step in scenario["steps"] if step.get("arriveGroups", {}).get("namespaces") == "hostile"]
    groups[0]["arriveGroups"]["background"] = False
    scenario["steps"] = [*groups, {"settle": {"timeout": "20s", "calm": "3s"}}]
    shutil.copytree(SCENARIO.with_suffix(""), tmp_path / "tenants")
    (tmp_path / "tenants.yaml").write_text(yaml.safe_dump(scenario), "utf-8")
    return str(tmp_path / "tenants.yaml")


def test_room_beyond_the_share_of_a_namespace_is_found(
    hoarding: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", hoarding, "--short"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "placed 0, pending 90, violations 0"

    monkeypatch.setattr(choosing, "budget_excess", lambda *_arguments, **_more: "")
    assert main(["simulate", hoarding, "--short"]) == 1
    assert "with it the namespace has room reserved for 360 of 1104 cpu, its share is 0.25" in capsys.readouterr().out

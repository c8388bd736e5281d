"""The shipped scenario of quotas: the judge finds an extender without quotas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.cli.main import main

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "quota.yaml"


def changed(folder: Path, *replacements: tuple[str, str]) -> str:
    """A copy of the first steps of the scenario in which these texts are replaced, without expectations."""
    text = SCENARIO.read_text("utf-8").partition("  - title: Pods go")[0].partition("  # 40 of many")[0]
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    (folder / "quota").mkdir()
    (folder / "quota" / "quotas.yaml").write_text(
        (SCENARIO.with_suffix("") / "quotas.yaml").read_text("utf-8"), "utf-8"
    )
    path = folder / "quota.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def test_an_extender_without_quotas_violates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", changed(tmp_path, ("    enabled: true\n", "    enabled: false\n"))]) == 1
    out = capsys.readouterr().out
    assert re.search(
        r"violation: decision \d+: \w+/\S+ on node-\d+: \d+ pods of \w+ count already, its quota is \d+", out
    )
    # 80 of many, 6 of single, 7 of forbidden and 6 of unlisted.
    assert out.splitlines()[-1] == "placed 240, pending 0, violations 99"


def test_a_quota_of_a_namespace_without_one_cannot_be_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change = '  - changeQuotas: {namespaces: free, hard: {pods: "1"}}\n  - title: Bursts'
    assert main(["simulate", changed(tmp_path, ("  - title: Bursts", change))]) == 1
    assert 'steps[0].changeQuotas: no namespace that matches "free" has a quota' in capsys.readouterr().err

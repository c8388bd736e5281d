"""The shipped scenario of scheduling policies: the oracle finds what breaks them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from extender.cli.main import main

SCENARIO = Path(__file__).parents[3] / "config" / "scenarios" / "policies.yaml"


def changed(folder: Path, *replacements: tuple[str, str]) -> str:
    """A copy of the scenario and its policies in which these texts are replaced, without expectations."""
    text = SCENARIO.read_text("utf-8").partition("  - expect:")[0]
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path = folder / "policies.yaml"
    path.write_text(text, "utf-8")
    shutil.copytree(SCENARIO.with_suffix(""), folder / "policies")
    return str(path)


def test_an_extender_without_policies_violates_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(tmp_path, ("policies: {enabled: true}", "policies: {enabled: false}"))
    assert main(["simulate", path]) == 1
    out = capsys.readouterr().out
    kinds = {"databases", "tenants", "quorum"}
    found = set(re.findall(r"violation: .* of cluster policy (\w+)", out))
    assert found
    assert found <= kinds
    assert int(out.splitlines()[-1].rpartition(" ")[2]) > 100


def test_objects_that_the_webhook_needs_and_the_cluster_lacks_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", changed(tmp_path, ("files: [policies]", "files: []"))]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"extender: cluster.files: extender.policies.enabled needs the {each}"
        for each in (
            "MutatingWebhookConfiguration placement-extender",
            "ValidatingWebhookConfiguration placement-extender",
            "Secret kube-system/placement-extender-webhook",
        )
    ]

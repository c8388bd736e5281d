"""kube-scheduler itself reads the configurations of `tests/doctor/test_scheduler_validation.py`, and agrees with `extender doctor`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.test_scheduler_validation import FAULTS, HEAD, TAKEN
from tests.fakes import PATIENCE

pytestmark = pytest.mark.e2e

_ACCESS = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "none",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "users": [{"name": "none", "user": {}}],
}


def refusal(scheduler: Path, folder: Path, changes: Mapping[str, Any]) -> str:
    """What kube-scheduler says of a configuration that it does not start with, empty where it starts. It connects to nothing."""
    (access := folder / "kubeconfig").write_text(json.dumps(_ACCESS), "utf-8")
    document: dict[str, Any] = {**HEAD, "clientConnection": {}, **changes}
    if isinstance(document["clientConnection"], dict):
        document["clientConnection"] = {"kubeconfig": str(access)} | document["clientConnection"]
    (file := folder / "kube-scheduler.json").write_text(json.dumps(document), "utf-8")
    command = [
        str(scheduler),
        "--config",
        str(file),
        "--write-config-to",
        str(folder / "written.yaml"),
        "--secure-port",
        "0",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def test_the_scheduler_starts_with_none_of_the_faults(assets: Path, tmp_path: Path) -> None:
    started = [field for changes, field in FAULTS if not refusal(assets / "kube-scheduler", tmp_path, changes)]
    assert started == []


def test_the_scheduler_starts_with_what_is_no_fault(assets: Path, tmp_path: Path) -> None:
    refused = {str(changes): refusal(assets / "kube-scheduler", tmp_path, changes) for changes in TAKEN}
    assert {changes: why for changes, why in refused.items() if why} == {}

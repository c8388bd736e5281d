"""Each finding of `extender doctor` about files: the remedy is applied as its text says, and the finding is gone."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.doctor import scheduler_config, scheduler_validation, score_plugins
from extender.doctor.facts import Finding
from extender.settings.configuration import Settings
from tests.doctor.facts import settings
from tests.doctor.remedies import ROWS, SetUp, followed
from tests.doctor.test_findings import LOCAL_AND_OPEN, WITHOUT_ROLES
from tests.doctor.test_scheduler_config import FOREIGN, LOST, MISTAKES, STRATEGIES, document, scoring
from tests.doctor.test_scheduler_validation import FAULTS, HEAD, LATE, args, plugins
from tests.doctor.test_score_plugins import FOUND

QOS = {"enabled": [{"name": "PrioritySort"}, {"name": "QOSSort"}]}
ALONE = [
    HEAD | plugins(multiPoint={"enabled": [{"name": "PodTopologySpred"}]}),
    HEAD | plugins(multiPoint={"enabled": [{"name": "Coscheduling"}]}),
    HEAD | plugins(queueSort=QOS),
    HEAD | args("EBSLimits"),
    HEAD | args("VolumeBinding", shape=[{"utilization": 0, "score": 0}]),
]
OURS: list[dict[str, Any]] = [
    {"server": LOCAL_AND_OPEN},
    {"server": WITHOUT_ROLES},
    {"assumedPods": {"enabled": False}},
]
WRONG = [
    *(SetUp.of(given, ours) for given, ours, _, _ in MISTAKES),
    *(SetUp.of(given, settings(**ours)) for given, ours, words in STRATEGIES if words),
    *(SetUp.of(given, Settings()) for given, _ in LOST),
    *(SetUp.of(given, settings(**ours)) for given, ours, _ in FOUND.values()),
    *(SetUp.of(HEAD | changes, None) for changes, _ in [*FAULTS, *LATE]),
    *(SetUp.of(given, None) for given in ALONE),
    *(SetUp.of(document(), settings(**ours)) for ours in OURS),
    *(SetUp.of(document(top={"extenders": [FOREIGN]}), Settings(), is_known=is_known) for is_known in (True, False)),
    *(SetUp.of(given, Settings(), is_known=False) for given, _ in LOST),
    SetUp.of(scoring(plugins={}, ignorable=True), settings(mode="augment", schedulers="many")),
]


@pytest.mark.parametrize("wrong", WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_each_remedy_ends_its_finding_and_all_of_them_in_turn_leave_none(wrong: SetUp) -> None:
    found = wrong.findings()
    assert found
    for finding in found:
        for changed in wrong.without(finding):
            assert finding.problem not in {one.problem for one in changed.findings()}, finding
    for last in followed(wrong):
        assert last.findings() == []


# -- no finding without a row

MODULES = {str(Path(module.__file__ or "")) for module in (scheduler_config, scheduler_validation, score_plugins)}
MAKERS = {"Finding", "_error", "_warning", "_info", "_fault", "_foreign"}


def calls(file: str) -> Iterator[tuple[int, int]]:
    """The first and the last line of each call that makes a finding, outside of the functions that are called."""
    tree = ast.parse(Path(file).read_text("utf-8"))
    for part in tree.body:
        if not isinstance(part, ast.FunctionDef) or part.name in MAKERS:
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and MAKERS & {
                each.id for each in ast.walk(node.func) if isinstance(each, ast.Name)
            }:
                yield node.lineno, node.end_lineno or node.lineno


def test_each_finding_about_files_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[tuple[str, int]] = set()
    make = Finding.__init__

    def noted(self: Finding, *given: Any) -> None:
        frame = sys._getframe(1)
        for _ in range(3):  # it may be made by a function of MAKERS
            made.add((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back or frame
        make(self, *given)

    monkeypatch.setattr(Finding, "__init__", noted)
    for wrong in WRONG:
        wrong.findings()
    left = [
        f"{Path(file).name}:{first}"
        for file in MODULES
        for first, last in calls(file)
        if not any((file, line) in made for line in range(first, last + 1))
    ]
    assert left == [], "findings that no row of WRONG has"


def test_each_way_to_apply_a_remedy_is_used() -> None:
    """So no row stays for a text that doctor does not say any more."""
    said = {finding.remedy for wrong in WRONG for finding in wrong.findings()}
    assert [pattern for pattern in ROWS if not any(re.fullmatch(pattern, text) for text in said)] == []

"""How many files a reader has to open to follow one filter decision: those whose code runs between question and answer."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import extender
from extender.verbs.filter import FilterVerb
from tests.builders import asking, index_of, node, pod_json, settings, spread, term

PACKAGE = Path(extender.__file__).parent
NAMES = ("n1", "n2", "n3", "n4")
CONSTRAINED: dict[str, Any] = {"app": "web", "apart": [term("host", app="web")], "spreads": [spread("zone", app="web")]}


def files_of_decision(placement: str, **fields: Any) -> set[str]:
    """The files of the package that a warm decision passes, by their paths in it."""
    index = index_of(*(node(name, zone=f"z{name[1]}") for name in NAMES))
    verb = FilterVerb(index.view, settings(placement=placement, answers={"shortlist": 2}))
    args, passed = asking(pod_json(**fields), *NAMES), set[str]()
    assert verb.decide(args, 0).result.passed  # compiles the constraints

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            passed.add(path.relative_to(PACKAGE).as_posix())

    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        assert verb.decide(args, 1).result.passed
    finally:
        sys.setprofile(earlier)
    return passed


def of_floor(files: set[str], name: str) -> set[str]:
    """Those of one floor."""
    return {path for path in files if path.startswith(f"{name}/")}


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
def test_a_decision_without_constraints_passes_at_most_8_files(placement: str) -> None:
    passed = files_of_decision(placement)
    assert of_floor(passed, "verbs") == {"verbs/filter.py", "verbs/select_host.py", "verbs/request.py"}
    assert of_floor(passed, "rules") == {"rules/catalog.py"}
    assert len(passed) <= 8, sorted(passed)


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
def test_a_decision_with_constraints_passes_at_most_15_files(placement: str) -> None:
    passed = files_of_decision(placement, **CONSTRAINED)
    assert len(of_floor(passed, "verbs")) <= 4, sorted(passed)
    assert {"rules/interpod_affinity.py", "rules/topology_spread.py"} <= passed
    assert len(of_floor(passed, "rules")) <= 4, sorted(passed)
    assert len(passed) <= 15, sorted(passed)

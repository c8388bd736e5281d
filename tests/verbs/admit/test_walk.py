"""How many files a reader opens to follow a review through the verb, and how often the way changes between files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import FrameType

import extender
from extender.verbs.admit.decision import AdmitVerb
from tests.builders import Json
from tests.policies import expression, node_term, policy, requiring
from tests.verbs.admit.reviewing import pod, review, verb
from tests.walking import noting

PACKAGE = Path(extender.__file__).parent


def walk(admit: AdmitVerb, sent: Json) -> list[str]:
    """The file of each function of the package that one review calls, in order."""
    files = list[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            files.append(frame.f_code.co_filename)

    _drive(admit, sent)  # the first review also fills caches
    with noting(note):
        _drive(admit, sent)
    return files


def _drive(admit: AdmitVerb, sent: Json) -> None:
    """Takes the steps of a review one after the other, as the server does between requests."""
    for _ in admit.admit_in_steps(sent):
        pass


def test_a_review_passes_few_files_and_returns_to_each_seldom() -> None:
    directing = policy(
        nodeSelector={"pool": "web"},
        tolerations=[{"key": "pool", "operator": "Exists"}],
        affinity=requiring(node_term(expression("zone", "In", "a", "b"))),
    )
    files = walk(verb(directing), review(pod()))
    assert len(set(files)) <= 12, sorted(set(files))
    assert sum(one != other for one, other in pairwise(files)) <= 75

"""Each finding of `extender doctor` about a service, its cluster and policies has a row in which its remedy is applied.

The findings are the calls in the code that make them; their texts are compared with the rows. Findings about files are in
tests/doctor/test_remedies.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from extender.cli import doctor, service_client
from extender.doctor import deployment, policies, service, surroundings, versions
from extender.features.execution import report as moves
from extender.features.quotas import report as quotas
from tests.doctor import test_certificate_remedies, test_webhook_faults
from tests.doctor.cluster_rows import CALLS, SURROUNDINGS
from tests.doctor.facts import settings
from tests.doctor.policy_rows import MOVES, MOVES_BESIDE_PLUGINS, MOVES_SWITCHED_OFF, POLICIES, QUOTAS
from tests.doctor.remedies import SetUp
from tests.doctor.test_remedies import OURS
from tests.doctor.test_scheduler_config import document
from tests.e2e.wrong_set_ups import ROWS as SCHEDULERS

MODULES: Final = (deployment, policies, service, surroundings, versions, moves, quotas, doctor, service_client)
# The class or function, and which of its arguments is the text of the problem.
MAKERS: Final = {"Finding": 2, "_of_quota": 2, "ServiceError": 1, "NoAnswerError": 1, "Fault": 0}
_LEAST, _KNOWN = 8, 16  # characters of a text, and of a part by which it is known


# Where a remedy is applied by another test, or why there is none to apply. The key is a part of the text.
ELSEWHERE: Final = {
    # nothing to do, or nothing that a test can do
    "this replica is a standby": "nothing to do",
    "the last request came": "nothing to do if no pod was pending",
    "and no pod was bound meanwhile": "nothing to do if no pod was pending",
    "and this one may stand by": "another replica is to be asked: tests/e2e/test_kubectl_placement.py",
    "was not tried; tried are": "a row has the older one",
    "is newer than the versions that were tried": "a newer release",
    "cannot be decoded": "a newer release",
    " agreed)": "the same",
    "compared, ": "shadow decisions are counted for a day: tests/doctor/test_findings.py",
    "autoscalers ": "autoscalers cannot be seen: tests/doctor/test_policies.py has which policies lead to it",
    "limits.perNamespace.": "pods are deleted: tests/index and tests/tasks have what the use of a budget is then",
    "for its budget": "the same",
    "has had no event for": "the API server answers again: tests/kube has that a watch begins again",
    "no replica holds the Lease": "its remedy names the log",
    "no request came for pods of": "nothing to do if it had no pod to place",
    "schedulers is one, but requests came": "the setting is tried in tests/e2e/test_several_schedulers.py",
    "for a scheduler named": "waits for minutes: tests/doctor/test_schedulers.py",
    "server.maxBodyBytes is enough for": "a setting: tests/doctor/test_findings.py",
    # by tests with several steps
    "in the running service but": "test_a_service_that_is_restarted_has_the_settings_of_its_file",
    "it requires a client certificate": "tests/cli/test_doctor.py: the chain of certificates is proven by asking",
    "the TLS handshake with": "the same",
    "the files of tlsConfig cannot be used": "tests/cli/test_doctor.py: the schedulers files are tried",
    "the files for https cannot be used": "tests/cli/test_doctor.py",
    "has an unexpected answer": "another address, which a row has",
    "bytes": "another address, which a row has",
    "does not lead to it": "tests/e2e/test_wrong_set_ups.py and test_silent_webhook.py",
    "cannot be reached from this machine": "tests/doctor/test_policies.py: the API server reaches it",
    "have no effect: kube-scheduler's plugin decides spread": "test_fields_without_effect_are_removed",
    "readiness check": "tests/e2e/test_wrong_set_ups.py: what the manifest grants ends it",
    "forbids the service's call": "the same",
    "were not checked: this command may not review": "an account of the platform: tests/e2e/test_permissions.py",
    "expired ": "test_certificate_remedies.py renews them before",
    # calls of kube-scheduler, by its messages: tests/e2e/test_wrong_set_ups.py restarts it with the right file
    "the extender's certificate, or its CA, has expired": "tests/cli/test_doctor.py",
    "the extender's certificate is not valid yet": "clocks",
    "kube-scheduler rejects the extender's certificate": "other faults of certificates, by Go's words alone",
    "the extender serves ": "tests/doctor/test_remedies.py: the same for both",
    "the scheduler cannot resolve the name": "its words alone: tests/doctor/test_findings.py",
    "no answer comes": "a firewall, whose words a silent webhook has too: tests/e2e/test_silent_webhook.py",
    "it does not run": "tests/e2e/test_wrong_set_ups.py",
    "requests failed, the last one": "requests that follow: tests/doctor/test_findings.py",
    "the last request failed": "the same",
}


def problems() -> Iterator[str]:
    """What the rows say that doctor says; ``*`` is any text."""
    for rows in (SURROUNDINGS, CALLS, POLICIES, MOVES, MOVES_BESIDE_PLUGINS, MOVES_SWITCHED_OFF, QUOTAS):
        yield from (row.problem.replace("[[]", "[") for row in rows.values())
    for scheduler in SCHEDULERS.values():
        yield from (problem for problem, _ in scheduler.found)
    for cause in test_certificate_remedies.ROWS.values():
        yield f"the certificate files on disk {cause.problem}; the previous ones stay in use"
    yield "the certificate server expires in 10 days"
    yield from (webhook.problem for webhook in test_webhook_faults.ROWS.values())
    for check in OURS:
        yield from (found.problem for found in SetUp.of(document(), settings(**check)).findings())


def texts(made: ast.expr, function: ast.stmt) -> Iterator[str]:
    """Patterns for the texts that an expression may have: what is computed is any text."""
    if isinstance(made, ast.Constant) and isinstance(made.value, str):
        yield re.escape(made.value).replace(r"\{\}", ".*")
    elif isinstance(made, ast.JoinedStr):
        yield "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".*" for part in made.values)
    elif isinstance(made, ast.IfExp):
        yield from texts(made.body, function)
        yield from texts(made.orelse, function)
    elif isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr == "format":
        yield from texts(made.func.value, function)
    elif isinstance(made, ast.Name):
        for value in _values(made.id, function):
            yield from texts(value, function)


def _values(name: str, function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=True)
                    yield from (value for each, value in pairs if isinstance(each, ast.Name) and each.id == name)


def findings(file: str) -> Iterator[tuple[int, str]]:
    """The line and a pattern of each text that is made in a file."""
    for part in ast.parse(Path(file).read_text("utf-8")).body:
        if isinstance(part, ast.FunctionDef) and part.name in MAKERS:
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS:
                place = MAKERS[node.func.id]
                if len(node.args) > place:
                    yield from ((node.lineno, pattern) for pattern in texts(node.args[place], part))


ALL: Final = [
    (Path(module.__file__ or "").stem, line, pattern)
    for module in MODULES
    for line, pattern in findings(module.__file__ or "")
    if len(pattern.replace(".*", "")) > _LEAST
]


def plain(pattern: str) -> str:
    """A pattern as a text, with ``*`` for any text."""
    return re.sub(r"\\(.)", r"\1", pattern.replace(".*", "*"))


def is_said(text: str, row: str) -> bool:
    """Whether a row is about a text: one of them has a part of the other that is long enough to be known by it."""
    ours, theirs = ([part for part in re.split(r"\*|: ", each) if len(part) >= _KNOWN] for each in (text, row))
    return any(part in row for part in ours) or any(part in text for part in theirs)


@pytest.fixture(scope="module")
def rows() -> list[str]:
    return list(problems())


@pytest.mark.parametrize(("stem", "line", "pattern"), ALL, ids=[f"{stem}:{line}" for stem, line, _ in ALL])
def test_a_finding_has_a_row_or_a_reason(stem: str, line: int, pattern: str, rows: list[str]) -> None:
    text = plain(pattern)
    assert any(re.fullmatch(pattern, row) or is_said(text, row) for row in rows) or any(
        part in text for part in ELSEWHERE
    ), (stem, line, text)


def test_no_reason_stays_for_a_text_that_is_gone() -> None:
    texts_of_all = [plain(pattern) for _, _, pattern in ALL]
    assert [part for part in ELSEWHERE if not any(part in text for text in texts_of_all)] == []

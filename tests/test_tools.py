"""A missing program skips a test by name on a developer's machine, and fails it where all of them are installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs import REQUIRED, tool

ROOT = Path(__file__).resolve().parents[1]
NEEDED = re.compile(r"""\btool\("([^"]+)"(?:, "([^"]+)")?\)""")


def test_a_missing_program_skips_the_test_and_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no-such-program is not installed \(package spare\)"):
        tool("no-such-program", "spare")


def test_where_programs_are_required_a_missing_one_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        tool("no-such-program")


def test_continuous_integration_installs_and_checks_every_program_that_a_test_asks_for() -> None:
    """Without this, a new `tool(...)` would be found missing by the first run only, or never. It runs no tests of `tests/e2e`."""
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    (checked,) = re.findall(r'^programs="(.*)"$', script, re.MULTILINE)
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    sources = [path.read_text("utf-8") for path in files if not path.is_relative_to(ROOT / "tests" / "e2e")]
    requested = {name for source in sources for name, _ in NEEDED.findall(source)}
    assert requested
    assert requested <= set(checked.split())
    assert f"export {REQUIRED}=1" in script


def test_continuous_integration_names_no_host() -> None:
    """Packages come from where the machine has its own from, which may be a mirror."""
    assert "://" not in (ROOT / ".ci" / "run").read_text("utf-8")

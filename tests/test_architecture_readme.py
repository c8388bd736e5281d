"""The architecture document: every path, class and function that it names exists, and it names every floor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "extender"
TEXT = (PACKAGE / "README.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"`([\w./-]+(?:/|\.py|\.yaml|\.md))`", TEXT)))

# `Class`, `Class.method` or `_function`, as the walks name them beside a path.
NAMES = sorted(set(re.findall(r"`([A-Z]\w+[a-z]\w*(?:\.\w+)?|_\w+)`", TEXT)))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_the_document_names_exists(path: str) -> None:
    """Paths are those below `extender/`, else those below the root of the repository."""
    found = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
    assert found.is_dir() if path.endswith("/") else found.is_file()


@pytest.mark.parametrize("name", NAMES)
def test_a_class_or_function_that_the_document_names_exists(name: str) -> None:
    owner, _, member = name.rpartition(".")
    sources = [path.read_text("utf-8") for path in PACKAGE.rglob("*.py")]
    those = [text for text in sources if not owner or re.search(rf"^class {owner}\b", text, re.MULTILINE)]
    defined = re.compile(
        rf"^\s*(?:(?:async )?def|class) {member}\b|^{member}\b.*=|^ +self\.{member}\b.*=", re.MULTILINE
    )
    assert any(defined.search(text) for text in those)


def test_the_document_names_every_floor() -> None:
    floors = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert floors <= set(PATHS)


def test_paths_are_found() -> None:
    """The tests above would pass a document whose paths they cannot read."""
    assert len(PATHS) > 70
    assert len(NAMES) > 20

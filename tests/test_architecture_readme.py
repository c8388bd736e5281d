"""The architecture document: every path that it names exists, and it names every floor."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "extender"
TEXT = (PACKAGE / "README.md").read_text("utf-8")
PATHS = sorted(set(re.findall(r"`([\w./-]+(?:/|\.py|\.yaml|\.md))`", TEXT)))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_the_document_names_exists(path: str) -> None:
    """Paths are those below `extender/`, else those below the root of the repository."""
    found = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
    assert found.is_dir() if path.endswith("/") else found.is_file()


def test_the_document_names_every_floor() -> None:
    floors = {f"{path.name}/" for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert floors <= set(PATHS)


def test_paths_are_found() -> None:
    """The tests above would pass a document whose paths they cannot read."""
    assert len(PATHS) > 70

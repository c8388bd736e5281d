"""The architecture document: every path, class and function that it names exists, and it names every floor."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import msgspec
import pytest

from extender.cli.main import COMMANDS
from extender.settings.configuration import Settings
from extender.telemetry.catalogue import METRICS
from extender.wire.objects.kinds import WATCHED_KINDS

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


HEADER = "| feature | begin with | kinds | settings | metrics | commands |"
COLUMNS = dict(zip(("begin with", "kinds", "settings", "metrics", "commands"), range(1, 6), strict=True))
MAP = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.partition(HEADER)[2].partition("\n\n")[0].splitlines()[2:]
]


def cells(column: str) -> list[str]:
    """What the rows of the map say in one column, without quotes."""
    found = re.sub(
        r"\{[^}]*\}", lambda braces: braces[0].replace(",", ";"), ",".join(row[COLUMNS[column]] for row in MAP)
    )
    return [cell.strip(" `") for cell in found.split(",") if cell.strip()]


def expanded(pattern: str) -> list[str]:
    """The patterns that `{a;b}` stands for."""
    parts = [part.split(";") for part in re.split(r"[{}]", pattern)]
    return ["".join(chosen) for chosen in product(*parts)]


def owned_once(names: set[str], patterns: list[str]) -> bool:
    """Whether each name matches one pattern, and each pattern a name."""
    owners = Counter(name for name in names for pattern in patterns if fnmatchcase(name, pattern))
    assert {name: owners[name] for name in names if owners[name] != 1} == {}
    assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)] == []
    return bool(names)


def test_each_metric_belongs_to_one_feature_of_the_map() -> None:
    patterns = [pattern for cell in cells("metrics") for pattern in expanded(cell)]
    assert owned_once({metric.name for metric in METRICS}, patterns)


def test_each_section_of_the_settings_belongs_to_one_feature_of_the_map() -> None:
    sections = {found.encode_name for found in msgspec.structs.fields(Settings)} - {"apiVersion", "kind"}
    assert owned_once(sections, cells("settings"))


def test_each_kind_belongs_to_one_feature_of_the_map() -> None:
    assert owned_once({watched.api_kind for watched in WATCHED_KINDS}, cells("kinds"))


def test_each_command_belongs_to_one_feature_of_the_map() -> None:
    assert owned_once({*COMMANDS, "version"}, cells("commands"))


def test_paths_are_found() -> None:
    """The tests above would pass a document whose paths they cannot read."""
    assert len(PATHS) > 70
    assert len(NAMES) > 20

"""Each dependency has a line that says what it is for, and the package imports no other library."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "extender"
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: Final = PROJECT["optional-dependencies"]
MODULES: Final = {"PyYAML": "yaml", "prometheus-client": "prometheus_client"}  # where the name is another one
BROUGHT: Final = {"yarl": "aiohttp", "multidict": "aiohttp"}  # imported, and chosen by the dependency that brings them


def names(requirements: list[str]) -> list[str]:
    return [Requirement(each).name for each in requirements]


def imported() -> dict[str, set[str]]:
    """The packages of `extender` that import each library."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        floor = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for module in modules:
                found.setdefault(module.partition(".")[0], set()).add(floor)
    return {name: floors for name, floors in found.items() if name not in {"extender", *sys.stdlib_module_names}}


def rows() -> dict[str, list[str]]:
    """The cells of the table in extender/README.md, by dependency."""
    text = (PACKAGE / "README.md").read_text("utf-8").partition("\n## Dependencies\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    return {name.strip(): rest for name, *rest in cells[2:]}


def test_each_dependency_has_a_row_that_says_what_it_is_for_and_what_not() -> None:
    assert list(rows()) == [*names(PROJECT["dependencies"]), *names(EXTRAS["uvloop"])]
    for name, cells in rows().items():
        assert len(cells) == 3, name
        assert all(cells), name


def test_the_rows_say_which_packages_import_each() -> None:
    users = imported()
    for name, (importers, *_) in rows().items():
        if importers == "many packages":
            assert len(users[name]) > 5, name
        else:
            assert users[MODULES.get(name, name)] == set(re.findall(r"`(\w+)`", importers)), name


def test_the_package_imports_no_library_without_a_row() -> None:
    assert set(imported()) - set(BROUGHT) == {MODULES.get(name, name) for name in rows()}


def test_each_dependency_in_pyproject_has_a_comment_beside_it() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    own = f"{PROJECT['name']}[uvloop]"
    for wanted in [*PROJECT["dependencies"], *EXTRAS["uvloop"], *EXTRAS["dev"]]:
        assert wanted == own or re.search(rf'^    "{re.escape(wanted)}",  # \w.+$', text, re.MULTILINE), wanted

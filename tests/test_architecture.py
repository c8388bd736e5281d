"""The shape of the code: what import-linter cannot see. The contracts themselves stand in pyproject.toml."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.rules import catalog

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "extender"
MODULES = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")])
PURE_FLOORS = (
    "model",
    "wire",
    "index",
    "rules",
    "verbs",
    "settings",
)
LONGEST_FILE = 400
SHORT_FILE = 60
MOST_PUBLIC_METHODS = 20
# Rooms without a purpose of their own fill with whatever fits nowhere else.
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


def name_of(path: Path) -> str:
    """The path from the repository's root, as a test's id and in messages."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    """The parsed module."""
    return ast.parse(path.read_text("utf-8"))


def modules_below(*floors: str) -> list[Path]:
    """The modules of floors, each a package or a single file."""
    return [path for path in MODULES for floor in floors if path.is_relative_to(PACKAGE / floor)]


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Every dotted name that an import statement makes available."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_a_docstring_and_at_most_400_lines(path: Path) -> None:
    assert ast.get_docstring(tree_of(path)), "a module says what its job is"
    assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE, "look for the second idea in this file"


def test_at_most_a_tenth_of_the_modules_is_short() -> None:
    """A reader opens each of them for little. One that is short needs a reason to stand alone."""
    modules = [path for path in modules_below("") if path.name != "__init__.py"]
    short = [name_of(path) for path in modules if len(path.read_text("utf-8").splitlines()) < SHORT_FILE]
    assert len(short) <= len(modules) * 0.1, short


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=name_of)
def test_a_package_holds_its_docstring_and_nothing_else(path: Path) -> None:
    assert [type(node) for node in tree_of(path).body] == [ast.Expr], "nothing is re-exported"


@pytest.mark.parametrize("path", sorted({path.parent for path in MODULES}), ids=name_of)
def test_every_folder_with_modules_is_a_package(path: Path) -> None:
    assert (path / "__init__.py").is_file()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_is_named_for_nothing_in_particular(path: Path) -> None:
    assert not VAGUE_NAMES & {path.stem, *path.relative_to(ROOT).parts}


@pytest.mark.parametrize("path", modules_below(*PURE_FLOORS), ids=name_of)
def test_nothing_below_telemetry_awaits(path: Path) -> None:
    waits = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    assert [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, waits)] == []


@pytest.mark.parametrize("path", modules_below(""), ids=name_of)
def test_no_class_has_more_than_20_public_methods(path: Path) -> None:
    """A larger class has a second purpose."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    sizes = {
        each.name: sum(isinstance(item, functions) and not item.name.startswith("_") for item in each.body)
        for each in ast.walk(tree_of(path))
        if isinstance(each, ast.ClassDef)
    }
    assert {name: size for name, size in sizes.items() if size > MOST_PUBLIC_METHODS} == {}


def test_the_contract_that_hides_the_writable_index_names_all_of_it() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = [found for found in contracts if found["name"].startswith("Decisions see the read-only view")]
    parts = {f"extender.index.{path.stem}" for path in (PACKAGE / "index").iterdir() if not path.name.startswith("__")}
    parts -= {
        "extender.index.view",
        "extender.index.table_views",
        "extender.index.quotas_view",
        "extender.index.explain_view",
    }
    assert set(contract["forbidden_modules"]) == parts


def test_the_contract_on_rules_names_every_rule() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = [found for found in contracts if found["name"] == "Rules do not know each other"]
    assert set(contract["modules"]) == {type(rule).__module__ for rule in (*catalog.RULES, catalog.NODE_FIT)}


@pytest.mark.parametrize("path", [path for path in modules_below("") if path != PACKAGE / "cli/files.py"], ids=name_of)
def test_only_the_files_module_reads_the_environment(path: Path) -> None:
    environment = {"environ", "environb", "getenv"}
    touched = [node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)]
    assert environment.isdisjoint(touched)
    assert environment.isdisjoint(name.rpartition(".")[2] for name in imported_names(tree_of(path)))

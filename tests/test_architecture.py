"""The shape of the code: what import-linter cannot see. The contracts themselves stand in pyproject.toml."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from extender.index.availability import DomainsView, Exclusion
from extender.index.claims.reserved import ReservedView
from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints, Counted, Counting
from extender.index.counts.counts import WhatIf
from extender.index.counts.groups import Expected, GroupView, PlacedPods, SpreadGroupView
from extender.index.counts.term_counts import TermGroupView
from extender.index.nodes.columns import ByNumber, ColumnView
from extender.index.nodes.domains import KeyView, NodeMatches, ScopeView
from extender.index.nodes.requested_shares import SharesView
from extender.index.nodes.room import RoomView
from extender.index.objects.changes import Subscribable
from extender.index.policies import PoliciesView
from extender.index.usage import QuotasView, QuotaUse, Reach
from extender.index.view import ClusterView
from extender.rules import catalog
from extender.settings.rules import Rules

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
LONGEST_FILE = 600
# What rules, verbs and the server may know of the index: views, values, and trials that undo themselves.
READ_SIDE: dict[str, type] = {
    each.__name__: each
    for each in (
        *(ClusterView, ReservedView, PoliciesView, QuotasView, RoomView, SharesView),
        *(DomainsView, Exclusion),
        *(ColumnView, KeyView, GroupView, SpreadGroupView, NodeMatches, ByNumber, Subscribable),
        *(
            CompiledConstraints,
            Counted,
            Counting,
            TermGroupView,
            ScopeView,
            Expected,
            PlacedPods,
            QuotaUse,
            Reach,
            WhatIf,
        ),
    )
}
VALUES = ("NodeNumber", "DomainNumber", "Column", "OTHERS", "Inclusion", "PodSelector", "pod_selector", "Role")
SHORT_FILE = 60
MOST_PUBLIC_METHODS = 20
# Rooms without a purpose of their own fill with whatever fits nowhere else.
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


def name_of(path: Path) -> str:
    """The path from the repository's root, as a test's id and in messages."""
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
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
def test_every_module_has_a_docstring_and_at_most_600_lines(path: Path) -> None:
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


@pytest.mark.parametrize("path", modules_below(""), ids=name_of)
def test_a_module_that_a_comment_names_exists(path: Path) -> None:
    """`rules/rule.py`, below the package or a folder of the module; `rules.rule`, or `rules.rule.Rule`."""
    text = path.read_text("utf-8")
    folders = [each for each in path.parents if each.is_relative_to(ROOT)]
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((folder / name).is_file() for folder in folders), name
    floors = "|".join(each.name for each in PACKAGE.iterdir() if each.is_dir())
    for name in re.findall(rf"`((?:{floors})(?:\.[a-z_0-9]+)+(?:\.[A-Z_]\w*)?)`", text):
        parts = name.split(".")
        found = PACKAGE.joinpath(*parts)
        owner = PACKAGE.joinpath(*parts[:-1]).with_suffix(".py")
        is_module = found.is_dir() or found.with_suffix(".py").is_file()
        assert is_module or (owner.is_file() and parts[-1] in owner.read_text("utf-8")), name


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


def index_classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("extender.index."):
        yield hint
    for part in get_args(hint):
        yield from (
            index_classes_in(part)
            if not isinstance(part, list)
            else (c for each in part for c in index_classes_in(each))
        )


def given_out_by(shown: type, bound: Mapping[str, object]) -> Iterator[object]:
    """The types of the public attributes of a class, and of what its public methods return. ``bound``: readers of an instance."""
    yield from (hint for name, hint in get_type_hints(shown).items() if not name.startswith("_"))
    for name, member in (*inspect.getmembers(shown), *bound.items()):
        function = member.fget if isinstance(member, property) else member
        if (
            not name.startswith("_")
            and (inspect.isfunction(function) or inspect.ismethod(function))
            and name not in get_type_hints(shown)
        ):
            yield get_type_hints(function).get("return")


@pytest.mark.parametrize("path", modules_below("rules", "verbs", "server", "doctor"), ids=name_of)
def test_decisions_import_the_read_side_of_the_index(path: Path) -> None:
    names = {name for name in imported_names(tree_of(path)) if name.startswith("extender.index.")}
    assert {name.rpartition(".")[2] for name in names} <= {*READ_SIDE, *VALUES}


@pytest.mark.parametrize("shown", READ_SIDE.values(), ids=lambda each: each.__name__)
def test_nothing_that_writes_the_index_is_reachable_from_its_read_side(shown: type) -> None:
    """By types, which the type checker holds everyone to. Tables are given out as mappings, sequences and sets without writers."""
    bound = vars(ClusterIndex(Rules(), ()).view) if shown is ClusterView else {}
    given = list(given_out_by(shown, bound))
    assert {each.__name__ for hint in given for each in index_classes_in(hint)} <= {*READ_SIDE, *VALUES}
    attributes = [hint for name, hint in get_type_hints(shown).items() if not name.startswith("_")]
    assert {get_origin(hint) for hint in attributes}.isdisjoint({dict, list, set})


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

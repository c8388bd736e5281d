"""What the service writes into a cluster, against `config/reference/annotations.md`, in both directions. By the source text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from extender.model.policies import SCALARS
from extender.tasks.preemption import executor
from extender.verbs.admit.pod_fields import GATES, TERMS_PATH
from extender.verbs.release.progress import WaitReason
from extender.wire.api_calls import API_CALLS
from extender.wire.policies.group_placements import CONDITION
from extender.wire.policies.node_terms import LISTS

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "extender"
PAGE: Final = (ROOT / "config" / "reference" / "annotations.md").read_text("utf-8")
OWN_KEY: Final = re.compile(r"placement\.extender\.dev/(?!v\d)[a-z-]+")


def section(title: str) -> str:
    """The text below a heading."""
    (text,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def first_cells(text: str) -> list[str]:
    """The code in the first column of each table row."""
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    return [name for line in rows for name in re.findall(r"`([^`]+)`", line.split(" | ")[0])]


@cache
def modules() -> dict[Path, ast.Module]:
    """The modules of the service. The simulator writes to its own API server only."""
    paths = (path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "simulator")
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module assigns to a name in capitals."""
    found: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))) if name.isupper():
                found[name] = text
    return found


@cache
def all_constants() -> dict[str, str]:
    """The constants of all modules, for names that a module imports."""
    return {name: text for tree in modules().values() for name, text in constants(tree).items()}


def value_of(name: str, tree: ast.Module) -> str:
    """The text of a constant in a module that defines or imports it."""
    own = constants(tree)
    return own[name] if name in own else all_constants()[name]


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """The calls of a function, a method or a class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called == name:
                yield node


def texts(node: ast.expr, tree: ast.Module) -> Iterator[str]:
    """The texts that an expression may be: a constant, or what the callers of the function give for a parameter."""
    if isinstance(node, ast.Constant):
        yield str(node.value)
    elif isinstance(node, ast.JoinedStr):
        (prefix, _) = node.values
        assert isinstance(prefix, ast.Constant)
        yield from (f"{prefix.value!s}{reason}" for reason in WaitReason)
    elif isinstance(node, ast.Name) and node.id.isupper():
        yield value_of(node.id, tree)
    else:
        assert isinstance(node, ast.Name), ast.dump(node)
        for function in (found for found in ast.walk(tree) if isinstance(found, ast.FunctionDef)):
            names = [argument.arg for argument in function.args.args]
            if node.id in names and node in set(ast.walk(function)):
                for call in calls(tree, function.name):
                    yield from texts(call.args[names.index(node.id)], tree)
                return
        yield from _assigned(node, tree)


def _assigned(name: ast.Name, tree: ast.Module) -> Iterator[str]:
    """The texts of the assignment ``..., name = ..., text``."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.value, ast.Tuple)
        ):
            for target, value in zip(node.targets[0].elts, node.value.elts, strict=True):
                if isinstance(target, ast.Name) and target.id == name.id:
                    yield from texts(value, tree)
                    return
    raise AssertionError(f"where does {name.id} come from?")


def test_the_page_lists_each_key_of_the_extender() -> None:
    in_code = {
        key
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and OWN_KEY.fullmatch(node.value)
        for key in (node.value,)
    }
    assert len(in_code) > 5
    assert set(first_cells(section("Keys with the domain of the extender"))) == in_code


def test_the_page_lists_each_key_that_a_label_or_an_annotation_is_written_by() -> None:
    """Displays such as ``{"annotations": {KEY: value}}``, and the keys that ``Writer.annotate`` gets."""
    written: set[str] = set()
    for tree in modules().values():
        for call in calls(tree, "annotate"):
            written |= set(texts(call.args[1], tree))
        for node in (found for found in ast.walk(tree) if isinstance(found, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                if (
                    isinstance(key, ast.Constant)
                    and key.value in {"annotations", "labels"}
                    and isinstance(value, ast.Dict)
                ):
                    written |= {text for name in value.keys if name is not None for text in _text_of(name, tree)}
    own, others = section("Keys with the domain of the extender"), section("Keys of others")
    keys = [*first_cells(own.partition("Keys that the extender only reads")[0]), *first_cells(others)]
    by_admission = {"placement.extender.dev/injected", "placement.extender.dev/group"}
    assert by_admission <= set(keys)
    by_users = {"placement.extender.dev/moves-paused"}  # by `extender moves pause`, with the rights of its user
    assert written - by_users == set(keys) - by_admission


def _text_of(name: ast.expr, tree: ast.Module) -> list[str]:
    """The key of a display; none for a parameter of `Writer.annotate`, whose callers are looked at."""
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    assert isinstance(name, ast.Name), ast.dump(name)
    return [value_of(name.id, tree)] if name.id.isupper() else []


def test_the_page_lists_each_write_to_the_api_server() -> None:
    listed = first_cells(section("Fields and objects"))
    assert listed == list(dict.fromkeys(listed))
    assert set(listed) == {call.name for call in API_CALLS if call.verb != "get"}


def test_no_other_module_writes_to_the_api_server() -> None:
    """But for four commands with the rights of their user, and reviews that are not stored."""
    writes = re.compile(r"\.call\(\s*[\"'](?:POST|PUT|PATCH|DELETE)")
    found = {str(path.relative_to(PACKAGE)) for path in modules() if writes.search(path.read_text("utf-8"))}
    commands = {"cli/certificate_secrets.py", "cli/domain.py", "cli/policy_facts.py", "features/execution/cli.py"}
    assert found == commands | {"kube/diagnosis.py"}


def test_the_page_lists_each_field_that_admission_changes() -> None:
    fields = {*SCALARS, GATES, "nodeSelector", *LISTS, ".".join(TERMS_PATH)}
    named = re.findall(r"`([a-zA-Z.]+)`", section("What admission changes").partition("A pod keeps")[0])
    assert set(named) == fields


def test_the_page_lists_each_condition_and_its_reasons() -> None:
    conditions = section("Conditions")
    (status,) = (tree for path, tree in modules().items() if path.name == "policy_status.py")
    of_policies = set()
    for node in ast.walk(status):
        match node:
            case ast.Tuple(
                elts=[
                    ast.Constant(value=str(kind)),
                    ast.Constant(value="True" | "False" as value),
                    ast.Constant(value=str(reason)),
                    _,
                ]
            ):
                of_policies.add((kind, value, reason))
    assert len(of_policies) == 4
    rows = {cells[0]: cells[1] for cells in re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", conditions, re.MULTILINE)}
    assert rows.keys() == {condition for condition, _, _ in of_policies} | {executor.TARGET, CONDITION}
    for condition, value, reason in of_policies:
        assert f"{value} with `{reason}`" in rows[condition]
    assert f"True with `{executor.REASON}`" in rows[executor.TARGET]
    assert f"False with `{executor.NOT_PREEMPTED}`" in rows[executor.TARGET]


def test_the_page_lists_each_reason_of_an_event() -> None:
    reasons = {
        reason
        for path, tree in modules().items()
        if path.name != "effects.py"
        for call in calls(tree, "ObjectEvent")
        for reason in texts(call.args[2], tree)
    }
    assert set(first_cells(section("Events"))) == reasons


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('ObjectEvent(pod, "Normal", "Preempted")', ["Preempted"]),
        (
            'def event(kind, reason):\n    ObjectEvent(pod, kind, reason)\nevent("Normal", "One")\nevent("", "Two")',
            ["One", "Two"],
        ),
        ('kind, reason = "Warning", "Three"\nObjectEvent(pod, kind, reason)', ["Three"]),
        ('ObjectEvent(pod, "Normal", MISSED_ADMISSION)', ["PolicyMissedAdmission"]),
    ],
)
def test_the_reason_of_an_event_is_found(source: str, found: list[str]) -> None:
    tree = ast.parse(source)
    (call,) = calls(tree, "ObjectEvent")
    assert list(texts(call.args[2], tree)) == found

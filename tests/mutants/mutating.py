"""The mutants of a module: every small change of its syntax tree that this knows to make.

Comparisons, boolean and arithmetic operators, numbers and booleans, conditions, returned values, and statements left
out. Texts, annotations, decorators and docstrings stay as they are: what they say is not behaviour. A mutant is named
by function and text, never by line, so that its name lives through changes elsewhere in the file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice, zip_longest
from pathlib import Path
from typing import Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_LEFT_OUT: Final = (ast.Expr, ast.AugAssign, ast.Delete, ast.Raise, ast.Break, ast.Continue)
_NOT_BEHAVIOUR: Final = ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords")
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.ClassDef)

Undo = Callable[[], None]
Edit = Callable[[], Undo]  # makes a change, and returns what takes it back


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed module. ``where``: the function; ``old`` and ``new``: the first line that differs, before and after.

    ``number`` is its place among the mutants of the same text; ``lines`` those of the changed statement.
    """

    path: Path
    number: int
    lines: range
    where: str
    old: str
    new: str

    @property
    def line(self) -> int:
        return self.lines.start

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.path.as_posix(), self.where, self.old, self.new

    def order(self, seed: int) -> bytes:
        """Its place in the order that samples are taken in: the same while the mutant is the same."""
        return sha256(repr((seed, *self.key)).encode()).digest()


def mutants_of(path: Path, source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its text."""
    for number, (where, body, at, edit) in enumerate(_edits(ast.parse(source))):
        lines, before = _lines_of(body[at]), ast.unparse(body[at]).splitlines()
        undo = edit()
        after = ast.unparse(body[at]).splitlines()
        undo()
        old, new = next((a, b) for a, b in zip_longest(before, after, fillvalue="") if a != b)
        yield Mutant(path, number, lines, where, old.strip(), new.strip())


def statements_of_functions(source: str) -> Iterator[range]:
    """The lines of each statement that runs when a function is called, without the statements inside of it."""
    for function in (each for each in ast.walk(ast.parse(source)) if isinstance(each, _FUNCTIONS)):
        for _, body, at in _statements(function.body, ()):
            if not (at == 0 and body is function.body and ast.get_docstring(function)):
                yield _lines_of(body[at])


def mutated(source: str, number: int) -> str:
    """The text of a module with one of its mutations."""
    tree = ast.parse(source)
    _, _, _, edit = next(islice(_edits(tree), number, None))
    edit()
    return ast.unparse(tree)


def _edits(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt], int, Edit]]:
    """Every change: in which function, the list that holds the statement and its place there, and how to make it."""
    for where, body, at in list(_statements(tree.body, ())):
        statement = body[at]
        if _can_be_left_out(statement):
            yield where, body, at, _leave_out(body, at)
        for node in _nodes(statement):
            for edit in _changes(node):
                yield where, body, at, edit


def _lines_of(statement: ast.stmt) -> range:
    """Its own lines, without those of the statements inside of it; of a function or class, all: its head runs at import."""
    last = statement.end_lineno or statement.lineno
    if not isinstance(statement, _SCOPES):
        inside = [part.lineno for part in ast.walk(statement) if isinstance(part, ast.stmt) and part is not statement]
        last = min([last, *(line - 1 for line in inside)])
    return range(statement.lineno, max(last, statement.lineno) + 1)


def _statements(body: list[ast.stmt], names: tuple[str, ...]) -> Iterator[tuple[str, list[ast.stmt], int]]:
    for at, statement in enumerate(body):
        inside = (*names, statement.name) if isinstance(statement, _SCOPES) else names
        yield ".".join(inside), body, at
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, name, []), inside)
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _statements(part.body, inside)


def _nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes that belong to this statement itself, not to the statements inside of it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in ast.iter_fields(node):
            if name in _NOT_BEHAVIOUR and isinstance(node, (*_SCOPES, ast.AnnAssign, ast.arg)):
                continue
            parts = value if isinstance(value, list) else [value]
            waiting.extend(part for part in parts if isinstance(part, ast.AST) and not _holds_statements(part))


def _holds_statements(node: ast.AST) -> bool:
    return isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case)


def _can_be_left_out(statement: ast.stmt) -> bool:
    """Not docstrings, and not assignments to plain names: without them the module mostly does not run at all."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return isinstance(statement, _LEFT_OUT)


def _leave_out(body: list[ast.stmt], at: int) -> Edit:
    def edit() -> Undo:
        kept, body[at] = body[at], ast.Pass()
        return lambda: body.__setitem__(at, kept)

    return edit


def _put(node: ast.AST, name: str, value: object) -> Edit:
    def edit() -> Undo:
        kept = getattr(node, name)
        setattr(node, name, value)
        return lambda: setattr(node, name, kept)

    return edit


def _changes(node: ast.AST) -> Iterator[Edit]:
    """The changes of one node, not of what is inside of it."""
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                yield _put(node, "ops", [*ops[:at], _COMPARISONS[type(op)](), *ops[at + 1 :]])
        case ast.BoolOp(op=operator):
            yield _put(node, "op", ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            yield _put(node, "op", _ARITHMETIC[type(operator)]())
        case ast.Constant(value=bool(value)):
            yield _put(node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield _put(node, "value", value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield _put(node, "operand", ast.UnaryOp(ast.Not(), operand))
        case ast.If() | ast.IfExp():
            yield _put(node, "test", ast.Constant(value=False))
            yield _put(node, "test", ast.Constant(value=True))
        case ast.Return(value=ast.expr() as returned) if not isinstance(returned, ast.Constant):
            yield _put(node, "value", ast.Constant(value=None))
        case _:
            return

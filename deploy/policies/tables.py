"""The tables of fields in config/policies/README.md: rows and defaults by the declaration, meanings as a person has written them.

A field without a row gets one with its description and its bounds, which is there to be improved. A row without a field goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from deploy.policies.crds import structural
from extender.features.execution.schema import EXECUTION
from extender.wire.policies.policy_schema import SPEC, SPREAD
from extender.wire.policies.release_schema import RELEASE
from extender.wire.policies.schema import Field, Many, Record, Text, Type, WholeNumber

README: Final = Path(__file__).resolve().parents[2] / "config" / "policies" / "README.md"
_TABLE: Final = re.compile(r"(?<=\| field \| meaning \| default \|\n\|---\|---\|---\|\n)(?:\|.*\n)+")
_TABLES: Final = (
    ("", SPEC),
    ("spec.spread.", SPREAD),
    ("spec.release.", RELEASE),
    ("spec.execution.", EXECUTION),
)  # in the order of the document


class _Row(NamedTuple):
    names: str
    meaning: str
    default: str

    def has(self, name: str) -> bool:
        return f"`{name}`" in self.names

    def __str__(self) -> str:
        return f"| {self.names} | {self.meaning} | {self.default and f'{self.default} '}|\n"


def as_text(document: str) -> str:
    """The document with its tables written anew."""
    tables = iter(_TABLES)
    return _TABLE.sub(lambda found: "".join(map(str, _table(found[0], *next(tables)))), document)


def _table(text: str, prefix: str, declared: Record) -> Iterator[_Row]:
    rows = [_row(line) for line in text.splitlines()]
    fields = {f"{prefix}{field.name}": field for field in declared.fields}
    for name, field in fields.items():
        if not any(row.has(name) for row in rows):
            rows.append(_Row(f"`{name}`", _meaning(field), ""))
    for row in rows:
        known = [field for name, field in fields.items() if row.has(name)]
        if known:
            yield row._replace(default=_default(known[0]) or row.default)


def _row(line: str) -> _Row:
    names, meaning, default = (cell.strip() for cell in line.strip("|").split("|"))
    return _Row(names, meaning, default)


def _meaning(field: Field) -> str:
    return ", ".join(part for part in (field.about.rstrip("."), _bounds(field.type)) if part)


def _bounds(declared: Type) -> str:
    match declared:
        case Text(choices=choices) if choices:
            return " or ".join(f"`{word}`" for word in choices)
        case Text(longest=longest):
            return f"up to {longest} characters"
        case WholeNumber(least, most) if least is not None and most is not None:
            return f"{least} to {most}"
        case Many(most=most):
            return f"up to {most}"
        case _:
            return ""


def _default(field: Field) -> str:
    """The default in the schema, as YAML; empty where the schema has none."""
    found = structural(field.type).get("default")
    text = yaml.safe_dump(found, default_flow_style=True).removesuffix("...\n").strip()
    return "" if found is None else f"`{text}`"

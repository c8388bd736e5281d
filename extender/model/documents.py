"""Makes a parsed document, such as a YAML mapping, into a frozen struct: strictly, and with the path of each problem.

Unknown fields and fields of a wrong type are refused. Knows no file format and no particular document: the settings and
the scenarios bring their structs. Not for the hot path, where `wire` decodes bytes directly.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from extender.model.constraints.labels import LabelKey, ObjectName
from extender.model.units import Address, ByteSize, Duration

StructT = TypeVar("StructT", bound=Struct)

_READERS: Final[dict[type, tuple[Callable[[str], object], str]]] = {
    Duration: (Duration.parse, 'a duration such as "15s"'),
    ByteSize: (ByteSize.parse, 'a size such as "32Mi"'),
    Address: (Address.parse, 'an address such as "127.0.0.1:8888"'),
    LabelKey: (LabelKey.parse, 'a label key such as "topology.kubernetes.io/zone"'),
    ObjectName: (ObjectName.parse, 'the name of an object such as "placement-extender"'),
}


MOST_PROBLEMS: Final = 100  # named in one error
_INT32: Final = 2**31 - 1

AtLeastOne: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=_INT32)]
NotNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_INT32)]


class DocumentError(ValueError):
    """A document that cannot be used; `problems` holds one "path: what is wrong" for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        listed = list(problems)
        more = [f"and {len(listed) - MOST_PROBLEMS} more problems"] if len(listed) > MOST_PROBLEMS else []
        self.problems = (*listed[:MOST_PROBLEMS], *more)
        super().__init__("; ".join(self.problems))


class Section(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all parts of a configuration document."""


def require_positive(section: Struct, *names: str) -> None:
    """Refuse a duration or a size of zero. Raises ValueError."""
    for field in msgspec.structs.fields(section):
        if field.name in names and getattr(section, field.name) <= 0:
            raise ValueError(f"{field.encode_name}: must be more than zero")


def read_document(document: object, kind: type[StructT], required: Iterable[str] = ()) -> StructT:
    """Make a struct of a mapping with camelCase names. Raises DocumentError with every problem.

    `required` names fields that a document must have although the struct has a default for them.
    """
    if not isinstance(document, dict):
        raise DocumentError([f"expected a mapping, got {type(document).__name__}"])
    problems = [f"{name}: is missing" for name in required if name not in document]
    problems += _problems(document, kind, "")
    if problems:
        raise DocumentError(problems)
    return msgspec.convert(document, kind, dec_hook=_read_unit)


def write_document(value: Struct) -> dict[str, Any]:
    """The mapping from which `read_document` makes this struct."""
    document: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
    return document


def without_nulls(value: object) -> object:
    """A deep copy that leaves out every field that is null: in a document that means the default."""
    if isinstance(value, dict):
        return {name: without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _problems(value: object, kind: Any, path: str) -> list[str]:
    """Every problem of a value that should become `kind`. A field with problems below it gets none of its own."""
    problems: list[str] = []
    struct = next((part for part in get_args(kind) if isinstance(part, type) and issubclass(part, Struct)), None)
    if struct is not None and get_origin(kind) is UnionType and isinstance(value, dict):  # a section that may be absent
        return _problems(value, struct, path)
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        for name, item in value.items():
            below = f"{path}.{name}" if path else str(name)
            # The search for a similar name takes long, and problems above the bound are not shown.
            near = fields if len(problems) < MOST_PROBLEMS else ()
            problems += _problems(item, fields[name], below) if name in fields else [_unknown(name, near, below)]
    elif get_origin(kind) is tuple and isinstance(value, list):
        for number, item in enumerate(value):
            problems += _problems(item, get_args(kind)[0], f"{path}[{number}]")
    return problems or _conversion_problem(value, kind, path)


def _conversion_problem(value: object, kind: Any, path: str) -> list[str]:
    """At most one problem: the field itself, a field missing in it, or the result of its own checks."""
    try:
        msgspec.convert(value, kind, dec_hook=_read_unit)
    except msgspec.ValidationError as error:
        # msgspec ends its text with the place below this value, which is the path here.
        text = str(error).partition(" - at `$")[0].replace("`", "").replace("Expected", "expected")
        if missing := re.fullmatch(r"Object missing required field (\w+)", text):
            return [f"{path}.{missing[1]}: is missing"]
        if text.startswith("Invalid enum value"):
            text = f"expected {_choices(kind)}, got {value!r}"
        # A check of a whole section names the field itself, as "max: must not be less than initial".
        own = re.fullmatch(r"([A-Za-z.]+(?:\[\d+\])?): (.*)", text)
        place = ".".join(part for part in (path, own[1] if own else "") if part)
        return [f"{place}: {own[2] if own else text}"]
    return []


def _choices(kind: Any) -> str:
    """The values that a field takes, for a message: "offload or augment"."""
    options = [str(option) for option in get_args(kind) if isinstance(option, str)]
    for part in get_args(kind):
        options += ["true", "false"] if part is bool else [str(option) for option in get_args(part)]
    return " or ".join(options)


def _unknown(name: object, known: Iterable[str], path: str) -> str:
    """The message for an unknown field; names the most similar known field."""
    if name == "labelSelector":
        return f"{path}: must not be set, selectors are deduced for each pod"
    # A wrong case is the most frequent mistake, so names are compared without it.
    by_case = {field.lower(): field for field in known}
    near = difflib.get_close_matches(str(name).lower(), list(by_case), n=1)
    return f"{path}: unknown field" + (f', did you mean "{by_case[near[0]]}"?' if near else "")


def _read_unit(kind: type, value: object) -> object:
    """Reads a duration, size, address, label key or name. Its ValueError or TypeError becomes the field's problem."""
    # Not `isinstance`: in Python `true` is an integer too, and no size.
    if kind is ByteSize and type(value) is int:
        return ByteSize.of(value)
    parse, example = _READERS[kind]
    if not isinstance(value, str):
        raise TypeError(f"expected {example}, got {type(value).__name__}")
    return parse(value)

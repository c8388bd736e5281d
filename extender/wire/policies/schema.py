"""Types of the fields of our kinds, as plain data. `policy_schema.py` declares the fields of a policy with them.

From one declaration follow the schema of the CRD (`deploy/policies/crds.py`), the checks of the webhook (`policy_validation.py`), and the names that
a policy may have (`policy_fields.py`).

Every list and text has a bound. Without one the API server assumes the largest request for it and refuses the CEL rules as
too expensive: https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries .
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final, TypeAlias

from extender.model.units import Duration
from extender.wire.policies.field_errors import ErrorType, Problems, check_label_key

Check: TypeAlias = Callable[[Problems, Any, str], None]
"""Adds the errors of a value at a path."""

LONGEST_NAME: Final = 253
LONGEST_KEY: Final = 317  # a prefix of 253 characters, a slash, a name of 63
LONGEST_LABEL: Final = 63


@dataclass(frozen=True, slots=True)
class Text:
    """A string.

    - ``check``: what the webhook says of its form, in place of the pattern and the length;
    - ``is_optional``: an empty text is as good as none to the webhook;
    - ``may_be_empty``: the schema accepts an empty text beside its pattern;
    - ``is_lenient``: the webhook leaves the form to the schema, because a policy under an older schema stays readable;
    - ``reads``: makes the value of the model.
    """

    pattern: str = ""
    longest: int = LONGEST_NAME
    choices: tuple[str, ...] = ()
    check: Check | None = None
    is_optional: bool = False
    may_be_empty: bool = False
    is_lenient: bool = False
    default: str | None = None
    reads: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Plain:
    """What the API server checks itself, such as a time or the metadata of an object."""

    type: str
    format: str | None = None


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """An integer within bounds."""

    least: int | None = 0
    most: int | None = None
    bits: int = 32
    default: int | None = None


@dataclass(frozen=True, slots=True)
class NumberOrWord:
    """An integer within bounds, or a word. A CEL rule says so in the CRD, because a schema cannot."""

    word: str
    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Flag:
    """A boolean. ``only_true``: the field is there to be set."""

    only_true: bool = False
    default: bool | None = None


@dataclass(frozen=True, slots=True)
class Many:
    """A list: a map by ``keys``, a set, or without either atomic, as the lists of a pod are, which may repeat an entry.

    - ``needs``: what the webhook says of an empty list;
    - ``is_limited``: the webhook refuses more than ``most``;
    - ``is_unique``: the webhook refuses an item, or the first of the keys of an item, that was there before. None: as the schema.
    """

    item: Type
    most: int
    least: int = 0
    keys: tuple[str, ...] = ()
    is_set: bool = False
    needs: str = ""
    is_limited: bool = True
    is_unique: bool | None = None
    reads: Callable[[Iterable[Any]], Any] = tuple
    default: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """A map of texts. A schema has no pattern for keys: the webhook checks their form."""

    value: Text
    most: int
    rules: tuple[FieldRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object. ``check``: in place of the check of its type, where Kubernetes has one for fields of a pod."""

    name: str
    type: Type
    about: str = ""
    is_required: bool = False
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """An object. ``is_choice``: it has exactly one of its fields."""

    fields: tuple[Field, ...]
    predicates: tuple[Predicate, ...] = ()
    is_atomic: bool = False
    is_choice: bool = False
    default: tuple[tuple[str, Any], ...] | None = None

    @property
    def choice_text(self) -> str:
        """What is wrong with any other number of fields."""
        return f"must have exactly one of the fields {', '.join(each.name for each in self.fields)}"


Type: TypeAlias = "Text | Plain | WholeNumber | NumberOrWord | Flag | Many | Pairs | Record"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A CEL rule. ``path`` is the field at fault, relative to the object that the rule stands at."""

    expression: str
    message: str
    path: str = ""
    reason: ErrorType = ErrorType.INVALID


@dataclass(frozen=True, slots=True)
class Predicate:
    """What types cannot say of an object: the check of the webhook, and the rules of the CRD.

    Without a check the schema alone refuses it, because it does no harm in a policy that is older than the schema.
    """

    check: Check | None
    rules: tuple[FieldRule, ...] = ()


def predicate(check: Check | None, *rules: FieldRule) -> Predicate:
    """A predicate."""
    return Predicate(check, rules)


def names_of(found: Type) -> Iterator[str]:
    """The names of all fields within, and the words that are their values."""
    match found:
        case Record():
            for field in found.fields:
                yield field.name
                yield from names_of(field.type)
        case Many():
            yield from names_of(found.item)
        case Text():
            yield from found.choices
        case NumberOrWord():
            yield found.word


def reader_of(model: type, declared: Record) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Reads a valid object: the fields that the model has by the same name. What is absent has the default of the model.

    It reads texts, numbers, flags, and lists of texts.
    """
    # Made once, at import, so that reading a policy needs no reflection.
    names = {each.name for each in fields(model)}
    parts = [(each.name, _attribute(each.name), _reads(each.type)) for each in declared.fields]
    known = [(name, attribute, reads) for name, attribute, reads in parts if attribute in names and reads]

    def read(value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            attribute: reads(item) for name, attribute, reads in known if (item := value.get(name)) not in (None, "")
        }

    return read


def _attribute(name: str) -> str:
    # minDomains becomes min_domains.
    return re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _reads(declared: Type) -> Callable[[Any], Any] | None:
    match declared:
        case Text(reads=reads):
            return reads
        # Records and maps are read by hand: only texts, numbers, flags and lists of texts map to one value of the
        # model.
        case Many(item=Text(reads=item), reads=reads):
            return reads if item is str else lambda value: reads(map(item, value))
        case WholeNumber() | Flag():
            return lambda value: value
        case _:
            return None


def choice(choices: type[StrEnum] | Iterable[str], *, has_default: bool = True) -> Text:
    """One of a list of words; the first of them is the default."""
    words, reads = tuple(map(str, choices)), choices if isinstance(choices, type) else str
    return Text(choices=words, is_optional=True, default=words[0] if has_default else None, reads=reads)


def duration(holds: Callable[[float], bool], limits: str, default: str | None = None) -> Text:
    """A duration such as 5m. ``holds`` checks its seconds, and ``limits`` describes the check. Without a default "" counts as not set."""

    def check(found: Problems, text: str, path: str) -> None:
        try:
            detail = "" if holds(Duration.parse(text)) else limits
        except ValueError as error:
            detail = str(error)
        if detail:
            found.invalid(path, text, detail)

    pattern = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
    return Text(pattern, 32, check=check, is_optional=default is None, default=default, reads=_seconds)


def _seconds(text: str) -> float:
    return float(Duration.parse(text))


# -- the forms of texts

LABEL: Final = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
_DNS: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL: Final = rf"^{_DNS}$"
DNS_SUBDOMAIN: Final = rf"^{_DNS}(\.{_DNS})*$"
NO_SPACE: Final = r"^[^\s]+$"
LABEL_KEY: Final = Text(rf"^({_DNS}(\.{_DNS})*/)?{LABEL}$", LONGEST_KEY, check=check_label_key)
TIME: Final = Plain("string", "date-time")
LABEL_VALUE: Final = Text(f"^{LABEL}?$", LONGEST_LABEL, may_be_empty=True)

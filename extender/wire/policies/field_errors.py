"""Errors of an object's fields, in the types and words of the Kubernetes API, and a collector that finds all of them.

As https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field: a client shows ``type`` as the reason of a cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from extender.model.policies import JsonObject

_LONGEST_VALUE: Final = 100  # characters of a wrong value that are repeated in a message


class ErrorType(StrEnum):
    """The types of a field error that occur here."""

    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_MANY = "FieldValueTooMany"
    TOO_LONG = "FieldValueTooLong"


_WORDS: Final = {
    ErrorType.REQUIRED: "Required value",
    ErrorType.DUPLICATE: "Duplicate value",
    ErrorType.INVALID: "Invalid value",
    ErrorType.TYPE_INVALID: "Invalid value",
    ErrorType.NOT_SUPPORTED: "Unsupported value",
    ErrorType.FORBIDDEN: "Forbidden",
    ErrorType.TOO_MANY: "Too many",
    ErrorType.TOO_LONG: "Too long",
}
_NO_VALUE: Final = object()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error: the field's path, the type, and the text without the path."""

    field: str
    type: ErrorType
    message: str

    def __str__(self) -> str:
        """As the API server writes it: ``spec.nodeName: Invalid value: "A b": ...``."""
        return f"{self.field}: {self.message}"


class Problems:
    """Collects field errors. Each `read…` returns a value of the wanted type, empty where the field has another type."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def add(self, kind: ErrorType, path: str, detail: str, value: object = _NO_VALUE) -> None:
        """Adds one error."""
        shown = "" if value is _NO_VALUE else f": {shorten(value)}"
        self.errors.append(FieldError(path, kind, f"{_WORDS[kind]}{shown}{': ' if detail else ''}{detail}"))

    def invalid(self, path: str, value: object, detail: str) -> None:
        """The value has the right type, and is wrong."""
        self.add(ErrorType.INVALID, path, detail, value)

    def required(self, path: str, detail: str) -> None:
        """A value is missing."""
        self.add(ErrorType.REQUIRED, path, detail)

    def forbidden(self, path: str, detail: str) -> None:
        """There may be no value."""
        self.add(ErrorType.FORBIDDEN, path, detail)

    def not_supported(self, path: str, value: object, supported: Iterable[str]) -> None:
        """The value is none of the list."""
        listed = ", ".join(f'"{each}"' for each in supported)
        self.add(ErrorType.NOT_SUPPORTED, path, f"supported values: {listed}", value)

    def read_object(self, value: Any, path: str) -> JsonObject:
        """A JSON object; null is an empty one."""
        found: JsonObject = self._read(value, dict, {}, path, "an object")
        return found

    def read_list(self, value: Any, path: str) -> list[Any]:
        """A JSON list; null is an empty one."""
        found: list[Any] = self._read(value, list, [], path, "a list")
        return found

    def read_text(self, value: Any, path: str) -> str:
        """A string; null is an empty one."""
        found: str = self._read(value, str, "", path, "a string")
        return found

    def read_number(self, value: Any, path: str, least: int, most: int) -> int | None:
        """An integer in a range; None where it is null or wrong."""
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            self.add(ErrorType.TYPE_INVALID, path, "must be an integer", value)
            return None
        if not least <= value <= most:
            self.invalid(path, value, f"must be in the range {least}-{most}")
            return None
        return value

    def read_choice(self, value: Any, path: str, choices: Iterable[str]) -> str:
        """One of a list of words; empty where it is null or wrong."""
        text = self.read_text(value, path)
        if text and text not in choices:
            self.not_supported(path, text, choices)
            return ""
        return text

    def read_texts(self, value: Any, path: str) -> list[str]:
        """A list of strings, without those that are none."""
        return [item for item, at in self.items(value, path) if self._is_text(item, at)]

    def read_strings(self, value: Any, path: str) -> dict[str, str]:
        """An object of strings, without the fields that are none."""
        return {k: v for k, v in self.read_object(value, path).items() if self._is_text(v, f"{path}[{k}]")}

    def items(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        """The elements of a list with their paths."""
        for number, item in enumerate(self.read_list(value, path)):
            yield item, f"{path}[{number}]"

    def objects(self, value: Any, path: str) -> Iterator[tuple[JsonObject, str]]:
        """The elements of a list of objects with their paths."""
        for item, at in self.items(value, path):
            if isinstance(item, dict):
                yield item, at
            else:
                self.add(ErrorType.TYPE_INVALID, at, "must be an object", item)

    def _is_text(self, value: Any, path: str) -> bool:
        if isinstance(value, str):
            return True
        self.add(ErrorType.TYPE_INVALID, path, "must be a string", value)
        return False

    def _read(self, value: Any, kind: type, empty: Any, path: str, what: str) -> Any:
        if value is None:
            return empty
        if not isinstance(value, kind):
            self.add(ErrorType.TYPE_INVALID, path, f"must be {what}", value)
            return empty
        return value


def shorten(value: object) -> str:
    """A JSON value for a message, cut at 100 characters."""
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"

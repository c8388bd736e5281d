"""Prepares the parsed YAML of a scenario: chooses the length of the run, and fills in what an empty step means.

Pure. Called by `scenario/language.py`, which parses the result.
"""

from typing import Any, Final

_LENGTHS: Final = {"full", "short"}
_LISTS: Final = ("steps", "forever", "faults")


def prepared(document: object, *, short: bool) -> object:
    """The document with the values of one length, and with steps that are mappings."""
    return _with_bare_steps(_of_length(document, "short" if short else "full"))


def _of_length(value: object, length: str) -> object:
    """A copy in which each `{full: A, short: B}` is A or B: a short run is the same scenario with fewer pods."""
    if isinstance(value, dict):
        if value.keys() == _LENGTHS:
            return _of_length(value[length], length)
        return {name: _of_length(field, length) for name, field in value.items()}
    if isinstance(value, list):
        return [_of_length(item, length) for item in value]
    return value


def _with_bare_steps(document: object) -> object:
    """Replaces the null of `- settle:` and `- cutLine:` by an empty mapping: a step or fault with all defaults."""
    if not isinstance(document, dict):
        return document
    lists = {name: part for name, part in document.items() if name in _LISTS and isinstance(part, list)}
    return document | {name: [_filled(step) for step in part] for name, part in lists.items()}


def _filled(step: object) -> Any:
    if not isinstance(step, dict):
        return step
    filled = {verb: {} if body is None else body for verb, body in step.items()}
    if isinstance(filled.get("faults"), list):
        filled["faults"] = [_filled(fault) for fault in filled["faults"]]
    return filled

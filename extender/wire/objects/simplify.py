"""Simplifies JSON that a decoder rejected, for a second attempt: removes parts that no decision reads.

A decoder also parses the values that it skips. So one deeply nested field makes the whole object, page or line
undecodable, and ``managedFields`` can have up to 10,000 levels. A user who may create pods could hide a pod from every
count in this way. Three things are removed:

1. ``managedFields``, whose content the API server does not check;
2. every array or object below ``DEEPEST_READ`` levels; the deepest field of `objects_json` is at level 12;
3. bytes that are not UTF-8: they become U+FFFD, as in the API server's decoder.

Cost: O(bytes); 0.03 to 0.3 s for the largest hostile object (1.5 MB of brackets), 20 ms per megabyte of usual pods.
``simplify`` therefore yields between steps. JSON that the decoder accepts costs nothing.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from extender.wire.errors import UNREADABLE

T = TypeVar("T")

DEEPEST_READ: Final = 32
_RUNS_PER_STEP: Final = 500  # one to three milliseconds
_ABSENT: Final = b"null"
_PLAIN: Final = rb"""[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)"""
# Matches anything but brackets, then a run of brackets of one direction. An array or object without brackets inside counts
# as "anything but brackets". Possessive, and with an alternative for the end of the input, so that the match is linear.
_BRACKETS: Final = re.compile(
    rb"(?:%(plain)s|[\[{](?:%(plain)s)*+[\]}])*+([\[{]+|[\]}]+|\Z)" % {b"plain": _PLAIN}, re.DOTALL
)
_OPENING: Final = frozenset(b"[{")
_COLON: Final = b": \t\r\n"
_MANAGED_FIELDS: Final = re.compile(rb'"managedFields"\s*:\s*\Z')
_LONGEST_KEY: Final = 32  # with blanks around the colon, as kubectl prints it


def simplify(body: bytes) -> Generator[None, None, bytes]:
    """A generator that returns the simplified document; it yields so that other tasks can run. Raises nothing."""
    body = _as_utf8(body)
    kept: list[bytes] = []
    done = depth = 0
    hidden = -1  # the level around the value that is being removed; -1 outside of such a value
    for number, found in enumerate(_BRACKETS.finditer(body), start=1):
        start, end = found.span(1)
        size = end - start
        if size and body[start] in _OPENING:
            # Only a value after a colon can be managedFields; the search for its key is skipped for all others.
            if hidden < 0 and (depth + size > DEEPEST_READ or body[start - 1] in _COLON):
                hidden, keep = _hidden_from(body, start, depth, size)
                if hidden >= 0:
                    kept += body[done:keep], _ABSENT
            depth += size
        else:
            depth -= size
            if 0 <= hidden >= depth:
                done, hidden = end - (hidden - depth), -1
        if number % _RUNS_PER_STEP == 0:
            yield
    # A body that ends inside of a hidden value is cut there: the decoder then reports it as malformed.
    if hidden < 0:
        kept.append(body[done:])
    return b"".join(kept)


def simplified(body: bytes) -> bytes:
    """The simplified document without yielding, for documents of bounded size."""
    steps = simplify(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: bytes = end.value
            return found


def decode_twice(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decodes the body, or its simplified form if that fails. Raises one of ``UNREADABLE`` if both fail."""
    try:
        return decoder.decode(body)
    except UNREADABLE:
        return decoder.decode(simplified(body))


def _hidden_from(body: bytes, start: int, depth: int, size: int) -> tuple[int, int]:
    """For a run of opening brackets that starts a value to remove: the level around the value and its start; else -1."""
    if _MANAGED_FIELDS.search(body, max(0, start - _LONGEST_KEY), start):
        return depth, start
    if depth + size > DEEPEST_READ:
        return DEEPEST_READ, start + DEEPEST_READ - depth
    return -1, start


def _as_utf8(body: bytes) -> bytes:
    try:
        body.decode()
    except UnicodeDecodeError:
        return body.decode(errors="replace").encode()
    return body

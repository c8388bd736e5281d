"""Simplifies JSON that a decoder rejected, for a second attempt: removes parts that no decision reads.

A decoder also parses values that it skips. So one deeply nested field makes the whole object, page or line undecodable,
and ``managedFields`` can have up to 10,000 levels. A user who may create pods could thus hide a pod from every count.
Three things are removed:

1. ``managedFields``, because the API server does not check their content;
2. every array or object below ``DEEPEST_READ`` levels; the deepest field of `objects_json` is at level 12;
3. bytes that are not UTF-8: they become U+FFFD, as in the API server's decoder.

Cost: O(bytes); 0.03 to 0.3 s for the largest hostile object (1.5 MB of brackets), 20 ms per megabyte of usual pods. So
``simplify`` yields between steps. Each step reads a bounded number of bytes: blanks, one text, or objects without
brackets inside. JSON that the decoder accepts costs nothing.
https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

from extender.wire.errors import UNREADABLE

T = TypeVar("T")

DEEPEST_READ: Final = 32
_RUNS_PER_STEP: Final = 500  # one to three milliseconds
_BYTES_PER_STEP: Final = 2**19  # at 4 ns
_ABSENT: Final = b"null"
_PLAIN: Final = rb"""[^"\[\]{}]{1,512}+|"[^"\\]{0,510}+\""""
# Matches no brackets, then a run of brackets of one direction. A short array or object without brackets inside counts
# as no bracket. Bounded: it matches no run if half a megabyte has none, or if a text begins that is longer or has
# escapes. `_TEXT` matches such a text piece by piece. Linear: what follows a repeated group matches also nothing, or one
# bracket, which no earlier end of the group has before it. So no group is possessive: before Python 3.11.5 a possessive
# group matches wrongly (https://github.com/python/cpython/issues/106052).
_BRACKETS: Final = re.compile(
    rb"(?:%(plain)s|[\[{](?:%(plain)s){0,32}[\]}]){0,32}([\[{]{1,65536}+|[\]}]{1,65536}+|)" % {b"plain": _PLAIN}
)
_TEXT: Final = re.compile(rb"""(?:[^"\\]{1,512}+|\\.){0,512}""", re.DOTALL)
_QUOTE: Final = ord('"')
_OPENING: Final = frozenset(b"[{")
_COLON: Final = b": \t\r\n"
_MANAGED_FIELDS: Final = re.compile(rb'"managedFields"\s*:\s*\Z')
_LONGEST_KEY: Final = 32  # with blanks around the colon, as kubectl prints it


def simplify(body: bytes) -> Generator[None, None, bytes]:
    """A generator that returns the simplified document; it yields so that other tasks can run. Raises nothing."""
    body = yield from _as_utf8(body)
    kept: list[bytes] = []
    done = depth = step = 0
    hidden = -1  # the level around the value that is being removed; -1 outside such a value
    for number, (start, end) in enumerate(_runs(body), start=1):
        size = end - start
        if size and body[start] in _OPENING:
            # Only a value after a colon can be managedFields, so the key is searched for only there.
            if hidden < 0 and (depth + size > DEEPEST_READ or body[start - 1] in _COLON):
                hidden, keep = _hidden_from(body, start, depth, size)
                if hidden >= 0:
                    kept += body[done:keep], _ABSENT
            # A run of opening brackets: a value to remove may begin in it.
            depth += size
        else:
            depth -= size
            # A run of closing brackets that ends the hidden value, perhaps in its middle.
            if 0 <= hidden >= depth:
                # Example: a value at level 33 ends in a run of four brackets from level 34 to 30. With `hidden` 32 the
                # first two brackets end the value, and the last two, 32 - 30, stay.
                done, hidden = end - (hidden - depth), -1
        if number % _RUNS_PER_STEP == 0 or end - step >= _BYTES_PER_STEP:
            step = end
            yield
    # A body that ends inside a hidden value is cut there, and the decoder reports it as malformed.
    # Nothing was removed, so no copy is made.
    if not done and hidden < 0:
        return body
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
            document: bytes = end.value
            return document


def decode_twice(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decodes the body, or if that fails its simplified form. Raises one of ``UNREADABLE`` if both fail."""
    try:
        return decoder.decode(body)
    except UNREADABLE:
        return decoder.decode(simplified(body))


def _runs(body: bytes) -> Generator[tuple[int, int]]:
    """Begin and end of runs of brackets of one direction, outside texts; an empty run each half megabyte."""
    at = 0
    while at < len(body):
        start, at = _matched(_BRACKETS, body, at)
        if start == at < len(body) and body[at] == _QUOTE:
            start = at + 1
            while (at := _matched(_TEXT, body, start)[1]) > start:
                yield at, at
                start = at
            at += 1  # the closing quote, or a backslash at the end
        else:
            yield start, at


def _matched(pattern: re.Pattern[bytes], body: bytes, at: int) -> tuple[int, int]:
    """Begin and end of the last group of a match. Both patterns always match, if only an empty text."""
    match = pattern.match(body, at)
    return match.span(pattern.groups) if match is not None else (at, at)


def _hidden_from(body: bytes, start: int, depth: int, size: int) -> tuple[int, int]:
    """If a run of opening brackets begins a value to remove: the level around the value and its start; else -1."""
    if _MANAGED_FIELDS.search(body, max(0, start - _LONGEST_KEY), start):
        return depth, start
    if depth + size > DEEPEST_READ:
        return DEEPEST_READ, start + DEEPEST_READ - depth
    return -1, start


def _as_utf8(body: bytes) -> Generator[None, None, bytes]:
    """The body with U+FFFD in place of bytes that are not UTF-8; in steps."""
    if body.isascii():
        return body
    decoder, parts = getincrementaldecoder("utf-8")(errors="replace"), list[bytes]()
    for start in range(0, len(body), _BYTES_PER_STEP):
        end = start + _BYTES_PER_STEP
        parts.append(decoder.decode(body[start:end], final=end >= len(body)).encode())
        yield
    return b"".join(parts)

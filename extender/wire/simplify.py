"""Bytes for a second attempt at JSON that a decoder refused: the same document without what no decision reads.

A decoder also walks through the values that it skips, so one field that is nested very deeply (``managedFields`` may
be: the apiserver takes up to 10,000 levels) makes the whole object, page or line unreadable. A user who may create a pod
could hide it from every count in this way. Three things are taken away, none of which a decision reads:

1. ``managedFields``, whose content is passed through by the apiserver as it came;
2. every array or object below ``DEEPEST_READ`` levels. The deepest field that `objects_json` knows is at 12;
3. bytes that are no UTF-8. They become U+FFFD, as in the apiserver's own decoder.

Linear in the bytes: 0.03 to 0.3 s for the largest hostile object (1.5 MB of brackets), 20 ms per megabyte of honest
pods. ``simplify`` therefore gives way in between. Nothing of this is paid for readable JSON.
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
# A run of brackets of one direction after anything but brackets; an innermost array or object is no bracket. Possessive,
# and with an alternative for the end of the input, so that no byte is looked at three times whatever the input is.
_BRACKETS: Final = re.compile(
    rb"(?:%(plain)s|[\[{](?:%(plain)s)*+[\]}])*+([\[{]+|[\]}]+|\Z)" % {b"plain": _PLAIN}, re.DOTALL
)
_OPENING: Final = frozenset(b"[{")
_COLON: Final = b": \t\r\n"
_MANAGED_FIELDS: Final = re.compile(rb'"managedFields"\s*:\s*\Z')
_LONGEST_KEY: Final = 32  # with blanks around the colon, as kubectl prints it


def simplify(body: bytes) -> Generator[None, None, bytes]:
    """Returns the simpler document, after steps between which others may have their turn. Raises nothing."""
    body = _as_utf8(body)
    kept: list[bytes] = []
    done = depth = 0
    hidden = -1  # the level to which the value that is being left out returns; -1 outside of one
    for number, found in enumerate(_BRACKETS.finditer(body), start=1):
        start, end = found.span(1)
        size = end - start
        if size and body[start] in _OPENING:
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
    if hidden < 0:
        kept.append(body[done:])
    return b"".join(kept)


def simplified(body: bytes) -> bytes:
    """The same in one go, for documents of bounded size."""
    steps = simplify(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: bytes = end.value
            return found


def decode_twice(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The value, by a second attempt where the first one fails; raises one of ``UNREADABLE`` where both do."""
    try:
        return decoder.decode(body)
    except UNREADABLE:
        return decoder.decode(simplified(body))


def _hidden_from(body: bytes, start: int, depth: int, size: int) -> tuple[int, int]:
    """Whether a run of opening brackets begins a value to leave out: the level around it, or -1, and where it begins."""
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

"""LIST: selects objects at a version, page by page, and encodes the answer.

All pages of a LIST show one version: rows are immutable, and the table keeps the rows of that version. Called by
`apiserver/server.py`; no await.
"""

import base64
import binascii
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.queries import EXACT, Query, Selection
from extender.simulator.apiserver.store import Store, Stored, Table
from extender.simulator.json_objects import JsonObject

CHUNK = 1_000  # rows written at a time: about a megabyte of pods
_CURRENT = -1  # the version in a token of a 410: continue with the current objects


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a LIST; `remaining` is None if a selector makes it unknown."""

    rows: Sequence[Stored]
    version: int
    continue_token: str = ""
    remaining: int | None = None


def list_page(store: Store, table: Table, query: Query, selection: Selection) -> Page:
    """The requested page. Raises ApiError 410 for a version before the history, 504 for one in the future."""
    if query.continue_token:
        version, start = _read_token(query.continue_token)
        rows = table.latest() if version == _CURRENT else _rows_at(store, table, version)
        if rows is None:
            raise api_errors.expired(
                api_errors.CONTINUE_EXPIRED, continue_token=_token(_CURRENT, start.removeprefix("/"))
            )
        version = store.version if version == _CURRENT else version
        first = bisect_left(rows, start.removeprefix("/"), key=lambda stored: stored.key)
    else:
        version, rows, first = *_rows(store, table, query), 0
    # As in a real API server, a list at version 0 is served from the watch cache and ignores the limit.
    limit = 0 if query.has_version and query.version == 0 else query.limit
    return _cut(table, selection, Page(rows, version), first, limit)


def _rows(store: Store, table: Table, query: Query) -> tuple[int, Sequence[Stored]]:
    if query.version > store.version:
        raise api_errors.too_large_version(query.version, store.version)
    if query.match != EXACT:
        return store.version, table.latest()
    rows = table.at(query.version)
    if rows is None:
        raise api_errors.expired("The resourceVersion for the provided list is too old.")
    return query.version, rows


def _rows_at(store: Store, table: Table, version: int) -> Sequence[Stored] | None:
    """The rows for the next page; None also if the versions were reset after the first page."""
    return None if version > store.version else table.at(version)


def _cut(table: Table, selection: Selection, page: Page, first: int, limit: int) -> Page:
    rows = page.rows
    # The rows are shared with the table, so the usual list costs no copy.
    if selection.is_whole and not limit:
        return Page(rows[first:] if first else rows, page.version)
    taken: list[Stored] = []
    for place in range(first, len(rows)):
        if limit and len(taken) == limit:
            return _with_more(table, selection, page, taken, place)
        row = rows[place]
        if selection.holds(row):
            taken.append(row)
    return Page(taken, page.version)


def _with_more(table: Table, selection: Selection, page: Page, taken: list[Stored], place: int) -> Page:
    if selection.is_whole:
        remaining: int | None = len(page.rows) - place
    elif selection.is_filtered:
        remaining = None
    else:
        remaining = sum(1 for stored in page.rows[place:] if selection.holds(stored))
    if remaining == 0:
        return Page(taken, page.version)
    # Kept even if the history still has this version: rebuilding the rows for each page would cost O(changes).
    table.keep(page.version, page.rows)
    return Page(taken, page.version, _token(page.version, f"/{taken[-1].key}\0"), remaining)


def head(page: Page, selection: Selection) -> bytes:
    """The answer before the first item."""
    metadata: JsonObject = {"resourceVersion": str(page.version)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    kind, api_version = selection.list_kind()
    opening = orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return opening[:-1] + b',"items":['


def chunks(page: Page, selection: Selection) -> Iterator[bytes]:
    """The items and the end of the answer, a thousand rows at a time."""
    for start in range(0, len(page.rows), CHUNK):
        separator = b"," if start else b""
        yield separator + b",".join([selection.body(stored) for stored in page.rows[start : start + CHUNK]])
    yield b"]}\n"


def _token(version: int, start: str) -> str:
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(raw["rv"]), str(raw["start"])
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise api_errors.bad_request(f"continue key is not valid: {error}") from error

"""The reads of the simulated API server: the query of a LIST or WATCH, pages of lists, and the events of watches.

The rules on resourceVersion follow https://kubernetes.io/docs/reference/using-api/api-concepts/ and KEP-3157.
"""

import asyncio
import base64
import binascii
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.kinds import ServedKind, Target
from extender.simulator.apiserver.store import (
    ADDED,
    DELETED,
    MODIFIED,
    ServedChange,
    Store,
    Stored,
    Table,
    object_prefix,
    read_version,
    watch_line,
)
from extender.simulator.json_objects import JsonObject, labels_of

Predicate: TypeAlias = Callable[[JsonObject], bool]

NOT_OLDER, EXACT = "NotOlderThan", "Exact"
_NEEDS_MATCH = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
_MATCH_ALONE = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"


@dataclass(frozen=True, slots=True)
class Query:
    """ListOptions. Absent numbers are 0, absent texts empty."""

    version: int
    has_version: bool
    match: str
    limit: int
    continue_token: str
    timeout: float
    bookmarks: bool
    initial_events: bool | None


def read_query(parameters: Mapping[str, str]) -> Query:
    """Parses a query. Raises ApiError 4xx if it is invalid, 500 for a malformed version, as a real API server does."""
    text = parameters.get("resourceVersion", "")
    match = parameters.get("resourceVersionMatch", "")
    query = Query(
        version=read_version(text),
        has_version=bool(text),
        match=match,
        limit=_number(parameters, "limit"),
        continue_token=parameters.get("continue", ""),
        timeout=float(_number(parameters, "timeoutSeconds")),
        bookmarks=_flag(parameters.get("allowWatchBookmarks", "")),
        initial_events=_flag(parameters["sendInitialEvents"]) if "sendInitialEvents" in parameters else None,
    )
    if match not in {"", NOT_OLDER, EXACT}:
        raise _invalid_match(f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""')
    return query


def check_list(query: Query) -> None:
    """Rejects combinations that a LIST does not allow."""
    if query.continue_token and (query.has_version and query.version != 0):
        raise api_errors.bad_request("specifying resource version is not allowed when using continue")
    if query.match and not query.has_version:
        raise _invalid_match("Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")
    if query.match == EXACT and query.version == 0:
        raise _invalid_match('Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"')


def check_watch(query: Query) -> None:
    """Rejects combinations that a WATCH does not allow."""
    if query.initial_events is not None and query.match != NOT_OLDER:
        raise _invalid_match(f"Forbidden: {_NEEDS_MATCH}")
    if query.initial_events is None and query.match:
        raise _invalid_match(f"Forbidden: {_MATCH_ALONE}")


class RequestSelection:
    """The objects that a request selects, and whether it gets them whole or only their metadata."""

    def __init__(self, target: Target, parameters: Mapping[str, str], accept: str) -> None:
        self.kind = target.kind
        self._prefix = f"{target.namespace}/" if target.namespace else ""
        field_selector = parameters.get("fieldSelector", "")
        if target.name:  # the deprecated form, with the name in the URL of the watch
            field_selector = f"{field_selector},metadata.name={target.name}"
        self._check: Predicate | None = parse_query(parameters.get("labelSelector", ""), field_selector)
        self.metadata_only = "as=PartialObjectMetadata" in accept
        self.opening = object_prefix(_METADATA_KIND) if self.metadata_only else object_prefix(self.kind)

    @property
    def is_whole(self) -> bool:
        """Whether everything is selected whole, so that lines shared with other watches can be sent."""
        return self._check is None and not self._prefix and not self.metadata_only

    @property
    def is_filtered(self) -> bool:
        """Whether there is a selector (a namespace is none)."""
        return self._check is not None

    def holds(self, stored: Stored) -> bool:
        """Whether the object is selected."""
        if not stored.key.startswith(self._prefix):
            return False
        return self._check is None or self._check(stored.read())

    def body(self, stored: Stored) -> bytes:
        """The object's JSON in the form that the request accepts."""
        if not self.metadata_only:
            return stored.body
        return orjson.dumps({"metadata": stored.read()["metadata"]})

    def line(self, change: ServedChange) -> bytes | None:
        """The watch line for a change; None if neither the old nor the new object is selected.

        An object that leaves the selection is DELETED for this watch, one that enters it is ADDED. The DELETED line has
        the new object, as recorded from a real API server.
        """
        if self.is_whole:
            return change.line
        is_seen = change.type != DELETED and self.holds(change.stored)
        was_seen = change.previous is not None and self.holds(change.previous)
        if not is_seen and not was_seen:
            return None
        event = (MODIFIED if was_seen else ADDED) if is_seen else DELETED
        return watch_line(event, self.opening, self.body(change.stored))

    def initial_line(self, stored: Stored) -> bytes:
        """The ADDED line for an object that existed before the watch."""
        return watch_line(ADDED, self.opening, self.body(stored))

    def list_kind(self) -> tuple[str, str]:
        """Kind and apiVersion of the LIST."""
        kind = _METADATA_KIND if self.metadata_only else self.kind
        return f"{kind.kind}List", kind.api_version


_METADATA_KIND = ServedKind("", "PartialObjectMetadata", "meta.k8s.io")


def _flag(text: str) -> bool:
    return text in {"1", "true", "True"}


def _number(parameters: Mapping[str, str], name: str) -> int:
    text = parameters.get(name, "")
    if text and not text.isdecimal():
        raise api_errors.bad_request(f'{name}: strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text or 0)


def _invalid_match(problem: str) -> api_errors.ApiError:
    field = "resourceVersionMatch"
    details = {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [{"reason": "FieldValueForbidden", "message": problem, "field": field}],
    }
    return api_errors.ApiError(
        422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {field}: {problem}', details=details
    )


def parse_query(label_selector: str, field_selector: str) -> Predicate | None:
    """The predicate of the two selectors; None if they select everything. Raises ApiError 400 if not supported."""
    checks = [_label_check(part) for part in _parts(label_selector)]
    checks += [_field_check(part) for part in _parts(field_selector)]
    if not checks:
        return None
    return lambda obj: all(check(obj) for check in checks)


def _parts(text: str) -> list[str]:
    """The requirements; the commas between values in parentheses separate none."""
    # "tier in (front,back),app=web" has two requirements.
    return [part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip()]


_SET: re.Pattern[str] = re.compile(r"(?P<key>\S+) (?P<operator>in|notin) \((?P<values>[^()]*)\)")


def _split(part: str) -> tuple[str, str, str]:
    # The longer operators first, because "a!=b" contains "=" as well.
    for operator in ("!=", "==", "="):
        name, separator, value = part.partition(operator)
        if separator:
            return name.strip(), operator[0], value.strip()
    return part, "", ""


def _label_check(part: str) -> Predicate:
    if listed := _SET.fullmatch(part):
        values = {value.strip() for value in listed["values"].split(",")}
        return lambda obj: (labels_of(obj).get(listed["key"]) in values) == (listed["operator"] == "in")
    name, operator, value = _split(part)
    if " " in name or "(" in name:
        raise api_errors.bad_request(f'unable to parse requirement: "{part}"')
    if operator == "=":
        return lambda obj: labels_of(obj).get(name) == value
    # An object without the label satisfies `!=`.
    if operator == "!":
        return lambda obj: labels_of(obj).get(name) != value
    if name.startswith("!"):
        return lambda obj: name[1:] not in labels_of(obj)
    return lambda obj: name in labels_of(obj)


_FIELDS = {
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.schedulerName",
    "spec.unschedulable",
    "status.phase",
    "status.nominatedNodeName",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
    "type",
}


def _field_check(part: str) -> Predicate:
    name, operator, value = _split(part)
    if name not in _FIELDS or not operator:
        raise api_errors.bad_request(f"field label not supported: {name}")
    path = name.split(".")
    wanted = operator == "="
    return lambda obj: (_field(obj, path) == value) is wanted


def _field(obj: Any, path: list[str]) -> str:
    for name in path:
        obj = (obj or {}).get(name)
    return "" if obj is None else str(obj).lower() if isinstance(obj, bool) else str(obj)


CHUNK = 1_000  # rows written at a time: about a megabyte of pods
_CURRENT = -1  # the version in a token of a 410: continue with the current objects


@dataclass(frozen=True, slots=True)
class ServedPage:
    """One page of a LIST; `remaining` is None if a selector makes it unknown."""

    rows: Sequence[Stored]
    version: int
    continue_token: str = ""
    remaining: int | None = None


def list_page(store: Store, table: Table, query: Query, selection: RequestSelection) -> ServedPage:
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
    return _cut(table, selection, ServedPage(rows, version), first, limit)


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


def _cut(table: Table, selection: RequestSelection, page: ServedPage, first: int, limit: int) -> ServedPage:
    rows = page.rows
    # The rows are shared with the table, so the usual list costs no copy.
    if selection.is_whole and not limit:
        return ServedPage(rows[first:] if first else rows, page.version)
    taken: list[Stored] = []
    for place in range(first, len(rows)):
        if limit and len(taken) == limit:
            return _with_more(table, selection, page, taken, place)
        row = rows[place]
        if selection.holds(row):
            taken.append(row)
    return ServedPage(taken, page.version)


def _with_more(
    table: Table, selection: RequestSelection, page: ServedPage, taken: list[Stored], place: int
) -> ServedPage:
    if selection.is_whole:
        remaining: int | None = len(page.rows) - place
    elif selection.is_filtered:
        remaining = None
    else:
        remaining = sum(1 for stored in page.rows[place:] if selection.holds(stored))
    if remaining == 0:
        return ServedPage(taken, page.version)
    # Kept even if the history still has this version: rebuilding the rows for each page would cost O(changes).
    table.keep(page.version, page.rows)
    # The zero byte makes the smallest key after the last one, as in a real token.
    return ServedPage(taken, page.version, _token(page.version, f"/{taken[-1].key}\0"), remaining)


def head(page: ServedPage, selection: RequestSelection) -> bytes:
    """The answer before the first item."""
    metadata: JsonObject = {"resourceVersion": str(page.version)}
    if page.continue_token:
        metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    kind, api_version = selection.list_kind()
    opening = orjson.dumps({"kind": kind, "apiVersion": api_version, "metadata": metadata})
    return opening[:-1] + b',"items":['


def chunks(page: ServedPage, selection: RequestSelection) -> Iterator[bytes]:
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


_LONGEST = 3_600.0


class ServedWatch:
    """The lines of one WATCH. It ends if it lags `slow_after` changes behind."""

    def __init__(
        self, store: Store, table: Table, query: Query, selection: RequestSelection, *, slow_after: int
    ) -> None:
        self.store = store
        self.table = table
        self.query = query
        self.selection = selection
        self.slow_after = slow_after
        # Without sendInitialEvents only version 0 begins with the present objects.
        self.wants_initial = query.initial_events if query.initial_events is not None else query.version == 0
        # Version 0 means "any version": the watch starts with the present objects, as from the watch cache.
        position = table.end if query.version == 0 or query.initial_events else table.position_of(query.version)
        self.is_expired = position is None
        self.position = position or 0
        # Without initial events a watch may begin at a future version.
        if query.initial_events and query.version > store.version:
            raise api_errors.too_large_version(query.version, store.version)
        self._rows = table.latest() if self.wants_initial else []
        self.sent = store.version if self.wants_initial else query.version

    def expired_line(self) -> bytes:
        """The only line of a watch from a version before the history."""
        message = f"too old resource version: {self.query.version} ({self.table.floor})"
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "Expired",
            "code": 410,
        }
        return orjson.dumps({"type": "ERROR", "object": status}) + b"\n"

    def initial(self) -> Iterator[bytes]:
        """The present objects, in parts; then a bookmark if the client requested it (KEP-3157)."""
        if not self.wants_initial:
            return
        rows = (stored for stored in self._rows if self.selection.holds(stored))
        while piece := list(islice(rows, CHUNK)):
            yield b"".join(map(self.selection.initial_line, piece))
        if self.query.initial_events and self.query.bookmarks:
            yield self.bookmark(self.sent, initial_events_end=True)
        # A watch may live for an hour, and must not keep the objects of its start in memory.
        self._rows = []

    def new_lines(self) -> list[bytes] | None:
        """The lines since the last call; None if this watch lags too far behind."""
        if self.table.end == self.position:
            return []
        if self.table.end - self.position > self.slow_after:
            return None
        changes = self.table.since(self.position)
        if changes is None:
            return None
        self.position = self.table.end
        line = self.selection.line
        # A watch may start at a future version; the changes before it are not sent.
        lines = [line(change) for change in changes if change.stored.version > self.sent]
        return [text for text in lines if text is not None]

    @property
    def may_bookmark(self) -> bool:
        """Whether the start version is reached. A watch from a future version gets no lines, as from the watch cache.

        The watch cache also omits the start version itself. That does not matter in a real cluster, where renewals of
        Leases advance the version all the time.
        """
        return self.store.version >= self.sent

    def bookmark(self, version: int | None = None, *, initial_events_end: bool = False) -> bytes:
        """A BOOKMARK: all changes up to its version have been sent."""
        metadata: JsonObject = {"resourceVersion": str(self.store.version if version is None else version)}
        if initial_events_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        zero = {} if self.selection.metadata_only else self.selection.kind.zero
        body = orjson.dumps({"metadata": metadata, **zero})
        return b'{"type":"BOOKMARK","object":%s%s}\n' % (self.selection.opening, body[1:])


class WatchTimer:
    """Wakes a watch: on a change, for a bookmark, or at its timeout."""

    def __init__(self, watch: ServedWatch, bookmark_every: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._wake.set()  # there may be changes since the start version
        self._stop = watch.table.listen(self._wake.set)
        self.ends_at = self._loop.time() + (watch.query.timeout or _LONGEST)
        self._every = bookmark_every if watch.query.bookmarks else _LONGEST
        self._next = self._loop.time() + self._every

    def wake(self) -> None:
        """Wakes the watch now."""
        self._wake.set()

    def close(self) -> None:
        """Stops listening to the table."""
        self._stop()

    @property
    def is_over(self) -> bool:
        """Whether the watch's own timeout has passed."""
        return self._loop.time() >= self.ends_at

    async def bookmark_due(self) -> bool:
        """Waits for a change, the next bookmark or the timeout. Returns whether a bookmark is due."""
        try:
            async with asyncio.timeout_at(min(self._next, self.ends_at)):
                await self._wake.wait()
        except TimeoutError:
            pass
        # Cleared before the caller reads the changes: a change that comes while they are written wakes the watch
        # again.
        self._wake.clear()
        if self._loop.time() < self._next:
            return False
        self._next = self._loop.time() + self._every
        return True

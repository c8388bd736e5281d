"""Parses and checks the query of a LIST or WATCH, and selects objects and changes. Called by `listing.py`, `watching.py`.

The rules on resourceVersion are those of https://kubernetes.io/docs/reference/using-api/api-concepts/ and KEP-3157.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from extender.simulator.apiserver import api_errors
from extender.simulator.apiserver.kinds import Kind, Target
from extender.simulator.apiserver.store import (
    ADDED,
    DELETED,
    MODIFIED,
    Change,
    Stored,
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


class Selection:
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

    def line(self, change: Change) -> bytes | None:
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


_METADATA_KIND = Kind("", "PartialObjectMetadata", "meta.k8s.io")


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
    return [part.strip() for part in text.split(",") if part.strip()]


def _split(part: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        name, found, value = part.partition(operator)
        if found:
            return name.strip(), operator[0], value.strip()
    return part, "", ""


def _label_check(part: str) -> Predicate:
    name, operator, value = _split(part)
    if " " in name or "(" in name:
        raise api_errors.bad_request(f'unable to parse requirement: only equality is supported here: "{part}"')
    if operator == "=":
        return lambda obj: labels_of(obj).get(name) == value
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

"""What an API server answers one request after the other, and what a reflector makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from extender.kube.reflector_status import WatchOptions
from tests.kube.conftest import PLAIN
from tests.kube.scripted import (
    Reply,
    Seen,
    bookmark,
    error_event,
    event,
    namespace,
    page,
    watch,
)

STREAMING = WatchOptions()


EXPIRED = watch(error_event(410))


@dataclass(frozen=True)
class Course:
    """The answers one after the other, and the requests: `list`, `stream` (a streaming list) or the version of a watch.

    `lists` are the names of each list that the event handler gets, `names` the objects that it has in the end. `slept`
    is the number of pauses that grow from half a second, or the pauses themselves.
    """

    replies: list[Reply]
    requests: str
    lists: list[str]
    names: str = ""
    restarts: str = ""
    slept: int | list[float] = 0
    unreadable: int = 0
    error: str | None = None
    options: WatchOptions = PLAIN
    is_one_slice: bool = False  # line by line, the lines of a watch lead elsewhere


def added(name: str, version: int | str) -> dict[str, Any]:
    return event("ADDED", namespace(name, version))


def listed(names: str, version: str = "5", token: str = "") -> Reply:
    return page(*map(namespace, names.split()), version=version, token=token)


def shown(seen: Seen) -> str:
    if "sendInitialEvents" in seen.query:
        return f"stream{seen.query.get('resourceVersion', '')}"
    return seen.query["resourceVersion"] if seen.is_watch else "list"


def expired(rejection: Reply, reason: str, slept: int | list[float] = 1) -> Course:
    """The version of the first list is of no more use."""
    replies = [listed("a b"), rejection, listed("a", "9")]
    return Course(replies, "list 5 list 9", ["a b", "a"], "a", f"{reason} 1", slept, error="")


def useless(reply: Reply, reason: str = "bad_version") -> Course:
    """The first list cannot be used."""
    return Course([reply, listed("b", "9")], "list list 9", ["b"], "b", f"{reason} 1", slept=1)


def busy(rejection: Reply) -> Course:
    """A list and a watch are rejected with the seconds after which to try again."""
    return Course([rejection, listed(""), rejection], "list list 5 5", [""], "", "throttled 2", [7.0, 7.0])


def lost(line: bytes, unreadable: int = 1) -> Course:
    """A change cannot be read, and the object is deleted in the new list."""
    replies = [listed("a"), watch(bookmark(6), line), listed("", "9")]
    return Course(replies, "list 5 list 9", ["a", ""], "", "undecodable 1", 1, unreadable)


def without_streams(rejection: Reply) -> Course:
    """A server that rejects a streaming list is read in pages from then on. Only the 410 costs a pause."""
    replies = [rejection, listed("a"), EXPIRED, listed("", "6")]
    reasons = "no_watch_list 1, expired 1"
    return Course(replies, "stream list 5 list 6", ["a", ""], "", reasons, slept=1, options=STREAMING)

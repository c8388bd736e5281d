"""The last decisions with their reasons, in bounded memory: what was answered about a pod, and when.

A pod's condition has the scheduler's message about the last attempt only. This log has earlier attempts too, as long as they
fit. It costs a request two microseconds, and holds no object of the index alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Literal

import msgspec

MOST_BYTES: Final = 4 * 2**20  # some 9,000 decisions
_OVERHEAD_BYTES: Final = 400
_NAMED: Final = 3
_LONGEST_TEXT: Final = 500  # of an error

Verb = Literal["filter", "preempt", "bind"]


class LoggedDecision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One answer. ``time`` is in Unix seconds. ``nodes`` were requested, ``passed`` of them passed; ``such_as`` are the first.

    ``reasons`` are the labels of all reasons why nodes were rejected, empty for an answer in which any node passed.
    """

    time: float
    verb: Verb
    namespace: str
    pod: str
    uid: str
    nodes: int = 0
    passed: int = 0
    such_as: tuple[str, ...] = msgspec.field(name="suchAs", default=())
    reasons: tuple[str, ...] = ()
    error: str = ""

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        names = sum(map(len, self.such_as)) + len(self.namespace) + len(self.pod) + len(self.uid)
        return _OVERHEAD_BYTES + names + len(self.error)


class DecisionPage(msgspec.Struct, frozen=True):
    """Some of the decisions, the latest first, with how many are ``kept`` in all and their size in ``bytes``."""

    decisions: list[LoggedDecision]
    kept: int
    bytes: int


class DecisionLog:
    """The latest decisions, at most ``most_bytes`` together; the oldest makes room. ``bytes`` is their size.

    Decisions are numbered from 1 on. ``number``: the number of the last decision, even if it is not kept any more.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.bytes = 0
        self.number = 0
        self._most_bytes = most_bytes
        self._held: deque[LoggedDecision] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def add(
        self,
        time: float,
        verb: Verb,
        pod: tuple[str, str, str],
        nodes: int = 0,
        passed: Sequence[str] = (),
        reasons: Iterable[str] = (),
        error: str = "",
    ) -> None:
        """Records an answer about the pod of this namespace, name and UID. O(1), amortised."""
        # Only names and texts are kept, so that no request and no object of the index is held alive.
        such_as, few = tuple(passed[:_NAMED]), tuple(sorted(reasons)) if reasons else ()
        made = LoggedDecision(time, verb, *pod, nodes, len(passed), such_as, few, error[:_LONGEST_TEXT])
        self._held.append(made)
        self.number += 1
        self.bytes += made.size
        # By bytes, not by number: texts of errors and names are written by tenants.
        while self.bytes > self._most_bytes:
            self.bytes -= self._held.popleft().size

    def latest(self, namespace: str, pod: str, most: int) -> list[LoggedDecision]:
        """Up to ``most`` decisions, the latest first, of a namespace or a pod where they are not empty. O(decisions)."""
        return list(islice(self._about(namespace, pod), most))

    @property
    def first(self) -> int:
        """The number of the oldest decision that is kept."""
        return self.number - len(self._held) + 1

    def after(self, number: int, most: int) -> list[LoggedDecision]:
        """Up to ``most`` decisions after the one of this number, the oldest first. O(decisions after it)."""
        # Older decisions may have made room already: what is kept is returned.
        newer = min(self.number - number, len(self._held))
        found = list(islice(reversed(self._held), newer))
        found.reverse()
        return found[:most]

    def latest_of(self, uids: Collection[str]) -> dict[str, LoggedDecision]:
        """The latest filter decision about each of these pods, by UID. O(decisions), until all are found."""
        found: dict[str, LoggedDecision] = {}
        for each in reversed(self._held):
            if each.uid in uids and each.verb == "filter" and each.uid not in found:
                found[each.uid] = each
                if len(found) == len(uids):
                    break
        return found

    def _about(self, namespace: str, pod: str) -> Iterator[LoggedDecision]:
        for each in reversed(self._held):
            if (not namespace or each.namespace == namespace) and (not pod or each.pod == pod):
                yield each

"""Broken constraints and moves in the form in which the API and the commands show them. Values only."""

from __future__ import annotations

from typing import Final

import msgspec

NO_POLICY: Final = "no policy with `when: [Execution]` watches pods"


class MoveRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A broken constraint of a pod, and the move that mends it, or why there is none.

    - ``constraint``: its kind, ``broken``: what is wrong.
    - ``since``: when it was found broken, as a time of RFC 3339; empty where that is not known.
    - ``source``, ``target``: nodes. Without a target no move is allowed.
    - ``state``: planned, waiting, underWay, stuck.
    - ``why``: why it waits or is stuck.
    - ``lowers``: by how much the move lowers the measure of what is broken.
    """

    pod: str
    constraint: str
    broken: str
    source: str
    policy: str
    state: str
    since: str = ""
    target: str = ""
    why: str = ""
    lowers: int = 0


class MovesAnswer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Moves in order, and broken constraints without a move.

    ``before`` and ``after``: the measure of what is broken, now and once all moves of the answer are complete.
    """

    moves: tuple[MoveRow, ...] = ()
    stuck: tuple[MoveRow, ...] = ()
    before: int = 0
    after: int = 0
    notes: tuple[str, ...] = ()

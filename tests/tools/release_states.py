"""`python -m tests.tools.release_states`: draws the states of a release in extender/README.md, from the table of transitions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from extender.verbs.release.states import STATES, TRANSITIONS, Event, State

README: Final = Path(__file__).resolve().parents[2] / "extender" / "README.md"
_HEAD: Final = "| state | meaning | event → next state |\n|---|---|---|\n"
_TABLE: Final = re.compile(rf"(?<={re.escape(_HEAD)})(?:\|.*\n)+")


def as_text(document: str) -> str:
    """The document with the table of states drawn anew."""
    return _TABLE.sub(lambda _: "".join(map(_row, STATES)), document)


def _row(state: type[State]) -> str:
    """Events that keep the state are left out, and so is what the backquoted parts of a docstring say of fields."""
    leads = ((event, by_state.get(state, ())) for event, by_state in TRANSITIONS.items())
    drawn = "; ".join(_leads(event, targets) for event, targets in leads if targets not in {(), (state,)})
    meaning = " ".join((state.__doc__ or "").split()).partition(" ``")[0]
    return f"| {state.__name__} | {meaning} | {drawn} |\n"


def _leads(event: type[Event], targets: tuple[type[State], ...]) -> str:
    is_any = len(targets) > len(STATES) / 2
    return f"{event.__name__} → {'the state before' if is_any else ' or '.join(kind.__name__ for kind in targets)}"


if __name__ == "__main__":
    README.write_text(as_text(README.read_text("utf-8")), "utf-8")

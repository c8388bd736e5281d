"""Where the index notes each change before it is applied, so that a recording can apply the changes again in this order."""

from __future__ import annotations

from collections.abc import Callable

from extender.model.changes import Change


class Journal:
    """One for a whole index. ``note`` is None unless something records: then a change costs one look at it. It must not raise.

    Changes that leave the index as it is are not noted, and neither is what follows from a change of an object, such as
    the end of an assumption.
    """

    __slots__ = ("note",)

    def __init__(self) -> None:
        self.note: Callable[[Change], None] | None = None

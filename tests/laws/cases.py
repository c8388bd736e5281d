"""How often a law meets the case that it is about: said by each example, and held to a share at the end of the law.

A law that returns early in nearly all of its examples proves next to nothing, and nothing else tells of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from hypothesis import event

P = ParamSpec("P")

_seen: list[bool] = []


def case(is_there: object) -> bool:
    """Say of an example, once, whether the case that the law is about is there; gives that back."""
    _seen.append(bool(is_there))
    event(f"the case is there: {bool(is_there)}")
    return bool(is_there)


def meets_its_case(share: float) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Stands above ``@given``: fails the law where the case was there in fewer of its examples."""

    def decorate(law: Callable[P, None]) -> Callable[P, None]:
        @wraps(law)
        def counted(*args: P.args, **kwargs: P.kwargs) -> None:
            _seen.clear()
            law(*args, **kwargs)
            assert _seen, "no example said whether its case is there"
            assert sum(_seen) >= share * len(_seen), f"the case was there in {sum(_seen)} of {len(_seen)} examples only"

        return counted

    return decorate

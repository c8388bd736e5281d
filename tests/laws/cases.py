"""The case that a law is about: an example without it does not count as one, and a law that seldom meets it fails.

A law that returns early in nearly all of its examples proves next to nothing, and nothing else tells of it. Here an
example without the case is drawn anew, ten times for each that the profile asks for (Hypothesis' own limit).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from hypothesis import assume, event, settings

P = ParamSpec("P")

_seen: list[bool] = []


def case(is_there: object) -> None:
    """Say of an example, once, whether the case that the law is about is there; without it the example ends here."""
    _seen.append(bool(is_there))
    event(f"the case is there: {bool(is_there)}")
    assume(is_there)


def times(factor: float) -> settings:
    """As many examples as the profile in use asks for, times this: for a law that needs more, or whose example takes long."""
    return settings(max_examples=int(factor * settings().max_examples))


def meets_its_case(law: Callable[P, None]) -> Callable[P, None]:
    """Stands above ``@given``: fails the law where fewer than half as many examples as wanted had the case."""

    @wraps(law)
    def counted(*args: P.args, **kwargs: P.kwargs) -> None:
        _seen.clear()
        law(*args, **kwargs)
        assert _seen, "no example said whether its case is there"
        wanted = settings().max_examples
        assert 2 * sum(_seen) >= wanted, f"the case was there in {sum(_seen)} of {len(_seen)} examples; wanted {wanted}"

    return counted

"""What holds a law to its case: a law that hardly ever meets it fails, and so does one that never says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.cases import case, meets_its_case
from tests.strategies import by_weight


@meets_its_case(0.5)
@settings(max_examples=40)
@given(st.sampled_from(range(10)))
def rare(number: int) -> None:
    case(number == 7)


@meets_its_case(0.5)
@settings(max_examples=40)
@given(st.sampled_from(range(10)))
def frequent(number: int) -> None:
    assert case(number != 7) or number == 7


@meets_its_case(0.5)
@given(st.booleans())
def silent(_: bool) -> None:  # noqa: FBT001 (drawn)
    return


def test_a_law_fails_where_its_case_is_rare_or_never_spoken_of() -> None:
    frequent()
    with pytest.raises(AssertionError, match="of 10 examples only"):
        rare()
    with pytest.raises(AssertionError, match="no example said"):
        silent()


def test_a_weight_is_kept_also_where_the_weighed_would_be_one_choice() -> None:
    drawn: list[str] = []

    @settings(max_examples=200)
    @given(by_weight((3, st.just("often")), (1, st.just("seldom"))), st.integers())
    def draw(which: str, _: int) -> None:
        drawn.append(which)

    draw()
    assert drawn.count("often") > 2 * drawn.count("seldom") > 0

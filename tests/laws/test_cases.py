"""What holds a law to its case: a law that hardly ever meets it fails, and so does one that never says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.cases import case, meets_its_case
from tests.strategies import by_weight


@meets_its_case
@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.integers(0, 99))
def seldom(number: int) -> None:
    case(number == 47)


@meets_its_case
@given(st.integers(0, 9))
def always(number: int) -> None:
    case(number >= 0)


@meets_its_case
@given(st.booleans(), st.integers())
def often(wanted: bool, _: int) -> None:  # noqa: FBT001 (drawn)
    case(wanted)
    assert wanted, "an example without the case ends where it says so"


@meets_its_case
@given(st.booleans())
def silent(_: bool) -> None:  # noqa: FBT001 (drawn)
    return


def test_a_law_fails_where_its_case_is_rare_or_never_spoken_of() -> None:
    often()
    with pytest.raises(AssertionError, match="the case was there in 1 of"):
        seldom()
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

"""Durations and sizes as people write them."""

import pytest

from extender.model.units import ByteSize, Duration, agreeing, counted, cut, listed, times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("1m30s", 90),
        ("250ms", 0.25),
        ("1.5h", 5400),
        ("2h45m", 9900),
        ("10us", 1e-5),
        ("0", 0),
        (".5s", 0.5),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert Duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1m 30s", "-1s", "1d", "1s!", "1e3s"])
def test_what_is_no_duration_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        Duration.parse(text)


@pytest.mark.parametrize("text", ["15s", "1m30s", "250ms", "2h45m", "1h", "0s", "1.5s"])
def test_a_duration_is_written_in_go_form(text: str) -> None:
    assert str(Duration.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "count"), [("32Mi", 32 * 2**20), ("500k", 500_000), ("4096", 4096), ("1Gi", 2**30), ("2G", 2 * 10**9)]
)
def test_a_size_is_a_number_of_bytes(text: str, count: int) -> None:
    assert ByteSize.parse(text) == count


@pytest.mark.parametrize("text", ["", "Mi", "1.5Mi", "-1", "1KB", "1 Mi"])
def test_what_is_no_size_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a size"):
        ByteSize.parse(text)


@pytest.mark.parametrize(("count", "text"), [(2**25, "32Mi"), (1536, "1536"), (2048, "2Ki"), (500_000, "500000")])
def test_a_size_is_written_exactly(count: int, text: str) -> None:
    assert str(ByteSize(count)) == text


def test_noun_and_verb_agree_with_the_number() -> None:
    assert [f"{counted(n, 'pod')} {agreeing(n, 'waits', 'wait')}" for n in (0, 1, 2)] == [
        "0 pods wait",
        "1 pod waits",
        "2 pods wait",
    ]
    assert [times(n) for n in (0, 1, 2)] == ["0 times", "once", "2 times"]


def test_names_are_listed_with_the_number_of_the_others() -> None:
    assert listed(["a", "b"]) == listed(["a", "b"], most=2) == "a, b"
    assert listed(["a", "b", "c"], most=1) == listed(["a"], count=3) == "a and 2 more"


def test_a_text_is_cut_at_a_number_of_characters() -> None:
    assert (cut("abc", 3), cut("abcd", 3)) == ("abc", "abc…")

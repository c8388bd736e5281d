"""The cache that is bounded in bytes: what stays, what goes, and what is never kept."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from extender.model.bounded import (
    FAIR_SHARE,
    BoundedCache,
    DictInOrder,
    DictInParts,
    Few,
    cached,
    shrink,
    with_item,
    without_item,
)


def test_what_was_looked_up_outlives_what_was_not() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2 * FAIR_SHARE)
    for number in range(FAIR_SHARE):
        cache.put(f"k{number}", number, 2)
    assert cache.get("k0") == 0
    cache.put("one more", 0, 2)
    assert (cache.get("k0"), cache.get("k1"), cache.get("one more")) == (0, None, 0)


def test_everything_in_use_does_not_keep_the_next_one_out() -> None:
    cache: BoundedCache[int, int] = BoundedCache(FAIR_SHARE)
    for number in range(FAIR_SHARE):
        cache.put(number, number, 1)
    assert [cache.get(number) for number in range(FAIR_SHARE)] == list(range(FAIR_SHARE))
    cache.put(FAIR_SHARE, FAIR_SHARE, 1)
    assert (cache.bytes, cache.get(FAIR_SHARE)) == (FAIR_SHARE, FAIR_SHARE)


def test_what_is_larger_than_a_fair_share_is_not_kept() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10 * FAIR_SHARE)
    cache.put("small", 1, 10)
    cache.put("small", 2, 11)
    assert (cache.get("small"), cache.bytes, len(cache)) == (None, 0, 0)


def test_a_cache_of_smaller_shares_keeps_smaller_entries_only() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1000, fair_share=100)
    cache.put("small", 1, 10)
    cache.put("large", 2, 11)
    assert (cache.get("small"), cache.get("large")) == (1, None)


def test_a_table_that_has_emptied_gives_its_memory_back() -> None:
    table = dict.fromkeys(range(100_000))
    largest = sys.getsizeof(table)
    for number in range(10, 100_000):
        del table[number]
        shrink(table)
    assert (list(table), sys.getsizeof(table) < largest // 100) == (list(range(10)), True)


UIDS = [f"uid-{number:x}" for number in range(1000)]
CHANGES = st.lists(st.tuples(st.sampled_from(["", *UIDS[:20], "uid-é"]), st.none() | st.integers(0, 9)))


@given(CHANGES)
def test_a_dictionary_in_parts_is_a_dictionary(changes: list[tuple[str, int | None]]) -> None:
    table, plain = DictInParts[int](), dict[str, int]()
    for key, value in changes:
        change(table, plain, key, value)


def change(table: DictInParts[int], plain: dict[str, int], key: str, value: int | None) -> None:
    if value is None:
        assert table.pop(key) == plain.pop(key, None)
    else:
        table[key] = plain[key] = value
    assert table == plain
    assert (len(table), set(table), sorted(table.values())) == (len(plain), set(plain), sorted(plain.values()))
    assert dict(table.items()) == plain
    assert (table.get(key), table.get(key, 11), key in table) == (plain.get(key), plain.get(key, 11), key in plain)


@given(CHANGES)
def test_a_dictionary_in_order_is_a_dictionary(changes: list[tuple[str, int | None]]) -> None:
    table, plain = DictInOrder[int](3), dict[str, int]()
    for key, value in changes:
        if value is None:
            table.discard(key)
            plain.pop(key, None)
        else:
            table[key] = plain[key] = value
        assert (list(table.items()), len(table), list(table)) == (list(plain.items()), len(plain), list(plain))
        assert (table.get(key), key in table) == (plain.get(key), key in plain)
    assert list(table.values()) == list(plain.values())
    assert max(map(len, table.parts)) <= 3


def test_no_part_of_a_dictionary_in_parts_holds_most_of_it() -> None:
    """A dictionary that grows is copied in one step, for 70 ms at 1,400,000 entries."""
    table = DictInParts[int]()
    for uid in UIDS:
        table[uid] = 1
    assert max(map(len, table.parts)) <= len(UIDS) / 8
    assert [table[uid] for uid in UIDS] == [1] * len(UIDS)


def test_a_table_that_is_full_enough_stays_as_it_is() -> None:
    table = dict.fromkeys(range(100_000))
    for number in range(80_000):
        del table[number]
    before = sys.getsizeof(table)
    shrink(table)
    assert sys.getsizeof(table) == before


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))))
def test_a_set_of_few_items_is_the_set_of_what_was_added_and_not_taken_out(steps: list[tuple[bool, int]]) -> None:
    few: Few[int] = ()
    plain: dict[int, None] = {}
    for adds, item in steps:
        few = with_item(few, item) if adds else without_item(few, item)
        plain |= {item: None} if adds else {}
        if not adds:
            plain.pop(item, None)
        assert list(few) == list(plain)
        assert isinstance(few, tuple) or len(few) > 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40), st.booleans())), st.integers(0, 500))
def test_the_sizes_of_what_is_kept_add_up_and_never_exceed_the_bound(
    steps: list[tuple[int, int, bool]], most: int
) -> None:
    cache: BoundedCache[int, int] = BoundedCache(most)
    last: dict[int, int] = {}
    for key, size, looks_up in steps:
        if looks_up:
            assert cache.get(key) in (None, last.get(key))
        else:
            cache.put(key, size, size)
            last[key] = size
        assert cache.bytes == sum(last[key] for key in last if cache.get(key) is not None) <= most


def test_a_function_is_called_again_only_for_what_is_not_kept() -> None:
    computed: list[str] = []

    @cached(10 * FAIR_SHARE, lambda text: len(text))  # noqa: PLW0108 (len takes more than texts)
    def shouted(text: str) -> str:
        computed.append(text)
        return text.upper()

    assert [shouted("a"), shouted("a"), shouted("b" * 11), shouted("b" * 11)] == ["A", "A", "B" * 11, "B" * 11]
    assert computed == ["a", "b" * 11, "b" * 11]

"""What is kept of domains without room: until room is free there, and not more than fits."""

from __future__ import annotations

from sys import getsizeof

import pytest

from extender.index import full_domains
from extender.index.full_domains import FullDomainTable


def test_a_full_domain_is_asked_about_again_when_a_node_of_it_was_freed() -> None:
    table = FullDomainTable()
    known = table.of("kind")
    known.refresh(5, None, {1: 1, 2: 1, 3: 1}, version=1)
    assert known.left == {1, 2, 3}
    table.add(known, 1)
    table.add(known, 2)
    assert (known.full, known.left) == ({1, 2}, {3})
    known.refresh(6, [2], {1: 1, 2: 1, 3: 1}, version=1)
    assert (known.full, known.left) == ({1}, {2, 3})
    known.refresh(7, [3], {1: 1, 3: 1, 4: 1}, version=2)
    assert (known.full, known.left) == ({1}, {3, 4}), "a node has changed: there are other domains"
    known.refresh(9000, None, {1: 1}, version=2)
    assert (known.full, known.left) == (set(), {1}), "which nodes were freed is not known any more"


def test_domains_that_became_full_cost_the_readers_of_the_others_nothing() -> None:
    """A set is read by its table, which keeps its size when entries leave."""
    table = FullDomainTable()
    known = table.of("kind")
    for version in range(2):
        known.refresh(version, None, dict.fromkeys(range(5000), 1), version)
        largest = getsizeof(known.left)
        for domain in range(4999):
            table.add(known, domain)
            assert getsizeof(known.left) <= max(largest * len(known.left) // 500, 1000)
        assert known.left == {4999}


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_domains, "MOST_FULL", 10)
    monkeypatch.setattr(full_domains, "MOST_KINDS", 3)
    table = FullDomainTable()
    known = table.of("kind")
    for domain in range(11):
        table.add(known, domain)
    assert len(table) == 0
    for kind in range(4):
        table.of(kind)
    assert len(table) == 1

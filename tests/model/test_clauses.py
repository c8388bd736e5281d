"""The algebra of clauses: contradictions are found, and only where they are, and absorption keeps what a disjunction means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.constraints.clauses import FIELD, LABEL, OPAQUE, Clause, absorb, are_contradictory, clause
from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import NodeRequirement

WORDS = ("a", "b", "0", "1", "2", "3", "07")
# Every value that a clause below can speak of, more numbers in other spellings, and a value that none speaks of.
VALUES = (None, *WORDS, "00", "01", "02", "03", "4", "5", "00004", "6", "007", "8", "9", "10", "fresh")

CLAUSES = st.one_of(
    st.builds(
        clause,
        st.just(LABEL),
        st.just("k"),
        st.sampled_from(["In", "NotIn"]),
        st.sets(st.sampled_from(WORDS), min_size=1),
    ),
    st.builds(clause, st.just(LABEL), st.just("k"), st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(
        clause, st.just(LABEL), st.just("k"), st.sampled_from(["Gt", "Lt"]), st.sampled_from("01239").map(lambda v: [v])
    ),
)


def holds(each: Clause, value: str | None) -> bool:
    """Whether a node whose label has this value fulfils the clause, as the scheduler decides it."""
    labels = {} if value is None else {"k": value}
    return NodeRequirement("k", Operator(each.operator), each.values).matches(labels)


@given(st.lists(CLAUSES, max_size=5))
def test_clauses_contradict_exactly_where_no_value_satisfies_all_of_them(clauses: list[Clause]) -> None:
    possible = any(all(holds(each, value) for each in clauses) for value in VALUES)
    assert are_contradictory(clauses) == (not possible)


def test_clauses_about_different_keys_or_sources_do_not_contradict() -> None:
    assert not are_contradictory([clause(LABEL, "a", "In", ["x"]), clause(LABEL, "b", "In", ["y"])])
    assert not are_contradictory([clause(LABEL, "a", "In", ["x"]), clause(FIELD, "a", "In", ["y"])])
    assert are_contradictory([clause(FIELD, "metadata.name", "In", ["x"]), clause(FIELD, "metadata.name", "In", ["y"])])


@pytest.mark.parametrize("unknown", [clause(LABEL, "k", "Near", ["x"]), Clause(OPAQUE, "matchZones", "[]")])
def test_what_the_algebra_does_not_know_never_contradicts(unknown: Clause) -> None:
    assert not are_contradictory([unknown, clause(LABEL, "k", "DoesNotExist")])


TERMS = st.lists(st.frozensets(st.sampled_from([clause(LABEL, key, "Exists") for key in "abc"])), max_size=6)


@given(TERMS, st.sets(st.sampled_from("abc")))
def test_absorption_keeps_what_a_disjunction_means(terms: list[frozenset[Clause]], present: set[str]) -> None:
    def matches(chosen: list[frozenset[Clause]]) -> bool:
        return any(term and all(each.key in present for each in term) for term in chosen)

    kept = [terms[number] for number in absorb(terms)]
    assert matches(kept) == matches(terms)
    full = [term for term in kept if term]
    assert not any(one < other for one in full for other in full)
    assert len(set(full)) == len(full)


def test_of_equal_terms_the_first_stays_and_empty_ones_stay() -> None:
    a = frozenset({clause(LABEL, "a", "Exists")})
    empty: frozenset[Clause] = frozenset()
    assert absorb([empty, a, a, empty]) == [0, 1, 3]

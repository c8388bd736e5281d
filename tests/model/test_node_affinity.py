"""Which nodes a pod may stand on by label and name, in Kubernetes' own reading of numbers and empty terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.constraints.labels import Operator
from extender.model.constraints.node_affinity import NodeAffinity, NodeRequirement, NodeSelectorTerm, NodeTable
from tests.builders import Json, node, pod, requirement


def matches(*terms: Json, labels: dict[str, str] | None = None, name: str = "n1", **selector: str) -> bool:
    """Whether a pod with these required terms and nodeSelector may stand on the node."""
    held = pod("a", node_terms=terms, node_selector=selector) if terms else pod("a", node_selector=selector)
    made = node(name, labels=labels, hostname=False)
    return held.signature.node_affinity.matches(made.name, made.labels)


def expressions(*clauses: tuple[str, str, list[str]]) -> Json:
    return {"matchExpressions": [requirement(*clause) for clause in clauses]}


def named(operator: str, *names: str) -> Json:
    return {"matchFields": [requirement("metadata.name", operator, list(names))]}


@pytest.mark.parametrize(
    ("operator", "bound", "label", "passes"),
    [
        ("Gt", "4", "5", True),
        ("Gt", "4", "4", False),
        ("Lt", "4", "3", True),
        ("Lt", "4", "4", False),
        ("Gt", "-1", "0", False),  # a bound must be a valid label value, so it has no sign
        ("Gt", "4", "+5", True),
        ("Gt", "4", "005", True),
        ("Gt", "4", None, False),
        ("Lt", "4", None, False),
        ("Gt", "4", "five", False),
        ("Gt", "4", "5.5", False),
        ("Gt", "4", "", False),
        ("Gt", "4", " 5", False),
        ("Gt", "4", "5_0", False),
        ("Gt", "4", "٥", False),  # noqa: RUF001 (an Arabic five is no digit to Go)
        ("Gt", "4", "9223372036854775807", True),
        ("Gt", "4", "9223372036854775808", False),
        ("Lt", "4", "-9223372036854775808", True),
        ("Lt", "4", "-9223372036854775809", False),
        ("Gt", "x", "5", False),
        ("Gt", "4", "0" * 5000 + "5", True),
        ("Lt", "9" * 5000, "5", False),
        ("Gt", "9223372036854775808", "5", False),
    ],
)
def test_gt_and_lt_compare_whole_64_bit_numbers_and_nothing_else(
    operator: str, bound: str, label: str | None, *, passes: bool
) -> None:
    labels = {} if label is None else {"slots": label}
    assert matches(expressions(("slots", operator, [bound])), labels=labels) is passes


def test_terms_are_alternatives_and_their_clauses_are_not() -> None:
    fast, near = ("disk", "In", ["ssd"]), ("rack", "Exists", list[str]())
    both, either = [expressions(fast, near)], [expressions(fast), expressions(near)]
    assert [matches(*both, labels=labels) for labels in ({"disk": "ssd"}, {"disk": "ssd", "rack": "r"})] == [
        False,
        True,
    ]
    assert [matches(*either, labels=labels) for labels in ({"disk": "ssd"}, {"rack": "r"}, {})] == [True, True, False]


def test_fields_are_about_the_node_s_name() -> None:
    assert [matches(named("In", "n1"), name=name) for name in ("n1", "n2")] == [True, False]
    assert [matches(named("NotIn", "n1"), name=name) for name in ("n1", "n2")] == [False, True]


def test_a_pod_without_any_wish_admits_all_nodes() -> None:
    assert pod("a").signature.node_affinity.admits_all


_KEYS = st.sampled_from(["rack", "zone", "slots"])
_VALUES = st.lists(st.sampled_from(["", "a", "b", "c", "5"]), min_size=1, max_size=3)
_CLAUSES = st.one_of(
    st.builds(lambda key, values: NodeRequirement(key, Operator.IN, tuple(sorted(values))), _KEYS, _VALUES),
    st.builds(lambda key, values: NodeRequirement(key, Operator.NOT_IN, tuple(sorted(values))), _KEYS, _VALUES),
    st.builds(lambda key: NodeRequirement(key, Operator.EXISTS), _KEYS),
    st.builds(lambda key: NodeRequirement(key, Operator.DOES_NOT_EXIST), _KEYS),
    st.builds(lambda key: NodeRequirement(key, Operator.GT, ("3",)), _KEYS),
)
_NAMES = st.builds(
    lambda operator, name: NodeRequirement("metadata.name", operator, (name,)),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.sampled_from(["n1", "n2"]),
)
_TERMS = st.builds(
    lambda expressions, fields: NodeSelectorTerm(tuple(expressions), tuple(fields)),
    st.lists(_CLAUSES, max_size=3),
    st.lists(_NAMES, max_size=2),
)


@given(st.lists(_TERMS, max_size=12), st.dictionaries(_KEYS, st.sampled_from(["", "a", "b", "5"])))
def test_many_terms_match_the_nodes_that_one_of_them_matches(
    terms: list[NodeSelectorTerm], labels: dict[str, str]
) -> None:
    found = [NodeAffinity(terms=tuple(terms)).matches(name, labels) for name in ("n1", "n2", "n3")]
    assert found == [any(term.matches(name, labels) for term in terms) for name in ("n1", "n2", "n3")]


def test_of_many_terms_that_list_values_only_those_that_list_the_nodes_are_tried() -> None:
    """A list of nodes written as a term for each would else cost nodes × terms."""
    tried: list[str] = []

    class Watched(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # of the forms of `get` the one that is used
            tried.append(key)
            return super().get(key) if default is None else super().get(key, default)

    terms = [NodeSelectorTerm((NodeRequirement("host", Operator.IN, (f"n{number}",)),)) for number in range(1000)]
    named = [NodeSelectorTerm((), (NodeRequirement("metadata.name", Operator.IN, (f"x{n}",)),)) for n in range(1000)]
    affinity = NodeAffinity(terms=(*terms, *named))
    assert affinity.matches("n7", Watched(host="n7"))
    assert affinity.matches("x7", Watched(host="other"))
    assert not affinity.matches("n7", Watched(host="other"))
    assert len(tried) == 4


CLAUSES = st.one_of(
    st.builds(
        NodeRequirement,
        st.sampled_from("ab"),
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.lists(st.sampled_from("123"), min_size=1, max_size=2, unique=True).map(lambda found: tuple(sorted(found))),
    ),
    st.builds(NodeRequirement, st.sampled_from("ab"), st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
    st.builds(NodeRequirement, st.sampled_from("ab"), st.sampled_from([Operator.GT, Operator.LT]), st.just(("2",))),
)
NAMED = st.builds(
    NodeRequirement,
    st.sampled_from(["metadata.name", "metadata.uid"]),
    st.sampled_from([Operator.IN, Operator.NOT_IN]),
    st.just(("n1",)),
)
TERMS = st.builds(
    NodeSelectorTerm,
    st.lists(CLAUSES, max_size=2).map(tuple),
    st.lists(NAMED, max_size=2).map(tuple),
)
LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", "2", "3", "x"]))


@given(st.lists(LABELS, max_size=5), st.lists(TERMS, max_size=4), st.booleans(), LABELS)
def test_many_nodes_are_matched_by_columns_as_each_by_itself(
    labels: list[dict[str, str]],
    terms: list[NodeSelectorTerm],
    has_terms: bool,  # noqa: FBT001 (drawn)
    selector: dict[str, str],
) -> None:
    nodes = [(f"n{at}", each) for at, each in enumerate(labels)]
    table, affinity = NodeTable(nodes), NodeAffinity(tuple(selector.items()), tuple(terms) if has_terms else None)
    assert affinity.matching(table) == [affinity.matches(*each) for each in nodes]
    for term in terms:
        assert term.matching(table) == [term.matches(*each) for each in nodes]

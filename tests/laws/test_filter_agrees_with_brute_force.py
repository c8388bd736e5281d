"""The filter says of every node what a brute-force reading of the documented behaviour says, by whichever way asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.settings.configuration import Settings
from extender.simulator.oracle.brute_force import UNPARSABLE_CONSTRAINT, are_parsable, feasible
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import Json, extender_args, settings
from tests.deciding import filter_nodes
from tests.laws.observing import SYSTEM_DEFAULTS, WHOLE_ANSWERS, Cluster, answers_of, built, verdicts_of
from tests.strategies import Step, histories, pods


def expected(pod: Json, cluster: Cluster) -> dict[str, tuple[str, str]]:
    """The judge's word on each node."""
    found = feasible(pod, cluster.of("nodes"), cluster.of("namespaces"), cluster.of("pods"))
    return {name: (status.code, status.reason) for name, status in found.items()}


@given(histories(), st.lists(pods(), min_size=3, max_size=6))
def test_codes_and_reasons_are_those_of_the_brute_force_model(history: list[Step], incoming_pods: list[Json]) -> None:
    index, cluster = built(history, SYSTEM_DEFAULTS)
    for pod in incoming_pods:
        got, want = verdicts_of(index.view, pod), expected(pod, cluster)
        if not are_parsable(pod) or UNPARSABLE_CONSTRAINT in want.values():
            # The scheduler reads every plugin's part of the pod before it looks at a node; the texts quote a parser.
            assert set(want) == set(got)
            assert "Success" not in {code for code, _ in got.values()}
            continue
        assert got == want


@given(histories(), pods())
def test_the_verb_lets_through_exactly_the_nodes_that_pass(history: list[Step], pod: Json) -> None:
    index, cluster = built(history, SYSTEM_DEFAULTS)
    want = expected(pod, cluster)
    answer = answers_of(index.view, pod, SYSTEM_DEFAULTS)
    assert answer.passed == {name for name, (code, _) in want.items() if code == "Success"}
    if not answer.passed and not answer.error:
        assert answer.texts.keys() == want.keys()


@given(histories(), pods())
def test_names_and_full_nodes_get_the_same_answers(history: list[Step], pod: Json) -> None:
    index, cluster = built(history)
    bodies = sorted(cluster.of("nodes"), key=lambda body: str(body["metadata"]["name"]))
    by_name = extender_args(pod, *(body["metadata"]["name"] for body in bodies))
    by_node = extender_args(pod, nodes=bodies)
    first, second = (filter_nodes(args, index.view, WHOLE_ANSWERS, seed=3) for args in (by_name, by_node))
    assert (list(first.passed), dict(first.unresolvable), first.error) == (
        list(second.passed),
        dict(second.unresolvable),
        second.error,
    )
    assert prioritize_nodes(by_name, index.view, WHOLE_ANSWERS) == prioritize_nodes(by_node, index.view, WHOLE_ANSWERS)


@given(histories(), pods(), st.integers(1, 3), st.integers(0, 9))
def test_a_shortlist_is_a_part_of_what_passes_and_as_long_as_it_may_be(
    history: list[Step], pod: Json, most: int, seed: int
) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    whole = answers_of(index.view, pod, SYSTEM_DEFAULTS)
    short = filter_nodes(extender_args(pod, *sorted(index.view.known)), index.view, _shortlist(most), seed)
    assert set(short.passed) <= whole.passed
    assert len(short.passed) == len(set(short.passed)) == min(most, len(whole.passed))
    assert dict(short.unresolvable) == whole.texts


def _shortlist(most: int) -> Settings:
    return settings(answers={"shortlist": most})

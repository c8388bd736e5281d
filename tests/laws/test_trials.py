"""Law: inside a trial the rules say what they say of a cluster in which it is true. Afterwards the index is as before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import GroupView
from extender.index.state import state_of
from extender.model.objects import Pod
from extender.rules.catalog import prepare_filters
from extender.rules.frames import IndexFrame
from tests.builders import spread, term
from tests.contenders import cluster, contender, stage
from tests.laws.cases import case, meets_its_case

NODES = [stage("n1", "z1"), stage("n2", "z1"), stage("n3", "z2")]
KEYS = ("host", "zone")
APPS = ("web", "db")
QUESTIONS = [{"apart": [term(key, app=app)]} for key in KEYS for app in APPS] + [
    {"near": [term("zone", app="web")]},
    {"spreads": [spread("zone", app="web")]},
    {"spreads": [spread("host", 2, app="db"), spread("zone", app="web")]},
]

carried = st.sampled_from([{}, *QUESTIONS])
standing = st.lists(
    st.tuples(st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(APPS), carried, st.booleans()), max_size=8
)


def pods_of(drawn: list[tuple[str, str, dict[str, object], bool]]) -> list[Pod]:
    return [
        contender(f"p{number}", on=node, app=app, terminating=going, **fields)
        for number, (node, app, fields, going) in enumerate(drawn)
    ]


def passing(held: ClusterIndex, incoming: Pod) -> list[str]:
    filters = prepare_filters(incoming, held.view.compiled(incoming.signature), held.view, IndexFrame())
    return [held.view.node_names[node] for node in filters.passing(sorted(held.view.known.values()))]


@meets_its_case
@given(standing.filter(len), st.sampled_from(QUESTIONS), st.sampled_from(APPS), st.data())
def test_pods_taken_count_as_if_they_were_not_there(
    drawn: list[tuple[str, str, dict[str, object], bool]], fields: dict[str, object], app: str, data: st.DataObject
) -> None:
    pods, incoming = pods_of(drawn), contender("asking", app=app, **fields)
    deleted = data.draw(st.sets(st.sampled_from(range(len(pods))), min_size=1))
    back = data.draw(st.sets(st.sampled_from(sorted(deleted)), max_size=len(deleted) - 1))
    held = cluster(*NODES, *pods)
    held.view.compiled(incoming.signature)
    case(deleted - back)
    with held.view.trial() as trial:
        for each in deleted:
            trial.take(pods[each])
        for each in back:
            trial.put_back(pods[each])
        inside = passing(held, incoming)
    left = [each for number, each in enumerate(pods) if number not in deleted - back]
    assert inside == passing(cluster(*NODES, *left), incoming)
    assert audit(held) == []


@given(standing, carried, st.sampled_from(QUESTIONS), st.sampled_from(["n1", "n2", "n3"]))
def test_pods_made_to_stand_count_as_if_they_stood(
    drawn: list[tuple[str, str, dict[str, object], bool]],
    coming: dict[str, object],
    fields: dict[str, object],
    node: str,
) -> None:
    pods, incoming = pods_of(drawn), contender("asking", app="web", **fields)
    held = cluster(*NODES, *pods)
    with held.view.trial() as trial:
        trial.place(contender("coming", app="web", **coming), held.view.known[node])
        inside = passing(held, incoming)
        with trial.suspended():
            outside = passing(held, incoming)
            assert audit(held) == []
        assert passing(held, incoming) == inside
    assert inside == passing(cluster(*NODES, *pods, contender("coming", on=node, app="web", **coming)), incoming)
    assert passing(held, incoming) == outside == passing(cluster(*NODES, *pods), incoming)
    assert audit(held) == []


# -- afterwards the index is as before -----------------------------------------------------------------------------------

Operation = tuple[str, int]

NAMES = [*["take"] * 4, "put back", "place", "place", "remove last", "compile", "begin", "begin", "end", "fail"]
OPERATIONS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 6)), min_size=4, max_size=16)


class FailedTrialError(Exception):
    """What a trial may end with."""


def play(held: ClusterIndex, operations: Iterator[Operation], coming: Sequence[Pod]) -> None:
    """Plays operations in a trial, until they say that it ends or fails. Others begin inside of it."""
    view, placed = held.view, 0
    nodes = list(view.known.values())
    there = [pod for node in nodes for pod in view.pods_on(node).values()]
    with view.trial() as trial:
        for name, number in operations:
            match name:
                case "take":
                    trial.take(there[number % len(there)])
                case "put back":
                    trial.put_back(there[number % len(there)])
                case "place":
                    trial.place(coming[number % len(coming)], nodes[number % len(nodes)])
                    placed += 1
                case "remove last" if placed:
                    trial.remove_last()
                    placed -= 1
                case "compile":
                    view.compiled(contender("asking", app="web", **QUESTIONS[number]).signature)
                case "begin":
                    with suppress(FailedTrialError):
                        play(held, operations, coming)
                case "fail":
                    raise FailedTrialError
                case "end":
                    return


def state(held: ClusterIndex, incoming: Sequence[Pod], groups: Sequence[GroupView]) -> object:
    """Objects and claims, counts of signatures and groups, and the versions that cached results have."""
    view = held.view
    signatures = {
        (counts.signature, counts.terminating): (dict(counts.nodes), counts.undetermined)
        for counts in held.counts.signatures
        if counts.nodes or counts.undetermined
    }
    counted = [
        (group.version, group.undetermined, dict(group.counts), {n: set(them) for n, them in group.levels.items()})
        for group in groups
    ]
    dependencies = [view.dependency_version(view.compiled(pod.signature)) for pod in incoming]
    versions = view.placement_version, view.nodes_version, view.claims_version
    return list(state_of(held)), signatures, counted, dependencies, versions


@meets_its_case
@given(
    standing.filter(len), st.lists(st.sampled_from(QUESTIONS), min_size=1), st.lists(carried, min_size=2), OPERATIONS
)
def test_after_any_operations_the_index_is_as_before(
    drawn: list[tuple[str, str, dict[str, object], bool]],
    questions: list[dict[str, object]],
    arriving: list[dict[str, object]],
    operations: list[Operation],
) -> None:
    """Also where trials are nested or fail, and where constraints are compiled inside."""
    held = cluster(*NODES, *pods_of(drawn), assumed := contender("assumed", app="web"))
    held.assume(assumed, ["n1"], 0.0)
    held.assume(contender("undetermined", app="db"), ["n1", "n3"], 0.0)
    incoming = [contender("asking", app="web", **fields) for fields in questions]
    groups = [group for pod in incoming for group in held.view.compiled(pod.signature).filter_groups()]
    coming = [contender(f"c{number}", app="web", **fields) for number, fields in enumerate(arriving)]
    before = state(held, incoming, groups)
    case({"take", "place"} <= {name for name, _ in operations})
    rest = iter(operations)
    for first in rest:
        with suppress(FailedTrialError):
            play(held, chain([first], rest), coming)
    assert state(held, incoming, groups) == before
    assert audit(held) == []

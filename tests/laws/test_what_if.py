"""Law: a what-if gives the answers of a cluster in which it is true, and afterwards the counts equal a recount."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
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


def passing(held: ClusterIndex, asking: Pod) -> list[str]:
    filters = prepare_filters(asking, held.view.compiled(asking.signature), held.view, IndexFrame())
    return [held.view.node_names[node] for node in filters.passing(sorted(held.view.known.values()))]


@meets_its_case
@given(standing.filter(len), st.sampled_from(QUESTIONS), st.sampled_from(APPS), st.data())
def test_pods_taken_count_as_if_they_were_not_there(
    drawn: list[tuple[str, str, dict[str, object], bool]], fields: dict[str, object], app: str, data: st.DataObject
) -> None:
    pods, asking = pods_of(drawn), contender("asking", app=app, **fields)
    gone = data.draw(st.sets(st.sampled_from(range(len(pods))), min_size=1))
    back = data.draw(st.sets(st.sampled_from(sorted(gone)), max_size=len(gone) - 1))
    held = cluster(*NODES, *pods)
    held.view.compiled(asking.signature)
    case(gone - back)
    with held.view.trial() as trial:
        for each in gone:
            trial.take(pods[each])
        for each in back:
            trial.put_back(pods[each])
        inside = passing(held, asking)
    left = [each for number, each in enumerate(pods) if number not in gone - back]
    assert inside == passing(cluster(*NODES, *left), asking)
    assert audit(held) == []


@given(standing, carried, st.sampled_from(QUESTIONS), st.sampled_from(["n1", "n2", "n3"]))
def test_pods_made_to_stand_count_as_if_they_stood(
    drawn: list[tuple[str, str, dict[str, object], bool]],
    coming: dict[str, object],
    fields: dict[str, object],
    node: str,
) -> None:
    pods, asking = pods_of(drawn), contender("asking", app="web", **fields)
    held = cluster(*NODES, *pods)
    with held.view.trial() as trial:
        trial.place(contender("coming", app="web", **coming), held.view.known[node])
        inside = passing(held, asking)
    assert inside == passing(cluster(*NODES, *pods, contender("coming", on=node, app="web", **coming)), asking)
    assert passing(held, asking) == passing(cluster(*NODES, *pods), asking)
    assert audit(held) == []

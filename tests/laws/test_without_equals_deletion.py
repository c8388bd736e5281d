"""Pods left out for a what-if count as if they had been deleted, and outside of it nothing has happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.view import ClusterView
from extender.model.objects import Pod
from tests.builders import Json
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import built, groups_of, shape_of, verdicts_of
from tests.strategies import POD_NAMES, Step, decoded, histories, pods

VICTIMS = st.lists(st.sampled_from(POD_NAMES), unique=True, min_size=1, max_size=4)


def _state(view: ClusterView, incoming_pods: list[Json]) -> object:
    """Counts, versions and grounds of all questions; a pod that asks may bring a term that concerns another question."""
    for pod in incoming_pods:
        view.compiled(shape_of(pod))
    questions = [view.compiled(shape_of(pod)) for pod in incoming_pods]
    groups = [[(dict(group.counts), group.version) for group in groups_of(compiled)] for compiled in questions]
    return groups, [view.dependency_version(compiled) for compiled in questions]


@meets_its_case
@given(histories(), st.lists(pods(), min_size=1, max_size=3), VICTIMS)
def test_without_equals_deletion_inside_and_nothing_outside(
    history: list[Step], incoming_pods: list[Json], names: list[str]
) -> None:
    index, _ = built(history)
    victims = [pod for name in names if (pod := index.view.pod(f"uid-{name}")) is not None]
    before = _state(index.view, incoming_pods)
    case(victims)
    with index.view.trial() as trial:
        trial.take_bound(victims)
        inside = [verdicts_of(index.view, pod) for pod in incoming_pods]
    assert _state(index.view, incoming_pods) == before
    assert audit(index) == []
    for victim in victims:
        index.delete(victim)
    assert inside == [verdicts_of(index.view, pod) for pod in incoming_pods]


@given(histories(), pods("stranger"), VICTIMS)
def test_what_is_not_counted_can_be_left_out_without_effect(
    history: list[Step], incoming: Json, names: list[str]
) -> None:
    index, _ = built(history)
    strangers = [pod for name in names if isinstance(pod := decoded("pods", _renamed(incoming, name)), Pod)]
    before = verdicts_of(index.view, incoming)
    with index.view.trial() as trial:
        trial.take_bound(strangers)
        assert verdicts_of(index.view, incoming) == before


def _renamed(pod: Json, name: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": f"unknown-{name}"}}

"""Shadow decisions are those of offload, now and in each earlier state, and leave nothing behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import default_settings
from extender.settings.rules import with_both_rules
from extender.verbs.shadow import PodChange, judge_request, rejected_before
from tests.builders import Json
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import WHOLE_ANSWERS, Cluster, apply, built, empty, verdicts_of
from tests.strategies import NODE_NAMES, Request, Step, decoded, histories, pods

OFF = default_settings("augment").rules


def shadowed() -> ClusterIndex:
    """An empty index of augment mode with shadow decisions."""
    return ClusterIndex(OFF, counts_of_rules(), rejects_excess=False, shadow=with_both_rules(WHOLE_ANSWERS.rules))


def decoded_pod(body: Json) -> Pod:
    found = decoded("pods", body)
    assert isinstance(found, Pod)
    return found


def rejected(pod: Pod, index: ClusterIndex) -> set[str]:
    judged = judge_request(pod, list(index.view.known), index.view)
    assert not judged.more
    return set(judged.rejected)


@given(histories(), st.lists(pods(), min_size=1, max_size=4), st.lists(st.integers(0, 100), max_size=12))
def test_they_are_those_of_offload_and_the_answers_those_of_augment(
    history: list[Step], incoming: list[Json], order: list[int]
) -> None:
    offload, _ = built(history)
    index, cluster = shadowed(), Cluster()
    for step in history:
        apply(index, cluster, step)
        if isinstance(step, Request):
            judge_request(decoded_pod(step.pod), (), index.view)
    for body in incoming:
        pod = decoded_pod(body)
        want = {name for name, (code, _) in verdicts_of(offload.view, body).items() if code != "Success"}
        assert rejected(pod, index) == want
        assert {code for code, _ in verdicts_of(index.view, body).values()} <= {"Success"}
    assert audit(index) == []
    empty(index, cluster, order)
    assert audit(index) == []
    assert not any(group.counts for group in index.counts.terms.owned())


@meets_its_case
@given(histories(), st.lists(st.tuples(st.integers(0, 5), pods(on=NODE_NAMES[:3])), max_size=4), pods())
def test_a_node_that_an_earlier_state_lets_pass_is_found(
    history: list[Step], later: list[tuple[int, Json]], body: Json
) -> None:
    index, cluster = shadowed(), Cluster()
    for step in history:
        apply(index, cluster, step)
    pod = decoded_pod(body)
    states = [rejected(pod, index)]
    changes: list[PodChange] = []
    for number, (turn, changed) in enumerate(later):
        there = [each for (kind, _), each in cluster.objects.items() if kind == "pods"]
        key = f"later-{number}"
        if turn < len(there):  # deletes one of those that were there
            deleted = decoded_pod(there[turn])
            index.delete(deleted)
            cluster.objects.pop(next(each for each, one in cluster.objects.items() if one is there[turn]))
            old, new = deleted, None
        else:
            named = changed | {"metadata": changed["metadata"] | {"name": key, "uid": key}}
            old, new = None, decoded_pod(named)
            index.upsert(new)
            if new.finished:
                new = None
        old, new = (None if each is None or not each.node or each.finished else each for each in (old, new))
        if old is not None or new is not None:
            changes.append(PodChange(float(number), old, new))
            states.append(rejected(pod, index))
    now = states[-1]
    before = rejected_before(pod, now, reversed(changes), index.view)
    assert before == now.intersection(*states)
    assert rejected(pod, index) == now
    assert audit(index) == []
    case(now and changes)

"""What can be seen of an index from outside: counts by name instead of number, answers of the verbs, sizes.

Two indexes that hold the same cluster must look the same here, whatever way they came to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import GroupView
from extender.index.view import ClusterView
from extender.model.objects import Object, PodSignature
from extender.model.rejections import Code
from extender.rules import catalog
from extender.rules.catalog import PreparedFilters, counts_of_rules
from extender.rules.frames import Frame, IndexFrame
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.rules.topology_spread import spread_groups
from extender.settings.configuration import Settings
from extender.verbs.prioritize import prioritize_nodes
from tests.builders import Json, extender_args, read_pod, settings
from tests.deciding import filter_nodes
from tests.strategies import Change, Request, Step, decoded

# Every passing node is answered and points are not rounded, so that nothing can hide. A default constraint filters.
WHOLE_ANSWERS: Final = settings(
    rules={
        "interPodAffinity": {"hardPodAffinityWeight": 5},
        "topologySpread": {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ],
        },
    },
    answers={"shortlist": 0, "scoreScale": "inTree"},
)
SYSTEM_DEFAULTS: Final = settings(answers={"shortlist": 0, "scoreScale": "inTree"})


@dataclass
class Cluster:
    """The objects that there are, as JSON by kind and key: the plain table that an index must agree with."""

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)

    def put(self, change: Change) -> None:
        """Apply one change to the table."""
        if change.body is None:
            self.objects.pop((change.kind, change.key), None)
        else:
            self.objects[change.kind, change.key] = change.body

    def of(self, kind: str) -> list[Json]:
        return [body for (name, _), body in self.objects.items() if name == kind]

    def decoded(self, kind: str) -> list[Object]:
        """All objects of a kind, as the service reads them."""
        return [decoded(kind, body) for body in self.of(kind)]


def empty(index: ClusterIndex, cluster: Cluster, order: Iterable[int]) -> None:
    """Deletes every object, in an order of Hypothesis' choice."""
    left = list(cluster.objects.items())
    for turn in order:
        if left:
            (kind, _), body = left.pop(turn % len(left))
            index.delete(decoded(kind, body))
    for (kind, _), body in left:
        index.delete(decoded(kind, body))


def pending(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"]}, "status": {"phase": "Pending"}}


def apply(index: ClusterIndex, cluster: Cluster, step: Step) -> None:
    """Take one step with an index and with the table beside it."""
    if isinstance(step, Request):
        index.view.compiled(shape_of(step.pod))
        return
    before = cluster.objects.get((step.kind, step.key))
    cluster.put(step)
    if step.body is not None:
        index.upsert(decoded(step.kind, step.body))
    elif before is not None:
        index.delete(decoded(step.kind, before))


def built(history: Iterable[Step], chosen: Settings = WHOLE_ANSWERS) -> tuple[ClusterIndex, Cluster]:
    """An index and the table after a history."""
    index, cluster = ClusterIndex(chosen.rules, counts_of_rules()), Cluster()
    for step in history:
        apply(index, cluster, step)
    return index, cluster


def fresh(cluster: Cluster, chosen: Settings = WHOLE_ANSWERS) -> ClusterIndex:
    """An index to which only the present objects were added."""
    index = ClusterIndex(chosen.rules, counts_of_rules())
    for (kind, _), body in cluster.objects.items():
        index.upsert(decoded(kind, body))
    return index


def shape_of(pod: Json) -> PodSignature:
    """The shape of a pod, by the real decoding."""
    return read_pod(pod).signature


def prepared(view: ClusterView, pod: Json, frame: Frame) -> PreparedFilters:
    """The filters of every rule that is active for a pod."""
    decoded_pod = read_pod(pod)
    return catalog.prepare_filters(decoded_pod, view.compiled(decoded_pod.signature), view, frame)


def requested_pods(history: Iterable[Step]) -> list[Json]:
    """The pods for which a history has a request."""
    return [step.pod for step in history if isinstance(step, Request)]


Counts = list[tuple[str, dict[str, int]]]


def groups_of(compiled: CompiledConstraints) -> Iterator[GroupView]:
    """Every group of a question, those of scores included."""
    yield from compiled.filter_groups()
    for weighted in (*own_terms(compiled).preferences, *terms_of_others(compiled).preferences):
        yield weighted.group
    yield from terms_of_others(compiled).required
    yield from (spread.group for spread in spread_groups(compiled).soft)


def counts_of(view: ClusterView, pod: Json) -> Counts:
    """Pods by domain for each group of the pod's question; inverse groups come in no particular order.

    A group that counts no pod is left out: the terms of a pod that was asked about are kept, also before it has a node.
    """
    compiled = view.compiled(shape_of(pod))
    made = [(each.key.key, {each.key.value(d): n for d, n in each.counts.items()}) for each in groups_of(compiled)]
    return sorted((each for each in made if each[1]), key=lambda each: (each[0], sorted(each[1].items())))


@dataclass(frozen=True)
class Answers:
    """What the verbs say of one pod over all nodes, by name."""

    passed: frozenset[str]
    texts: dict[str, str]
    error: str
    scores: dict[str, int]


def answers_of(view: ClusterView, pod: Json, chosen: Settings = WHOLE_ANSWERS) -> Answers:
    """Filter over all nodes and prioritize over those that pass."""
    result = filter_nodes(extender_args(pod, *sorted(view.known)), view, chosen, seed=1)
    scores = prioritize_nodes(extender_args(pod, *result.passed), view, chosen)
    return Answers(frozenset(result.passed), dict(result.unresolvable), result.error, dict(scores))


def seen(index: ClusterIndex, pods: Sequence[Json], chosen: Settings = WHOLE_ANSWERS) -> list[tuple[Counts, Answers]]:
    """Everything that can be seen of an index through these questions."""
    return [(counts_of(index.view, pod), answers_of(index.view, pod, chosen)) for pod in pods]


def verdicts_of(view: ClusterView, pod: Json) -> dict[str, tuple[str, str]]:
    """Code and reason for each node, also where other nodes pass."""
    filters = prepared(view, pod, IndexFrame())
    if (failed := filters.failed) is not None:
        return dict.fromkeys(view.known, (failed.status.code.value, failed.status.reason))
    found = {name: filters.reason(number) for name, number in view.known.items()}
    assert filters.rejects_all is None or set(found.values()) <= {filters.rejects_all.reason}
    assert not (filters.rejects_every_node and None in found.values())
    return {name: (r.code.value, r.text) if r else (Code.SUCCESS.value, "") for name, r in found.items()}

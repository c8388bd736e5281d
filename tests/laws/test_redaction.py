"""Law: the answers about a redacted cluster are those about the cluster itself, with pseudonyms for the names."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.compose.replay import Replay
from extender.index.cluster import ClusterIndex
from extender.index.state import state_of
from extender.model.changes import ObjectChange
from extender.model.policies import PolicyObject
from extender.settings.configuration import Settings, settings_document
from extender.settings.limits import ConstraintLimits
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_watched
from extender.wire.objects.kinds import policies_within
from extender.wire.recordings.recording import Question, RecordedAnswer, RecordingEncoder, Start, filter_answer
from extender.wire.recordings.redaction import Redactor
from tests.builders import Json, extender_args, index_of, node, read_pod, settings
from tests.laws.injecting import DIRECTIVES, NODES, SPECS
from tests.laws.observing import SYSTEM_DEFAULTS, built
from tests.policies import policy_json
from tests.strategies import Step, histories, pods

KEY = b"sixteen bytes, or more"
POLICIES_ENABLED = settings(policies={"enabled": True})
HOSTS = [node(f"n{number}", labels=labels | {"pool": "xyz"[number % 3]}) for number, labels in enumerate(NODES)]
# No order of pseudonyms that ignores the names is that of every drawing.
NAMES = st.lists(
    st.sampled_from(["a", "b", "c", "first", "second", "third", "x", "z"]), min_size=3, max_size=3, unique=True
)


def replayed(index: ClusterIndex, used: Settings, requested: list[Json], held: tuple[PolicyObject, ...] = ()) -> Replay:
    """The replay of questions about pods, of which only a redacted recording is left."""
    encoder = RecordingEncoder(Redactor(KEY).line)
    verb, names = FilterVerb(index.view, used), sorted(index.view.known)
    waiting = [read_pod(each) for each in requested]
    for each in waiting:  # prioritize answers about pods that the watch shows
        index.upsert(each)
    entries: list[Any] = [Start(settings_document(used)), *map(ObjectChange, held), *state_of(index)]
    for seed, pod in enumerate(requested):
        args = extender_args(pod, *names)
        decision = verb.decide(args, seed)
        answer = filter_answer(decision.result, decision.plan, redacted=True)
        entries.append(Question("filter", args.pod, answer, names, seed=seed))
        scores = RecordedAnswer(scores=dict(prioritize_watched(args, index.view, used)))
        entries.append(Question("prioritize", args.pod, scores, names))
    replay = Replay()
    replay.run(line for entry in entries for line in encoder.encode(entry).splitlines())
    return replay


@given(histories(), st.lists(pods(), min_size=2, max_size=4))
def test_a_redacted_cluster_gets_the_same_answers(history: list[Step], requested: list[Json]) -> None:
    index, _ = built(history, SYSTEM_DEFAULTS)
    replay = replayed(index, SYSTEM_DEFAULTS, requested)
    assert replay.differences == []
    assert replay.asked == 2 * len(requested)


@given(
    st.lists(DIRECTIVES, min_size=1, max_size=3),
    NAMES,
    st.lists(st.sampled_from(["KeepPod", "Override", "Reject"]), min_size=3, max_size=3),
    SPECS,
)
def test_policies_apply_to_a_redacted_pod_as_to_the_pod(
    directives: list[Json], names: list[str], conflicts: list[str], spec: Json
) -> None:
    bodies = [
        policy_json(name, targets="Both", conflictPolicy=conflict, **each)
        for name, conflict, each in zip(names, conflicts, directives, strict=False)
    ]
    kind = policies_within(ConstraintLimits(), "ClusterPodSchedulingPolicy", "placement.extender.dev")
    held = tuple(kind.decode_object(orjson.dumps(body)) for body in bodies)
    index = index_of(*HOSTS, *held)
    pod = {"metadata": {"name": "asking", "namespace": "default", "uid": "u", "labels": {"app": "web"}}, "spec": spec}
    replay = replayed(index, POLICIES_ENABLED, [pod], held)
    assert replay.differences == []

"""What is recorded is decoded as it was, objects and claims, and pods of one signature share it again."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.changes import (
    Assumption,
    AssumptionEnd,
    Nomination,
    NominationEnd,
    NominationRelease,
    ObjectChange,
    PolicyRecheck,
    Reservation,
    ReservationEnd,
)
from extender.model.objects import Namespace, Object, Pod, PodSignature
from extender.model.policies import PolicyObject
from extender.model.release import GroupKey, Slot
from extender.settings.limits import Limits
from extender.wire.errors import WireError
from extender.wire.objects.kinds import PODS, RESOURCE_QUOTAS, policies_within
from extender.wire.recordings.recording import Answer, Entry, Question, RecordingDecoder, RecordingEncoder, Start
from tests.builders import Json, node, pod, workload
from tests.strategies import pods

GROUP = GroupKey("placement.extender.dev/ns/policy", "ns", "group")
POLICY = {
    "metadata": {"name": "zones", "namespace": "ns", "generation": 2},
    "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "nodeSelector": {"zone": "a"}},
}
QUOTA = {
    "metadata": {"name": "q", "namespace": "ns"},
    "spec": {"hard": {"pods": "3"}, "scopes": ["CrossNamespacePodAffinity"]},
}


def through(*entries: Entry) -> list[Entry]:
    """The entries after they were written and read."""
    encoder, decoder = RecordingEncoder(), RecordingDecoder(Limits())
    lines = b"".join(map(encoder.encode, (Start({}), *entries))).splitlines()
    return [found for line in lines for found in decoder.decode(line)][1:]


def parts(signature: PodSignature) -> list[object]:
    """What a signature consists of: it is compared by identity itself."""
    return [getattr(signature, name) for name in PodSignature.__slots__ if name != "__weakref__"]


def same(one: Pod, other: Pod) -> bool:
    """Whether two pods are equal but for the identity of their signature."""
    names = [name for name in one.__struct_fields__ if name != "signature"]
    return parts(one.signature) == parts(other.signature) and all(
        getattr(one, name) == getattr(other, name) for name in names
    )


@given(pods())
def test_a_pod_is_read_as_it_was(body: Json) -> None:
    found = PODS.decode_object(orjson.dumps(body))
    (change,) = through(ObjectChange(found))
    assert isinstance(change, ObjectChange)
    assert isinstance(change.obj, Pod)
    assert same(change.obj, found)
    assert hash(change.obj.signature.node_affinity) == hash(found.signature.node_affinity)


@pytest.mark.parametrize(
    "obj",
    [
        node("n1", zone="a"),
        Namespace("ns", {"team": "a"}),
        workload("Service", "web", {"app": "web"}),
        RESOURCE_QUOTAS.decode_object(orjson.dumps(QUOTA)),
        policies_within(Limits(), "PodSchedulingPolicy", "placement.extender.dev").decode_object(orjson.dumps(POLICY)),
    ],
)
@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_object_is_read_as_it_was(obj: Object, is_deleted: bool) -> None:  # noqa: FBT001 (a parameter)
    assert through(ObjectChange(obj, is_deleted)) == [ObjectChange(obj, is_deleted)]
    if isinstance(obj, PolicyObject):
        assert obj.source is not None


def test_claims_are_read_as_they_were() -> None:
    claims: list[Entry] = [
        AssumptionEnd("a"),
        NominationRelease("a"),
        NominationEnd("a"),
        Reservation(GROUP, (Slot("a", "n1"), Slot("b", "n2"))),
        ReservationEnd(GROUP),
    ]
    assert through(*claims) == claims
    assumed, nominated = through(Assumption(pod("a"), ("n1", "n2"), doubted=True), Nomination(pod("b"), "n1", ("c",)))
    assert isinstance(assumed, Assumption)
    assert (assumed.nodes, assumed.doubted, assumed.pod.name) == (("n1", "n2"), True, "a")
    assert isinstance(nominated, Nomination)
    assert (nominated.node, nominated.victims, nominated.pod.name) == ("n1", ("c",), "b")


def test_a_recheck_is_about_the_signature_of_its_pods() -> None:
    found = pod("a", app="web")
    change, recheck = through(ObjectChange(found), PolicyRecheck(found.signature, terminating=True))
    assert isinstance(change, ObjectChange)
    assert isinstance(change.obj, Pod)
    assert isinstance(recheck, PolicyRecheck)
    assert recheck.signature is change.obj.signature
    assert recheck.terminating


def test_replicas_share_a_signature_that_is_written_once_in_each_part() -> None:
    one = pod("a", app="web")
    other = Pod("b", "b", one.signature)
    encoder = RecordingEncoder()
    written = [encoder.encode(entry) for entry in (Start({}), ObjectChange(one), ObjectChange(other))]
    assert [piece.count(b"\n") for piece in written] == [1, 2, 1]
    assert encoder.encode(Start({})).count(b"\n") == 1
    assert encoder.encode(ObjectChange(one)).count(b"\n") == 2
    first, second = through(ObjectChange(one), ObjectChange(other))
    assert isinstance(first, ObjectChange)
    assert isinstance(second, ObjectChange)
    assert isinstance(first.obj, Pod)
    assert isinstance(second.obj, Pod)
    assert first.obj.signature is second.obj.signature


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8), min_size=1, max_size=4))
def test_questions_are_about_the_nodes_that_they_were_about(asked: list[list[str]]) -> None:
    questions: list[Entry] = [Question("filter", "uid", Answer(), names) for names in asked]
    assert [each.names for each in through(*questions) if isinstance(each, Question)] == asked


def test_nodes_that_are_asked_about_again_in_their_order_take_a_few_numbers() -> None:
    ring = [f"node-{number:05}.example.internal" for number in range(5000)]
    encoder = RecordingEncoder()
    sizes = [
        len(encoder.encode(Question("filter", "uid", Answer(), ring[at:] + ring[:at]))) for at in (0, 500, 1000, 4999)
    ]
    assert sizes[0] > 100_000
    assert max(sizes[1:]) < 200


@pytest.mark.parametrize("runs", [[0, 1], [-1, 1], [0], [0, -1], [10**30, 1]])
def test_a_question_about_names_that_no_line_has_is_an_error(runs: list[int]) -> None:
    decoder = RecordingDecoder(Limits())
    list(decoder.decode(RecordingEncoder().encode(Start({}))))
    line = {"type": "question", "verb": "filter", "answer": {}, "uid": "a", "runs": runs}
    with pytest.raises(WireError):
        list(decoder.decode(json.dumps(line).encode()))


@given(st.binary(max_size=60) | st.sampled_from(["object", "claim", "question", "assumed"]).map(
    lambda kind: orjson.dumps({"type": kind, "kind": "Pod", "object": {"signature": 7}, "claim": 3})
))  # fmt: skip
def test_any_line_is_read_or_rejected_with_a_wire_error(line: bytes) -> None:
    decoder = RecordingDecoder(Limits())
    list(decoder.decode(RecordingEncoder().encode(Start({}))))
    with pytest.raises(WireError):
        list(decoder.decode(line))

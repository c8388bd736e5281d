"""What is recorded is decoded as it was, objects and claims, and pods of one signature share it again."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.model.changes import (
    Assumption,
    AssumptionEnd,
    LaterAttempt,
    Nomination,
    NominationEnd,
    NominationRelease,
    ObjectChange,
    PolicyRecheck,
    Reservation,
    ReservationEnd,
)
from extender.model.constraints.labels import HOSTNAME, is_dns_label, is_dns_subdomain, is_label_key, is_label_value
from extender.model.objects import Namespace, Node, Object, Pod
from extender.model.policies import InvalidPolicy, PolicyObject
from extender.model.rejections import Reason
from extender.model.release import GroupKey, Slot
from extender.settings.configuration import parse_settings, settings_document
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError
from extender.wire.extender_v1 import FilterResult
from extender.wire.objects.kinds import PODS, RESOURCE_QUOTAS, policies_within
from extender.wire.policies.node_terms import LISTS, NODE_TERMS
from extender.wire.policies.policy_fields import SPEC_FIELDS, Fields
from extender.wire.recordings.recording import (
    Entry,
    Question,
    RecordedAnswer,
    RecordingDecoder,
    RecordingEncoder,
    Start,
    filter_answer,
)
from extender.wire.recordings.redaction import WORDS, Redactor
from tests.builders import Json, matching, node, pod, pod_json, requirement, resizing, settings, term, workload
from tests.strategies import pods
from tests.wire.recorded_entries import KEY, policy_named, redacted, same, through

GROUP = GroupKey("placement.extender.dev/ns/policy", "ns", "group")
POLICY = {
    "metadata": {"name": "zones", "namespace": "ns", "generation": 2},
    "spec": {"podSelector": {"matchLabels": {"app": "web"}}, "nodeSelector": {"zone": "a"}},
}
QUOTA = {
    "metadata": {"name": "q", "namespace": "ns"},
    "spec": {"hard": {"pods": "3"}, "scopes": ["CrossNamespacePodAffinity"]},
}


RESIZED = resizing(
    pod_json(on="n", requests={"cpu": "1"}, apart=[term("zone", namespace_selector={})])
    | {"status": {"resources": {"requests": {"cpu": "3"}}}},
    allocated={"cpu": "2"},
    actual={},
)
RESIZED["spec"]["resources"] = {"requests": {"cpu": "2"}}


@given(pods())
@example(RESIZED)
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
        policies_within(ConstraintLimits(), "PodSchedulingPolicy", "placement.extender.dev").decode_object(
            orjson.dumps(POLICY)
        ),
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
        LaterAttempt("a", passed=True),
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
def test_questions_are_about_the_nodes_that_they_were_about(requested: list[list[str]]) -> None:
    questions: list[Entry] = [Question("filter", "uid", RecordedAnswer(), names) for names in requested]
    assert [each.names for each in through(*questions) if isinstance(each, Question)] == requested


def test_nodes_that_are_asked_about_again_in_their_order_take_a_few_numbers() -> None:
    ring = [f"node-{number:05}.example.internal" for number in range(5000)]
    encoder = RecordingEncoder()
    sizes = [
        len(encoder.encode(Question("filter", "uid", RecordedAnswer(), ring[at:] + ring[:at])))
        for at in (0, 500, 1000, 4999)
    ]
    assert encoder.encode(Question("filter", "uid", RecordedAnswer(), ring)).count(b"\n") == 1, "no line about names"
    assert sizes[0] > 100_000
    assert max(sizes[1:]) < 200


@pytest.mark.parametrize("runs", [[0, 1], [-1, 1], [0], [0, -1], [10**30, 1]])
def test_a_question_about_names_that_no_line_has_is_an_error(runs: list[int]) -> None:
    decoder = RecordingDecoder(ConstraintLimits())
    list(decoder.decode(RecordingEncoder().encode(Start({}))))
    line = {"type": "question", "verb": "filter", "answer": {}, "uid": "a", "runs": runs}
    with pytest.raises(WireError):
        list(decoder.decode(json.dumps(line).encode()))


@given(st.binary(max_size=60) | st.sampled_from(["object", "claim", "question", "assumed"]).map(
    lambda kind: orjson.dumps({"type": kind, "kind": "Pod", "object": {"signature": 7}, "claim": 3})
))  # fmt: skip
def test_any_line_is_read_or_rejected_with_a_wire_error(line: bytes) -> None:
    decoder = RecordingDecoder(ConstraintLimits())
    list(decoder.decode(RecordingEncoder().encode(Start({}))))
    with pytest.raises(WireError):
        list(decoder.decode(line))


# -- What the pseudonyms of a recording keep of the names, and what they do not ----------------------------------------

REDACTOR = Redactor(KEY)
NAMES = st.text(st.sampled_from("abz-._/AZ09 é"), max_size=70)


def test_answers_are_compared_by_the_texts_of_rejections_only_where_no_node_passed() -> None:
    """A question with nodes that pass is recorded in few bytes: the texts of the others are not even made in most answers."""
    rejected = FilterResult((), failed={"a": "x"}, reasons=frozenset({Reason.ANTI_AFFINITY}))
    for is_redacted in (False, True):
        assert filter_answer(FilterResult(("a",)), None, redacted=is_redacted).digest == ""
        assert filter_answer(FilterResult((), error="none"), None, redacted=is_redacted).digest == ""
        assert filter_answer(rejected, None, redacted=is_redacted).digest


@given(NAMES, NAMES)
def test_a_pseudonym_is_valid_where_the_name_is_and_equal_where_the_names_are(one: str, other: str) -> None:
    first, second = REDACTOR.text(one), REDACTOR.text(other)
    assert (first == second) == (one == other)
    for is_valid in (is_dns_subdomain, is_dns_label, is_label_key):
        assert is_valid(first) == is_valid(one)
    if "/" not in one:
        assert is_label_value(first) == is_label_value(one)


def test_another_key_gives_another_pseudonym() -> None:
    assert REDACTOR.text("web-1") == Redactor(KEY).text("web-1")
    assert REDACTOR.text("web-1") != Redactor(KEY[::-1]).text("web-1")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("node-role.kubernetes.io/payroll", "node-role.kubernetes.io/"),
        ("requests.example.com/chip", "requests."),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
        ("hugepages-2Mi", "hugepages-2Mi"),
        ("zone-a", ""),
        ("payroll/web-1", ""),
        ("42", ""),
    ],
)
def test_of_a_text_only_the_words_of_kubernetes_are_kept(text: str, kept: str) -> None:
    found = REDACTOR.text(text)
    assert found.startswith(kept)
    rest = text.removeprefix(kept)
    assert not rest or all(part not in found.removeprefix(kept) for part in rest.split("/"))
    assert REDACTOR.text("payroll/web-1") == f"{REDACTOR.text('payroll')}/{REDACTOR.text('web-1')}"


def test_a_question_about_whole_nodes_keeps_them_with_other_names() -> None:
    encoder, decoder = RecordingEncoder(Redactor(KEY).line), RecordingDecoder(ConstraintLimits())
    requested = Question("filter", pod("web"), RecordedAnswer(), nodes=[node("n1", labels={"rack": "r1"}), node("n2")])
    lines = b"".join(encoder.encode(entry) for entry in (Start({}), requested)).splitlines()
    (found,) = (entry for line in lines for entry in decoder.decode(line) if isinstance(entry, Question))
    assert found.nodes is not None
    assert [each.name for each in found.nodes] == [REDACTOR.text("n1"), REDACTOR.text("n2")]
    assert found.nodes[0].labels[REDACTOR.text("rack")] == REDACTOR.text("r1")


def test_of_a_node_the_numbers_in_labels_stay_and_its_name_does_not() -> None:
    (found,) = redacted(node("42", labels={"slots": "5", "rack": "r1"}))
    assert isinstance(found, Node)
    assert found.name != "42"
    assert found.labels[REDACTOR.text("slots")] == "5"
    assert found.labels[HOSTNAME] == "42"
    assert "r1" not in found.labels.values()


@given(st.lists(NAMES.filter(is_dns_subdomain), min_size=2, max_size=12, unique=True))
def test_policies_stay_in_the_order_of_their_names_whatever_the_order_in_which_they_come(names: list[str]) -> None:
    found = redacted(*map(policy_named, names))
    pairs = sorted((name, each.name) for name, each in zip(names, found, strict=True) if isinstance(each, PolicyObject))
    assert len(pairs) == len(names)
    assert [pseudonym for _, pseudonym in pairs] == sorted(pseudonym for _, pseudonym in pairs)


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {"a b": "c"}}, {"matchLabels": {"app": "-"}}, {"nonsense": "x"}, 5]
)
def test_a_policy_that_is_invalid_stays_so(selector: object) -> None:
    before = policy_named("p", podSelector=selector)
    (after,) = redacted(before)
    assert isinstance(after, PolicyObject)
    assert isinstance(after.policy, InvalidPolicy) == isinstance(before.policy, InvalidPolicy)


def test_the_settings_are_read_as_before_without_addresses_and_with_pseudonyms() -> None:
    before = settings(
        server={"bindAddress": "10.1.2.3:8888"},
        policies={
            "enabled": True,
            "exemptNamespaces": ["kube-system", "payroll"],
            "exemptions": {"labelIn": ["payroll", "*"], "daemonSetsBy": ["payroll"]},
        },
        assumedPods={"expiry": "1m30s"},
        recorder={"path": "/var/payroll.jsonl"},
    )
    document = REDACTOR.settings(settings_document(before))
    assert [text for text in (b"payroll", b"10.1.2.3") if text in orjson.dumps(document)] == []
    after = parse_settings(document)
    assert after.policies.exempt_namespaces == ("kube-system", REDACTOR.text("payroll"))
    assert after.policies.exemptions.label_in == (REDACTOR.text("payroll"), "*")
    assert (after.assumed_pods, after.rules, after.limits) == (before.assumed_pods, before.rules, before.limits)


def fields_within(fields: Fields) -> set[str]:
    return {*fields}.union(*(fields_within(each) for each in fields.values() if each))


def test_every_field_of_a_policy_is_a_word() -> None:
    assert {*fields_within(SPEC_FIELDS), *LISTS, NODE_TERMS} <= WORDS


def test_no_hash_of_names_is_written() -> None:
    written = RecordingEncoder(Redactor(KEY).line).encode(ObjectChange(pod("a", node_selector={"rack": "r1"})))
    assert b'"_hash":0' in written


def test_long_lists_are_searched_as_before() -> None:
    zones = [f"zone-{number}" for number in range(40)]
    terms = [{"matchExpressions": [requirement("rack", "In", zones)]}]
    apart = [term("rack", selector=matching(("app", "In", zones)), namespaces=zones)]
    there = [node(f"n{zone}", labels={"rack": zone}) for zone in zones]
    found, *others = redacted(pod("a", node_terms=terms, apart=apart), *there)
    assert isinstance(found, Pod)
    for each in others:
        assert isinstance(each, Node)
        assert found.signature.node_affinity.matches(each.name, each.labels)
    (carried,) = found.signature.affinity.required_anti
    app, names = REDACTOR.text("app"), list(map(REDACTOR.text, zones))
    assert all(carried.selects(name, {app: name}, None) for name in names)

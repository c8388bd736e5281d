"""What the pseudonyms of a recording keep of the names, and what they do not."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.changes import ObjectChange
from extender.model.constraints.labels import HOSTNAME, is_dns_label, is_dns_subdomain, is_label_key, is_label_value
from extender.model.objects import Node, Object, Pod
from extender.model.policies import InvalidPolicy, PolicyObject
from extender.settings.configuration import parse_settings, settings_document
from extender.settings.limits import Limits
from extender.wire.objects.kinds import policies_within
from extender.wire.objects.objects_json import AffinityJson, InterPodJson, NodeTermJson, SpreadJson
from extender.wire.policies.node_terms import LISTS, NODE_TERMS
from extender.wire.policies.policies_v1 import spec_fields
from extender.wire.policies.policy_validation import RELEASE_FIELDS
from extender.wire.recordings.recording import Entry, RecordingDecoder, RecordingEncoder, Start
from extender.wire.recordings.redaction import WORDS, Redactor
from tests.builders import matching, node, pod, requirement, settings, term
from tests.policies import policy_json

KEY = b"a key of sixteen"
REDACTOR = Redactor(KEY)
NAMES = st.text(st.sampled_from("abz-._/AZ09 é"), max_size=70)
POLICIES = policies_within(Limits(), "ClusterPodSchedulingPolicy", "placement.extender.dev")


def policy_named(name: str, **spec: Any) -> PolicyObject:
    """A policy as the watch shows it."""
    found = POLICIES.decode_object(orjson.dumps(policy_json(name, **spec)))
    assert isinstance(found, PolicyObject)
    return found


def redacted(*found: Object) -> list[Object]:
    """The objects after they were recorded with a redaction, and read."""
    encoder, decoder = RecordingEncoder(Redactor(KEY).line), RecordingDecoder(Limits())
    entries: list[Entry] = [Start({}), *map(ObjectChange, found)]
    lines = b"".join(encoder.encode(entry) for entry in entries).splitlines()
    return [entry.obj for line in lines for entry in decoder.decode(line) if isinstance(entry, ObjectChange)]


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


def test_every_field_of_a_policy_is_a_word() -> None:
    structs: list[type[msgspec.Struct]] = [AffinityJson, InterPodJson, NodeTermJson, SpreadJson]
    fields = {field.encode_name for each in structs for field in msgspec.structs.fields(each)}
    fields |= {*spec_fields(is_cluster=True), *RELEASE_FIELDS, *LISTS, NODE_TERMS}
    assert fields <= WORDS


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

"""Bodies that cannot be read are refused with the path of the field at fault, and with nothing but `WireError`."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.model.preemption import Candidate, Victim
from extender.settings.configuration import Settings
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from extender.wire.errors import WireError
from extender.wire.extender_v1 import (
    FilterResult,
    decode_args,
    decode_binding_args,
    decode_preemption_args,
    encode_filter,
    encode_filter_error,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)
from extender.wire.manifests import decode_manifest
from extender.wire.objects.kinds import NODES, PODS, REPLICA_SETS, decode_page
from tests.builders import CONTAINER, PREFERRED, REQUIRED, Json, extender_args, index_of, node_json, pod_json, settings
from tests.deciding import filter_nodes
from tests.wire.recorded import (
    EVERY_NODE,
    LISTS,
    each_of,
    listed,
    names_in,
    nodes_that_pass,
    recorded,
    victims_in,
)
from tests.wire.scheduler_side import read_filter, read_preemption, read_priorities

DEEP = 100_000
NAMED: Json = {"metadata": {"name": "n"}}


def near(term: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


def on_nodes(term: Json) -> Json:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}}


WITHOUT_AMOUNT: Json = {"name": "c", "resources": {"requests": {"cpu": "much"}}}
POD_FAULTS: dict[str, tuple[Json, str]] = {
    "labels of a number": ({"metadata": {"labels": {"a": 5}}}, "Pod.metadata.labels[...]"),
    "labels as a list": ({"metadata": {"labels": []}}, "Pod.metadata.labels"),
    "priority as text": ({"spec": {"priority": "high"}}, "Pod.spec.priority"),
    "containers as an object": ({"spec": {"containers": {}}}, "Pod.spec.containers"),
    "topology key of a number": (
        {"spec": near({"topologyKey": 5})},
        f"Pod.spec.affinity.podAffinity.{REQUIRED}[0].topologyKey",
    ),
    "namespaces as text": (
        {"spec": near({"topologyKey": "k", "namespaces": "a"})},
        f"Pod.spec.affinity.podAffinity.{REQUIRED}[0].namespaces",
    ),
    "an operator of a number": (
        {"spec": on_nodes({"matchExpressions": [{"key": "a", "operator": 5}]})},
        f"Pod.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
    ),
    "maxSkew as text": (
        {"spec": {"topologySpreadConstraints": [{}, {"maxSkew": "1"}]}},
        "Pod.spec.topologySpreadConstraints[1].maxSkew",
    ),
    "tolerations as an object": ({"spec": {"tolerations": {"key": "a"}}}, "Pod.spec.tolerations"),
    "nodeSelector of a number": ({"spec": {"nodeSelector": {"a": 1}}}, "Pod.spec.nodeSelector[...]"),
    "owners as text": ({"metadata": {"ownerReferences": "me"}}, "Pod.metadata.ownerReferences"),
    "statuses as an object": (
        {"spec": {"nodeName": "n"}, "status": {"containerStatuses": {"resources": {}}}},
        "Pod.status.containerStatuses",
    ),
    "a quantity of a status that is none": (
        {"spec": {"nodeName": "n", "containers": [{"name": "c"}]}, "status": {"containerStatuses": [WITHOUT_AMOUNT]}},
        "Pod.status.containerStatuses.resources",
    ),
    "a quantity that is none": (
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}},
        "Pod.spec.containers.resources.requests",
    ),
    "a start that is no time": ({"status": {"startTime": "yesterday"}}, "Pod.status.startTime"),
    "a start without a time zone": ({"status": {"startTime": "2026-11-20T17:22:56"}}, "Pod.status.startTime"),
    "a priority beyond 32 bits": ({"spec": {"priority": 2**31}}, "Pod.spec.priority"),
    "maxSkew beyond 32 bits": (
        {"spec": {"topologySpreadConstraints": [{"maxSkew": 2**31}]}},
        "Pod.spec.topologySpreadConstraints[0].maxSkew",
    ),
    "minDomains beyond 32 bits": (
        {"spec": {"topologySpreadConstraints": [{"minDomains": -(2**31) - 1}]}},
        "Pod.spec.topologySpreadConstraints[0].minDomains",
    ),
    "a weight beyond 32 bits": (
        {"spec": {"affinity": {"podAffinity": {PREFERRED: [{"weight": 2**31}]}}}},
        f"Pod.spec.affinity.podAffinity.{PREFERRED}[0].weight",
    ),
}


@pytest.mark.parametrize(("pod", "path"), POD_FAULTS.values(), ids=POD_FAULTS)
@pytest.mark.parametrize("decode", [decode_args, decode_preemption_args], ids=["filter", "preempt"])
def test_a_field_of_the_wrong_type_in_the_pod_is_named_by_its_path(
    decode: Callable[[bytes], object], pod: Json, path: str
) -> None:
    with pytest.raises(WireError) as caught:
        decode(orjson.dumps({"Pod": pod, "NodeNames": []}))
    assert caught.value.path == path
    assert str(caught.value) == f"{path}: {caught.value.problem}"


FAULTS: dict[str, tuple[Callable[[bytes], object], Json, str]] = {
    "a pod of a number": (decode_args, {"Pod": 5}, "Pod"),
    "a null pod": (decode_args, {"Pod": None}, "Pod"),
    "no pod": (decode_args, {}, "Pod"),
    "names as text": (decode_args, {"Pod": NAMED, "NodeNames": "a"}, "NodeNames"),
    "names as an object": (decode_args, {"Pod": NAMED, "NodeNames": {"a": 1}}, "NodeNames"),
    "a name of a number": (decode_args, {"Pod": NAMED, "NodeNames": ["a", 5]}, "NodeNames[1]"),
    "lower case names of a number": (decode_args, {"pod": NAMED, "nodenames": 5}, "NodeNames"),
    "nodes as a list": (decode_args, {"Pod": NAMED, "Nodes": []}, "Nodes"),
    "a node of a number": (decode_args, {"Pod": NAMED, "Nodes": {"items": [NAMED, 5]}}, "Nodes.items[1]"),
    "taints of a number": (
        decode_args,
        {"Pod": NAMED, "Nodes": {"items": [NAMED, {"spec": {"taints": 5}}]}},
        "Nodes.items[1].spec.taints",
    ),
    "a node's label of a number": (
        decode_args,
        {"Pod": NAMED, "Nodes": {"items": [{"metadata": {"labels": {"a": 1}}}]}},
        "Nodes.items[0].metadata.labels[...]",
    ),
    "victims as a list": (decode_preemption_args, {"Pod": NAMED, "NodeNameToVictims": []}, "NodeNameToVictims"),
    "a UID of a number": (
        decode_preemption_args,
        {"Pod": NAMED, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": 5}]}}},
        "NodeNameToMetaVictims[...].Pods[0].UID",
    ),
    "labels of a victim": (
        decode_preemption_args,
        {"Pod": NAMED, "NodeNameToVictims": {"a": {"Pods": [{"metadata": {"labels": 5}}]}}},
        "NodeNameToVictims.a.Pods.metadata.labels",
    ),
    "violations as text": (
        decode_preemption_args,
        {"Pod": NAMED, "NodeNameToVictims": {"a": {"NumPDBViolations": "1"}}},
        "NodeNameToVictims[...].NumPDBViolations",
    ),
    "violations beyond 64 bits": (
        decode_preemption_args,
        {"Pod": {}, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2**63}}},
        "NodeNameToMetaVictims[...].NumPDBViolations",
    ),
    "violations below zero": (
        decode_preemption_args,
        {"Pod": {}, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": -1}}},
        "NodeNameToMetaVictims[...].NumPDBViolations",
    ),
    "a binding without its UID": (decode_binding_args, {"PodNamespace": "a", "PodName": "b", "Node": "c"}, "PodUID"),
    "an event's pod": (
        PODS.decode_event,
        {"type": "ADDED", "object": {"spec": {"priority": ""}}},
        "object.spec.priority",
    ),
    "an event without a type": (NODES.decode_event, {"object": {}}, "type"),
    "a bookmark of a number": (NODES.decode_event, {"type": "BOOKMARK", "object": 5}, ""),
    "a page of a number": (decode_page, {"items": 5, "metadata": {}}, "items"),
    "a page without metadata": (decode_page, {"items": []}, "metadata"),
    "metadata of a number": (NODES.decode_object, {"metadata": 5}, "metadata"),
    "a quantity of a node": (NODES.decode_object, node_json(allocatable={"cpu": "?"}), "status.allocatable"),
    "a selector": (
        REPLICA_SETS.decode_object,
        {"spec": {"selector": {"matchLabels": 5}}},
        "spec.selector.matchLabels",
    ),
}


@pytest.mark.parametrize(("decode", "body", "path"), FAULTS.values(), ids=FAULTS)
def test_a_body_of_the_wrong_type_is_named_by_its_path(
    decode: Callable[[bytes], object], body: Json, path: str
) -> None:
    with pytest.raises(WireError) as caught:
        decode(orjson.dumps(body))
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("decode", "body", "text"),
    [
        (decode_args, b'{"Pod":{},"NodeNames":["\xff"],"Nodes":null}', r"NodeNames: is not UTF-8$"),
        (decode_args, b'{"Pod":{},"NodeNames":[]}x', r"JSON is malformed: trailing characters"),
        (decode_args, b'{"Pod":{"spec":{"priority":"x"}}}', r"Pod.spec.priority: expected int \| null, got str$"),
        (decode_binding_args, b'{"PodNamespace":"a","PodName":"b","Node":"c"}', r"PodUID: is missing$"),
        (NODES.decode_object, b'{"metadata":{"name":"\xff"}}', ""),
        (NODES.decode_event, b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}', ""),
    ],
    ids=[
        "a name that is no UTF-8",
        "JSON",
        "a type",
        "a missing field",
        "an object that is no UTF-8",
        "an event of it",
    ],
)
def test_a_problem_reads_as_the_end_of_a_sentence(decode: Callable[[bytes], object], body: bytes, text: str) -> None:
    with pytest.raises(WireError, match=f"^{text}") as caught:
        decode(body)
    assert text or not caught.value.path


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"null", id="null"),
        pytest.param(b"pod=web", id="a form"),
        pytest.param(b'{"Pod":{}} {"Pod":{}}', id="two objects"),
        pytest.param(b'{"Pod":{"metadata":{"name":"\xff"}},"NodeNames":[]}', id="no UTF-8"),
        pytest.param(b'{"Pod":{"metadata":{"labels":{"a":"\xff"}}},"NodeNames":[]}', id="no UTF-8 in a raw field"),
        pytest.param(b'{"Pod":{"x":' + b"[" * DEEP + b"]" * DEEP + b"}}", id="nested too deeply"),
        pytest.param(
            b'{"Pod":{"metadata":{"labels":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b'}},"NodeNames":[]}',
            id="nested too deeply in a raw field",
        ),
    ],
)
@pytest.mark.parametrize("decode", [decode_args, decode_preemption_args], ids=["filter", "preempt"])
def test_what_is_no_json_object_is_a_wire_error_and_no_other(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(WireError):
        decode(body)


# A manifest is checked as plain JSON, which knows the name where msgspec knows that there is one.
NAMED_IN_A_MANIFEST = {
    "labels of a number": "Pod.metadata.labels[a]",
    "nodeSelector of a number": "Pod.spec.nodeSelector[a]",
    "a quantity that is none": "Pod.spec.containers[0].resources.requests[cpu]",
}


@pytest.mark.parametrize("fault", POD_FAULTS)
def test_a_field_of_the_wrong_type_in_a_manifest_is_named_by_its_path(fault: str) -> None:
    pod, path = POD_FAULTS[fault]
    spec = {"containers": [{}], **pod.get("spec", {})}
    if isinstance(spec["containers"], list):
        spec["containers"] = [CONTAINER | each for each in spec["containers"]]
    whole = {"metadata": {"name": "n", **pod.get("metadata", {})}, "spec": spec}
    whole |= {"status": pod["status"]} if "status" in pod else {}
    with pytest.raises(WireError) as caught:
        decode_manifest(orjson.dumps(whole))
    assert NAMED_IN_A_MANIFEST.get(fault, path).removeprefix("Pod.") in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"5", b"{", b"\xff", b'{"metadata":' * 1000, b'{"metadata":' * DEEP]
)
def test_a_body_that_is_no_manifest_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_manifest(body)


def test_a_manifest_of_very_many_values_is_refused_before_it_is_read() -> None:
    whole = {**NAMED, "spec": {"containers": [{"name": "c"}] * 6000}}
    with pytest.raises(WireError, match="holds more than 10000 values"):
        decode_manifest(orjson.dumps(whole))


# -- Every request that a real kube-scheduler 1.36 sent is answered in a way that it accepts ---------------------------

ADVISE = settings(preemption={"mode": "advise"})


@pytest.fixture(scope="module")
def index() -> ClusterIndex:
    objects = [kind.decode_object(orjson.dumps(item)) for kind in LISTS for item in listed(kind)]
    return index_of(*objects, rules=EVERY_NODE.rules)


@each_of("filter-names")
def test_a_filter_request_by_names_gets_the_names_that_pass(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    passed = read_filter(encode_filter(filter_nodes(args, index.view, EVERY_NODE, 0)), names_in(question))
    assert passed.names == nodes_that_pass(question)
    assert bool(passed.names) is not bool(passed.unresolvable)


@each_of("filter-nodes")
def test_a_filter_request_with_nodes_gets_these_nodes_back_unchanged(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    passed = read_filter(encode_filter_nodes(filter_nodes(args, index.view, EVERY_NODE, 0), args), names_in(question))
    assert passed.names == nodes_that_pass(question)
    assert list(passed.items) == [
        item for item in question["Nodes"]["items"] if item["metadata"]["name"] in passed.names
    ]


@each_of("filter-names", "filter-nodes")
def test_the_settings_as_they_come_answer_a_part_of_what_passes(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    result = filter_nodes(args, index.view, Settings(), 0)
    body = encode_filter(result) if args.nodes is None else encode_filter_nodes(result, args)
    passing = nodes_that_pass(question)
    names = read_filter(body, names_in(question)).names
    assert set(names) <= set(passing)
    assert bool(names) is bool(passing)


@each_of("prioritize-names", "prioritize-nodes")
def test_a_prioritize_request_gets_a_score_for_each_node_or_none_at_all(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    names = names_in(question)
    scores = read_priorities(encode_priorities(prioritize_nodes(args, index.view, EVERY_NODE)), names)
    assert scores == {} or (sorted(scores) == sorted(names) and len(set(scores.values())) > 1)
    assert all(0 <= score <= 10 for score in scores.values())


@each_of("preempt-names", "preempt-nodes")
def test_a_preempt_request_gets_its_candidates_back_while_our_rules_agree(index: ClusterIndex, question: Json) -> None:
    args = decode_preemption_args(orjson.dumps(question))
    requested = victims_in(question)
    peers = [pod for pod in listed(PODS) if pod["metadata"]["labels"].get("app") == "urgent"]
    placed = [PODS.decode_object(orjson.dumps(pod)) for pod in peers]
    with_peers = encode_preemption(decide_preemption(args, index.view, ADVISE, 0).candidates)
    for pod in placed:
        index.delete(pod)
    without_peers = encode_preemption(decide_preemption(args, index.view, ADVISE, 0).candidates)
    for pod in placed:
        index.upsert(pod)
    known = {node: (uids, 0) for node, uids in requested.items() if node in index.view.known}
    assert read_preemption(without_peers, requested) == known
    assert read_preemption(with_peers, requested).items() <= known.items()


@each_of("preempt-nodes")
def test_full_victims_are_read_with_priority_and_start(question: Json) -> None:
    args = decode_preemption_args(orjson.dumps(question))
    for candidate in args.candidates:
        raw = question["NodeNameToVictims"][candidate.node]["Pods"]
        assert [victim.priority for victim in candidate.victims] == [pod["spec"]["priority"] for pod in raw]
        assert [victim.uid for victim in candidate.victims] == [pod["metadata"]["uid"] for pod in raw]


def test_some_recorded_request_is_rejected_and_some_scored(index: ClusterIndex) -> None:
    """Guards the tests above: each of their branches is taken."""
    filters = recorded("filter-names").values()
    assert {bool(nodes_that_pass(request)) for request in filters} == {True, False}
    scored = [decode_args(orjson.dumps(each)) for each in recorded("prioritize-names").values()]
    assert {bool(prioritize_nodes(args, index.view, EVERY_NODE)) for args in scored} == {True, False}


# -- The scheduler's structs carry no JSON tags: our answers are spelled as Go spells them, byte for byte (trap T4) ----


NONE_FAILED = '"FailedNodes":{},"FailedAndUnresolvableNodes":{}'
CANDIDATE = Candidate("a", (Victim("u2", 5), Victim("u1", 1)), pdb_violations=1)
GOLDEN: dict[str, tuple[Callable[..., bytes], tuple[object, ...], str]] = {
    "some nodes pass": (
        encode_filter,
        (FilterResult(["a", "b"]),),
        f'{{"Nodes":null,"NodeNames":["a","b"],{NONE_FAILED},"Error":""}}',
    ),
    "no node passes": (
        encode_filter,
        (FilterResult((), failed={"a": "x"}, unresolvable={"b": "y"}),),
        '{"Nodes":null,"NodeNames":[],"FailedNodes":{"a":"x"},"FailedAndUnresolvableNodes":{"b":"y"},"Error":""}',
    ),
    "no node in the request": (
        encode_filter,
        (FilterResult(()),),
        f'{{"Nodes":null,"NodeNames":[],{NONE_FAILED},"Error":""}}',
    ),
    "an error lets no node pass": (
        encode_filter_error,
        ('say "no"',),
        f'{{"Nodes":null,"NodeNames":[],{NONE_FAILED},"Error":"say \\"no\\""}}',
    ),
    "no full node passes: an empty list, not null": (
        encode_filter_nodes,
        (FilterResult((), unresolvable={"a": "no"}), extender_args(pod_json(), nodes=[node_json("a")])),
        (
            '{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,'
            '"FailedNodes":{},"FailedAndUnresolvableNodes":{"a":"no"},"Error":""}'
        ),
    ),
    "scores": (encode_priorities, ({"a": 10, "b": -3},), '[{"Host":"a","Score":10},{"Host":"b","Score":-3}]'),
    "equal scores": (encode_priorities, ({},), "[]"),
    "victims by UID in their order": (
        encode_preemption,
        ([CANDIDATE],),
        '{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u2"},{"UID":"u1"}],"NumPDBViolations":1}}}',
    ),
    "no candidate": (encode_preemption, ([],), '{"NodeNameToMetaVictims":{}}'),
}


@pytest.mark.parametrize(("encode", "arguments", "golden"), GOLDEN.values(), ids=GOLDEN)
def test_an_answer_is_spelled_as_go_spells_it(
    encode: Callable[..., bytes], arguments: tuple[object, ...], golden: str
) -> None:
    assert encode(*arguments).decode() == golden


def test_full_nodes_come_back_as_they_were_written_and_in_the_order_of_the_answer() -> None:
    first, second = b'{ "metadata":{"name":"a"}, "strange":[1.50] }', b'{"metadata":{"name":"b"},"spec":{}}'
    args = decode_args(b'{"Pod":{"metadata":{}},"Nodes":{"items":[%s,%s]},"NodeNames":null}' % (first, second))
    assert encode_filter_nodes(FilterResult(["b", "a"]), args) == (
        b'{"Nodes":{"metadata":{},"items":[%s,%s]},"NodeNames":null,'
        b'"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    ) % (second, first)


POD: Json = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"Pod": POD, "Nodes": None, "NodeNames": ["a"]}, id="as the scheduler writes it"),
        pytest.param({"pod": POD, "nodes": None, "nodenames": ["a"]}, id="lower case"),
        pytest.param({"pod": POD, "nodeNames": ["a"]}, id="camel case"),
        pytest.param({"Pod": POD, "nodeNames": ["a"]}, id="mixed case"),
        pytest.param({"POD": POD, "NODENAMES": ["a"]}, id="upper case"),
        pytest.param({"Pod": POD, "NodeNames": ["a"], "Future": {"x": [1]}}, id="unknown fields beside"),
        pytest.param({"Future": None, "NodeNames": ["a"], "Pod": POD | {"future": 1}}, id="unknown fields within"),
    ],
)
def test_field_names_are_read_in_any_case_as_go_does(body: Json) -> None:
    args = decode_args(orjson.dumps(body))
    assert (args.pod.full_name, args.node_names, args.nodes) == ("shop/web", ["a"], None)


@pytest.mark.parametrize("key", ["Nodes", "nodes", "NODES"])
def test_full_nodes_are_read_in_any_case(key: str) -> None:
    args = decode_args(orjson.dumps({"Pod": POD, key: {"items": [node_json("a")]}, "NodeNames": None}))
    assert [node.name for node in args.nodes or ()] == ["a"]


@pytest.mark.parametrize("key", ["NodeNameToMetaVictims", "nodeNameToMetaVictims", "nodenametometavictims"])
def test_candidates_are_read_in_any_case(key: str) -> None:
    args = decode_preemption_args(orjson.dumps({"Pod": POD, key: {"a": {"Pods": [{"UID": "u1"}]}}}))
    assert args.candidates == [Candidate("a", (Victim("u1"),))]


@pytest.mark.parametrize(
    ("names", "nodes", "expected"),
    [
        pytest.param(None, None, ([], None), id="both null"),
        pytest.param([], None, ([], None), id="no names"),
        pytest.param(None, {"items": None}, (None, []), id="null items"),
        pytest.param(None, {}, (None, []), id="no items"),
        pytest.param(["a"], {"items": [node_json("b")]}, (["a"], None), id="names win"),
    ],
)
def test_absent_lists_arrive_as_null(
    names: list[str] | None, nodes: Json | None, expected: tuple[list[str] | None, list[str] | None]
) -> None:
    args = decode_args(orjson.dumps({"Pod": POD, "Nodes": nodes, "NodeNames": names}))
    assert (args.node_names, args.nodes) == expected


@pytest.mark.parametrize(
    ("victims", "brief"),
    [
        pytest.param(None, {"a": None, "b": {"Pods": None, "NumPDBViolations": 2}}, id="by names"),
        pytest.param({"a": None, "b": {"Pods": None, "NumPDBViolations": 2}}, None, id="in full"),
    ],
)
def test_null_victims_are_no_victims(victims: Json | None, brief: Json | None) -> None:
    body = {"Pod": POD, "NodeNameToVictims": victims, "NodeNameToMetaVictims": brief}
    assert decode_preemption_args(orjson.dumps(body)).candidates == [Candidate("a", ()), Candidate("b", (), 2)]


def test_victims_sent_in_both_forms_are_taken_from_the_full_one() -> None:
    full = {"a": {"Pods": [pod_json("p", priority=7)], "NumPDBViolations": 1}}
    brief = {"a": {"Pods": [{"UID": "other"}]}, "b": {"Pods": [{"UID": "u"}]}}
    args = decode_preemption_args(orjson.dumps({"Pod": POD, "NodeNameToVictims": full, "NodeNameToMetaVictims": brief}))
    assert args.candidates == [Candidate("a", (Victim("uid-p", 7),), 1), Candidate("b", (Victim("u"),))]


def test_equal_bytes_of_names_are_equal_requests() -> None:
    bodies = [orjson.dumps({"Pod": POD, "NodeNames": names}) for names in (["a", "b"], ["a", "b"], ["b", "a"])]
    first, same, other = (decode_args(body).raw_names() for body in bodies)
    assert (first == same, first == other) == (True, False)


def test_thousands_of_names_and_nodes_are_read() -> None:
    names = [f"node-{number:05}-{'x' * 200}" for number in range(20_000)]
    assert extender_args(pod_json(), *names).node_names == names
    nodes = [node_json(name, zone="z1", annotation="y" * 50) for name in names[:2000]]
    assert [node.name for node in extender_args(pod_json(), nodes=nodes).nodes or ()] == names[:2000]

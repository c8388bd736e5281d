"""The scheduler's structs carry no JSON tags: our answers are spelled as Go spells them, byte for byte (trap T4)."""

from __future__ import annotations

import orjson
import pytest

from extender.model.preemption import Candidate, Victim
from extender.wire.extender_v1 import (
    FilterResult,
    decode_args,
    decode_preemption_args,
    encode_filter,
    encode_filter_error,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)
from tests.builders import Json, asking, node_json, pod_json


@pytest.mark.parametrize(
    ("result", "golden"),
    [
        pytest.param(
            FilterResult(["a", "b"]),
            '{"Nodes":null,"NodeNames":["a","b"],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}',
            id="some nodes pass",
        ),
        pytest.param(
            FilterResult((), failed={"a": "x"}, unresolvable={"b": "y"}),
            '{"Nodes":null,"NodeNames":[],"FailedNodes":{"a":"x"},"FailedAndUnresolvableNodes":{"b":"y"},"Error":""}',
            id="none passes",
        ),
        pytest.param(
            FilterResult(()),
            '{"Nodes":null,"NodeNames":[],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}',
            id="none was asked",
        ),
    ],
)
def test_a_filter_answer_by_names_always_has_its_names(result: FilterResult, golden: str) -> None:
    assert encode_filter(result).decode() == golden


def test_an_error_is_an_answer_that_lets_nothing_through() -> None:
    assert encode_filter_error('say "no"').decode() == (
        '{"Nodes":null,"NodeNames":[],"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":"say \\"no\\""}'
    )


def test_full_nodes_come_back_as_they_were_written_and_in_the_order_of_the_answer() -> None:
    first, second = b'{ "metadata":{"name":"a"}, "strange":[1.50] }', b'{"metadata":{"name":"b"},"spec":{}}'
    args = decode_args(b'{"Pod":{"metadata":{}},"Nodes":{"items":[%s,%s]},"NodeNames":null}' % (first, second))
    assert encode_filter_nodes(FilterResult(["b", "a"]), args) == (
        b'{"Nodes":{"metadata":{},"items":[%s,%s]},"NodeNames":null,'
        b'"FailedNodes":{},"FailedAndUnresolvableNodes":{},"Error":""}'
    ) % (second, first)


def test_full_nodes_of_which_none_passes_are_an_empty_list_and_not_null() -> None:
    args = asking(pod_json(), nodes=[node_json("a")])
    assert encode_filter_nodes(FilterResult((), unresolvable={"a": "no"}), args).decode() == (
        '{"Nodes":{"metadata":{},"items":[]},"NodeNames":null,'
        '"FailedNodes":{},"FailedAndUnresolvableNodes":{"a":"no"},"Error":""}'
    )


@pytest.mark.parametrize(
    ("scores", "golden"),
    [({"a": 10, "b": -3}, '[{"Host":"a","Score":10},{"Host":"b","Score":-3}]'), ({}, "[]")],
    ids=["scores", "all equal"],
)
def test_priorities_are_a_bare_array(scores: dict[str, int], golden: str) -> None:
    assert encode_priorities(scores).decode() == golden


def test_a_preempt_answer_names_victims_by_uid_in_their_order() -> None:
    candidate = Candidate("a", (Victim("u2", 5), Victim("u1", 1)), pdb_violations=1)
    assert encode_preemption([candidate]).decode() == (
        '{"NodeNameToMetaVictims":{"a":{"Pods":[{"UID":"u2"},{"UID":"u1"}],"NumPDBViolations":1}}}'
    )
    assert encode_preemption([]).decode() == '{"NodeNameToMetaVictims":{}}'


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
    assert asking(pod_json(), *names).node_names == names
    nodes = [node_json(name, zone="z1", annotation="y" * 50) for name in names[:2000]]
    assert [node.name for node in asking(pod_json(), nodes=nodes).nodes or ()] == names[:2000]

"""What is encoded is what the scheduler decodes, whatever the names and texts hold; what it sends is what we read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.preemption import Candidate, Victim
from extender.wire.errors import WireError
from extender.wire.extender_v1 import (
    FilterResult,
    decode_args,
    decode_preemption_args,
    encode_filter,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)
from extender.wire.objects.kinds import NODES
from tests.builders import Json, extender_args, read_pod
from tests.strategies import nodes, pods
from tests.wire.scheduler_side import read_filter, read_preemption, read_priorities

NAMES = st.lists(st.text(max_size=12), max_size=6, unique=True)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(NAMES, NAMES, st.text(max_size=20))
def test_a_filter_answer_is_decoded_as_it_was_meant(passed: list[str], rejected: list[str], text: str) -> None:
    result = FilterResult(passed, failed=dict.fromkeys(rejected, text), unresolvable=dict.fromkeys(passed, text))
    read = read_filter(encode_filter(result), [*passed, *rejected])
    assert (read.names, read.failed, read.unresolvable) == (passed, result.failed, result.unresolvable)


@given(st.dictionaries(st.text(max_size=12), st.integers(-(2**31), 2**31)))
def test_scores_are_decoded_as_they_were_meant(scores: dict[str, int]) -> None:
    assert read_priorities(encode_priorities(scores), list(scores)) == scores


@given(st.dictionaries(st.text(max_size=8), st.lists(st.text(max_size=8), min_size=1, max_size=3)), st.integers(0, 9))
def test_candidates_go_there_and_back(requested: dict[str, list[str]], violations: int) -> None:
    candidates = [Candidate(node, tuple(map(Victim, uids)), violations) for node, uids in requested.items()]
    body = encode_preemption(candidates)
    assert read_preemption(body, requested) == {node: (uids, violations) for node, uids in requested.items()}
    again = decode_preemption_args(orjson.dumps({"Pod": {}, **orjson.loads(body)}))
    assert again.candidates == candidates


@given(pods(), NAMES)
def test_names_are_read_as_they_were_sent(pod: Json, names: list[str]) -> None:
    args = extender_args(pod, *names)
    assert (args.node_names, args.pod) == (names, read_pod(pod))


@given(pods(), st.lists(st.sampled_from(["n1", "n2", "n3"]).flatmap(nodes), max_size=3, unique_by=str), st.data())
def test_full_nodes_that_pass_go_back_unchanged(pod: Json, bodies: list[Json], data: st.DataObject) -> None:
    unique = list({body["metadata"]["name"]: body for body in bodies}.values())
    args = extender_args(pod, nodes=unique)
    assert args.nodes == [NODES.decode_object(orjson.dumps(body)) for body in unique]
    names = [body["metadata"]["name"] for body in unique]
    passed = data.draw(st.permutations(names)) if names else []
    read = read_filter(encode_filter_nodes(FilterResult(passed), args), names)
    assert list(read.items) == [unique[names.index(name)] for name in passed]


@given(ANYTHING, st.sampled_from([decode_args, decode_preemption_args]))
def test_any_json_is_read_or_rejected_with_a_wire_error(value: object, decode: Callable[[bytes], object]) -> None:
    for body in (value, {"Pod": value, "NodeNames": value}, {"Pod": {"metadata": value, "spec": value}}):
        with suppress(WireError):
            assert decode(orjson.dumps(body)) is not None


@given(st.binary(max_size=60))
def test_any_bytes_are_rejected_with_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        decode_args(body)

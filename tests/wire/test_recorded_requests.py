"""Every request that a real kube-scheduler 1.36 sent is answered in a way that it accepts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.index.cluster import ClusterIndex
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.simulator.oracle.brute_force import feasible
from extender.verbs.preempt import decide_preemption
from extender.verbs.prioritize import prioritize_nodes
from extender.wire.extender_v1 import (
    decode_args,
    decode_preemption_args,
    encode_filter,
    encode_filter_nodes,
    encode_preemption,
    encode_priorities,
)
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS, Kind, decode_page
from tests.builders import Json, settings
from tests.deciding import filter_nodes
from tests.wire.scheduler_side import read_filter, read_preemption, read_priorities

RECORDINGS = Path(__file__).parents[1] / "recordings"
LISTS: list[Kind[Any]] = [NODES, NAMESPACES, PODS]
EVERY_NODE = settings()
ADVISE = settings(preemption={"mode": "advise"})


def recorded(*verbs: str) -> dict[str, Json]:
    """The request bodies of these folders, by path."""
    paths = [path for verb in verbs for path in sorted((RECORDINGS / "scheduler" / verb).glob("*.json"))]
    return {f"{path.parent.name}/{path.stem}": orjson.loads(path.read_bytes())["request"] for path in paths}


def each_of(*verbs: str) -> pytest.MarkDecorator:
    """Runs a test with every recorded question of these folders."""
    found = recorded(*verbs)
    return pytest.mark.parametrize("question", list(found.values()), ids=list(found))


def listed(kind: Kind[Any]) -> list[Json]:
    """The objects of the recorded list of a kind."""
    lines = (RECORDINGS / f"list-{kind.name}.jsonl").read_bytes().splitlines()
    return [item for line in lines for item in orjson.loads(line)["items"]]


@pytest.fixture(scope="module")
def index() -> ClusterIndex:
    """The cluster as it was listed."""
    index = ClusterIndex(EVERY_NODE.rules, counts_of_rules())
    for kind in LISTS:
        for line in (RECORDINGS / f"list-{kind.name}.jsonl").read_bytes().splitlines():
            for item in decode_page(line).items:
                index.upsert(kind.decode_object(bytes(item)))
    return index


def asked_names(request: Json) -> list[str]:
    names: Sequence[str] | None = request["NodeNames"]
    return list(names) if names is not None else [item["metadata"]["name"] for item in request["Nodes"]["items"]]


def asked_victims(request: Json) -> dict[str, list[str]]:
    if request["NodeNameToMetaVictims"] is not None:
        brief = request["NodeNameToMetaVictims"]
        return {node: [pod["UID"] for pod in victims["Pods"]] for node, victims in brief.items()}
    full = request["NodeNameToVictims"]
    return {node: [pod["metadata"]["uid"] for pod in victims["Pods"]] for node, victims in full.items()}


def nodes_that_pass(request: Json) -> list[str]:
    """The brute-force model's answer over the listed cluster."""
    found = feasible(request["Pod"], listed(NODES), listed(NAMESPACES), listed(PODS))
    return [name for name in asked_names(request) if name in found and found[name].code == "Success"]


@each_of("filter-names")
def test_a_filter_request_by_names_gets_the_names_that_pass(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    passed = read_filter(encode_filter(filter_nodes(args, index.view, EVERY_NODE, 0)), asked_names(question))
    assert passed.names == nodes_that_pass(question)
    assert bool(passed.names) is not bool(passed.unresolvable)


@each_of("filter-nodes")
def test_a_filter_request_with_nodes_gets_these_nodes_back_unchanged(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    passed = read_filter(
        encode_filter_nodes(filter_nodes(args, index.view, EVERY_NODE, 0), args), asked_names(question)
    )
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
    names = read_filter(body, asked_names(question)).names
    assert set(names) <= set(passing)
    assert bool(names) is bool(passing)


@each_of("prioritize-names", "prioritize-nodes")
def test_a_prioritize_request_gets_a_score_for_each_node_or_none_at_all(index: ClusterIndex, question: Json) -> None:
    args = decode_args(orjson.dumps(question))
    names = asked_names(question)
    scores = read_priorities(encode_priorities(prioritize_nodes(args, index.view, EVERY_NODE)), names)
    assert scores == {} or (sorted(scores) == sorted(names) and len(set(scores.values())) > 1)
    assert all(0 <= score <= 10 for score in scores.values())


@each_of("preempt-names", "preempt-nodes")
def test_a_preempt_request_gets_its_candidates_back_while_our_rules_agree(index: ClusterIndex, question: Json) -> None:
    args = decode_preemption_args(orjson.dumps(question))
    asked = asked_victims(question)
    peers = [pod for pod in listed(PODS) if pod["metadata"]["labels"].get("app") == "urgent"]
    placed = [PODS.decode_object(orjson.dumps(pod)) for pod in peers]
    with_peers = encode_preemption(decide_preemption(args, index.view, ADVISE, 0).candidates)
    for pod in placed:
        index.delete(pod)
    without_peers = encode_preemption(decide_preemption(args, index.view, ADVISE, 0).candidates)
    for pod in placed:
        index.upsert(pod)
    known = {node: (uids, 0) for node, uids in asked.items() if node in index.view.known}
    assert read_preemption(without_peers, asked) == known
    assert read_preemption(with_peers, asked).items() <= known.items()


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

"""What policies leave out of spread constraints: the filter says what a brute-force reading says, and counts equal recounts.

Nodes are lost, cordoned, return, are relabelled and deleted, operators exclude domains, and time passes.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.state import apply_change, state_of
from extender.model.bounded import at_once
from extender.model.constraints.labels import ZONE
from extender.model.policies import PolicyObject
from extender.rules import excluded_domains
from extender.rules.excluded_domains import Fullness
from extender.rules.frames import ChangedNodeFrame, Frame, IndexFrame, RequestFrame
from extender.rules.topology_spread import spread_groups
from extender.simulator.oracle.brute_force import ClusterState
from extender.simulator.oracle.directed_spread import DirectedSpread, Known
from extender.verbs.effective_pod import effective_pod
from extender.verbs.spread_skew import skew_figures
from extender.wire.objects import kinds
from tests.builders import Json, index_of, node_json, read_pod
from tests.laws.cases import case, meets_its_case, times
from tests.laws.excluded_domains import AFTER, ENABLED, Cluster, directive, expected, incoming, verdicts
from tests.policies import policy


@meets_its_case
@times(2)
@given(st.integers(0, 2**32).map(Random))
def test_the_filter_says_what_brute_force_says(rng: Random) -> None:
    directed = directive(rng)
    cluster, seen = Cluster(rng, directed), 0
    cluster.begin()
    with pytest.MonkeyPatch.context() as patch:
        if rng.random() < 0.5:  # as if there were thousands of domains
            patch.setattr(excluded_domains, "_MOST_DOMAINS", 1)
        for _ in range(30):
            cluster.happen()
            body = incoming(rng)
            want = expected(cluster, body, directed)
            assert verdicts(cluster.index, body) == want, (cluster.excluded, directed, cluster.now)
            seen += cluster.excludes_ineligible(body)
    case(seen > 2)
    assert audit(cluster.index) == []


@meets_its_case
@times(3 / 2)
@given(st.integers(0, 2**32).map(Random))
def test_the_skew_is_that_of_brute_force(rng: Random) -> None:
    directed = directive(rng) | rng.choice([{}, {"matchLabelKeys": "IfMissing"}])
    cluster, seen = Cluster(rng, directed), 0
    selector: Json = {"labelSelector": {"matchLabels": {"app": "web"}}}
    hard: Json = {"maxSkew": rng.randint(1, 2), "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"} | selector
    cluster.template = {"spreads": [hard], "owner": ("ReplicaSet", "web")}
    cluster.begin()
    for _ in range(30):
        cluster.happen()
        state = ClusterState(cluster.nodes.values())
        standing = {name: pod for name, pod in cluster.pods.items() if pod["spec"]["nodeName"] in cluster.nodes}
        for name, pod in standing.items():
            state.place(name, pod, pod["spec"]["nodeName"])
        shown = at_once(skew_figures(cluster.index.view, ENABLED)).shown
        if standing:
            known = {ZONE: Known(cluster.excluded, set(cluster.declared.domains))}
            wanted = DirectedSpread(next(iter(standing.values())), state, [directed], known).skews()[ZONE]
            assert shown == {("default", "ReplicaSet/web", ZONE): wanted}, (cluster.excluded, directed)
            seen += wanted[0] > wanted[1] and bool(cluster.excluded)
    case(seen > 0)
    assert audit(cluster.index) == []


@meets_its_case
@given(st.integers(0, 2**32).map(Random))
def test_the_least_count_is_that_of_all_domains_one_by_one_with_nodes_of_a_request_too(rng: Random) -> None:
    cluster, seen = Cluster(rng, {"topologyKey": ZONE, "fullDomains": "Exclude"}), 0
    cluster.begin()
    for _ in range(12):
        cluster.happen()
        view, body = cluster.index.view, incoming(rng)
        pod = effective_pod(read_pod(body), view, ENABLED)
        (hard,) = spread_groups(view.compiled(pod.signature)).hard
        group, shown = hard.group, list(cluster.nodes.values())
        more = [node_json(f"new{n}", zone=rng.choice("abcde"), allocatable={"cpu": "1", "pods": "3"}) for n in range(2)]
        nodes = [kinds.NODES.decode_object(orjson.dumps(each)) for each in [*shown, *more]]
        frames: list[Frame] = [IndexFrame(), RequestFrame(nodes)]
        if shown:
            moved = msgspec.structs.replace(nodes[-1], name=nodes[0].name)
            frames.append(ChangedNodeFrame(view.known[moved.name], moved, view))
        numbers = rng.sample(sorted(group.column.domains), min(len(group.column.domains), rng.randint(0, 1)))
        for frame in frames:
            counts = frame.satisfying(group)
            is_full = Fullness(pod, pod.signature, group, view, frame)
            found = is_full.least(counts, numbers)
            kept = [each for each in group.column.domains if each not in numbers and not is_full(each)]
            assert found == min((counts.get(each, 0) for each in kept), default=0)
            assert is_full.least(counts, numbers) == found, "from what is known by now"
            seen += found > 0
    case(seen > 1)


@given(st.integers(0, 2**32).map(Random))
def test_an_index_that_gets_the_noted_changes_excludes_the_same(rng: Random) -> None:
    directed = directive(rng)
    cluster = Cluster(rng, directed)
    noted: list[Any] = []
    begun = index_of(PolicyObject(policy(spread=[directed])))
    for _ in range(20):
        cluster.happen()
        if len(noted) == 0:
            for each in state_of(cluster.index):
                apply_change(begun, each)
            cluster.index.journal.note = noted.append
    for each in noted:
        apply_change(begun, each)
    assert begun.domains.excluded(ZONE, AFTER) == cluster.index.domains.excluded(ZONE, AFTER)
    body = incoming(rng)
    assert verdicts(begun, body) == verdicts(cluster.index, body)


@given(st.integers(0, 2**32).map(Random))
def test_nothing_is_kept_once_everything_is_gone(rng: Random) -> None:
    cluster = Cluster(rng, directive(rng))
    for _ in range(20):
        cluster.happen()
    for name in list(cluster.nodes):
        cluster.drop_node(name)
    cluster.index.delete(cluster.declared)
    cluster.index.domains.step(cluster.now)
    assert (cluster.index.domains.excluded(ZONE, AFTER), cluster.index.domains.due()) == ({}, float("inf"))
    (made,) = list(cluster.index.policies)
    cluster.index.delete(PolicyObject(made))
    assert cluster.index.domains.statistics() == {"topology_domains": 0, "tracked_topology_keys": 0}
    assert not cluster.index.domains.follows_room

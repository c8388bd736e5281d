"""The work of dry runs under policies that leave out full domains: what is computed once, and what a check may cost."""

from __future__ import annotations

import pytest

from extender.index.cluster import ClusterIndex
from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Pod
from extender.model.policies import PolicyObject
from extender.rules import topology_spread
from extender.rules.excluded_domains import Fullness, LeftOut
from extender.rules.node_fit import NodeFit
from extender.verbs import dry_run
from extender.verbs.dry_run import DryRun, best_among
from extender.verbs.effective_pod import effective_pod
from tests.builders import Json, index_of, settings, spread
from tests.contenders import contender, stage
from tests.index.counting import Calls
from tests.policies import policy

ENABLED = settings(policies={"enabled": True})
KEYS = [HOSTNAME, *(f"key-{number}" for number in range(7))]


def crowd(nodes: int, pods: int = 3, *, protected: bool = True) -> ClusterIndex:
    """Nodes that are a domain of each key, with web pods that may go, and one that may not."""
    spread_over: list[Json] = [{"topologyKey": key, "fullDomains": "Exclude"} for key in KEYS]
    made = index_of(PolicyObject(policy(spread=spread_over)))
    for number in range(nodes):
        made.upsert(stage(f"n{number}", labels=dict.fromkeys(KEYS[1:], f"v{number}")))
        for each in range(pods):
            made.upsert(contender(f"w{number}-{each}", on=f"n{number}", app="web"))
        if protected and number:  # one node has fewer pods, so that the minimum keeps the preemptor from the others
            made.upsert(contender(f"high-{number}", on=f"n{number}", priority=1000, app="web"))
    return made


def preemptor(index: ClusterIndex, cpu: int = 1000) -> Pod:
    spreads = [spread(key, app="web") for key in KEYS]
    incoming = contender("asking", cpu=cpu, priority=100, app="web", spreads=spreads)
    return effective_pod(incoming, index.view, ENABLED)


def search(index: ClusterIndex, cpu: int = 1000) -> DryRun:
    run = DryRun(preemptor(index, cpu), index.view)
    best_among(sorted(index.view.known.values()), run, 0, checks_fit=True)
    return run


def test_the_domains_that_are_left_out_are_looked_for_once_in_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once when it is found whether the pod fits nowhere, and once for all trials."""
    made = Calls(monkeypatch, (Fullness, "__init__"), (Fullness, "least"))
    for nodes in (5, 20):
        run = search(crowd(nodes))
        assert len(run.done) == nodes
        assert made.taken() == 3 * len(KEYS)


def test_nodes_without_victims_share_one_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Calls(
        monkeypatch, (topology_spread.TopologySpread, "prepare_filter"), (topology_spread._SpreadRecount, "filter")
    )
    run = search(crowd(20, 0))
    assert (len(run.done), made.taken()) == (20, 2)


@pytest.mark.parametrize("most", [3_000, 12_000])
def test_a_check_is_charged_for_each_constraint_and_domain_that_it_reads(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(dry_run, "MOST_WORK", most)
    index = crowd(60, 10)
    reads = Calls(monkeypatch, (LeftOut, "keeps"))
    conditions = Calls(monkeypatch, (topology_spread, "most_matching"))
    assert search(index).budget.is_spent()
    assert 0 < reads.taken() <= most / 10 + 2 * len(KEYS)  # the last check overdraws
    assert 0 < conditions.taken() <= most / 15 + 2 * len(KEYS)


def test_what_is_read_of_many_domains_is_charged() -> None:
    """Each domain has a pod, so the least count is found by reading all of them."""
    spent = []
    for nodes in (50, 100):
        run = DryRun(preemptor(index := crowd(nodes, 1)), index.view)
        before = run.budget.left
        run.on(1, checks_fit=True)
        spent.append(before - run.budget.left)
    assert spent[1] - spent[0] >= 2 * 50 * len(KEYS)  # a copy, and a sorted list


def test_a_trial_of_a_nodes_room_is_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "MOST_WORK", 3_000)
    index, trials = crowd(150, 0), Calls(monkeypatch, (NodeFit, "on_node"))
    run = search(index, cpu=100_000)
    assert run.budget.is_spent()
    assert trials.taken() <= 3_000 / 30 + 1

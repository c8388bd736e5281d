"""Shipped scenarios without one part of the extender, or with one field changed: the judges find what breaks.

`tests/scenarios` plays them as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from extender.rules.reserved_room import ReservedRoomFilter
from extender.tasks.release import choosing
from extender.verbs import select_host
from tests.simulator.scenario.conftest import SCENARIOS, Simulate


def text_of(name: str, *replacements: tuple[str, str], until: str = "") -> str:
    """A shipped scenario in which these texts are replaced, up to a line."""
    text = (SCENARIOS / f"{name}.yaml").read_text("utf-8")
    if until:
        text = text.partition(until)[0]
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return text


SHORT = ("--short", "--seed", "3", "-o", "json")


def test_without_assumed_pods_some_stand_where_they_must_not(simulate: Simulate) -> None:
    blind = ("placement: decisive", "placement: decisive\n  assumedPods: {enabled: false}")
    run = simulate("burst-decisive", text_of("burst-decisive", blind), *SHORT)
    assert (run.report["placed"], run.report["pending"], run.code) == (300, 0, 1)
    assert run.report["violations"]


def test_as_many_bindings_under_way_as_there_are_pods_need_no_place_among_the_connections(simulate: Simulate) -> None:
    """kube-scheduler has a connection for each binding under way, which is silent while it waits."""
    few = ("server: {", "server: {maxConnections: 8, maxConnectionsPerPeer: 8, ")
    run = simulate("burst-bind", text_of("burst-bind", few), *SHORT)
    assert (run.report["placed"], run.report["pending"], run.code) == (300, 0, 0)
    assert (run.report["violations"], run.report["failures"]) == ([], [])


def test_room_is_given_away_twice_where_each_scheduler_counts_its_own(simulate: Simulate) -> None:
    """Eight schedulers with late and failing bindings. It does not settle: pods are bound to full nodes again and again."""
    scenario = yaml.safe_load(text_of("schedulers"))
    scenario["extender"]["schedulers"] = "one"
    scenario["steps"] = [scenario["steps"][0], {"settle": {"timeout": "10s"}}]
    run = simulate("schedulers", scenario, *SHORT)
    assert run.report["violations"]
    assert run.code == 1


def with_gang(size: int, nodes: list[dict[str, Any]], *steps: dict[str, Any], **extender: Any) -> dict[str, Any]:
    """The scenario of gangs with these nodes and steps: in the empty one a gang arrives."""
    scenario: dict[str, Any] = yaml.safe_load(text_of("gangs"))
    machine = {"count": 1, "zones": 1, "cpu": "40", "memory": "128Gi"}
    scenario["cluster"]["nodes"] = [machine | node for node in nodes]
    scenario["extender"] |= extender
    gangs = next(step["arriveGroups"] for step in scenario["steps"] if "arriveGroups" in step)
    scenario["steps"] = [step or {"arriveGroups": gangs | {"groups": 1, "size": [size, size]}} for step in steps]
    return scenario


def test_a_filter_that_gives_reserved_room_away_is_found(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang that fills one of two nodes is released in five seconds, and other pods want its node meanwhile.

    The other node is almost full, so the first of these pods already prefers the node of the gang. Pods that fill the other
    node first come too late on a busy machine: the gang is bound by then.
    """
    nodes = [{"name": zone, "zone": f"zone-{zone}"} for zone in "ab"]
    backlog = {"arrive": {"template": "web", "count": 20, "namespaces": "shop"}}
    steps: list[dict[str, Any]] = [{}, {"pause": {"time": "3s"}}, backlog, {"settle": {"calm": "2s", "timeout": "1m"}}]
    scenario = with_gang(40, nodes, *steps, release={"patchesPerSecond": 8})
    old = {"template": "web", "count": 72, "nodes": "b", "namespaces": "shop", "name": "old-{i}"}  # of 80
    scenario["cluster"]["running"] = [old]
    run = simulate("gangs", scenario)
    assert (run.code, run.last_line) == (0, "placed 48, pending 12, violations 0")

    def all_pass(_filter: ReservedRoomFilter, nodes: Sequence[int]) -> Sequence[int]:
        return nodes

    monkeypatch.setattr(ReservedRoomFilter, "passing", all_pass)
    run = simulate("gangs", scenario)
    assert run.code == 1
    assert "went to another pod" in run.out


def test_a_filter_that_ignores_preferred_nodes_is_found(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang in a zone of two nodes, the second of which has the SSD that its pods prefer."""
    plain = {"name": "plain", "zone": "zone-a"}
    ssd = {"name": "ssd", "zone": "zone-a", "labels": {"example.com/disk": "ssd"}}
    steps: list[dict[str, Any]] = [{"pause": {"time": "2s"}}, {}, {"settle": {"calm": "1s", "timeout": "1m"}}]
    scenario = with_gang(4, [plain, ssd], *steps)
    run = simulate("gangs", scenario)
    assert (run.code, run.last_line) == (0, "placed 4, pending 0, violations 0")
    monkeypatch.setattr(select_host, "node_preferences", lambda nodes, _signature: [0] * len(nodes))
    run = simulate("gangs", scenario)
    assert run.code == 1
    assert "a pod landed on plain, and prefers ssd, which has room" in run.out


def test_room_beyond_the_share_of_a_namespace_is_found(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the groups of the hostile tenant: two of its three fit into its share."""
    scenario = yaml.safe_load(text_of("tenants"))
    del scenario["comparison"]
    groups = [step for step in scenario["steps"] if step.get("arriveGroups", {}).get("namespaces") == "hostile"]
    groups[0]["arriveGroups"]["background"] = False
    scenario["steps"] = [*groups, {"settle": {"timeout": "20s", "calm": "3s"}}]
    run = simulate("tenants", scenario, "--short")
    assert (run.code, run.last_line) == (0, "placed 0, pending 90, violations 0")
    monkeypatch.setattr(choosing, "budget_excess", lambda *_arguments, **_more: "")
    run = simulate("tenants", scenario, "--short")
    assert run.code == 1
    assert "with it the namespace has room reserved for 360 of 1104 cpu, its share is 0.25" in run.out


@pytest.mark.parametrize(("spread", "pending"), [("directed", {"plain"}), ("plain", {"plain", "directed"})])
def test_pods_are_pending_where_no_directive_excludes_a_lost_zone(
    simulate: Simulate, spread: str, pending: set[str]
) -> None:
    text = text_of("outage", ("spread: directed", f"spread: {spread}"), until="  - title: A rollout while")
    assert f"labels: {{spread: {spread}}}" in text
    run = simulate("outage", text, "--short", "-o", "json")
    assert {row["pod"].partition("/")[0] for row in run.report["waiting"]} == pending
    assert (run.report["pending"], run.report["violations"]) == (10 * len(pending), [])
    assert run.code == (spread == "plain")
    if spread == "directed":
        injected = [row["injected"] for row in run.report["policies"]["acts"]]
        assert injected == [["topologySpreadConstraints"]]


def policies(old: str, new: str) -> str:
    return text_of("policies", (old, new), until="  - expect:")


def test_an_extender_without_policies_violates_them(simulate: Simulate) -> None:
    run = simulate("policies", policies("policies: {enabled: true}", "policies: {enabled: false}"))
    assert run.code == 1
    names = set(re.findall(r"violation: .* of cluster policy (\w+)", run.out))
    assert names
    assert names <= {"databases", "tenants", "quorum"}
    assert int(run.last_line.rpartition(" ")[2]) > 100


def test_objects_that_the_webhook_needs_and_the_cluster_lacks_are_named(simulate: Simulate) -> None:
    run = simulate("policies", policies("files: [policies]", "files: []"))
    assert run.code == 1
    assert run.err.splitlines() == [
        f"extender: cluster.files: extender.policies.enabled needs the {name}"
        for name in (
            "MutatingWebhookConfiguration placement-extender",
            "ValidatingWebhookConfiguration placement-extender",
            "Secret kube-system/placement-extender-webhook",
        )
    ]


def quotas(old: str, new: str) -> str:
    """The first steps of the scenario, without expectations."""
    return text_of("quota", (old, new), until="  - title: Pods go").partition("  # 40 of many")[0]


def test_an_extender_without_quotas_violates_them(simulate: Simulate) -> None:
    run = simulate("quota", quotas("    enabled: true\n", "    enabled: false\n"))
    assert run.code == 1
    assert re.search(
        r"violation: decision \d+: \w+/\S+ on node-\d+: \d+ pods of \w+ count already, its quota is \d+", run.out
    )
    # 80 of many, 6 of single, 7 of forbidden and 6 of unlisted.
    assert run.last_line == "placed 240, pending 0, violations 99"


def test_a_quota_of_a_namespace_without_one_cannot_be_changed(simulate: Simulate) -> None:
    change = '  - changeQuotas: {namespaces: free, hard: {pods: "1"}}\n  - title: Bursts'
    run = simulate("quota", quotas("  - title: Bursts", change))
    assert run.code == 1
    assert 'steps[0].changeQuotas: no namespace that matches "free" has a quota' in run.err

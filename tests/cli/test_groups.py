"""`extender groups` on snapshots and on an embedded cluster: each group with its state, its domain and why it waits."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from extender.cli.files import read_snapshot
from extender.cli.groups import groups_of
from extender.cli.main import main
from extender.model.group_placements import PlacementStatus
from extender.model.release import RELEASE_GATE, GroupDecision, GroupKey, GroupPhase, Level
from extender.settings.configuration import Settings
from extender.simulator.apiserver.server import ApiServer
from extender.wire.policies.group_placements import decision_body, status_body
from tests.cli.group_objects import POLICY, Json, member
from tests.policies import policy_json
from tests.simulator.plain import ZONE, pod

NOW = datetime.now(UTC)
KEY = GroupKey("shop", "ClusterPodSchedulingPolicy/rings", "a")
DECISION = GroupDecision(KEY, RELEASE_GATE, 3, (Level(ZONE, "z1"),), NOW)


def placed(phase: GroupPhase, ready: int, released: int, bound: int, message: str) -> Json:
    """The object of the ring's decision with a status."""
    status = PlacementStatus(phase, ready, released, bound, "DomainFull", message)
    body = decision_body(DECISION)
    body["metadata"]["uid"] = "uid-placement"
    return {**body, "status": status_body(status, NOW)}


Table = Callable[..., list[list[str]]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Prints the groups of a snapshot of these objects."""

    def printed(*objects: Json, arguments: str = "") -> str:
        path = tmp_path / "snapshot.json"
        path.write_text(json.dumps({"kind": "List", "items": list(objects)}), "utf-8")
        assert main(["groups", "--snapshot", str(path), *arguments.split()]) == 0
        return capsys.readouterr().out

    return printed


@pytest.fixture
def table(run: Callable[..., str]) -> Table:
    """The cells of what is printed, by row."""

    def cells(*objects: Json, arguments: str = "") -> list[list[str]]:
        lines = run(*objects, arguments=arguments).splitlines()
        return [[cell.strip() for cell in line.split("   ") if cell.strip()] for line in lines]

    return cells


def test_a_group_that_is_not_complete_says_how_many_pods_it_has(table: Table) -> None:
    headings, row = table(POLICY, member("a-0"), member("a-1", minutes=7))
    assert headings == ["NAMESPACE", "POLICY", "GROUP", "STATE", "DOMAIN", "PODS", "RELEASED", "BOUND", "AGE", "WHY"]
    assert row == ["shop", "rings", "a", "Collecting", "-", "2/3", "0", "0", "7 minutes", "2 of 3 pods exist"]
    headings, row = table(POLICY, member("a-0"), member("a-1", minutes=7), arguments="-o wide")
    assert headings[9:] == ["SINCE", "OVERDUE", "REASON", "WHY"]
    assert (row[1], row[10:]) == (KEY.policy, ["no", "Incomplete", "2 of 3 pods exist"])


def test_a_complete_group_waits_for_the_leader_until_that_says_something(table: Table) -> None:
    members = [member(f"a-{number}") for number in range(3)]
    _, row = table(POLICY, *members)
    assert (row[3], row[-1]) == ("Deciding", "all pods exist, and the leader has not decided yet")
    undecided = placed(GroupPhase.DECIDING, 3, 0, 0, "z1 holds 2 of 3")
    del undecided["spec"]["decided"], undecided["spec"]["topology"]
    _, row = table(POLICY, *members, undecided)
    assert (row[3], row[4], row[-1]) == ("Deciding", "-", "z1 holds 2 of 3")


def test_the_domains_of_a_policy_are_listed_with_what_pods_have_of_them(table: Table, run: Callable[..., str]) -> None:
    domains = [
        {"name": "spot", "values": ["z1", "z2"], "quota": {"pods": 4, "resources": {"cpu": "2"}}},
        {"name": "on-demand", "values": ["z3"], "mayGrow": True},
    ]
    release = {"topology": [ZONE], "group": {"label": "ring"}, "strategy": "InOrder", "domains": domains}
    policy = policy_json(
        "rings", when=["Release"], release={**release, "noRoom": [{"action": "GrowingDomain"}], "maxPerDomain": 5}
    )
    members = [member(f"a-{number}", gates=(), on="n1") for number in range(2)]
    for number, each in enumerate(members):
        each["spec"]["nodeSelector"] = {ZONE: f"z{number + 2}"}
        each["spec"]["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]
    forged = member("a-3", gates=(), on="n1")
    members.append(decision_body(DECISION, pods=[f"uid-a-{number}" for number in range(3)]))
    rows = table(policy, *members, member("a-2"), forged)
    assert rows[-3:] == [
        ["POLICY", "DOMAIN", "PODS", "RESOURCES", "MAY GROW"],
        ["rings", "spot", "1 of 4", "cpu 500m of 2", "no"],
        ["rings", "on-demand", "1 of 5", "cpu 500m", "yes"],
    ]
    found = json.loads(run(policy, *members, arguments="-o json"))["domains"]
    assert [(each["policy"], each["name"], each["used"]["pods"]) for each in found] == [
        ("ClusterPodSchedulingPolicy/rings", "spot", 1),
        ("ClusterPodSchedulingPolicy/rings", "on-demand", 1),
    ]


def test_a_gate_of_another_controller_is_named(table: Table) -> None:
    other = member("a-2", gates=("example.com/quota", RELEASE_GATE))
    _, row = table(POLICY, member("a-0"), member("a-1"), other)
    assert row[-1] == "1 of 3 pods has gates of others: a-2 (example.com/quota)"


def test_a_decided_group_shows_its_domain_and_what_the_leader_says(table: Table) -> None:
    objects = (POLICY, member("a-0", gates=(), on="n1"), member("a-1", gates=()), member("a-2"))
    _, row = table(*objects, placed(GroupPhase.DEGRADED, 3, 2, 1, "z1 holds 0 of 1"))
    assert row[3:] == ["Degraded", "z1", "3/3", "2", "1", "2 minutes", "z1 holds 0 of 1"]


def test_a_status_about_other_counts_is_out_of_date(table: Table) -> None:
    objects = (POLICY, *(member(f"a-{number}", gates=(), on="n1") for number in range(3)))
    _, row = table(*objects, placed(GroupPhase.DEGRADED, 3, 2, 1, "z1 holds 0 of 1"))
    assert row[3:] == ["Bound", "z1", "3/3", "3", "3", "2 minutes", "3 of 3 pods have a node"]


def test_a_pod_that_no_policy_releases_is_listed(table: Table) -> None:
    ending = member("ending")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    _, row = table(member("lost"), ending)
    assert row[:4] == ["shop", "-", "pod/lost", "Stray"]
    assert row[-1] == f"no policy removes the gate {RELEASE_GATE}"


def test_without_groups_it_says_so(table: Table) -> None:
    assert table(POLICY, pod("plain", "shop")) == [["no groups of gated pods"]]


def test_groups_are_selected_by_namespace_and_by_whether_they_wait(table: Table) -> None:
    done = [member(f"b-{number}", "b", gates=(), on="n1") for number in range(3)]
    objects = (POLICY, member("a-0"), *done)
    assert [row[2] for row in table(*objects)] == ["GROUP", "a", "b"]
    assert [row[2] for row in table(*objects, arguments="--waiting")] == ["GROUP", "a"]
    assert table(*objects, arguments="-n other") == [["no groups of gated pods"]]


def test_json_is_for_scripts(run: Callable[..., str]) -> None:
    objects = (POLICY, member("a-0", minutes=20), member("lost", "z", gates=("placement.extender.dev/old",)))
    found = json.loads(run(*objects, arguments="-o json"))
    (group,) = found["groups"]
    assert group["ageSeconds"] >= 1200
    assert {name: group[name] for name in ("group", "phase", "size", "pods", "released", "overdue", "reason")} == {
        "group": "a",
        "phase": "Collecting",
        "size": 3,
        "pods": 1,
        "released": 0,
        "overdue": True,
        "reason": "Incomplete",
    }
    assert [stray["pod"] for stray in found["strayPods"]] == ["shop/lost"]


def test_without_the_bound_pods_the_leader_is_believed(tmp_path: Path) -> None:
    """`extender doctor` reads only pods without a node, so the counts of the leader are others."""
    path = tmp_path / "snapshot.json"
    items = [POLICY, member("a-2", minutes=20), placed(GroupPhase.DEGRADED, 3, 2, 2, "z1 holds 0 of 1")]
    path.write_text(json.dumps({"kind": "List", "items": items}), "utf-8")
    objects = read_snapshot(str(path), Settings().limits).objects
    (whole,), (partial,) = (groups_of(objects, Settings(), is_partial=known).groups for known in (False, True))
    assert (whole.message, partial.message) == ("0 of 3 pods are released", "z1 holds 0 of 1")


async def test_a_cluster_is_read_with_what_it_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with ApiServer() as api:
        others = [pod(f"plain-{number}", "shop", on="n1") for number in range(600)]  # more than a page
        api.store.load([POLICY, member("a-0"), *others, member("z-1")])
        kubeconfig = str(api.write_kubeconfig(tmp_path / "kubeconfig"))
        assert await asyncio.to_thread(main, ["groups", "--kubeconfig", kubeconfig]) == 0
    assert "2 of 3 pods exist" in capsys.readouterr().out


def test_a_cluster_that_cannot_be_reached_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "extender: " in capsys.readouterr().err

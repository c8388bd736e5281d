"""The rows of the table of speed, without a control plane: what is kept, what is still to be measured, what is shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from extender.simulator.json_objects import labels_of, node_of
from tests.e2e.table import IN_TREE, OFFLOAD, Plan, Row, Rows, markdown
from tests.e2e.workloads import WORKLOADS, Workload, nodes
from tests.simulator.plain import ZONE

PLAN = Plan(["W7", "W1"], [5000, 30_000], 2)


def row(workload: str, variant: str, percentage: int = 0, bound: int = 1000, seconds: float = 10.0) -> Row:
    """A measurement at 5,000 existing pods, of which the scheduler takes one processor second in ten."""
    cpu = {"kube-scheduler": seconds / 10, "extender": 0.5} if variant == OFFLOAD else {"kube-scheduler": seconds / 10}
    return Row(workload, 5000, variant, percentage, 1000, bound, seconds, 0, cpu, 1.5, 2.25)


def test_rows_that_were_written_down_are_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "results" / "table.json"
    Rows(file).add(row("W1", OFFLOAD))
    found = Rows(file)
    found.add(row("W1", IN_TREE, 2))
    assert Rows(file).by_key == {each.key: each for each in (row("W1", OFFLOAD), row("W1", IN_TREE, 2))}
    missing = [key for key in PLAN.keys("W1", 5000) if key not in found.by_key]
    assert missing == [("W1", 5000, IN_TREE, 0), ("W1", 5000, OFFLOAD, 2)]


def test_the_table_has_what_a_thousand_pods_cost_and_how_that_compares_with_no_constraints() -> None:
    rows = [row("W7", IN_TREE, 2, seconds=20.0), row("W1", OFFLOAD, 2, bound=500, seconds=10.0), row("W1", IN_TREE)]
    text = markdown({each.key: each for each in rows}, PLAN)
    assert "| W1 required anti-affinity, node | 5,000 | 100.0/s, 1.0 s |  |  | 50.0/s, 3.0 s | 1.50 |" in text
    assert (
        "| W1 required anti-affinity, node | 5,000 | offload | 2 % | 500 of 1000 | 50.0 | 2.00 |  |  | 1.00 | 3.00 | 2.25 | 0 | 1.5 |"
        in text
    )
    assert "| W7 no constraints | 30,000 |  |  |  |  |  |" in text


def test_a_workload_is_shown_with_its_ratio_to_its_control() -> None:
    """KEP-2249 and KEP-3022, "Test Plan": benchmark tests with the field and without it."""
    plan = Plan(["W1", "C1"], [5000], 2)
    rows = [row("W1", OFFLOAD, 2, seconds=12.0), row("C1", OFFLOAD, 2, seconds=10.0), row("W1", IN_TREE)]
    text = markdown({each.key: each for each in rows}, plan)
    assert "| W1 / C1 | 5,000 | offload | 2 % | 1.13 | 0.83 |" in text
    assert text.count("| W1 / C1 |") == 1
    controls = {each.name: each.control for each in WORKLOADS.values() if each.control}
    assert controls == {f"W{number}": f"C{number}" for number in range(1, 6)}


def test_a_control_differs_from_its_workload_in_the_field_alone() -> None:
    """KEP-2249: one namespace without a selector against 100 with it. KEP-3022: hard spread with minDomains and without."""
    with_field, without = (next(WORKLOADS[name].running(1, 10))["spec"] for name in ("W5", "C5"))
    assert with_field["topologySpreadConstraints"][0].pop("minDomains") == 10
    for spec, name in ((with_field, "cyan"), (without, "teal")):
        assert spec["topologySpreadConstraints"][0].pop("labelSelector") == {"matchLabels": {"app": name}}
    assert with_field == without
    for number in range(1, 5):
        many, one = ([*WORKLOADS[f"{kind}{number}"].running(500, 1000)] for kind in "WC")
        assert [len({pod["metadata"]["namespace"] for pod in pods}) for pods in (many, one)] == [100, 1]
        assert ["namespaceSelector" in str(pods[0]["spec"]["affinity"]) for pods in (many, one)] == [True, False]
        assert [node_of(pod) for pod in many] == [node_of(pod) for pod in one]
        terms = []
        for name, pods in ((f"W{number}", many), (f"C{number}", one)):
            terms.append(str(pods[0]["spec"]["affinity"]).replace(f"'{WORKLOADS[name].app}'", "'x'"))
        assert terms[0].replace(", 'namespaceSelector': {'matchLabels': {'team': 'devops'}}", "") == terms[1]


def nodes_by_app(workload: Workload, count: int, nodes: int) -> Counter[tuple[str, str]]:
    """How many running pods of each app stand on each node."""
    return Counter((pod["metadata"]["labels"]["app"], node_of(pod)) for pod in workload.running(count, nodes))


def test_more_running_pods_than_nodes_leave_room_for_pods_that_want_a_node_of_their_own() -> None:
    found = nodes_by_app(WORKLOADS["W1"], 1000, 100)
    assert set(found.values()) == {1}
    assert sum(app == "green" for app, _ in found) == 80
    assert set(nodes_by_app(WORKLOADS["W2"], 1000, 100).values()) == {10}


def test_there_is_a_workload_for_each_of_the_published_ones_that_are_shown() -> None:
    """Where kinds of pods are mixed, those that want a node of their own have one, also with many pods."""
    published = {each.name: each for each in WORKLOADS.values() if each.published}
    assert [each.published for each in published.values()] == [
        "SchedulingRequiredPodAntiAffinityWithNSSelector",
        "SchedulingRequiredPodAffinityWithNSSelector",
        "TopologySpreading",
        "MixedSchedulingBasePod",
        "SchedulingPreferredAffinityWithNSSelector",
        "SchedulingBasic",
    ]
    assert {
        name: len({labels_of(each)[ZONE] for each in nodes(10, found.zones)}) for name, found in published.items()
    } == {
        "P1": 10,
        "P2": 1,
        "P3": 3,
        "P4": 1,
        "P5": 10,
        "P6": 1,
    }
    mixed = nodes_by_app(published["P4"], 1000, 100)
    assert {app for app, _ in mixed} >= {"grey", "blue", "green", "red", "yellow"}
    assert {count for (app, _), count in mixed.items() if app.startswith("green")} == {1}
    assert "topologySpreadConstraints" not in next(published["P3"].running(1, 10))["spec"]
    assert "topologySpreadConstraints" in next(published["P3"].incoming(1))["spec"]
    title = markdown({("P6", 5000, OFFLOAD, 2): row("P6", OFFLOAD, 2)}, Plan(["P6"], [5000], 2))
    assert "| P6 no constraints, as SchedulingBasic | 5,000 |" in title

"""What is requested of each node, kept while pods and nodes come, change and go, is what a count of the objects gives."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.state import apply_change, state_of
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.builders import Json, index_of, node, pod, taint

NODES, PODS = ("n0", "n1", "n2"), ("p0", "p1", "p2", "p3")
MEBI = 2**20
SIZES: tuple[dict[str, str], ...] = (
    {},
    {"cpu": "4"},
    {"cpu": "2", "memory": "4Gi"},
    {"cpu": "8", "memory": "1Gi"},
    {"cpu": "0", "memory": "1Gi"},
)
TAINTS: tuple[list[Json], ...] = (
    [],
    [taint("busy", effect="PreferNoSchedule")],
    [taint("a", effect="PreferNoSchedule"), taint("b")],
)
REQUESTS = (None, {"cpu": "1"}, {"memory": "1Gi"}, {"cpu": "300m", "memory": "100Mi"}, {"cpu": "0"})

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(SIZES), st.sampled_from(TAINTS)),
        st.tuples(st.just("no node"), st.sampled_from(NODES), st.none(), st.none()),
        st.tuples(
            st.sampled_from(("bound", "assumed")),
            st.sampled_from(PODS),
            st.sampled_from(NODES),
            st.sampled_from(REQUESTS),
        ),
        st.tuples(st.sampled_from(("deleted", "forgotten")), st.sampled_from(PODS), st.none(), st.none()),
    ),
    max_size=30,
)


def apply(index: ClusterIndex, step: tuple[str, str, Any, Any]) -> None:
    """Does one step, if it is possible."""
    match step:
        case "node", name, dict() as size, list() as taints:
            index.upsert(node(name, allocatable=size, taints=taints))
        case "no node", name, _, _:
            index.delete(node(name))
        case "bound", name, str() as on, requests:
            index.upsert(pod(name, on=on, requests=requests))
        case "assumed", name, str() as on, requests if f"uid-{name}" not in index.pods:
            index.upsert(pod(name, requests=requests))
            index.assume(pod(name, requests=requests), (on,), 0.0)
        case "deleted", name, _, _:
            index.delete(pod(name))
        case "forgotten", name, _, _:
            index.assumed.forget(f"uid-{name}")


def shares(index: ClusterIndex) -> dict[str, float]:
    """The larger requested share of each node, as kept and as the other columns give it."""
    kept = index.view.shares
    for number in index.view.known.values():
        by_cpu, by_memory = kept.cpu[number] * kept.per_cpu[number], kept.memory[number] * kept.per_memory[number]
        assert kept.larger[number] == max(by_cpu, by_memory)
    return {name: kept.larger[number] for name, number in index.view.known.items()}


def counted(index: ClusterIndex) -> dict[str, float]:
    """The same from the pods of each node."""
    found = {}
    for name, number in index.view.known.items():
        there, pods = index.view.node(number), index.view.pods_on(number).values()
        assert there is not None
        used = {
            "cpu": sum(each.requests.get("cpu", 0) or 100 for each in pods),
            "memory": sum(each.requests.get("memory", 0) or 200 * MEBI for each in pods),
        }
        found[name] = max(
            [amount * (1 / offered) for name, amount in used.items() if (offered := there.allocatable.get(name, 0))],
            default=0.0,
        )
    return found


@given(STEPS)
def test_shares_and_soft_taints_are_those_of_a_count_after_each_step(
    steps: list[tuple[str, str, Any, Any]],
) -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    for step in steps:
        apply(index, step)
        assert shares(index) == counted(index)
        assert audit(index) == []
    soft = {
        name
        for name, number in index.view.known.items()
        for nodes in index.view.soft_taints.values()
        if number in nodes
    }
    nodes = [each for number in index.view.known.values() if (each := index.view.node(number))]
    assert soft == {each.name for each in nodes if any(one.effect == "PreferNoSchedule" for one in each.taints)}
    kept = shares(index)
    index.rebuild()
    assert shares(index) == kept
    copy = index_of()
    for change in state_of(index):
        apply_change(copy, change)
    assert shares(copy) == kept

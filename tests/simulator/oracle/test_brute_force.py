"""The oracle against the real scheduler's own answers, and the replay that judges a run."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES, PODS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, is_finished
from extender.simulator.oracle.brute_force import (
    AFFINITY_REJECTED,
    ANTI_AFFINITY_REJECTED,
    EXISTING_REJECTED,
    SPREAD_REJECTED,
    SPREAD_UNLABELLED,
    SUCCESS,
    ClusterState,
    OracleInterPodAffinity,
    OracleTopologySpread,
    PluginStatus,
    feasible,
)
from extender.simulator.oracle.journal import Journal, StoreChange
from extender.simulator.oracle.violations import violations
from tests.simulator.oracle.default_constraints import constraints_in_force
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, node, pod, spread, term

CASES = Path(__file__).parents[2] / "parity" / "cases"
OWNERS = {
    "replicaSets": "ReplicaSet",
    "statefulSets": "StatefulSet",
    "replicationControllers": "ReplicationController",
}


def _cases(name: str) -> Iterator[JsonObject]:
    with gzip.open(CASES / name) as lines:
        yield from map(json.loads, lines)


def _answers(case: JsonObject) -> dict[str, dict[str, PluginStatus]]:
    state = ClusterState(case["nodes"], case.get("namespaces") or [])
    for number, existing in enumerate(case["pods"]):
        on = existing["spec"].get("nodeName")
        if on and not is_finished(existing):
            state.place(str(number), existing, on)
    owners = [(kind, owner) for field, kind in OWNERS.items() for owner in case.get(field) or []]
    defaults = case["config"]["topologySpread"]["defaultConstraints"] or []
    constraints = constraints_in_force(case["pod"], defaults, case.get("services") or [], owners)
    apart, even = OracleInterPodAffinity(case["pod"], state), OracleTopologySpread(case["pod"], state, constraints)
    return {
        "interPodAffinity": {name: apart.check(name) for name in state.nodes},
        "podTopologySpread": {name: even.check(name) for name in state.nodes},
    }


def _agree(ours: PluginStatus, theirs: PluginStatus) -> bool:
    """Reasons that quote a parse error are compared by their beginning."""
    quotes = ours.reason.endswith(": ") and theirs.reason.startswith(ours.reason)
    return ours == theirs or (quotes and ours.code == theirs.code)


def _differs(case: JsonObject) -> bool:
    ours, theirs = _answers(case), _expected(case)
    return any(not _agree(ours[plugin][name], found) for plugin in theirs for name, found in theirs[plugin].items())


def _expected(case: JsonObject) -> dict[str, dict[str, PluginStatus]]:
    found: dict[str, dict[str, PluginStatus]] = {}
    for plugin in ("interPodAffinity", "podTopologySpread"):
        answer = (case.get("expectedIfFixed") or case["expected"])[plugin]
        first = answer["preFilter"]
        all_alike = first["code"] not in {"Success", "Skip"}
        found[plugin] = {
            name: PluginStatus(**(first if all_alike else answer["filter"][name]))
            for name in (item["metadata"]["name"] for item in case["nodes"])
        }
    return found


@pytest.mark.parametrize("name", ["edges.ndjson.gz", "placement-open.ndjson.gz"])
def test_the_oracle_gives_the_real_schedulers_answers(name: str) -> None:
    differing = [case["id"] for case in _cases(name) if _differs(case)]
    assert differing == []


def test_every_kind_of_rejection_has_its_code_and_reason() -> None:
    nodes = [node("free", "z1"), node("near", "z2"), node("shared", "z3"), node("shy", "z4"), node("bare")]
    pods = [
        pod("cache", on="near", labels={"app": "cache"}),
        pod("other-web", on="shared", labels={"app": "web"}),
        pod("hermit", on="shy", affinity=anti_affinity(term(HOSTNAME, app="web"))),
    ]
    keep_apart = pod("web", labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, app="web")))
    assert feasible(keep_apart, nodes, [], pods) == {
        "free": SUCCESS,
        "near": SUCCESS,
        "shared": ANTI_AFFINITY_REJECTED,
        "shy": EXISTING_REJECTED,
        "bare": SUCCESS,
    }
    come_near = pod("api", affinity=affinity(term(ZONE, app="cache")))
    assert feasible(come_near, nodes, [], pods) == {
        "near": SUCCESS,
        **dict.fromkeys(("free", "shared", "shy", "bare"), AFFINITY_REJECTED),
    }
    even = pod("web", labels={"app": "web"}, topologySpreadConstraints=[spread(labels={"app": "web"})])
    assert feasible(even, nodes, [], pods) == {
        "free": SUCCESS,
        "near": SUCCESS,
        "shared": SPREAD_REJECTED,
        "shy": EXISTING_REJECTED,
        "bare": SPREAD_UNLABELLED,
    }


# -- the judgement of a run


def _alone(name: str, on: str = "") -> JsonObject:
    obj = pod(name, on=on, labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, namespaces={}, app="web")))
    obj["metadata"]["uid"] = f"uid-{name}"
    return obj


def _beside_open_db(name: str) -> JsonObject:
    return pod(name, affinity=affinity(term(ZONE, namespaces={"matchLabels": {"open": "yes"}}, app="db")))


class Run:
    """A journal written by hand; the store's changes happen when they are made."""

    def __init__(self, *objects: JsonObject) -> None:
        self.store = Store()
        self.store.load([node("n1", "z1"), node("n2", "z2"), namespace("default"), namespace("data"), *objects])
        self.journal = Journal(self.store)

    def decide(self, asked: JsonObject, on: str, at: float) -> None:
        self.journal.decided(at, at, f"uid-{asked['metadata']['name']}", asked, on)

    def verdict(self, *, lag: float = 0.25) -> list[str]:
        """The pods of violations; a failed binding is known at once, as if it were reported."""
        return [violation.decision.name for violation in violations(self.journal, lag=lag, doubt=0.0)]


def test_decisions_count_from_the_moment_they_are_taken() -> None:
    run = Run()
    run.decide(_alone("a"), "n1", 1.0)
    run.decide(_alone("b"), "n1", 1.001)
    run.decide(_alone("c"), "n2", 1.002)
    assert run.verdict() == ["default/b"]


def test_a_decision_whose_binding_failed_counts_no_longer() -> None:
    run = Run()
    run.decide(_alone("a"), "n1", 1.0)
    run.journal.undone("uid-a", 1.05)
    run.decide(_alone("b"), "n1", 1.1)
    assert run.verdict() == []


def test_a_decision_whose_binding_was_carried_out_although_its_call_failed_never_ceases_to_count() -> None:
    run = Run()
    run.decide(_alone("a"), "n1", 1.0)
    run.journal.undone("uid-a", 1.05)
    run.decide(_alone("b"), "n1", 1.1)
    run.decide(_alone("c"), "n2", 1.2)
    run.store.put(PODS, _alone("a", on="n1"))
    assert run.verdict() == ["default/b"]


def test_a_binding_to_another_node_than_that_of_the_failed_call_is_not_that_call() -> None:
    run = Run()
    run.decide(_alone("a"), "n1", 1.0)
    run.journal.undone("uid-a", 1.05)
    run.decide(_alone("b"), "n1", 1.1)
    run.decide(_alone("a"), "n2", 1.2)
    run.store.put(PODS, _alone("a", on="n2"))
    assert run.verdict() == []


def _even(name: str) -> JsonObject:
    return pod(name, labels={"app": "even"}, topologySpreadConstraints=[spread(labels={"app": "even"})])


def test_that_a_binding_failed_may_be_known_or_not_for_a_while() -> None:
    run = Run()
    run.decide(_even("a"), "n1", 1.0)
    run.decide(_even("b"), "n2", 1.01)
    run.journal.undone("uid-a", 1.1)
    run.decide(_even("c"), "n2", 1.2)  # right while a counts, too much without it
    run.decide(_even("d"), "n1", 1.3)
    run.decide(_even("e"), "n2", 1.5)
    assert run.verdict(lag=0.25) == ["default/e"]
    assert run.verdict(lag=0.05) == ["default/c", "default/e"]


def test_of_several_failures_any_may_be_known() -> None:
    """One by the next question for its pod, the other not yet."""
    run = Run()
    run.decide(_even("a"), "n1", 1.0)
    run.decide(_even("b"), "n2", 1.01)
    run.decide(_even("c"), "n1", 1.02)
    run.journal.undone("uid-a", 1.1)
    run.journal.undone("uid-b", 1.11)
    run.decide(_even("d"), "n1", 1.2)  # right by b and without a
    assert run.verdict() == []
    assert run.verdict(lag=0.05) == ["default/d"]


def _after(run: Run) -> float:
    """The moment of the store's last change, as the journal knows it."""
    return max(entry.change.at for entry in run.journal.entries if isinstance(entry, StoreChange))


def test_a_change_on_its_way_may_be_known_or_not() -> None:
    run = Run(pod("db-0", "data", on="n1", labels={"app": "db"}))
    run.store.put(NAMESPACES, namespace("data", open="yes"))
    changed_at = _after(run)
    run.decide(_beside_open_db("early"), "n1", changed_at)  # knew it at once
    run.store.put(NAMESPACES, namespace("data"))
    closed_at = _after(run)
    run.decide(_beside_open_db("soon"), "n1", closed_at + 0.1)  # did not know yet
    run.decide(_beside_open_db("late"), "n1", closed_at + 10)
    assert run.verdict(lag=0.25) == ["default/late"]


def test_kinds_may_arrive_in_another_order_than_they_happened() -> None:
    run = Run(pod("db-0", "data", on="n2", labels={"app": "db"}))
    run.store.put(NAMESPACES, namespace("data", open="yes"))
    run.store.put(PODS, pod("db-1", "data", on="n1", labels={"app": "db"}))
    run.store.remove(PODS, "data/db-0")
    run.decide(_beside_open_db("a"), "n2", _after(run))  # the namespace known, the pods not yet
    assert run.verdict() == []


def test_not_knowing_a_decision_of_the_own_loop_is_no_excuse() -> None:
    run = Run()
    run.store.put(PODS, _alone("a"))
    run.decide(_alone("a"), "n1", _after(run))
    run.store.put(PODS, _alone("a", on="n1"))
    run.decide(_alone("b"), "n1", _after(run))
    assert run.verdict() == ["default/b"]


def test_a_pod_that_is_gone_leaves_its_place() -> None:
    run = Run(pod("old", on="n1", labels={"app": "web"}))
    run.store.remove(PODS, "default/old")
    run.decide(_alone("a"), "n1", _after(run) + 10)
    assert run.verdict() == []

"""The oracle against the real scheduler's own answers, and the replay that judges a run."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.model.constraints.node_affinity import as_int64
from extender.simulator.apiserver.kinds import NAMESPACES, PODS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, holds, is_finished
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
from tests.simulator.oracle.steps import play
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


NODES = [node("free", "z1"), node("near", "z2"), node("shared", "z3"), node("shy", "z4"), node("bare")]
PODS_THERE = [
    pod("cache", on="near", labels={"app": "cache"}),
    pod("other-web", on="shared", labels={"app": "web"}),
    pod("hermit", on="shy", affinity=anti_affinity(term(HOSTNAME, app="web"))),
]
APART, NEAR = anti_affinity(term(HOSTNAME, app="web")), affinity(term(ZONE, app="cache"))


@pytest.mark.parametrize(
    ("app", "spec", "statuses"),
    [
        ("web", {"affinity": APART}, [SUCCESS, SUCCESS, ANTI_AFFINITY_REJECTED, EXISTING_REJECTED, SUCCESS]),
        ("api", {"affinity": NEAR}, [AFFINITY_REJECTED, SUCCESS, *[AFFINITY_REJECTED] * 3]),
        (
            "web",
            {"topologySpreadConstraints": [spread(labels={"app": "web"})]},
            [SUCCESS, SUCCESS, SPREAD_REJECTED, EXISTING_REJECTED, SPREAD_UNLABELLED],
        ),
    ],
    ids=["anti-affinity", "affinity", "spread"],
)
def test_every_kind_of_rejection_has_its_code_and_reason(
    app: str, spec: JsonObject, statuses: list[PluginStatus]
) -> None:
    """By node: without pods, with a cache, with a pod of web, with a pod that rejects web, and without a zone."""
    assert list(feasible(pod("a", labels={"app": app}, **spec), NODES, [], PODS_THERE).values()) == statuses


# -- the judgement of a run


def alone(name: str, on: str = "") -> JsonObject:
    obj = pod(name, on=on, labels={"app": "web"}, affinity=anti_affinity(term(HOSTNAME, namespaces={}, app="web")))
    obj["metadata"]["uid"] = f"uid-{name}"
    return obj


class Run:
    """A journal written by hand. Changes of the store happen when they are made; `+1` is a second after the last of them."""

    def __init__(self) -> None:
        self.store = Store()
        self.store.load([node("n1", "z1"), node("n2", "z2"), namespace("default"), namespace("data")])
        self.journal = Journal(self.store)

    def alone(self, name: str, on: str, at: str) -> None:
        self.decide(alone(name), on, at)

    def spread(self, name: str, on: str, at: str) -> None:
        even = [spread(labels={"app": "even"})]
        self.decide(pod(name, labels={"app": "even"}, topologySpreadConstraints=even), on, at)

    def beside_open_db(self, name: str, on: str, at: str) -> None:
        self.decide(
            pod(name, affinity=affinity(term(ZONE, namespaces={"matchLabels": {"open": "yes"}}, app="db"))), on, at
        )

    def decide(self, incoming: JsonObject, on: str, at: str) -> None:
        times = (entry.change.at for entry in self.journal.entries if isinstance(entry, StoreChange))
        time = float(at) + (max(times) if at.startswith("+") else 0.0)
        self.journal.decided(time, time, f"uid-{incoming['metadata']['name']}", incoming, on)

    def fail(self, name: str, at: str) -> None:
        self.journal.undone(f"uid-{name}", float(at))

    def show(self, name: str, on: str = "") -> None:
        self.store.put(PODS, alone(name, on))

    def show_db(self, name: str, on: str) -> None:
        self.store.put(PODS, pod(name, "data", on=on, labels={"app": "db"}))

    def delete(self, name: str) -> None:
        self.store.remove(PODS, name)

    def open(self, name: str) -> None:
        self.store.put(NAMESPACES, namespace(name, open="yes"))

    def close(self, name: str) -> None:
        self.store.put(NAMESPACES, namespace(name))


FAILED = "alone a -> n1 1.0; fail a -> 1.05; alone b -> n1 1.1"
# After the failure of a, c is right while a counts, and too much after that.
EVEN = (
    "spread a -> n1 1.0; spread b -> n2 1.01; fail a -> 1.1; spread c -> n2 1.2; spread d -> n1 1.3; spread e -> n2 1.5"
)
# The failure of a is known by the next request for a, the failure of b is not yet: d is right by b and without a.
TWO_FAILED = (
    "spread a -> n1 1.0; spread b -> n2 1.01; spread c -> n1 1.02; fail a -> 1.1; fail b -> 1.11; spread d -> n1 1.2"
)
RUNS: dict[str, tuple[str, float, str]] = {
    "decisions count from when they are taken": (
        "alone a -> n1 1.0; alone b -> n1 1.001; alone c -> n2 1.002",
        0.25,
        "b",
    ),
    "a failed binding counts no longer": (FAILED, 0.25, ""),
    "a binding that was carried out although its call failed": (
        f"{FAILED}; alone c -> n2 1.2; show a -> n1",
        0.25,
        "b",
    ),
    "a later binding to another node": (f"{FAILED}; alone a -> n2 1.2; show a -> n2", 0.25, ""),
    "a failure may be known or not for a while": (EVEN, 0.25, "e"),
    "a failure is known after a while": (EVEN, 0.05, "c e"),
    "of several failures any may be known": (TWO_FAILED, 0.25, ""),
    "several failures are known after a while": (TWO_FAILED, 0.05, "d"),
    "a change may be known at once, or after a while": (
        "show_db db-0 -> n1; open data; beside_open_db early -> n1 +0; close data; beside_open_db soon -> n1 +0.1; beside_open_db late -> n1 +10",
        0.25,
        "late",
    ),
    "kinds may arrive in another order": (
        "show_db db-0 -> n2; open data; show_db db-1 -> n1; delete data/db-0; beside_open_db a -> n2 +0",
        0.25,
        "",
    ),
    "a scheduler knows its own decision": ("show a; alone a -> n1 +0; show a -> n1; alone b -> n1 +0", 0.25, "b"),
    "a deleted pod counts no longer": ("show old -> n1; delete default/old; alone a -> n1 +10", 0.25, ""),
}


@pytest.mark.parametrize(("steps", "lag", "found"), RUNS.values(), ids=RUNS)
def test_a_run_is_judged_by_what_could_be_known(steps: str, lag: float, found: str) -> None:
    """A failed binding is known at once, as if it were reported."""
    run = Run()
    play(run, steps)
    wrong = violations(run.journal, lag=lag, doubt=0.0)
    assert [violation.decision.name.removeprefix("default/") for violation in wrong] == found.split()


@pytest.mark.parametrize(
    "text", ["0", "+7", "-0", str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), "1_0", " 1"]
)
def test_integers_of_labels_are_those_of_64_bits(text: str) -> None:
    is_integer = holds({"key": "a", "operator": "Gt", "values": ["-1"]}, {"a": text}) or holds(
        {"key": "a", "operator": "Lt", "values": ["0"]}, {"a": text}
    )
    assert is_integer == (as_int64(text) is not None)

"""How moves are judged: what was broken, what an eviction has mended, and what could still be mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from extender.simulator.apiserver.kinds import NODES, PODS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, set_condition, timestamp
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.moves import NO_MOVES, MovesOfNamespace, judge_moves
from tests.simulator.oracle.test_policies import policy
from tests.simulator.plain import ZONE, affinity, anti_affinity, namespace, node, pod, spread, term

WEB = {"app": "web"}
EVICTING: JsonObject = {"when": ["Execution"], "execution": {"mode": "Evict"}, "namespaceSelector": {}}
NODES_OF: list[JsonObject] = [node("n-a", "a"), node("n-b", "b")]
SPREAD: dict[str, Any] = {"topologySpreadConstraints": [spread(labels=WEB)]}


def web(
    name: str,
    on: str = "",
    *,
    owner: str = "ReplicaSet",
    uid: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    made = pod(name, on=on, labels=WEB, **spec)
    made["metadata"]["annotations"] = annotations or {}
    made["metadata"]["uid"] = uid or f"uid-{name}"
    if owner:
        made["metadata"]["ownerReferences"] = [{"kind": owner, "name": "web", "uid": "owner", "controller": True}]
    return made


class Run:
    """A cluster whose pods are moved by hand, and the judgement."""

    def __init__(self, *objects: JsonObject, nodes: list[JsonObject] | None = None, **changes: Any) -> None:
        self.store = Store()
        watching = policy("ClusterPodSchedulingPolicy", **{**EVICTING, **changes})
        self.store.load([*(NODES_OF if nodes is None else nodes), namespace("default"), watching, *objects])
        self.journal = Journal(self.store)

    def evict(self, name: str) -> None:
        """The pod is evicted and ends at once."""
        evicted = self.store.find(PODS, f"default/{name}").read()
        set_condition(evicted, {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"})
        evicted["metadata"]["deletionTimestamp"] = timestamp()
        self.store.put(PODS, evicted)
        self.store.remove(PODS, f"default/{name}")

    def replace(self, name: str, on: str = "", *, ready: bool = True, **spec: Any) -> None:
        """Its controller creates a pod, which may get a node and become ready."""
        made = {key: value for key, value in web(name, **spec).items() if key not in ("kind", "apiVersion")}
        self.store.put(PODS, made)
        if on:
            self.store.put(PODS, {**made, "spec": {**made["spec"], "nodeName": on}})
        if on and ready:
            made = self.store.find(PODS, f"default/{name}").read()
            set_condition(made, {"type": "Ready", "status": "True"})
            self.store.put(PODS, made)

    def found(self, may_evict: Callable[[JsonObject], bool] = lambda _: True) -> MovesOfNamespace:
        return judge_moves(self.journal, may_evict).get("default", NO_MOVES)


def test_an_eviction_that_mends_is_not_in_vain() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    assert run.found() == MovesOfNamespace(0, (), ("web-1", "web-2"), ("web-1", "web-2"), 0)
    run.evict("web-1")
    run.replace("web-3", "n-b", **SPREAD)
    assert run.found() == MovesOfNamespace(1, (), (), (), 1)


def test_an_eviction_of_a_pod_that_is_not_broken_is_in_vain() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-b", **SPREAD))
    run.evict("web-1")
    run.replace("web-3", "n-a", **SPREAD)
    assert run.found().in_vain == ("web-1: nothing was broken", "web-1: n-a is no better than n-a")


def test_an_eviction_whose_replacement_is_as_badly_placed_is_in_vain() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    run.evict("web-1")
    run.replace("web-3", "n-a", **SPREAD)
    assert run.found().in_vain == ("web-1: n-a is no better than n-a",)


def test_an_eviction_whose_replacement_stays_pending_is_in_vain() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    run.evict("web-1")
    run.replace("web-3", **SPREAD)
    assert run.found().in_vain == ("web-1: its replacement is pending",)


def test_an_eviction_without_a_replacement_is_not_in_vain() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    run.evict("web-1")
    assert run.found() == MovesOfNamespace(1, (), (), (), 1)


def test_where_others_have_changed_the_cluster_the_result_of_a_move_is_not_judged() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    run.evict("web-1")
    run.store.put(NODES, {key: value for key, value in node("n-c", "c").items() if key not in ("kind", "apiVersion")})
    run.replace("web-3", "n-a", **SPREAD)
    assert run.found().in_vain == ()


def test_a_replacement_is_of_the_same_namespace() -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD), namespace("other"))
    run.evict("web-1")
    other = web("web-1", "n-a")
    other["metadata"]["namespace"] = "other"
    run.store.put(PODS, {key: value for key, value in other.items() if key not in ("kind", "apiVersion")})
    run.replace("web-3", **SPREAD)
    assert run.found().in_vain == ("web-1: its replacement is pending",)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_pod_may_be_evicted_for_what_was_broken_a_moment_ago(seconds: float) -> None:
    run = Run(web("web-1", "n-a", **SPREAD), web("web-2", "n-a", **SPREAD))
    run.store.remove(PODS, "default/web-2")
    time.sleep(seconds)
    run.evict("web-1")
    assert run.found().in_vain == (("web-1: nothing was broken",) if seconds else ())


def test_the_worst_moment_has_the_most_pods_that_are_not_replaced() -> None:
    run = Run(*(web(f"web-{number}", "n-a", **SPREAD) for number in range(4)))
    run.evict("web-0")
    run.replace("web-4", "n-b", ready=False, **SPREAD)
    run.evict("web-1")
    run.replace("web-5", "n-b", **SPREAD)
    found = run.found()
    assert (found.evictions, found.worst) == (2, 2)


BROKEN: dict[str, tuple[list[JsonObject], tuple[str, ...], tuple[str, ...]]] = {
    "node affinity": ([web("web-1", "n-a", nodeSelector={ZONE: "b"})], ("web-1",), ("web-1",)),
    "affinity": (
        [web("web-1", "n-a", affinity=affinity(term(app="db"))), pod("db", on="n-b", labels={"app": "db"})],
        ("web-1",),
        ("web-1",),
    ),
    "anti-affinity of one side": (
        [web("web-1", "n-a"), pod("db", on="n-a", affinity=anti_affinity(term(app="web")))],
        ("web-1",),
        ("web-1",),
    ),
    "anti-affinity of both sides": (
        [web(f"web-{number}", "n-a", affinity=anti_affinity(term(app="web"))) for number in (1, 2)],
        ("web-1", "web-2"),
        ("web-1", "web-2"),
    ),
    "anti-affinity of another namespace": (
        [
            web("web-1", "n-a"),
            namespace("rude"),
            pod("db", "rude", on="n-a", affinity=anti_affinity({**term(app="web"), "namespaces": ["default"]})),
        ],
        ("web-1",),
        (),
    ),
    "a pod without a controller": (
        [web(f"web-{number}", "n-a", owner="", **SPREAD) for number in (1, 2)],
        ("web-1", "web-2"),
        (),
    ),
    "volumes": (
        [
            web("web-1", "n-a", nodeSelector={ZONE: "b"}, volumes=[{"persistentVolumeClaim": {"claimName": "data"}}]),
        ],
        ("web-1",),
        (),
    ),
    "a pod of a group": (
        [web("web-1", "n-a", nodeSelector={ZONE: "b"}, annotations={"placement.extender.dev/released": "gangs@1"})],
        ("web-1",),
        (),
    ),
    "no room": ([web("web-1", "n-a", nodeSelector={ZONE: "b"}, cpu="5")], ("web-1",), ()),
    "no node": ([web("web-1", "n-a", nodeSelector={ZONE: "c"})], ("web-1",), ()),
    "the only move breaks another pod": (  # db needs a pod of web in its zone
        [
            web("web-1", "n-a", nodeSelector={ZONE: "b"}),
            web("db", "n-a", owner="", affinity=affinity(term(app="web"))),
        ],
        ("web-1",),
        (),
    ),
}


@pytest.mark.parametrize(("pods", "broken", "could"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_and_what_could_be_mended(
    pods: list[JsonObject], broken: tuple[str, ...], could: tuple[str, ...]
) -> None:
    found = Run(*pods).found()
    assert (found.broken, found.mendable) == (broken, could)


GATING: JsonObject = {
    **policy(when=["Release"], release={"topology": [ZONE]}),
    "metadata": {"name": "gangs", "namespace": "default"},
}


def test_a_pod_whose_replacement_a_policy_gates_is_not_to_be_moved() -> None:
    run = Run(web("web-1", "n-a", nodeSelector={ZONE: "b"}), GATING)
    assert (run.found().broken, run.found().mendable) == (("web-1",), ())
    run.evict("web-1")
    run.replace("web-2", "n-b", nodeSelector={ZONE: "b"})
    assert run.found().in_vain == ("web-1: its replacement waits at a gate",)


def test_a_budget_keeps_what_is_broken() -> None:
    run = Run(web("web-1", "n-a", nodeSelector={ZONE: "b"}))
    assert run.found(lambda _: False).mendable == ()


@pytest.mark.parametrize(
    "changes",
    [{"execution": {"mode": "Report"}}, {"when": ["Admission"]}, {"podSelector": {"matchLabels": {"a": "b"}}}],
)
def test_only_pods_that_a_policy_may_move_are_judged(changes: JsonObject) -> None:
    assert Run(web("web-1", "n-a", nodeSelector={ZONE: "b"}), **changes).found() == NO_MOVES

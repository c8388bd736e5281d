"""`extender policy test` about what admission does not inject: what a pod is held to at scheduling, its nodes and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_policy import NAMESPACES, NODES, POOL, SOFT, Command, node
from tests.policies import expression, node_term, policy_json, requiring
from tests.verbs.admit.reviewing import pod

LATER: dict[str, Any] = {"when": ["Scheduling"]}
SSD = requiring(node_term(expression("pool", "In", "b", "c")))
PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 50, "preference": node_term(expression("pool", "In", "b"))},
            {"weight": 7, "preference": node_term(expression("pool", "Exists"))},
        ]
    }
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command with files of its own."""
    return Command(tmp_path, capsys)


def test_a_policy_for_scheduling_shows_the_nodes_that_it_leaves_and_those_that_it_prefers(command: Command) -> None:
    cluster = command.snapshot(*NODES, node("n4", pool="c"), *NAMESPACES)
    given = command.write("policy.yaml", policy_json("later", affinity={**SSD, **_both()}, **LATER))
    found = command(given, "--pod", command.write("pod.yaml", pod()), "--snapshot", cluster)
    assert (found.code, found.err) == (0, "")
    excluded = "1 node(s) didn't match scheduling policy; 1 node(s) had untolerated taint(s)"
    assert found.out.splitlines() == [
        "Pod shop/p",
        "  nothing to do: no policy changes it at admission",
        "  nodes: 3 of 4 match, 3 before: n2, n3, n4; 1 node(s) had untolerated taint(s)",
        "  held at scheduling: required nodes, preferred nodes by ClusterPodSchedulingPolicy/later",
        "  preferred at scheduling: n2 57, n4 7",
        f"  at scheduling, nodes: 2 of 4 match: n2, n4; {excluded}",
        "",
        "1 object: 0 changed, 0 refused",
    ]


def _both() -> dict[str, Any]:
    """Required and preferred node terms."""
    return {"nodeAffinity": {**SSD["nodeAffinity"], **PREFERRED["nodeAffinity"]}}


@pytest.mark.parametrize(
    ("spec", "directives"),
    [
        ({"nodeSelector": {"pool": "b"}}, ["required nodes"]),
        ({"affinity": PREFERRED}, ["preferred nodes"]),
        ({"affinity": APART}, ["pod affinity or anti-affinity"]),
        ({"topologySpreadConstraints": [{**SOFT, "whenUnsatisfiable": "DoNotSchedule"}]}, ["topology spread"]),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_each_kind_of_directive_is_named(command: Command, spec: dict[str, Any], directives: list[str]) -> None:
    (tested,) = command.on([policy_json(**spec, **LATER)]).document["objects"]
    assert tested["scheduling"]["directives"] == directives
    assert tested["scheduling"]["matching"] is None, "the nodes are not known"


def test_a_constraint_that_no_pod_can_carry_is_held_at_scheduling_whatever_the_moments(command: Command) -> None:
    (tested,) = command.on([policy_json(topologySpreadConstraints=[SOFT])]).document["objects"]
    assert tested["scheduling"]["directives"] == ["topology spread"]


def test_what_admission_has_injected_is_not_told_again(command: Command) -> None:
    (tested,) = command.on([policy_json(**POOL)], "--snapshot", command.snapshot(*NODES)).document["objects"]
    assert (tested["result"], tested["scheduling"]) == ("mutated", None)


def test_a_pod_that_is_left_no_node_at_scheduling_gives_1(command: Command) -> None:
    found = command.on(
        [policy_json(nodeSelector={"pool": "none"}, **LATER)], "--snapshot", command.snapshot(*NODES[1:])
    )
    (tested,) = found.document["objects"]
    assert (found.code, tested["nodes"]["matching"], tested["scheduling"]["matching"]) == (1, ["n2", "n3"], [])


def test_a_pod_that_a_policy_refuses_at_scheduling_gives_1(command: Command) -> None:
    spec = {"nodeSelector": {"pool": "a"}, "conflictPolicy": "Reject", **LATER}
    found = command.on([policy_json(**spec)], obj=pod({"nodeSelector": {"pool": "b"}}))
    (tested,) = found.document["objects"]
    assert found.code == 1
    assert tested["scheduling"]["refused"] == "pod contradicts a scheduling policy that rejects such pods"

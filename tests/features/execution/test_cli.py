"""`extender moves`: the plan for a snapshot and for a cluster."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from extender.features.execution.directive import PAUSED_ANNOTATION
from extender.simulator.apiserver.kinds import NAMESPACES, OWN_POLICY_KINDS
from extender.simulator.apiserver.server import ApiServer
from tests.builders import Json, namespace_json, node_json, pod_json, spread
from tests.cli.printing import Result, called
from tests.features.execution.watching import ROOM
from tests.policies import policy_json

EXECUTION: Json = {"when": ["Execution"], "execution": {"minAge": "0s"}}
SPREAD = [spread("zone", app="web")]


def of(kind: str, body: Json) -> Json:
    return {"apiVersion": "v1", "kind": kind, **body}


def web(name: str, on: str, **annotations: str) -> Json:
    body = of("Pod", pod_json(name, on=on, app="web", spreads=SPREAD, owner=("ReplicaSet", "web")))
    body["metadata"]["annotations"] = annotations
    return body


def cluster(*pods: Json, policies: bool = True) -> list[Json]:
    nodes = [of("Node", node_json(f"{zone}0", zone=zone, allocatable=ROOM)) for zone in "abc"]
    watching = [policy_json("watch", **EXECUTION)] if policies else []
    return [of("Namespace", namespace_json("default")), *nodes, *watching, *pods]


ASKEW = [web("web-0", "a0"), web("web-1", "a0"), web("web-2", "a0", **{"karpenter.sh/do-not-disrupt": "true"})]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> partial[Result]:
    return partial(planned, capsys, tmp_path)


def planned(capsys: pytest.CaptureFixture[str], folder: Path, objects: list[Json], *more: str) -> Result:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "utf-8")
    return called(capsys, "moves", "--plan", "--snapshot", str(path), *more)


def test_the_plan_of_a_snapshot_lists_the_moves_in_order(run: partial[Result]) -> None:
    found = run(cluster(*ASKEW))
    assert found.code == 0
    zone = "topology.kubernetes.io/zone=a"
    assert found.out.splitlines() == [
        "   POD            FROM  TO  CONSTRAINT      BROKEN",
        f"1  default/web-0  a0    b0  TopologySpread  {zone} has 3 pods, at most 1 keep the spread",
        f"2  default/web-1  a0    c0  TopologySpread  {zone} has 2 pods, at most 1 keep the spread",
        "",
        "2 moves: what is broken falls from 2 to 0",
    ]


def test_a_script_gets_each_field(run: partial[Result]) -> None:
    found = run(cluster(*ASKEW[1:]), "-o", "json")
    assert found.document == {
        "moves": [
            {
                "pod": "default/web-1",
                "constraint": "TopologySpread",
                "broken": "topology.kubernetes.io/zone=a has 2 pods, at most 1 keep the spread",
                "source": "a0",
                "policy": "ClusterPodSchedulingPolicy/watch",
                "state": "planned",
                "since": "",
                "target": "b0",
                "why": "",
                "lowers": 1,
            }
        ],
        "stuck": [],
        "before": 1,
        "after": 0,
        "notes": [],
    }


def test_what_stays_broken_has_a_reason(run: partial[Result]) -> None:
    kept = [web(f"web-{at}", "a0", **{"placement.extender.dev/do-not-move": "yes"}) for at in range(2)]
    found = run(cluster(*kept), "-o", "wide")
    lines = found.out.splitlines()
    assert lines[0] == "Broken, without a move that is allowed:"
    assert lines[2].endswith("annotation placement.extender.dev/do-not-move forbids it")
    assert "ClusterPodSchedulingPolicy/watch" in lines[2]
    assert lines[-1] == "no move: what is broken falls from 1 to 1"


def test_policies_of_a_file_are_tried_before_they_exist(run: partial[Result], tmp_path: Path) -> None:
    found = run(cluster(*ASKEW, policies=False))
    assert found.out.splitlines() == [
        "note: no policy with `when: [Execution]` watches pods",
        "no watched constraint is broken",
    ]
    given = tmp_path / "policy.yaml"
    given.write_text(yaml.safe_dump(policy_json("watch", **EXECUTION)), "utf-8")
    found = run(cluster(*ASKEW, policies=False), "-f", str(given))
    assert found.out.splitlines()[-1] == "2 moves: what is broken falls from 2 to 0"


BAD_FILES: dict[str, tuple[Json, str]] = {
    "no policy": (of("Pod", pod_json("a")), "kind: expected a policy, got Pod"),
    "an invalid policy": (
        policy_json("watch", **{**EXECUTION, "execution": {"after": "soon"}}),
        "spec.execution.after",
    ),
}


@pytest.mark.parametrize(("document", "text"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_policy_is_refused(run: partial[Result], tmp_path: Path, document: Json, text: str) -> None:
    given = tmp_path / "policy.yaml"
    given.write_text(yaml.safe_dump(document), "utf-8")
    found = run(cluster(), "-f", str(given))
    assert found.code == 1
    assert text in found.err


def test_a_snapshot_needs_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        called(capsys, "moves", "--snapshot", "cluster.json")
    assert ended.value.code == 2


PAUSED: dict[str, tuple[str, list[str]]] = {
    "a cluster-wide policy": ("ClusterPodSchedulingPolicy", []),
    "a policy of a namespace": ("PodSchedulingPolicy", ["-n", "default"]),
}


@pytest.mark.parametrize(("kind", "more"), PAUSED.values(), ids=PAUSED)
async def test_moves_of_a_policy_are_paused_and_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, more: list[str]
) -> None:
    namespace = {"namespace": "default"} if more else {}
    body = policy_json("watch", **EXECUTION) | {"kind": kind, "metadata": {"name": "watch", **namespace}}
    (served,) = [each for each in OWN_POLICY_KINDS if each.kind == kind]
    async with ApiServer() as api:
        await api.create(NAMESPACES, namespace_json("default"))
        await api.create(served, body)
        access = ["--kubeconfig", str(api.write_kubeconfig(tmp_path / "kubeconfig"))]
        annotations = []
        for action in ("pause", "resume"):
            found = await asyncio.to_thread(called, capsys, "moves", action, "watch", *more, *access)
            assert (found.code, found.err) == (0, "")
            (stored,) = api.store.table(served).objects.values()
            annotations.append(stored.read()["metadata"].get("annotations") or {})
        assert [PAUSED_ANNOTATION in each for each in annotations] == [True, False]
        found = await asyncio.to_thread(called, capsys, "moves", "pause", "absent", *more, *access)
        assert (found.code, f"{kind} absent" in found.err) == (1, True)
        found = await asyncio.to_thread(called, capsys, "moves", "pause", "../x", *more, *access)
        assert (found.code, "is no name of an object" in found.err) == (1, True)


# -- `extender whatif --moves`


def tried(
    capsys: pytest.CaptureFixture[str], folder: Path, objects: list[Json], given: list[Json], *more: str
) -> Result:
    path, changes = folder / "cluster.json", folder / "changes.yaml"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}), "utf-8")
    changes.write_text(yaml.safe_dump_all(given), "utf-8")
    return called(capsys, "whatif", "--snapshot", str(path), "-f", str(changes), "--moves", *more)


TWO_ZONES = [web("web-0", "a0"), web("web-1", "a0"), web("web-2", "b0"), web("web-3", "b0")]
NEW_ZONE = of("Node", node_json("c0", zone="c", allocatable=ROOM))


def without_zone_c(*pods: Json) -> list[Json]:
    return [obj for obj in cluster(*pods) if obj["metadata"]["name"] != "c0"]


def test_a_what_if_shows_the_moves_that_would_follow(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = tried(capsys, tmp_path, without_zone_c(*TWO_ZONES), [NEW_ZONE])
    zone = "topology.kubernetes.io/zone=a"
    assert (found.code, found.out.splitlines()) == (
        0,
        [
            "0 placed, 0 rejected",
            "",
            "Moves that would follow:",
            "   POD            FROM  TO  CONSTRAINT      BROKEN",
            f"1  default/web-0  a0    c0  TopologySpread  {zone} has 2 pods, at most 1 keep the spread",
            "",
            "note: annotations of pods, local storage, ages and disruption budgets are not read for moves",
            "1 move: what is broken falls from 2 to 0",
        ],
    )
    moves = tried(capsys, tmp_path, without_zone_c(*TWO_ZONES), [NEW_ZONE], "-o", "json").document["moves"]
    assert [(move["pod"], move["target"]) for move in moves["moves"]] == [("default/web-0", "c0")]


def test_a_what_if_plans_no_moves_unless_asked_and_says_where_no_policy_watches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bare = [obj for obj in without_zone_c(*TWO_ZONES) if obj["metadata"]["name"] != "watch"]
    found = tried(capsys, tmp_path, bare, [NEW_ZONE])
    assert found.out.splitlines()[-2:] == [
        "note: no policy with `when: [Execution]` watches pods",
        "no watched constraint is broken",
    ]
    # The policy may be a part of the change.
    found = tried(capsys, tmp_path, bare, [NEW_ZONE, policy_json("watch", **EXECUTION)])
    assert found.out.splitlines()[-1] == "1 move: what is broken falls from 2 to 0"
    path = tmp_path / "cluster.json"
    assert called(capsys, "whatif", "--snapshot", str(path), "-o", "json").document["moves"] is None

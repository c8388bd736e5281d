"""Changes of a what-if: which pods are displaced, gone and placed, in which order, and what policies and namespaces change."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest
from msgspec import structs

from extender.compose.foundation import make_index
from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.answers.what_if import Placement, WhatIfAnswer
from extender.model.objects import Object
from extender.settings.configuration import Settings
from extender.tasks.what_if import computing
from extender.tasks.what_if.computing import answer_body
from extender.wire.errors import WireError
from tests.builders import Json, index_of, matching, namespace, node, node_json, pod, pod_json, settings, term
from tests.explaining import finished
from tests.policies import policy_json

ROOM: Final = {"cpu": "4", "pods": "9"}


def asked(index: ClusterIndex, chosen: Settings | None = None, **body: Any) -> WhatIfAnswer:
    """The answer to a body; the index is changed, and its counts stay true."""
    found = finished(answer_body(orjson.dumps(body), index, chosen or Settings()))
    assert audit(index) == []
    return found


def without(name: str, *objects: Object, **body: Any) -> dict[str, tuple[str, str]]:
    """The state and the node of each pod where a node is deleted."""
    found = asked(index_of(*objects), delete=[{"kind": "Node", "name": name}], **body)
    return {each.pod.partition("/")[2]: (each.state, each.node) for each in found.placements}


def nodes(count: int = 2) -> list[Object]:
    return [node(f"n{at}", zone=f"z{at}", allocatable=ROOM) for at in range(count)]


def kinded(kind: str, body: Json) -> Json:
    return {"kind": kind, **body}


def test_pods_of_a_deleted_node_are_placed_again_unless_they_belong_to_it() -> None:
    here: dict[str, Any] = {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}],
    }
    away = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
    found = without(
        "n0",
        *nodes(),
        pod("usual", on="n0"),
        pod("on-the-other", on="n1"),
        pod("agent", on="n0", owner=("DaemonSet", "agents")),
        pod("mirror", on="n0", owner=("Node", "n0")),
        pod("named", on="n0", node_terms=[here]),
        pod("not-named", on="n0", node_terms=[away]),
        pod("either", on="n0", node_terms=[here, away]),
        pod("leaving", on="n0", terminating=True),
    )
    assert found == {
        "usual": ("placed", "n1"),
        "not-named": ("placed", "n1"),
        "either": ("placed", "n1"),
        **dict.fromkeys(("agent", "mirror", "named", "leaving"), ("gone", "")),
    }


def test_all_pods_of_a_deleted_node_are_gone_where_that_is_asked() -> None:
    assert without("n0", *nodes(), pod("usual", on="n0"), displaced="gone") == {"usual": ("gone", "")}


def test_pods_that_are_assumed_on_a_deleted_node_are_displaced_or_pending_again() -> None:
    index = index_of(*nodes(3), pod("one"), pod("several"), pod("elsewhere"))
    index.assume(index.pods["uid-one"], ["n0"], 0.0)
    index.assume(index.pods["uid-several"], ["n0", "n1"], 0.0)
    index.assume(index.pods["uid-elsewhere"], ["n2"], 0.0)
    found = asked(index, delete=[{"kind": "Node", "name": name} for name in ("n0", "n1")])
    assert {(each.pod, each.origin, each.was, each.node) for each in found.placements} == {
        ("default/one", "displaced", "n0", "n2"),
        ("default/several", "pending", "", "n2"),
    }


def test_pods_are_placed_by_priority_then_given_and_displaced_ones_then_by_creation() -> None:
    objects: list[Object] = [*nodes(), pod("moved", on="n0"), pod("high", priority=9), pod("gated", gates=["later"])]
    objects += [structs.replace(pod(name), created=created) for name, created in (("b", "2026-01"), ("a", "2026-02"))]
    given = [kinded("Pod", pod_json(name)) for name in ("z", "y")]
    found = asked(index_of(*objects), delete=[{"kind": "Node", "name": "n0"}], apply=given, place={"limit": 2})
    assert [each.pod.partition("/")[2] for each in found.placements] == ["high", "moved", "z", "y", "b"]
    assert found.summary.not_tried == 1


def test_a_given_pod_replaces_the_one_of_its_name_and_is_not_placed_where_it_names_its_node_or_is_gated() -> None:
    index = index_of(*nodes(), pod("web", on="n0", requests={"cpu": "3"}), pod("same-uid", on="n1"))
    given = [
        kinded("Pod", pod_json("web", requests={"cpu": "4"})),
        kinded("Pod", pod_json("bound", on="n1", requests={"cpu": "3"})),
        kinded("Pod", pod_json("waits", gates=["later"])),
        kinded("Pod", pod_json("copy", uid="uid-same-uid")),
    ]
    found = asked(index, apply=given)
    assert [(each.pod, each.state, each.node, each.was) for each in found.placements] == [
        ("default/waits", "gated", "", ""),
        ("default/web", "placed", "n0", "n0"),
        ("default/copy", "placed", "n1", ""),
    ]
    assert {each.full_name for each in index.pods.values()} >= {"default/same-uid", "default/copy"}


def test_a_namespace_is_deleted_with_its_pods_and_one_with_other_labels_reaches_others() -> None:
    apart = [term("host", namespace_selector=matching(team="a"), app="web")]
    index = index_of(node("n0", allocatable=ROOM), namespace("other", team="b"), namespace("old", team="a"))
    index.upsert(pod("in-old", namespace="old", on="n0", app="web"))
    index.upsert(pod("asking", apart=apart))
    index.upsert(pod("in-other", namespace="other", on="n0", app="web"))
    renamed = kinded("Namespace", {"metadata": {"name": "other", "labels": {"team": "a"}}})
    found = asked(index, delete=[{"kind": "Namespace", "name": "old"}], apply=[renamed])
    (placement,) = found.placements
    assert (placement.state, [each.reason for each in placement.obstacles]) == ("rejected", ["anti_affinity"])
    assert {each.full_name for each in index.pods.values()} == {"default/asking", "other/in-other"}
    index = index_of(node("n0", allocatable=ROOM), namespace("old", team="a"), pod("asking", apart=apart))
    index.upsert(pod("in-old", namespace="old", on="n0", app="web"))
    assert asked(index, delete=[{"kind": "Namespace", "name": "old"}]).summary.placed == 1


def test_a_policy_that_is_given_counts_for_pods_on_nodes_and_one_that_is_deleted_does_not() -> None:
    """Its term is about web pods, and the pods that it selects are on their nodes already."""
    chosen = settings(policies={"enabled": True})
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("host", app="web")]}}
    selector = {"matchLabels": {"app": "db"}}
    policy = policy_json("alone", "default", affinity=apart, podSelector=selector, when=["Scheduling"])
    index = make_index(chosen)
    for obj in (node("n0", allocatable=ROOM), pod("on-n0", on="n0", app="db"), pod("asking", app="web")):
        index.upsert(obj)
    (placement,) = asked(index, chosen, apply=[policy]).placements
    assert [each.reason for each in placement.obstacles] == ["existing_anti_affinity"]
    removal = {"kind": "PodSchedulingPolicy", "namespace": "default", "name": "alone"}
    assert asked(index, chosen, delete=[removal]).summary.placed == 1


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"delete": [{"kind": "PodSchedulingPolicy", "name": "none"}]}, "delete[0].kind"),
        ({"delete": [{"kind": "Service", "name": "none"}]}, "delete[0].name"),
        ({"delete": [{"kind": "Namespace", "name": "none"}]}, "delete[0].name"),
        ({"delete": [{"kind": "Node", "name": "n0"}, {"kind": "Node", "name": "n0"}]}, "delete[1].name"),
        ({"delete": [{"kind": "Pod", "name": "web"}, {"kind": "Pod", "name": "web"}]}, "delete[1].name"),
        ({"delete": [{"kind": "Node", "name": ""}]}, "delete[0].name"),
        (
            {"apply": [{"kind": "Pod", "metadata": {"name": "a"}, "spec": {"priority": "high"}}]},
            "apply[0].spec.priority",
        ),
        ({"apply": [1]}, "apply[0]"),
        ({"place": {"limit": 20_001}}, "place.limit"),
    ],
)
def test_a_change_that_cannot_be_made_is_named(body: Json, path: str) -> None:
    with pytest.raises(WireError) as error:
        asked(index_of(*nodes(), pod("web", on="n0")), **body)
    assert error.value.path.startswith(path)


def test_a_node_that_is_given_by_hand_has_its_host_name() -> None:
    apart = [term("host", app="web")]
    given = kinded("Node", node_json("new", hostname=False, allocatable=ROOM))
    index = index_of(pod("first", app="web", apart=apart), pod("second", app="web", apart=apart))
    found = asked(index, apply=[given])
    assert (found.summary.placed, found.summary.rejected) == (1, 1)


def test_only_the_first_different_rejected_pods_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "MOST_EXPLAINED", 1)
    index = index_of(*nodes(), pod("large-1", requests={"cpu": "8"}), pod("large-2", requests={"cpu": "8"}))
    index.upsert(pod("larger", requests={"cpu": "9"}))
    found = {each.pod.partition("/")[2]: each for each in asked(index).placements}
    assert found["large-1"].obstacles == found["large-2"].obstacles != ()
    assert (found["larger"].obstacles, found["larger"].reason) == ((), found["large-1"].reason)


def test_a_pod_with_needs_that_are_not_seen_says_so() -> None:
    index = index_of(*nodes(), structs.replace(pod("asking"), has_unseen_needs=True))
    found: tuple[Placement, ...] = asked(index).placements
    assert "which the extender does not see" in found[0].unchecked

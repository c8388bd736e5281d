"""Pages and watch lines as a real apiserver 1.36 wrote them, and marks that carry no object."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.writer import path_of
from extender.model.constraints.labels import ZONE
from extender.model.group_placements import GroupPlacement, PlacementStatus, placement_name
from extender.model.objects import Namespace, Node, Pod, Workload
from extender.model.release import GroupDecision, GroupKey, GroupPhase, Level, own_group
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from extender.wire.api_calls import PLACEMENT
from extender.wire.errors import WireError
from extender.wire.objects.kinds import (
    DISRUPTION_BUDGETS,
    GROUP_PLACEMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Identity,
    Kind,
    Status,
    WatchEvent,
    decode_page,
    decode_status,
)
from extender.wire.policies.group_placements import decision_body, read_placement, status_body, undecided_body
from extender.wire.snapshots import decode_snapshot
from tests.builders import Json, index_of, node_json, pod_json

KINDS: list[Kind[Any]] = [
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DISRUPTION_BUDGETS,
]
RECORDINGS = Path(__file__).parents[1] / "recordings"


def lines(name: str) -> list[bytes]:
    return (RECORDINGS / f"{name}.jsonl").read_bytes().splitlines()


def meta(line: bytes) -> Json:
    found: Json = orjson.loads(line)["object"]["metadata"]
    return found


@pytest.mark.parametrize(
    ("kind", "name", "pages"),
    [(NODES, "list-nodes", [6]), (NAMESPACES, "list-namespaces", [8]), (PODS, "list-pods", [38])],
    ids=["nodes", "namespaces", "pods"],
)
def test_a_recorded_list_is_read_whole(kind: Kind[Any], name: str, pages: list[int]) -> None:
    found = [decode_page(line) for line in lines(name)]
    raw = [orjson.loads(line) for line in lines(name)]
    assert [len(page.items) for page in found] == pages
    assert [page.resource_version for page in found] == [page["metadata"]["resourceVersion"] for page in raw]
    assert [kind.decode_object(bytes(item)).name for page in found for item in page.items] == [
        item["metadata"]["name"] for page in raw for item in page["items"]
    ]


def test_a_page_says_how_the_list_goes_on() -> None:
    pages = [decode_page(line) for line in lines("list-pods-paged")]
    assert [len(page.items) for page in pages] == [10, 10]
    assert len({page.continue_token for page in pages} - {""}) == 2
    assert len({page.resource_version for page in pages}) == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, f"{how}-{kind.name}") for how in ("watch", "watchlist") for kind in (PODS, NODES, NAMESPACES)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_line_of_a_recorded_watch_is_read(kind: Kind[Any], name: str) -> None:
    events: list[WatchEvent[Any]] = [kind.decode_event(line) for line in lines(name)]
    assert [event.type for event in events] == [orjson.loads(line)["type"] for line in lines(name)]
    assert [event.resource_version for event in events] == [meta(line)["resourceVersion"] for line in lines(name)]
    names = [event.object.name if event.object is not None else None for event in events]
    assert names == [meta(line).get("name") for line in lines(name)]
    assert [event.initial_events_end for event in events] == [
        "annotations" in meta(line) and event.type == "BOOKMARK"
        for line, event in zip(lines(name), events, strict=True)
    ]


def test_a_recorded_watch_brings_an_index_to_what_the_lines_say() -> None:
    index = index_of(*(NODES.decode_object(bytes(item)) for item in decode_page(lines("list-nodes")[0]).items))
    last: dict[str, Json] = {}
    for line in lines("watch-pods"):
        event = PODS.decode_event(line)
        if event.object is not None:
            (index.delete if event.type == "DELETED" else index.upsert)(event.object)
            raw = orjson.loads(line)
            last[event.object.uid] = raw["object"] if raw["type"] != "DELETED" else {}
    running = [pod for pod in last.values() if pod and pod["status"]["phase"] not in {"Succeeded", "Failed"}]
    placed = Counter(pod["spec"].get("nodeName") for pod in running)
    here = {name: len(index.view.pods_on(number)) for name, number in index.view.known.items()}
    assert {name: count for name, count in here.items() if count} == {
        name: count for name, count in placed.items() if name in index.view.known
    }
    assert audit(index) == []


@pytest.mark.parametrize("name", ["watch-error-410", "watch-error-410-compacted", "watch-error-410-namespaces"])
def test_an_error_line_carries_a_status_and_no_object(name: str) -> None:
    event = PODS.decode_event(lines(name)[0])
    assert (event.type, event.object) == ("ERROR", None)
    assert event.status is not None
    assert (event.status.code, event.status.reason) == (410, "Expired")


def test_the_status_of_a_rejected_request_has_the_time_to_retry() -> None:
    body = orjson.loads((RECORDINGS / "error-list-future.json").read_bytes())["body"]
    status = decode_status(orjson.dumps(body))
    assert (status.code, status.reason, status.retry_after_seconds) == (504, "Timeout", 1)


@pytest.mark.parametrize("body", [b"", b"upstream connect error", b"[]", b'{"code":"x"}'])
def test_a_failure_that_is_no_status_is_an_empty_one(body: bytes) -> None:
    assert decode_status(body) == Status()


BOOKMARK = WatchEvent[Any]("BOOKMARK", None, "7")
LINES: dict[str, tuple[bytes, WatchEvent[Any]]] = {
    "as the apiserver writes it": (b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}', BOOKMARK),
    "its type last": (b'{"object":{"metadata":{"resourceVersion":"7"}},"type":"BOOKMARK"}', BOOKMARK),
    "blanks, and fields that are no object's": (
        b'{ "type": "BOOKMARK", "object": {"spec": 5, "metadata": {"resourceVersion": "7"}} }',
        BOOKMARK,
    ),
    "an error with its type last": (
        b'{"object":{"code":410,"spec":[]},"type":"ERROR"}',
        WatchEvent("ERROR", None, "", status=Status(code=410)),
    ),
    "an object with its type last": (
        orjson.dumps({"object": node_json("a"), "type": "ADDED"}),
        WatchEvent("ADDED", NODES.decode_object(orjson.dumps(node_json("a"))), ""),
    ),
}


@pytest.mark.parametrize(("line", "event"), LINES.values(), ids=LINES)
def test_a_line_of_a_watch_is_read_however_it_is_written(line: bytes, event: WatchEvent[Any]) -> None:
    assert NODES.decode_event(line) == event


def test_an_empty_list_may_be_null() -> None:
    page = decode_page(b'{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":null}')
    assert (page.items, page.resource_version, page.continue_token) == ([], "5", "")


def test_a_line_of_any_length_is_read() -> None:
    body = pod_json("long", app="web")
    body["metadata"]["annotations"] = {f"note-{number}": "x" * 1000 for number in range(2000)}
    event = PODS.decode_event(orjson.dumps({"type": "ADDED", "object": body}))
    assert event.object is not None
    assert event.object.signature.labels == {"app": "web"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_key_of_a_namespaced_object_has_its_namespace(kind: Kind[Any]) -> None:
    bodies = [{"metadata": {"name": name, "namespace": space}} for space in ("a", "b") for name in ("web", "db")]
    keys = {kind.decode_object(orjson.dumps(body)).key for body in bodies}
    assert len(keys) == (2 if kind in {NODES, NAMESPACES} else 4)


def test_objects_are_known_by_uid_name_or_both_names() -> None:
    pod = PODS.decode_object(orjson.dumps(pod_json("a", uid="u-1")))
    node = NODES.decode_object(orjson.dumps(node_json("n", zone="z1")))
    owner = REPLICA_SETS.decode_object(b'{"metadata":{"name":"rs","namespace":"shop"}}')
    assert (pod.key, node.key, owner.key) == ("u-1", "n", "ReplicaSet/shop/rs")
    assert node.labels[ZONE] == "z1"


# -- What kubectl prints, as model objects -----------------------------------------------------------------------------


def listed(*items: dict[str, object], kind: str = "List") -> bytes:
    """The output of `kubectl get -o json`."""
    return orjson.dumps({"apiVersion": "v1", "kind": kind, "items": items})


def item(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{name}"}, **more}


def test_kinds_that_decisions_read_become_objects_in_order() -> None:
    found = decode_snapshot(listed(item("Node", "a"), item("Namespace", "b"), item("Pod", "c"), item("Service", "d")))
    assert [(type(held), held.name) for held in found.objects[:3]] == [(Node, "a"), (Namespace, "b"), (Pod, "c")]
    assert isinstance(found.objects[3], Workload)


def test_other_kinds_are_counted_and_left_out() -> None:
    found = decode_snapshot(listed(item("ConfigMap", "a"), item("Secret", "b"), item("ConfigMap", "c")))
    assert (found.objects, found.skipped) == ([], {"ConfigMap": 2, "Secret": 1})


def test_the_items_of_a_typed_list_need_not_repeat_their_kind() -> None:
    body = listed({"metadata": {"name": "a"}}, kind="NodeList")
    assert [type(held) for held in decode_snapshot(body).objects] == [Node]


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_an_empty_list_is_an_empty_snapshot(items: bytes) -> None:
    assert decode_snapshot(b'{"kind": "List", "items": ' + items + b"}").objects == []


def test_an_item_that_cannot_be_read_is_left_out_and_named() -> None:
    odd = item("Pod", "b", spec=5)
    odd["metadata"] = {"name": "b", "namespace": "team"}
    body = listed(item("Node", "a"), odd, item("Pod", "c")).replace(b'"uid-c"', b"7")[:-2] + b',5,{"kind":7}]}'
    found = decode_snapshot(body)
    assert ([held.name for held in found.objects], found.unreadable) == (
        ["a"],
        [
            "items[1].spec (team/b): expected object | null, got int",
            "items[2].metadata.uid: expected str | null, got int",
            "items[3]: expected object, got int",
            "items[4].kind: expected str, got int",
        ],
    )


def test_deep_nesting_and_bytes_that_are_no_utf8_leave_nothing_out() -> None:
    deep = msgspec.Raw(b"[" * 5_000 + b"]" * 5_000)
    body = msgspec.json.encode(
        {
            "kind": "List",
            "items": [
                {"kind": "ConfigMap", "data": deep},
                item("Pod", "a") | {"status": {"conditionsOfOld": deep}},
                item("Node", "b") | {"metadata": {"name": "b", "labels": {"team": "MARK"}}},
            ],
        }
    )
    found = decode_snapshot(body.replace(b"MARK", b"\xff"))
    assert ([held.name for held in found.objects], found.unreadable) == (["a", "b"], [])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "input data was truncated"),
        (b'[{"kind": ', "input data was truncated"),
        (b'{"items": []}', "kind: is missing"),
        (b'{"kind": "Table"}', 'kind: expected List, as `kubectl get -o json` prints, got "Table"'),
    ],
    ids=["empty", "a part of an array", "no kind", "another answer of the API server"],
)
def test_what_is_no_list_is_rejected(body: bytes, problem: str) -> None:
    with pytest.raises(WireError) as rejected:
        decode_snapshot(body)
    assert str(rejected.value) == problem


# -- GroupPlacements: the bodies of the writes are read back as they were meant, by one name for each group ------------

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GROUP = GroupKey("team", "PodSchedulingPolicy/team/gangs", "train-7")
DECISION = GroupDecision(GROUP, "placement.extender.dev/group", 4, (Level("zone", "a"), Level("rack", "r1")), NOON)


def read(body: dict[str, Any]) -> GroupPlacement:
    """An object as the watch shows it."""
    return GROUP_PLACEMENTS.decode_object(orjson.dumps(body))


def test_a_decision_is_read_back_as_it_was_written() -> None:
    body = decision_body(DECISION, "17", {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"})
    assert body["metadata"]["resourceVersion"] == "17"
    assert body["metadata"]["ownerReferences"][0]["name"] == "train"
    assert read(body).decision == DECISION


def test_a_domain_of_several_values_names_the_first_for_an_older_extender() -> None:
    several = replace(DECISION, levels=(Level("zone", "b", ("b", "a"), ("a",)),))
    body = decision_body(several)
    assert body["spec"]["topology"] == [{"key": "zone", "value": "b", "values": ["b", "a"], "preferred": ["a"]}]
    assert read(body).decision == several


def test_nothing_is_decided_without_a_time() -> None:
    found = read(undecided_body(GROUP, "g", 4))
    assert (found.decision, found.group, found.size, found.levels) == (None, GROUP, 4, ())
    broken = decision_body(DECISION)
    broken["spec"]["decided"] = "noon"
    assert read(broken).decision is None


def test_a_decision_without_levels_is_one() -> None:
    unpinned = replace(DECISION, levels=())
    assert read(decision_body(unpinned)).decision == unpinned


@pytest.mark.parametrize("phase", GroupPhase)
def test_a_status_is_read_back_as_it_was_written(phase: GroupPhase) -> None:
    status = PlacementStatus(phase, 4, 3, 2, "NoRoom", "no zone holds 4 pods")
    found = read(undecided_body(GROUP, "g", 4) | {"status": status_body(status, NOON)})
    assert found.status == status


def test_the_condition_is_true_once_the_group_is_bound() -> None:
    (bound,) = status_body(PlacementStatus(GroupPhase.BOUND), NOON)["conditions"]
    (waits,) = status_body(PlacementStatus(GroupPhase.DECIDING, reason="NoRoom", message="x" * 5000), NOON)[
        "conditions"
    ]
    assert (bound["type"], bound["status"], bound["reason"]) == ("Placed", "True", "Bound")
    assert (waits["status"], waits["reason"], len(waits["message"])) == ("False", "NoRoom", 1024)


@pytest.mark.parametrize(
    "status", [None, {}, {"phase": "Later"}, {"conditions": None}, {"conditions": [{"type": "Other", "reason": "R"}]}]
)
def test_an_unknown_status_is_that_of_a_group_that_begins(status: dict[str, Any] | None) -> None:
    assert read(undecided_body(GROUP, "g", 4) | {"status": status}).status == PlacementStatus()


@pytest.mark.parametrize(
    "group",
    [
        GROUP,
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", "Train_7.A"),
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", own_group("0b6f-11")),
        GroupKey("team", "ClusterPodSchedulingPolicy/" + "p" * 253, "v" * 253),
        GroupKey("team", "ClusterPodSchedulingPolicy/gangs", "---"),
    ],
    ids=str,
)
def test_a_name_is_one_that_an_object_may_have(group: GroupKey) -> None:
    assert path_of(PLACEMENT.get, "default", placement_name(group)).endswith(f"/{placement_name(group)}")


def test_groups_that_read_alike_have_names_of_their_own() -> None:
    alike = [GROUP, GROUP._replace(policy="ClusterPodSchedulingPolicy/gangs"), GROUP._replace(value="train_7")]
    assert len({placement_name(each) for each in alike}) == 3
    assert all(placement_name(each).startswith("gangs-train-7-") for each in alike)


def test_the_answer_to_a_write_has_the_object_and_its_version() -> None:
    body = decision_body(DECISION, version="7")
    assert read_placement(orjson.dumps(body)) == (read(body), "7")


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b"{}", b'{"metadata":{}}', b'{"metadata":"none"}', b"\xff"])
def test_an_answer_that_is_no_object_of_a_group_is_an_error(answer: bytes) -> None:
    with pytest.raises(WireError):
        read_placement(answer)


def test_the_index_holds_the_object_of_a_group_and_no_other_that_names_it() -> None:
    index = ClusterIndex(Rules(), counts_of_rules())
    seen: list[tuple[bool, bool]] = []
    index.placements.changes.subscribe(lambda change: seen.append((change.old is None, change.new is None)))
    body = decision_body(DECISION)
    assert index.upsert(read(body))
    assert not index.upsert(read(body)), "the same again"
    assert index.placements.of(GROUP) == read(body)
    body["metadata"]["name"] = "another"
    index.upsert(read(body))
    assert index.placements.of(GROUP) == read(decision_body(DECISION))
    deleted = GROUP_PLACEMENTS.named(Identity(name=placement_name(GROUP), namespace="team"))
    assert index.delete(deleted)
    assert index.placements.of(GROUP) is None
    assert seen == [(True, False), (True, False), (False, True)]

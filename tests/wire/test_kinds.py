"""Pages and watch lines as a real apiserver 1.36 wrote them, and marks that carry no object."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.index.audit import audit
from extender.model.constraints.labels import ZONE
from extender.wire.objects.kinds import (
    DISRUPTION_BUDGETS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    Event,
    Kind,
    Status,
    decode_page,
    decode_status,
)
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


def test_a_page_tells_how_the_list_goes_on() -> None:
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
    events: list[Event[Any]] = [kind.decode_event(line) for line in lines(name)]
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


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}',
        b'{"object":{"metadata":{"resourceVersion":"7"}},"type":"BOOKMARK"}',
        b'{ "type": "BOOKMARK", "object": {"spec": 5, "metadata": {"resourceVersion": "7"}} }',
    ],
    ids=["as the apiserver writes it", "type last", "blanks, and fields that are no object's"],
)
def test_a_bookmark_is_read_however_it_is_written(line: bytes) -> None:
    assert PODS.decode_event(line) == Event("BOOKMARK", None, "7")


def test_an_error_is_read_with_its_type_last() -> None:
    event = PODS.decode_event(b'{"object":{"code":410,"spec":[]},"type":"ERROR"}')
    assert (event.type, event.status) == ("ERROR", Status(code=410))


def test_an_event_with_its_type_last_is_read() -> None:
    line = orjson.dumps({"object": node_json("a"), "type": "ADDED"})
    event = NODES.decode_event(line)
    assert (event.type, event.object and event.object.name) == ("ADDED", "a")


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

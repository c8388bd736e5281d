"""WATCH as the real API server streams it: events, bookmarks, WatchList, selections, and the ends of a stream."""

import asyncio

import pytest

from extender.simulator.apiserver.kinds import NAMESPACES as NAMESPACE_KIND
from extender.simulator.apiserver.kinds import PODS as POD_KIND
from extender.simulator.apiserver.kinds import Target
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from tests.fakes import PATIENCE, until
from tests.simulator.client import NAMESPACES, PODS, Client, connect, names
from tests.simulator.plain import namespace, pod

_INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


def _summary(event: dict[str, dict[str, dict[str, str]]]) -> tuple[str, str]:
    return str(event["type"]), event["object"]["metadata"]["name"]


async def test_events_come_in_order_with_kind_and_version(client: Client, api: ApiServer) -> None:
    stream = await client.watch(PODS, resourceVersion=api.store.version)
    api.operations.create(POD_KIND, pod("a"))
    api.operations.change(POD_KIND, "default/a", lambda obj: obj["metadata"].update(labels={"app": "web"}))
    removed = api.store.remove(POD_KIND, "default/a")
    events = await stream.take(3)
    assert [_summary(event) for event in events] == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert list(events[0]["object"])[:2] == ["kind", "apiVersion"]
    assert events[2]["object"]["metadata"]["resourceVersion"] == str(removed.version)


async def test_a_watch_from_an_old_version_starts_with_what_came_since(client: Client, api: ApiServer) -> None:
    before = api.store.version
    api.operations.create(POD_KIND, pod("a"))
    middle = api.store.version
    api.operations.create(POD_KIND, pod("b"))
    assert [_summary(e) for e in await (await client.watch(PODS, resourceVersion=before)).take(2)] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert _summary(await (await client.watch(PODS, resourceVersion=middle)).next()) == ("ADDED", "b")


async def test_a_watch_without_a_version_starts_with_what_is_there(client: Client, api: ApiServer) -> None:
    api.operations.create(POD_KIND, pod("a"))
    stream = await client.watch(PODS)
    assert _summary(await stream.next()) == ("ADDED", "a")
    api.store.remove(POD_KIND, "default/a")
    assert _summary(await stream.next()) == ("DELETED", "a")


async def test_watchlist_ends_what_is_there_with_a_bookmark(client: Client, api: ApiServer) -> None:
    api.operations.create(POD_KIND, pod("a"))
    api.operations.create(POD_KIND, pod("b"))
    added, also_added, bookmark = await (await client.watch(PODS, **_INITIAL)).take(3)
    assert names([added["object"], also_added["object"]]) == ["a", "b"]
    assert bookmark == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "resourceVersion": str(api.store.version),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
            "spec": {"containers": None},
            "status": {},
        },
    }


async def test_watchlist_without_a_match_is_rejected_in_the_real_words(client: Client) -> None:
    code, body = await client.get(PODS, watch="true", sendInitialEvents="true")
    problem = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    assert (code, body["message"]) == (
        422,
        f'ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: {problem}',
    )
    assert body["details"]["causes"] == [
        {"reason": "FieldValueForbidden", "message": problem, "field": "resourceVersionMatch"}
    ]


async def test_bookmarks_come_only_when_asked_for_and_carry_the_latest_version(client: Client, api: ApiServer) -> None:
    requested = await client.watch(PODS, resourceVersion=api.store.version, allowWatchBookmarks="true")
    silent = await client.watch(PODS, resourceVersion=api.store.version)
    api.operations.create(NAMESPACE_KIND, namespace("elsewhere"))  # another kind moves the version on
    versions = [event["object"]["metadata"]["resourceVersion"] for event in await requested.take(2)]
    assert versions[-1] == str(api.store.version)
    api.operations.create(POD_KIND, pod("a"))
    assert _summary(await silent.next()) == ("ADDED", "a")


async def test_a_version_before_the_history_gets_one_error_event(client: Client, api: ApiServer) -> None:
    api.operations.create(POD_KIND, pod("a"))
    api.store.compact()
    stream = await client.watch(PODS, resourceVersion=1)
    assert stream.response.status == 200
    status = (await stream.next())["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"] == f"too old resource version: 1 ({api.store.version})"
    assert await stream.ends()


async def test_history_is_as_long_as_the_setting_says() -> None:
    async with ApiServer(ApiServerSettings(history=10)) as api, connect(api.url) as client:
        start = api.store.version
        for number in range(100):
            api.operations.create(NAMESPACE_KIND, namespace(f"ns{number}"))
        assert (await (await client.watch(NAMESPACES, resourceVersion=start)).next())["type"] == "ERROR"
        recent = await client.watch(NAMESPACES, resourceVersion=api.store.version - 5)
        assert names([event["object"] for event in await recent.take(5)]) == [f"ns{n}" for n in range(95, 100)]


async def test_a_field_selector_turns_a_binding_into_a_deletion(client: Client, api: ApiServer) -> None:
    stream = await client.watch(PODS, fieldSelector="spec.nodeName=", resourceVersion=api.store.version)
    api.operations.create(POD_KIND, pod("a"))
    api.pods.bind(Target(POD_KIND, "default", "a"), {"target": {"name": "n1"}})
    added, deleted = await stream.take(2)
    assert (added["type"], deleted["type"]) == ("ADDED", "DELETED")
    assert deleted["object"]["spec"]["nodeName"] == "n1"


async def test_metadata_only_watches_hold_nothing_else(client: Client, api: ApiServer) -> None:
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    stream = await client.watch(PODS, accept=accept, resourceVersion=api.store.version)
    api.operations.create(POD_KIND, pod("a"))
    obj = (await stream.next())["object"]
    assert (obj["kind"], obj["apiVersion"], set(obj)) == (
        "PartialObjectMetadata",
        "meta.k8s.io/v1",
        {"kind", "apiVersion", "metadata"},
    )


async def test_a_watch_ends_plainly_after_its_timeout(client: Client, api: ApiServer) -> None:
    stream = await client.watch(PODS, resourceVersion=api.store.version, timeoutSeconds=1)
    assert await stream.ends()


async def test_a_watcher_that_lags_too_far_behind_is_cut_with_a_plain_end() -> None:
    settings = ApiServerSettings(slow_after=50)
    async with ApiServer(settings) as api, connect(api.url) as client:
        stream = await client.watch(NAMESPACES, resourceVersion=api.store.version)
        for number in range(51):  # all in one turn of the loop: the watch cannot take any of them
            api.operations.create(NAMESPACE_KIND, namespace(f"ns{number}"))
        assert await stream.ends()


async def test_stopping_the_server_ends_its_watches() -> None:
    api = ApiServer()
    await api.start()
    async with connect(api.url) as client:
        stream = await client.watch(PODS, resourceVersion=api.store.version)
        await asyncio.wait_for(api.stop(), PATIENCE)
        assert await stream.ends()
    assert api.store.table(POD_KIND)._listeners == []


async def test_a_client_that_goes_away_leaves_no_listener(client: Client, api: ApiServer) -> None:
    stream = await client.watch(PODS, resourceVersion=api.store.version)
    api.operations.create(POD_KIND, pod("a"))
    await stream.next()
    stream.response.close()
    await until(lambda: not api.store.table(POD_KIND)._listeners)


async def test_a_line_for_a_client_that_has_just_gone_is_no_error(
    client: Client, api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    await client.watch(PODS, resourceVersion=api.store.version)
    await until(lambda: api.store.table(POD_KIND)._listeners)
    assert api._runner
    assert api._runner.server
    api.operations.create(POD_KIND, pod("a"))  # wakes the watch, which will find its connection closing
    for connection in api._runner.server.connections:
        assert connection.transport
        connection.transport.close()
    await until(lambda: not api.store.table(POD_KIND)._listeners)
    assert [record.getMessage() for record in caplog.records] == []

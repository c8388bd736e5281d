"""An API server that comes back: with its history, or with one that counts from the beginning again."""

import asyncio

import aiohttp
import pytest

from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import NODES as NODE_KIND
from extender.simulator.apiserver.kinds import PODS as POD_KIND
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from extender.simulator.apiserver.store import Store
from tests.fakes import PATIENCE, until
from tests.simulator.client import PODS, Client, connect, names
from tests.simulator.plain import namespace, node, pod


def store_with_a_past() -> Store:
    store = Store()
    for name in ("a", "b", "a", "b"):
        store.put(NODE_KIND, node(name))
    store.remove(NODE_KIND, "b")
    return store


def test_objects_stay_and_versions_begin_again_lower() -> None:
    store = store_with_a_past()
    before, uid = store.version, store.put(NODE_KIND, node("c")).read()
    store.reset_versions()
    assert store.version == 3 < before
    rows = store.table(NODE_KIND).latest()
    assert [(stored.key, stored.version) for stored in rows] == [("a", 2), ("c", 3)]
    assert rows[1].read() | {"metadata": {}} == uid | {"metadata": {}}


def test_a_reader_by_places_misses_nothing_and_one_by_versions_begins_anew() -> None:
    store = store_with_a_past()
    table = store.table(NODE_KIND)
    store.reset_versions()
    floor = store.version
    changed = store.put(NODE_KIND, node("a"))
    seen = [change.type for change in table.since(0) or []]
    assert seen == ["ADDED", "ADDED", "MODIFIED", "MODIFIED", "DELETED", "MODIFIED"]
    assert table.position_of(floor - 1) is None
    assert table.position_of(floor) == table.end - 1
    assert table.position_of(changed.version) == table.position_of(900) == table.end
    assert table.at(floor) != table.at(changed.version)


def test_old_numbers_do_not_come_back_when_the_past_is_trimmed() -> None:
    store = store_with_a_past()
    table = store.table(NODE_KIND)
    store.reset_versions()
    floor = store.version
    table.forget(2)
    assert table.floor == floor
    store.put(NODE_KIND, node("a"))
    store.put(NODE_KIND, node("a"))
    table.forget(4)
    assert (table.floor, len(table.changes)) == (floor + 1, 1)


async def test_a_watch_from_the_earlier_history_gets_no_events_and_a_list_an_error(api: ApiServer) -> None:
    async with connect(api.url) as client:
        for number in range(20):
            api.operations.create(POD_KIND, pod(f"p{number}"))
            api.store.remove(POD_KIND, f"default/p{number}")
        before = api.store.version
        await api.restart(new_history=True)
        stream = await client.watch(PODS, resourceVersion=before, allowWatchBookmarks="true")
        witness = await client.watch(PODS, resourceVersion=api.store.version, allowWatchBookmarks="true")
        api.operations.create(POD_KIND, pod("unseen"))
        assert names([event["object"] for event in await witness.take(1)]) == ["unseen"]
        assert [event["type"] for event in await witness.take(3)] == ["BOOKMARK"] * 3
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stream.next(), 0.01)
        code, body = await client.get(PODS, resourceVersion=before, resourceVersionMatch="NotOlderThan", limit=1)
        assert (code, body["message"]) == (
            504,
            f"Timeout: Too large resource version: {before}, current: {api.store.version}",
        )


async def test_the_next_page_of_a_list_from_before_is_expired(client: Client, api: ApiServer) -> None:
    for name in ("a", "b", "c", "a", "b", "c"):
        api.store.put(POD_KIND, pod(name))
    _, page = await client.get(PODS, limit=1)
    await api.restart(new_history=True)
    code, _ = await client.get(PODS, limit=1, **{"continue": page["metadata"]["continue"]})
    assert code == 410


async def test_connections_are_cut_and_none_is_rejected_where_it_is_never_down(client: Client, api: ApiServer) -> None:
    stream = await client.watch(PODS, resourceVersion=api.store.version)
    await api.restart()
    with pytest.raises(aiohttp.ClientError):
        await stream.next()
    assert (await client.get(PODS))[0] == 200


async def test_a_stalled_answer_does_not_hold_a_restart_up() -> None:
    class Stall(Faults):
        entered = False

        async def before_answer(self, call: Call) -> None:
            """Answer no list, ever."""
            if call.path == PODS:
                self.entered = True
                await asyncio.Event().wait()

    stall = Stall()
    async with ApiServer(ApiServerSettings()) as api, connect(api.url) as client:
        api.store.load([namespace("default")])
        api.faults = stall
        incoming = asyncio.create_task(client.get(PODS))
        await until(lambda: stall.entered)
        await asyncio.wait_for(api.restart(0.01), PATIENCE)
        with pytest.raises(aiohttp.ClientError):
            await incoming

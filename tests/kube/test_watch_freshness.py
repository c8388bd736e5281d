"""What a second look at the API server tells of a watch's place, against the embedded one and scripted ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from extender.kube.credentials import Access
from extender.kube.errors import Expired, Unreachable
from extender.kube.listing import WatchFreshness
from extender.kube.session import Session, open_session
from extender.kube.timing import SystemClock
from extender.simulator.apiserver.kinds import NAMESPACES as SIMULATED_NAMESPACES
from extender.simulator.apiserver.kinds import PODS as SIMULATED_PODS
from extender.simulator.apiserver.server import ApiServer
from extender.wire.objects.kinds import NAMESPACES, PODS
from tests.kube.scripted import END, ScriptedApi, body, bookmark, status, watch
from tests.simulator.plain import namespace, pod


@asynccontextmanager
async def comparing(url: str) -> AsyncIterator[WatchFreshness]:
    clock = SystemClock()
    async with open_session(Access(host=url), clock) as session:
        yield WatchFreshness(session.reads, PODS, clock)


@pytest.fixture
async def cluster() -> AsyncIterator[ApiServer]:
    async with ApiServer() as api:
        api.operations.create(SIMULATED_NAMESPACES, namespace("default"))
        yield api


async def test_the_newest_version_contains_every_write_before(cluster: ApiServer) -> None:
    async with comparing(cluster.url) as found:
        written = cluster.operations.create(SIMULATED_PODS, pod("web-1"), namespace="default")
        assert int(await found.newest_version()) >= written.version


async def test_after_the_last_change_all_is_quiet_and_before_it_is_not(cluster: ApiServer) -> None:
    before = str(cluster.store.version)
    written = cluster.operations.create(SIMULATED_PODS, pod("web-1"), namespace="default")
    async with comparing(cluster.url) as found:
        assert not await found.is_quiet_since(before)
        assert await found.is_quiet_since(str(written.version))


async def test_changes_of_other_kinds_do_not_count(cluster: ApiServer) -> None:
    before = str(cluster.store.version)
    cluster.operations.create(SIMULATED_NAMESPACES, namespace("other"))
    async with comparing(cluster.url) as found:
        assert await found.is_quiet_since(before)


async def test_a_version_that_is_too_old_to_tell_is_an_error_or_not_quiet(cluster: ApiServer) -> None:
    before = str(cluster.store.version)
    cluster.operations.create(SIMULATED_PODS, pod("web-1"), namespace="default")
    cluster.store.compact()
    async with comparing(cluster.url) as found:
        assert not await found.is_quiet_since(before)


async def test_a_watch_that_is_rejected_or_cut_at_once_proves_nothing(api: ScriptedApi, session: Session) -> None:
    found = WatchFreshness(session.reads, NAMESPACES, SystemClock())
    api.script(NAMESPACES.path, watch(then=END), status(410, "too old"), watch(bookmark(7)))
    assert not await found.is_quiet_since("5")
    with pytest.raises(Expired):
        await found.is_quiet_since("5")
    assert not await found.is_quiet_since("5")
    requested = api.watches[0].query
    assert (requested["resourceVersion"], requested["timeoutSeconds"]) == ("5", "1")


async def test_a_list_that_cannot_be_read_is_no_answer(api: ScriptedApi, session: Session) -> None:
    api.script(NAMESPACES.path, body("no JSON"))
    with pytest.raises(Unreachable):
        await WatchFreshness(session.reads, NAMESPACES, SystemClock()).newest_version()
    assert api.lists[0].query == {"limit": "1"}

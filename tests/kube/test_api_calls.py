"""Each call of the writer and of the reader makes the request that its row of ``wire.api_calls`` declares."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from extender.kube.connection import Access
from extender.kube.effects import PodCondition, PodEvent, PodRef
from extender.kube.leases import Lease
from extender.kube.session import open_session
from extender.kube.writer import Writer
from extender.wire.api_calls import API_CALLS, ApiCall
from tests.fakes import FakeClock
from tests.kube.scripted import ScriptedApi, Seen, body

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
POD = PodRef("default", "web", "uid-web")
LEASE = Lease("kube-system", "extender", holder="one", acquire_time=NOON, renew_time=NOON)
# The HTTP methods of RBAC's verbs, from https://kubernetes.io/docs/reference/access-authn-authz/authorization/
METHODS = {"create": "POST", "get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
POD_PATH = "/api/v1/namespaces/default/pods/web"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

Call = Callable[[Writer], Awaitable[object]]

CALLS: dict[str, tuple[str, Call]] = {
    "nominate": (f"{POD_PATH}/status", lambda w: w.nominate(POD, "node-a")),
    "set_condition": (
        f"{POD_PATH}/status",
        lambda w: w.set_condition(POD, PodCondition("DisruptionTarget", "True", "Why", "", NOON)),
    ),
    "annotate": (POD_PATH, lambda w: w.annotate(POD, "key", "value")),
    "uid_of": (POD_PATH, lambda w: w.uid_of(POD)),
    "evict": (f"{POD_PATH}/eviction", lambda w: w.evict(POD)),
    "delete": (POD_PATH, lambda w: w.delete(POD)),
    "create_event": (
        "/apis/events.k8s.io/v1/namespaces/default/events",
        lambda w: w.create_event(PodEvent(POD, "Normal", "Why", "What", "note", NOON)),
    ),
    "bind": (f"{POD_PATH}/binding", lambda w: w.bind(POD, "node-a")),
    "create_lease": (LEASES, lambda w: w.create_lease(LEASE)),
    "get_lease": (f"{LEASES}/extender", lambda w: w.get_lease("kube-system", "extender")),
    "update_lease": (f"{LEASES}/extender", lambda w: w.update_lease(LEASE)),
}


def declared(seen: Seen) -> tuple[str, str, str, str]:
    """Group, resource, subresource and method of a request in a namespace."""
    parts = seen.path.removeprefix("/").split("/")
    group = "" if parts[0] == "api" else parts[1]
    _, _, resource, *rest = parts[parts.index("namespaces") :]
    return group, resource, rest[1] if len(rest) > 1 else "", seen.method


def test_each_method_of_the_writer_has_its_row() -> None:
    methods = {name for name, _ in inspect.getmembers(Writer, inspect.iscoroutinefunction) if not name.startswith("_")}
    rows = [call.name for call in API_CALLS]
    assert (sorted(methods), sorted(CALLS)) == (sorted(rows), sorted(rows))


@pytest.mark.parametrize("row", API_CALLS, ids=[call.name for call in API_CALLS])
async def test_a_call_makes_the_request_that_its_row_declares(api: ScriptedApi, row: ApiCall) -> None:
    path, call = CALLS[row.name]
    api.script(path, body('{"metadata": {"name": "web", "uid": "uid-web"}}'))
    names: list[str] = []
    async with open_session(Access(host=api.url), FakeClock()) as session:
        writer = Writer(session.writes, "extender", "one", observe=lambda name, *_: names.append(name))
        await call(writer)
    (seen,) = api.requests
    assert declared(seen) == (row.group, row.resource, row.subresource, METHODS[row.verb])
    assert names == ([] if row.name == "uid_of" else [row.name])

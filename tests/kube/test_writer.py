"""What the writer sends, and what the control plane makes of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from extender.kube.credentials import Access
from extender.kube.diagnosis import AccessReviews
from extender.kube.effects import Lease, ObjectEvent, PodCondition, PodRef, PolicyRef
from extender.kube.errors import Conflict, NotFound, Rejected, Throttled, Unreachable
from extender.kube.session import Connection, Session, open_session
from extender.kube.writer import PolicyObjects, Writer, path_of
from extender.model.policies import GROUP, PolicyKey
from extender.simulator.apiserver.kinds import DISRUPTION_BUDGETS, EVENTS, NAMESPACES, NODES, PODS
from extender.simulator.apiserver.server import ApiServer
from extender.wire.api_calls import CREATE_EVENT, MUTATING_WEBHOOKS, NOMINATE, PLACEMENT, ApiCall
from tests.fakes import FakeClock
from tests.kube.scripted import Reply, ScriptedApi, body, status
from tests.simulator import plain

NOON = datetime(2026, 11, 20, 12, 0, 0, 1234, tzinfo=UTC)
POD = PodRef("default", "web", "uid-web")
PATH = "/api/v1/namespaces/default/pods/web"
LEASE = Lease("kube-system", "extender", holder="one", acquire_time=NOON, renew_time=NOON, transitions=3)


@pytest.fixture
async def plane() -> AsyncIterator[ApiServer]:
    """An embedded control plane with a namespace, a node and a pod."""
    async with ApiServer() as server:
        for name in ("default", "kube-system"):
            server.operations.create(NAMESPACES, plain.namespace(name))
        server.operations.create(NODES, plain.node("node-a"))
        server.operations.create(PODS, plain.pod("web", labels={"app": "web"}))
        yield server


@pytest.fixture
async def writer(plane: ApiServer) -> AsyncIterator[Writer]:
    async with open_session(Access(host=plane.url), FakeClock()) as session:
        yield writer_of(session.writes)


def writer_of(calls: Connection) -> Writer:
    return Writer(calls, "placement-extender", "one")


@pytest.fixture
def scripted(session: Session) -> Writer:
    return writer_of(session.writes)


def web(plane: ApiServer) -> dict[str, Any]:
    """The pod as the control plane holds it."""
    return plane.store.find(PODS, "default/web").read()


def ref(plane: ApiServer) -> PodRef:
    """The name and the UID of the pod."""
    return PodRef("default", "web", web(plane)["metadata"]["uid"])


# -- effects --------------------------------------------------------------------------------------------------------


async def test_a_nomination_is_set_and_taken_back(plane: ApiServer, writer: Writer) -> None:
    await writer.nominate(ref(plane), "node-a")
    assert web(plane)["status"]["nominatedNodeName"] == "node-a"
    await writer.nominate(ref(plane), "")
    assert "nominatedNodeName" not in web(plane)["status"]


async def test_conditions_are_merged_by_type(plane: ApiServer, writer: Writer) -> None:
    for number in (1, 2):
        condition = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", f"attempt {number}", NOON)
        await writer.set_condition(ref(plane), condition)
    await writer.set_condition(ref(plane), PodCondition("Other", "False", "Why", "", NOON))
    found = {entry["type"]: entry for entry in web(plane)["status"]["conditions"]}
    assert sorted(found) == ["DisruptionTarget", "Other"]
    assert found["DisruptionTarget"]["message"] == "attempt 2"
    assert found["DisruptionTarget"]["lastTransitionTime"] == "2026-11-20T12:00:00Z"


async def test_an_annotation_is_set_and_removed_beside_others(plane: ApiServer, writer: Writer) -> None:
    await writer.annotate(ref(plane), "example.com/keep", "1")
    await writer.annotate(ref(plane), "example.com/nudge", "2")
    assert web(plane)["metadata"]["annotations"] == {"example.com/keep": "1", "example.com/nudge": "2"}
    await writer.annotate(ref(plane), "example.com/nudge", None)
    assert web(plane)["metadata"]["annotations"] == {"example.com/keep": "1"}
    assert web(plane)["metadata"]["labels"] == {"app": "web"}


async def test_a_pod_is_bound_once(plane: ApiServer, writer: Writer) -> None:
    await writer.bind(ref(plane), "node-a")
    assert web(plane)["spec"]["nodeName"] == "node-a"
    with pytest.raises(Conflict):
        await writer.bind(ref(plane), "node-a")


async def test_the_node_of_a_pod_is_read(plane: ApiServer, writer: Writer) -> None:
    assert await writer.node_of(ref(plane)) == ""
    await writer.bind(ref(plane), "node-a")
    assert await writer.node_of(ref(plane)) == "node-a"
    for absent in (replace(ref(plane), uid="of-an-earlier-one"), replace(ref(plane), name="absent")):
        with pytest.raises(NotFound):
            await writer.node_of(absent)


async def test_a_pod_is_deleted(plane: ApiServer, writer: Writer) -> None:
    await writer.delete(ref(plane), grace_seconds=0)
    assert plane.store.table(PODS).latest() == []
    with pytest.raises(NotFound):
        await writer.delete(POD)


async def test_an_eviction_asks_the_budget(plane: ApiServer, writer: Writer) -> None:
    await writer.bind(ref(plane), "node-a")
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    plane.operations.create(DISRUPTION_BUDGETS, budget)
    with pytest.raises(Throttled) as caught:
        await writer.evict(ref(plane))
    assert caught.value.retry_after > 0
    plane.store.remove(DISRUPTION_BUDGETS, "default/all")
    await writer.evict(ref(plane))


EFFECTS: dict[str, Callable[[Writer, PodRef], Awaitable[None]]] = {
    "nominate": lambda writer, pod: writer.nominate(pod, "node-a"),
    "condition": lambda writer, pod: writer.set_condition(pod, PodCondition("A", "True", "B", "", NOON)),
    "annotate": lambda writer, pod: writer.annotate(pod, "a", "b"),
    "delete": lambda writer, pod: writer.delete(pod),
    "evict": lambda writer, pod: writer.evict(pod),
    "bind": lambda writer, pod: writer.bind(pod, "node-a"),
}


@pytest.mark.parametrize("effect", EFFECTS.values(), ids=EFFECTS)
async def test_no_effect_reaches_a_namesake_or_a_pod_that_does_not_exist(
    plane: ApiServer, writer: Writer, effect: Callable[[Writer, PodRef], Awaitable[None]]
) -> None:
    before = web(plane)
    with pytest.raises(Conflict):
        await effect(writer, PodRef("default", "web", "uid-of-an-earlier-web"))
    with pytest.raises(NotFound):
        await effect(writer, PodRef("default", "absent", "uid"))
    assert web(plane) == before


async def test_an_event_is_recorded_at_the_pod(plane: ApiServer, writer: Writer) -> None:
    await writer.create_event(ObjectEvent(ref(plane), "Warning", "Rejected", "Placing", "ü" * 2000, NOON))
    (found,) = [stored.read() for stored in plane.store.table(EVENTS).latest()]
    assert found["regarding"]["uid"] == ref(plane).uid
    assert (found["reason"], found["type"], found["action"]) == ("Rejected", "Warning", "Placing")
    assert found["eventTime"] == "2026-11-20T12:00:00.001234Z"
    assert len(found["note"].encode()) == 1024


async def test_events_about_policies_are_recorded_in_their_namespace_and_in_default(plane: ApiServer) -> None:
    async with open_session(Access(host=plane.url), FakeClock()) as session:
        policies = PolicyObjects(session.writes, "extender", "one")
        for key in (PolicyKey(GROUP, "kube-system", "apart"), PolicyKey(GROUP, "", "zones")):
            await policies.create_event(
                ObjectEvent(PolicyRef(key, "uid-1"), "Warning", "Invalid", "Validating", "ü" * 2000, NOON)
            )
    found = {stored.key.partition(".")[0]: stored.read() for stored in plane.store.table(EVENTS).latest()}
    assert found.keys() == {"kube-system/apart", "default/zones"}
    about = {"apiVersion": "placement.extender.dev/v1alpha1", "uid": "uid-1"}
    assert found["kube-system/apart"]["regarding"] == {
        **about,
        "kind": "PodSchedulingPolicy",
        "namespace": "kube-system",
        "name": "apart",
    }
    assert found["default/zones"]["regarding"] == {**about, "kind": "ClusterPodSchedulingPolicy", "name": "zones"}
    assert {len(each["note"].encode()) for each in found.values()} == {1024}


# -- leases ---------------------------------------------------------------------------------------------------------


async def test_a_lease_is_made_read_and_replaced(writer: Writer) -> None:
    made = await writer.create_lease(LEASE)
    assert (made.holder, made.renew_time, made.transitions) == ("one", NOON, 3)
    assert await writer.get_lease("kube-system", "extender") == made
    released = Lease("kube-system", "extender", holder="", resource_version=made.resource_version)
    assert (await writer.update_lease(released)).holder == ""


async def test_only_one_of_two_gets_a_lease(writer: Writer) -> None:
    made = await writer.create_lease(LEASE)
    with pytest.raises(Conflict):
        await writer.create_lease(LEASE)
    await writer.update_lease(replace(made, holder="two"))
    with pytest.raises(Conflict):
        await writer.update_lease(replace(made, holder="three"))
    assert (await writer.get_lease("kube-system", "extender")).holder == "two"


async def test_a_lease_that_was_never_created_is_not_found(writer: Writer) -> None:
    with pytest.raises(NotFound):
        await writer.get_lease("kube-system", "extender")


async def test_an_update_keeps_labels_and_writes_utc_whatever_the_zone(api: ScriptedApi, scripted: Writer) -> None:
    answer = '{"metadata": {"name": "extender", "labels": {"team": "x"}, "resourceVersion": "7"}, "spec": null}'
    api.script(LEASE_PATH, body(answer), body(answer))
    found = await scripted.get_lease("kube-system", "extender")
    local = NOON.astimezone(timezone(timedelta(hours=5)))
    await scripted.update_lease(
        Lease(found.namespace or "kube-system", found.name, "me", 15, local, local, 1, "7", found.labels)
    )
    sent = api.requests[1].body
    assert sent["metadata"]["labels"] == {"team": "x"}
    assert sent["metadata"]["resourceVersion"] == "7"
    assert sent["spec"]["renewTime"] == "2026-11-20T12:00:00.001234Z"


LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/extender"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
DEEP = b'{"spec":' + b"[" * 20_000
READS: dict[str, tuple[str, Callable[[Connection], Awaitable[object]], str, list[bytes]]] = {
    "the node of a pod": (
        PATH,
        lambda calls: writer_of(calls).node_of(POD),
        "no pod",
        [b"<html>", b"{}", b'{"metadata":{"uid":7},"spec":{}}'],
    ),
    "the UID of a pod": (PATH, lambda calls: writer_of(calls).uid_of(POD), "pods/web", [b'{"metadata":{"name":7}}']),
    "a Lease": (
        LEASE_PATH,
        lambda calls: writer_of(calls).get_lease("kube-system", "extender"),
        "no Lease",
        [b"<html>", b'{"metadata":{"name":"\xff', DEEP],
    ),
    "a review of an account": (
        REVIEWS,
        lambda calls: AccessReviews(calls).is_allowed("watch", "", "pods", ""),
        "SelfSubjectAccessReview",
        [b"<html>", b'{"status":5}', b'{"status":{"\xff', DEEP.replace(b"spec", b"status")],
    ),
}


@pytest.mark.parametrize(("path", "read", "problem", "answers"), READS.values(), ids=READS)
async def test_an_answer_that_cannot_be_read_is_an_error_of_ours(
    api: ScriptedApi,
    session: Session,
    path: str,
    read: Callable[[Connection], Awaitable[object]],
    problem: str,
    answers: list[bytes],
) -> None:
    for answer in answers:
        api.script(path, body(answer))
        with pytest.raises(Unreachable, match=problem):
            await read(session.writes)


# -- the wire -------------------------------------------------------------------------------------------------------


async def test_each_effect_is_one_request_with_its_own_media_type(api: ScriptedApi, scripted: Writer) -> None:
    api.script(f"{PATH}/status", body("{}"), body("{}"))
    api.script(PATH, body("{}"), body("{}"))
    await scripted.nominate(POD, "node-a")
    await scripted.set_condition(POD, PodCondition("A", "True", "B", "c", NOON))
    await scripted.annotate(POD, "k", "v")
    await scripted.delete(POD)
    assert [(seen.method, seen.headers["Content-Type"]) for seen in api.requests] == [
        ("PATCH", "application/merge-patch+json"),
        ("PATCH", "application/strategic-merge-patch+json"),
        ("PATCH", "application/merge-patch+json"),
        ("DELETE", "application/json"),
    ]
    assert api.requests[0].body == {"metadata": {"uid": "uid-web"}, "status": {"nominatedNodeName": "node-a"}}
    assert api.requests[3].body["preconditions"] == {"uid": "uid-web"}
    assert "gracePeriodSeconds" not in api.requests[3].body


async def test_names_cannot_leave_their_place_in_the_path(api: ScriptedApi, scripted: Writer) -> None:
    for pod in (PodRef("a/b", "c", "u"), PodRef("a", "..", "u"), PodRef("a", "../c", "u")):
        with pytest.raises(Rejected):
            await scripted.delete(pod)
    assert api.requests == []


async def test_nothing_is_tried_twice(api: ScriptedApi, scripted: Writer) -> None:
    """Whether to try again is decided by the loop, which knows what it was for."""
    api.script(PATH, status(500), body("{}"))
    with pytest.raises(Unreachable):
        await scripted.annotate(POD, "k", "v")
    assert len(api.requests) == 1


async def test_a_rejection_keeps_the_server_s_words(api: ScriptedApi, scripted: Writer) -> None:
    api.script(PATH, status(403, 'pods "web" is forbidden', "Forbidden"))
    with pytest.raises(Rejected, match='pods "web" is forbidden'):
        await scripted.delete(POD)


async def test_each_call_is_reported_by_name_with_its_result_and_its_time(plane: ApiServer) -> None:
    calls: list[tuple[str, str, float]] = []
    async with open_session(Access(host=plane.url), FakeClock()) as session:
        writer = Writer(session.writes, "placement-extender", "one", observe=lambda *call: calls.append(call))
        await writer.annotate(ref(plane), "example.com/nudge", "1")
        with pytest.raises(Conflict):
            await writer.nominate(replace(ref(plane), uid="another"), "node-a")
    assert [call[:2] for call in calls] == [("annotate", "ok"), ("nominate", "conflict")]
    assert min(seconds for _, _, seconds in calls) > 0


@pytest.mark.parametrize(
    ("answer", "uid"),
    [
        (body(json.dumps({"metadata": {"name": "web", "namespace": "default", "uid": "uid-new"}})), "uid-new"),
        (status(404), ""),
    ],
    ids=["of the pod that has the name now", "no pod has the name"],
)
async def test_a_pod_s_uid_is_read_afresh(api: ScriptedApi, scripted: Writer, answer: Reply, uid: str) -> None:
    api.script(PATH, answer)
    assert await scripted.uid_of(POD) == uid


BAD = ["", ".", "..", "a/b", "../../nodes/n", "a?b", "a#b", "a%2fb", "a\nb", "A", "-a", "a" * 254, "ä", "a b", "\ud800"]


@pytest.mark.parametrize(
    ("call", "place", "path"),
    [
        (NOMINATE, ("team-a", "web-1.x"), "/api/v1/namespaces/team-a/pods/web-1.x/status"),
        (CREATE_EVENT, ("team-a", None), "/apis/events.k8s.io/v1/namespaces/team-a/events"),
        (PLACEMENT.get, ("a", "b"), "/apis/placement.extender.dev/v1alpha1/namespaces/a/groupplacements/b"),
        (
            MUTATING_WEBHOOKS.get,
            (None, "ours"),
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/ours",
        ),
    ],
)
def test_a_path_is_that_of_its_row(call: ApiCall, place: tuple[str | None, str | None], path: str) -> None:
    assert path_of(call, *place) == path


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_name_is_rejected_wherever_it_stands(name: str) -> None:
    for call, place in ((NOMINATE, (name, "web")), (PLACEMENT.get, ("team-a", name)), (CREATE_EVENT, (name, None))):
        with pytest.raises(Rejected, match="is no name of a"):
            path_of(call, *place)


async def test_the_api_server_says_what_an_account_may_do(api: ScriptedApi, session: Session) -> None:
    api.script(REVIEWS, body('{"status":{"allowed":true}}'), body('{"status":{}}'))
    reviews = AccessReviews(session.reads)
    assert [await reviews.is_allowed("watch", "", "pods", "") for _ in range(2)] == [True, False]

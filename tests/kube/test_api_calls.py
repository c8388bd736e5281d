"""Each call of the writer and of the reader makes the request that its row of ``wire.api_calls`` declares."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import aiohttp
import orjson
import pytest

from extender.kube.byte_stream import translated
from extender.kube.credentials import Access
from extender.kube.effects import Lease, ObjectEvent, PodCondition, PodRef
from extender.kube.errors import (
    Conflict,
    Expired,
    KubeError,
    NotFound,
    OverBudget,
    Rejected,
    Throttled,
    Unreachable,
    error_of,
)
from extender.kube.session import Connection, open_session
from extender.kube.writer import PolicyObjects, ReleaseObjects, WebhookObjects, Writer
from extender.model.group_placements import PlacementStatus
from extender.model.policies import PolicyKey
from extender.model.release import GroupKey
from extender.wire.api_calls import API_CALLS, ENDPOINT, MUTATING_WEBHOOKS, SECRET, VALIDATING_WEBHOOKS
from extender.wire.objects.kinds import GROUP_PLACEMENTS
from extender.wire.policies.group_placements import undecided_body
from tests.fakes import FakeClock
from tests.kube.scripted import RECORDINGS, ScriptedApi, body, declared

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
POD = PodRef("default", "web", "uid-web")
LEASE = Lease("kube-system", "extender", holder="one", acquire_time=NOON, renew_time=NOON)
# The HTTP methods of RBAC's verbs, from https://kubernetes.io/docs/reference/access-authn-authz/authorization/
METHODS = {"create": "POST", "get": "GET", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}
POD_PATH = "/api/v1/namespaces/default/pods/web"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

OBJECT = {"metadata": {"namespace": "kube-system", "name": "tls"}}
WEBHOOKS = {"metadata": {"name": "ours"}}
POLICIES = "/apis/placement.extender.dev/v1alpha1"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"

NAMESPACED = PolicyKey("placement.extender.dev", "default", "one")
CLUSTER_WIDE = NAMESPACED._replace(namespace="")
PLACEMENT_BODY = undecided_body(GroupKey("default", "PodSchedulingPolicy/default/gang", "job-1"), "a.example/gate", 2)
PLACEMENT = GROUP_PLACEMENTS.decode_object(orjson.dumps(PLACEMENT_BODY))
PLACEMENTS = f"{POLICIES}/namespaces/default/groupplacements"


class Clients:
    """Each client that makes calls of the table, and the names of the calls that they observed."""

    def __init__(self, calls: Connection) -> None:
        self.observed: list[str] = []
        self.pods = Writer(calls, "extender", "one", observe=self._observe)
        self.policies = PolicyObjects(calls, "extender", "one", observe=self._observe)
        self.release = ReleaseObjects(calls, observe=self._observe)
        self.objects = WebhookObjects(calls, observe=self._observe)

    def _observe(self, name: str, *_: object) -> None:
        self.observed.append(name)


CALLS: dict[str, tuple[str, Callable[[Clients], Awaitable[object]]]] = {
    "nominate": (f"{POD_PATH}/status", lambda c: c.pods.nominate(POD, "node-a")),
    "set_condition": (
        f"{POD_PATH}/status",
        lambda c: c.pods.set_condition(POD, PodCondition("DisruptionTarget", "True", "Why", "", NOON)),
    ),
    "annotate": (POD_PATH, lambda c: c.pods.annotate(POD, "key", "value")),
    "set_deletion_cost": (POD_PATH, lambda c: c.pods.set_deletion_cost(POD, "-1")),
    "uid_of": (POD_PATH, lambda c: c.pods.uid_of(POD)),
    "evict": (f"{POD_PATH}/eviction", lambda c: c.pods.evict(POD)),
    "delete": (POD_PATH, lambda c: c.pods.delete(POD)),
    "create_event": (
        "/apis/events.k8s.io/v1/namespaces/default/events",
        lambda c: c.pods.create_event(ObjectEvent(POD, "Normal", "Why", "What", "note", NOON)),
    ),
    "bind": (f"{POD_PATH}/binding", lambda c: c.pods.bind(POD, "node-a")),
    "node_of": (POD_PATH, lambda c: c.pods.node_of(POD)),
    "create_lease": (LEASES, lambda c: c.pods.create_lease(LEASE)),
    "get_lease": (f"{LEASES}/extender", lambda c: c.pods.get_lease("kube-system", "extender")),
    "update_lease": (f"{LEASES}/extender", lambda c: c.pods.update_lease(LEASE)),
    "get_secret": (f"{SECRETS}/tls", lambda c: c.objects.get(SECRET, "kube-system", "tls")),
    "update_secret": (f"{SECRETS}/tls", lambda c: c.objects.update(SECRET, OBJECT)),
    "get_endpoint": (f"{SLICES}/one", lambda c: c.objects.get(ENDPOINT, "kube-system", "one")),
    "create_endpoint": (SLICES, lambda c: c.objects.create(ENDPOINT, OBJECT)),
    "update_endpoint": (f"{SLICES}/tls", lambda c: c.objects.update(ENDPOINT, OBJECT)),
    "delete_endpoint": (f"{SLICES}/one", lambda c: c.objects.delete_endpoint("kube-system", "one")),
    "create_secret": (SECRETS, lambda c: c.objects.create(SECRET, OBJECT)),
    "create_mutating_webhooks": (MUTATING, lambda c: c.objects.create(MUTATING_WEBHOOKS, WEBHOOKS)),
    "create_validating_webhooks": (VALIDATING, lambda c: c.objects.create(VALIDATING_WEBHOOKS, WEBHOOKS)),
    "get_mutating_webhooks": (f"{MUTATING}/ours", lambda c: c.objects.get(MUTATING_WEBHOOKS, None, "ours")),
    "update_mutating_webhooks": (f"{MUTATING}/ours", lambda c: c.objects.update(MUTATING_WEBHOOKS, WEBHOOKS)),
    "get_validating_webhooks": (f"{VALIDATING}/ours", lambda c: c.objects.get(VALIDATING_WEBHOOKS, None, "ours")),
    "update_validating_webhooks": (f"{VALIDATING}/ours", lambda c: c.objects.update(VALIDATING_WEBHOOKS, WEBHOOKS)),
    "get_policy": (
        f"{POLICIES}/namespaces/default/podschedulingpolicies/one",
        lambda c: c.policies.get_policy(NAMESPACED),
    ),
    "get_cluster_policy": (
        f"{POLICIES}/clusterpodschedulingpolicies/one",
        lambda c: c.policies.get_policy(CLUSTER_WIDE),
    ),
    "patch_policy_status": (
        f"{POLICIES}/namespaces/default/podschedulingpolicies/one/status",
        lambda c: c.policies.patch_policy_status(NAMESPACED, "uid", {}),
    ),
    "patch_cluster_policy_status": (
        f"{POLICIES}/clusterpodschedulingpolicies/one/status",
        lambda c: c.policies.patch_policy_status(CLUSTER_WIDE, "uid", {}),
    ),
    "read_pod": (POD_PATH, lambda c: c.pods.read_pod(POD)),
    "get_pod": (POD_PATH, lambda c: c.release.get_pod(POD)),
    "release_pod": (POD_PATH, lambda c: c.release.release_pod(POD, {"metadata": {"uid": POD.uid}})),
    "get_placement": (f"{PLACEMENTS}/{PLACEMENT.name}", lambda c: c.release.get_placement("default", PLACEMENT.name)),
    "create_placement": (PLACEMENTS, lambda c: c.release.create_placement(PLACEMENT_BODY)),
    "update_placement": (f"{PLACEMENTS}/{PLACEMENT.name}", lambda c: c.release.update_placement(PLACEMENT_BODY)),
    "delete_placement": (f"{PLACEMENTS}/{PLACEMENT.name}", lambda c: c.release.delete_placement(PLACEMENT)),
    "patch_placement_status": (
        f"{PLACEMENTS}/{PLACEMENT.name}/status",
        lambda c: c.release.patch_placement_status(PLACEMENT, PlacementStatus(), NOON),
    ),
}


def methods_of(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction) if not name.startswith("_")}


def test_each_method_has_its_row() -> None:
    assert {call.name for call in API_CALLS} == set(CALLS)
    assert len(API_CALLS) == len(CALLS)
    assert methods_of(Writer) | methods_of(ReleaseObjects) | methods_of(PolicyObjects) <= set(CALLS)
    assert methods_of(WebhookObjects) == {"get", "update", "create", "delete_endpoint"}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_makes_the_request_that_its_row_declares(api: ScriptedApi, name: str) -> None:
    (row,) = (call for call in API_CALLS if call.name == name)
    path, call = CALLS[name]
    api.script(path, body('{"metadata": {"name": "web", "uid": "uid-web"}, "spec": {}}'))
    async with open_session(Access(host=api.url), FakeClock()) as session:
        clients = Clients(session.writes)
        await call(clients)
    (seen,) = api.requests
    assert declared(seen) == (row.group, row.resource, row.subresource, METHODS[row.verb])
    assert clients.observed == ([] if name == "uid_of" else [name])


# -- The map from answers and exceptions to our few errors -------------------------------------------------------------


STATUSES: dict[type[KubeError], list[int]] = {
    Rejected: [400, 401, 403, 405, 413, 415, 422],
    NotFound: [404],
    Conflict: [409],
    Expired: [410],
    Throttled: [429, 503],
    Unreachable: [302, 500, 502, 504],
}


@pytest.mark.parametrize("expected", STATUSES)
def test_each_status_has_its_error(expected: type[KubeError]) -> None:
    errors = [error_of(status, {}, b"") for status in STATUSES[expected]]
    assert [(type(error), error.status) for error in errors] == [(expected, status) for status in STATUSES[expected]]


@pytest.mark.parametrize(
    ("causes", "expected"),
    [([{"reason": "DisruptionBudget", "message": "needs 6"}], OverBudget), ([{}], Throttled), (None, Throttled)],
)
def test_an_eviction_that_a_budget_forbids_is_reported_from_a_busy_apiserver(
    causes: list[dict[str, str]] | None, expected: type[KubeError]
) -> None:
    body = {"kind": "Status", "reason": "TooManyRequests", "details": {"causes": causes, "retryAfterSeconds": 10}}
    error = error_of(429, {}, json.dumps(body).encode())
    assert (type(error), error.retry_after) == (expected, 10.0)


@pytest.mark.parametrize(
    ("name", "expected", "reason", "retry_after"),
    [
        ("list-continue", Expired, "Expired", 0.0),
        ("list-exact", Expired, "Expired", 0.0),
        ("list-future", Unreachable, "Timeout", 1.0),
        ("watch-bad-rv", Unreachable, "", 0.0),
        ("watchlist-without-match", Rejected, "Invalid", 0.0),
    ],
)
def test_recorded_errors_keep_their_reason_and_text(
    name: str, expected: type[KubeError], reason: str, retry_after: float
) -> None:
    found = json.loads((RECORDINGS / f"error-{name}.json").read_text())
    error = error_of(found["status"], {}, json.dumps(found["body"]).encode())
    assert (type(error), error.reason, error.retry_after) == (expected, reason, retry_after)
    assert found["body"]["message"][:60] in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0", 1.0), ("", 1.0), ("-5", 1.0), ("99999999", 60.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0)],
)
def test_retry_after_is_a_number_of_seconds_within_reason(header: str, seconds: float) -> None:
    assert error_of(429, {"Retry-After": header}, b"").retry_after == seconds


def test_a_patch_for_an_earlier_pod_of_the_name_is_a_conflict_in_either_form() -> None:
    body = json.dumps({"message": 'Pod "a" is invalid: metadata.uid: Invalid value: "x": field is immutable'})
    assert type(error_of(422, {}, body.encode())) is Conflict


def test_a_page_of_html_does_not_fill_the_log() -> None:
    assert len(str(error_of(502, {}, b"<html>" + b"x" * 100_000))) < 600


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (aiohttp.ServerDisconnectedError(), Unreachable),
        (aiohttp.ClientPayloadError("cut"), Unreachable),
        (aiohttp.ServerTimeoutError(), Unreachable),
        (TimeoutError(), Unreachable),
        (ConnectionResetError(), Unreachable),
        (Conflict("kept"), Conflict),
    ],
)
def test_what_the_client_raises_leaves_as_ours(raised: Exception, expected: type[KubeError]) -> None:
    with pytest.raises(expected) as caught, translated("GET /x"):
        raise raised
    assert str(caught.value)


def test_cancellation_passes_through() -> None:
    with pytest.raises(asyncio.CancelledError), translated("GET /x"):
        raise asyncio.CancelledError

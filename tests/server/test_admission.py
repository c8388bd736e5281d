"""The admission webhook over HTTP: what is answered, what makes the API server follow its failure policy, what is counted."""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from extender.model.policies import JsonObject
from extender.model.units import Address, Duration
from extender.server.admission import (
    MAX_BODY_BYTES,
    AdmissionService,
    admitting,
    decode_review,
)
from extender.server.failures import Failure
from extender.settings.connections import Server
from extender.settings.policies import Webhook
from extender.telemetry.metrics import Metrics, read_page
from extender.verbs.admit.policy_reviews import MAX_POLICY_BYTES
from tests.fakes import running
from tests.server.raw import wire
from tests.server.serving import Decisions, Switch

REVIEW: JsonObject = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "object": {"spec": {}}},
}


@dataclass
class Scene:
    """The webhook and what stands behind it."""

    url: str
    service: AdmissionService
    decisions: Decisions
    state: Switch
    metrics: Metrics

    def count(self, webhook: str, result: str, kind: str = "Pod") -> float:
        labels = {"webhook": webhook, "kind": kind, "result": result}
        return self.read("extender_admission_reviews_total", labels)

    def read(self, name: str, labels: Mapping[str, str]) -> float:
        """The value of a series, 0 where there is none."""
        page = read_page(self.metrics.render().decode())
        return next((value for found, of, value in page if (found, of) == (name, labels)), 0.0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A webhook on a free port, without TLS."""
    metrics, decisions = Metrics("1"), Decisions()
    state = Switch({"policies": "", "webhook certificate": ""})
    service = AdmissionService(decisions.decide, state, metrics.admission(), Server(), Webhook())
    async with admitting(service, Address("127.0.0.1:0"), None) as url:
        yield Scene(url, service, decisions, state, metrics)


async def post(scene: Scene, body: Any, path: str = "/mutate", **options: Any) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    async with (
        aiohttp.ClientSession(scene.url) as session,
        session.post(path, data=io.BytesIO(data), **options) as answer,
    ):
        return answer.status, orjson.loads(await answer.read())


async def test_a_review_is_answered_by_the_decision_and_counted_by_its_path(scene: Scene) -> None:
    for path, response in (
        ("/mutate", {"allowed": True, "patchType": "JSONPatch", "patch": "W10="}),
        ("/validate", {"allowed": False, "status": {"code": 422, "message": "spec.when: no"}}),
    ):
        scene.decisions.response = response
        status, answer = await post(scene, REVIEW, path)
        assert (status, answer["response"]) == (200, {"uid": "u-1", **response})
    assert scene.decisions.seen == [REVIEW, REVIEW]
    assert (scene.count("mutate", "patched"), scene.count("validate", "denied")) == (1, 1)


async def test_a_review_that_changes_nothing_is_counted_as_allowed(scene: Scene) -> None:
    await post(scene, REVIEW)
    assert scene.count("mutate", "allowed") == 1


async def test_kinds_of_custom_resources_share_one_label(scene: Scene) -> None:
    for kind in ("Rollout", "A" * 5000, ["no", "text"]):
        await post(scene, {**REVIEW, "request": {"uid": "u", "kind": {"kind": kind}}})
    assert scene.count("mutate", "allowed", "other") == 3


LARGE = "x" * 300_000
MALFORMED: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "no JSON"),
    "not UTF-8": (b'"\xff"', "no JSON"),
    "too deep": (b"[" * 5000, "no JSON"),
    "empty": (b"", "no JSON"),
    "a list": ([], "expected an object of kind AdmissionReview"),
    "another kind": ({**REVIEW, "kind": "Pod"}, "expected an object of kind AdmissionReview"),
    "an old version": (
        {**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"},
        "apiVersion: expected admission.k8s.io/v1",
    ),
    "no request": ({**REVIEW, "request": None}, "request.uid: is missing"),
    "no uid": ({**REVIEW, "request": {"uid": 5}}, "request.uid: is missing"),
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_a_body_that_is_no_review_is_an_error(scene: Scene, case: str) -> None:
    body, problem = MALFORMED[case]
    status, answer = await post(scene, body)
    assert status == 400
    assert problem in answer["error"]
    assert scene.count("mutate", "malformed", "other") == 1
    assert scene.decisions.seen == []


@pytest.mark.parametrize("case", [case for case, (body, _) in MALFORMED.items() if isinstance(body, dict)])
async def test_a_large_body_that_is_no_review_gets_the_same_error(scene: Scene, case: str) -> None:
    body, problem = MALFORMED[case]
    status, answer = await post(scene, {**body, "more": LARGE})
    assert (status, problem in answer["error"]) == (400, True)


@pytest.mark.parametrize("broken", [b'{"object": "\xff"}', b'{"uid": "u-1", "object": "\\ud800"}', b'{"uid": "u-1"'])
async def test_a_large_body_that_is_no_json_gets_an_error(broken: bytes) -> None:
    body = b'{"apiVersion": "admission.k8s.io/v1", "more": "%s", "kind": "AdmissionReview", "request": %s}'
    with pytest.raises(Failure, match="no JSON"):
        await decode_review(body % (b"x" * len(LARGE), broken))


POLICY: JsonObject = {"group": "placement.extender.dev", "version": "v1alpha1", "kind": "PodPolicy"}
TOO_LARGE: JsonObject = {"spec": "x" * MAX_POLICY_BYTES}


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        pytest.param({"object": TOO_LARGE}, "denied", id="a new policy"),
        pytest.param({"object": TOO_LARGE, "oldObject": {}}, "denied", id="a policy that has grown"),
        pytest.param({"object": TOO_LARGE, "oldObject": TOO_LARGE}, "allowed", id="etcd has stored it before"),
        pytest.param({"object": {"spec": LARGE}}, "allowed", id="etcd can store it"),
        pytest.param({"object": TOO_LARGE, "kind": {"kind": "Pod"}}, "allowed", id="a pod"),
    ],
)
async def test_a_policy_that_etcd_cannot_store_is_denied_before_it_is_decoded(
    scene: Scene, fields: JsonObject, result: str
) -> None:
    status, answer = await post(scene, {**REVIEW, "request": {"uid": "u-1", "kind": POLICY, **fields}}, "/validate")
    assert (status, answer["response"]["uid"]) == (200, "u-1")
    if result == "denied":
        size = len(orjson.dumps(TOO_LARGE))
        text = f"the policy has {size} bytes; etcd stores at most 1572864 bytes of an object"
        denial = {"code": 413, "reason": "RequestEntityTooLarge", "message": text, "status": "Failure"}
        assert (answer["response"]["allowed"], answer["response"]["status"]) == (False, denial)
    assert scene.count("validate", result, "Pod" if "kind" in fields else "other") == 1
    assert len(scene.decisions.seen) == (result == "allowed")


async def test_large_objects_of_a_review_are_decoded_one_by_one() -> None:
    """Each takes 35 ms for 3 MB. Other requests are answered in between."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    review = {**REVIEW, "request": {**REVIEW["request"], "object": {"a": LARGE}, "oldObject": {"b": LARGE}}}
    async with running(count):
        await asyncio.sleep(0)
        before = turns
        assert await decode_review(orjson.dumps(review)) == review
    assert turns - before == 2


async def test_an_object_of_3_mb_beside_its_old_version_is_read(scene: Scene) -> None:
    large = {"data": "x" * 3_000_000}
    status, _ = await post(scene, {**REVIEW, "request": {**REVIEW["request"], "object": large, "oldObject": large}})
    assert status == 200


async def test_a_body_above_the_limit_is_rejected_before_it_is_sent(scene: Scene) -> None:
    async with wire(scene.url) as connection:
        await connection.send(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
        assert await connection.status() == 413
    assert scene.count("mutate", "malformed", "other") == 1


async def test_a_compressed_body_is_rejected(scene: Scene) -> None:
    body = gzip.compress(orjson.dumps(REVIEW))
    status, answer = await post(scene, body, headers={"Content-Encoding": "gzip"})
    assert (status, answer["error"]) == (415, 'request bodies must not be compressed (Content-Encoding "gzip")')
    assert scene.count("mutate", "malformed", "other") == 1


async def test_a_review_that_does_not_arrive_is_given_up_before_the_api_server_does(scene: Scene) -> None:
    scene.service.webhook = Webhook(timeout=Duration(1))
    async with wire(scene.url) as connection:
        await connection.send(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert await connection.status() == 408
    assert b"within 0.8 s, 80% of policies.webhook.timeout" in connection.body
    assert scene.count("mutate", "deadline", "other") == 1


async def test_before_the_policies_are_known_nothing_is_decided(scene: Scene) -> None:
    scene.state.missing["policies"] = "0 of 2 kinds are listed"
    status, answer = await post(scene, REVIEW)
    assert (status, answer["error"]) == (503, "not ready: policies; /readyz?verbose lists the checks")
    assert scene.decisions.seen == []
    assert scene.count("mutate", "not_ready", "other") == 1


async def test_readiness_names_what_is_missing(scene: Scene) -> None:
    async with aiohttp.ClientSession(scene.url) as session:
        async with session.get("/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")
        scene.state.missing["webhook certificate"] = "expired"
        async with session.get("/readyz") as answer:
            assert answer.status == 503
            assert "[-]webhook certificate failed: expired" in await answer.text()
        async with session.get("/livez") as answer:
            assert answer.status == 200


async def test_a_decision_that_raises_is_an_error_and_the_next_one_is_made(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.decisions.problem = ValueError("of a rule")
    status, answer = await post(scene, REVIEW)
    assert (status, answer) == (500, {"error": "the extender failed on this request; see its log"})
    assert scene.count("mutate", "failed") == 1
    assert "of a rule" in "".join(str(record.exc_info) for record in caplog.records if record.levelno == logging.ERROR)
    scene.decisions.problem = None
    assert (await post(scene, REVIEW))[0] == 200


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/mutate", 405), ("POST", "/webhook", 404)])
async def test_other_requests_get_an_answer(scene: Scene, method: str, path: str, status: int) -> None:
    async with aiohttp.ClientSession(scene.url) as session, session.request(method, path, json=REVIEW) as answer:
        assert answer.status == status
        assert "error" in await answer.json()


async def test_a_replica_that_stops_answers_and_closes_each_connection_so_that_the_next_goes_elsewhere(
    scene: Scene,
) -> None:
    """The API server keeps connections open, and would go on to use those to a pod that has left the Service."""
    scene.service.is_draining = True
    trusting = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=trusting) as session:
        async with session.post(f"{scene.url}/mutate", json=REVIEW) as answer:
            assert answer.status == 200
            assert (await answer.json())["response"]["allowed"]
            assert answer.headers["Connection"] == "close"
        async with session.get(f"{scene.url}/readyz") as answer:
            assert answer.status == 503
            assert "[-]shutdown failed: the service is stopping" in await answer.text()


async def test_the_time_of_each_review_is_observed(scene: Scene) -> None:
    await post(scene, REVIEW)
    await post(scene, b"{")
    assert scene.read("extender_admission_duration_seconds_count", {"webhook": "mutate"}) == 2

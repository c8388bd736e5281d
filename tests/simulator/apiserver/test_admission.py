"""Admission webhooks of the embedded API server: which writes they see, what they change, and what happens without them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from extender.certificates.authority import SERVER, Authority
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, PODS, VALIDATING_WEBHOOKS
from extender.simulator.apiserver.server import ApiServer
from extender.simulator.json_objects import JsonObject
from tests.builders import requirement
from tests.pki import serving
from tests.simulator.client import NAMESPACES, Client
from tests.simulator.plain import namespace, pod
from tests.simulator.webhook import Webhook, configuration, entry, patching, webhook

DEFAULT = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/placement.extender.dev/v1alpha1"


@pytest.fixture
async def hook() -> AsyncIterator[Webhook]:
    """A webhook that lets everything pass, until the test says otherwise."""
    async with webhook() as found:
        yield found


def register(api: ApiServer, *webhooks: JsonObject, name: str = "one", kind: str = "Mutating") -> None:
    which = MUTATING_WEBHOOKS if kind == "Mutating" else VALIDATING_WEBHOOKS
    api.operations.create(which, configuration(name, *webhooks, kind=kind))


def rule(resource: str, **fields: Any) -> JsonObject:
    """All operations on a resource of the core group."""
    return {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource], **fields}


NAME = "kubernetes.io/metadata.name"
EVERYTHING = rule("*", apiGroups=["*"], apiVersions=["*"])


def add(path: str, value: Any) -> JsonObject:
    """A step of a JSON patch."""
    return {"op": "add", "path": path, "value": value}


async def test_a_created_pod_is_stored_as_the_webhook_patched_it(client: Client, api: ApiServer, hook: Webhook) -> None:
    register(api, entry(hook))
    hook.respond = patching(
        {"op": "test", "path": "/spec/schedulerName", "value": "default-scheduler"},
        {"op": "replace", "path": "/spec/schedulerName", "value": "ours"},
    )
    requested = pod("a")
    del requested["status"]
    code, made = await client.post(DEFAULT, requested)
    assert (code, made["spec"]["schedulerName"]) == (201, "ours")
    (request,) = hook.requests
    assert (request["namespace"], request["operation"], request["oldObject"]) == ("default", "CREATE", None)
    assert request["object"]["metadata"]["namespace"] == "default"
    assert "status" not in request["object"], "it is not stored yet"


async def test_an_update_and_a_patch_show_the_old_object_beside_the_new(
    client: Client, api: ApiServer, hook: Webhook
) -> None:
    await client.post(DEFAULT, pod("a"))
    register(api, entry(hook))
    await client.patch(f"{DEFAULT}/a", {"metadata": {"labels": {"app": "web"}}})
    _, found = await client.get(f"{DEFAULT}/a")
    await client.request("PUT", f"{DEFAULT}/a", {**found, "metadata": {**found["metadata"], "labels": {"app": "db"}}})
    assert [request["operation"] for request in hook.requests] == ["UPDATE", "UPDATE"]
    labels = [
        (each["oldObject"]["metadata"].get("labels"), each["object"]["metadata"]["labels"]) for each in hook.requests
    ]
    assert labels == [({}, {"app": "web"}), ({"app": "web"}, {"app": "db"})]


async def test_subresources_and_deletions_are_not_sent(client: Client, api: ApiServer, hook: Webhook) -> None:
    await client.post(DEFAULT, pod("a"))
    register(api, entry(hook))
    await client.patch(f"{DEFAULT}/a/status", {"status": {"nominatedNodeName": "n"}})
    await client.request("DELETE", f"{DEFAULT}/a")
    assert hook.requests == []


@pytest.mark.parametrize(
    ("fields", "is_called"),
    [
        ({}, True),
        ({"namespaceSelector": {"matchLabels": {NAME: "default"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [requirement(NAME, "NotIn", ["default"])]}}, False),
        ({"objectSelector": {"matchLabels": {"app": "web"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "db"}}}, False),
        ({"rules": [EVERYTHING]}, True),
        ({"rules": [rule("pods", operations=["UPDATE"])]}, False),
        ({"rules": [rule("pods", apiGroups=["apps"])]}, False),
        ({"rules": [rule("pods", scope="Cluster")]}, False),
    ],
)
async def test_rules_and_selectors_say_what_is_sent(
    client: Client, api: ApiServer, hook: Webhook, fields: JsonObject, *, is_called: bool
) -> None:
    register(api, entry(hook, **fields))
    await client.post(DEFAULT, pod("a", labels={"app": "web"}))
    assert bool(hook.requests) is is_called


async def test_a_namespace_is_selected_by_its_own_labels(client: Client, api: ApiServer, hook: Webhook) -> None:
    register(api, entry(hook, rules=[rule("namespaces")], namespaceSelector={"matchLabels": {"team": "a"}}))
    await client.post(NAMESPACES, namespace("b"))
    assert hook.requests == []
    await client.post(NAMESPACES, namespace("a", team="a"))
    assert hook.operations == [("CREATE", "Namespace")]


async def test_a_denial_reaches_the_client_with_its_code(client: Client, api: ApiServer, hook: Webhook) -> None:
    register(api, entry(hook), kind="Validating")
    hook.respond = lambda _: {
        "allowed": False,
        "status": {"code": 422, "reason": "Invalid", "message": "spec.when: no"},
    }
    code, answer = await client.post(DEFAULT, pod("a"))
    assert (code, answer["reason"]) == (422, "Invalid")
    assert answer["message"] == 'admission webhook "one.example.com" denied the request: spec.when: no'
    hook.respond = lambda _: {"allowed": False}
    assert (await client.post(DEFAULT, pod("a")))[0] == 403
    assert not api.store.table(PODS).objects


async def test_validating_webhooks_see_what_the_mutating_ones_made(
    client: Client, api: ApiServer, hook: Webhook
) -> None:
    async with webhook(patching(add("/metadata/labels", {"from": "webhook"}))) as first:
        register(api, entry(first))
        register(api, entry(hook), kind="Validating")
        await client.post(DEFAULT, pod("a"))
    assert hook.requests[0]["object"]["metadata"]["labels"] == {"from": "webhook"}


@pytest.mark.parametrize(
    ("policies", "labels"),
    [(("IfNeeded", "Never"), [None, {"by": "second"}]), (("Never", "IfNeeded"), [None])],
    ids=["a later one changed the object", "without the policy, or without a change"],
)
async def test_a_webhook_is_called_again_by_its_policy(
    client: Client, api: ApiServer, policies: tuple[str, str], labels: list[JsonObject | None]
) -> None:
    async with webhook() as first, webhook(patching(add("/metadata/labels", {"by": "second"}))) as second:
        pair = zip((first, second), ("one.example.com", "two.example.com"), policies, strict=True)
        register(api, *(entry(found, name, reinvocationPolicy=policy) for found, name, policy in pair))
        await client.post(DEFAULT, pod("a"))
        shown = [request["object"]["metadata"].get("labels") or None for request in first.requests]
        assert (shown, len(second.requests)) == (labels, 1)


@pytest.mark.parametrize(("policy", "code"), [("Ignore", 201), ("Fail", 500)])
async def test_without_an_answer_the_failure_policy_decides(
    client: Client, api: ApiServer, hook: Webhook, policy: str, code: int
) -> None:
    hook.delay = 30.0
    register(api, entry(hook, failurePolicy=policy, timeoutSeconds=0.05))
    answered, body = await client.post(DEFAULT, pod("a"))
    assert answered == code
    assert api.admission.failed_open == (1 if policy == "Ignore" else 0)
    if policy == "Fail":
        assert (
            'failed calling webhook "one.example.com": failed to call webhook: context deadline exceeded'
            in body["message"]
        )


async def test_an_answer_to_another_review_is_none(client: Client, api: ApiServer, hook: Webhook) -> None:
    hook.respond = lambda _: {"uid": "another", "allowed": True}
    register(api, entry(hook))
    assert (await client.post(DEFAULT, pod("a")))[0] == 500


async def test_a_patch_that_does_not_apply_fails_the_write_whatever_the_policy(
    client: Client, api: ApiServer, hook: Webhook
) -> None:
    hook.respond = patching({"op": "test", "path": "/spec/schedulerName", "value": "another"})
    register(api, entry(hook, failurePolicy="Ignore"))
    code, answer = await client.post(DEFAULT, pod("a"))
    assert code == 500
    assert "does not apply" in answer["message"]


async def test_a_patch_is_applied_again_to_what_was_changed_in_between(
    client: Client, api: ApiServer, hook: Webhook
) -> None:
    await client.post(DEFAULT, pod("a"))
    register(api, entry(hook))
    others = [{"first": "1"}]

    def change_first(_request: JsonObject) -> JsonObject:
        if others:
            labels = others.pop()
            api.operations.change(PODS, "default/a", lambda obj: obj["metadata"].update(labels=labels))
        return {"allowed": True}

    hook.respond = change_first
    code, made = await client.patch(f"{DEFAULT}/a", {"metadata": {"labels": {"second": "2"}}})
    assert (code, made["metadata"]["labels"]) == (200, {"first": "1", "second": "2"})


async def test_a_service_is_called_by_its_name_and_trusted_by_the_bundle(
    client: Client, api: ApiServer, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority, other = Authority.make("one", now, 1), Authority.make("two", now, 1)
    pair = authority.issue("webhook", now, 1, SERVER, ["webhook.ours.svc"])

    def trusting(*authorities: Authority) -> JsonObject:
        bundle = b"".join(each.pair.certificate_pem for each in authorities)
        found = entry(None)
        return {**found, "clientConfig": {**found["clientConfig"], "caBundle": base64.b64encode(bundle).decode()}}

    async with webhook(tls=serving(tmp_path, pair)) as found:
        register(api, trusting(other))
        assert (await client.post(DEFAULT, pod("a")))[0] == 500, "the service has no known address"
        api.admission.services["ours", "webhook"] = ("127.0.0.1", int(found.url.rpartition(":")[2].strip("/")))
        assert (await client.post(DEFAULT, pod("a")))[0] == 500, "signed by another authority"
        api.operations.change(MUTATING_WEBHOOKS, "one", lambda obj: obj.update(webhooks=[trusting(other, authority)]))
        assert (await client.post(DEFAULT, pod("a")))[0] == 201


async def test_webhook_configurations_are_never_sent_to_webhooks(client: Client, api: ApiServer, hook: Webhook) -> None:
    register(api, entry(hook, rules=[EVERYTHING]))
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/one"
    assert (await client.patch(path, {"metadata": {"labels": {"a": "b"}}}))[0] == 200
    assert hook.requests == []


async def test_policies_are_served_with_their_status_apart(client: Client) -> None:
    policy = {"metadata": {"name": "one"}, "spec": {"podSelector": {}}, "status": {"matchedPods": 3}}
    path = f"{POLICIES}/namespaces/default/podschedulingpolicies"
    code, made = await client.post(path, policy)
    assert (code, made["kind"], made["metadata"]["generation"]) == (201, "PodSchedulingPolicy", 1)
    await client.patch(f"{path}/one", {"status": {"matchedPods": 5}})
    assert (await client.get(f"{path}/one"))[1].get("status") != {"matchedPods": 5}
    await client.patch(f"{path}/one/status", {"status": {"matchedPods": 7}})
    assert (await client.get(f"{path}/one"))[1]["status"] == {"matchedPods": 7}
    code, _ = await client.post(f"{POLICIES}/clusterpodschedulingpolicies", policy)
    assert code == 201

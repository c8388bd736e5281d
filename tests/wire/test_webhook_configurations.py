"""What the webhook configurations must say under given settings, and when those of a cluster differ."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from extender.settings.policies import Policies, Webhook
from extender.wire.webhook_configurations import (
    WebhookTarget,
    differs,
    merged,
    mutating_webhooks,
    plural_of,
    target_of,
    validating_webhooks,
)

TARGET = WebhookTarget(service="webhook", namespace="ours")


def mutating(
    policies: Policies | None = None, bundle: bytes | None = b"authority", own: str = "ours"
) -> dict[str, Any]:
    (found,) = mutating_webhooks((policies or Policies()).exempting(own), TARGET, bundle)
    return found


def rule_of(webhook: dict[str, Any], resource: str) -> dict[str, Any]:
    (found,) = [rule for rule in webhook["rules"] if resource in rule["resources"]]
    return dict(found)


def test_the_extender_is_reached_by_its_service_or_by_a_url() -> None:
    assert target_of(Policies(), "here") == WebhookTarget(service="placement-extender-webhook", namespace="here")
    elsewhere = Policies(webhook=Webhook(service_namespace="there"))
    assert target_of(elsewhere, "here").namespace == "there"
    by_url = target_of(Policies(webhook=Webhook(url="https://10.0.0.7:9443/")), "here")
    assert by_url.client_config("/mutate", b"ca") == {
        "url": "https://10.0.0.7:9443/mutate",
        "caBundle": base64.b64encode(b"ca").decode(),
    }


def test_pods_and_jobs_are_sent_when_they_are_created_only() -> None:
    for resource in ("pods", "jobs"):
        assert rule_of(mutating(), resource)["operations"] == ["CREATE"]
    for resource in ("deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers", "cronjobs"):
        assert rule_of(mutating(), resource)["operations"] == ["CREATE", "UPDATE"]


def test_custom_resources_with_a_template_are_sent() -> None:
    templates = {"jobset.x-k8s.io/v1alpha2/JobSet": "/spec/template", "example.com/v1/Policy": "/spec/pod"}
    found = mutating(Policies(templates=templates))
    assert rule_of(found, "jobsets")["apiGroups"] == ["jobset.x-k8s.io"]
    assert rule_of(found, "policies")["apiVersions"] == ["v1"]
    assert not [rule for rule in found["rules"] if "rollouts" in rule["resources"]]


def test_exempt_namespaces_and_the_own_one_are_never_sent() -> None:
    found = mutating(Policies(exempt_namespaces=("kube-system", "gatekeeper")))
    assert found["namespaceSelector"] == {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["gatekeeper", "kube-system", "ours"]}
        ]
    }
    assert mutating(Policies(exempt_namespaces=()), own="")["namespaceSelector"] == {}


def test_kupids_policies_are_validated_where_they_are_read() -> None:
    for kupid, groups in (
        (False, ["placement.extender.dev"]),
        (True, ["placement.extender.dev", "kupid.gardener.cloud"]),
    ):
        (found,) = validating_webhooks(Policies(kupid=kupid), TARGET, b"ca")
        assert [rule["apiGroups"][0] for rule in found["rules"]] == groups


def test_the_settings_decide_timeout_and_failure_policy_of_the_mutating_webhook() -> None:
    settings = msgspec.convert(
        {"timeout": 7.0, "failurePolicy": "Fail"}, Webhook, dec_hook=lambda kind, value: kind(value)
    )
    found = mutating(Policies(webhook=settings))
    assert (found["timeoutSeconds"], found["failurePolicy"], found["reinvocationPolicy"]) == (7, "Fail", "IfNeeded")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("failurePolicy",), "Fail"),
        (("timeoutSeconds",), 30),
        (("clientConfig", "caBundle"), ""),
        (("clientConfig", "service", "name"), "other"),
        (("namespaceSelector",), {}),
        (("objectSelector", "matchExpressions"), []),
        (("rules",), []),
        (("reinvocationPolicy",), "Never"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_changed_field_differs(path: tuple[str, ...], value: object) -> None:
    found: dict[str, Any] = deepcopy(mutating())
    assert not differs([mutating()], [found])
    *above, last = path
    place = found
    for name in above:
        place = place[name]
    place[last] = value
    assert differs([mutating()], [found])


def test_a_selector_that_was_added_differs_from_an_empty_one() -> None:
    (wanted,) = validating_webhooks(Policies(), TARGET, b"ca")
    narrowed = {**wanted, "objectSelector": {"matchLabels": {"a": "b"}}}
    assert differs([wanted], [narrowed])


def test_a_field_of_another_writer_is_no_difference() -> None:
    found = deepcopy(mutating())
    assert not differs([mutating()], [{**found, "matchConditions": [{"name": "one", "expression": "true"}]}])


def test_a_missing_or_an_added_webhook_differs() -> None:
    assert differs([mutating()], [])
    assert differs([mutating()], None)
    assert differs([mutating()], [mutating(), mutating()])


def test_without_a_bundle_of_its_own_the_one_in_place_stays() -> None:
    wanted = [mutating(bundle=None)]
    assert "caBundle" not in wanted[0]["clientConfig"]
    assert merged(wanted, [mutating(bundle=b"injected")]) == [mutating(bundle=b"injected")]
    assert merged([mutating()], [mutating(bundle=b"old")]) == [mutating()]
    assert merged(wanted, None) == wanted


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Rollout", "rollouts"), ("Policy", "policies"), ("LeaderWorkerSet", "leaderworkersets"), ("Class", "classes")],
)
def test_the_resource_of_a_kind(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural

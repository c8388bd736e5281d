"""What the webhook configurations must say under given settings, and when those of a cluster differ."""

from __future__ import annotations

import base64
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from extender.settings.policies import Policies, Webhook
from extender.wire.objects.constraints import parse_selector_text
from extender.wire.webhook_configurations import (
    WebhookTarget,
    differs,
    merged,
    mutating_webhooks,
    narrowed,
    plural_of,
    required_annotation,
    selector_text,
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


NAME = "kubernetes.io/metadata.name"


def kept(found: dict[str, Any], policies: Policies | None = None, before: Policies | None = None) -> dict[str, Any]:
    """What becomes of a found webhook under policies, written last under those before."""
    (webhook,) = narrowed([mutating(policies)], [found], required_annotation([mutating(before or policies)]))
    return webhook


def excluding(*names: str) -> dict[str, Any]:
    return {"key": NAME, "operator": "NotIn", "values": sorted(names)}


PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "*"}
TEAM = {"key": "team", "operator": "In", "values": ["a"]}


@pytest.mark.parametrize(
    "change",
    [
        {"namespaceSelector": {"matchExpressions": [excluding("kube-system", "ours", "ci")]}},
        {"namespaceSelector": {"matchExpressions": [TEAM, excluding("kube-system", "ours")]}},
        {
            "namespaceSelector": {
                "matchLabels": {"policies": "on"},
                "matchExpressions": [excluding("kube-system", "ours")],
            }
        },
        {"objectSelector": {"matchLabels": {"policies": "on"}}},
        {"rules": [PODS]},
        {"rules": [{**PODS, "scope": "Namespaced"}]},
        {"rules": [PODS, {**PODS, "apiGroups": ["apps"], "resources": ["statefulsets"], "operations": ["UPDATE"]}]},
    ],
    ids=str,
)
def test_what_an_administrator_narrows_stays(change: dict[str, Any]) -> None:
    """Of kupid's README, Mutating higher-order controllers: the webhook configuration controls which objects are mutated."""
    found = {**mutating(), **change}
    assert kept(found) == found
    assert not differs([kept(found)], [found])


@pytest.mark.parametrize(
    "change",
    [
        {"namespaceSelector": {}},
        {"namespaceSelector": {"matchExpressions": [excluding("ours")]}},
        {"namespaceSelector": None},
        {"rules": [*mutating()["rules"], {**PODS, "resources": ["services"]}]},
        {"rules": [{**rule, "operations": ["*"]} for rule in mutating()["rules"]]},
        {"rules": [{**PODS, "resources": ["*"]}]},
        {"rules": []},
        {"rules": None},
    ],
    ids=str,
)
def test_what_widens_or_leaves_nothing_is_repaired(change: dict[str, Any]) -> None:
    assert kept({**mutating(), **change}) == mutating()


def test_what_widens_is_repaired_and_what_narrows_beside_it_stays() -> None:
    selector = {"matchExpressions": [TEAM, excluding("ci")]}
    found = kept({**mutating(), "namespaceSelector": selector, "rules": [PODS, {**PODS, "resources": ["services"]}]})
    assert found["namespaceSelector"] == {"matchExpressions": [excluding("kube-system", "ours", "ci"), TEAM]}
    assert found["rules"] == [PODS]


def test_a_change_of_the_settings_is_reported_from_a_change_by_hand() -> None:
    """What the settings exempted before and do not exempt now is mutated again; what an administrator added stays."""
    before, now = Policies(exempt_namespaces=("old", "both")), Policies(exempt_namespaces=("both", "new"))
    by_hand = {"matchExpressions": [excluding("old", "both", "ours", "ci"), TEAM]}
    found = kept({**mutating(before), "namespaceSelector": by_hand}, now, before)
    assert found["namespaceSelector"] == {"matchExpressions": [excluding("both", "new", "ours", "ci"), TEAM]}
    assert kept(mutating(before), Policies(exempt_namespaces=()), before) == mutating(Policies(exempt_namespaces=()))


def test_a_kind_that_the_settings_add_is_sent_though_rules_were_removed() -> None:
    before, now = Policies(templates={}), Policies(templates={"jobset.x-k8s.io/v1alpha2/JobSet": "/spec/template"})
    found = kept({**mutating(before), "rules": [PODS]}, now, before)
    assert [rule["resources"] for rule in found["rules"]] == [["pods"], ["jobsets"]]


@pytest.mark.parametrize("annotation", [None, "", "{", "[1]", 7, '{"rules": [1]}', '{"namespaceSelector": 1}'])
def test_without_a_note_of_what_was_required_it_was_what_the_manifests_have(annotation: object) -> None:
    """An annotation is free text, which any administrator may write."""
    none = Policies(exempt_namespaces=())
    shipped = mutating(Policies(), own="placement-extender")
    assert narrowed([mutating(none)], [shipped], annotation) == [mutating(none)]
    selector = {"matchExpressions": [excluding("kube-system", "placement-extender", "ci")]}
    (found,) = narrowed([mutating(none)], [{**shipped, "namespaceSelector": selector}], annotation)
    assert found["namespaceSelector"] == {"matchExpressions": [excluding("ours", "ci")]}


@pytest.mark.parametrize(
    ("kind", "plural"),
    [("Rollout", "rollouts"), ("Policy", "policies"), ("LeaderWorkerSet", "leaderworkersets"), ("Class", "classes")],
)
def test_the_resource_of_a_kind(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        ({}, ""),
        ({"matchLabels": {"b": "2", "a": "1"}}, "a in (1),b in (2)"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["y", "x"]}]}, "a notin (x,y)"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"}]}, "a,!b"),
    ],
)
def test_a_selector_is_written_as_a_query_has_it(selector: dict[str, Any] | None, text: str) -> None:
    assert selector_text(selector) == text
    assert parse_selector_text(text, "") is not None

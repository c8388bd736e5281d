"""The required contents of the two webhook configurations, and the comparison with those of the cluster.

Every field that the API server would fill in is written out, so that a configuration can be compared field by field.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-configuration
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.model.policies import EXEMPT_LABEL, KUPID_GROUP, NAMESPACE_NAME_LABEL, VERSION, JsonObject
from extender.model.policies import GROUP as POLICY_GROUP
from extender.settings.policies import Policies

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
POLICY_RESOURCES: Final = ("podschedulingpolicies", "clusterpodschedulingpolicies")

_SUFFIX: Final = "policies.placement.extender.dev"
_CREATE: Final = ("CREATE",)
_CREATE_AND_UPDATE: Final = ("CREATE", "UPDATE")
# The template of a Job and most fields of a pod are immutable: the API server would reject an update with a patch.
_BUILT_IN: Final = (
    ("", "v1", ("pods",), _CREATE),
    ("", "v1", ("replicationcontrollers",), _CREATE_AND_UPDATE),
    ("apps", "v1", ("deployments", "statefulsets", "daemonsets", "replicasets"), _CREATE_AND_UPDATE),
    ("batch", "v1", ("jobs",), _CREATE),
    ("batch", "v1", ("cronjobs",), _CREATE_AND_UPDATE),
)


class OwnPod(NamedTuple):
    """The pod in which this process runs, as the downward API tells.

    https://kubernetes.io/docs/concepts/workloads/pods/downward-api/
    """

    name: str
    uid: str
    address: str


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The address of the webhook for the API server: ``url``, or a Service if that is empty."""

    url: str = ""
    service: str = ""
    namespace: str = ""

    def client_config(self, path: str, ca_bundle: bytes | None) -> JsonObject:
        """The clientConfig for one path, without caBundle if there is no bundle."""
        found: JsonObject = (
            {"url": self.url.rstrip("/") + path}
            if self.url
            else {"service": {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}}
        )
        return found | ({} if ca_bundle is None else {"caBundle": base64.b64encode(ca_bundle).decode()})


def target_of(policies: Policies, own_namespace: str) -> WebhookTarget:
    """The address of the webhook with these settings."""
    webhook = policies.webhook
    if webhook.url:
        return WebhookTarget(url=webhook.url)
    return WebhookTarget(service=webhook.service, namespace=webhook.service_namespace or own_namespace)


def mutating_webhooks(policies: Policies, target: WebhookTarget, ca_bundle: bytes | None) -> list[JsonObject]:
    """The webhooks of the MutatingWebhookConfiguration. Without a bundle another writer sets caBundle."""
    return [
        {
            "name": f"mutate.{_SUFFIX}",
            "clientConfig": target.client_config(MUTATE_PATH, ca_bundle),
            "rules": [_rule(*each) for each in (*_BUILT_IN, *_custom(policies.templates))],
            "namespaceSelector": _unless(NAMESPACE_NAME_LABEL, sorted(set(policies.exempt_namespaces))),
            "objectSelector": _unless(EXEMPT_LABEL, ["true"] if "*" in policies.exemptions.label_in else []),
            "failurePolicy": policies.webhook.failure_policy,
            "reinvocationPolicy": "IfNeeded",
            **_common(policies),
        }
    ]


def validating_webhooks(policies: Policies, target: WebhookTarget, ca_bundle: bytes | None) -> list[JsonObject]:
    """The webhooks of the ValidatingWebhookConfiguration. They are called for policies only, so they can fail closed."""
    groups = [POLICY_GROUP, *([KUPID_GROUP] if policies.kupid else [])]
    return [
        {
            "name": f"validate.{_SUFFIX}",
            "clientConfig": target.client_config(VALIDATE_PATH, ca_bundle),
            "rules": [_rule(group, VERSION, POLICY_RESOURCES, _CREATE_AND_UPDATE) for group in groups],
            "namespaceSelector": {},
            "objectSelector": {},
            "failurePolicy": "Fail",
            **_common(policies),
        }
    ]


def differs(wanted: object, found: object) -> bool:
    """Whether a configuration lacks a required field. Other fields belong to other writers."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping):
            return True
        return (not wanted and bool(found)) or any(differs(each, found.get(name)) for name, each in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(wanted) != len(found):
            return True
        return any(differs(*pair) for pair in zip(wanted, found, strict=True))
    return wanted != found


def merged(wanted: Sequence[JsonObject], found: object) -> list[JsonObject]:
    """The required webhooks, with the fields that other writers have set: matchConditions, or an injected caBundle."""
    known = {each.get("name"): each for each in found if isinstance(each, dict)} if isinstance(found, list) else {}
    return [_merged(each, known.get(each["name"], {})) for each in wanted]


def _merged(wanted: JsonObject, known: JsonObject) -> JsonObject:
    client = known.get("clientConfig")
    bundle = {"caBundle": client["caBundle"]} if isinstance(client, dict) and client.get("caBundle") else {}
    return {**known, **wanted, "clientConfig": {**bundle, **wanted["clientConfig"]}}


def _common(policies: Policies) -> JsonObject:
    return {
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": int(policies.webhook.timeout),
        "admissionReviewVersions": ["v1"],
    }


def _rule(group: str, version: str, resources: Sequence[str], operations: Sequence[str]) -> JsonObject:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": list(resources),
        "operations": list(operations),
        "scope": "*",
    }


def _custom(templates: Mapping[str, str]) -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    for kind in sorted(templates):
        group, version, name = kind.split("/")
        yield group, version, (plural_of(name),), _CREATE_AND_UPDATE


def plural_of(kind: str) -> str:
    """The resource of a kind, by the rule of `meta.UnsafeGuessKindToResource` of apimachinery."""
    name = kind.lower()
    if name.endswith("s"):
        return f"{name}es"
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def _unless(key: str, values: Sequence[str]) -> JsonObject:
    """A selector of all objects without these labels; of all objects if there are none."""
    if not values:
        return {}
    return {"matchExpressions": [{"key": key, "operator": "NotIn", "values": list(values)}]}

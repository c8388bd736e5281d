"""The required contents of the two webhook configurations, and the comparison with the cluster's configurations.

Every field that the API server would fill in is written out, so that configurations can be compared field by field. If
an administrator removes objects that are mutated, they stay removed (`narrowed`), because kupid leaves that to its
configuration.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#webhook-configuration
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import msgspec

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
# The template of a Job and most fields of a pod are immutable, so the API server would reject an update with a patch.
_BUILT_IN: Final = (
    ("", "v1", ("pods",), _CREATE),
    ("", "v1", ("replicationcontrollers",), _CREATE_AND_UPDATE),
    ("apps", "v1", ("deployments", "statefulsets", "daemonsets", "replicasets"), _CREATE_AND_UPDATE),
    ("batch", "v1", ("jobs",), _CREATE),
    ("batch", "v1", ("cronjobs",), _CREATE_AND_UPDATE),
)


# The annotation with the required form when the configuration was last written. If the configuration lacks a part of that form now,
# an administrator has removed the part.
REQUIRED_ANNOTATION: Final = "placement.extender.dev/required"
_SELECTORS: Final = ("namespaceSelector", "objectSelector")


class OwnPod(NamedTuple):
    """The pod of this process, as the downward API describes it.

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
        config: JsonObject = (
            {"url": self.url.rstrip("/") + path}
            if self.url
            # The port is the API server's default, written out for `differs`.
            else {"service": {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}}
        )
        return config | ({} if ca_bundle is None else {"caBundle": base64.b64encode(ca_bundle).decode()})


def target_of(policies: Policies, own_namespace: str) -> WebhookTarget:
    """The address of the webhook with these settings."""
    webhook = policies.webhook
    if webhook.url:
        return WebhookTarget(url=webhook.url)
    return WebhookTarget(service=webhook.service, namespace=webhook.service_namespace or own_namespace)


def mutating_webhooks(policies: Policies, target: WebhookTarget, ca_bundle: bytes | None) -> list[JsonObject]:
    """The webhooks of the MutatingWebhookConfiguration. ``ca_bundle`` None: another writer sets caBundle."""
    return [
        {
            "name": f"mutate.{_SUFFIX}",
            "clientConfig": target.client_config(MUTATE_PATH, ca_bundle),
            "rules": [_rule(*rule) for rule in (*_BUILT_IN, *_custom(policies.templates))],
            "namespaceSelector": _unless(NAMESPACE_NAME_LABEL, sorted(set(policies.exempt_namespaces))),
            # Only `*` can be written as a selector. If single namespaces allow the label, the webhook itself reads it.
            "objectSelector": _unless(EXEMPT_LABEL, ["true"] if "*" in policies.exemptions.label_in else []),
            "failurePolicy": policies.webhook.failure_policy,
            # A webhook that is called later may change labels, by which policies select the pod.
            "reinvocationPolicy": "IfNeeded",
            **_common(policies),
        }
    ]


def validating_webhooks(policies: Policies, target: WebhookTarget, ca_bundle: bytes | None) -> list[JsonObject]:
    """The webhooks of the ValidatingWebhookConfiguration.

    They are called only for policies, so they can fail closed.
    """
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


def differs(wanted: object, present: object) -> bool:
    """Whether a configuration lacks a required field. Other fields belong to other writers."""
    if isinstance(wanted, Mapping):
        if not isinstance(present, Mapping):
            return True
        # An empty selector selects everything, so it differs from a selector with requirements. Otherwise only wanted
        # fields are compared.
        return (not wanted and bool(present)) or any(
            differs(value, present.get(name)) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        if not isinstance(present, list) or len(wanted) != len(present):
            return True
        return any(differs(*pair) for pair in zip(wanted, present, strict=True))
    return wanted != present


def merged(wanted: Sequence[JsonObject], present: object) -> list[JsonObject]:
    """The required webhooks, with the fields that other writers have set: matchConditions, or an injected caBundle."""
    known = _by_name(present)
    return [_merged(webhook, known.get(webhook["name"], {})) for webhook in wanted]


def _by_name(webhooks: object) -> dict[object, JsonObject]:
    """The webhooks of a configuration that another writer may have changed."""
    return {each.get("name"): each for each in webhooks if isinstance(each, dict)} if isinstance(webhooks, list) else {}


def _merged(wanted: JsonObject, known: JsonObject) -> JsonObject:
    client = known.get("clientConfig")
    bundle = {"caBundle": client["caBundle"]} if isinstance(client, dict) and client.get("caBundle") else {}
    return {**known, **wanted, "clientConfig": {**bundle, **wanted["clientConfig"]}}


# -- what an administrator narrows -------------------------------------------------------------------------------------


def required_annotation(wanted: Sequence[JsonObject]) -> str:
    """The value of `REQUIRED_ANNOTATION` for the mutating webhook."""
    return msgspec.json.encode({name: wanted[0][name] for name in ("rules", *_SELECTORS)}, order="sorted").decode()


def narrowed(wanted: Sequence[JsonObject], present_webhooks: object, annotation: object) -> list[JsonObject]:
    """The mutating webhook as the settings require it, without the calls and objects that an administrator has taken out.

    ``annotation``: the required form when the configuration was last written; without it, the form of deploy/policies. It
    tells a change by hand from a change of the settings. Examples, where pods are to be reviewed at CREATE and UPDATE:

    - The annotation has both operations, the configuration CREATE alone: an administrator has removed UPDATE. It stays
      away.
    - The annotation and the configuration have CREATE alone: the settings require UPDATE since. It is added.
    - The configuration excludes a namespace that the annotation does not: an administrator has added it. It stays
      excluded.

    Rules that would be empty are required in full.
    """
    (webhook,) = wanted
    present = _by_name(present_webhooks).get(webhook["name"])
    if present is None:
        return [webhook]
    before = _required_before(annotation)
    selectors = {
        selector: _narrowed_selector(webhook[selector], present.get(selector), before.get(selector))
        for selector in _SELECTORS
    }
    return [
        {**webhook, **selectors, "rules": _narrowed_rules(webhook["rules"], present.get("rules"), before.get("rules"))}
    ]


_Listed = list[dict[str, list[str] | str]]
_Annotated = dict[str, _Listed | dict[str, dict[str, str] | _Listed]]


def _required_before(annotation: object) -> JsonObject:
    """The content of the annotation, which any administrator may change. If it is unreadable, it counts as missing."""
    if isinstance(annotation, str):
        try:
            return msgspec.json.decode(annotation, type=_Annotated)
        except msgspec.DecodeError:
            pass
    (shipped,) = mutating_webhooks(Policies().exempting("placement-extender"), WebhookTarget(), None)
    return shipped


_Requirement = tuple[str, str, frozenset[str]]


def _requirements(selector: object) -> list[_Requirement]:
    """The requirements of a label selector as (key, operator, values). All must hold."""
    if not isinstance(selector, Mapping):
        return []
    labels, listed = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    requirements = [
        (str(expression.get("key")), str(expression.get("operator")), frozenset(expression.get("values") or ()))
        for expression in listed
    ]
    return [*((key, "In", frozenset([value])) for key, value in labels.items()), *requirements]


def selector_text(selector: object) -> str:
    """A label selector in the notation of a query; empty if it selects everything."""
    forms = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
    requirements = sorted(
        (key, operator, ",".join(sorted(values))) for key, operator, values in _requirements(selector)
    )
    return ",".join(forms[operator].format(key, values) for key, operator, values in requirements if operator in forms)


def _narrowed_selector(wanted: JsonObject, present: object, before: object) -> JsonObject:
    """The required selector with what was added to the earlier one.

    Ours are lists of excluded values, one for each key.
    """
    excluded = {key: values for key, _, values in _requirements(wanted)}
    earlier = {key: values for key, _, values in _requirements(before)}
    others: list[_Requirement] = []
    for key, operator, values in _requirements(present):
        # A requirement of ours: values that were added since stay; earlier values of ours may change.
        if operator == "NotIn" and (key in excluded or key in earlier):
            excluded[key] = excluded.get(key, frozenset()) | (values - earlier.get(key, frozenset()))
        else:
            others.append((key, operator, values))
    combined = [*((key, "NotIn", values) for key, values in excluded.items() if values), *others]
    if isinstance(present, Mapping) and set(combined) == set(_requirements(present)):
        return dict(present)  # keeps its order and form
    listed = [
        {"key": key, "operator": operator} | ({"values": sorted(values)} if values else {})
        for key, operator, values in combined
    ]
    return {"matchExpressions": listed} if listed else {}


_Call = tuple[str, str, str, str]


def _calls(rules: object) -> dict[_Call, str]:
    """The (group, version, resource, operation) of rules, with the scope of each."""
    scopes: dict[_Call, str] = {}
    for rule in rules if isinstance(rules, list) else ():
        parts = [rule.get(name) or () for name in ("apiGroups", "apiVersions", "resources", "operations")]
        scopes |= dict.fromkeys(product(*parts), rule.get("scope", "*"))
    return scopes


def _narrowed_rules(wanted: Sequence[JsonObject], present_rules: object, before: object) -> list[JsonObject]:
    """The required rules. Leaves out a call that was required before and is missing now; a call keeps its present scope."""
    # Compared call by call, because a rule is the product of its four lists. If UPDATE of one resource is removed, the
    # rule becomes two.
    present, required = _calls(present_rules), _calls(wanted)
    # Required before and now missing: an administrator has removed the call.
    gone = _calls(before).keys() - present.keys()
    kept = {call: present.get(call, scope) for call, scope in required.items() if call not in gone}
    # Empty rules would disable the webhook, so they do not count as narrowed.
    if not present or not kept:
        return list(wanted)
    # Nothing to change: the order and form of the present rules stay.
    if isinstance(present_rules, list) and kept == present:
        return present_rules
    # Calls with the same operations and scope become one rule again.
    parted: dict[tuple[str, str, tuple[str, ...], str], list[str]] = {}
    for group, version, resource in dict.fromkeys(call[:3] for call in kept):
        # Scopes may differ by operation, so each scope makes a rule of its own.
        operations = {call[3]: scope for call, scope in kept.items() if call[:3] == (group, version, resource)}
        for scope in dict.fromkeys(operations.values()):
            names = tuple(operation for operation, its_scope in operations.items() if its_scope == scope)
            parted.setdefault((group, version, names, scope), []).append(resource)
    return [
        {**_rule(group, version, resources, operations), "scope": scope}
        for (group, version, operations, scope), resources in parted.items()
    ]


def _common(policies: Policies) -> JsonObject:
    return {
        "matchPolicy": "Equivalent",
        # With side effects the API server would refuse every dry run of a pod.
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
    """A selector of all objects without these labels; without labels, of all objects."""
    if not values:
        return {}
    return {"matchExpressions": [{"key": key, "operator": "NotIn", "values": list(values)}]}

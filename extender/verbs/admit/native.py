"""Scheduling policies as objects of the API server, as far as CEL can express them.

A scheduling policy becomes a MutatingAdmissionPolicy with its binding. It uses JSON patches only, because apply configurations
may not change atomic lists such as tolerations.
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import orjson

from extender.model.objects import DEFAULT_SCHEDULER
from extender.model.policies import (
    DEFAULT_SERVICE_ACCOUNT,
    EXEMPT_LABEL,
    NAMESPACE_NAME_LABEL,
    ConflictPolicy,
    Exempt,
    JsonObject,
    Mode,
    Moment,
    Policy,
    Targets,
)
from extender.verbs.admit.json_edits import pointer
from extender.verbs.admit.pod_fields import GATES
from extender.wire.policies.node_terms import SPREAD, TOLERATIONS
from extender.wire.policies.policies_v1 import is_soft_min_domains
from extender.wire.policies.policy_fields import SPEC_FIELDS, unknown_fields, with_known_fields

_GROUP_VERSION: Final = "admissionregistration.k8s.io/v1"
_LONGEST_NAME: Final = 253  # of a DNS subdomain
_SHOWN: Final = 40  # characters of a name, and unknown fields
_LABELS: Final = "object.metadata.labels"
_OWNER_KIND: Final = (
    "(has(object.metadata.ownerReferences) && "
    "object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind in {}))"
)
_NOT_SAID: Final = {
    "affinity": "CEL cannot express that it is joined with the pod's own only once",
    "priorityClassName": "the API server has computed the priority before",
    "spread": "it stays with the extender: an element of a list cannot be changed without replacing all of them",
}


# What is written below. Every other field is left out by name, a new one too.
_SAID: Final = (
    *("podSelector", "namespaceSelector", "matchConditions", "when", "targets", "priority", "conflictPolicy", "mode"),
    *("failurePolicy", "release", "nodeSelector", "nodeName", TOLERATIONS, SPREAD, GATES),
    *("schedulerName", "schedulerNames"),
)


@dataclass(frozen=True, slots=True)
class NativePolicy:
    """The objects (none where CEL can express nothing of the policy); what is left out, with the reason; notes about the rest."""

    documents: tuple[JsonObject, ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    mutations: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def native_policy(policy: Policy, spec: JsonObject, exempt: Exempt) -> NativePolicy:
    """The policy as objects of the API server. ``spec``: the JSON from which the policy was read. O(its size)."""
    unknown = islice(unknown_fields(spec, SPEC_FIELDS, "spec"), _SHOWN)
    draft = _Draft(left_out=[f"{path}: unknown field" for path in unknown])
    spec = with_known_fields(
        spec, SPEC_FIELDS
    )  # the name of another field is free text, and would become a part of an expression
    # 1. Policies that no mutation can stand for. 2. Directive by directive: a mutation, or an entry in `left_out`. 3. Nothing left.
    _behaviour(policy, draft)
    if policy.mode is Mode.AUDIT or Moment.ADMISSION not in policy.when or policy.targets is Targets.TEMPLATES:
        return NativePolicy((), tuple(draft.left_out), ())
    for name in dict.fromkeys((*_NOT_SAID, *SPEC_FIELDS)):
        if spec.get(name) and name not in _SAID:
            draft.left_out.append(f"spec.{name}: {_NOT_SAID.get(name, 'no expression is written for it')}")
    overrides = policy.conflict_policy is ConflictPolicy.OVERRIDE
    _scalars(policy, draft, overrides=overrides)
    _node_selector(policy.directives.node_selector, draft, overrides=overrides)
    _tolerations(spec.get(TOLERATIONS) or [], draft)
    _spread(spec.get(SPREAD) or [], draft, overrides=overrides)
    _gates(policy.directives.scheduling_gates, draft)
    if not draft.mutations or policy.scope.pod_selector.nothing or policy.scope.namespace_selector.nothing:
        draft.left_out.append("spec: CEL can express nothing of it")
        return NativePolicy((), tuple(draft.left_out), ())
    if len(name := _name(policy)) > _LONGEST_NAME:
        draft.left_out.append(
            f"metadata.name: {name[:_SHOWN]}… would have {len(name)} characters, {_LONGEST_NAME} are allowed"
        )
        return NativePolicy((), tuple(draft.left_out), ())
    notes = [f"spec.when: {moment} stays with the extender" for moment in sorted(policy.when - {Moment.ADMISSION})]
    return NativePolicy(tuple(_documents(policy, spec, draft, exempt)), tuple(draft.left_out), tuple(notes))


def _behaviour(policy: Policy, draft: _Draft) -> None:
    if policy.mode is Mode.AUDIT:
        draft.left_out.append("spec.mode: there is no Audit for mutations")
    if Moment.ADMISSION not in policy.when:
        draft.left_out.append("spec.when: has no Admission")
    if policy.targets is not Targets.PODS:
        draft.left_out.append(
            f"spec.targets: {policy.targets}: what was injected into a template cannot be taken out again"
        )
    if policy.conflict_policy is ConflictPolicy.REJECT:
        draft.left_out.append("spec.conflictPolicy: Reject: a mutation cannot refuse a pod; the pod keeps its value")
    if policy.conflict_policy is ConflictPolicy.COMBINE:
        draft.left_out.append("spec.conflictPolicy: CEL cannot express kupid's; the pod keeps its value")
    if policy.priority:
        draft.left_out.append("spec.priority: the API server does not define an order")


# ---- mutations


def _add(path: str, value: str) -> str:
    return f'[JSONPatch{{op: "add", path: {_text(path)}, value: {value}}}]'


def _unless(condition: str, operations: str) -> str:
    return f"({condition} ? [] : {operations})"


def _scalars(policy: Policy, draft: _Draft, *, overrides: bool) -> None:
    # Gates and a node name exclude each other in a new pod, so each gives way to the other.
    directives = policy.directives
    if len(directives.scheduler_names) > 1:
        draft.left_out.append("spec.schedulerNames: CEL has no hash to choose by")
    elif directives.scheduler_names:
        _scalar("schedulerName", directives.scheduler_names[0], ["", DEFAULT_SCHEDULER], draft, overrides=overrides)
    if directives.node_name:
        _scalar("nodeName", directives.node_name, [""], draft, overrides=overrides, unless=_has(GATES))


def _scalar(name: str, wanted: str, unset: list[str], draft: _Draft, *, overrides: bool, unless: str = "false") -> None:
    # `kept`: the pod has a value of its own, so the policy gives way. `unset` has the default of the API server.
    kept = f"({_has(name)} && !(object.spec.{name} in {_text([*unset, wanted])}))"
    condition = unless if overrides else f"{unless} || {kept}"
    draft.mutations.append(_unless(condition, _add(f"/spec/{name}", _text(wanted))))


def _node_selector(pairs: Any, draft: _Draft, *, overrides: bool) -> None:
    if not pairs:
        return
    # RFC 6902: `add` needs an existing parent. The operations of one patch apply one after the other.
    parts = [_unless(_has("nodeSelector"), _add("/spec/nodeSelector", "Object.spec.nodeSelector{}"))]
    for key, value in pairs.items():
        added = _add(pointer("spec", "nodeSelector", key), _text(value))
        kept = f"{_has('nodeSelector')} && {_text(key)} in object.spec.nodeSelector"
        parts.append(added if overrides else _unless(kept, added))
    draft.mutations.append(" + ".join(parts))


def _tolerations(items: list[JsonObject], draft: _Draft) -> None:
    # The admission plugin DefaultTolerationSeconds adds not-ready and unreachable for 300 s, before any mutation runs.
    if any(item.get("effect") in (None, "", "NoExecute") for item in items):
        draft.left_out.append(f"spec.{TOLERATIONS}: the default tolerations for a taint stay beside the policy's")
    defaults = {"key": "", "operator": "Equal", "value": "", "effect": ""}
    _list(TOLERATIONS, [(item, _same(item, defaults) + _same_seconds(item)) for item in items], draft)


def _same_seconds(item: JsonObject) -> str:
    seconds = item.get("tolerationSeconds")
    return " && !has(e.tolerationSeconds)" if seconds is None else f" && e.?tolerationSeconds.orValue(-1) == {seconds}"


def _spread(items: list[JsonObject], draft: _Draft, *, overrides: bool) -> None:
    if any(map(is_soft_min_domains, items)):
        draft.left_out.append(f"spec.{SPREAD}: minDomains beside ScheduleAnyway, which the API server refuses in a pod")
    if overrides:
        draft.left_out += [f"spec.{SPREAD}: Override: a constraint of the pod is not replaced"] if items else []
    kept = [item for item in items if not is_soft_min_domains(item)]
    _list(SPREAD, [(item, _same(item, {"topologyKey": "", "whenUnsatisfiable": ""})) for item in kept], draft)


def _gates(names: Iterable[str], draft: _Draft) -> None:
    items: list[JsonObject] = [{"name": name} for name in names]
    _list(GATES, [(item, _same(item, {"name": ""})) for item in items], draft, unless=_has("nodeName"))


def _list(name: str, items: list[tuple[JsonObject, str]], draft: _Draft, *, unless: str = "false") -> None:
    """Appends each item for which the pod has no equal element. ``items``: with the CEL condition of equality to an element `e`."""
    if not items:
        return
    # As above: `/-` appends to a list, and the list must exist.
    parts = [_unless(_has(name), _add(f"/spec/{name}", "[]"))]
    for item, same in items:
        kept = f"{_has(name)} && object.spec.{name}.exists(e, {same})"
        parts.append(_unless(kept, _add(f"/spec/{name}/-", _typed(item, f"Object.spec.{name}"))))
    draft.mutations.append(_unless(unless, f"({' + '.join(parts)})"))


def _same(item: JsonObject, fields: dict[str, str]) -> str:
    return " && ".join(
        f"e.?{name}.orValue({_text(default)}) == {_text(item.get(name) or default)}" for name, default in fields.items()
    )


def _typed(value: Any, kind: str) -> str:
    """A value in CEL, objects by the types of the API; maps of labels are plain."""
    if isinstance(value, list):
        return f"[{', '.join(_typed(element, kind) for element in value)}]"
    if not isinstance(value, dict):
        return _text(value)
    if kind.endswith(".matchLabels"):
        return _text(value)
    fields = ", ".join(f"{name}: {_typed(member, kind + '.' + name)}" for name, member in value.items())
    return f"{kind}{{{fields}}}"


def _text(value: Any) -> str:
    """A text, number or list as a CEL literal. CEL has the literals of JSON."""
    return orjson.dumps(value).decode()


def _has(name: str) -> str:
    return f"has(object.spec.{name})"


# ---- which pods


def _name(policy: Policy) -> str:
    """The name of the objects. They are cluster-scoped, so the policy's namespace is a part of it."""
    return ".".join(part for part in ("placement", policy.key.namespace, policy.key.name) if part)


def _documents(policy: Policy, spec: JsonObject, draft: _Draft, exempt: Exempt) -> Iterator[JsonObject]:
    name = _name(policy)
    conditions, is_anywhere = dict(_conditions(spec.get("matchConditions") or {})), "*" in exempt.by_label
    if exempt.by_label and not is_anywhere:
        labelled = _requirement(EXEMPT_LABEL, "In", ["true"])
        conditions["exempt"] = f"!(request.namespace in {_text(sorted(exempt.by_label))} && {labelled})"
    yield {
        "apiVersion": _GROUP_VERSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": str(policy.failure_policy),
            # Another webhook may change the pod after this policy. Every mutation checks what is there, so a second run
            # adds nothing.
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
                ],
                "objectSelector": _with(spec.get("podSelector") or {}, EXEMPT_LABEL, ["true"] if is_anywhere else []),
                "namespaceSelector": _namespaces(policy, spec, exempt.namespaces),
            },
            "matchConditions": [{"name": condition, "expression": text} for condition, text in conditions.items()],
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}} for mutation in draft.mutations
            ],
        },
    }
    yield {
        "apiVersion": _GROUP_VERSION,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name},
    }


def _with(selector: JsonObject, key: str, values: list[str]) -> JsonObject:
    """The selector, without objects that have one of these values of a label."""
    if not values:
        return selector
    added = {"key": key, "operator": "NotIn", "values": values}
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), added]}


def _namespaces(policy: Policy, spec: JsonObject, exempt: Iterable[str]) -> JsonObject:
    own = policy.key.namespace
    selector = {"matchLabels": {NAMESPACE_NAME_LABEL: own}} if own else spec.get("namespaceSelector") or {}
    # Every namespace has the label kubernetes.io/metadata.name, so names can be excluded by a selector.
    left_out = {*exempt, *policy.scope.conditions.exclude.namespaces}
    return _with(selector, NAMESPACE_NAME_LABEL, sorted(left_out))


def _conditions(conditions: JsonObject) -> Iterator[tuple[str, str]]:
    exclude = conditions.get("exclude") or {}
    for name, test in (
        ("ownerKinds", _OWNER_KIND),
        ("serviceAccounts", f"(object.spec.?serviceAccountName.orValue({_text(DEFAULT_SERVICE_ACCOUNT)}) in {{}})"),
        ("priorityClassNames", '(object.spec.?priorityClassName.orValue("") in {})'),
    ):
        if conditions.get(name):
            yield name.lower(), test.format(_text(conditions[name]))
        if exclude.get(name):
            yield f"exclude-{name.lower()}", f"!{test.format(_text(exclude[name]))}"
    if exclude.get("podSelector") is not None:
        yield "exclude-podselector", f"!({_selector(exclude['podSelector'])})"


def _selector(selector: JsonObject) -> str:
    parts = [_requirement(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    parts += (
        _requirement(requirement["key"], requirement["operator"], requirement.get("values") or [])
        for requirement in selector.get("matchExpressions") or ()
    )
    return " && ".join(parts) or "true"


def _requirement(key: str, operator: str, values: list[str]) -> str:
    exists = f"(has({_LABELS}) && {_text(key)} in {_LABELS})"
    has_value = f"({exists} && {_LABELS}[{_text(key)}] in {_text(values)})"
    return {"In": has_value, "NotIn": f"!{has_value}", "Exists": exists, "DoesNotExist": f"!{exists}"}[operator]

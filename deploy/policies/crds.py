"""The CRDs of all kinds as documents, in one file, so that one `kubectl apply -f` installs each kind that the extender reads or writes.

`python -m deploy.policies` writes it. The spec of a policy is `extender/wire/policies/policy_schema.py`. Here are the other parts of the kinds, which the extender writes or reads without a check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from extender.features.execution.directive import WatchedConstraint
from extender.features.execution.schema import MOST_STORED
from extender.model.group_placements import MOST_RECORDED, PLACEMENT_KIND
from extender.model.objects import DOMAINS_KIND
from extender.model.policies import CLUSTER_KIND, GROUP, NAMESPACED_KIND, VERSION
from extender.model.release import MOST_DOMAINS, MOST_LEVELS, MOST_RESOURCES, MOST_VALUES, GroupPhase
from extender.wire.policies.field_errors import ErrorType
from extender.wire.policies.policy_schema import NAMESPACED_SPEC, SPEC
from extender.wire.policies.release_schema import AMOUNTS, BROUGHT
from extender.wire.policies.schema import (
    LABEL_KEY,
    LABEL_VALUE,
    LONGEST_KEY,
    LONGEST_LABEL,
    NO_SPACE,
    TIME,
    Field,
    FieldRule,
    Flag,
    Many,
    NumberOrWord,
    Pairs,
    Plain,
    Record,
    Text,
    Type,
    WholeNumber,
    choice,
    predicate,
)

Schema: TypeAlias = dict[str, Any]
Column: TypeAlias = tuple[str, str, str]  # name, type and path

FILE: Final = Path(__file__).with_name("crds.yaml")
_POLICIES: Final = """\
# Scheduling policies: who (selectors), what (directives), when.
# The API server refuses a bad policy by these schemas and CEL rules, also while the webhook is down.
"""
_PLACEMENTS: Final = """\
# What is decided for a group of gated pods. The leader writes a GroupPlacement before it releases the first pod of a group,
# and a later leader continues from it.
"""
_DOMAINS: Final = """\
# Which domains a topology key has, known before the first node of one exists, and which are excluded: read by the directive
# `spread` of policies. `extender domain exclude` writes the latter.
"""


def policy_crds() -> list[Schema]:
    """The cluster-wide and the namespaced kind."""
    return [
        _policy_crd(CLUSTER_KIND, "cpodpol", "Cluster", SPEC, "in any namespace."),
        _policy_crd(NAMESPACED_KIND, "podpol", "Namespaced", NAMESPACED_SPEC, "of its namespace."),
    ]


def all_crds() -> list[Schema]:
    """In the order of the file."""
    return [*policy_crds(), placement_crd(), domains_crd()]


def as_text() -> str:
    """The whole file."""
    parts = ((_POLICIES, policy_crds()), (_PLACEMENTS, [placement_crd()]), (_DOMAINS, [domains_crd()]))
    head = "# All kinds of the extender. Written by `python -m deploy.policies`.\n#\n"
    return head + "".join(
        about + yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=120, explicit_start=True)
        for about, documents in parts
    )


class _Plain(yaml.SafeDumper):
    """Without anchors, which some tools do not read."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


# -- from a declaration to a structural schema


def structural(found: Type, about: str = "") -> Schema:
    """https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema ."""
    default = getattr(found, "default", None)
    if default is not None:
        default = dict(default) if isinstance(found, Record) else list(default) if isinstance(found, Many) else default
    parts = {"description": about or None, **_of(found), "default": default}
    return {name: part for name, part in parts.items() if part is not None}


def _of(found: Type) -> Schema:
    match found:
        case Text(choices=choices) if choices:
            return {"type": "string", "enum": list(choices)}
        case Text(pattern=pattern):
            least = 1 if pattern and not found.may_be_empty else None
            return {"type": "string", "maxLength": found.longest, "minLength": least, "pattern": pattern or None}
        case Plain(name, form):
            return {"type": name, "format": form}
        case WholeNumber(least, most, bits):
            return {"type": "integer", "format": f"int{bits}", "minimum": least, "maximum": most}
        case NumberOrWord():
            return {"x-kubernetes-int-or-string": True}
        case Flag(only_true):
            return {"type": "boolean", "enum": [True] if only_true else None}
        case Pairs(value, most, rules):
            return {
                "type": "object",
                "maxProperties": most,
                "additionalProperties": structural(value),
                "x-kubernetes-validations": _written(rules),
            }
        case Many(item, most, least, keys):
            return {
                "type": "array",
                "maxItems": most,
                "items": structural(item),
                "x-kubernetes-list-type": "map" if keys else "set" if found.is_set else "atomic",
                "minItems": least or None,
                "x-kubernetes-list-map-keys": list(keys) or None,
            }
        case Record(fields):
            return {
                "type": "object",
                "properties": {each.name: structural(each.type, each.about) for each in fields},
                "required": [each.name for each in fields if each.is_required] or None,
                "x-kubernetes-map-type": "atomic" if found.is_atomic else None,
                "x-kubernetes-validations": _written(_rules(found)),
            }


def _rules(found: Record) -> list[FieldRule]:
    rules = [rule for each in found.predicates for rule in each.rules]
    if not found.is_choice:
        return rules
    count = " + ".join(f"(has(self.{each.name}) ? 1 : 0)" for each in found.fields)
    return [FieldRule(f"{count} == 1", found.choice_text), *rules]


def _written(rules: Sequence[FieldRule]) -> list[Schema] | None:
    return [
        {"rule": rule.expression, "message": rule.message, "reason": str(rule.reason)}
        | ({"fieldPath": rule.path} if rule.path else {})
        for rule in rules
    ] or None


def _crd(
    kind: str, plural: str, short: str, scope: str, columns: Sequence[Column], about: str, *parts: Field
) -> Schema:
    """A CRD with one version."""
    meta = (Field("apiVersion", Plain("string")), Field("kind", Plain("string")), Field("metadata", Plain("object")))
    columns = (*columns, ("Age", "date", ".metadata.creationTimestamp"))
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        **({"subresources": {"status": {}}} if any(each.name == "status" for each in parts) else {}),
        "additionalPrinterColumns": [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns],
        "schema": {"openAPIV3Schema": structural(Record((*meta, *parts)), about)},
    }
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
        "categories": ["placement"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "names": names, "scope": scope, "versions": [version]},
    }


# -- policies

_WRITTEN: Final = "Written by the extender."
_COUNT: Final = WholeNumber(0, bits=64)


def _condition(types: Sequence[str], reason: Text, message: int, *fields: Field) -> Record:
    required = (
        Field("type", Text(choices=tuple(types)), is_required=True),
        Field("status", Text(choices=("True", "False", "Unknown")), is_required=True),
        *fields,
        Field("lastTransitionTime", TIME, is_required=True),
        Field("reason", reason, is_required=True),
        Field("message", Text(longest=message), is_required=True),
    )
    return Record(required)


_CONDITION: Final = _condition(("Valid", "Conflicting"), Text(longest=1024), 32768, Field("observedGeneration", _COUNT))
_DOMAIN_USE: Final = Record(
    (
        Field("name", Text(longest=LONGEST_LABEL), is_required=True),
        Field("values", Many(Text(longest=LONGEST_LABEL), MOST_VALUES), "The values of the first topology key."),
        Field("quota", AMOUNTS, "What pods of this policy may use here."),
        Field("used", AMOUNTS, "What they use here. Terminating pods count.", is_required=True),
        Field("mayGrow", Flag()),
    )
)
_EXCLUDED: Final = Record(
    (
        Field("topologyKey", Text(longest=LONGEST_KEY), is_required=True),
        Field("domain", Text(longest=LONGEST_LABEL), is_required=True),
        Field("since", TIME, is_required=True),
        Field("until", TIME),
        Field("reason", Text(choices=("Operator", "Unavailable")), is_required=True),
    )
)
_OBJECT_NAME: Final = Text(longest=253)
_MOVE: Final = Record(
    (
        *(Field(name, _OBJECT_NAME, is_required=True) for name in ("namespace", "pod", "uid")),
        Field("kind", _OBJECT_NAME, "Of the controller.", is_required=True),
        Field("controller", _OBJECT_NAME, is_required=True),
        Field("node", _OBJECT_NAME, "The node that the pod leaves.", is_required=True),
        Field("target", _OBJECT_NAME, "The node whose room is kept for the replacement.", is_required=True),
        Field(
            "constraint", Text(choices=tuple(map(str, WatchedConstraint))), "For which it is moved.", is_required=True
        ),
        Field("since", TIME, is_required=True),
        Field("requests", Pairs(Text(longest=32), MOST_RESOURCES), "What the pod requests."),
    )
)
_MOST_REASONS: Final = 8
_MOVES: Final = Record(
    (
        Field(
            "broken",
            _COUNT,
            "What is broken of the pods that the policy watches: excess pods, pairs, unsatisfied pods.",
        ),
        Field("planned", _COUNT, "Moves that are planned or under way, at most one of each workload."),
        Field("moved", _COUNT, "Moves that are complete."),
        Field("stuck", _COUNT, "Broken constraints that no allowed move mends."),
        Field(
            "stuckReasons",
            Many(
                Record(
                    (
                        Field("reason", Text(longest=128), is_required=True),
                        Field("constraints", _COUNT, is_required=True),
                    )
                ),
                _MOST_REASONS,
            ),
            "Why, the most frequent reasons first.",
        ),
        Field(
            "moves",
            Many(_MOVE, MOST_STORED),
            "Moves whose replacement had no node when moves were written last, before their pods were evicted. A new leader "
            "keeps the places of the replacements by them. Moves that have ended stay until moves are written again.",
        ),
    )
)
_CONFLICT: Final = Record(
    (
        Field("policy", Text(longest=317), is_required=True),
        Field("field", Text(longest=512), is_required=True),
        Field("message", Text(longest=1024), is_required=True),
    )
)
_STATUS: Final = Record(
    (
        Field("observedGeneration", _COUNT),
        Field("conditions", Many(_CONDITION, 8, keys=("type",))),
        Field("matchedPods", _COUNT, "Pods that the policy selects."),
        Field(
            "lastApplied",
            TIME,
            "When it last changed a pod, or a template that the replica that leads has admitted. "
            "Written at most once a minute.",
        ),
        Field(
            "domains",
            Many(_DOMAIN_USE, MOST_DOMAINS),
            "The domains in the order of the policy, and what released pods have of each. Written every ten seconds at most.",
        ),
        Field(
            "excludedDomains",
            Many(_EXCLUDED, 64),
            "The domains that its directives about spread leave out now. Written every ten seconds at most.",
        ),
        Field(
            "execution",
            _MOVES,
            "Constraints that the policy watches while pods run. Written at most once a minute.",
        ),
        Field(
            "conflicts",
            Many(_CONFLICT, 16),
            "With other policies, and with pods that the replica that leads has admitted since the policy changed.",
        ),
    )
)


def _policy_crd(kind: str, short: str, scope: str, spec: Record, where: str) -> Schema:
    columns = (
        ("Priority", "integer", ".spec.priority"),
        ("When", "string", ".spec.when"),
        ("Mode", "string", ".spec.mode"),
        ("Matched", "integer", ".status.matchedPods"),
        ("Broken", "integer", ".status.execution.broken"),
        ("Valid", "string", '.status.conditions[?(@.type=="Valid")].status'),
    )
    parts = (Field("spec", spec), Field("status", _STATUS, _WRITTEN))
    about = f"A rule for the scheduling of pods {where}"
    return _crd(kind, f"{kind.lower()[:-1]}ies", short, scope, columns, about, *parts)


# -- group placements: what is decided for a group of gated pods, and how far its release is

_LEVEL: Final = Record(
    (
        Field("key", LABEL_KEY, is_required=True),
        Field("value", LABEL_VALUE, is_required=True),
        Field("values", Many(LABEL_VALUE, MOST_VALUES, is_set=True), "Where there are several; `value` is the first."),
        Field("preferred", Many(LABEL_VALUE, MOST_VALUES, is_set=True), "Those of the values that the pods prefer."),
        BROUGHT,
    )
)
_PLACEMENT: Final = Record(
    (
        Field(
            "policy",
            Text(NO_SPACE, 400),  # kind, namespace and name
            "The policy: Kind/namespace/name, or Kind/name.",
            is_required=True,
        ),
        Field(
            "group",
            Text(NO_SPACE),
            "The value of the group's label, or the UID of its owner, or pod/UID.",
            is_required=True,
        ),
        Field("gate", LABEL_KEY, "The scheduling gate that is removed from the pods.", is_required=True),
        Field("size", WholeNumber(1, 100_000), "Pods that the group has when it is complete.", is_required=True),
        Field(
            "topology",
            Many(_LEVEL, MOST_LEVELS, keys=("key",)),
            "The domain, coarse to fine. Empty: the pods are released unpinned.",
        ),
        Field(
            "pods",
            Many(Text(NO_SPACE, 128), MOST_RECORDED),
            "The UIDs of the pods that are released with the group, where its policy lists or limits domains. They are charged "
            "to its domain until they are gone.",
        ),
        Field("decided", TIME, "When. Absent: not yet."),
    ),
    (
        predicate(
            None,
            FieldRule("self.policy == oldSelf.policy", "may not be changed", ".policy"),
            FieldRule("self.group == oldSelf.group", "may not be changed", ".group"),
            FieldRule(
                "has(self.decided) || !has(self.topology) || size(self.topology) == 0",
                "needs the time of the decision",
                ".decided",
                ErrorType.REQUIRED,
            ),
        ),
    ),
)
_PROGRESS: Final = Record(
    (
        Field("phase", choice(GroupPhase, has_default=False)),
        Field("ready", WholeNumber(), "Pods that exist and have not finished."),
        Field("released", WholeNumber(), "Of these, pods whose gate was removed."),
        Field("bound", WholeNumber(), "Of these, pods that have a node."),
        Field("message", Text(longest=1024), "Why it waits."),
        Field("conditions", Many(_condition(("Placed",), Text("^[A-Z][A-Za-z0-9]*$", 64), 1024), 4, keys=("type",))),
    )
)


def placement_crd() -> Schema:
    """The kind of the decisions about groups."""
    columns = (
        ("Policy", "string", ".spec.policy"),
        ("Group", "string", ".spec.group"),
        ("Phase", "string", ".status.phase"),
        ("Domain", "string", ".spec.topology[-1:].value"),  # the finest level
        ("Ready", "integer", ".status.ready"),
        ("Released", "integer", ".status.released"),
        ("Bound", "integer", ".status.bound"),
        ("Size", "integer", ".spec.size"),
    )
    about = f"Where the pods of a group are released to. {_WRITTEN}"
    parts = (Field("spec", _PLACEMENT, is_required=True), Field("status", _PROGRESS, _WRITTEN))
    return _crd(PLACEMENT_KIND, "groupplacements", "gpl", "Namespaced", columns, about, *parts)


# -- topology domains: the domains that a topology key has, and the domains that an operator excludes

_MOST_OF_KEY: Final = 256
_DOMAIN: Final = replace(LABEL_VALUE, may_be_empty=False)
_EXCLUDED_BY_OPERATOR: Final = Record(
    (
        Field("domain", _DOMAIN, is_required=True),
        Field("until", TIME, "When it counts again. Absent: once it is taken out of the list."),
        Field("since", TIME, "Since when, for explanations."),
        Field("reason", Text(longest=256), "Why, for explanations."),
    )
)
_DOMAINS_OF_KEY: Final = Record(
    (
        Field("topologyKey", LABEL_KEY, "The label key of nodes.", is_required=True),
        Field("domains", Many(_DOMAIN, _MOST_OF_KEY, is_set=True), "Its values, also of domains without a node yet."),
        Field(
            "excluded",
            Many(_EXCLUDED_BY_OPERATOR, _MOST_OF_KEY, keys=("domain",)),
            "Domains that take no pod and count for nothing.",
        ),
    ),
    (predicate(None, FieldRule("self.topologyKey == oldSelf.topologyKey", "may not be changed", ".topologyKey")),),
)


def domains_crd() -> Schema:
    """The kind of the domains of a topology key."""
    columns = (
        ("Key", "string", ".spec.topologyKey"),
        ("Domains", "string", ".spec.domains"),
        ("Excluded", "string", ".spec.excluded[*].domain"),
    )
    spec = Field("spec", _DOMAINS_OF_KEY, is_required=True)
    return _crd(DOMAINS_KIND, "topologydomains", "tdom", "Cluster", columns, "The domains of a topology key.", spec)

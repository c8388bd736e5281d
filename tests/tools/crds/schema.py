"""Fragments of the structural schema of a policy: selectors, node affinity, pod affinity, tolerations, spread.

Every list and string has a bound. Without one the API server assumes the largest request for it and refuses the CEL rules as
too expensive: https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries .
The rules repeat what the API server checks in a pod (`pkg/apis/core/validation`), so that a policy that it accepts cannot
produce a pod that it refuses.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from extender.model.release import (
    MOST_DOMAINS,
    MOST_LEVELS,
    MOST_PODS_OF_QUOTA,
    MOST_RESOURCES,
    MOST_TOLERATIONS,
    MOST_VALUES,
    RELEASE_GATE,
    Growth,
    OnTimeout,
    ReleaseMode,
    Replacement,
    Strategy,
    WhenNoRoom,
)
from extender.wire.policies.policy_validation import (
    DEFAULT_AFTER,
    GATE_PREFIX,
    LONGEST_QUANTITY,
    MOST_PODS,
    MOST_SPREAD,
    QUANTITY,
)

Schema = dict[str, Any]

LABEL: Final = "([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
_DNS: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY: Final = rf"^({_DNS}(\.{_DNS})*/)?{LABEL}$"
LABEL_VALUE: Final = f"^{LABEL}?$"
DNS_LABEL: Final = rf"^{_DNS}$"
DNS_SUBDOMAIN: Final = rf"^{_DNS}(\.{_DNS})*$"
KIND_NAME: Final = "^[A-Z][A-Za-z0-9]*$"
SCHEDULER_NAME: Final = "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_INTEGER: Final = "^(0|-?[1-9][0-9]{0,18})$"

_LONGEST_KEY: Final = 317  # a prefix of 253 characters, a slash, a name of 63
_LONGEST_LABEL: Final = 63
LONGEST_NAME: Final = 253


def text(pattern: str = "", longest: int = LONGEST_NAME, about: str = "", choices: Sequence[str] = ()) -> Schema:
    found: Schema = {"description": about} if about else {}
    found["type"] = "string"
    if choices:
        return found | {"enum": list(choices)}
    found["maxLength"] = longest
    return found | ({"minLength": 1, "pattern": pattern} if pattern else {})


def listed(
    item: Schema, most: int, about: str = "", *, least: int = 0, keys: Sequence[str] = (), is_set: bool = False
) -> Schema:
    """A list: a map by ``keys``, a set, or without either atomic, as the lists of a pod are, which may repeat an entry."""
    kind = "map" if keys else "set" if is_set else "atomic"
    found: Schema = {"description": about} if about else {}
    found |= {"type": "array", "maxItems": most, "items": item, "x-kubernetes-list-type": kind}
    if least:
        found["minItems"] = least
    if keys:
        found["x-kubernetes-list-map-keys"] = list(keys)
    return found


def record(
    fields: Mapping[str, Schema],
    about: str = "",
    required: Sequence[str] = (),
    rules: Sequence[Mapping[str, str]] = (),
    *,
    is_atomic: bool = False,
) -> Schema:
    found: Schema = {"description": about} if about else {}
    found |= {"type": "object", "properties": dict(fields)}
    if required:
        found["required"] = list(required)
    if is_atomic:
        found["x-kubernetes-map-type"] = "atomic"
    if rules:
        found["x-kubernetes-validations"] = [dict(rule) for rule in rules]
    return found


def rule(expression: str, message: str, path: str = "", reason: str = "FieldValueInvalid") -> Mapping[str, str]:
    """One CEL rule; ``path`` is the field at fault, relative to the object that the rule stands at."""
    found = {"rule": expression, "message": message, "reason": reason}
    return found | ({"fieldPath": path} if path else {})


LABEL_KEY_TEXT: Final = text(LABEL_KEY, _LONGEST_KEY)
_LABEL_VALUE_TEXT: Final = {"type": "string", "maxLength": _LONGEST_LABEL, "pattern": LABEL_VALUE}


def label_map(about: str, most: int) -> Schema:
    """Labels by key. A schema has no pattern for keys; the validating webhook checks their form."""
    return {
        "description": about,
        "type": "object",
        "maxProperties": most,
        "additionalProperties": dict(_LABEL_VALUE_TEXT),
        "x-kubernetes-validations": [
            rule(f"self.all(key, key != '' && size(key) <= {_LONGEST_KEY})", "a label key has 1 to 317 characters")
        ],
    }


_VALUES_NEEDED: Final = rule(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : true",
    "must be specified when operator is In or NotIn",
    ".values",
    "FieldValueRequired",
)
_VALUES_FORBIDDEN: Final = rule(
    "self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || size(self.values) == 0 : true",
    "may not be specified when operator is Exists or DoesNotExist",
    ".values",
    "FieldValueForbidden",
)


def label_selector(about: str) -> Schema:
    requirement = record(
        {
            "key": LABEL_KEY_TEXT,
            "operator": text(choices=("In", "NotIn", "Exists", "DoesNotExist")),
            "values": listed(dict(_LABEL_VALUE_TEXT), 64),
        },
        required=("key", "operator"),
        rules=(_VALUES_NEEDED, _VALUES_FORBIDDEN),
    )
    fields = {
        "matchLabels": label_map("Labels that must all be there.", 32),
        "matchExpressions": listed(requirement, 32, "Requirements that must all hold."),
    }
    return record(fields, about, is_atomic=True)


def node_selector_term(about: str = "") -> Schema:
    """A term: all of its requirements must hold. One without any matches no node."""
    expression = record(
        {
            "key": LABEL_KEY_TEXT,
            "operator": text(choices=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
            "values": listed(text(longest=_LONGEST_LABEL), 128),
        },
        required=("key", "operator"),
        rules=(
            _VALUES_NEEDED,
            _VALUES_FORBIDDEN,
            rule(
                "self.operator in ['Gt', 'Lt'] ? has(self.values) && size(self.values) == 1 : true",
                "must be specified single value when operator is Lt or Gt",
                ".values",
                "FieldValueRequired",
            ),
            rule(
                "self.operator in ['Gt', 'Lt'] && has(self.values) && size(self.values) == 1"
                f" ? self.values[0].matches('{_INTEGER}') : true",
                "must be an integer when operator is Lt or Gt",
                ".values",
            ),
        ),
    )
    by_name = record(
        {
            "key": text(choices=("metadata.name",)),
            "operator": text(choices=("In", "NotIn")),
            "values": listed(text(DNS_SUBDOMAIN), 1, least=1),
        },
        required=("key", "operator", "values"),
    )
    fields = {
        "matchExpressions": listed(expression, 32, "Requirements on labels of the node."),
        "matchFields": listed(by_name, 8, "Requirements on the name of the node."),
    }
    return record(fields, about, is_atomic=True)


def _weight() -> Schema:
    return {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100}


def _node_affinity() -> Schema:
    required = record(
        {"nodeSelectorTerms": listed(node_selector_term(), 64, "A node matches when one of the terms does.", least=1)},
        required=("nodeSelectorTerms",),
        is_atomic=True,
    )
    preferred = record({"weight": _weight(), "preference": node_selector_term()}, required=("weight", "preference"))
    fields = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": listed(preferred, 32),
    }
    return record(fields, "As in a pod. Required terms are combined with those of the pod: both must hold.")


def _keys_of_labels(owner: str) -> Schema:
    return listed(dict(LABEL_KEY_TEXT), 16, f"Label keys whose values are taken from the incoming pod ({owner}).")


_SELECTOR_NEEDED: Final = rule(
    "!has(self.matchLabelKeys) || size(self.matchLabelKeys) == 0 || has(self.labelSelector)",
    "must not be specified when labelSelector is not set",
    ".matchLabelKeys",
    "FieldValueForbidden",
)


def _twice(field: str) -> Mapping[str, str]:
    """No key may stand both in the selector and among the keys whose values come from the pod."""
    return rule(
        f"!has(self.{field}) || !has(self.labelSelector) || !has(self.labelSelector.matchLabels)"
        f" || !self.{field}.exists(key, key in self.labelSelector.matchLabels)",
        "holds a key of labelSelector",
        f".{field}",
    )


def _pod_affinity_term() -> Schema:
    fields = {
        "labelSelector": label_selector("Which pods. Absent: none."),
        "namespaces": listed(text(DNS_LABEL, _LONGEST_LABEL), 64, "Namespaces of those pods, by name."),
        "namespaceSelector": label_selector("Namespaces of those pods, by label, besides those listed. Empty: all."),
        "topologyKey": dict(LABEL_KEY_TEXT),
        "matchLabelKeys": _keys_of_labels("KEP-3633"),
        "mismatchLabelKeys": _keys_of_labels("KEP-3633"),
    }
    mismatch_needs_selector = {
        name: value.replace("matchLabelKeys", "mismatchLabelKeys") for name, value in _SELECTOR_NEEDED.items()
    }
    both = rule(
        "!has(self.matchLabelKeys) || !has(self.mismatchLabelKeys)"
        " || !self.matchLabelKeys.exists(key, key in self.mismatchLabelKeys)",
        "holds a key of mismatchLabelKeys",
        ".matchLabelKeys",
    )
    rules = (_SELECTOR_NEEDED, mismatch_needs_selector, both, _twice("matchLabelKeys"), _twice("mismatchLabelKeys"))
    return record(fields, required=("topologyKey",), rules=rules)


def _pod_affinity(about: str) -> Schema:
    weighted = record(
        {"weight": _weight(), "podAffinityTerm": _pod_affinity_term()}, required=("weight", "podAffinityTerm")
    )
    fields = {
        "requiredDuringSchedulingIgnoredDuringExecution": listed(_pod_affinity_term(), 16),
        "preferredDuringSchedulingIgnoredDuringExecution": listed(weighted, 16),
    }
    return record(fields, about)


def affinity() -> Schema:
    """A core/v1 Affinity."""
    fields = {
        "nodeAffinity": _node_affinity(),
        "podAffinity": _pod_affinity("As in a pod; terms are added to those of the pod."),
        "podAntiAffinity": _pod_affinity("As in a pod; terms are added to those of the pod."),
    }
    return record(fields, "As in a pod.")


def tolerations() -> Schema:
    """A list of core/v1 Toleration. The operators Lt and Gt (KEP-5471) are behind a gate that is off in 1.36."""
    exists = "has(self.operator) && self.operator == 'Exists'"
    item = record(
        {
            "key": {"type": "string", "maxLength": _LONGEST_KEY, "pattern": rf"^$|{LABEL_KEY}"},
            "operator": text(choices=("", "Exists", "Equal")),
            "value": dict(_LABEL_VALUE_TEXT),
            "effect": text(choices=("", "NoSchedule", "PreferNoSchedule", "NoExecute")),
            "tolerationSeconds": {"type": "integer", "format": "int64"},
        },
        rules=(
            rule(
                f"(has(self.key) && self.key != '') || ({exists})",
                "operator must be Exists when key is empty",
                ".operator",
            ),
            rule(
                f"!({exists}) || !has(self.value) || self.value == ''",
                "value must be empty when operator is Exists",
                ".value",
            ),
            rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "effect must be NoExecute when tolerationSeconds is set",
                ".effect",
            ),
        ),
    )
    return listed(item, 64, "Added to those of the pod.")


def topology_spread_constraints() -> Schema:
    """A list of core/v1 TopologySpreadConstraint, in which minDomains may stand beside ScheduleAnyway."""
    counted = {"type": "integer", "format": "int32", "minimum": 1}
    item = record(
        {
            "maxSkew": counted,
            "topologyKey": dict(LABEL_KEY_TEXT),
            "whenUnsatisfiable": text(choices=("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": label_selector("Which pods are counted. Absent: none."),
            "matchLabelKeys": _keys_of_labels("KEP-3243"),
            "minDomains": counted
            | {
                "description": "Beside ScheduleAnyway it is served by the extender's scores and not written into a pod, "
                "which the API server would refuse (KEP-3022)."
            },
            "nodeAffinityPolicy": text(choices=("Honor", "Ignore")),
            "nodeTaintsPolicy": text(choices=("Honor", "Ignore")),
        },
        required=("maxSkew", "topologyKey", "whenUnsatisfiable"),
        rules=(_SELECTOR_NEEDED, _twice("matchLabelKeys")),
    )
    return listed(item, 16, "Added to those of the pod.", keys=("topologyKey", "whenUnsatisfiable"))


def spread() -> Schema:
    """The directives about constraints that pods have, by topology key."""
    fields = {
        "topologyKey": LABEL_KEY_TEXT | {"description": "The key of the constraints that this is about."},
        "matchLabelKeys": text(
            about="IfMissing: a constraint without the label key of the pod's revision gets it (KEP-3243).",
            choices=("IfMissing",),
        ),
        "minDomains": {
            "description": "A hard constraint without minDomains gets this number, or Declared: as many as TopologyDomains list.",
            "x-kubernetes-int-or-string": True,
        },
        "unavailableDomains": text(
            about="Exclude: a domain without a node that takes pods counts for nothing and takes none.",
            choices=("Keep", "Exclude"),
        ),
        "after": text(
            _DURATION, _LONGEST_DURATION, f"For how long no node takes pods then; {DEFAULT_AFTER} if absent."
        ),
        "fullDomains": text(
            about="Exclude: nor does a domain without room for the pod, in the decision about it.",
            choices=("Keep", "Exclude"),
        ),
        "deletionCost": text(
            about="Fullest: a ReplicaSet that gets smaller loses pods of the fullest domains first.",
            choices=("Fullest",),
        ),
    }
    rules = (
        rule(
            "!has(self.minDomains) || (type(self.minDomains) == int ? self.minDomains >= 1 && self.minDomains <= 2147483647"
            " : self.minDomains == 'Declared')",
            "must be a number from 1 on, or Declared",
            ".minDomains",
        ),
        rule(
            "!has(self.after) || (has(self.unavailableDomains) && self.unavailableDomains == 'Exclude')",
            "is for `unavailableDomains: Exclude` only",
            ".after",
        ),
        rule(
            "!has(self.after) || (duration(self.after) >= duration('1s') && duration(self.after) <= duration('24h')"
            " && duration(self.after).getMilliseconds() % 1000 == 0)",
            "must be whole seconds from 1s to 24h",
            ".after",
        ),
    )
    item = record(fields, required=("topologyKey",), rules=rules)
    about = "What holds for the spread constraints that the pods have, by topology key."
    return listed(item, MOST_SPREAD, about, keys=("topologyKey",))


def scheduling_gates() -> Schema:
    """A list of core/v1 PodSchedulingGate."""
    gate = record({"name": dict(LABEL_KEY_TEXT)}, required=("name",))
    return listed(gate, 16, "Added to those of the pod (KEP-3521).", keys=("name",))


_LONGEST_GATE: Final = len(GATE_PREFIX) + 63
_GATE: Final = rf"^{re.escape(GATE_PREFIX)}{LABEL}$"
_LONGEST_DURATION: Final = 32
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"


def release() -> Schema:
    """The block. Whether a policy may have it is a rule of the whole spec (`RULES`)."""
    fields = {
        "gate": text(_GATE, _LONGEST_GATE, "The gate; set when a pod is created. The extender removes no others.")
        | {"default": RELEASE_GATE},
        "group": _one_of(
            {"label": dict(LABEL_KEY_TEXT), "owner": {"type": "boolean", "enum": [True]}},
            "Which pods belong together: the value of a label, or the same controller.",
        )
        | {"default": {"owner": True}},
        "size": _one_of(
            {
                "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": MOST_PODS},
                "label": dict(LABEL_KEY_TEXT),
                "annotation": dict(LABEL_KEY_TEXT),
            },
            "How many pods a group has: a number, or where its pods tell it. A group is decided once they all wait.",
        )
        | {"default": {"count": 1}},
        "topology": listed(
            dict(LABEL_KEY_TEXT),
            MOST_LEVELS,
            "Label keys of nodes, coarse to fine. A group lands in one domain of the first, and of the finest that holds it.",
            least=1,
        ),
        "domains": listed(
            _domain(),
            MOST_DOMAINS,
            "Where groups may go: sets of values of the first key, in the order of InOrder. Without it each value is a domain.",
            least=1,
            keys=("name",),
        ),
        "maxPerDomain": _pods_of_quota("How many pods of this policy each domain may have.", least=1),
        "mode": _choice(
            "What happens if no domain holds a group: it waits, or it is released without one.", ReleaseMode
        ),
        "strategy": _choice("Which of the domains that hold a group.", Strategy),
        "exclusive": {
            "description": "The domain takes no other group of this policy.",
            "type": "boolean",
            "default": False,
        },
        "decisionTimeout": text(_DURATION, _LONGEST_DURATION, "How long a group waits for its decision.")
        | {"default": "10m"},
        "onTimeout": _choice("What happens then.", OnTimeout),
        "replacement": _choice("Where a pod goes that replaces one of a decided group.", Replacement),
        "growth": _choice("Where pods go beyond the size of a decided group: into its domain, or nowhere.", Growth),
        "whenNoRoom": _choice(
            "What happens to a complete group if no domain has room: it waits, it is released into the first domain that "
            "may grow, where its pods wait for nodes, or pods of lower priority are preempted for it.",
            WhenNoRoom,
        ),
    }
    rules = (
        rule(
            "self.topology.all(key, self.topology.exists_one(other, other == key))", "has a key twice", ".topology",
            "FieldValueDuplicate",
        ),
        rule(
            "!has(self.decisionTimeout) || (duration(self.decisionTimeout) > duration('0s')"
            " && duration(self.decisionTimeout) <= duration('168h'))",
            "must be more than 0 and at most 168h",
            ".decisionTimeout",
        ),
        rule(
            "!has(self.strategy) || self.strategy != 'InOrder' || has(self.domains)",
            "is needed where `strategy` is InOrder", ".domains", "FieldValueRequired",
        ),
        rule(
            "!has(self.domains) || size(self.topology) == 1 || self.domains.all(each, size(each.values) == 1)",
            "`values` may be several only where `topology` has one key", ".domains",
        ),
        rule(
            "!has(self.domains) || !has(self.mode) || self.mode != 'Preferred'",
            "would release groups outside of `domains`", ".mode",
        ),
        rule(
            "!has(self.domains) || !has(self.onTimeout) || self.onTimeout == 'KeepGated'",
            "would release groups outside of `domains`", ".onTimeout",
        ),
        rule(
            "!has(self.maxPerDomain) || !has(self.mode) || self.mode != 'Preferred'",
            "would release groups outside of `maxPerDomain`", ".mode",
        ),
        rule(
            "!has(self.maxPerDomain) || !has(self.onTimeout) || self.onTimeout == 'KeepGated'",
            "would release groups outside of `maxPerDomain`", ".onTimeout",
        ),
        rule(
            "!has(self.whenNoRoom) || self.whenNoRoom != 'Release'"
            " || (has(self.domains) && self.domains.exists(each, has(each.mayGrow) && each.mayGrow))",
            "needs a domain with `mayGrow: true`", ".whenNoRoom",
        ),
    )  # fmt: skip
    about = "Holds pods at a gate until their group is complete, and releases them together into one domain (KEP-3838)."
    return record(fields, about, required=("topology",), rules=rules)


def brought_tolerations() -> Schema:
    """What pods get with a domain."""
    about = "What pods get when they are released into the domain, such as those for the taint of its nodes."
    return tolerations() | {"description": about, "maxItems": MOST_TOLERATIONS}


def _domain() -> Schema:
    values = text(LABEL_VALUE, _LONGEST_LABEL)
    fields = {
        "name": text(DNS_LABEL, _LONGEST_LABEL),
        "values": listed(dict(values), MOST_VALUES, "A node is in the domain with one of these.", least=1, is_set=True),
        "preferred": listed(dict(values), MOST_VALUES, "Those of the values that pods prefer.", is_set=True),
        "quota": _amounts(
            "What released pods of this policy may have in the domain.",
            rules=(rule("has(self.pods) || has(self.resources)", "must have pods or resources"),),
        ),
        "tolerations": brought_tolerations(),
        "mayGrow": {
            "description": "Nodes may be added for pods that wait for room here, see whenNoRoom.",
            "type": "boolean",
        },
    }
    inside = rule(
        "!has(self.preferred) || self.preferred.all(each, each in self.values)", "has a value that `values` has not",
        ".preferred",
    )  # fmt: skip
    return record(fields, required=("name", "values"), rules=(inside,))


def _amounts(about: str, rules: Sequence[Mapping[str, str]] = ()) -> Schema:
    fields = {
        "pods": _pods_of_quota("How many pods."),
        "resources": {
            "description": "How much of each resource these request together, such as cpu.",
            "type": "object",
            "maxProperties": MOST_RESOURCES,
            "additionalProperties": text(QUANTITY, LONGEST_QUANTITY),
        },
    }
    return record(fields, about, rules=rules)


def domain_uses() -> Schema:
    """What is used of the domains of a policy, in its status."""
    fields = {
        "name": text(longest=_LONGEST_LABEL),
        "values": listed(text(longest=_LONGEST_LABEL), MOST_VALUES, "The values of the first topology key."),
        "quota": _amounts("What pods of this policy may have here."),
        "used": _amounts("What they have here, those that terminate too."),
        "mayGrow": {"type": "boolean"},
    }
    about = "The domains in the order of the policy, and what released pods have of each. Written every ten seconds at most."
    return listed(record(fields, required=("name", "used")), MOST_DOMAINS, about)


def _pods_of_quota(about: str, least: int = 0) -> Schema:
    return {
        "description": about,
        "type": "integer",
        "format": "int32",
        "minimum": least,
        "maximum": MOST_PODS_OF_QUOTA,
    }


def _one_of(fields: Mapping[str, Schema], about: str) -> Schema:
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    exactly = rule(f"{count} == 1", f"must have exactly one of the fields {', '.join(fields)}")
    return record(fields, about, rules=(exactly,))


def _choice(about: str, choices: type[StrEnum]) -> Schema:
    names = [str(each) for each in choices]
    return text(about=about, choices=names) | {"default": names[0]}


RULES: Final = (
    rule(
        "!has(self.spread) || !has(self.targets) || self.targets != 'Templates'",
        "acts on pods: `targets` must be Pods or Both",
        ".spread",
        "FieldValueForbidden",
    ),
    rule(
        "!has(self.spread) || !has(self.when) || 'Scheduling' in self.when"
        " || self.spread.all(each, !has(each.unavailableDomains) && !has(each.fullDomains)"
        " && !has(each.deletionCost))",
        "acts on pods that exist, so `when` must contain Scheduling",
        ".spread",
    ),
    rule(
        "!has(self.release) || (has(self.when) && 'Release' in self.when)",
        "acts at release only, so `when` must contain Release",
        ".release",
    ),
    rule(
        "!has(self.when) || !('Release' in self.when) || has(self.release)",
        "is needed where `when` contains Release",
        ".release",
        "FieldValueRequired",
    ),
    rule(
        "!has(self.release) || !has(self.nodeName)",
        "may not be specified beside nodeName: the API server refuses a gated pod that has a node",
        ".release",
        "FieldValueForbidden",
    ),
)

"""The fields of core/v1 that a policy has as a pod does: selectors, affinity, tolerations, spread constraints, gates.

The rules repeat the API server's checks of a pod (`pkg/apis/core/validation`), because an accepted policy must not produce a pod
that the API server refuses. The webhook checks these fields with `field_errors.py`, in a policy as in a pod.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from extender.wire.policies.field_errors import PREFERRED, REQUIRED, ErrorType
from extender.wire.policies.schema import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LABEL_KEY,
    LABEL_VALUE,
    LONGEST_KEY,
    LONGEST_LABEL,
    Field,
    FieldRule,
    Many,
    Pairs,
    Predicate,
    Record,
    Text,
    WholeNumber,
    predicate,
)

_INTEGER: Final = "^(0|-?[1-9][0-9]{0,18})$"


def _schema_only(*rules: FieldRule) -> tuple[Predicate, ...]:
    """`field_errors.py` has the same checks."""
    return (predicate(None, *rules),)


_VALUES_NEEDED: Final = FieldRule(
    "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : true",
    "must be specified when operator is In or NotIn",
    ".values",
    ErrorType.REQUIRED,
)
_VALUES_FORBIDDEN: Final = FieldRule(
    "self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || size(self.values) == 0 : true",
    "may not be specified when operator is Exists or DoesNotExist",
    ".values",
    ErrorType.FORBIDDEN,
)
LABELS: Final = Pairs(
    LABEL_VALUE,
    32,
    (FieldRule(f"self.all(key, key != '' && size(key) <= {LONGEST_KEY})", "a label key has 1 to 317 characters"),),
)
# Atomic, as in Kubernetes: server-side apply replaces a selector as a whole. Merging the requirements of two writers
# would make a selector that neither of them wants.
LABEL_SELECTOR: Final = Record(
    (
        Field("matchLabels", LABELS, "Labels that must all be there."),
        Field(
            "matchExpressions",
            Many(
                Record(
                    (
                        Field("key", LABEL_KEY, is_required=True),
                        Field("operator", Text(choices=("In", "NotIn", "Exists", "DoesNotExist")), is_required=True),
                        Field("values", Many(LABEL_VALUE, 64)),
                    ),
                    _schema_only(_VALUES_NEEDED, _VALUES_FORBIDDEN),
                ),
                32,
            ),
            "Requirements that must all hold.",
        ),
    ),
    is_atomic=True,
)
_NODE_EXPRESSION: Final = Record(
    (
        Field("key", LABEL_KEY, is_required=True),
        Field("operator", Text(choices=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")), is_required=True),
        Field("values", Many(Text(longest=LONGEST_LABEL), 128)),
    ),
    _schema_only(
        _VALUES_NEEDED,
        _VALUES_FORBIDDEN,
        FieldRule(
            "self.operator in ['Gt', 'Lt'] ? has(self.values) && size(self.values) == 1 : true",
            "must be specified single value when operator is Lt or Gt",
            ".values",
            ErrorType.REQUIRED,
        ),
        FieldRule(
            "self.operator in ['Gt', 'Lt'] && has(self.values) && size(self.values) == 1"
            f" ? self.values[0].matches('{_INTEGER}') : true",
            "must be an integer when operator is Lt or Gt",
            ".values",
        ),
    ),
)
_NODE_NAME: Final = Record(
    (
        Field("key", Text(choices=("metadata.name",)), is_required=True),
        Field("operator", Text(choices=("In", "NotIn")), is_required=True),
        # A node has one name, and the API server accepts one value.
        Field("values", Many(Text(DNS_SUBDOMAIN), 1, least=1), is_required=True),
    )
)
_NODE_TERM: Final = Record(
    (
        Field("matchExpressions", Many(_NODE_EXPRESSION, 32), "Requirements on labels of the node."),
        Field("matchFields", Many(_NODE_NAME, 8), "Requirements on the name of the node."),
    ),
    is_atomic=True,
)
_WEIGHT: Final = Field("weight", WholeNumber(1, 100), is_required=True)
_NODE_TERMS: Final = Field(
    "nodeSelectorTerms", Many(_NODE_TERM, 64, least=1), "A node matches when one of the terms does.", is_required=True
)
_NODE_AFFINITY: Final = Record(
    (
        Field(REQUIRED, Record((_NODE_TERMS,), is_atomic=True)),
        Field(PREFERRED, Many(Record((_WEIGHT, Field("preference", _NODE_TERM, is_required=True))), 32)),
    )
)


def _needs_selector(field: str) -> FieldRule:
    return FieldRule(
        f"!has(self.{field}) || size(self.{field}) == 0 || has(self.labelSelector)",
        "must not be specified when labelSelector is not set",
        f".{field}",
        ErrorType.FORBIDDEN,
    )


def _twice(field: str) -> FieldRule:
    """No key may stand both in the selector and among the keys whose values come from the pod."""
    return FieldRule(
        f"!has(self.{field}) || !has(self.labelSelector) || !has(self.labelSelector.matchLabels)"
        f" || !self.{field}.exists(key, key in self.labelSelector.matchLabels)",
        "holds a key of labelSelector",
        f".{field}",
    )


def _label_keys(name: str, source: str) -> Field:
    about = f"Label keys whose values are taken from the incoming pod ({source})."
    return Field(name, Many(LABEL_KEY, 16), about)


_POD_TERM: Final = Record(
    (
        Field("labelSelector", LABEL_SELECTOR, "Which pods. Absent: none."),
        Field("namespaces", Many(Text(DNS_LABEL, LONGEST_LABEL), 64), "Namespaces of those pods, by name."),
        Field(
            "namespaceSelector", LABEL_SELECTOR, "Namespaces of those pods, by label, besides those listed. Empty: all."
        ),
        Field("topologyKey", LABEL_KEY, is_required=True),
        _label_keys("matchLabelKeys", "KEP-3633"),
        _label_keys("mismatchLabelKeys", "KEP-3633"),
    ),
    _schema_only(
        _needs_selector("matchLabelKeys"),
        _needs_selector("mismatchLabelKeys"),
        FieldRule(
            "!has(self.matchLabelKeys) || !has(self.mismatchLabelKeys)"
            " || !self.matchLabelKeys.exists(key, key in self.mismatchLabelKeys)",
            "holds a key of mismatchLabelKeys",
            ".matchLabelKeys",
        ),
        _twice("matchLabelKeys"),
        _twice("mismatchLabelKeys"),
    ),
)
_WEIGHTED_POD_TERM: Final = Record((_WEIGHT, Field("podAffinityTerm", _POD_TERM, is_required=True)))
_POD_AFFINITY: Final = Record((Field(REQUIRED, Many(_POD_TERM, 16)), Field(PREFERRED, Many(_WEIGHTED_POD_TERM, 16))))
_ADDED: Final = "As in a pod. The terms are added to the terms of the pod."
AFFINITY: Final = Record(
    (
        Field(
            "nodeAffinity",
            _NODE_AFFINITY,
            "As in a pod. Required terms are combined with the required terms of the pod: both must hold.",
        ),
        Field("podAffinity", _POD_AFFINITY, _ADDED),
        Field("podAntiAffinity", _POD_AFFINITY, _ADDED),
    )
)

_EXISTS: Final = "has(self.operator) && self.operator == 'Exists'"
# The operators Lt and Gt (KEP-5471) are behind a gate that is off in 1.36.
TOLERATION: Final = Record(
    (
        # An empty key with the operator Exists tolerates every taint.
        Field("key", replace(LABEL_KEY, pattern=rf"^$|{LABEL_KEY.pattern}", may_be_empty=True)),
        Field("operator", Text(choices=("", "Exists", "Equal"))),
        Field("value", LABEL_VALUE),
        Field("effect", Text(choices=("", "NoSchedule", "PreferNoSchedule", "NoExecute"))),
        Field("tolerationSeconds", WholeNumber(None, bits=64)),
    ),
    _schema_only(
        FieldRule(
            f"(has(self.key) && self.key != '') || ({_EXISTS})",
            "operator must be Exists when key is empty",
            ".operator",
        ),
        FieldRule(
            f"!({_EXISTS}) || !has(self.value) || self.value == ''",
            "value must be empty when operator is Exists",
            ".value",
        ),
        FieldRule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "effect must be NoExecute when tolerationSeconds is set",
            ".effect",
        ),
    ),
)
# minDomains may stand beside ScheduleAnyway, unlike in a pod.
SPREAD_CONSTRAINT: Final = Record(
    (
        Field("maxSkew", WholeNumber(1), is_required=True),
        Field("topologyKey", LABEL_KEY, is_required=True),
        Field("whenUnsatisfiable", Text(choices=("DoNotSchedule", "ScheduleAnyway")), is_required=True),
        Field("labelSelector", LABEL_SELECTOR, "Which pods are counted. Absent: none."),
        _label_keys("matchLabelKeys", "KEP-3243"),
        Field(
            "minDomains",
            WholeNumber(1),
            "Beside ScheduleAnyway it is served by the extender's scores and not written into a pod, "
            "which the API server would refuse (KEP-3022).",
        ),
        Field("nodeAffinityPolicy", Text(choices=("Honor", "Ignore"))),
        Field("nodeTaintsPolicy", Text(choices=("Honor", "Ignore"))),
    ),
    _schema_only(_needs_selector("matchLabelKeys"), _twice("matchLabelKeys")),
)
GATE: Final = Record((Field("name", LABEL_KEY, is_required=True),))

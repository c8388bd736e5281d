"""The fields of a scheduling policy, each declared once: `SPEC`.

A predicate is a check of the webhook with its CEL rules, for what the types of fields cannot say. A field that is added here is in the
CRD, validated, known by name, and stays readable in a redacted recording.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from extender.features.execution.schema import ACTS_AT_EXECUTION, EXECUTION_FIELD
from extender.model.policies import PLAIN_SCALARS, ConflictPolicy, FailurePolicy, JsonObject, Mode, Moment, Targets
from extender.wire.policies.field_errors import (
    INT32,
    ErrorType,
    Problems,
    check_affinity,
    check_label_selector,
    check_labels,
    check_namespace,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)
from extender.wire.policies.pod_schema import AFFINITY, GATE, LABEL_SELECTOR, LABELS, SPREAD_CONSTRAINT, TOLERATION
from extender.wire.policies.release_schema import RELEASE
from extender.wire.policies.schema import (
    DNS_LABEL,
    DNS_SUBDOMAIN,
    LABEL_KEY,
    LONGEST_LABEL,
    Field,
    FieldRule,
    Many,
    NumberOrWord,
    Record,
    Text,
    WholeNumber,
    choice,
    duration,
    predicate,
)

MOST_SPREAD: Final = 16  # topology keys of one policy
DEFAULT_AFTER: Final = "5m"
_KIND_NAME: Final = Text("^[A-Z][A-Za-z0-9]*$", 63, is_lenient=True)
_SCHEDULER: Final = Text("^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", is_lenient=True)
_NAME: Final = Text(DNS_SUBDOMAIN, is_lenient=True)
_CHECKED_NAME: Final = Text(DNS_SUBDOMAIN, check=check_subdomain, is_optional=True)

# -- the directive `spread`: what is meant by the spread constraints that pods have

_LONGEST_AFTER: Final = 24 * 3600.0
_AFTER_LIMITS: Final = "must be whole seconds from 1s to 24h"


def _after_excludes(found: Problems, directive: JsonObject, path: str) -> None:
    after = directive.get("after")
    if after and isinstance(after, str) and directive.get("unavailableDomains") != "Exclude":
        found.invalid(f"{path}.after", after, "is for `unavailableDomains: Exclude` only")


SPREAD: Final = Record(
    (
        Field("topologyKey", LABEL_KEY, "The key of the constraints that this is about.", is_required=True),
        Field(
            "matchLabelKeys",
            choice(["IfMissing"], has_default=False),
            "IfMissing: a constraint without the label key of the pod's revision gets it (KEP-3243).",
        ),
        Field(
            "minDomains",
            NumberOrWord("Declared", 1, INT32),
            "A hard constraint without minDomains gets this number, or Declared: as many as TopologyDomains list.",
        ),
        Field(
            "unavailableDomains",
            choice(["Keep", "Exclude"], has_default=False),
            "Exclude: a domain without a node that takes pods counts for nothing and takes none.",
        ),
        Field(
            "after",
            duration(lambda seconds: 1 <= seconds <= _LONGEST_AFTER and seconds % 1 == 0, _AFTER_LIMITS),
            f"For how long no node takes pods then; {DEFAULT_AFTER} if absent.",
        ),
        Field(
            "fullDomains",
            choice(["Keep", "Exclude"], has_default=False),
            "Exclude: nor does a domain without room for the pod, in the decision about it.",
        ),
        Field(
            "deletionCost",
            choice(["Fullest"], has_default=False),
            "Fullest: a ReplicaSet that gets smaller loses pods of the fullest domains first.",
        ),
    ),
    (
        predicate(
            None,
            FieldRule(
                "!has(self.minDomains) || (type(self.minDomains) == int ? self.minDomains >= 1 && self.minDomains <= 2147483647"
                " : self.minDomains == 'Declared')",
                "must be a number from 1 on, or Declared",
                ".minDomains",
            ),
        ),
        predicate(
            _after_excludes,
            FieldRule(
                "!has(self.after) || (has(self.unavailableDomains) && self.unavailableDomains == 'Exclude')",
                "is for `unavailableDomains: Exclude` only",
                ".after",
            ),
            FieldRule(
                "!has(self.after) || (duration(self.after) >= duration('1s') && duration(self.after) <= duration('24h')"
                " && duration(self.after).getMilliseconds() % 1000 == 0)",
                _AFTER_LIMITS,
                ".after",
            ),
        ),
    ),
)


# -- the spec

_NO_GATE: Final = "a pod with a node may have no gate: leave out `nodeName`"
_REFUSES_GATES: Final = "the API server refuses a gated pod that has a node"
_EXISTING_PODS: Final = "acts on pods that exist, so `when` must contain Scheduling"
_AT_ADMISSION_ONLY: Final = ("schedulerName", "schedulerNames", "schedulingGates", *PLAIN_SCALARS)


def _has_one_way_to_schedulers(found: Problems, spec: JsonObject, path: str) -> None:
    one, several = spec.get("schedulerName"), spec.get("schedulerNames")
    # Wrong types are reported by the check of the field.
    if one and several and isinstance(one, str) and isinstance(several, list):
        found.forbidden(f"{path}.schedulerNames", "may not be specified together with `schedulerName`")


def _has_gates_or_a_node(found: Problems, spec: JsonObject, path: str) -> None:
    if isinstance(spec.get("schedulingGates"), list) and spec["schedulingGates"] and spec.get("nodeName"):
        found.forbidden(f"{path}.schedulingGates", _NO_GATE)


def _spreads_pods(found: Problems, spec: JsonObject, path: str) -> None:
    """The directives change pods, whose labels are known, and never a template."""
    if spec.get("spread") and isinstance(spec["spread"], list) and spec.get("targets") == Targets.TEMPLATES:
        found.forbidden(f"{path}.spread", "acts on pods: `targets` must be Pods or Both")


def _spreads_at_scheduling(found: Problems, spec: JsonObject, path: str) -> None:
    listed, when = spec.get("spread"), spec.get("when")
    if not isinstance(listed, list) or not isinstance(when, list) or Moment.SCHEDULING in when:
        return
    for number, each in enumerate(listed[:MOST_SPREAD]):
        if isinstance(each, dict) and any(map(each.get, _LATER_FIELDS)):
            found.invalid(f"{path}.spread[{number}]", each.get("topologyKey"), _EXISTING_PODS)


# The CEL rule does not name `after`: another rule allows it only beside unavailableDomains.
_LATER_FIELDS: Final = ("unavailableDomains", "after", "fullDomains", "deletionCost")


def _releases_at_release(found: Problems, spec: JsonObject, path: str) -> None:
    when, at = spec.get("when"), f"{path}.release"
    acts = isinstance(when, list) and Moment.RELEASE in when
    if spec.get("release") is None:
        if acts:
            found.required(at, "is needed where `when` contains Release")
        return
    if not acts:
        found.invalid(at, spec["release"], "acts at release only, so `when` must contain Release")
    if spec.get("nodeName"):
        found.forbidden(at, _NO_GATE)


def _named(item: Text, most: int) -> Many:
    """Names that a pod is selected by. One too many, or one that stands there twice, does no harm in an older policy."""
    return Many(item, most, is_set=True, is_limited=False, is_unique=False)


_SELECTED: Final = (
    Field("ownerKinds", _named(_KIND_NAME, 16), "Kinds of the pod's controller, such as StatefulSet."),
    Field("serviceAccounts", _named(_NAME, 64), "Names of service accounts."),
    Field("priorityClassNames", _named(_NAME, 32), "Names of priority classes."),
)
_EXCLUDE: Final = Record(
    (
        Field("podSelector", LABEL_SELECTOR, "Pods by label. Absent: none is excluded.", check=check_label_selector),
        Field("namespaces", _named(Text(DNS_LABEL, LONGEST_LABEL, check=check_namespace), 64), "Namespaces by name."),
        *_SELECTED,
    )
)
_NAMESPACE_SELECTOR: Final = Field(
    "namespaceSelector",
    LABEL_SELECTOR,
    "Which namespaces, by label. Empty: all. Absent: none.",
    check=check_label_selector,
)
SPEC: Final = Record(
    (
        Field(
            "podSelector", LABEL_SELECTOR, "Which pods, by label. Empty: all. Absent: none.", check=check_label_selector
        ),
        _NAMESPACE_SELECTOR,
        Field(
            "matchConditions",
            Record((*_SELECTED, Field("exclude", _EXCLUDE, "A pod that any of these fields names is not selected."))),
            "All fields must hold; of a list one entry must.",
        ),
        Field(
            "when",
            Many(
                Text(choices=tuple(map(str, Moment)), reads=Moment),
                len(Moment),
                least=1,
                is_set=True,
                is_limited=False,
                is_unique=False,
                needs="must name at least one moment",
                reads=frozenset,
                default=(str(Moment.ADMISSION), str(Moment.SCHEDULING)),
            ),
            "The moments at which the policy acts.",
        ),
        Field("targets", choice(Targets), "What is changed at admission."),
        Field(
            "priority",
            WholeNumber(-INT32 - 1, INT32, default=0),  # by the format alone the refusal would not name the field
            "Higher goes first; then the cluster-wide kind, then the name.",
        ),
        Field(
            "conflictPolicy",
            # COMBINE is kupid's way, and not offered.
            replace(
                choice([ConflictPolicy.KEEP_POD, ConflictPolicy.OVERRIDE, ConflictPolicy.REJECT]), reads=ConflictPolicy
            ),
            "What happens to a field that the pod has set.",
        ),
        Field("failurePolicy", choice(FailurePolicy), "What happens to the pod if this policy cannot be applied."),
        Field("mode", choice(Mode), "Audit only reports what the policy would do."),
        Field(
            "release",
            RELEASE,
            "Holds pods at a gate until their group is complete, and releases them together into one domain (KEP-3838).",
        ),
        EXECUTION_FIELD,
        Field("nodeSelector", LABELS, "Labels that the node must have.", check=check_labels),
        Field("nodeName", _CHECKED_NAME, "The node. The pod does not pass a scheduler then."),
        Field("affinity", AFFINITY, "As in a pod.", check=check_affinity),
        Field("tolerations", Many(TOLERATION, 64), "Added to the pod's tolerations.", check=check_tolerations),
        Field(
            "topologySpreadConstraints",
            Many(SPREAD_CONSTRAINT, 16, keys=("topologyKey", "whenUnsatisfiable")),
            "Added to the pod's constraints.",
            check=check_spread_constraints,
        ),
        Field(
            "spread",
            Many(SPREAD, MOST_SPREAD, keys=("topologyKey",)),
            "What holds for the spread constraints that the pods have, by topology key.",
        ),
        Field("schedulerName", _SCHEDULER, "The scheduler that places the pod."),
        Field(
            "schedulerNames",
            Many(replace(_SCHEDULER, check=check_subdomain), 16, least=1, is_set=True, is_limited=False),
            "One of these, by a hash of the owner's UID.",
        ),
        Field(
            "schedulingGates", Many(GATE, 16, keys=("name",), is_limited=False), "Added to the pod's gates (KEP-3521)."
        ),
        Field("priorityClassName", _CHECKED_NAME, "The priority class of the pod."),
    ),
    (
        predicate(
            _has_one_way_to_schedulers,
            FieldRule(
                "!has(self.schedulerName) || !has(self.schedulerNames)",
                "may not be specified beside schedulerName",
                ".schedulerNames",
                ErrorType.FORBIDDEN,
            ),
        ),
        predicate(
            _has_gates_or_a_node,
            FieldRule(
                "!has(self.nodeName) || !has(self.schedulingGates) || size(self.schedulingGates) == 0",
                f"may not be specified beside schedulingGates: {_REFUSES_GATES}",
                ".nodeName",
                ErrorType.FORBIDDEN,
            ),
        ),
        predicate(
            None,
            *tuple(
                FieldRule(
                    f"!has(self.{field}) || !has(self.when) || 'Admission' in self.when",
                    "acts at admission only, so `when` must contain Admission",
                    f".{field}",
                )
                for field in _AT_ADMISSION_ONLY
            ),
        ),
        predicate(
            _spreads_pods,
            FieldRule(
                "!has(self.spread) || !has(self.targets) || self.targets != 'Templates'",
                "acts on pods: `targets` must be Pods or Both",
                ".spread",
                ErrorType.FORBIDDEN,
            ),
        ),
        predicate(
            _spreads_at_scheduling,
            FieldRule(
                "!has(self.spread) || !has(self.when) || 'Scheduling' in self.when"
                " || self.spread.all(each, !has(each.unavailableDomains) && !has(each.fullDomains)"
                " && !has(each.deletionCost))",
                _EXISTING_PODS,
                ".spread",
            ),
        ),
        predicate(
            _releases_at_release,
            FieldRule(
                "!has(self.release) || (has(self.when) && 'Release' in self.when)",
                "acts at release only, so `when` must contain Release",
                ".release",
            ),
            FieldRule(
                "!has(self.when) || !('Release' in self.when) || has(self.release)",
                "is needed where `when` contains Release",
                ".release",
                ErrorType.REQUIRED,
            ),
            FieldRule(
                "!has(self.release) || !has(self.nodeName)",
                f"may not be specified beside nodeName: {_REFUSES_GATES}",
                ".release",
                ErrorType.FORBIDDEN,
            ),
        ),
        ACTS_AT_EXECUTION,
    ),
)
# Lacks the field that only the cluster-wide kind has. `policy_validation` refuses it with a text of its own, because a
# check of a record skips unknown fields.
NAMESPACED_SPEC: Final = replace(SPEC, fields=tuple(each for each in SPEC.fields if each is not _NAMESPACE_SELECTOR))

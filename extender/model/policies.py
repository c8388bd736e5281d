"""Scheduling policies: which pods they select, what they direct, and in which order they apply.

Immutable. JSON values inside are shared and must not be changed. `wire/policies/policies_v1.py` makes policies.
`verbs/admit/` injects them. A rule enforces them while pods are scheduled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from typing import Any, Final, NamedTuple, Self, TypeAlias

from extender.features.execution.directive import ExecutionSpec
from extender.model.constraints.clauses import Clause
from extender.model.constraints.directed import Directed, DirectedTerm, Element
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import (
    ANY_NODE,
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
)
from extender.model.constraints.selectors import EVERYTHING, NOTHING, LabelSelector
from extender.model.constraints.spread import SpreadDirective
from extender.model.rejections import Reason
from extender.model.release import ReleaseSpec

JsonObject: TypeAlias = dict[str, Any]

GROUP: Final = "placement.extender.dev"
KUPID_GROUP: Final = "kupid.gardener.cloud"
VERSION: Final = "v1alpha1"
NAMESPACED_KIND: Final = "PodSchedulingPolicy"
CLUSTER_KIND: Final = "ClusterPodSchedulingPolicy"
INJECTED_ANNOTATION: Final = "placement.extender.dev/injected"
EXEMPT_LABEL: Final = "placement.extender.dev/exempt"

# A namespace has its name as a label, even where its object is not known.
# https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
DEFAULT_SERVICE_ACCOUNT: Final = "default"


class Moment(StrEnum):
    """When a policy acts."""

    ADMISSION = "Admission"
    SCHEDULING = "Scheduling"
    RELEASE = "Release"
    EXECUTION = "Execution"


class Targets(StrEnum):
    """Which objects a policy is injected into at admission."""

    PODS = "Pods"
    TEMPLATES = "Templates"
    BOTH = "Both"


class ConflictPolicy(StrEnum):
    """What happens where a pod and a policy contradict each other.

    COMBINE is how kupid does it, and no value of our own API: scalar fields and selector keys of the pod stay, and
    required node terms of both are joined even if no node matches the result.
    """

    KEEP_POD = "KeepPod"
    OVERRIDE = "Override"
    REJECT = "Reject"
    COMBINE = "Combine"


class FailurePolicy(StrEnum):
    """What happens to a pod if the policy itself cannot be applied because of an error."""

    IGNORE = "Ignore"
    FAIL = "Fail"


class Mode(StrEnum):
    """Whether a policy changes anything, or only records what it would change."""

    ENFORCE = "Enforce"
    AUDIT = "Audit"


class PolicyKey(NamedTuple):
    """Identifies a policy. ``namespace`` is empty for the cluster-wide kind."""

    group: str
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The reverse of ``str``; None for any other text, because a tenant may write it."""
        kind, *names = text.split("/")
        if kind.partition(".")[0] == CLUSTER_KIND:
            names = ["", *names]
        if len(names) != len(cls._fields) - 1:
            return None
        key = cls(kind.partition(".")[2] or GROUP, *names)
        # Written again and compared, so that each policy has exactly one accepted text.
        return key if str(key) == text else None

    @property
    def kind(self) -> str:
        """The kind of its object."""
        return NAMESPACED_KIND if self.namespace else CLUSTER_KIND

    def __str__(self) -> str:
        """``Kind/namespace/name`` or ``Kind/name``; for a group other than ours ``Kind.group/name``."""
        kind = self.kind if self.group == GROUP else f"{self.kind}.{self.group}"
        return "/".join(part for part in (kind, self.namespace, self.name) if part)


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that a policy is matched with: a pod, or the pods of a template.

    ``namespace_labels`` is None where the Namespace object is not known. ``owner_kind``: the kind of the pod's
    controller; for a template the kind of the object that contains the template.
    """

    namespace: str
    labels: Labels
    namespace_labels: Labels | None = None
    owner_kind: str = ""
    service_account: str = DEFAULT_SERVICE_ACCOUNT
    priority_class: str = ""

    @property
    def known_namespace_labels(self) -> Labels:
        """The namespace's labels; if they are not known, its name, which every namespace has as a label."""
        if self.namespace_labels is None:
            return {NAMESPACE_NAME_LABEL: self.namespace}
        return self.namespace_labels


class Exempt(NamedTuple):
    """Objects without policies: all objects of ``namespaces``, and objects with the exempting label in ``by_label``.

    ``*`` in ``by_label`` is every namespace. A tenant can write the label, so the platform says where it counts.
    """

    namespaces: Collection[str] = ()
    by_label: Collection[str] = ()

    def covers(self, namespace: str, labels: Labels) -> bool:
        """Whether no policy applies to an object."""
        if namespace in self.namespaces:
            return True
        # The label alone exempts nothing: a tenant could put it on any pod.
        return labels.get(EXEMPT_LABEL) == "true" and (namespace in self.by_label or "*" in self.by_label)


@dataclass(frozen=True, slots=True)
class Exclusion:
    """``matchConditions.exclude``: whatever matches one of these is not selected."""

    pod_selector: LabelSelector = NOTHING
    namespaces: frozenset[str] = frozenset()
    owner_kinds: frozenset[str] = frozenset()
    service_accounts: frozenset[str] = frozenset()
    priority_classes: frozenset[str] = frozenset()

    def matches(self, subject: Subject) -> bool:
        """Whether the subject is excluded. O(requirements)."""
        return (
            subject.namespace in self.namespaces
            or subject.owner_kind in self.owner_kinds
            or subject.service_account in self.service_accounts
            or subject.priority_class in self.priority_classes
            or (not self.pod_selector.nothing and self.pod_selector.matches(subject.labels))
        )


@dataclass(frozen=True, slots=True)
class MatchConditions:
    """``matchConditions``: each non-empty list must contain the subject's value, and no exclusion may match."""

    owner_kinds: frozenset[str] = frozenset()
    service_accounts: frozenset[str] = frozenset()
    priority_classes: frozenset[str] = frozenset()
    exclude: Exclusion = Exclusion()

    def matches(self, subject: Subject) -> bool:
        """Whether the subject fulfils all conditions. O(requirements)."""
        return (
            (not self.owner_kinds or subject.owner_kind in self.owner_kinds)
            and (not self.service_accounts or subject.service_account in self.service_accounts)
            and (not self.priority_classes or subject.priority_class in self.priority_classes)
            and not self.exclude.matches(subject)
        )


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """Which pods a policy selects. ``namespace``: of a namespaced policy; empty for the cluster-wide kind."""

    namespace: str
    pod_selector: LabelSelector
    namespace_selector: LabelSelector = EVERYTHING
    conditions: MatchConditions = MatchConditions()

    def selects(self, subject: Subject) -> bool:
        """Whether the policy concerns the subject. O(requirements)."""
        return (
            (not self.namespace or self.namespace == subject.namespace)
            and self.pod_selector.matches(subject.labels)
            and self._covers(subject)
            and self.conditions.matches(subject)
        )

    def _covers(self, subject: Subject) -> bool:
        selector = self.namespace_selector
        # An empty selector: also in a namespaced policy, which selects no namespaces.
        if not selector.requirements and not selector.nothing:
            return True
        return selector.matches(subject.known_namespace_labels) and not self._lacks_labels(subject)

    def _lacks_labels(self, subject: Subject) -> bool:
        """Whether the selector needs labels of a namespace, beyond its name, and they are not known."""
        return subject.namespace_labels is None and any(
            requirement.key != NAMESPACE_NAME_LABEL for requirement in self.namespace_selector.requirements
        )

    def is_undecided(self, subject: Subject) -> bool:
        """Whether the policy selects the subject if the unknown labels of its namespace match."""
        named = (
            requirement
            for requirement in self.namespace_selector.requirements
            if requirement.key == NAMESPACE_NAME_LABEL
        )
        return (
            self._lacks_labels(subject)
            and all(requirement.matches(subject.known_namespace_labels) for requirement in named)
            and self.pod_selector.matches(subject.labels)
            and self.conditions.matches(subject)
        )

    def may_select_any(self, subject: Subject) -> bool:
        """Whether the policy selects some pods of the subject's namespace. O(requirements)."""
        return self.namespace in ("", subject.namespace) and not self.pod_selector.nothing and self._covers(subject)


class Size(NamedTuple):
    """What a part of a pod counts against `limits`; the names as in the settings."""

    pod_bytes: int = 0
    affinity_terms: int = 0
    topology_spread_constraints: int = 0
    namespaces: int = 0
    label_requirements: int = 0
    node_selector_terms: int = 0
    node_requirements: int = 0
    selector_values: int = 0
    tolerations: int = 0

    def plus(self, other: Size) -> Size:
        """The sum of both."""
        return Size(*map(add, self, other))


_POD_TERMS: Final = ("affinity.podAffinity.", "affinity.podAntiAffinity.")


class TermPart(NamedTuple):
    """A requirement of a node selector term: its field, its clause and its size.

    - ``content``: the JSON that it was read from; for an unknown field, its whole content.
    - ``requirement``: the value of the model, in policies and in existing pods. None for an unknown field, and for JSON that
      cannot be parsed.
    """

    name: str
    content: Any
    clause: Clause
    size: Size
    requirement: NodeRequirement | None = None


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A required node selector term: its requirements as clauses. Without a clause it matches no node.

    - ``value``: the JSON that it was read from; empty for a term of an existing pod.
    - ``selector``: the value of the model, in policies and in existing pods.
    """

    value: JsonObject
    clauses: frozenset[Clause]
    parts: tuple[TermPart, ...] = ()
    selector: NodeSelectorTerm | None = None


@dataclass(frozen=True, slots=True)
class InjectedItem:
    """One element of a list of pods, with a key that equal elements share, and its size.

    - ``value``: the JSON that it was read from; empty for an element of an existing pod.
    - ``element``: the value of the model, in policies and in existing pods. None for a toleration, and for JSON that cannot be
      parsed.
    """

    value: JsonObject
    key: str
    size: Size
    element: Directed | Element | None = None


class Items(tuple[InjectedItem, ...]):  # noqa: SLOT001 (it has attributes, which a tuple cannot keep in slots)
    """The elements of one list, with totals that are computed once, because injection reads them for each pod."""

    keys: frozenset[str]
    size: Size

    def __new__(cls, items: Iterable[InjectedItem] = ()) -> Self:
        """``keys``: the keys of all elements. ``size``: the sum of their sizes."""
        self = super().__new__(cls, items)
        self.keys = frozenset(item.key for item in self)
        self.size = Size(*map(sum, zip(Size(), *(item.size for item in self), strict=True)))
        return self

    def without(self, known: AbstractSet[str]) -> Items:
        """The elements whose keys are not in ``known``. O(elements), in native code if it contains all keys or none."""
        if self.keys.isdisjoint(known):
            return self
        return _NO_ITEMS if self.keys <= known else Items(item for item in self if item.key not in known)


_NO_ITEMS: Final = Items()
# In units of an element of another list, which costs 0.5 µs. These cost more, because each may be a conflict of its
# own.
_SPREAD_WEIGHT: Final = 3
_PAIR_WEIGHT: Final = 2


# The fields of a pod's spec that a directive sets to one text, each with its field of `Directives`. A policy may have several scheduler
# names; a pod gets one of them. Injection, its record, the comparison of policies and their page read this table.
SCALARS: Final = {
    "nodeName": "node_name",
    "schedulerName": "scheduler_names",
    "priorityClassName": "priority_class_name",
}
# The scalars that only a new pod can get, and that the API server leaves empty.
PLAIN_SCALARS: Final = tuple(name for name in SCALARS if name not in ("nodeName", "schedulerName"))


@dataclass(frozen=True, slots=True)
class Directives:
    """What a policy directs, prepared for injection."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_name: str = ""
    scheduler_names: tuple[str, ...] = ()
    priority_class_name: str = ""
    scheduling_gates: tuple[str, ...] = ()
    required_node_terms: tuple[NodeTerm, ...] | None = None
    # Elements to append, by the dotted path of the list below the pod's spec.
    lists: Mapping[str, Items] = field(default_factory=dict)
    # Constraints with ScheduleAnyway and minDomains: they are scored and never injected, because the API rejects them.
    soft_min_domains: tuple[InjectedItem, ...] = ()
    # About constraints that pods have, from the manifest or from a policy: `verbs/admit/spread_directives.py`.
    spread: tuple[SpreadDirective, ...] = ()
    nodes: NodeAffinity = ANY_NODE
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    # The labels and fields of nodes that the selector and the required terms read.
    node_keys: frozenset[str] = frozenset()
    # The work of applying them to a pod that lacks them all, without node terms, in elements.
    weight: int = field(init=False, repr=False, compare=False)
    # By the name in `SCALARS`, only where the policy directs it.
    scalars: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Computes the weight and the scalars. O(lists)."""
        values = {name: getattr(self, attribute) for name, attribute in SCALARS.items()}
        scalars = {name: (value,) if isinstance(value, str) else value for name, value in values.items() if value}
        object.__setattr__(self, "scalars", scalars)
        spread = self.lists.get("topologySpreadConstraints", ())
        elements = sum(map(len, self.lists.values())) + len(self.spread)
        weight = 1 + elements + _SPREAD_WEIGHT * len(spread) + _PAIR_WEIGHT * len(self.node_selector)
        object.__setattr__(self, "weight", weight)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self == Directives()


@dataclass(frozen=True, slots=True)
class Policy:
    """A valid policy. ``release`` and ``execution`` are set where the policy acts at these moments."""

    key: PolicyKey
    scope: PolicyScope
    directives: Directives
    generation: int = 0
    priority: int = 0
    when: frozenset[Moment] = frozenset({Moment.ADMISSION, Moment.SCHEDULING})
    targets: Targets = Targets.PODS
    conflict_policy: ConflictPolicy = ConflictPolicy.KEEP_POD
    failure_policy: FailurePolicy = FailurePolicy.IGNORE
    mode: Mode = Mode.ENFORCE
    release: ReleaseSpec | None = None
    execution: ExecutionSpec | None = None

    @property
    def order(self) -> tuple[bool, int, str, str]:
        """Sorts policies as they apply: the cluster-wide kind first, then the higher priority, then by name.

        The kind comes before the priority, because a tenant writes the policies of a namespace and their priorities:
        they must not overrule the policies of the platform.
        """
        return (bool(self.key.namespace), -self.priority, self.key.name, self.key.group)

    @property
    def is_cross_namespace(self) -> bool:
        """Whether it directs a term that puts pods into the quota scope CrossNamespacePodAffinity. O(terms)."""
        return any(
            isinstance(item.element, DirectedTerm) and item.element.cross_namespace
            for items in self.directives.lists.values()
            for item in items
        )

    @property
    def holds_placed_pods(self) -> bool:
        """Whether it directs pod affinity of pods that admission missed.

        Such terms count against others once the pod is placed.
        """
        return (
            self.mode is Mode.ENFORCE
            and self.acts(Moment.SCHEDULING)
            and any(path.startswith(_POD_TERMS) for path in self.directives.lists)
        )

    def is_for(self, owner_kind: str) -> bool:
        """Whether it is for pods of this owner kind. A policy for templates is not for a pod without an owner."""
        return self.targets is not Targets.TEMPLATES or bool(owner_kind)

    def acts(self, moment: Moment) -> bool:
        """Whether the policy acts at this moment."""
        return moment in self.when

    def is_injected(self, *, is_pod: bool) -> bool:
        """Whether admission injects the policy into pods (``is_pod``), or into templates."""
        return Moment.ADMISSION in self.when and self.targets is not (Targets.TEMPLATES if is_pod else Targets.PODS)


@dataclass(frozen=True, slots=True)
class Enforced:
    """What policies require of a pod while it is scheduled, because the pod lacks it: it was not injected at admission."""

    policies: tuple[PolicyKey, ...]
    # Nodes that the pod's own requirements and the policies allow; the policies may name the node.
    nodes: NodeAffinity = ANY_NODE
    # Preferred terms that the pod does not have.
    preferred: tuple[PreferredNodeTerm, ...] = ()
    # Why the policies reject every node.
    refused_for: Reason | None = None
    # Policies that direct something about topology domains, which no field of a pod can express.
    about_domains: tuple[PolicyKey, ...] = ()

    @property
    def every_policy(self) -> tuple[PolicyKey, ...]:
        """All policies that direct something that the pod itself does not have."""
        return tuple(dict.fromkeys((*self.policies, *self.about_domains)))


@dataclass(frozen=True, slots=True)
class InvalidPolicy:
    """A policy that cannot be used, for example one that was valid under an older schema.

    ``scope`` is None where it cannot be read. ``when`` then has every moment. ``failure_policy`` is Ignore in mode
    Audit.
    """

    key: PolicyKey
    errors: tuple[str, ...]
    failure_policy: FailurePolicy = FailurePolicy.IGNORE
    scope: PolicyScope | None = None
    generation: int = 0
    when: frozenset[Moment] = frozenset(Moment)

    def must_not_be_missed(self, *moments: Moment) -> bool:
        """Whether pods are rejected at one of these moments because the policy cannot be applied."""
        return self.failure_policy is FailurePolicy.FAIL and not self.when.isdisjoint(moments)

    def may_select(self, subject: Subject) -> bool:
        """Whether the policy would select the subject, as far as its scope can be read."""
        if self.scope is not None:
            return self.scope.selects(subject)
        # A scope that cannot be read counts as every pod that the policy could reach.
        return self.key.namespace in ("", subject.namespace)


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A policy as it is watched, valid or not.

    ``source``: its JSON, for recordings; None for a policy made otherwise. ``moves``: `status.execution.moves`, unchecked.
    """

    policy: Policy | InvalidPolicy
    source: JsonObject | None = field(default=None, compare=False, repr=False)
    moves: tuple[JsonObject, ...] = field(default=(), hash=False, repr=False)

    @property
    def key(self) -> str:
        """Unique among the policies of all groups and kinds."""
        return str(self.policy.key)

    @property
    def name(self) -> str:
        """The name of its object."""
        return self.policy.key.name

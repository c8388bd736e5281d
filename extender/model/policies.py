"""Scheduling policies: which pods they select, what they direct, and in which order they apply.

Immutable. JSON values inside are shared and must not be changed. `wire/policies/policies_v1.py` makes policies, `verbs/admit/`
injects them, and a rule enforces them while pods are scheduled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from typing import Any, Final, NamedTuple, Self, TypeAlias

from extender.model.constraints.clauses import Clause
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import ANY_NODE, NodeAffinity, PreferredNodeTerm
from extender.model.constraints.selectors import EVERYTHING, NOTHING, LabelSelector
from extender.model.constraints.spread import SpreadDirective
from extender.model.constraints.terms import is_cross_namespace_term
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

# A namespace carries its name as a label, also where its object is not known.
# https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-metadata-name
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
DEFAULT_SERVICE_ACCOUNT: Final = "default"


class Moment(StrEnum):
    """When a policy acts."""

    ADMISSION = "Admission"
    SCHEDULING = "Scheduling"
    RELEASE = "Release"


class Targets(StrEnum):
    """Which objects a policy is injected into at admission."""

    PODS = "Pods"
    TEMPLATES = "Templates"
    BOTH = "Both"


class ConflictPolicy(StrEnum):
    """What happens where a pod and a policy contradict each other.

    COMBINE is kupid's way and no value of our own API: scalar fields and selector keys of the pod stay, required node
    terms of both are joined although no node matches the result.
    """

    KEEP_POD = "KeepPod"
    OVERRIDE = "Override"
    REJECT = "Reject"
    COMBINE = "Combine"


class FailurePolicy(StrEnum):
    """What happens to a pod where the policy itself cannot be applied, because of an error."""

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
        """The reverse of ``str``; None for any other text, as a tenant may write it."""
        kind, *names = text.split("/")
        if kind.partition(".")[0] == CLUSTER_KIND:
            names = ["", *names]
        if len(names) != len(cls._fields) - 1:
            return None
        found = cls(kind.partition(".")[2] or GROUP, *names)
        return found if str(found) == text else None

    @property
    def kind(self) -> str:
        """The kind of its object."""
        return NAMESPACED_KIND if self.namespace else CLUSTER_KIND

    def __str__(self) -> str:
        """``Kind/namespace/name``, or ``Kind/name``; of another group than ours, ``Kind.group/name``."""
        kind = self.kind if self.group == GROUP else f"{self.kind}.{self.group}"
        return "/".join(part for part in (kind, self.namespace, self.name) if part)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a policy is asked about: a pod, or the pods of a template.

    ``namespace_labels`` is None where the Namespace object is not known. ``owner_kind`` is the kind of the pod's
    controller; of a template, the kind of the object that holds it.
    """

    namespace: str
    labels: Labels
    namespace_labels: Labels | None = None
    owner_kind: str = ""
    service_account: str = DEFAULT_SERVICE_ACCOUNT
    priority_class: str = ""

    @property
    def known_namespace_labels(self) -> Labels:
        """The namespace's labels; at least its name, which every namespace carries as a label."""
        if self.namespace_labels is None:
            return {NAMESPACE_NAME_LABEL: self.namespace}
        return self.namespace_labels


class Exempt(NamedTuple):
    """What no policy applies to: all objects of ``namespaces``, and those with the exempting label in ``by_label`` (``*``: anywhere).

    A tenant can write the label, so the platform says where it counts.
    """

    namespaces: Collection[str] = ()
    by_label: Collection[str] = ()

    def covers(self, namespace: str, labels: Labels) -> bool:
        """Whether no policy applies to an object."""
        if namespace in self.namespaces:
            return True
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
            or self.pod_selector.matches(subject.labels)
        )


@dataclass(frozen=True, slots=True)
class MatchConditions:
    """``matchConditions``: every list that is not empty must contain the subject's value, and nothing may exclude it."""

    owner_kinds: frozenset[str] = frozenset()
    service_accounts: frozenset[str] = frozenset()
    priority_classes: frozenset[str] = frozenset()
    exclude: Exclusion = Exclusion()

    def matches(self, subject: Subject) -> bool:
        """Whether the subject fulfils all of them. O(requirements)."""
        return (
            (not self.owner_kinds or subject.owner_kind in self.owner_kinds)
            and (not self.service_accounts or subject.service_account in self.service_accounts)
            and (not self.priority_classes or subject.priority_class in self.priority_classes)
            and not self.exclude.matches(subject)
        )


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """Which pods a policy selects. ``namespace`` is that of a namespaced policy, empty for the cluster-wide kind."""

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
        if selector.is_empty:
            return True
        return selector.matches(subject.known_namespace_labels) and not self._lacks_labels(subject)

    def _lacks_labels(self, subject: Subject) -> bool:
        """Whether the selector asks for more than the name of a namespace of which nothing else is known."""
        return subject.namespace_labels is None and any(
            each.key != NAMESPACE_NAME_LABEL for each in self.namespace_selector.requirements
        )

    def is_undecided(self, subject: Subject) -> bool:
        """Whether only the labels of the namespace, which are not known, can tell if the policy selects the subject."""
        named = (each for each in self.namespace_selector.requirements if each.key == NAMESPACE_NAME_LABEL)
        return (
            self._lacks_labels(subject)
            and all(each.matches(subject.known_namespace_labels) for each in named)
            and self.pod_selector.matches(subject.labels)
            and self.conditions.matches(subject)
        )

    def may_select_any(self, subject: Subject) -> bool:
        """Whether the policy selects some pods of the subject's namespace. O(requirements)."""
        return self.namespace in ("", subject.namespace) and not self.pod_selector.nothing and self._covers(subject)


class Size(NamedTuple):
    """What a part of a pod counts against `limits`; the names are those of the settings."""

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
_ABOUT_PODS: Final = ("affinity.podAffinity.", "affinity.podAntiAffinity.")
_ONE_TERM: Final = Size(node_selector_terms=1)


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A required node selector term as JSON, and its requirements as clauses. Without any clause it matches no node.

    ``parts`` are the requirements, each with the field that it stands in, its clause and its size; of a field that is
    not known, the whole content.
    """

    value: JsonObject
    clauses: frozenset[Clause]
    parts: tuple[tuple[str, Any, Clause, Size], ...] = ()

    @property
    def size(self) -> Size:
        """What the term counts against the limits."""
        return Size(*map(sum, zip(_ONE_TERM, *(size for _, _, _, size in self.parts), strict=True)))


@dataclass(frozen=True, slots=True)
class InjectedItem:
    """One element of a list that is injected: the JSON, a key that equal elements share, and its size."""

    value: JsonObject
    key: str
    size: Size


class Items(tuple[InjectedItem, ...]):  # noqa: SLOT001 (it has attributes, which a tuple cannot keep in slots)
    """Elements of one list, with what injection asks of all of them together: a policy is asked again for each pod."""

    keys: frozenset[str]
    size: Size

    def __new__(cls, items: Iterable[InjectedItem] = ()) -> Self:
        """``keys`` are those of all elements, ``size`` is the sum of theirs."""
        self = super().__new__(cls, items)
        self.keys = frozenset(item.key for item in self)
        self.size = Size(*map(sum, zip(Size(), *(item.size for item in self), strict=True)))
        return self

    def without(self, known: AbstractSet[str]) -> Items:
        """The elements whose keys are not among these; itself where none is. O(elements) in native code where all are, or none."""
        if self.keys.isdisjoint(known):
            return self
        return _NO_ITEMS if self.keys <= known else Items(item for item in self if item.key not in known)


_NO_ITEMS: Final = Items()
# Measured against an element of another list, which costs 0.5 µs: each may be a conflict of its own.
_SPREAD_WEIGHT: Final = 3
_PAIR_WEIGHT: Final = 2


@dataclass(frozen=True, slots=True)
class Directives:
    """What a policy directs, prepared for injection.

    ``lists`` are elements to append, by the dotted path of the list below the pod's spec; ``soft_min_domains`` are
    constraints with ScheduleAnyway and minDomains, which the API rejects in a pod: they are scored and never injected.
    ``spread`` is about constraints that pods have, whether of their own or of a policy: `verbs/admit/spread_directives.py`.
    ``node_keys``: the labels and fields of nodes that the selector and the required terms are about.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_name: str = ""
    scheduler_names: tuple[str, ...] = ()
    priority_class: str = ""
    scheduling_gates: tuple[str, ...] = ()
    required_node_terms: tuple[NodeTerm, ...] | None = None
    lists: Mapping[str, Items] = field(default_factory=dict)
    soft_min_domains: tuple[JsonObject, ...] = ()
    spread: tuple[SpreadDirective, ...] = ()
    nodes: NodeAffinity = ANY_NODE
    preferred_nodes: tuple[PreferredNodeTerm, ...] = ()
    node_keys: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self == Directives()

    @property
    def weight(self) -> int:
        """How much work it is to apply them to a pod that lacks them, apart from node terms. O(1)."""
        spread = self.lists.get("topologySpreadConstraints", ())
        elements = sum(map(len, self.lists.values()))
        elements += len(self.spread)
        return 1 + elements + _SPREAD_WEIGHT * len(spread) + _PAIR_WEIGHT * len(self.node_selector)


@dataclass(frozen=True, slots=True)
class Policy:
    """A valid policy. Equal objects are equal policies, whatever their status says: `resource_version` is not compared.

    ``release`` is set where the policy acts at the moment of release.
    """

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
    resource_version: str = field(default="", compare=False)

    @property
    def order(self) -> tuple[bool, int, str, str]:
        """Sorts policies as they apply: the cluster-wide kind first, then the higher priority, then by name.

        A tenant writes the policies of a namespace, whatever their priority: they never come before those of the platform.
        """
        return (bool(self.key.namespace), -self.priority, self.key.name, self.key.group)

    @property
    def is_cross_namespace(self) -> bool:
        """Whether it directs a term that puts pods into the quota scope CrossNamespacePodAffinity. O(terms)."""
        lists = self.directives.lists.items()
        return any(
            is_cross_namespace_term(item.value)
            for path, items in lists
            if path.startswith(_POD_TERMS)
            for item in items
        )

    @property
    def holds_placed_pods(self) -> bool:
        """Whether pods that admission missed count against others because of it, once they are on a node."""
        return (
            self.mode is Mode.ENFORCE
            and self.acts(Moment.SCHEDULING)
            and any(path.startswith(_ABOUT_PODS) for path in self.directives.lists)
        )

    def is_for(self, owner_kind: str) -> bool:
        """Whether it is for pods of such an owner: one for templates is not for a pod that was made without one."""
        return self.targets is not Targets.TEMPLATES or bool(owner_kind)

    def acts(self, moment: Moment) -> bool:
        """Whether the policy acts at this moment."""
        return moment in self.when


@dataclass(frozen=True, slots=True)
class Enforced:
    """What policies hold a pod to while it is scheduled: the pod lacks it, as it was not injected at admission.

    ``nodes`` is where the pod may be placed by its own requirements and those of the policies, which may name the node.
    ``preferred`` are terms beyond the pod's own. ``refused_for``: why they refuse every node. ``about_domains``: the policies
    that say something of the topology domains of its constraints, which no pod can carry.
    """

    policies: tuple[PolicyKey, ...]
    nodes: NodeAffinity = ANY_NODE
    preferred: tuple[PreferredNodeTerm, ...] = ()
    refused_for: Reason | None = None
    about_domains: tuple[PolicyKey, ...] = ()

    @property
    def every_policy(self) -> tuple[PolicyKey, ...]:
        """All that say something of the pod that it does not carry."""
        return tuple(dict.fromkeys((*self.policies, *self.about_domains)))


@dataclass(frozen=True, slots=True)
class InvalidPolicy:
    """A policy that cannot be used, for example one that was valid under an older schema.

    ``scope`` is None where it cannot be read, and ``when`` has every moment. ``failure_policy`` is Ignore where it only
    audits.
    """

    key: PolicyKey
    errors: tuple[str, ...]
    failure_policy: FailurePolicy = FailurePolicy.IGNORE
    scope: PolicyScope | None = None
    generation: int = 0
    when: frozenset[Moment] = frozenset(Moment)

    def must_not_be_missed(self, *moments: Moment) -> bool:
        """Whether pods are refused at one of these moments while the policy cannot be applied."""
        return self.failure_policy is FailurePolicy.FAIL and not self.when.isdisjoint(moments)

    def may_select(self, subject: Subject) -> bool:
        """Whether the policy would concern the subject, as far as its scope can be read."""
        if self.scope is not None:
            return self.scope.selects(subject)
        return self.key.namespace in ("", subject.namespace)


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A policy as it is watched, valid or not. ``source``: what it was read from, for recordings; None if it was made."""

    policy: Policy | InvalidPolicy
    source: JsonObject | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Tells it apart from all other policies of its group and kind."""
        return str(self.policy.key)

    @property
    def name(self) -> str:
        """The name of its object."""
        return self.policy.key.name

"""The settings of quotas for affinity across namespaces: the section `quota` of the configuration document.

A file of its own beside `settings`, which includes the section. The quota scope CrossNamespacePodAffinity of Kubernetes
limits such pods when they are created: https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope
"""

from functools import cached_property
from typing import Literal

import msgspec

from extender.model.constraints.labels import LabelKey, is_dns_label
from extender.model.constraints.selectors import LabelSelector, SelectorError, parse_selector, requirement
from extender.model.documents import AtLeastOne, NotNegative, Section

Mode = Literal["Enforce", "Audit"]
"""Audit rejects no pod, but counts pods that Enforce would have rejected."""


class SelectorExpression(Section, frozen=True):
    """LabelSelectorRequirement."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class NamespaceSelector(Section, frozen=True, dict=True):
    """A LabelSelector for namespaces. An empty selector selects all."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[SelectorExpression, ...] = ()

    def __post_init__(self) -> None:
        try:
            _ = self.parsed
        except SelectorError as error:
            raise ValueError(str(error)) from None

    @cached_property
    def parsed(self) -> LabelSelector:
        """The selector in the form in which it is matched."""
        clauses = [requirement(clause.key, clause.operator, clause.values) for clause in self.match_expressions]
        return parse_selector(self.match_labels, clauses)


class UncoveredPods(Section, frozen=True):
    """What happens to pods that no quota covers, in the selected namespaces.

    A quota covers a pod only if it has the scope, all its other scopes match the pod too, and it limits the number of
    pods.
    """

    action: Literal["Allow", "Deny"] = "Allow"
    namespace_selector: NamespaceSelector = NamespaceSelector()


class MaxNamespaces(Section, frozen=True):
    """How many namespaces, beside its own, a term may reach now. `limit` null: any number."""

    limit: NotNegative | None = None
    mode: Mode = "Enforce"


class TopologyKeys(Section, frozen=True):
    """The topology keys of terms that can reach other namespaces. `allowed` empty: any key."""

    allowed: tuple[LabelKey, ...] = ()
    mode: Mode = "Enforce"


class Consent(Section, frozen=True):
    """A label that every other namespace that a term reaches must have, with the value "true". `label` empty: none."""

    label: str = ""
    mode: Mode = "Enforce"

    def __post_init__(self) -> None:
        if self.label:
            try:
                LabelKey.parse(self.label)
            except ValueError as error:
                raise ValueError(f"label: {error}") from None


class ReachLimits(Section, frozen=True):
    """Limits on what required and preferred terms reach, each with its own mode."""

    max_namespaces: MaxNamespaces = MaxNamespaces()
    topology_keys: TopologyKeys = TopologyKeys()
    consent: Consent = Consent()

    @property
    def is_limited(self) -> bool:
        """Whether any limit is set."""
        return self.max_namespaces.limit is not None or bool(self.topology_keys.allowed) or bool(self.consent.label)

    @property
    def rejects(self) -> bool:
        """Whether any configured limit rejects pods."""
        return "Enforce" in (
            self.max_namespaces.mode if self.max_namespaces.limit is not None else "",
            self.topology_keys.mode if self.topology_keys.allowed else "",
            self.consent.mode if self.consent.label else "",
        )


class Quota(Section, frozen=True):
    """Quotas for pods with affinity across namespaces, counted when pods are placed."""

    enabled: bool = False
    mode: Mode = "Enforce"
    # Pending pods count too, from their creation, as in the API server; pods are then placed in the order of their
    # creation.
    count_pending: bool = False
    uncovered: UncoveredPods = msgspec.field(default=UncoveredPods(), name="default")
    # Their pods are neither rejected nor counted.
    exempt_namespaces: tuple[str, ...] = ("kube-system",)
    exempt_priority_classes: tuple[str, ...] = ()  # tenants may use any class, also system-cluster-critical
    reach: ReachLimits = ReachLimits()
    # Quotas of the scope in one namespace, because each of its pods in the scope is compared with all; above it the
    # pods are rejected.
    max_per_namespace: AtLeastOne = 100

    def __post_init__(self) -> None:
        for namespace in self.exempt_namespaces:
            if not is_dns_label(namespace):
                raise ValueError(f'exemptNamespaces: "{namespace}" is no name of a namespace')

    @property
    def rejects(self) -> bool:
        """Whether pods may be rejected. Then the scheduler must not go on without the extender."""
        return self.enabled and (self.mode == "Enforce" or self.reach.rejects)

"""The scheduling fields of a pod while policies are applied to them, and the changes of each policy.

- `spec_fields`: at admission the fields are read from the JSON of a pod spec, and changed fields are written back to it.
- `signature_fields`: at scheduling the fields are those of an existing pod.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import le
from typing import Any, Final, Self

from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import (
    ConflictPolicy,
    FailurePolicy,
    InjectedItem,
    JsonObject,
    NodeTerm,
    Policy,
    PolicyKey,
    Size,
)
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.verbs.admit.term_product import AdmissionBudget, JoinedTerm, own_terms
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.policies.node_terms import NODE_TERMS
from extender.wire.policies.policy_validation import limit_name

GATES: Final = "schedulingGates"
SCALARS: Final = ("nodeName", "schedulerName", "priorityClassName")
TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_SHOWN: Final = 64


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A pod and a policy that contradict each other in one field, and how it was resolved.

    A limit that leaves no room for a directive is a conflict too: its ``resolution`` is the policy's `failurePolicy`.
    """

    policy: PolicyKey
    field: str
    message: str
    resolution: ConflictPolicy | FailurePolicy


class RejectedError(Exception):
    """Raised for a conflict with a policy that rejects pods for it, or for a limit on a policy that must not fail."""

    def __init__(self, conflict: FieldConflict) -> None:
        super().__init__(f"{conflict.policy}: {conflict.field}: {conflict.message}")
        self.conflict = conflict


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one injection.

    - ``limits``: the limits of a pod.
    - ``max_terms``: how many required node terms a pod may have after policies were joined with it.
    - ``max_policies``: how many policies are applied to one pod.
    - ``rejects_excess``: a pod above a limit is rejected when it is scheduled (offload mode).
    """

    limits: ConstraintLimits = DEFAULT_LIMITS
    max_terms: int = 64
    rejects_excess: bool = True
    max_policies: int = 100

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The bounds of the configuration."""
        policies = settings.policies
        return cls(settings.limits, policies.max_terms, settings.mode == "offload", policies.max_per_pod)


@dataclass(slots=True)
class Changes:
    """The changes of one policy to a pod. ``added`` and ``replaced`` go into the annotation: see `injected`."""

    policy: Policy
    added: JsonObject = field(default_factory=dict)
    replaced: JsonObject = field(default_factory=dict)
    conflicts: list[FieldConflict] = field(default_factory=list)
    terms_changed: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether the policy left the pod as it was."""
        return not (self.added or self.replaced or self.terms_changed)

    def has(self, *resolutions: ConflictPolicy | FailurePolicy) -> bool:
        """Whether a conflict was resolved in one of these ways."""
        return any(conflict.resolution in resolutions for conflict in self.conflicts)

    def fields(self) -> list[str]:
        """The fields that the policy changed, for people."""
        names = [*self.added, *(name for name in self.replaced if name not in self.added)]
        return [*names, NODE_TERMS] if self.terms_changed else names


def short(value: Any) -> str:
    """A value for a message, cut at 64 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class PodFields(ABC):
    """The scheduling fields of a pod as values of the model. A field is read at its first use, and replaced as a whole.

    `SpecFields` reads a pod under review, and writes its JSON. `SignatureFields` reads an existing pod, and makes its effective
    signature. Both differ only in how they read and write, so a directive has the same meaning at both moments.

    - ``excess``: the limit that the pod is above by itself, or empty. Then its lists are not read, and policies add at most
      directives that select nodes (`is_unlimited`).
    - ``reads_terms``: whether the required node terms are read although the pod is above a limit.
    - ``exists``: the pod exists, so directives do not make it larger.
    - ``apart``: required node terms of policies that a node must match beside the pod's own.
    - ``claims``: the fields that have the value of a policy.
    """

    exists = False
    excess = ""
    reads_terms = True

    def __init__(
        self, bounds: Bounds, budget: AdmissionBudget, scalars: Mapping[str, str], node_selector: dict[str, str]
    ) -> None:
        self.bounds = bounds
        self.budget = budget
        self.scalars = dict(scalars)
        self.node_selector = node_selector
        self.apart: tuple[NodeAffinity, ...] = ()
        self.claims: dict[str, None] = {}
        self._own_lists: dict[str, Sequence[InjectedItem]] = {}
        self._lists: dict[str, Sequence[InjectedItem]] = {}  # changed lists
        self._keys: dict[str, set[str]] = {}
        self._own: list[JoinedTerm] | None = None
        self._terms: list[JoinedTerm] | None = None
        self._size: Size | None = None
        # The size of directives that are applied beyond the pod's limits (`is_unlimited`). They have a limit of their
        # own.
        self._let = Size()
        self._most = Size(*(getattr(bounds.limits, name) for name in Size._fields))

    @abstractmethod
    def _read_terms(self) -> Iterable[NodeTerm]:
        """The pod's own required node terms."""

    @abstractmethod
    def _read_items(self, path: str) -> Sequence[InjectedItem]:
        """The pod's own elements of a list."""

    @abstractmethod
    def _read_size(self) -> Size:
        """The pod's own size."""

    def save(self) -> tuple[Any, ...]:
        """The state for `restore`. O(fields)."""
        claims = len(self.claims)
        sizes = self._size, self._let
        return self.scalars, self.node_selector, dict(self._lists), self._terms, self.apart, sizes, claims

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Takes back every change since `save`."""
        self.scalars, self.node_selector, self._lists, self._terms, self.apart, sizes, claims = saved
        self._size, self._let = sizes
        while len(self.claims) > claims:
            self.claims.popitem()
        self._keys = {}  # made anew when they are needed

    # ---- fields

    def set_scalar(self, name: str, value: str) -> None:
        """Sets one of the scalar fields."""
        self.scalars = {**self.scalars, name: value}

    def items(self, path: str) -> Sequence[InjectedItem]:
        """The elements of a list, empty where there is none."""
        items = self._lists.get(path)
        if items is None:
            items = self._own_lists.get(path)
        if items is None:
            items = self._own_lists[path] = self._read_items(path)
        return items

    def known(self, path: str) -> set[str]:
        """The keys of the elements of a list."""
        keys = self._keys.get(path)
        if keys is None:
            keys = self._keys[path] = {item.key for item in self.items(path)}
        return keys

    def append(self, path: str, items: Sequence[InjectedItem]) -> None:
        """Appends elements to a list. O(elements)."""
        known = self.known(path)
        self._lists[path] = [*self.items(path), *items]
        known.update(item.key for item in items)

    def replace(self, path: str, items: Sequence[InjectedItem]) -> None:
        """Replaces a list."""
        self._lists[path] = items
        self._keys.pop(path, None)

    @property
    def terms(self) -> list[JoinedTerm]:
        """The required node terms; empty where there are none."""
        if self._terms is not None:
            return self._terms
        if self._own is None:
            self._own = own_terms(self._read_terms())
        return self._own

    @terms.setter
    def terms(self, terms: list[JoinedTerm]) -> None:
        self._terms = terms

    @property
    def has_new_terms(self) -> bool:
        """Whether the required node terms were changed."""
        return self._terms is not None

    # ---- conflicts and limits

    def claim(self, where: str) -> None:
        """Marks a field as set by a policy, so that a later policy does not override it."""
        self.claims[where] = None

    def conflict(self, changes: Changes, where: str, message: str) -> ConflictPolicy:
        """Records a conflict. Returns the resolution, or raises `RejectedError`."""
        resolution = changes.policy.conflict_policy
        # Override is about the pod's own values. Between policies the order decides.
        if where in self.claims and resolution is ConflictPolicy.OVERRIDE:
            resolution = ConflictPolicy.KEEP_POD
            message = f"{message}; a policy that applies first has set this value"
        conflict = FieldConflict(changes.policy.key, where, message, resolution)
        if resolution is ConflictPolicy.REJECT:
            raise RejectedError(conflict)
        changes.conflicts.append(conflict)
        return resolution

    def leave_out(self, changes: Changes, where: str, message: str) -> None:
        """Records a directive for which a limit leaves no room. Raises `RejectedError` if the policy must not fail."""
        conflict = FieldConflict(changes.policy.key, where, message, changes.policy.failure_policy)
        if conflict.resolution is FailurePolicy.FAIL:
            raise RejectedError(conflict)
        changes.conflicts.append(conflict)

    def is_unlimited(self, policy: Policy) -> bool:
        """Whether a cluster policy's directives about nodes are applied although the pod is at a limit.

        Else a tenant could fill the pod up to the limit, so that the policy has no room. It is safe in two cases: an existing pod
        does not grow by directives, and in augment mode no pod is rejected for its size.
        """
        return not policy.key.namespace and (self.exists or not self.bounds.rejects_excess)

    def fits(self, growth: Size, where: str, changes: Changes, *, selects_nodes: bool = False) -> bool:
        """Whether the pod stays within the limits if it grows by a size. If not, the policy fails and the pod stays unchanged."""
        above = self.grow(growth, changes.policy, selects_nodes=selects_nodes)
        if above:
            self.leave_out(changes, where, above)
        return not above

    def grow(self, growth: Size, policy: Policy, *, selects_nodes: bool) -> str:
        """Adds to the size of the pod. Returns the limit that forbids it, or an empty text.

        In offload mode a pod above a limit would be rejected. Unlimited directives are measured without the pod's own size.
        """
        is_let = selects_nodes and self.is_unlimited(policy)
        if self.excess and not is_let:
            return self.excess
        size = (self._let if is_let else self.size).plus(growth)
        above = self.excess_of(size, growth)
        if is_let and not above:
            self._let = size
        if not (self.excess or above):
            self._size = self.size.plus(growth)
        return above

    def excess_of(self, size: Size, growth: Size | None = None) -> str:
        """The text of the first exceeded limit; empty where there is none. With a growth only limits count that it adds to."""
        if all(map(le, size, self._most)):
            return ""
        # Example: a pod is above nodeSelectorTerms already. A toleration does not add to that, so it is not left out
        # for it.
        for name, count, more, most in zip(Size._fields, size, growth or size, self._most, strict=True):
            if count > most and more > 0:
                return f"{count} in the pod, {limit_name(name)} is {getattr(self.bounds.limits, name)}"
        return ""

    @property
    def size(self) -> Size:
        """The size of the pod now, as limits count it."""
        if self._size is None:
            self._size = self._read_size()
        return self._size

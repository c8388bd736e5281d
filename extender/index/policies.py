"""The table of scheduling policies: which of them select a pod, in the order in which they apply.

A namespaced policy is looked at for pods of its namespace only, so a tenant cannot slow another namespace. Policies are
filed by a label that a pod must have (`SelectorIndex`), else by one that its namespace must have; the rest is tried for
every pod. So the cost of a pod grows with the policies that may select it, and not with their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final
from weakref import WeakKeyDictionary

from extender.index.counts.selector_index import SelectorIndex
from extender.index.objects.changes import Subscribable, Subscribers
from extender.model.constraints.selectors import Requirement
from extender.model.objects import Effective, PodSignature
from extender.model.policies import InvalidPolicy, Moment, Policy, PolicyKey, Scope, Subject

_RELEASED: Final = (
    4  # for each that is kept: so they are gone before as many new ones are there, and no change waits for it
)
_NOWHERE: Final = ""  # files by labels of the namespace, which is no part of the slot there


class PoliciesView:
    """What readers see of the scheduling policies, and where they keep what they made of them.

    ``about_placed_pods``: how many policies say how pods count against others once they are on a node. Subscribers of
    ``recounted`` are told when all counts are up to date with them again. ``version`` grows with every change. Subscribers of
    ``changes`` are told of each policy that comes, changes or goes. ``effective`` is what verbs made of the policies for
    signatures of pods; a change of any policy empties it.
    """

    changes: Subscribable
    recounted: Subscribable

    def __init__(self) -> None:
        self.version = 0
        self.about_placed_pods = 0
        self.effective: WeakKeyDictionary[PodSignature, Effective] = WeakKeyDictionary()
        self.release: Callable[[PodSignature], None] = _nothing
        self._policies: dict[PolicyKey, Policy] = {}
        self._invalid: dict[PolicyKey, InvalidPolicy] = {}
        self._by_pod: SelectorIndex[PolicyKey] = SelectorIndex()
        self._by_namespace: SelectorIndex[PolicyKey] = SelectorIndex()
        self._superseded: deque[PodSignature] = deque()
        self._filed_by_namespace = 0  # most clusters have none, and then their index is not asked

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is no policy, valid or not."""
        return not (self._policies or self._invalid)

    def get(self, key: PolicyKey) -> Policy | None:
        """A valid policy, None where there is none of that key."""
        return self._policies.get(key)

    def select(self, subject: Subject, *moments: Moment) -> list[Policy]:
        """The policies that select a subject and act at one of the moments, in the order in which they apply.

        O(labels of pod and namespace + policies that have one of these labels, or none, in their selectors).
        """
        if not self._policies:
            return []
        found = [
            policy
            for policy in map(self._policies.__getitem__, self._candidates(subject))
            if not policy.when.isdisjoint(moments) and policy.scope.selects(subject)
        ]
        if len(found) > 1:
            found.sort(key=attrgetter("order"))
        return found

    def candidates(self, subject: Subject) -> Iterator[Policy]:
        """The policies that may select a subject, each once: a superset of those that do. O(labels + results)."""
        return map(self._policies.__getitem__, self._candidates(subject))

    def invalid_for(self, subject: Subject) -> list[InvalidPolicy]:
        """The invalid policies that would, or may, select a subject. O(invalid policies)."""
        return [each for each in self._invalid.values() if each.may_select(subject)] if self._invalid else []

    def invalid(self) -> list[InvalidPolicy]:
        """All invalid policies, for status, events and metrics."""
        return list(self._invalid.values())

    def _candidates(self, subject: Subject) -> Iterator[PolicyKey]:
        yield from self._by_pod.candidates(subject.namespace, subject.labels)
        if self._filed_by_namespace:
            yield from self._by_namespace.candidates(_NOWHERE, subject.known_namespace_labels)

    def keep(self, signature: PodSignature, found: Effective) -> None:
        """Keeps what verbs made of a signature, and releases some of what earlier policies had made. O(groups of these)."""
        old = self.effective.get(signature)
        if old is not None and old.signature is not None:
            self._superseded.append(old.signature)
        self.effective[signature] = found
        for _ in range(min(_RELEASED, len(self._superseded))):
            self.release(self._superseded.popleft())


class PolicyTable(PoliciesView):
    """Policies by key, and those that are invalid, which select nothing.

    ``release`` drops what is compiled for a signature that was made of policies.
    """

    changes: Subscribers[Policy]
    recounted: Subscribers[None]

    def __init__(self) -> None:
        super().__init__()
        self.changes = Subscribers()
        self.recounted = Subscribers()

    def put(self, policy: Policy) -> None:
        """Adds a policy, or replaces the one of the same key, valid or not. Does nothing where it is the same."""
        old = self._policies.get(policy.key)
        if old == policy and policy.key not in self._invalid:
            return
        self._invalid.pop(policy.key, None)
        if old is not None:
            self._unfile(old)
        self._policies[policy.key] = policy
        self._file(policy)
        self._changed(old, policy)

    def put_invalid(self, invalid: InvalidPolicy) -> None:
        """Keeps a policy out of the table, and names it. An earlier, valid version of it acts no more."""
        if self._invalid.get(invalid.key) == invalid:
            return
        old = self._policies.pop(invalid.key, None)
        if old is not None:
            self._unfile(old)
        self._invalid[invalid.key] = invalid
        self._changed(old, None)

    def remove(self, key: PolicyKey) -> None:
        """Forgets a policy. Does nothing where there is none."""
        invalid, old = self._invalid.pop(key, None), self._policies.pop(key, None)
        if old is not None:
            self._unfile(old)
        if old is not None or invalid is not None:
            self._changed(old, None)

    def replace(self, policies: Iterable[Policy], invalid: Iterable[InvalidPolicy] = ()) -> None:
        """Makes the table hold exactly these, after a new list of all policies. O(policies)."""
        valid, broken = list(policies), list(invalid)
        keep = {each.key for each in valid} | {each.key for each in broken}
        for key in [key for key in (*self._policies, *self._invalid) if key not in keep]:
            self.remove(key)
        for policy in valid:
            self.put(policy)
        for each in broken:
            self.put_invalid(each)

    def statistics(self) -> dict[str, int]:
        """How many policies are kept."""
        return {"policies": len(self._policies), "invalid_policies": len(self._invalid)}

    def _file(self, policy: Policy) -> None:
        self.about_placed_pods += policy.holds_placed_pods
        if not _is_inert(policy.scope):
            index, anchor, namespaces = self._place(policy.scope)
            index.file(policy.key, anchor, namespaces)
            self._filed_by_namespace += index is self._by_namespace

    def _unfile(self, policy: Policy) -> None:
        self.about_placed_pods -= policy.holds_placed_pods
        if not _is_inert(policy.scope):
            index, anchor, namespaces = self._place(policy.scope)
            index.discard(policy.key, anchor, namespaces)
            self._filed_by_namespace -= index is self._by_namespace

    def _place(self, scope: Scope) -> tuple[SelectorIndex[PolicyKey], Requirement | None, tuple[str, ...] | None]:
        """Where a policy is filed: under a label of the pod, else of the namespace, else as one that is always tried."""
        anchor = scope.pod_selector.anchor()
        if scope.namespace:
            return self._by_pod, anchor, (scope.namespace,)
        if anchor is None and (of_namespace := scope.namespace_selector.anchor()) is not None:
            return self._by_namespace, of_namespace, None
        return self._by_pod, anchor, None

    def _changed(self, old: Policy | None, new: Policy | None) -> None:
        self.version += 1
        self._superseded.extend([each.signature for each in self.effective.values() if each.signature is not None])
        self.effective.clear()
        self.changes.notify(old, new)


def _nothing(_signature: PodSignature) -> None:
    """Where nothing is compiled."""


def _is_inert(scope: Scope) -> bool:
    """Whether the scope selects nothing: a selector is absent."""
    return scope.pod_selector.nothing or scope.namespace_selector.nothing

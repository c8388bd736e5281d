"""The table of scheduling policies: which of them select a pod, in the order in which they apply.

A namespaced policy is tried for pods of its namespace only, so a tenant cannot slow down another namespace. Policies
are filed by a label that a pod must have (`SelectorIndex`), else by a label that its namespace must have. The others
are tried for every pod. So the cost for a pod grows with the policies that may select it, not with all policies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from extender.index.objects.changes import Subscribable, Subscribers
from extender.index.objects.selector_index import SelectorIndex
from extender.model.constraints.selectors import Requirement
from extender.model.objects import Effective, PodSignature
from extender.model.policies import (
    FailurePolicy,
    InvalidPolicy,
    JsonObject,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    PolicyScope,
    Subject,
)
from extender.settings.policies import Policies

T = TypeVar("T")

_LOOKED_AT: Final = 4  # for each that is kept, so those of earlier policies are gone before as many new ones are there
_NOWHERE: Final = ""  # in place of the namespace, in the index by labels of namespaces
_LATEST: Final = (
    256  # changes of policies that are compared with a signature; after more, what was made of it is made again
)
_DEFAULTS: Final = Policies()


class PoliciesView:
    """What readers see of the scheduling policies.

    - ``made_of``: what verbs made of the policies for signatures of pods, until a policy that selects them changes

    Only a limited number of policies of each namespace, and of cluster-wide policies, act: the first by name, in
    whichever order they came.
    """

    # Notifies of each policy that is added, changed or deleted.
    changes: Subscribable
    # Notifies when all counts follow the policies again.
    recounted: Subscribable

    def __init__(self, settings: Policies = _DEFAULTS) -> None:
        self._settings = settings
        # Grows with every change.
        self.version = 0
        # How many policies direct how pods count against others once they are on a node.
        self.about_placed_pods = 0
        self.release: Callable[[PodSignature], None] = _nothing
        self._policies: dict[PolicyKey, Policy] = {}
        self._invalid: dict[str, dict[PolicyKey, InvalidPolicy]] = {}  # by namespace; "": cluster-wide
        self._all: dict[PolicyKey, Policy | InvalidPolicy] = {}
        self._keys: dict[str, list[PolicyKey]] = {}  # of all, sorted, by namespace; keys above the limit do not act
        self._strict_beyond: dict[str, dict[PolicyKey, None]] = {}
        self._made: WeakKeyDictionary[PodSignature, tuple[int, Effective]] = WeakKeyDictionary()
        self._enforced: WeakKeyDictionary[PodSignature, PodSignature] = WeakKeyDictionary()
        self._latest: deque[tuple[Policy | InvalidPolicy, ...]] = deque(maxlen=_LATEST)
        self._by_pod: SelectorIndex[PolicyKey] = SelectorIndex()
        self._by_namespace: SelectorIndex[PolicyKey] = SelectorIndex()
        self._filed_by_namespace = 0  # most clusters have none; then that index is not read

    def __len__(self) -> int:
        return len(self._policies)

    def __iter__(self) -> Iterator[Policy]:
        return iter(self._policies.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is no policy, valid or not."""
        return not self._all

    def get(self, key: PolicyKey) -> Policy | None:
        """A valid policy; None if there is none with that key."""
        return self._policies.get(key)

    def select(self, subject: Subject, *moments: Moment) -> list[Policy]:
        """The policies that select a subject and act at one of the moments, in the order in which they apply.

        O(labels of pod and namespace + policies whose selectors require one of these labels, or none).
        """
        if not self._policies:
            return []
        policies = [
            policy
            for policy in map(self._policies.__getitem__, self._candidates(subject))
            if not policy.when.isdisjoint(moments) and policy.scope.selects(subject)
        ]
        # Candidates come in the order of filing. Policies apply in the order of their kind, priority and name.
        if len(policies) > 1:
            policies.sort(key=attrgetter("order"))
        return policies

    def undecided(self, subject: Subject, *moments: Moment) -> list[Policy]:
        """Policies that may or may not select a subject, because its namespace is not known.

        O(policies) then, else O(1).
        """
        if subject.namespace_labels is not None:
            return []
        acting = (policy for policy in self._policies.values() if not policy.when.isdisjoint(moments))
        return [policy for policy in acting if policy.scope.is_undecided(subject)]

    def candidates(self, subject: Subject) -> Iterator[Policy]:
        """The policies that may select a subject, without repetition: a superset. O(labels + results)."""
        return map(self._policies.__getitem__, self._candidates(subject))

    def invalid_for(self, subject: Subject) -> list[InvalidPolicy]:
        """The invalid policies that would, or may, select a subject. O(invalid policies of cluster and namespace)."""
        invalid = []
        for place in ("", subject.namespace):
            invalid += [policy for policy in self._invalid.get(place, {}).values() if policy.may_select(subject)]
            # One represents all above the limit.
            if len(keys := self._keys.get(place, ())) > (most := self.most(place)):
                invalid.append(self._without_effect(next(iter(self._strict_beyond.get(place, ())), keys[most])))
        return invalid

    def invalid(self) -> list[InvalidPolicy]:
        """All policies that cannot act, for status, events and metrics."""
        beyond = (self._without_effect(key) for place, keys in self._keys.items() for key in keys[self.most(place) :])
        return [*(policy for by_key in self._invalid.values() for policy in by_key.values()), *beyond]

    def _without_effect(self, key: PolicyKey) -> InvalidPolicy:
        """A policy above the limit, as a policy that cannot be applied."""
        policy = self._all[key]
        text = f"{self.above(key.namespace)}: the first by name are in effect"
        failure = FailurePolicy.FAIL if _must_not_be_missed(policy) else FailurePolicy.IGNORE
        return InvalidPolicy(key, (text,), failure, None, policy.generation, policy.when)

    def most(self, namespace: str) -> int:
        """How many policies of a namespace may act; with an empty name, cluster-wide policies."""
        return self._settings.max_per_namespace if namespace else self._settings.max_of_cluster

    def above(self, namespace: str) -> str:
        """The text for users about policies above the limit."""
        where = (
            "namespace has more policies than policies.maxPerNamespace"
            if namespace
            else "cluster has more policies than policies.maxOfCluster"
        )
        return f"the {where}, which is {self.most(namespace)}"

    def count_of(self, namespace: str) -> int:
        """How many policies a namespace has, valid or not; with an empty name, cluster-wide policies."""
        return len(self._keys.get(namespace, ()))

    def _candidates(self, subject: Subject) -> list[PolicyKey]:
        keys = [*self._by_pod.candidates(subject.namespace, subject.labels)]
        if self._filed_by_namespace:
            keys += self._by_namespace.candidates(_NOWHERE, subject.known_namespace_labels)
        return keys

    def made_of(self, signature: PodSignature) -> Effective | None:
        """What verbs made of a signature. None if a policy that selects it has changed since.

        O(changes since the last call).
        """
        kept = self._made.get(signature)
        if kept is None:
            return None
        version, effective = kept
        if version != self.version:
            since = self.version - version
            # Too many changes to compare, or labels that were not read: made again.
            if since > len(self._latest) or (signature.excess is not None and signature.excess.hides_labels):
                return None
            changed = [policy for of_one in islice(reversed(self._latest), since) for policy in of_one]
            if _may_select_any(changed, signature.subject(effective.namespace_labels)):
                return None
            self._made[signature] = self.version, effective
        return effective

    def keep(self, signature: PodSignature, effective: Effective) -> None:
        """Keeps what verbs made of a signature, and releases some results of earlier policies. O(their groups)."""
        old = self._enforced.pop(signature, None)
        if old is not None and old != effective.signature:
            self.release(old)
        # A change of a policy looks at no result, because there may be thousands. Each new result looks at the oldest.
        for known in list(islice(self._enforced, _LOOKED_AT)):
            made = self._enforced.pop(known)
            if self.made_of(known) is None:
                self.release(made)
            else:
                self._enforced[known] = made
        self._made[signature] = self.version, effective
        if effective.signature is not None:
            self._enforced[signature] = effective.signature


class PolicyTable(PoliciesView):
    """Policies by key, and invalid policies, which select nothing.

    ``release``: drops what is compiled for a signature that was made by policies.
    """

    changes: Subscribers[Policy]
    recounted: Subscribers[None]

    def __init__(self, settings: Policies = _DEFAULTS) -> None:
        super().__init__(settings)
        self.changes = Subscribers()
        self.recounted = Subscribers()
        # What the status of policies says about moves, for a new leader. It changes no decision, so it is no change of a policy.
        self.moves: dict[PolicyKey, tuple[JsonObject, ...]] = {}

    def put(self, policy: Policy | InvalidPolicy) -> None:
        """Adds a policy, or replaces the policy of its key, valid or not. Does nothing if it has not changed.

        An invalid policy selects nothing. O(policies of its namespace), in native code.
        """
        key = policy.key
        if (old := self._all.get(key)) == policy:
            return
        keys = self._keys.setdefault(key.namespace, [])
        if old is None:
            insort(keys, key)
        self._all[key] = policy
        self._settle(key)
        if old is None and len(keys) > self.most(key.namespace):
            # A policy that sorts before it has pushed it above the limit.
            self._settle(keys[self.most(key.namespace)])  # the last one that acted

    def remove(self, key: PolicyKey) -> None:
        """Removes a policy. Does nothing if there is none."""
        self.moves.pop(key, None)
        if self._all.pop(key, None) is None:
            return
        keys = self._keys[key.namespace]
        del keys[bisect_left(keys, key)]
        self._settle(key)
        if len(keys) >= self.most(key.namespace):
            # A place below the limit is free again.
            self._settle(keys[self.most(key.namespace) - 1])  # the first one that did not act
        if not keys:
            del self._keys[key.namespace]

    def _settle(self, key: PolicyKey) -> None:
        """Lets a policy act as it is now, or not, if it was removed or is above the limit."""
        place, new = key.namespace, self._all.get(key)
        # Above the limit the policy does not act. If it must not be missed (failurePolicy Fail), that is remembered.
        if new is not None and bisect_left(self._keys[place], key) >= self.most(place):
            if _must_not_be_missed(new):
                self._strict_beyond.setdefault(place, {})[key] = None
            new = None
        elif key in self._strict_beyond.get(place, ()):
            _drop(self._strict_beyond, place, key)
        old = self._policies.get(key) or self._invalid.get(place, {}).get(key)
        if old is None and new is None:
            return
        # Valid and invalid policies are in different tables, so old and new are handled separately.
        if isinstance(old, Policy):
            self._unfile(self._policies.pop(key))
        elif old is not None:
            _drop(self._invalid, place, key)
        if isinstance(new, Policy):
            self._policies[key] = new
            self._file(new)
        elif new is not None:
            self._invalid.setdefault(place, {})[key] = new
        self._changed(old, new)

    def replace(self, policies: Iterable[Policy | InvalidPolicy]) -> None:
        """Makes the table contain exactly these policies, after a new list. O(policies)."""
        new = {policy.key: policy for policy in policies}
        # Removed first: otherwise a new policy could be above the limit for a moment, because of one that is gone.
        for key in [key for key in self._all if key not in new]:
            self.remove(key)
        for policy in new.values():
            self.put(policy)

    def statistics(self) -> dict[str, int]:
        """How many policies are kept."""
        return {"policies": len(self._policies), "invalid_policies": len(self._all) - len(self._policies)}

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

    def _place(self, scope: PolicyScope) -> tuple[SelectorIndex[PolicyKey], Requirement | None, tuple[str, ...] | None]:
        """Where a policy is filed: under a label of the pod, else of the namespace, else as always tried."""
        anchor = scope.pod_selector.anchor()
        if scope.namespace:
            return self._by_pod, anchor, (scope.namespace,)
        # Example: namespaceSelector `team in (a)` without podSelector is found by the namespace's label `team=a`.
        if anchor is None and (of_namespace := scope.namespace_selector.anchor()) is not None:
            return self._by_namespace, of_namespace, None
        return self._by_pod, anchor, None

    def _changed(self, old: Policy | InvalidPolicy | None, new: Policy | InvalidPolicy | None) -> None:
        self.version += 1
        changed = tuple(policy for policy in (old, new) if policy is not None)
        self._latest.append(changed)
        valid = (policy if isinstance(policy, Policy) else None for policy in (old, new))
        self.changes.notify(*valid)


def _may_select_any(policies: Iterable[Policy | InvalidPolicy], subject: Subject) -> bool:
    return any(
        policy.scope.selects(subject) if isinstance(policy, Policy) else policy.may_select(subject)
        for policy in policies
    )


def _must_not_be_missed(policy: Policy | InvalidPolicy) -> bool:
    is_enforced = isinstance(policy, InvalidPolicy) or policy.mode is Mode.ENFORCE
    return is_enforced and policy.failure_policy is FailurePolicy.FAIL


def _drop(tables: dict[str, dict[PolicyKey, T]], place: str, key: PolicyKey) -> None:
    del tables[place][key]
    if not tables[place]:
        del tables[place]


def _nothing(_signature: PodSignature) -> None:
    """The default: nothing is compiled."""


def _is_inert(scope: PolicyScope) -> bool:
    return scope.pod_selector.nothing or scope.namespace_selector.nothing

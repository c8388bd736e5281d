"""Which scheduling policies add terms of the quota scope CrossNamespacePodAffinity to the pods of a signature.

A pod that lacks such a term is placed by it all the same (`verbs/effective_pod.py`), so it counts like one that carries it.
Without such a policy, as in most clusters, nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from weakref import WeakKeyDictionary

from extender.index.objects.changes import Change
from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.model.constraints.labels import Labels
from extender.model.objects import Namespace, PodSignature
from extender.model.policies import EXEMPT_LABEL, Mode, Moment, Policy, PolicyKey, Subject, Targets

_MOMENTS = (Moment.ADMISSION, Moment.SCHEDULING)


class PolicyTerms:
    """Policies with such terms in mode Enforce.

    ``changed`` is called when other pods may have become subject to them, with their namespace, or an empty text for all.
    """

    def __init__(
        self, policies: PolicyTable, namespaces: Namespaces, exempt: Collection[str], changed: Callable[[str], None]
    ) -> None:
        """``exempt``: the namespaces that no policy applies to."""
        self._policies = policies
        self._namespaces = namespaces
        self._exempt = frozenset(exempt)
        self._changed = changed
        self._keys: set[PolicyKey] = set()
        self._known: WeakKeyDictionary[PodSignature, tuple[Labels | None, tuple[Policy, ...]]] = WeakKeyDictionary()

    def follow(self) -> None:
        """Follows the policies from now on; the table of policies must still be empty."""
        self._policies.changes.subscribe(self._policy_changed)
        self._namespaces.changes.subscribe(self._namespace_changed)

    def are_added(self, signature: PodSignature) -> bool:
        """Whether a policy adds such terms when the pod is scheduled. O(1) without such policies, and for a known signature."""
        return bool(self._keys) and any(each.acts(Moment.SCHEDULING) for each in self._selected(signature))

    def injecting(self, signature: PodSignature) -> tuple[PolicyKey, ...]:
        """The policies with such terms that select the pod, at admission or when it is scheduled."""
        return tuple(each.key for each in self._selected(signature)) if self._keys else ()

    def _selected(self, signature: PodSignature) -> tuple[Policy, ...]:
        labels = self._namespaces.labels(signature.namespace)
        known = self._known.get(signature)
        if known is None or known[0] is not labels:
            known = self._known[signature] = labels, self._select(signature, labels)
        return known[1]

    def _select(self, signature: PodSignature, labels: Labels | None) -> tuple[Policy, ...]:
        if signature.namespace in self._exempt or signature.labels.get(EXEMPT_LABEL) == "true":
            return ()
        subject = Subject(
            signature.namespace,
            signature.labels,
            labels,
            signature.owner_kind,
            signature.service_account,
            signature.priority_class,
        )
        found = {each.key: each for moment in _MOMENTS for each in self._policies.select(subject, moment)}
        return tuple(each for key, each in found.items() if key in self._keys and _is_for(each, signature))

    def _policy_changed(self, change: Change[Policy]) -> None:
        self._known.clear()
        changed = None
        for policy, sign in ((change.old, -1), (change.new, 1)):
            if policy is not None and policy.mode is Mode.ENFORCE and policy.is_cross_namespace:
                (self._keys.add if sign > 0 else self._keys.discard)(policy.key)
                changed = policy.scope.namespace
        if changed is not None:
            self._changed(changed)

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        found = change.new or change.old
        if self._keys and found is not None:
            self._changed(found.name)


def _is_for(policy: Policy, signature: PodSignature) -> bool:
    """Whether the policy is for such pods: one for templates is not for a pod that was made without one."""
    return policy.targets is not Targets.TEMPLATES or bool(signature.owner_kind)

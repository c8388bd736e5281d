"""Quotas for pods with affinity across namespaces, and what placed pods use of them, updated change by change.

1. A pod counts while it is placed: bound and not finished, or assumed, whether its node is known, undetermined or
   doubted.
2. A pod for which pods are being preempted counts too, so that no pod is deleted for a pod that the quota then rejects.
3. A terminating pod counts until it is gone, as its terms do.
4. Another pending pod counts only with `quota.countPending`: it then counts against younger pods, so that pods are
   placed in the order of their creation.

What a pod uses is derived from the index's tables under its UID (`observe`), so the order of bindings, ends of
assumptions and watch events does not matter. A pod outside the quota scope costs one look at its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple
from weakref import WeakKeyDictionary

from extender.features.quotas.charges import NUMBERS, can_charge, charges, limits_pods, matches
from extender.features.quotas.settings import Quota
from extender.index.objects.changes import IndexChange, Subscribable, Subscribers
from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.index.tables import Check, FeatureTable, IndexParts, MakeTable
from extender.model.constraints.labels import Labels
from extender.model.constraints.terms import may_reach_out, reached, terms_of
from extender.model.objects import Namespace, Pod, PodQuota, PodSignature
from extender.model.policies import Exempt, Mode, Moment, Policy, PolicyKey
from extender.model.resources import Resources, add

_CONSENT = "true"

STATES = ("free", "full", "forbidding", "without_number", "inert")


@dataclass(slots=True)
class _Namespace:
    """The pods of a namespace that count in the scope, by UID, and its quotas with their use by placed pods."""

    placed: dict[str, Pod] = field(default_factory=dict)
    waiting: dict[str, Pod] = field(default_factory=dict)
    uses: dict[str, tuple[PodQuota, dict[str, int]]] = field(default_factory=dict)
    version: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.placed or self.waiting or self.uses)


class QuotaUse(NamedTuple):
    """A quota, and its use by pods other than the incoming one."""

    quota: PodQuota
    used: Resources


class CurrentReach(NamedTuple):
    """What the terms of a signature reach now, apart from the own namespace."""

    # The largest number that one term reaches.
    namespaces: int
    # The topology keys of the terms that can reach others.
    keys: frozenset[str]
    # Reached namespaces without the label of `quota.reach.consent`.
    without_consent: tuple[str, ...]


class QuotasView:
    """What readers see of quotas: their settings, their use, and what terms reach.

    ``changes``: notifies of quotas, and of pods that use less.
    """

    changes: Subscribable

    def __init__(self, settings: Quota, namespaces: Namespaces, policy_terms: PolicyTerms) -> None:
        self.settings = settings
        self._namespaces = namespaces
        self._policy_terms = policy_terms
        self._exempt = frozenset(settings.exempt_namespaces)
        self._exempt_classes = frozenset(settings.exempt_priority_classes)
        self._by_namespace: dict[str, _Namespace] = {}
        self._dropped_version = 0
        self._reach: WeakKeyDictionary[PodSignature, tuple[int, CurrentReach]] = WeakKeyDictionary()

    def is_counted(self, signature: PodSignature) -> bool:
        """Whether placed pods of the signature count: they are in the scope and not exempt.

        O(1) without such policies.
        """
        return (
            (signature.affinity.cross_namespace or self._policy_terms.are_added(signature))
            and signature.namespace not in self._exempt
            and signature.priority_class not in self._exempt_classes
        )

    def version(self, namespace: str) -> int:
        """Grows with every change of the namespace's quotas and of their use."""
        here = self._by_namespace.get(namespace)
        return self._dropped_version if here is None else here.version

    def concerns(self, signature: PodSignature) -> bool:
        """Whether any limit may reject a pod of the signature, which is in the quota scope. O(1)."""
        settings, namespace = self.settings, signature.namespace
        if not settings.enabled or namespace in self._exempt or signature.priority_class in self._exempt_classes:
            return False
        if settings.reach.is_limited or settings.uncovered.action == "Deny":
            return True
        here = self._by_namespace.get(namespace)
        return here is not None and bool(here.uses)

    def denies_uncovered(self, namespace: str) -> bool:
        """Whether pods that no quota covers are rejected in the namespace. O(requirements)."""
        uncovered = self.settings.uncovered
        selector = uncovered.namespace_selector.parsed
        return uncovered.action == "Deny" and selector.matches(self._namespaces.labels(namespace) or {})

    def uses(self, pod: Pod) -> list[QuotaUse]:
        """The quotas that charge a pod, with their use by others. O(quotas + waiting pods, if they count)."""
        here = self._by_namespace.get(pod.namespace)
        # Too many quotas: none is counted, so none can be compared. The caller rejects the pod by `excess`.
        if here is None or self._is_excess(here):
            return []
        return [
            QuotaUse(quota, self._used_by_others(pod, here, quota, used))
            for quota, used in here.uses.values()
            if matches(quota, pod)
        ]

    def excess(self, namespace: str) -> int:
        """If a namespace has more quotas than `quota.maxPerNamespace`: how many. Then none is counted. Else 0. O(1)."""
        here = self._by_namespace.get(namespace)
        return len(here.uses) if here is not None and self._is_excess(here) else 0

    def _is_excess(self, here: _Namespace) -> bool:
        return len(here.uses) > self.settings.max_per_namespace

    def _used_by_others(self, pod: Pod, here: _Namespace, quota: PodQuota, used: dict[str, int]) -> Resources:
        # The pod itself may be counted already. Waiting pods count only against younger pods.
        own = here.placed.get(pod.uid)
        if own is None and not here.waiting:
            return used
        others = dict(used)
        # A pod with a preemption plan is charged before it is placed. It must not count against itself.
        _charge(quota, others, own, -1)
        older = _age(pod)
        for pending in here.waiting.values():
            if pending.uid != pod.uid and _age(pending) < older:
                _charge(quota, others, pending, 1)
        return others

    def reach(self, signature: PodSignature) -> CurrentReach:
        """What the terms reach now. O(1) if it is known, else O(terms × namespaces)."""
        known = self._reach.get(signature)
        if known is None or known[0] != self._namespaces.version:
            known = self._reach[signature] = self._namespaces.version, self._reached(signature)
        return known[1]

    def _reached(self, signature: PodSignature) -> CurrentReach:
        own, label = signature.namespace, self.settings.reach.consent.label
        labels = {name: namespace.labels for name, namespace in self._namespaces.objects.items()}
        terms = [term for term in terms_of(signature.affinity) if may_reach_out(term, own)]
        by_term = [reached(term, own, labels) for term in terms]
        # Consent is one question for all terms; the number of namespaces is limited term by term.
        every = set().union(*by_term) if label else set()
        return CurrentReach(
            max(map(len, by_term), default=0),
            frozenset(term.topology_key for term in terms),
            tuple(sorted(name for name in every if labels.get(name, {}).get(label) != _CONSENT)),
        )

    def states(self) -> dict[str, int]:
        """How many quotas with the scope are in each of `STATES`. O(quotas)."""
        states = dict.fromkeys(STATES, 0)
        for here in self._by_namespace.values():
            for quota, used in here.uses.values():
                states[_state(quota, used)] += 1
        return states

    def injecting(self, signature: PodSignature) -> tuple[PolicyKey, ...]:
        """The scheduling policies that select such pods and direct terms of the quota scope."""
        return self._policy_terms.injecting(signature)


class QuotaTable(QuotasView):
    """Quotas by key, and their use by namespace."""

    def __init__(self, settings: Quota, parts: IndexParts) -> None:
        terms = PolicyTerms(parts.policies, parts.namespaces, parts.exempt, self.recount)
        super().__init__(settings, parts.namespaces, terms)
        if settings.enabled:
            self._policy_terms.follow()
        self.objects: dict[str, PodQuota] = {}
        self.changes: Subscribers[PodQuota | Pod] = Subscribers()
        self._pods, self._assumed, self._nominated = parts.pods, parts.assumed, parts.nominated
        self._last_version = 0

    # -- changes -------------------------------------------------------------------------------------------------------

    def change(self, key: str, new: PodQuota | None) -> bool:
        """Applies a quota as it is now (None: deleted); False if nothing has changed. O(pods that it counts)."""
        old = self.objects.get(key)
        if old == new:
            return False
        if new is None:
            del self.objects[key]
        else:
            self.objects[key] = new
        scoped = [quota for quota in (old, new) if quota is not None and quota.scopes]
        if scoped:
            self._file(scoped[0].namespace, scoped[0].name, new if new is not None and new.scopes else None)
            self.changes.notify(old, new)
        return True

    def _file(self, namespace: str, name: str, new: PodQuota | None) -> None:
        """Files a quota of the scope. A namespace's quotas are counted while it has at most `quota.maxPerNamespace`."""
        here = self._here(namespace)
        was_excess = self._is_excess(here)
        here.uses.pop(name, None)
        if new is not None:
            here.uses[name] = new, {}
        if not self._is_excess(here):
            for quota, used in here.uses.values():
                # The others have running counts, unless nothing was counted while there were too many quotas.
                if was_excess or quota is new:
                    used.clear()
                    used.update(_recounted(quota, here.placed.values()))
        self._touch(namespace, here)

    def observe(self, pod: Pod) -> None:
        """A pod, its binding or its assumption may have changed. For a pod in the scope O(quotas of its namespace)."""
        if self.is_counted(pod.signature) or self._is_known(pod):
            self._update(pod.namespace, pod.uid)

    def recount(self, namespace: str = "") -> None:
        """Looks up again which pods count, in one step, after policies may apply to other pods than before. O(pods).

        ``namespace``: only its pods; empty for all.
        """
        if not self.settings.enabled:
            return
        # Two sources: pods that count now and may stop to count, and pods that may start to count.
        homes = self._by_namespace.items()
        uids = [(name, uid) for name, here in homes for uid in (*here.placed, *here.waiting) if namespace in ("", name)]
        counted: dict[PodSignature, bool] = {}  # looked up once each, because most pods share their signature
        for pod in chain(self._pods.values(), (assumed.pod for assumed in self._assumed().values())):
            signature = pod.signature
            is_counted = counted.get(signature)
            if is_counted is None:
                is_counted = namespace in ("", signature.namespace) and self.is_counted(signature)
                counted[signature] = is_counted
            if is_counted:
                uids.append((signature.namespace, pod.uid))
        # `dict.fromkeys` drops duplicates: an assumed pod is in both tables.
        for home, uid in dict.fromkeys(uids):
            self._update(home, uid)

    def rebuild(self) -> None:
        """Counts everything again from the objects, after a drift. O(pods)."""
        for here in self._by_namespace.values():
            here.placed.clear()
            here.waiting.clear()
            for _, used in here.uses.values():
                used.clear()
        self.recount()
        for name, here in list(self._by_namespace.items()):
            # Also where `recount` finds no pod: the version must show that the wrong counts are gone.
            self._touch(name, here)

    def placed(self, uid: str) -> Pod | None:
        """A pod that counts as placed by the index's tables, else None."""
        shown = self._pods.get(uid)
        # Bound; assumed; or a pending pod for which pods are being preempted.
        if shown is None or not shown.node:
            assumed = self._assumed().get(uid)
            if assumed is not None:
                shown = assumed.pod
            elif shown is None or shown.terminating or not self._preempts(uid):
                return None
        return shown if self.is_counted(shown.signature) else None

    def _preempts(self, uid: str) -> bool:
        nomination = self._nominated.get(uid)
        return nomination is not None and nomination.holds

    def _waiting(self, uid: str) -> Pod | None:
        shown = self._pods.get(uid) if self.settings.count_pending else None
        return shown if shown is not None and self.is_counted(shown.signature) else None

    def _is_known(self, pod: Pod) -> bool:
        here = self._by_namespace.get(pod.namespace)
        return here is not None and (pod.uid in here.placed or pod.uid in here.waiting)

    def _update(self, namespace: str, uid: str) -> None:
        placed = self.placed(uid)
        waiting = None if placed is not None else self._waiting(uid)
        here = self._here(namespace)
        # Replaces what the pod used so far by what it uses now. Nothing is counted while the namespace has too many
        # quotas.
        freed = here.placed.get(uid)
        has_changed = _put(here.placed, uid, placed)
        if has_changed and not self._is_excess(here):
            for quota, used in here.uses.values():
                _charge(quota, used, freed, -1)
                _charge(quota, used, placed, 1)
        waited = here.waiting.get(uid)
        # Not in the condition above: waiting pods are charged when a younger pod asks, so no running count changes.
        has_changed |= _put(here.waiting, uid, waiting)
        if has_changed:
            self._touch(namespace, here)
            # Only a pod that uses less can let another pod pass.
            less = freed or waited
            if less is not None and here.uses:
                self.changes.notify(less, placed or waiting)
        elif here.is_empty:
            del self._by_namespace[namespace]

    def _here(self, namespace: str) -> _Namespace:
        here = self._by_namespace.get(namespace)
        if here is None:
            here = self._by_namespace[namespace] = _Namespace(version=self._dropped_version)
        return here

    def _touch(self, namespace: str, here: _Namespace) -> None:
        self._last_version += 1
        here.version = self._last_version
        if here.is_empty:
            # The version of a namespace without an entry must not fall.
            self._dropped_version = self._last_version
            del self._by_namespace[namespace]

    # -- for the audit and for metrics ---------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        """The namespaces with quotas of the scope, or with counted pods."""
        return list(self._by_namespace)

    def holds(self, pod: Pod) -> bool:
        """Whether exactly this pod counts as placed."""
        here = self._by_namespace.get(pod.namespace)
        return here is not None and here.placed.get(pod.uid) is pod

    def differences(self, namespace: str) -> list[str]:
        """The differences between a namespace's counts and its pods and quotas. O(its pods in the scope)."""
        here = self._by_namespace.get(namespace, _Namespace())
        wrong = [pod for pod in here.placed.values() if self.placed(pod.uid) is not pod]
        lines = [f"pod {pod.full_name}: counts for quotas, and is not placed so" for pod in wrong]
        wanted = {quota.name for quota in self.objects.values() if quota.scopes and quota.namespace == namespace}
        if wanted != here.uses.keys():
            lines.append(f"quotas of {namespace}: {sorted(here.uses)} are counted, should be {sorted(wanted)}")
        for quota, used in () if self._is_excess(here) else here.uses.values():
            true = _recounted(quota, here.placed.values())
            if used != true:
                lines.append(f"quota {quota.key}: {used} is counted, should be {true}")
        return lines

    def check_pods(self, uids: Iterable[str]) -> list[str]:
        """Checks that placed pods with affinity across namespaces count."""
        if not self.settings.enabled:
            return []
        placed = (pod for uid in uids if (pod := self.placed(uid)) is not None)
        return [f"pod {pod.full_name}: does not count for quotas" for pod in placed if not self.holds(pod)]

    def checks(self) -> Iterator[Check]:
        """The audit of the counts in steps, one for each namespace."""
        yield from [partial(self.differences, namespace) for namespace in self.namespaces()]

    def statistics(self) -> dict[str, int]:
        """How many quotas are kept, and how many placed pods count for quotas."""
        placed = sum(len(here.placed) for here in self._by_namespace.values())
        return {"quotas": len(self.objects), "quota_pods": placed}


def quota_table(settings: Quota) -> MakeTable:
    """Makes the table of an index. If quotas are disabled, it keeps them, and is not told of pods."""

    def make(parts: IndexParts) -> FeatureTable:
        table = QuotaTable(settings, parts)
        return FeatureTable(
            view=QuotasView,
            shown=table,
            kind=PodQuota,
            api_kind="ResourceQuota",
            objects=table.objects,
            change=table.change,
            observe=table.observe if settings.enabled else None,
            rebuild=table.rebuild,
            checks=table.checks,
            check_pods=table.check_pods,
            statistics=table.statistics,
        )

    return make


def _put(pods: dict[str, Pod], uid: str, new: Pod | None) -> bool:
    """Sets or removes a pod. Returns whether the charge of quotas changes."""
    old = pods.get(uid)
    if new is None:
        pods.pop(uid, None)
    else:
        pods[uid] = new
    return _facts(old) != _facts(new)


def _facts(pod: Pod | None) -> object:
    """The facts that a charge depends on."""
    return None if pod is None else (pod.requests, pod.quota, pod.signature.priority_class)


def _charge(quota: PodQuota, used: dict[str, int], pod: Pod | None, sign: int) -> None:
    """Adds a pod's use to a quota, or with ``sign`` -1 subtracts it."""
    if pod is not None and matches(quota, pod):
        add(used, dict(charges(quota.hard, pod)), sign)


def _recounted(quota: PodQuota, pods: Iterable[Pod]) -> dict[str, int]:
    used: dict[str, int] = {}
    for pod in pods:
        _charge(quota, used, pod, 1)
    return used


def _age(pod: Pod) -> tuple[str, str]:
    # creationTimestamp has whole seconds. The UID orders pods of one second, and all replicas order them alike.
    return pod.quota.created, pod.uid


def _state(quota: PodQuota, used: Resources) -> str:
    if not can_charge(quota):
        return "inert"
    if not limits_pods(quota):
        return "without_number"
    # `pods: 0` or `count/pods: 0` is the usual way to forbid a scope, so it is told apart from a quota that is full.
    most = min(quota.hard[name] for name in NUMBERS if name in quota.hard)
    if not most:
        return "forbidding"
    return "full" if any(used.get(name, 0) >= quota.hard[name] for name in NUMBERS if name in quota.hard) else "free"


# -- what policies add to pods -----------------------------------------------------------------------------------------

_MOMENTS = (Moment.ADMISSION, Moment.SCHEDULING)


class PolicyTerms:
    """Policies with terms of the quota scope, in mode Enforce.

    ``changed`` is called when they may apply to other pods than before: with their namespace, or with "" for all.
    """

    def __init__(
        self, policies: PolicyTable, namespaces: Namespaces, exempt: Exempt, changed: Callable[[str], None]
    ) -> None:
        """``exempt``: objects that no policy applies to."""
        self._policies = policies
        self._namespaces = namespaces
        self._exempt = exempt
        self._changed = changed
        self._keys: set[PolicyKey] = set()
        self._known: WeakKeyDictionary[PodSignature, tuple[Labels | None, tuple[Policy, ...]]] = WeakKeyDictionary()

    def follow(self) -> None:
        """Follows the policies from now on. The table of policies must still be empty."""
        self._policies.changes.subscribe(self._policy_changed)
        self._namespaces.changes.subscribe(self._namespace_changed)

    def are_added(self, signature: PodSignature) -> bool:
        """Whether a policy adds such terms when the pod is scheduled.

        O(1) without such policies, or for a known signature.
        """
        return bool(self._keys) and any(policy.acts(Moment.SCHEDULING) for policy in self._selected(signature))

    def injecting(self, signature: PodSignature) -> tuple[PolicyKey, ...]:
        """The policies with such terms that select the pod, at admission or when it is scheduled."""
        return tuple(policy.key for policy in self._selected(signature)) if self._keys else ()

    def _selected(self, signature: PodSignature) -> tuple[Policy, ...]:
        labels = self._namespaces.labels(signature.namespace)
        known = self._known.get(signature)
        # Identity is enough: labels are a new object whenever the Namespace object changed.
        if known is None or known[0] is not labels:
            known = self._known[signature] = labels, self._select(signature, labels)
        return known[1]

    def _select(self, signature: PodSignature, labels: Labels | None) -> tuple[Policy, ...]:
        if self._exempt.covers(signature.namespace, signature.labels):
            return ()
        subject = signature.subject(labels)
        selected = {policy.key: policy for moment in _MOMENTS for policy in self._policies.select(subject, moment)}
        return tuple(
            policy for key, policy in selected.items() if key in self._keys and policy.is_for(signature.owner_kind)
        )

    def _policy_changed(self, change: IndexChange[Policy]) -> None:
        self._known.clear()
        changed = None
        # Removal first: if old and new policy have such terms, the key must stay in the set.
        for policy, sign in ((change.old, -1), (change.new, 1)):
            if policy is not None and policy.mode is Mode.ENFORCE and policy.is_cross_namespace:
                (self._keys.add if sign > 0 else self._keys.discard)(policy.key)
                changed = policy.scope.namespace
        if changed is not None:
            self._changed(changed)

    def _namespace_changed(self, change: IndexChange[Namespace]) -> None:
        namespace = change.new or change.old
        if self._keys and namespace is not None:
            self._changed(namespace.name)

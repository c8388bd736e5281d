"""Rejects pods whose affinity across namespaces is over a quota, or reaches further than the settings allow.

Implements the quota scope CrossNamespacePodAffinity (KEP-2249) when pods are placed, because only placed pods keep
others away. It applies to pods created before the quota too. No eviction helps such a pod, so every node is
unresolvable. A quota *covers* a pod only if all its scopes match the pod and it limits the number of pods. In the API
server the scope's name is enough, so a quota that never charges the pod satisfies deny by default (limitedResources).

Terms that scheduling policies add count like the pod's own, and the text names the policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from extender.features.quotas.charges import CROSS_NAMESPACE_SCOPE, charges, limits_pods
from extender.features.quotas.table import QuotasView, QuotaUse
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.model.units import listed
from extender.rules.frames import Frame
from extender.rules.rule import Rule, VerdictOnPod

_NAME = "CrossNamespaceQuota"
_MOST_NAMED = 3  # namespaces in a text

# The limits that a pod may exceed, as labels of the metric.
QUOTA, UNCOVERED, MAX_NAMESPACES, TOPOLOGY_KEYS, CONSENT, UNREAD = (
    "quota",
    "default",
    "max_namespaces",
    "topology_keys",
    "consent",
    "unread",
)
LIMITS = (QUOTA, UNCOVERED, MAX_NAMESPACES, TOPOLOGY_KEYS, CONSENT, UNREAD)
REJECTED: Final = "rejected"
AUDITED: Final = "audited"
_SEEN: Final = 10_000


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """A limit that a pod exceeds. ``count``: the use without the pod. ``most``: the limit."""

    limit: str
    enforces: bool
    text: str
    count: int = 0
    most: int | None = None
    blamed: tuple[str, ...] = ()

    @property
    def reason(self) -> Reason:
        """The reason of the rejection."""
        return Reason.QUOTA if self.limit in (QUOTA, UNCOVERED) else Reason.REACH


def findings(pod: Pod, quotas: QuotasView) -> Iterator[QuotaExcess]:
    """The limits that a pod in the quota scope exceeds, limits of quotas first.

    O(quotas × resources + namespaces named).
    """
    yield from _over_quotas(pod, quotas)
    if quotas.settings.reach.is_limited:
        yield from _over_reach(pod, quotas)


def _over_quotas(pod: Pod, quotas: QuotasView) -> Iterator[QuotaExcess]:
    enforces, namespace = quotas.settings.mode == "Enforce", pod.namespace
    if excess := quotas.excess(namespace):
        most = quotas.settings.max_per_namespace
        text = (
            f"namespace {namespace}: {excess} quotas of scope {CROSS_NAMESPACE_SCOPE}, quota.maxPerNamespace is {most}"
        )
        yield QuotaExcess(QUOTA, enforces, text, excess, most, ("quota.maxPerNamespace",))
        return
    uses = quotas.uses(pod)
    for use in uses:
        for name, amount in charges(use.quota.hard, pod):
            most, used = use.quota.hard[name], use.used.get(name, 0)
            # As the quota evaluator: the pod's own amount is not part of `used` (`QuotasView.uses`).
            if used + amount > most:
                text = f"namespace {namespace}: quota {use.quota.name} ({CROSS_NAMESPACE_SCOPE}) limits {name} to {most}, {used} used, {amount} requested"
                yield QuotaExcess(QUOTA, enforces, text, used, most, (use.quota.key,))
                break
    # limitedResources of the API server, but by the stricter meaning of "covers": the quota must limit the number of
    # pods.
    if not any(limits_pods(use.quota) for use in uses) and quotas.denies_uncovered(namespace):
        yield QuotaExcess(UNCOVERED, enforces, _uncovered(namespace, uses), blamed=("quota.default",))


def _uncovered(namespace: str, uses: list[QuotaUse]) -> str:
    """Names the missing quota. Otherwise users would wait for a quota that seems to exist."""
    why = "".join(f"; quota {use.quota.name} does not limit their number" for use in uses)
    return f"namespace {namespace}: no quota of scope {CROSS_NAMESPACE_SCOPE} limits the number of such pods, and quota.default denies them{why}"


def _over_reach(pod: Pod, quotas: QuotasView) -> Iterator[QuotaExcess]:
    limits, signature = quotas.settings.reach, pod.signature
    # Otherwise a pod could leave the limits by its size.
    if _is_unread(signature):
        text = f"namespace {pod.namespace}: what the affinity reaches is not read above limits.podBytes"
        yield QuotaExcess(UNREAD, limits.rejects, text, blamed=("limits.podBytes",))
        return
    reach = quotas.reach(signature)
    most = limits.max_namespaces.limit
    if most is not None and reach.namespaces > most:
        text = f"namespace {pod.namespace}: an affinity term reaches {reach.namespaces} other namespaces, quota.reach.maxNamespaces is {most}"
        enforces = limits.max_namespaces.mode == "Enforce"
        yield QuotaExcess(MAX_NAMESPACES, enforces, text, reach.namespaces, most, ("quota.reach.maxNamespaces",))
    allowed = limits.topology_keys.allowed
    refused = sorted(reach.keys.difference(allowed)) if allowed else []
    if refused:
        text = f"namespace {pod.namespace}: affinity across namespaces over {listed(refused, most=_MOST_NAMED)} is not allowed by quota.reach.topologyKeys"
        yield QuotaExcess(
            TOPOLOGY_KEYS, limits.topology_keys.mode == "Enforce", text, blamed=tuple(refused[:_MOST_NAMED])
        )
    without = reach.without_consent
    if without:
        text = f"namespace {pod.namespace}: affinity reaches {listed(without, most=_MOST_NAMED)} without the label {limits.consent.label}=true (quota.reach.consent)"
        yield QuotaExcess(
            CONSENT, limits.consent.mode == "Enforce", text, len(without), 0, tuple(without[:_MOST_NAMED])
        )


def _is_unread(signature: PodSignature) -> bool:
    """Whether the terms have not been read, because the pod is too large."""
    return signature.excess is not None and signature.excess.limit == "podBytes"


class CrossNamespaceQuota(Rule):
    """The rule. It costs other pods nothing, because it is called only for pods in the quota scope."""

    name = _NAME
    needs_constraints = True

    def is_active(self, compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Active for a pod with affinity across namespaces that a quota, the default or a limit on reach concerns."""
        if not compiled.signature.affinity.cross_namespace:
            return False
        quotas = view.table(QuotasView)
        return quotas is not None and quotas.concerns(compiled.signature)

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, _frame: Frame
    ) -> VerdictOnPod:
        """Rejects every node for the first limit that is enforced."""
        quotas = view.table(QuotasView)
        # A limit in mode Audit is counted and reported elsewhere, and rejects nothing.
        found = () if quotas is None else findings(pod, quotas)
        first = next((excess for excess in found if excess.enforces), None)
        if quotas is None or first is None:
            return VerdictOnPod(None)
        policies = quotas.injecting(pod.signature)
        named = f" (terms of {', '.join(map(str, policies))})" if policies else ""
        blamed = (*first.blamed, *map(str, policies))
        rejection = Rejection(
            _NAME, first.reason, first.text + named, count=first.count, limit=first.most, blamed=blamed
        )
        return VerdictOnPod(rejection)

    def version(self, compiled: CompiledConstraints, view: ClusterView) -> int:
        """The version of the namespace's quotas and their use, and of all namespaces; 0 for pods outside the scope."""
        signature = compiled.signature
        quotas = view.table(QuotasView) if signature.affinity.cross_namespace else None
        if quotas is None or not quotas.settings.enabled:
            return 0
        return quotas.version(signature.namespace) + view.namespaces_version

    def shared_places(self, pod: Pod, view: ClusterView) -> Iterator[tuple[Hashable, int]]:
        """How many more pods like this one each quota allows."""
        quotas = view.table(QuotasView) if pod.signature.affinity.cross_namespace else None
        if quotas is None or quotas.settings.mode != "Enforce":
            return
        if quotas.concerns(pod.signature):
            for quota, used in quotas.uses(pod):
                hard = quota.hard
                # The number of further pods is the smallest over the limits of the quota. No amount is 0, because
                # `charges` leaves out limits that the pod does not use up.
                places = [(hard[name] - used.get(name, 0)) // amount for name, amount in charges(hard, pod)]
                if places:
                    yield quota.key, max(min(places), 0)

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes of quotas, of their use, and of namespaces."""
        quotas = view.table(QuotasView)
        return (view.namespace_changes,) if quotas is None else (quotas.changes, view.namespace_changes)


class QuotaCounts:
    """Pods over a limit, by limit and result. A limit in mode Audit rejects nothing.

    Each pod counts once for a limit, however often it is tried, unless 10,000 other pods were counted in between.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter(
            {(limit, result): 0 for limit in LIMITS for result in (REJECTED, AUDITED)}
        )
        self._seen: BoundedCache[tuple[str, str, str], bool] = BoundedCache(_SEEN)

    def record(self, pod: Pod, view: ClusterView) -> None:
        """Counts an effective pod in the quota scope. O(1) where no limit concerns it."""
        quotas = view.table(QuotasView)
        if quotas is None or not quotas.concerns(pod.signature):
            return
        for excess in findings(pod, quotas):
            key = (pod.uid, excess.limit, REJECTED if excess.enforces else AUDITED)
            # A pending pod is tried again and again, and counts once.
            if self._seen.get(key) is None:
                self._seen.put(key, True, 1)
                self.counts[key[1:]] += 1

"""What rules see of quotas for pods with affinity across namespaces; a part of `view`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from extender.model.objects import Pod, PodQuota, PodSignature
from extender.model.policies import PolicyKey
from extender.model.resources import Resources
from extender.settings.quota import Quota


class QuotaUse(NamedTuple):
    """A quota, and what pods other than the incoming one use of it."""

    quota: PodQuota
    used: Resources


class Reach(NamedTuple):
    """What the terms of a signature reach now, without the own namespace.

    ``namespaces``: the most that one term reaches. ``keys``: the topology keys of the terms that can reach any.
    ``without_consent``: the namespaces reached that do not carry the label of `quota.reach.consent`.
    """

    namespaces: int
    keys: frozenset[str]
    without_consent: tuple[str, ...]


class QuotasView(Protocol):
    """Quotas with what is used of them, and what terms reach."""

    @property
    def settings(self) -> Quota:
        """The settings of quotas."""

    def version(self, namespace: str) -> int:
        """Grows with every change of the namespace's quotas and of what is used of them."""

    def concerns(self, signature: PodSignature) -> bool:
        """Whether any limit may reject a pod of the signature, which is in the quota scope. O(1)."""

    def denies_uncovered(self, namespace: str) -> bool:
        """Whether pods that no quota covers are rejected in the namespace. O(requirements)."""

    def uses(self, pod: Pod) -> list[QuotaUse]:
        """The quotas that charge a pod, which is in the quota scope. O(quotas of its namespace).

        With `quota.countPending` also O(pods that wait there), as those that are older than the pod count.
        """

    def reach(self, signature: PodSignature) -> Reach:
        """What the terms reach now. O(1) where it is known, else O(terms × namespaces)."""

    def injecting(self, signature: PodSignature) -> tuple[PolicyKey, ...]:
        """The scheduling policies that select such pods and direct terms of the quota scope. O(policies that may select)."""

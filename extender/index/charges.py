"""How much pods of a policy have in the domains that it lists or limits, and the records by which they are charged.

A pod is charged because the leader has recorded it: before its release, the object of its group gets its UID
(`GroupPlacement.pods`). Nothing that is written in the pod matters. So a tenant frees no quota by removing the release
annotation of its pods or changing their labels, and uses up none by writing the annotation into other pods. A pod
without the gate that nothing released may be scheduled only into domains with quota left (`rules/release_domains.py`).
It is recorded once it is bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from extender.index.objects.changes import Subscribable
from extender.model.objects import Pod, PodSignature
from extender.model.policies import Policy
from extender.model.release import ANYWHERE, MOST_DOMAINS, DomainUse, ReleaseRecord, ReleaseSpec
from extender.model.resources import Resources, add, total

_NOTHING: Final[Resources] = {}
_NO_DOMAINS: Final[Mapping[str, dict[str, int]]] = {}


class ReleaseView(Protocol):
    """What rules see of the release: which domains a pod may go to, and how much of them is used.

    ``domain_policies``: how many policies list or limit domains.
    """

    domain_policies: int

    @property
    def charges(self) -> ChargesView:
        """How much recorded pods have in each domain."""

    @property
    def freed(self) -> Subscribable:
        """Notifies of policies whose quotas are used less."""

    def record_of(self, pod: Pod) -> ReleaseRecord | None:
        """The record of a pod; None if it has none. O(1)."""

    def may_hold(self, signature: PodSignature) -> bool:
        """Whether a policy that lists or limits domains selects pods of a signature. O(1) for a known signature."""

    def holding(self, pod: Pod) -> Policy | None:
        """The policy whose domains limit a pod without the policy's gate; None for most pods."""


class Charge(NamedTuple):
    """What a released pod uses of its policy's quotas. ``domains``: the domains where it may be, or `ANYWHERE`."""

    domains: tuple[str, ...]
    requests: Resources


class ChargesView:
    """How much released pods have in each domain, by policies that list or limit domains."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, dict[str, int]]] = {}

    def of(self, policy: str, domain: str) -> Resources:
        """How much pods of a policy have in a domain, of the limited resources and of `PODS`. O(resources)."""
        used = self._used.get(policy, _NO_DOMAINS)
        # A pod that may be in any domain is charged to all of them: quotas are upper bounds.
        return total([used.get(domain, _NOTHING), used.get(ANYWHERE, _NOTHING)])

    def uses(self, policy: Policy) -> list[DomainUse]:
        """The use of each domain, in the order of the policy, at most `MOST_DOMAINS`. Empty if it is not counted.

        O(domains × resources).
        """
        release, name = policy.release, str(policy.key)
        if release is None or not release.counts_domains:
            return []
        # Listed domains stand in the policy. Domains that are only limited are known from the pods that are in them.
        listed = [(domain.name, domain.values, domain.may_grow) for domain in release.domains]
        domains = listed or [(value, (value,), False) for value in sorted(self.domains_of(name))[:MOST_DOMAINS]]
        return [DomainUse(*domain, release.quota_of(domain[0]), self.of(name, domain[0])) for domain in domains]

    def domains_of(self, policy: str) -> list[str]:
        """The names of the domains in which pods of a policy may be, without `ANYWHERE`. O(domains)."""
        return [name for name in self._used.get(policy, _NO_DOMAINS) if name != ANYWHERE]


class Charges(ChargesView):
    """All charges. Written by `GatedGroups` alone.

    ``unsettled``: changed policies some of whose pods are not charged again yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: set[str] = set()

    def count(self, policy: str, charge: Charge, sign: int) -> None:
        """Charges a pod (``sign`` 1), or removes its charge (-1). O(its domains × resources)."""
        domains = self._used.setdefault(policy, {})
        for name in charge.domains:
            used = domains.setdefault(name, {})
            add(used, charge.requests, sign)
            if not used:
                del domains[name]
        if not domains:
            del self._used[policy]

    def problems(self, charged: Iterable[tuple[str, Charge]]) -> list[str]:
        """One line for each policy whose charges differ from its pods. O(pods)."""
        anew = Charges()
        for policy, charge in charged:
            anew.count(policy, charge, 1)
        wrong = [policy for policy in self._used | anew._used if self._used.get(policy) != anew._used.get(policy)]
        return [f"policy {policy}: charges differ from its pods" for policy in wrong]


def charge_of(pod: Pod, release: ReleaseSpec, record: ReleaseRecord | None) -> Charge:
    """What a released pod uses of its policy's quotas, in the domains of its node affinity, else of its record.

    Its node affinity cannot change after the release. O(resources + values).
    """
    values = pod.signature.node_affinity.values_of(release.topology[0])
    # A pod that was not narrowed is charged to the domain in its record.
    if values is None and record is not None and record.level is not None:
        values = record.level.admitted
    return Charge(release.names_of(values), release.needs_of(pod.requests))

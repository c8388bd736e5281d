"""What pods of a policy have of the domains that it lists or limits, and by which records they are charged.

A pod is charged because the leader has recorded it, and never because of what is written in the pod: the object of its group has its
UID (`GroupPlacement.pods`) from before its release. So a tenant that takes the annotation of the release off its pods, or changes
their labels, frees no quota, and one that writes the annotation into other pods uses none up. A pod without the gate that nothing
released is held to domains with room in their quotas when it is scheduled (`rules/release_domains.py`), and recorded once it
is bound.
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
    """What rules see of the release: whether a pod is held to domains, and what is used of them.

    ``domain_policies``: how many policies list or limit domains.
    """

    domain_policies: int

    @property
    def charges(self) -> ChargesView:
        """What recorded pods have of each domain."""

    @property
    def freed(self) -> Subscribable:
        """Tells of policies of whose quotas less is used."""

    def record_of(self, pod: Pod) -> ReleaseRecord | None:
        """The record of a pod, None where it has none. O(1)."""

    def may_hold(self, signature: PodSignature) -> bool:
        """Whether a policy that lists or limits domains selects pods of a signature. O(1) where it was asked for before."""

    def holding(self, pod: Pod) -> Policy | None:
        """The policy to whose domains a pod is held although it does not have, or no longer has, the gate; None for most pods."""


class Charge(NamedTuple):
    """What a released pod takes of the quotas of its policy. ``domains``: the names of those it may be in, or `ANYWHERE`."""

    domains: tuple[str, ...]
    requests: Resources


class ChargesView:
    """What released pods have of each domain, by policies that list or limit them."""

    def __init__(self) -> None:
        self._used: dict[str, dict[str, dict[str, int]]] = {}

    def of(self, policy: str, domain: str) -> Resources:
        """What pods of a policy have in a domain, of the resources that it limits and of `PODS`. O(resources)."""
        used = self._used.get(policy, _NO_DOMAINS)
        return total([used.get(domain, _NOTHING), used.get(ANYWHERE, _NOTHING)])

    def uses(self, policy: Policy) -> list[DomainUse]:
        """What is used of each domain, in the order of the policy, at most `MOST_DOMAINS`; none where that is not counted.

        O(domains × resources).
        """
        release, name = policy.release, str(policy.key)
        if release is None or not release.counts_domains:
            return []
        listed = [(each.name, each.values, each.may_grow) for each in release.domains]
        found = listed or [(each, (each,), False) for each in sorted(self.domains_of(name))[:MOST_DOMAINS]]
        return [DomainUse(*each, release.quota_of(each[0]), self.of(name, each[0])) for each in found]

    def domains_of(self, policy: str) -> list[str]:
        """The names of the domains in which pods of a policy may be, without `ANYWHERE`. O(domains)."""
        return [name for name in self._used.get(policy, _NO_DOMAINS) if name != ANYWHERE]


class Charges(ChargesView):
    """All charges. Written by `GatedGroups` alone.

    ``unsettled``: policies that have changed, some of whose pods are not charged anew yet.
    """

    def __init__(self) -> None:
        super().__init__()
        self.unsettled: set[str] = set()

    def count(self, policy: str, charge: Charge, sign: int) -> None:
        """Charges a pod (``sign`` 1), or takes it off again (-1). O(its domains × resources)."""
        domains = self._used.setdefault(policy, {})
        for name in charge.domains:
            used = domains.setdefault(name, {})
            add(used, charge.requests, sign)
            if not used:
                del domains[name]
        if not domains:
            del self._used[policy]

    def problems(self, charged: Iterable[tuple[str, Charge]]) -> list[str]:
        """One line for each policy whose charges are not those of its pods. O(pods)."""
        anew = Charges()
        for policy, charge in charged:
            anew.count(policy, charge, 1)
        wrong = [policy for policy in self._used | anew._used if self._used.get(policy) != anew._used.get(policy)]
        return [f"policy {each}: charges differ from its pods" for each in wrong]


def charge_of(pod: Pod, release: ReleaseSpec, record: ReleaseRecord | None) -> Charge:
    """What a released pod takes of the quotas of its policy, by the domains that its node affinity admits, else by its record.

    Nothing can change its node affinity after the release. O(resources + values).
    """
    values = pod.signature.node_affinity.values_of(release.topology[0])
    if values is None and record is not None and record.level is not None:
        values = record.level.admitted
    return Charge(release.names_of(values), release.needs_of(pod.requests))

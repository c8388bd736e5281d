"""Topology spread constraints with every default filled in, and how scores weigh and round.

https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
KEP-3022 (minDomains), KEP-3094 (inclusion policies), KEP-3243 (matchLabelKeys).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.model.constraints.labels import HOSTNAME, ZONE, Labels
from extender.model.constraints.selectors import NOTHING, LabelSelector
from extender.model.units import Duration


@dataclass(frozen=True, slots=True)
class DomainRules:
    """What policies direct about the domains of a hard constraint; the fields as in `SpreadDirective`."""

    declared: bool = False
    excludes_after: float | None = None
    excludes_full: bool = False

    def texts(self) -> Iterator[str]:
        """The fields that are set, as in a policy."""
        if self.declared:
            yield "minDomains Declared"
        if self.excludes_after is not None:
            yield f"unavailableDomains Exclude after {Duration(self.excludes_after)}"
        if self.excludes_full:
            yield "fullDomains Exclude"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One constraint. ``selector`` already includes the matchLabelKeys of its pod; ``hard`` is DoNotSchedule.

    Defaults of the API: minDomains 1 (no minimum), nodeAffinityPolicy Honor, nodeTaintsPolicy Ignore. ``domains`` is
    set where policies direct something about the domains.
    """

    max_skew: int
    topology_key: str
    hard: bool
    selector: LabelSelector = NOTHING
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False
    domains: DomainRules | None = None


@dataclass(frozen=True, slots=True)
class SpreadDirective:
    """What a scheduling policy directs for its pods' constraints over one topology key."""

    topology_key: str
    # Adds the label key of the pod's revision to matchLabelKeys, if the constraint does not have it.
    completes_keys: bool = False
    # The minDomains of a hard constraint that has none; 0 adds nothing.
    min_domains: int = 0
    # In place of a number: minDomains is the number of declared domains.
    declared: bool = False
    # Seconds until an unavailable domain is excluded; None never excludes it.
    excludes_after: float | None = None
    # Excludes a domain without room for the pod.
    excludes_full: bool = False
    # A scale-down deletes pods of fuller domains first.
    deletion_cost: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether it excludes domains.

        Only the extender's own decision about spread can do that, not kube-scheduler's plugin.
        """
        return self.excludes_after is not None or self.excludes_full

    def texts(self) -> Iterator[str]:
        """The fields that are set, as in a policy."""
        if self.completes_keys:
            yield "matchLabelKeys IfMissing"
        if self.min_domains:
            yield f"minDomains {self.min_domains}"
        yield from DomainRules(self.declared, self.excludes_after, self.excludes_full).texts()
        if self.deletion_cost:
            yield "deletionCost Fullest"


# The label that tells the revisions of a workload apart, by the kind of the pod's controller.
# https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-template-hash-label
_REVISIONS: Final = {
    "ReplicaSet": "pod-template-hash",
    "StatefulSet": "controller-revision-hash",
    "DaemonSet": "controller-revision-hash",
}


def revision_key(owner_kind: str, labels: Labels) -> str:
    """The label key that tells this pod's revision from other revisions; empty where the pod has no such label."""
    key = _REVISIONS.get(owner_kind, "")
    return key if key in labels else ""


@dataclass(frozen=True, slots=True)
class SpreadConstraints:
    """A pod's constraints. ``own``: the pod itself has constraints, so default constraints do not apply."""

    hard: tuple[SpreadConstraint, ...] = ()
    soft: tuple[SpreadConstraint, ...] = ()
    own: bool = False
    hard_error: str = ""
    soft_error: str = ""


NO_SPREAD = SpreadConstraints()

# What kube-scheduler applies to pods without constraints under `defaultingType: System`.
SYSTEM_DEFAULTS = (
    SpreadConstraint(max_skew=3, topology_key=HOSTNAME, hard=False),
    SpreadConstraint(max_skew=5, topology_key=ZONE, hard=False),
)


def topology_weight(size: int) -> float:
    """How much a soft constraint over ``size`` domains weighs: with more domains each one matters more."""
    # Plus 2, so that the weight of a single domain is above 1.
    return math.log(size + 2)


def round_half_away(number: float) -> int:
    """Go's ``math.Round`` for the non-negative sums of scores (Python's ``round`` goes to even)."""
    whole = math.floor(number)
    return whole + (number - whole >= 1 / 2)

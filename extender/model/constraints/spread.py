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
    """What policies say of the domains of a hard constraint; the fields are those of `SpreadDirective`."""

    declared: bool = False
    excludes_after: float | None = None
    excludes_full: bool = False

    def texts(self) -> Iterator[str]:
        """What it says, as in a policy."""
        if self.declared:
            yield "minDomains Declared"
        if self.excludes_after is not None:
            yield f"unavailableDomains Exclude after {Duration(self.excludes_after)}"
        if self.excludes_full:
            yield "fullDomains Exclude"


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One clause. ``selector`` already holds the matchLabelKeys of its pod; ``hard`` is DoNotSchedule.

    Defaults of the API: minDomains 1 (no minimum), nodeAffinityPolicy Honor, nodeTaintsPolicy Ignore. ``domains`` is set where
    policies direct something about its domains.
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
    """What a scheduling policy directs for the constraints over one topology key that its pods have.

    ``completes_keys``: a constraint without it gets the label key of the pod's revision as one of its matchLabelKeys.
    ``min_domains``: a hard constraint without minDomains gets this one, 0 for none; ``declared``: as many as are declared.
    ``excludes_after``: after how many seconds an unavailable domain is excluded, None where it is kept. ``excludes_full``: so
    is one without room for the pod. ``deletion_cost``: pods of fuller domains are the first that a scale-down deletes.
    """

    topology_key: str
    completes_keys: bool = False
    min_domains: int = 0
    declared: bool = False
    excludes_after: float | None = None
    excludes_full: bool = False
    deletion_cost: bool = False

    @property
    def leaves_out(self) -> bool:
        """Whether it excludes domains, which only the extender's own decision about spread can do."""
        return self.excludes_after is not None or self.excludes_full

    def texts(self) -> Iterator[str]:
        """The fields that it has, as in the policy."""
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
    """The label key by which pods of this revision are told from those of others; empty where the pod has none."""
    found = _REVISIONS.get(owner_kind, "")
    return found if found in labels else ""


@dataclass(frozen=True, slots=True)
class SpreadConstraints:
    """A pod's clauses by kind. ``own``: the pod has constraints of its own, so that no default constraints apply."""

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
    return math.log(size + 2)


def round_half_away(number: float) -> int:
    """Go's ``math.Round`` for the non-negative sums of scores (Python's ``round`` goes to even)."""
    whole = math.floor(number)
    return whole + (number - whole >= 1 / 2)

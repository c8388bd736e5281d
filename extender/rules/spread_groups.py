"""The groups that the hard and soft spread constraints of a pod count: its own constraints, or else the default constraints.

`rules/topology_spread.py` filters and scores by these groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Self

from extender.index.counts.compiled_constraints import Counted, Counting
from extender.index.counts.groups import GroupView, SpreadGroupView
from extender.index.counts.selections import PodSelector
from extender.index.nodes.domains import Inclusion
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.selectors import NOTHING
from extender.model.constraints.spread import SYSTEM_DEFAULTS, SpreadConstraint, SpreadConstraints
from extender.model.objects import PodSignature
from extender.settings.rules import Rules, TopologySpreadSettings


@dataclass(frozen=True, slots=True)
class Spread:
    """A constraint with its group. ``self_match`` is 1 if the constraint selects the incoming pod itself, else 0."""

    constraint: SpreadConstraint
    group: SpreadGroupView
    self_match: int


@dataclass(frozen=True, slots=True)
class SpreadGroups(Counted):
    """The pods that each of a pod's constraints counts: its own constraints, or else the default constraints.

    ``reads_domains``: policies direct something about domains. ``reads_room``: policies exclude full domains.
    """

    hard: tuple[Spread, ...] = ()
    soft: tuple[Spread, ...] = ()
    soft_needs_all_keys: bool = True
    hard_error: str = ""
    soft_error: str = ""
    reads_domains: bool = False
    reads_room: bool = False

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, settings: Rules) -> Self | None:
        """The groups.

        Policies' constraints are counted even without the rule, because the in-tree plugin does not know them.
        """
        if not (settings.topology_spread.enabled or signature.enforced is not None):
            return None
        constraints, needs_all = _in_force(signature, counts, settings)
        if not (constraints.hard or constraints.soft or constraints.hard_error or constraints.soft_error):
            return None
        if not settings.topology_spread.min_domains:
            constraints = replace(constraints, hard=tuple(map(without_min_domains, constraints.hard)))
        # As in the plugin: a node counts for a constraint only if it has the keys of all constraints of the same kind.
        hard_keys, soft_keys = (
            _keys_of(tuple(c.topology_key for c in kind)) for kind in (constraints.hard, constraints.soft)
        )
        return cls(
            tuple([_counted(signature, constraint, counts, hard_keys) for constraint in constraints.hard]),
            tuple(
                [
                    _counted(signature, constraint, counts, soft_keys if needs_all else None)
                    for constraint in constraints.soft
                ]
            ),
            needs_all,
            constraints.hard_error,
            constraints.soft_error,
            any(constraint.domains is not None for constraint in constraints.hard),
            any(constraint.domains is not None and constraint.domains.excludes_full for constraint in constraints.hard),
        )

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """The groups of the hard constraints."""
        return tuple([spread.group for spread in self.hard])

    @property
    def score_groups(self) -> tuple[GroupView, ...]:
        """The groups of the soft constraints."""
        return tuple([spread.group for spread in self.soft])

    @property
    def filter_key(self) -> object:
        """The hard constraints."""
        return self.hard, self.hard_error

    @property
    def used_fields(self) -> tuple[str, ...]:
        """One entry for each hard constraint with minDomains above 1 (KEP-3022). Without the field it is 1."""
        return tuple(["minDomains" for spread in self.hard if spread.constraint.min_domains > 1])

    @property
    def error(self) -> str:
        """The parse error of the hard constraints."""
        return self.hard_error


def without_min_domains(constraint: SpreadConstraint) -> SpreadConstraint:
    """The constraint without its field minDomains, and without what policies direct about it."""
    rules = None if constraint.domains is None else replace(constraint.domains, declared=False)
    return replace(constraint, min_domains=1, domains=rules)


def _in_force(signature: PodSignature, counts: Counting, settings: Rules) -> tuple[SpreadConstraints, bool]:
    """The constraints in force, and whether scoring ignores nodes without a key (not under System defaults)."""
    if signature.spread.own or not settings.topology_spread.enabled:
        return signature.spread, True
    defaults = default_constraints(settings.topology_spread)
    if not defaults:
        return signature.spread, True
    # Nothing is deduced for a pod without Services and owner: then no default applies.
    selector = counts.deduced_selector()
    if selector is None:
        return SpreadConstraints(), True
    made = [replace(constraint, selector=selector) for constraint in defaults]
    hard, soft = tuple(c for c in made if c.hard), tuple(c for c in made if not c.hard)
    return SpreadConstraints(hard, soft), settings.topology_spread.defaulting_type != "System"


@cache
def default_constraints(settings: TopologySpreadSettings) -> tuple[SpreadConstraint, ...]:
    """The constraints for pods without their own. They count nothing until a selector is deduced."""
    if settings.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return tuple(
        SpreadConstraint(
            max_skew=c.max_skew,
            topology_key=str(c.topology_key),
            hard=c.when_unsatisfiable == "DoNotSchedule",
            min_domains=1 if c.min_domains is None else c.min_domains,
            honor_affinity=c.node_affinity_policy != "Ignore",
            honor_taints=c.node_taints_policy == "Honor",
        )
        for c in settings.default_constraints
    )


@lru_cache(maxsize=256)
def _keys_of(topology_keys: tuple[str, ...]) -> frozenset[str]:
    """One set for all templates with the same keys, because the set is part of each spread group's key."""
    return frozenset(topology_keys)


def _counted(
    signature: PodSignature, constraint: SpreadConstraint, counts: Counting, keys: frozenset[str] | None
) -> Spread:
    """Counts the pods of the namespace that the constraint selects. The empty selector counts none.

    ``keys``: keys that a node must have to count. None: a node without the key counts under the value "".
    For ScheduleAnyway over hostname each node counts by itself, even if inclusion policies exclude it.
    """
    # With an empty key each node is a domain of its own: see ScheduleAnyway over hostname above.
    topology_key, inclusion = "", Inclusion()
    if constraint.hard or constraint.topology_key != HOSTNAME:
        # Without node affinity all nodes are admitted, so such pods share the group of pods that ignore affinity.
        honors_affinity = constraint.honor_affinity and not signature.node_affinity.admits_all
        topology_key = constraint.topology_key
        inclusion = Inclusion(
            keys=keys or frozenset(),
            affinity=signature.node_affinity if honors_affinity else None,
            tolerations=signature.tolerations if constraint.honor_taints else None,
            missing_as_empty=keys is None,
        )
    # As countPodsMatchSelector of the plugin: an empty selector counts no pod. It still matches the incoming pod
    # itself, as selfMatch in the plugin does.
    selector = NOTHING if constraint.selector.is_empty else constraint.selector
    group = counts.living_pods(PodSelector(selector, (signature.namespace,)), topology_key, inclusion)
    return Spread(constraint, group, int(constraint.selector.matches(signature.labels)))

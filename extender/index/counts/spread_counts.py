"""Groups of topology spread constraints: pods per eligible domain.

Which nodes count depends on the incoming pod (its node affinity and tolerations under the inclusion policies, and
its having all keys of its own constraints), so the inclusion rule is part of a group's identity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from extender.index.counts.groups import Group, SpreadGroup
from extender.index.counts.selections import Selections, SpreadSelection
from extender.index.nodes.domains import Inclusion
from extender.index.nodes.topology import Topology
from extender.model.bounded import shrink
from extender.model.constraints.labels import HOSTNAME
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.spread import SYSTEM_DEFAULTS, SpreadConstraint
from extender.model.objects import PodSignature
from extender.settings.rules import Rules


@dataclass(frozen=True, slots=True)
class SpreadKey:
    """The identity of a spread group: the pods it counts, over which key, on which nodes."""

    namespace: str
    selector: LabelSelector
    topology_key: str
    inclusion: Inclusion


def hard_key(signature: PodSignature, constraint: SpreadConstraint, keys: frozenset[str]) -> SpreadKey:
    """The group of a DoNotSchedule constraint; ``keys`` are those of all hard constraints of the pod."""
    return SpreadKey(
        signature.namespace, constraint.selector, constraint.topology_key, _inclusion(signature, constraint, keys)
    )


def soft_key(
    signature: PodSignature, constraint: SpreadConstraint, keys: frozenset[str], *, needs_all: bool
) -> SpreadKey:
    """The group of a ScheduleAnyway constraint. Over hostname each node counts by itself, whatever the policies."""
    if constraint.topology_key == HOSTNAME:
        return SpreadKey(signature.namespace, constraint.selector, "", Inclusion())
    inclusion = _inclusion(signature, constraint, keys if needs_all else frozenset())
    if not needs_all:
        inclusion = Inclusion(inclusion.keys, inclusion.affinity, inclusion.tolerations, missing_as_empty=True)
    return SpreadKey(signature.namespace, constraint.selector, constraint.topology_key, inclusion)


def _inclusion(signature: PodSignature, constraint: SpreadConstraint, keys: frozenset[str]) -> Inclusion:
    honors_affinity = constraint.honor_affinity and not signature.node_affinity.admits_all
    return Inclusion(
        keys=keys,
        affinity=signature.node_affinity if honors_affinity else None,
        tolerations=signature.tolerations if constraint.honor_taints else None,
    )


def default_constraints(rules: Rules) -> tuple[SpreadConstraint, ...]:
    """The constraints for pods without any of their own, which count nothing before a selector is deduced."""
    if rules.topology_spread.defaulting_type == "System":
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
        for c in rules.topology_spread.default_constraints
    )


class SpreadCounts:
    """The groups of all spread constraints that are compiled."""

    def __init__(self, topology: Topology, selections: Selections) -> None:
        self._topology = topology
        self._selections = selections
        self._acquired: dict[tuple[str, LabelSelector], SpreadSelection] = {}

    def acquire(self, key: SpreadKey) -> SpreadGroup:
        """The group of a key, made on first use; `release` gives it back."""
        selection = self._acquired.get((key.namespace, key.selector))
        if selection is None:
            selection = SpreadSelection(key.namespace, key.selector)
            self._acquired[key.namespace, key.selector] = selection
            self._selections.add(selection)
        group = selection.groups.get(key)
        if group is None:
            group = self._make(key)
            self._selections.add_group(selection, key, group)
        group.users += 1
        assert isinstance(group, SpreadGroup)  # noqa: S101 (narrows the type of what `_make` put there)
        return group

    def _make(self, key: SpreadKey) -> Group:
        domains = self._topology.key(key.topology_key) if key.topology_key else self._topology.itself
        return SpreadGroup(self._topology.acquire_scope(domains, key.inclusion))

    def release(self, key: SpreadKey) -> None:
        """Ends an `acquire`; the group and its scope are dropped with the last user."""
        selection = self._acquired[key.namespace, key.selector]
        group = selection.groups[key]
        group.users -= 1
        if group.users:
            return
        self._selections.remove_group(selection, key)
        if isinstance(group, SpreadGroup):
            self._topology.release_scope(group.scope)
        if not selection.groups:
            del self._acquired[key.namespace, key.selector]
            shrink(self._acquired)
            self._selections.remove(selection)

    @property
    def scope_cells(self) -> int:
        """The size of the columns of all scopes, in entries."""
        return self._topology.scope_cells

    def acquired(self) -> Iterator[tuple[SpreadSelection, SpreadKey, SpreadGroup]]:
        """Every group with its selection, for the audit."""
        for selection in self._acquired.values():
            for key, group in selection.groups.items():
                if isinstance(key, SpreadKey) and isinstance(group, SpreadGroup):
                    yield selection, key, group

    def is_acquired(self, key: SpreadKey, group: Group) -> bool:
        """Whether a group of `acquired` is still kept."""
        selection = self._acquired.get((key.namespace, key.selector))
        return selection is not None and selection.groups.get(key) is group

    def statistics(self) -> dict[str, int]:
        """How many groups are kept."""
        return {"spread_groups": sum(len(selection.groups) for selection in self._acquired.values())}

"""Compiled questions: for each shape that asks, the groups it needs, kept so that a replica's question costs nothing.

A question stays true without being touched: its groups are counted incrementally. It is corrected when *which* groups
it needs may have changed: terms of existing pods came or went, a namespace was relabelled, or a Service or owner from
which default constraints are deduced changed. There is room for so many: for each further one, one is dropped that
nobody has put since it was last in turn (a second chance; keeping the exact order of use would cost each answer more).
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.index.namespaces import Namespaces
from extender.index.placements import Placements
from extender.index.spread_counts import SpreadCounts, SpreadKey, hard_key, soft_key
from extender.index.term_counts import Role, TermCounts
from extender.index.view import GroupView, Question, SpreadQuestion, WeightedGroup
from extender.index.workloads import Workloads
from extender.model.objects import PodShape
from extender.model.spread import SYSTEM_DEFAULTS, SpreadConstraint, SpreadConstraints
from extender.model.terms import AffinityTerm
from extender.settings import Rules

Stamp = tuple[int, int, int]

MOST_QUESTIONS = 10_000


@dataclass(slots=True)
class _Compiled:
    """A question, what its membership rested on, and what must be given back when it is dropped.

    ``in_use``: it has been put again since it was made or last in turn to be dropped.
    """

    question: Question
    stamp: Stamp
    terms: list[tuple[tuple[AffinityTerm, ...], str]]
    spreads: list[SpreadKey]
    in_use: bool = False


class Questions:
    """Questions by shape, in the order in which they are in turn to be dropped."""

    def __init__(
        self,
        rules: Rules,
        placements: Placements,
        terms: TermCounts,
        spreads: SpreadCounts,
        namespaces: Namespaces,
        workloads: Workloads,
        *,
        rejects_excess: bool = True,
    ) -> None:
        """``rejects_excess``: pods above a limit are rejected; else they ask for nothing, so that every node passes."""
        self._rules = rules
        self._rejects_excess = rejects_excess
        self._placements = placements
        self._terms = terms
        self._spreads = spreads
        self._namespaces = namespaces
        self._workloads = workloads
        self._compiled: dict[PodShape, _Compiled] = {}
        self._defaults = _default_constraints(rules)

    def __len__(self) -> int:
        return len(self._compiled)

    def find(self, shape: PodShape) -> Question:
        """The question of a shape, compiled or corrected where needed. That of a pod above a limit is not compiled."""
        if shape.excess is not None:
            return Question(shape, excess=shape.excess if self._rejects_excess else None)
        known = self._compiled.get(shape)
        if known is not None and known.stamp == self._stamp():
            known.in_use = True
            return known.question
        self._placements.pin(shape, 1)  # may make inverse groups, so before the stamp is taken
        made = self._compile(shape, self._stamp())  # before the old one is dropped, so that shared groups live on
        if known is not None:
            if made.question == known.question:
                made.question = known.question  # the same groups: what was remembered of its answers stays good
            self._drop(shape)
        elif len(self._compiled) >= MOST_QUESTIONS:
            self._drop(self._least_used())
        self._compiled[shape] = made
        return made.question

    def drop_all(self) -> None:
        """Forgets every question and gives back what only questions hold; each is compiled again when it is next put."""
        for shape in list(self._compiled):
            self._drop(shape)

    def _least_used(self) -> PodShape:
        """The first in turn that is not in use; those before it get their second chance. Amortised O(1)."""
        while True:
            shape, compiled = next(iter(self._compiled.items()))
            if not compiled.in_use:
                return shape
            compiled.in_use = False
            self._compiled[shape] = self._compiled.pop(shape)

    def _stamp(self) -> Stamp:
        return (self._terms.inverse_version, self._namespaces.version, self._workloads.version)

    def _drop(self, shape: PodShape) -> None:
        compiled = self._compiled.pop(shape)
        self._placements.pin(shape, -1)
        for terms, key in compiled.terms:
            self._terms.release(terms, key)
        for spread in compiled.spreads:
            self._spreads.release(spread)

    def _compile(self, shape: PodShape, stamp: Stamp) -> _Compiled:
        held = _Compiled(Question(shape), stamp, [], [])
        parts: dict[str, object] = {}
        if self._rules.inter_pod_affinity.enabled:
            parts |= self._affinity(shape, held) | self._inverse(shape)
        if self._rules.topology_spread.enabled:
            parts |= self._spread(shape, held)
        held.question = Question(shape, **parts)  # type: ignore[arg-type]  # by name
        return held

    def _affinity(self, shape: PodShape, held: _Compiled) -> dict[str, object]:
        def group(terms: tuple[AffinityTerm, ...], key: str) -> GroupView:
            held.terms.append((terms, key))
            return self._terms.hold(terms, key)

        wanted = shape.affinity
        near = tuple(group(wanted.required, term.topology_key) for term in wanted.required)
        return {
            "affinity": near,
            "affinity_errors": wanted.errors,
            "matches_itself": bool(near) and self._terms.selects_itself(wanted.required, shape),
            "anti": tuple(group((term,), term.topology_key) for term in wanted.required_anti),
            "preferences": tuple(
                WeightedGroup(sign * preferred.weight, group((preferred.term,), preferred.term.topology_key))
                for sign, terms in ((1, wanted.preferred), (-1, wanted.preferred_anti))
                for preferred in terms
            ),
        }

    def _inverse(self, shape: PodShape) -> dict[str, object]:
        settings = self._rules.inter_pod_affinity
        found = self._terms.selecting(shape)
        parts: dict[str, object] = {"inverse": tuple(g for g in found if g.role is Role.REQUIRED_ANTI)}
        if settings.ignore_preferred_terms_of_existing_pods and not shape.affinity.has_preferences:
            return parts
        signs = {Role.PREFERRED: 1, Role.PREFERRED_ANTI: -1}
        parts["inverse_preferences"] = tuple(
            WeightedGroup(signs[g.role] * g.weight, g) for g in found if g.role in signs
        )
        if settings.hard_pod_affinity_weight:
            parts["inverse_required"] = tuple(g for g in found if g.role is Role.REQUIRED)
        return parts

    def _spread(self, shape: PodShape, held: _Compiled) -> dict[str, object]:
        constraints, needs_all = self._constraints(shape)
        hard_keys = frozenset(c.topology_key for c in constraints.hard)
        soft_keys = frozenset(c.topology_key for c in constraints.soft)

        def ask(constraint: SpreadConstraint, key: SpreadKey) -> SpreadQuestion:
            held.spreads.append(key)
            return SpreadQuestion(constraint, self._spreads.hold(key), int(constraint.selector.matches(shape.labels)))

        return {
            "hard": tuple(ask(c, hard_key(shape, c, hard_keys)) for c in constraints.hard),
            "soft": tuple(ask(c, soft_key(shape, c, soft_keys, needs_all=needs_all)) for c in constraints.soft),
            "soft_needs_all_keys": needs_all,
            "hard_error": constraints.hard_error,
            "soft_error": constraints.soft_error,
        }

    def _constraints(self, shape: PodShape) -> tuple[SpreadConstraints, bool]:
        """The constraints in force, and whether scoring ignores nodes that lack a key (not under System defaults)."""
        if shape.spread.own or not self._defaults:
            return shape.spread, True
        selector = self._workloads.default_selector(shape)
        if selector is None:
            return SpreadConstraints(), True
        made = [constraint.with_selector(selector) for constraint in self._defaults]
        hard, soft = tuple(c for c in made if c.hard), tuple(c for c in made if not c.hard)
        return SpreadConstraints(hard, soft), self._rules.topology_spread.defaulting_type != "System"

    def statistics(self) -> dict[str, int]:
        """How many questions are kept."""
        return {"questions": len(self._compiled)}


def _default_constraints(rules: Rules) -> tuple[SpreadConstraint, ...]:
    if rules.topology_spread.defaulting_type == "System":
        return SYSTEM_DEFAULTS
    return tuple(
        SpreadConstraint(
            max_skew=c.max_skew,
            topology_key=c.topology_key,
            hard=c.when_unsatisfiable == "DoNotSchedule",
            min_domains=1 if c.min_domains is None else c.min_domains,
            honor_affinity=c.node_affinity_policy != "Ignore",
            honor_taints=c.node_taints_policy == "Honor",
        )
        for c in rules.topology_spread.default_constraints
    )

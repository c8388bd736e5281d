"""Joins required node terms of a pod and of policies: (P1 or P2) and (Q1 or Q2) as a list of terms.

The list is kept in a normal form, so that joining the same policy again changes nothing, for any number of terms:

1. A term of the pod that contains a term of the policy stays as it is: the policy holds for it already.
2. Any other term becomes one term for each term of the policy: its own requirements first, then the policy's that it lacks.
3. Terms that can match no node are left out, and so are terms that another one covers (absorption).

A term without any requirement matches no node and stays, as the API says:
https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.model.constraints.clauses import OPAQUE, Clause, absorb, are_contradictory
from extender.model.policies import NodeTerm, PolicyKey, TermPart
from extender.wire.policies.node_terms import is_unknown_field

OPERATIONS: Final = 6000
CLAUSES_READ: Final = 12_000
"""How many clauses are read to find contradictions. Beyond that none are found, and the requirements are joined."""

DIRECTIVES: Final = 20_000
"""The allowed weight of the directives of all policies. 1,000 policies of six directives with two elements each weigh 18,000."""


@dataclass(slots=True)
class AdmissionBudget:
    """How much work one admission may still do, beyond the work that grows with the object alone.

    - ``left``: the rest of the operations. An operation compares two node selector terms. Without a limit 1,000 policies of 64
      required terms would join 64 × 64 terms 1,000 times. They are counted and not timed, so that the same object and policies
      always get the same answer.
    - ``directives``: the rest of the allowed weight of directives. A directive weighs the same whether the object has it already or
      not, so that applying the same policies again stops at the same policy.
    - Policies of a namespace have a budget of their own, half as large (`share`), so a tenant's policies take nothing from the
      policies of the cluster.
    """

    left: int = OPERATIONS
    directives: int = DIRECTIVES
    _of_namespaces: AdmissionBudget | None = None

    def share(self, policy: PolicyKey) -> AdmissionBudget:
        """The budget for a policy: cluster-wide policies share one, the policies of the namespace another."""
        if not policy.namespace:
            return self
        if self._of_namespaces is None:
            self._of_namespaces = AdmissionBudget(OPERATIONS // 2, DIRECTIVES // 2)
        return self._of_namespaces

    def spend(self, operations: int) -> bool:
        """Takes operations. False, and takes none, where too few are left."""
        if operations > self.left:
            return False
        self.left -= operations
        return True

    def spend_directives(self, weight: int) -> bool:
        """Takes the weight of one policy. False where too little is left; then no later policy is applied either."""
        self.directives -= weight
        return self.directives >= 0


_PRODUCT = 2  # operations that making a term counts, where comparing two counts one
_TOO_MUCH_WORK = "too many comparisons of terms in one admission"
_SPREAD_BEFORE_ABSORPTION = 2  # products may exceed the cap by this factor before absorption has had its turn


class TooManyTermsError(Exception):
    """The joined list has more terms than the cap allows, or takes more work than one admission may do."""


class JoinedTerm(NamedTuple):
    """A term that began as ``term``, and has got ``added`` from policies. ``clauses``: of both.

    ``origin``: the position of the object's own term that it began as (-1: a policy's term).
    """

    term: NodeTerm
    clauses: frozenset[Clause]
    origin: int = -1
    added: tuple[TermPart, ...] = ()


def policy_terms(terms: Iterable[NodeTerm]) -> list[JoinedTerm]:
    """The terms of a policy where the object has none."""
    return [JoinedTerm(term, term.clauses) for term in terms]


def is_satisfied(mine: Iterable[JoinedTerm], theirs: Sequence[NodeTerm]) -> bool:
    """Whether each term of an object already contains one of the policy's."""
    return all(_contains_one(term, theirs) for term in mine if term.clauses)


def _contains_one(mine: JoinedTerm, theirs: Sequence[NodeTerm]) -> bool:
    return any(other.clauses and other.clauses <= mine.clauses for other in theirs)


def join(mine: list[JoinedTerm], theirs: Sequence[NodeTerm], most: int, budget: AdmissionBudget) -> list[JoinedTerm]:
    """Both lists joined. ``mine`` itself where nothing changes; empty where no node can match.

    ``theirs`` is in normal form. Raises `TooManyTermsError`. O(mine × theirs) at most, bounded by ``most`` and the budget.
    """
    # By clauses, so that equal terms become one: a policy joined twice gives the same list.
    joined: dict[frozenset[Clause], JoinedTerm] = {}
    blanks: list[JoinedTerm] = []
    changed = False
    for term in mine:
        if not term.clauses:
            blanks.append(term)
            continue
        if not budget.spend(len(theirs)):
            raise TooManyTermsError(_TOO_MUCH_WORK)
        if _contains_one(term, theirs):
            joined.setdefault(term.clauses, term)
            continue
        changed = True
        if not budget.spend(_PRODUCT * len(theirs)):
            raise TooManyTermsError(_TOO_MUCH_WORK)
        for other in theirs:
            made = _product(term, other)
            if made is not None:
                joined.setdefault(made.clauses, made)
        if len(joined) > most * _SPREAD_BEFORE_ABSORPTION:
            raise TooManyTermsError(_over(len(joined), most))
    return _in_order(mine, joined, blanks, most, budget) if changed else mine


def _over(count: int, most: int) -> str:
    return f"{count} or more node selector terms, policies.maxTerms is {most}"


def _in_order(
    mine: list[JoinedTerm],
    joined: dict[frozenset[Clause], JoinedTerm],
    blanks: list[JoinedTerm],
    most: int,
    budget: AdmissionBudget,
) -> list[JoinedTerm]:
    """The terms that remain after absorption, in the order of the object's own terms. Empty terms keep their place."""
    if not joined:
        return []
    made = list(joined.values())
    if not budget.spend(len(made) * len(made) // 8):  # comparing two sets of different sizes takes next to nothing
        raise TooManyTermsError(_TOO_MUCH_WORK)
    kept = [made[number] for number in absorb(list(joined))]
    if len(kept) > most and len(kept) > len(mine):
        raise TooManyTermsError(_over(len(kept), most))
    if blanks:
        place = {id(term): number for number, term in enumerate(mine)}
        by_origin = {term.origin: place[id(term)] for term in mine}
        kept = sorted([*kept, *blanks], key=lambda term: by_origin.get(term.origin, len(mine)))
    return kept


def _product(mine: JoinedTerm, other: NodeTerm) -> JoinedTerm | None:
    """Both terms as one. None where no node can match it, or where they cannot be written as one term."""
    if not other.clauses:
        return None
    lacking = tuple(part for part in other.parts if part.clause not in mine.clauses)
    # A field of a later API is taken over as a whole, or not at all.
    if any(is_unknown_field(part) and _has_field(mine, part.name) for part in lacking):
        return None
    # Only clauses about the same labels can contradict each other.
    keys = {(clause.source, clause.key) for clause in other.clauses}
    if are_contradictory([*(clause for clause in mine.clauses if (clause[0], clause[1]) in keys), *other.clauses]):
        return None
    return mine._replace(clauses=mine.clauses | other.clauses, added=(*mine.added, *lacking))


def _has_field(mine: JoinedTerm, name: str) -> bool:
    return name in mine.term.value or any(part.name == name for part in mine.added)


def impossible_term(mine: list[JoinedTerm], theirs: Sequence[NodeTerm]) -> list[JoinedTerm]:
    """One term that no node matches. It has the requirements of both sides, so that a reader sees the contradiction."""
    first = next((term for term in mine if term.clauses), None)
    if first is None or not theirs[0].clauses:
        return mine[:1] if first is None else policy_terms(theirs[:1])
    lacking = (part for part in theirs[0].parts if part.clause not in first.clauses and part.clause.source != OPAQUE)
    return [first._replace(clauses=first.clauses | theirs[0].clauses, added=(*first.added, *lacking))]

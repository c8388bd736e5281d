"""The directives of policies about nodes: the node selector and the required node terms of a pod.

Node selector pairs add up with the pod's. Required terms are joined with the pod's into one list (`term_product`). Both may
contradict the pod, or each other, so that no node can match: then it is a conflict.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from operator import sub

from extender.model.constraints.clauses import LABEL, Clause, are_contradictory
from extender.model.constraints.node_affinity import NodeAffinity
from extender.model.policies import ConflictPolicy, NodeTerm, Policy, Size
from extender.verbs.admit.pod_fields import Changes, PodFields, short
from extender.verbs.admit.term_product import (
    CLAUSES_READ,
    AdmissionBudget,
    JoinedTerm,
    TooManyTermsError,
    impossible_term,
    is_satisfied,
    join,
    policy_terms,
)
from extender.wire.policies.node_terms import NODE_TERMS
from extender.wire.policies.policy_validation import limit_name

_BESIDE_PAIR = len('"":"",')


def _json_length(pairs: Mapping[str, str]) -> int:
    """The length of node selector pairs as JSON. Keys and values of labels need no escape."""
    return 1 + sum(len(key) + len(value) + _BESIDE_PAIR for key, value in pairs.items())


class NodeDirectives:
    """The part of an injection that decides on which nodes a pod may run: node selector and required node terms."""

    def __init__(self, fields: PodFields) -> None:
        self._fields = fields
        self._witness: int | None = None  # the position of a term that the node selector does not exclude
        self._detection = AdmissionBudget(CLAUSES_READ)

    def forget_witness(self) -> None:
        """Call it after terms or the node selector were replaced."""
        self._witness = None

    def add_node_selector(self, pairs: Mapping[str, str], changes: Changes) -> None:
        """Adds the pairs whose keys are missing. A conflict: the key has another value, or no required term admits the pair."""
        # Pairs are checked one by one against the pod and the pairs before them (`merged`), then added together or not at all: a part
        # of them would select nodes that neither the pod nor the policy directs.
        fields = self._fields
        present = fields.node_selector
        added: dict[str, str] = {}
        merged = ChainMap(added, present)
        for key, value in pairs.items():
            if present.get(key) != value and self._is_to_be_written(key, value, merged, changes):
                added |= {key: value}
        replaced = {key: present[key] for key in added if key in present}
        fresh = {key: value for key, value in added.items() if key not in present}
        size = Size(pod_bytes=_json_length(fresh), node_requirements=len(fresh)) if fresh else Size()
        if added and fields.fits(size, "nodeSelector", changes, selects_nodes=True):
            changes.added["nodeSelector"] = added
            if replaced:
                changes.replaced["nodeSelector"] = {**changes.replaced.get("nodeSelector", {}), **replaced}
            fields.node_selector = {**present, **added}
        elif added:
            added, self._witness = {}, None
        for key, value in pairs.items():
            if added.get(key, present.get(key)) == value:
                fields.claim(f"nodeSelector[{key}]")

    def _is_to_be_written(self, key: str, value: str, present: Mapping[str, str], changes: Changes) -> bool:
        """Whether to write a pair that is missing or has another value: there is no conflict, or the policy overrides."""
        if key in present:
            message = f'the pod has "{short(present[key])}", the policy "{short(value)}"'
            if self._fields.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
                return False
        if changes.policy.conflict_policy is ConflictPolicy.COMBINE:
            return True
        if not self._detection.left or self._admits(key, value, present):
            return True
        message = f'no required node term of the pod admits {short(key)}="{short(value)}"'
        if self._fields.conflict(changes, NODE_TERMS, message) is not ConflictPolicy.OVERRIDE:
            return False
        self._replace_terms([], changes)
        return True

    def _admits(self, key: str, value: str, present: Mapping[str, str]) -> bool:
        """Whether a required term can match together with one more pair. Also True where no term could match before.

        Cost: the position of one term that can match is remembered (the witness). Pairs are only added, so a term before the witness
        can never match again. So all pairs of all policies together cost O(terms + pairs), until the terms change.
        """
        terms = self._fields.terms
        pairs = {name: text for name, text in present.items() if name != key} if key in present else present
        if self._witness is None or key in present:
            self._witness = self._first_possible(terms, 0, pairs)
        at = self._witness
        if at == len(terms) or self._is_possible(terms[at], {key: value}, about=key):
            return True
        at = self._first_possible(terms, at + 1, {**pairs, key: value})
        if at < len(terms):
            self._witness = at
        return at < len(terms)

    def _first_possible(self, terms: list[JoinedTerm], start: int, pairs: Mapping[str, str]) -> int:
        """The position of the first term, from ``start`` on, that can match together with the pairs; else the number of terms."""
        return next((at for at in range(start, len(terms)) if self._is_possible(terms[at], pairs)), len(terms))

    def _is_possible(self, term: JoinedTerm, pairs: Mapping[str, str], about: str = "") -> bool:
        """Whether a node can match a term together with the pairs. ``about``: read only the term's clauses about this key.

        Always True once the budget of clauses is spent: reading on would delay the admission.
        """
        if not self._detection.spend(1 + len(term.clauses)):
            # For good: else a small term would still be read after a large one, and answers would depend on sizes of terms.
            self._detection.left = 0
            return True
        clauses = [clause for clause in term.clauses if clause.key == about] if about else term.clauses
        keys = {clause.key for clause in clauses if clause.source == LABEL} & pairs.keys()
        selected = (Clause(LABEL, key, "In", (str(pairs[key]),)) for key in keys)
        return bool(term.clauses) and not are_contradictory([*clauses, *selected])

    def join_terms(self, changes: Changes) -> None:
        """Requires nodes that match the pod's terms and the policy's terms. A conflict: no such node, or too many terms."""
        fields, mine = self._fields, self._fields.terms
        theirs = changes.policy.directives.required_node_terms or ()
        try:
            joined, message = self._joined(mine, theirs, changes.policy)
        except TooManyTermsError as error:
            self._hold_apart(changes, str(error))
            return
        if joined is mine and mine:
            fields.claim(NODE_TERMS)
            return
        resolution = fields.conflict(changes, NODE_TERMS, message) if message else ConflictPolicy.COMBINE
        if resolution is ConflictPolicy.OVERRIDE:
            self._override(policy_terms(theirs), changes)
        elif resolution is ConflictPolicy.COMBINE:
            self._replace_terms(joined or impossible_term(mine, theirs), changes)

    def _hold_apart(self, changes: Changes, message: str) -> None:
        """Handles terms that cannot be joined with the pod's terms. A pod that exists must match both lists, each by itself."""
        fields, policy = self._fields, changes.policy
        if not (fields.exists and fields.is_unlimited(policy)):
            fields.leave_out(changes, NODE_TERMS, message)
            return
        nodes = policy.directives.nodes  # its terms are indexed already
        fields.apart = (*fields.apart, NodeAffinity(terms=nodes.terms) if nodes.node_selector else nodes)
        changes.terms_changed = True

    def _joined(
        self, mine: list[JoinedTerm], theirs: Sequence[NodeTerm], policy: Policy
    ) -> tuple[list[JoinedTerm], str]:
        """Both lists joined, and the text of the conflict, empty without one. Raises `TooManyTermsError`."""
        # 1. The terms are not read, because the pod is above a limit. 2. The pod is at the limit of requirements: nothing can be added,
        # which is fine if nothing is lacking. 3. Joining. It is a conflict only if the policy makes the pod impossible: a pod whose own
        # terms match no node stays as it is.
        fields, bounds = self._fields, self._fields.bounds
        if not fields.reads_terms:
            raise TooManyTermsError(fields.excess)
        most = bounds.limits.node_requirements
        if mine and not fields.is_unlimited(policy) and fields.size.node_requirements >= most:
            if is_satisfied(mine, theirs):
                return mine, ""
            raise TooManyTermsError(f"no further requirement fits, {limit_name('node_requirements')} is {most}")
        joined = join(mine, theirs, bounds.max_terms, fields.budget.share(policy.key)) if mine else policy_terms(theirs)
        if joined is mine or self._can_match(joined) or (mine and not self._can_match(mine)):
            return joined, ""
        return joined, "no node can match the pod's requirements and the policy's"

    def _override(self, terms: list[JoinedTerm], changes: Changes) -> None:
        """Replaces the pod's terms by the policy's. Removes node selector pairs of the pod with which none of them can match."""
        fields = self._fields
        if not self._can_match(terms):
            keys = {part.key for term in terms for part in term.clauses}
            present = fields.node_selector
            kept = {k: v for k, v in present.items() if k not in keys or f"nodeSelector[{k}]" in fields.claims}
            if not self._can_match(terms, kept):  # pairs of earlier policies exclude the terms, and stay
                return
            changes.replaced["nodeSelector"] = {key: present[key] for key in present if key not in kept}
            fields.node_selector, self._witness = kept, None
        self._replace_terms(terms, changes)

    def _can_match(self, terms: list[JoinedTerm], pairs: Mapping[str, str] | None = None) -> bool:
        """Whether a node can match one of the terms together with a node selector. ``pairs``: None for the pod's selector."""
        if pairs is None:
            pairs = self._fields.node_selector
        return any(self._is_possible(term, pairs) for term in terms)

    def _replace_terms(self, terms: list[JoinedTerm], changes: Changes) -> None:
        if above := self._fields.grow(self._growth(terms), changes.policy, selects_nodes=True):
            self._hold_apart(changes, above)
            return
        self._fields.terms, self._witness = terms, None
        self._fields.claim(NODE_TERMS)
        changes.terms_changed = True

    def _growth(self, terms: list[JoinedTerm]) -> Size:
        """The size of the terms minus the size of the present terms."""
        now = Size(*map(sum, zip(Size(), *(term.size for term in self._fields.terms), strict=True)))
        then = Size(*map(sum, zip(Size(), *(term.size for term in terms), strict=True)))
        return Size(*map(sub, then, now))

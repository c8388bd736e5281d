"""Injects the node selector and the required node terms of policies, and finds where no node can match the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from extender.model.clauses import LABEL, Clause, are_contradictory, clause
from extender.model.policies import ConflictPolicy, JsonObject, Size
from extender.verbs.admit.changes import Changes, short
from extender.verbs.admit.spec_edits import get, put
from extender.verbs.admit.spec_state import SpecState
from extender.verbs.admit.term_product import (
    JoinedTerm,
    TooManyTermsError,
    impossible_term,
    join,
    own_terms,
    policy_terms,
)
from extender.wire.node_terms import NODE_TERMS, canonical, node_term, node_term_size

_TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")


class NodeDirectives:
    """The part of an injection that decides on which nodes a pod may run."""

    def __init__(self, state: SpecState) -> None:
        self._state = state
        self._original_terms = get(state.spec, _TERMS_PATH)
        self._terms: list[JoinedTerm] | None = None

    def save(self) -> list[JoinedTerm] | None:
        """What `restore` needs."""
        return self._terms

    def restore(self, saved: list[JoinedTerm] | None) -> None:
        """Takes back every change since `save`."""
        self._terms = saved

    def terms_record(self) -> JsonObject | None:
        """What happened to the required node terms, for the annotation; None where nothing did."""
        if self._terms is None or get(self._state.spec, _TERMS_PATH) is self._original_terms:
            return None
        return {"before": self._original_terms, "after": [[each.origin, each.added] for each in self._terms]}

    def add_node_selector(self, pairs: Mapping[str, str], changes: Changes) -> None:
        """Adds the pairs whose keys are missing. A key with another value, or that excludes every node, is a conflict."""
        present = self._state.spec.get("nodeSelector") or {}
        added, replaced = {}, {}
        for key, value in pairs.items():
            found = present.get(key)
            if found == value or (found is None and self._is_impossible(key, value, changes)):
                continue
            if found is not None:
                message = f'the pod has "{short(found)}", the policy "{short(value)}"'
                if self._state.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
                    continue
                replaced[key] = found
            added[key] = value
        fresh = {key: value for key, value in added.items() if key not in replaced}
        size = Size(pod_bytes=len(canonical(fresh)), node_requirements=len(fresh)) if fresh else Size()
        if added and self._state.fits(size, "nodeSelector", changes):
            changes.added["nodeSelector"] = added
            if replaced:
                changes.replaced["nodeSelector"] = replaced
            self._state.put(("nodeSelector",), {**present, **added})

    def _is_impossible(self, key: str, value: str, changes: Changes) -> bool:
        """Whether the pod's required terms exclude a label, and the pod's own terms are to be kept."""
        terms = self._required_terms()
        if not terms or changes.policy.conflict_policy is ConflictPolicy.COMBINE:
            return False
        wanted = clause(LABEL, key, "In", (value,))
        if any(self._agrees(each, wanted) for each in terms):
            return False
        message = f'no required node term of the pod admits "{short(value)}"'
        if self._state.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
            return True
        self._write_terms(None)
        changes.terms_changed = True
        return False

    def _agrees(self, term: JoinedTerm, wanted: Clause) -> bool:
        """Whether a node can match the term and have the label. Taken for granted where the budget is spent."""
        if not self._state.budget.spend(len(term.clauses)):
            return True
        about = [each for each in term.clauses if each.source == LABEL and each.key == wanted.key]
        return bool(term.clauses) and not are_contradictory([*about, wanted])

    def _required_terms(self) -> list[JoinedTerm]:
        """The terms as they are now; empty where there are none."""
        if self._terms is None:
            values = get(self._state.spec, _TERMS_PATH)
            values = values if isinstance(values, list) else []
            self._terms = own_terms(node_term(each) for each in values if isinstance(each, dict))
        return self._terms

    def join_terms(self, changes: Changes) -> None:
        """Requires a node that matches the pod's terms and the policy's. No such node, or too many terms: a conflict."""
        theirs = changes.policy.directives.required_node_terms or ()
        mine = self._required_terms()
        where = NODE_TERMS
        try:
            joined = (
                join(mine, theirs, self._state.bounds.max_terms, self._state.budget) if mine else policy_terms(theirs)
            )
            possible = self._can_match(joined)
        except TooManyTermsError as error:
            if self._state.conflict(changes, where, str(error)) is ConflictPolicy.OVERRIDE:
                self._replace_terms(policy_terms(theirs), changes)
            return
        if joined is mine:
            return
        if not possible and self._can_match(mine):
            resolution = self._state.conflict(
                changes, where, "no node can match the pod's requirements and the policy's"
            )
            if resolution is ConflictPolicy.KEEP_POD:
                return
            if resolution is ConflictPolicy.OVERRIDE:
                joined = policy_terms(theirs)
            elif not joined:
                joined = impossible_term(mine, theirs)
        self._replace_terms(joined or impossible_term(mine, theirs), changes)

    def _can_match(self, terms: list[JoinedTerm]) -> bool:
        """Whether a node can match one of the terms together with the node selector (no terms: the selector alone)."""
        pairs = self._state.spec.get("nodeSelector") or {}
        wanted = {key: clause(LABEL, key, "In", (str(value),)) for key, value in pairs.items()}
        for each in terms:
            keys = {part.key for part in each.clauses if part.source == LABEL} & wanted.keys()
            if not self._state.budget.spend(len(each.clauses)):
                return True
            if each.clauses and not are_contradictory([*each.clauses, *(wanted[key] for key in keys)]):
                return True
        return False

    def _replace_terms(self, terms: list[JoinedTerm], changes: Changes) -> None:
        if self._state.fits(self._growth(terms), NODE_TERMS, changes):
            self._write_terms(terms)
            changes.terms_changed = True

    def _growth(self, terms: list[JoinedTerm]) -> Size:
        """How much larger (or smaller) the terms are than those that stand there now."""
        now = (Size(), *(node_term_size(each.value) for each in self._required_terms()))
        then = (Size(), *(node_term_size(each.value) for each in terms))
        return Size(*(sum(b) - sum(a) for a, b in zip(zip(*now, strict=True), zip(*then, strict=True), strict=True)))

    def _write_terms(self, terms: list[JoinedTerm] | None) -> None:
        self._terms = terms or []
        values = [each.value for each in self._terms]
        if values:
            self._state.put(_TERMS_PATH, values)
        else:
            self._state.spec = _without_terms(self._state.spec)


def _without_terms(spec: JsonObject) -> JsonObject:
    affinity = dict(spec["affinity"]["nodeAffinity"])
    del affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    return put(spec, ("affinity", "nodeAffinity"), affinity)

"""Injects the node selector and the required node terms of policies, and finds where no node can match the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import sub
from typing import Final

from extender.model.constraints.clauses import LABEL, Clause, are_contradictory
from extender.model.policies import ConflictPolicy, JsonObject, NodeTerm, Size
from extender.verbs.admit.injecting.budget import CLAUSES_READ, Budget
from extender.verbs.admit.injecting.changes import Changes, short
from extender.verbs.admit.injecting.spec_edits import get, put
from extender.verbs.admit.injecting.spec_state import SpecState
from extender.verbs.admit.injecting.term_product import (
    JoinedTerm,
    TooManyTermsError,
    impossible_term,
    is_satisfied,
    join,
    own_terms,
    policy_terms,
)
from extender.wire.policies.node_terms import NODE_TERMS, canonical, node_term
from extender.wire.policies.policy_validation import limit_name

_TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")


class NodeDirectives:
    """The part of an injection that decides on which nodes a pod may run."""

    def __init__(self, state: SpecState) -> None:
        self._state = state
        self._original_terms = get(state.spec, _TERMS_PATH)
        self._terms: list[JoinedTerm] | None = None
        self._witness: int | None = None  # the position of a term that the node selector does not exclude
        self._detection = Budget(CLAUSES_READ)

    def save(self) -> list[JoinedTerm] | None:
        """What `restore` needs."""
        return self._terms

    def restore(self, saved: list[JoinedTerm] | None) -> None:
        """Takes back every change since `save`."""
        self._terms = saved
        self._witness = None

    def terms_record(self) -> JsonObject | None:
        """What happened to the required node terms, for the annotation; None where nothing did."""
        if self._terms is None or get(self._state.spec, _TERMS_PATH) is self._original_terms:
            return None
        return {"before": self._original_terms, "after": [[each.origin, each.added] for each in self._terms]}

    def add_node_selector(self, pairs: Mapping[str, str], changes: Changes) -> None:
        """Adds the pairs whose keys are missing. A key with another value, or that excludes every node, is a conflict."""
        state = self._state
        present: Mapping[str, str] = state.spec.get("nodeSelector") or {}
        added: dict[str, str] = {}
        merged = dict(present)
        for key, value in pairs.items():
            if present.get(key) != value and self._is_to_be_written(key, value, merged, changes):
                added[key] = merged[key] = value
        replaced = {key: present[key] for key in added if key in present}
        fresh = {key: value for key, value in added.items() if key not in present}
        size = Size(pod_bytes=len(canonical(fresh)), node_requirements=len(fresh)) if fresh else Size()
        if added and state.fits(size, "nodeSelector", changes):
            changes.added["nodeSelector"] = added
            if replaced:
                changes.replaced["nodeSelector"] = {**changes.replaced.get("nodeSelector", {}), **replaced}
            state.put(("nodeSelector",), {**present, **added})
        elif added:
            added, self._witness = {}, None
        for key, value in pairs.items():
            if added.get(key, present.get(key)) == value:
                state.claim(f"nodeSelector[{key}]")

    def _is_to_be_written(self, key: str, value: str, present: Mapping[str, str], changes: Changes) -> bool:
        """Whether a pair that is missing, or that has another value, is to be written: it is possible, or overrides."""
        if key in present:
            message = f'the pod has "{short(present[key])}", the policy "{short(value)}"'
            if self._state.conflict(changes, f"nodeSelector[{key}]", message) is not ConflictPolicy.OVERRIDE:
                return False
        if changes.policy.conflict_policy is ConflictPolicy.COMBINE:
            return True
        if not self._detection.left or self._admits(key, value, present):
            return True
        message = f'no required node term of the pod admits {short(key)}="{short(value)}"'
        if self._state.conflict(changes, NODE_TERMS, message) is not ConflictPolicy.OVERRIDE:
            return False
        self._replace_terms([], changes)
        return True

    def _admits(self, key: str, value: str, present: Mapping[str, str]) -> bool:
        """Whether a required term can still match with one more pair; also where none could without it.

        One term that can match is remembered. Pairs are only added, so a term that was passed over is out for good, and
        all pairs of all policies together cost O(terms + pairs), until the terms change.
        """
        terms = self._required_terms()
        left = {name: each for name, each in present.items() if name != key} if key in present else present
        if self._witness is None or key in present:
            self._witness = self._first_possible(terms, 0, left)
        at = self._witness
        if at == len(terms) or self._is_possible(terms[at], {key: value}, about=key):
            return True
        at = self._first_possible(terms, at + 1, {**left, key: value})
        if at < len(terms):
            self._witness = at
        return at < len(terms)

    def _first_possible(self, terms: list[JoinedTerm], start: int, pairs: Mapping[str, str]) -> int:
        """The position of the first term from a position on that can match together with pairs, else their number."""
        return next((at for at in range(start, len(terms)) if self._is_possible(terms[at], pairs)), len(terms))

    def _is_possible(self, term: JoinedTerm, pairs: Mapping[str, str], about: str = "") -> bool:
        """Whether a node can match a term together with pairs; of the term, only the clauses about one key where it is given.

        Taken for granted once so many clauses have been read that looking on would delay the admission.
        """
        if not self._detection.spend(1 + len(term.clauses)):
            self._detection.left = 0  # for good: what is looked at must not depend on the size of the next term
            return True
        clauses = [each for each in term.clauses if each.key == about] if about else term.clauses
        keys = {each.key for each in clauses if each.source == LABEL} & pairs.keys()
        selected = (Clause(LABEL, key, "In", (str(pairs[key]),)) for key in keys)
        return bool(term.clauses) and not are_contradictory([*clauses, *selected])

    def _required_terms(self) -> list[JoinedTerm]:
        """The terms as they are now; empty where there are none."""
        if self._terms is None:
            values = get(self._state.spec, _TERMS_PATH)
            values = values if isinstance(values, list) else []
            self._terms = own_terms(node_term(each if isinstance(each, dict) else {}) for each in values)
        return self._terms

    def join_terms(self, changes: Changes) -> None:
        """Requires a node that matches the pod's terms and the policy's. No such node, or too many terms: a conflict."""
        state, mine = self._state, self._required_terms()
        theirs = changes.policy.directives.required_node_terms or ()
        joined, message = self._joined(mine, theirs)
        if joined is mine and mine:
            state.claim(NODE_TERMS)
            return
        resolution = state.conflict(changes, NODE_TERMS, message) if message else ConflictPolicy.COMBINE
        if resolution is ConflictPolicy.OVERRIDE:
            self._override(policy_terms(theirs), changes)
        elif resolution is ConflictPolicy.COMBINE and joined is not None:
            self._replace_terms(joined or impossible_term(mine, theirs), changes)

    def _joined(self, mine: list[JoinedTerm], theirs: Sequence[NodeTerm]) -> tuple[list[JoinedTerm] | None, str]:
        """Both lists joined, None where that is too much; and why it is a conflict, empty where it is none."""
        bounds = self._state.bounds
        if mine and not self._state.has_room_for_requirements():
            if is_satisfied(mine, theirs):
                return mine, ""
            return (
                None,
                f"no further requirement fits, {limit_name('node_requirements')} is {bounds.limits.node_requirements}",
            )
        try:
            joined = join(mine, theirs, bounds.max_terms, self._state.budget) if mine else policy_terms(theirs)
        except TooManyTermsError as error:
            return None, str(error)
        if joined is mine or self._can_match(joined) or (mine and not self._can_match(mine)):
            return joined, ""
        return joined, "no node can match the pod's requirements and the policy's"

    def _override(self, terms: list[JoinedTerm], changes: Changes) -> None:
        """Puts a policy's terms in place of the pod's, and takes away the pairs of the pod that exclude all of them."""
        state = self._state
        if not self._can_match(terms):
            keys = {part.key for each in terms for part in each.clauses}
            present = state.spec.get("nodeSelector") or {}
            left = {k: v for k, v in present.items() if k not in keys or state.is_claimed(f"nodeSelector[{k}]")}
            if not self._can_match(terms, left):  # policies that apply first exclude them
                return
            changes.replaced["nodeSelector"] = {key: present[key] for key in present if key not in left}
            self._witness = None
            state.spec = put(state.spec, ("nodeSelector",), left)
        self._replace_terms(terms, changes)

    def _can_match(self, terms: list[JoinedTerm], pairs: Mapping[str, str] | None = None) -> bool:
        """Whether a node can match one of the terms together with a node selector: that of the pod unless one is given."""
        if pairs is None:
            pairs = self._state.spec.get("nodeSelector") or {}
        return any(self._is_possible(each, pairs) for each in terms)

    def _replace_terms(self, terms: list[JoinedTerm], changes: Changes) -> None:
        if self._state.fits(self._growth(terms), NODE_TERMS, changes):
            self._write_terms(terms)
            self._state.claim(NODE_TERMS)
            changes.terms_changed = True

    def _growth(self, terms: list[JoinedTerm]) -> Size:
        """How much larger (or smaller) the terms are than those that stand there now."""
        now = Size(*map(sum, zip(Size(), *(each.size for each in self._required_terms()), strict=True)))
        then = Size(*map(sum, zip(Size(), *(each.size for each in terms), strict=True)))
        return Size(*map(sub, then, now))

    def _write_terms(self, terms: list[JoinedTerm]) -> None:
        self._terms, self._witness = terms, None
        values = [each.value for each in self._terms]
        if values:
            self._state.put(_TERMS_PATH, values)
        else:
            self._state.spec = _without_terms(self._state.spec)


def _without_terms(spec: JsonObject) -> JsonObject:
    affinity = dict(spec["affinity"]["nodeAffinity"])
    del affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    return put(spec, ("affinity", "nodeAffinity"), affinity)

"""What policies hold a pod to that exists, found by injecting it with the code that admission uses.

So conflicts have the outcome that they have at admission, and an injected pod lacks nothing, as applying a policy again
changes nothing.

What an earlier version of a policy, or a policy that was deleted, injected is recorded in an annotation of the pod. It is no
wish of the user. Where it conflicts with a policy of today, the policies are judged by the pod without it: the version of
today holds, whatever its `conflictPolicy`. What the pod carries stays, as nothing can take it out of a pod that exists, and
kube-scheduler applies it. So where both exclude each other no node is left, and the pod is pending until it is made anew.
The record of a template is at the object that holds it. What came to a pod by its template counts as the pod's own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final
from weakref import ref

import orjson

from extender.model.constraints.node_affinity import ANY_NODE, NodeAffinity, NodeRequirement, node_selector
from extender.model.objects import PodSignature
from extender.model.policies import (
    INJECTED_ANNOTATION,
    ConflictPolicy,
    Enforced,
    FailurePolicy,
    JsonObject,
    Mode,
    Moment,
    Policy,
    PolicyKey,
)
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from extender.verbs.admit.injecting.budget import Budget
from extender.verbs.admit.injecting.changes import Bounds, Changes, RejectedError
from extender.verbs.admit.injecting.injected import Record, read_records, subtract
from extender.verbs.admit.injecting.injection import Injection
from extender.verbs.admit.injecting.spec_edits import put
from extender.verbs.placing_lists import PlacingLists, with_soft_min_domains
from extender.wire.objects.constraints import parse_affinity
from extender.wire.policies.node_terms import NODE_TERMS, SPREAD, value_at

_TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_POD: Final = ""  # the pointer of a pod's own record


def enforce(
    signature: PodSignature, policies: Sequence[Policy], settings: Settings
) -> tuple[PodSignature | None, tuple[PolicyKey, ...]]:
    """The signature with what the policies direct and it lacks, None where it lacks nothing; and the policies that audit.

    O(elements of the pod and of the policies); twice that where a pod with a record conflicts with a policy.
    """
    bounds = Bounds(settings.limits, settings.policies.max_terms)
    first = _Run(signature, policies, bounds)
    audited = tuple(first.audited)
    if signature.injected and (first.conflicts or any(each.directives.soft_min_domains for each in policies)):
        again = _without_injected(signature, policies, bounds)
        if again is not None:
            held = dict.fromkeys((*first.held, *(key for key, _ in first.conflicts - again.conflicts)))
            # What comes after a policy that refuses was not tried; and one field may have had two conflicts.
            if first.refused_by is not None or not (held or _implies(signature.node_affinity, again.nodes)):
                held |= again.held
            return again.effective(settings.rules, held, keeps_nodes=True), audited
    return first.effective(settings.rules, first.held, keeps_nodes=False), audited


def refused(signature: PodSignature, policy: PolicyKey, reason: Reason) -> PodSignature:
    """The signature of a pod that a policy refuses every node."""
    return replace(signature, enforced=Enforced((policy,), refused_for=reason), shown=ref(signature))


def _without_injected(signature: PodSignature, policies: Sequence[Policy], bounds: Bounds) -> _Run | None:
    """The same for the pod without what was injected earlier; None without a record that can be read."""
    found = read_records({INJECTED_ANNOTATION: signature.injected}).get(_POD)
    if found is None:
        return None
    record, most = found.without_replaced(), bounds.limits
    if record.terms_count > most.node_selector_terms or len(record.items(SPREAD)) > most.topology_spread_constraints:
        return None
    try:
        return _Run(signature, policies, bounds, record)
    except Exception:  # noqa: BLE001 (the annotation is the tenant's to write; it must not stop the scheduler)
        return None


class _Run:
    """The injection of policies into a signature, as far as decisions about nodes read it.

    ``injected``: what does not count as the pod's own.
    """

    def __init__(
        self, signature: PodSignature, policies: Sequence[Policy], bounds: Bounds, injected: Record | None = None
    ) -> None:
        """Applies the policies, up to a conflict that rejects the pod.

        What gave way to a part of the pod that another policy overrode is applied once more, as admission does.
        """
        self.audited: list[PolicyKey] = []
        self.conflicts: set[tuple[PolicyKey, str]] = set()
        self.held: dict[PolicyKey, None] = {}
        self.refused_by: PolicyKey | None = None
        self._refused_for = Reason.POLICY_CONFLICT
        self._signature = signature
        self._policies = policies
        self._lists = PlacingLists(signature, policies, () if injected is None else injected.items(SPREAD))
        spec = _node_json(signature.node_affinity)
        if injected is not None:
            spec = subtract(spec, injected)
        self._injection = Injection(self._lists.written_to(spec), bounds, Budget(), is_pod=True)
        self._applied: list[Changes] = []
        for each in self._policies:
            self._apply(each)
        if any(_has(each, ConflictPolicy.OVERRIDE) for each in self._applied):
            for done in list(self._applied):
                if any(conflict.resolution is not ConflictPolicy.OVERRIDE for conflict in done.conflicts):
                    self._apply(done.policy)

    @property
    def nodes(self) -> NodeAffinity:
        """What is required of nodes after that. O(requirements)."""
        return _node_affinity(self._injection.spec)

    def effective(self, rules: Rules, held: Collection[PolicyKey], *, keeps_nodes: bool) -> PodSignature | None:
        """The signature with all that was applied; None where ``held``, the policies that the pod lacks a part of, is empty.

        ``keeps_nodes``: the pod itself may exclude nodes that policies would leave it.
        """
        signature = self._signature
        if self.refused_by is not None:
            return refused(signature, self.refused_by, self._refused_for)
        enforcing = [each for each in self._policies if each.mode is Mode.ENFORCE]
        spec = self._injection.spec
        affinity, spread, preferred = self._lists.read_from(spec, rules)
        wished = with_soft_min_domains(spread, enforcing, signature.labels)
        if not held and wished is spread:
            return None
        nodes = self.nodes
        required = nodes if held else ANY_NODE  # a wish alone holds the pod to no node
        if node_name := spec.get("nodeName"):
            required = required.at(node_name)
        enforced = Enforced(tuple(held), required, preferred)
        # kube-scheduler applies what the pod carries itself, also where a policy would have overridden it at admission. So
        # such a pod must not be nominated to a node that its own requirements exclude.
        overridden = keeps_nodes or any(_has(each, ConflictPolicy.OVERRIDE) for each in self._applied)
        own = signature.node_affinity if overridden else nodes
        return replace(
            signature, affinity=affinity, spread=wished, node_affinity=own, enforced=enforced, shown=ref(signature)
        )

    def _apply(self, policy: Policy) -> None:
        if self.refused_by is not None:
            return
        try:
            if policy.mode is Mode.AUDIT:
                changes = self._injection.preview(policy, Moment.SCHEDULING)
                if not changes.is_empty or _has(changes, ConflictPolicy.REJECT):
                    self.audited.append(policy.key)
                return
            changes = self._injection.apply(policy, Moment.SCHEDULING)
        except RejectedError as error:
            self.refused_by = policy.key
            self.conflicts.add((policy.key, error.conflict.field))
            return
        except Exception:  # noqa: BLE001 (an error in one policy must not stop the scheduler)
            if policy.failure_policy is FailurePolicy.FAIL and policy.mode is Mode.ENFORCE:
                self.refused_by, self._refused_for = policy.key, Reason.POLICY_FAILED
            return
        self._applied.append(changes)
        self.conflicts.update((policy.key, each.field) for each in changes.conflicts)
        if not changes.is_empty:
            self.held[policy.key] = None


def _has(changes: Changes, resolution: ConflictPolicy) -> bool:
    return any(each.resolution is resolution for each in changes.conflicts)


def _implies(one: NodeAffinity, other: NodeAffinity) -> bool:
    """Whether the requirements of one contain those of the other: each of its terms has all clauses of one of them."""
    if not set(other.node_selector) <= set(one.node_selector):
        return False
    if one.terms is None or other.terms is None:
        return other.terms is None
    theirs = [(set(each.expressions), set(each.fields)) for each in other.terms]
    return all(
        any(expressions <= set(each.expressions) and fields <= set(each.fields) for expressions, fields in theirs)
        for each in one.terms
    )


def _node_json(affinity: NodeAffinity) -> JsonObject:
    """The node selector and the required terms as a pod spec has them."""
    spec: JsonObject = {"nodeSelector": dict(affinity.node_selector)} if affinity.node_selector else {}
    if affinity.terms is None:
        return spec
    terms = [
        {
            name: [_requirement_json(each) for each in clauses]
            for name, clauses in (("matchExpressions", term.expressions), ("matchFields", term.fields))
            if clauses
        }
        for term in affinity.terms
    ]
    return put(spec, _TERMS_PATH, terms)


def _requirement_json(clause: NodeRequirement) -> JsonObject:
    return {"key": clause.key, "operator": str(clause.operator), "values": list(clause.values)}


def _node_affinity(spec: JsonObject) -> NodeAffinity:
    """The node selector and the required terms of a spec that was made by `_node_json` and injected."""
    affinity = value_at(spec, "affinity")
    _, (nodes, _) = parse_affinity(b"" if affinity is None else orjson.dumps(affinity), "")
    return NodeAffinity(node_selector(spec.get("nodeSelector") or {}), nodes.terms)

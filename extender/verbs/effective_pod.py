"""The effective pod: the pod that the watch shows, with what the policies that select it direct and it lacks.

Policies with ``when: Scheduling`` hold a pod that was not injected, as it was created before the policy or while the
webhook was down. What a pod is held to is found by injecting it, with the code that admission uses, so conflicts have the
same outcome. An injected pod lacks nothing, as applying a policy again changes nothing.

Tolerations, gates, scheduler names and priority classes are left out: nothing can add them to a pod that exists.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import orjson

from extender.index.view import Effective, IndexReaders
from extender.model.bounded import BoundedCache
from extender.model.labels import Labels
from extender.model.node_affinity import NodeAffinity, NodeRequirement, PreferredNodeTerm, node_selector
from extender.model.objects import Pod, PodSignature
from extender.model.policies import (
    CLUSTER_KIND,
    EXEMPT_LABEL,
    NAMESPACED_KIND,
    ConflictPolicy,
    Enforced,
    FailurePolicy,
    JsonObject,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Subject,
    Targets,
)
from extender.settings import Settings
from extender.verbs.admit.budget import Budget
from extender.verbs.admit.changes import Bounds, Changes, RejectedError
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.spec_edits import put
from extender.wire.constraints import parse_affinity
from extender.wire.node_terms import NODE_TERMS, value_at

_TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
_NODE_FIELDS: Final = frozenset({"nodeSelector", "nodeName"})
_SEEN: Final = 10_000


def effective_pod(pod: Pod, view: IndexReaders, settings: Settings) -> Pod:
    """The pod with the signature that decisions are made by: the same pod where no policy holds it to anything.

    O(1) for a signature that was seen since the last change of a policy, else O(policies that may select the pod).
    """
    if not settings.policies.enabled or not len(view.policies) or pod.signature.enforced is not None:
        return pod
    found = effective(pod.signature, view, settings).signature
    return pod if found is None else msgspec.structs.replace(pod, signature=found)


def effective(signature: PodSignature, view: IndexReaders, settings: Settings) -> Effective:
    """What the policies make of a signature; kept by the table of policies until one of them changes."""
    labels = view.namespace_labels(signature.namespace)
    known = view.policies.effective.get(signature)
    if known is None or known.namespace_labels is not labels:
        known = view.policies.effective[signature] = _made(signature, labels, view, settings)
    return known


def _made(signature: PodSignature, labels: Labels | None, view: IndexReaders, settings: Settings) -> Effective:
    if (
        signature.namespace in settings.policies.exempt_namespaces
        or signature.labels.get(EXEMPT_LABEL) == "true"
        or signature.excess is not None
    ):
        return Effective(labels)
    subject = Subject(
        signature.namespace,
        signature.labels,
        labels,
        signature.owner_kind,
        signature.service_account,
        signature.priority_class,
    )
    policies = [each for each in view.policies.select(subject, Moment.SCHEDULING) if _concerns(each, signature)]
    if not policies:
        return Effective(labels)
    run = _Enforcement(signature, Bounds(settings.limits, settings.policies.max_terms))
    for each in policies:
        run.apply(each)
    run.finish()
    made = run.enforced()
    found = None if made is None else replace(signature, enforced=made)
    acting = {each.key for each in policies if each.acts(Moment.ADMISSION)}
    missed = () if made is None else tuple(key for key in made.policies if key in acting)
    return Effective(labels, found, missed, tuple(run.audited))


def _concerns(policy: Policy, signature: PodSignature) -> bool:
    """Whether the policy is for such pods: one for templates is not for a pod that was made without one."""
    return policy.targets is not Targets.TEMPLATES or bool(signature.owner_kind)


def _for_nodes(policy: Policy) -> Policy:
    """The policy with only the directives that hold for the nodes of a pod that exists."""
    directives = replace(
        policy.directives, scheduler_names=(), priority_class="", scheduling_gates=(), lists={}, soft_min_domains=()
    )
    return replace(policy, directives=directives)


class _Enforcement:
    """The injection of policies into a signature, as far as decisions about nodes read it."""

    def __init__(self, signature: PodSignature, bounds: Bounds) -> None:
        self.audited: list[PolicyKey] = []
        self._signature = signature
        self._injection = Injection(_node_json(signature.node_affinity), bounds, Budget(), is_pod=True)
        self._applied: list[Changes] = []
        self._preferred: list[PreferredNodeTerm] = []
        self._held: dict[PolicyKey, None] = {}
        self._refused_by: PolicyKey | None = None

    def apply(self, policy: Policy) -> None:
        """Applies a policy, or tries it where it only audits. After a conflict that rejects the pod nothing is applied."""
        if self._refused_by is not None:
            return
        lacking = self._lacking(policy)
        if policy.mode is Mode.AUDIT:
            changes = self._injection.preview(_for_nodes(policy))
            would_reject = any(each.resolution is ConflictPolicy.REJECT for each in changes.conflicts)
            if lacking or would_reject or not changes.is_empty:
                self.audited.append(policy.key)
            return
        self._inject(_for_nodes(policy), policy.failure_policy)
        if lacking:
            self._preferred += lacking
            self._held[policy.key] = None

    def finish(self) -> None:
        """Applies once more what gave way to a part of the pod that another policy overrode, as admission does."""
        if not any(_has(each, ConflictPolicy.OVERRIDE) for each in self._applied):
            return
        for each in list(self._applied):
            if any(conflict.resolution is not ConflictPolicy.OVERRIDE for conflict in each.conflicts):
                self._inject(each.policy, each.policy.failure_policy)

    def enforced(self) -> Enforced | None:
        """What the pod is held to; None where it lacks nothing."""
        if self._refused_by is not None:
            return Enforced((self._refused_by,), is_refused=True)
        if not self._held:
            return None
        spec = self._injection.spec
        return Enforced(tuple(self._held), _node_affinity(spec), spec.get("nodeName") or "", tuple(self._preferred))

    def _lacking(self, policy: Policy) -> list[PreferredNodeTerm]:
        present = {*self._signature.preferred_nodes, *self._preferred}
        return [each for each in policy.directives.preferred_nodes if each not in present]

    def _inject(self, policy: Policy, failure_policy: FailurePolicy) -> None:
        try:
            changes = self._injection.apply(policy)
        except RejectedError:
            self._refused_by = policy.key
            return
        except Exception:  # noqa: BLE001 (an error in one policy must not stop the scheduler)
            if failure_policy is FailurePolicy.FAIL:
                self._refused_by = policy.key
            return
        self._applied.append(changes)
        if not changes.is_empty:
            self._held[policy.key] = None


def _has(changes: Changes, resolution: ConflictPolicy) -> bool:
    return any(each.resolution is resolution for each in changes.conflicts)


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


MISSED, AUDITED = "missed", "audited"


@dataclass(slots=True)
class PolicyCounts:
    """Pods that lacked what a policy directs when they were to be scheduled, by kind of policy and result.

    ``missed``: the policy should have been injected at admission. ``audited``: the policy is in mode Audit. Each pod counts
    once, however often it is tried, unless 10,000 others came between.
    """

    counts: Counter[tuple[str, str]]
    _seen: BoundedCache[str, bool]

    @classmethod
    def new(cls) -> PolicyCounts:
        """Without any pod."""
        every = [(kind, result) for kind in (NAMESPACED_KIND, CLUSTER_KIND) for result in (MISSED, AUDITED)]
        return cls(Counter(dict.fromkeys(every, 0)), BoundedCache(_SEEN))

    def record(self, pod: Pod, view: IndexReaders) -> None:
        """Counts a pod as the watch shows it, after its effective pod was made. O(1) unless it lacks something."""
        found = view.policies.effective.get(pod.signature)
        if found is None or not (found.missed or found.audited) or self._seen.get(pod.uid) is not None:
            return
        self._seen.put(pod.uid, True, 1)
        self.counts.update((key.kind, MISSED) for key in found.missed)
        self.counts.update((key.kind, AUDITED) for key in found.audited)

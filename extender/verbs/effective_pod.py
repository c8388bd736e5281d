"""The effective pod: the pod that the watch shows, with what the policies that select it direct and it lacks.

Policies with ``when: Scheduling`` hold a pod that was not injected, as it was created before the policy or while the
webhook was down. What a pod is held to is found by injecting it, with the code that admission uses, so conflicts have the
same outcome. An injected pod lacks nothing, as applying a policy again changes nothing.

Its constraints are compiled and applied like those of any pod. Tolerations, gates, scheduler names and priority classes are
left out: nothing can add them to a pod that exists. Soft constraints with minDomains, which no pod can carry, are part of
every effective pod. Once the pod is bound, only the constraints that it carries count against other pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from weakref import ref

import msgspec
import orjson

from extender.index.view import IndexReaders
from extender.model.bounded import BoundedCache
from extender.model.labels import Labels
from extender.model.node_affinity import ANY_NODE, NodeAffinity, NodeRequirement, node_selector
from extender.model.objects import Effective, Pod, PodSignature
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
from extender.settings import Rules, Settings
from extender.verbs.admit.budget import Budget
from extender.verbs.admit.changes import Bounds, Changes, RejectedError
from extender.verbs.admit.injection import Injection
from extender.verbs.admit.spec_edits import put
from extender.verbs.placing_lists import PLACING_LISTS, PlacingLists, with_soft_min_domains
from extender.wire.constraints import parse_affinity
from extender.wire.node_terms import NODE_TERMS, value_at

_TERMS_PATH: Final = (*NODE_TERMS.split("."), "nodeSelectorTerms")
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


def known_effective_pod(pod: Pod, view: IndexReaders) -> Pod:
    """The effective pod where it was made since the last change of a policy, else the pod itself. O(1)."""
    found = view.policies.effective.get(pod.signature)
    if found is None or found.signature is None:
        return pod
    return msgspec.structs.replace(pod, signature=found.signature)


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
    run = _Enforcement(signature, policies, Bounds(settings.limits, settings.policies.max_terms))
    run.run()
    found = run.effective(settings.rules)
    acting = {each.key for each in policies if each.acts(Moment.ADMISSION)}
    held = () if found is None or found.enforced is None else found.enforced.policies
    missed = tuple(key for key in held if key in acting)
    return Effective(labels, found, missed, tuple(run.audited))


def _concerns(policy: Policy, signature: PodSignature) -> bool:
    """Whether the policy is for such pods: one for templates is not for a pod that was made without one."""
    return policy.targets is not Targets.TEMPLATES or bool(signature.owner_kind)


def _for_placement(policy: Policy) -> Policy:
    """The policy with only the directives that can hold for a pod that exists."""
    lists = {path: items for path, items in policy.directives.lists.items() if path in PLACING_LISTS}
    directives = replace(policy.directives, scheduler_names=(), priority_class="", scheduling_gates=(), lists=lists)
    return replace(policy, directives=directives)


class _Enforcement:
    """The injection of policies into a signature, as far as decisions about nodes read it."""

    def __init__(self, signature: PodSignature, policies: Sequence[Policy], bounds: Bounds) -> None:
        self.audited: list[PolicyKey] = []
        self._signature = signature
        self._policies = [_for_placement(each) for each in policies]
        self._lists = PlacingLists(signature, self._policies)
        spec = self._lists.written_to(_node_json(signature.node_affinity))
        self._injection = Injection(spec, bounds, Budget(), is_pod=True)
        self._applied: list[Changes] = []
        self._held: dict[PolicyKey, None] = {}
        self._refused_by: PolicyKey | None = None

    def run(self) -> None:
        """Applies the policies, up to a conflict that rejects the pod.

        What gave way to a part of the pod that another policy overrode is applied once more, as admission does.
        """
        for each in self._policies:
            self._apply(each)
        if any(_has(each, ConflictPolicy.OVERRIDE) for each in self._applied):
            for done in list(self._applied):
                if any(conflict.resolution is not ConflictPolicy.OVERRIDE for conflict in done.conflicts):
                    self._apply(done.policy)

    def effective(self, rules: Rules) -> PodSignature | None:
        """The signature with all that was applied; None where the pod lacks nothing."""
        signature = self._signature
        if self._refused_by is not None:
            return replace(signature, enforced=Enforced((self._refused_by,), is_refused=True), shown=ref(signature))
        enforcing = [each for each in self._policies if each.mode is Mode.ENFORCE]
        spec = self._injection.spec
        affinity, spread, preferred = self._lists.read_from(spec, rules)
        wished = with_soft_min_domains(spread, enforcing, signature.labels)
        if not self._held and wished is spread:
            return None
        nodes = _node_affinity(spec)
        required = nodes if self._held else ANY_NODE  # a wish alone holds the pod to no node
        if node_name := spec.get("nodeName"):
            required = required.at(node_name)
        enforced = Enforced(tuple(self._held), required, preferred)
        # kube-scheduler applies what the pod carries itself, also where a policy would have overridden it at admission. So
        # such a pod must not be nominated to a node that its own requirements exclude.
        overridden = any(_has(each, ConflictPolicy.OVERRIDE) for each in self._applied)
        own = signature.node_affinity if overridden else nodes
        return replace(
            signature, affinity=affinity, spread=wished, node_affinity=own, enforced=enforced, shown=ref(signature)
        )

    def _apply(self, policy: Policy) -> None:
        if self._refused_by is not None:
            return
        try:
            if policy.mode is Mode.AUDIT:
                changes = self._injection.preview(policy)
                if not changes.is_empty or _has(changes, ConflictPolicy.REJECT):
                    self.audited.append(policy.key)
                return
            changes = self._injection.apply(policy)
        except RejectedError:
            self._refused_by = policy.key
            return
        except Exception:  # noqa: BLE001 (an error in one policy must not stop the scheduler)
            if policy.failure_policy is FailurePolicy.FAIL and policy.mode is Mode.ENFORCE:
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

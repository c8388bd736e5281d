"""The effective pod: the pod that the watch shows, plus each directive of its policies that the pod lacks.

A policy with ``when: Scheduling`` also holds pods that were not injected: pods that are older than the policy, or that were
created while the webhook was down. The code of admission applies the policy to the pod's signature. Facts:

1. A conflict ends as it does at admission. An injected pod lacks nothing, because applying a policy again changes nothing.
   Exception: two policies that override and contradict each other. Admission compares each with the pod's own value until one
   replaces it. Here the pod's own value is not considered any more, so the other policy may win. Writing such policies draws a
   warning.
2. The directives are applied to the fields of the pod's signature (`SignatureFields`), which are values of the model.
3. Tolerations, gates, scheduler names and priority classes are left out: nothing can add them to a pod that exists.
4. Soft constraints with minDomains are part of every effective pod, because the API server accepts them in no pod.
5. An invalid policy with failurePolicy Fail refuses the pods that it selects, as at admission. A policy whose selectors cannot be
   read refuses pods at admission only: here it would stop every pod that exists.
6. A pod on a node counts against other pods by its own terms and by the terms that policies add (`policy_terms`). The policies of
   today decide, also about pods that were bound before the policy was written.
7. An annotation of the pod records what policies injected. A value that an earlier version of a policy injected, or a policy that
   was deleted, is not the user's wish. Where such a value conflicts with a policy of today, the policies are applied to the pod
   without it: the version of today holds, whatever its `conflictPolicy`. The pod still carries the value, and kube-scheduler
   applies it. Example: version 1 of a policy injected zone a, version 2 directs zone b. No node is left, and the pod is pending
   until it is created again.
8. The record of a pod template is an annotation of the workload, not of the pod. So the pod's values from the template count as
   the pod's own.

The constraints of the effective pod are compiled and applied like the constraints of any pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final
from weakref import ref

import msgspec

from extender.index.view import ClusterView
from extender.model.bounded import BoundedCache
from extender.model.constraints.directed import DirectedConstraint
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import ANY_NODE, NodeAffinity
from extender.model.constraints.spread import NO_SPREAD, SpreadConstraints, SpreadDirective
from extender.model.constraints.terms import NO_AFFINITY, PodAffinity
from extender.model.objects import DAEMON_SET, Effective, Pod, PodSignature
from extender.model.policies import (
    CLUSTER_KIND,
    NAMESPACED_KIND,
    ConflictPolicy,
    Enforced,
    FailurePolicy,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Subject,
)
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.settings.rules import Rules
from extender.verbs.admit.injected import InjectionRecord, read_records
from extender.verbs.admit.injection import Injection, InjectionOutcome, gating
from extender.verbs.admit.pod_fields import Bounds
from extender.verbs.admit.signature_fields import SignatureFields
from extender.verbs.admit.spread_directives import MIN_DOMAINS, NOTHING_DIRECTED, directed
from extender.wire.policies.node_terms import SPREAD

_SEEN: Final = 10_000


def effective_pod(pod: Pod, view: ClusterView, settings: Settings) -> Pod:
    """The pod with the signature for decisions. It is the same object where no policy adds anything.

    O(1) for a signature that was seen since the last change of a policy, else O(policies that may select the pod).
    """
    if not settings.policies.enabled or view.policies.is_empty or pod.signature.enforced is not None:
        return pod
    signature = effective(pod.signature, view, settings).signature
    return pod if signature is None else msgspec.structs.replace(pod, signature=signature)


def effective(signature: PodSignature, view: ClusterView, settings: Settings) -> Effective:
    """The effective form of a signature. The table of policies keeps it until a policy changes."""
    labels = view.namespace_labels(signature.namespace)
    known = view.policies.made_of(signature)
    # Policies select by the labels of the namespace too. A change of these gives a new object, so identity is enough, and is cheap.
    if known is None or known.namespace_labels is not labels:
        known = _made(signature, labels, view, settings)
        view.policies.keep(signature, known)
    return known


def known_effective_pod(pod: Pod, view: ClusterView) -> Pod:
    """The effective pod where it was made since the last change of a policy, else the pod itself. O(1)."""
    made = view.policies.made_of(pod.signature)
    if made is None or made.signature is None:
        return pod
    return msgspec.structs.replace(pod, signature=made.signature)


def policy_terms(signature: PodSignature, view: ClusterView, settings: Settings) -> PodAffinity:
    """The terms about other pods that policies add to pods of a signature. Used for pods on a node: incoming pods count them.

    O(1) where no policy is about other pods, else O(policies that may select the pods).
    """
    if not view.policies.about_placed_pods or signature.enforced is not None or _is_exempt(signature, settings):
        return NO_AFFINITY
    if signature.excess is not None:
        return NO_AFFINITY
    subject = signature.subject(view.namespace_labels(signature.namespace))
    policies = _selecting(signature, subject, view)
    if not any(policy.holds_placed_pods for policy in policies):
        return NO_AFFINITY
    try:
        made, _ = _enforce(signature, policies, settings)
    except Exception:  # noqa: BLE001 (called while an event is applied, which must not fail because of a policy)
        return NO_AFFINITY
    return NO_AFFINITY if made is None else made.affinity.beyond(signature.affinity)


def enforced_directives(signature: PodSignature, view: ClusterView, settings: Settings) -> Iterator[SpreadDirective]:
    """The directives `spread` of the policies that enforce, in the order of the policies. O(policies that may select the pods)."""
    if _is_exempt(signature, settings):
        return
    subject = signature.subject(view.namespace_labels(signature.namespace))
    for policy in view.policies.select(subject, Moment.SCHEDULING):
        if policy.mode is Mode.ENFORCE:
            yield from policy.directives.spread


def _is_exempt(signature: PodSignature, settings: Settings) -> bool:
    return settings.policies.exempt.covers(signature.namespace, signature.labels)


def _made(signature: PodSignature, labels: Labels | None, view: ClusterView, settings: Settings) -> Effective:
    if _is_exempt(signature, settings) or (signature.excess is not None and settings.mode == "offload"):
        return Effective(labels)  # above a limit: it is rejected on every node
    # In this order, because a pod that must not miss a policy is refused before anything is applied:
    # 1. invalid policies; 2. policies that select by labels of a namespace that is not known yet; 3. the others.
    subject = signature.subject(labels)
    for invalid in view.policies.invalid_for(subject):
        if invalid.scope is not None and invalid.must_not_be_missed(Moment.SCHEDULING):
            return Effective(labels, _refused(signature, invalid.key, Reason.POLICY_FAILED))
    for policy in view.policies.undecided(subject, Moment.SCHEDULING):
        if policy.mode is Mode.ENFORCE and policy.failure_policy is FailurePolicy.FAIL:
            return Effective(labels, _refused(signature, policy.key, Reason.POLICY_FAILED))
    releasing = _releasing(subject, view) if settings.release.enabled else ()
    policies = _selecting(signature, subject, view)
    if not policies:
        return Effective(labels, gating=releasing)
    made, audited = _enforce(signature, policies, settings)
    acting = {policy.key for policy in policies if policy.acts(Moment.ADMISSION)}
    held = () if made is None or made.enforced is None else made.enforced.policies
    missed = tuple(key for key in held if key in acting)
    return Effective(labels, made, missed, audited, releasing)


def _selecting(signature: PodSignature, subject: Subject, view: ClusterView) -> list[Policy]:
    """The policies that hold pods of the signature, in order.

    Labels that are too large are not read: then every policy counts that may select a pod of the namespace.
    """
    if signature.excess is None or not signature.excess.hides_labels:
        return [
            policy for policy in view.policies.select(subject, Moment.SCHEDULING) if policy.is_for(signature.owner_kind)
        ]
    reaching = (
        policy for policy in view.policies if policy.acts(Moment.SCHEDULING) and policy.scope.may_select_any(subject)
    )
    return sorted(reaching, key=attrgetter("order"))


def _releasing(subject: Subject, view: ClusterView) -> tuple[PolicyKey, ...]:
    """The policy that releases pods of the signature.

    Unlike admission it does not know the creator of the pod, and not whether the pod has a schedulingGroup.
    """
    if subject.owner_kind == DAEMON_SET:
        return ()
    policies = gating(view.policies.select(subject, Moment.RELEASE))
    return tuple(policy.key for policy in policies if policy.mode is Mode.ENFORCE)


MISSED, AUDITED, ESCAPED = "missed", "audited", "escaped"


@dataclass(slots=True)
class PolicyCounts:
    """Counts pods that lack a directive of a policy when they are scheduled, by kind of policy and result.

    - ``missed``: admission should have injected the policy.
    - ``audited``: the policy is in mode Audit.
    - ``escaped``: the policy's gate should have held the pod until its pod group is released.

    Each pod counts once, however often it is tried, unless 10,000 other pods came between.
    """

    counts: Counter[tuple[str, str]]
    _seen: BoundedCache[str, bool]

    @classmethod
    def new(cls) -> PolicyCounts:
        """Without any pod."""
        every = [(kind, result) for kind in (NAMESPACED_KIND, CLUSTER_KIND) for result in (MISSED, AUDITED, ESCAPED)]
        return cls(Counter(dict.fromkeys(every, 0)), BoundedCache(_SEEN))

    def record(self, pod: Pod, view: ClusterView) -> tuple[PolicyKey, ...]:
        """Counts a pod of the watch. Call it after `effective_pod`. Returns the policies that the pod missed, the first time only.

        O(1), or O(policies) for a pod that lacks something.
        """
        made = view.policies.made_of(pod.signature)
        if made is None:
            return ()
        escaped = made.gating if pod.gating is None else ()  # a pod that was released knows it
        if not (made.missed or made.audited or escaped) or self._seen.get(pod.uid) is not None:
            return ()
        self._seen.put(pod.uid, True, 1)
        self.counts.update((key.kind, MISSED) for key in made.missed)
        self.counts.update((key.kind, AUDITED) for key in made.audited)
        self.counts.update((key.kind, ESCAPED) for key in escaped)
        return made.missed


_POD: Final = ""  # the pointer of a pod's own record


def _enforce(
    signature: PodSignature, policies: Sequence[Policy], settings: Settings
) -> tuple[PodSignature | None, tuple[PolicyKey, ...]]:
    """The effective signature, None where the pod lacks nothing; and the policies in mode Audit that would change it.

    O(elements of the pod and of the policies). The double where a pod with a record conflicts with a policy.
    """
    bounds = Bounds.of(settings)
    # 1. Apply the policies to the pod with all that it carries.
    first = _Enforcement(signature, policies, bounds)
    audited = tuple(first.audited)
    # 2. Apply them again to the pod without the injected values, where an old value may be in the way: it conflicts with a policy,
    #    or it stands where a policy has a soft constraint with minDomains.
    if (
        signature.injected
        and signature.excess is None
        and (first.conflicts or any(policy.directives.soft_min_domains for policy in policies))
    ):
        again = _without_injected(signature, policies, bounds)
        if again is not None:
            # 3. The pod is held by each policy that adds something, and by each policy whose conflict the injected values caused.
            held = dict.fromkeys((*first.held, *(key for key, _ in first.conflicts - again.conflicts)))
            # The first pass can know less than the second. A policy that refused ended it, so no policy after it was tried. Or a
            # policy has two conflicts about one field, one of them with an injected value: the set holds both as one.
            if first.refused_by is not None or not (held or _implies(signature.node_affinity, again.nodes)):
                held |= again.held
            return again.effective(settings.rules, held, keeps_nodes=True), audited
    return first.effective(settings.rules, first.held, keeps_nodes=False), audited


def _refused(signature: PodSignature, policy: PolicyKey, reason: Reason) -> PodSignature:
    """The signature of a pod that a policy refuses every node."""
    return replace(signature, enforced=Enforced((policy,), refused_for=reason), shown=ref(signature))


def _without_injected(signature: PodSignature, policies: Sequence[Policy], bounds: Bounds) -> _Enforcement | None:
    """The policies applied to the pod without the values that its record names. None where the record cannot be used."""
    recorded = read_records(signature.injected).get(_POD)
    if recorded is None:
        return None
    record, most = recorded.without_replaced(), bounds.limits
    if record.terms_count > most.node_selector_terms or len(record.items(SPREAD)) > most.topology_spread_constraints:
        return None
    try:
        return _Enforcement(signature, policies, bounds, record)
    except Exception:  # noqa: BLE001 (the annotation is the tenant's to write; it must not stop the scheduler)
        return None


class _Enforcement:
    """Policies applied to one signature: only the directives that decide about nodes.

    ``injected``: the record of earlier injections, whose values do not count as the pod's own (`SignatureFields`).
    """

    def __init__(
        self,
        signature: PodSignature,
        policies: Sequence[Policy],
        bounds: Bounds,
        injected: InjectionRecord | None = None,
    ) -> None:
        """Applies the policies, up to a conflict that rejects the pod. O(elements of the pod and of the policies)."""
        self._signature = signature
        outcome = self._outcome = InjectionOutcome()
        policies = outcome.within(bounds, policies)
        self._enforcing = [policy for policy in policies if policy.mode is Mode.ENFORCE]
        fields = self._fields = SignatureFields(signature, policies, bounds, injected)
        # `held`: the policies that added something, so the pod lacked it.
        changes = outcome.apply(Injection(fields, is_pod=True), policies, Moment.SCHEDULING)
        self.held = {change.policy.key: None for change in changes if not change.is_empty}
        self.audited = [
            change.policy.key for change in outcome.audited if not change.is_empty or change.has(ConflictPolicy.REJECT)
        ]
        # The directives `spread` of policies in mode Audit. `effective` applies the directives of policies that enforce.
        auditing = [policy for policy in policies if policy.mode is Mode.AUDIT]
        would = directed(signature.spread, auditing, signature, {}) if auditing else NOTHING_DIRECTED
        self.audited += [key for key in dict.fromkeys((*would.missed, *would.ruling)) if key not in self.audited]
        conflicts = [*(conflict for done in changes for conflict in done.conflicts), *filter(None, [outcome.conflict])]
        self.conflicts = {(conflict.policy, conflict.field) for conflict in conflicts}
        # A policy overrides the pod's own requirement of nodes. kube-scheduler applies that requirement nevertheless, because
        # the pod carries it. So `effective` keeps it: else the pod would be nominated to a node that kube-scheduler rejects.
        self._overrides_nodes = any(
            conflict.resolution is ConflictPolicy.OVERRIDE and not conflict.field.startswith(SPREAD)
            for done in changes
            for conflict in done.conflicts
        )

    @property
    def _min_domains(self) -> Mapping[str, int]:
        """The minDomains that admission gave to the pod, by topology key. Read only where a policy with `spread` enforces."""
        text = self._signature.injected
        if not text or not any(policy.directives.spread for policy in self._enforcing):
            return {}
        record = read_records(text).get(_POD)
        given = [item for policy in ([] if record is None else record.policies) for item in policy.spread.items()]
        return {key: fields[MIN_DOMAINS] for key, fields in given if isinstance(fields.get(MIN_DOMAINS), int)}

    @property
    def refused_by(self) -> PolicyKey | None:
        """The policy that refuses the pod."""
        return self._outcome.refused_by

    @property
    def nodes(self) -> NodeAffinity:
        """The node requirements of pod and policies together. O(requirements)."""
        return self._fields.nodes

    def effective(self, rules: Rules, held: Collection[PolicyKey], *, keeps_nodes: bool) -> PodSignature | None:
        """The effective signature; None where no policy changes it.

        - ``held``: the policies with a directive that the pod lacks.
        - ``keeps_nodes``: the pod's own node requirements stay in the signature, injected values included, because kube-scheduler
          applies them.
        """
        signature, outcome, fields = self._signature, self._outcome, self._fields
        if outcome.refused_by is not None:
            reason = Reason.POLICY_FAILED if outcome.conflict is None else Reason.POLICY_CONFLICT
            return _refused(signature, outcome.refused_by, reason)
        if signature.excess is not None:
            return self._about_nodes(held)
        spread = fields.spread(rules)
        wished = _with_soft_min_domains(spread, self._enforcing, signature.labels)
        wished, missed, ruling = directed(wished, self._enforcing, signature, self._min_domains)
        held = tuple(dict.fromkeys((*held, *missed)))
        if not held and wished is spread:
            return None
        nodes = fields.nodes
        required = nodes if held else ANY_NODE  # a wish alone holds the pod to no node
        if node_name := fields.scalars["nodeName"]:
            required = required.at(node_name)
        # A pod must not be nominated to a node that its own requirements exclude.
        own = signature.node_affinity if keeps_nodes or self._overrides_nodes else nodes
        return replace(
            signature,
            affinity=fields.affinity(rules),
            spread=wished,
            node_affinity=own,
            enforced=Enforced(held, required, fields.preferred_nodes(), about_domains=ruling),
            shown=ref(signature),
        )

    def _about_nodes(self, held: Collection[PolicyKey]) -> PodSignature | None:
        """The effective signature of a pod above a limit in augment mode: node requirements only.

        kube-scheduler decides the pod's own constraints.
        """
        if not held:
            return None
        signature, nodes, node_name = self._signature, self._fields.nodes, self._fields.scalars["nodeName"]
        return replace(
            signature,
            affinity=PodAffinity(cross_namespace=signature.affinity.cross_namespace),
            spread=NO_SPREAD,
            enforced=Enforced(tuple(held), nodes.at(node_name) if node_name else nodes),
            shown=ref(signature),
        )


def _with_soft_min_domains(spread: SpreadConstraints, policies: Iterable[Policy], labels: Labels) -> SpreadConstraints:
    """The constraints with the policies' soft constraints that have minDomains. The API server refuses these in a pod.

    `rules/topology_spread.py` says how they score. They reject no pod. Where the pod has a soft constraint with the same topology
    key, the pod's constraint stays unless the policy overrides.
    """
    soft, added = list(spread.soft), set[str]()
    for policy in policies:
        for item in policy.directives.soft_min_domains:
            if not isinstance(item.element, DirectedConstraint):
                continue
            wish = item.element.of(labels)
            same = [constraint for constraint in soft if constraint.topology_key == wish.topology_key]
            overrides = policy.conflict_policy is ConflictPolicy.OVERRIDE and wish.topology_key not in added
            if same and not overrides:
                continue
            soft = [*(constraint for constraint in soft if constraint not in same), wish]
            added.add(wish.topology_key)
    return replace(spread, soft=tuple(soft), own=True) if added else spread


def _implies(one: NodeAffinity, other: NodeAffinity) -> bool:
    """Whether every node that matches ``one`` matches ``other`` too: each term of ``one`` has all clauses of a term of ``other``."""
    if not set(other.node_selector) <= set(one.node_selector):
        return False
    if one.terms is None or other.terms is None:
        return other.terms is None
    theirs = [(set(term.expressions), set(term.fields)) for term in other.terms]
    return all(
        any(expressions <= set(term.expressions) and fields <= set(term.fields) for expressions, fields in theirs)
        for term in one.terms
    )

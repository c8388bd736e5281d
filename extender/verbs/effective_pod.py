"""The effective pod: the pod that the watch shows, with what the policies that select it direct and it lacks.

Policies with ``when: Scheduling`` hold a pod that was not injected, as it was created before the policy or while the
webhook was down. What it lacks is found by injecting it (`verbs/enforcement.py`). An invalid policy with failurePolicy Fail
refuses the pods that it selects, as at admission. One whose selectors cannot be read refuses pods at admission only: at
scheduling it would stop every pod that exists.

Its constraints are compiled and applied like those of any pod. Tolerations, gates, scheduler names and priority classes are
left out: nothing can add them to a pod that exists. Soft constraints with minDomains, which no pod can carry, are part of
every effective pod.

Once the pod is on a node, its own terms about other pods count against these, and those that policies add (`policy_terms`),
as they would if it had been injected. That is asked of the pod as it is now, so it holds for every pod that a policy of today
selects, also for those that were bound before the policy was written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import msgspec

from extender.index.view import ClusterView
from extender.model.bounded import BoundedCache
from extender.model.constraints.labels import Labels
from extender.model.constraints.terms import NO_AFFINITY, PodAffinity
from extender.model.objects import Effective, Pod, PodSignature
from extender.model.policies import (
    CLUSTER_KIND,
    EXEMPT_LABEL,
    NAMESPACED_KIND,
    Mode,
    Moment,
    Policy,
    PolicyKey,
    Subject,
    Targets,
)
from extender.model.rejections import Reason
from extender.settings.configuration import Settings
from extender.verbs.admit.injection import gating, why_no_gate
from extender.verbs.enforcement import enforce, refused

_SEEN: Final = 10_000


def effective_pod(pod: Pod, view: ClusterView, settings: Settings) -> Pod:
    """The pod with the signature that decisions are made by: the same pod where no policy holds it to anything.

    O(1) for a signature that was seen since the last change of a policy, else O(policies that may select the pod).
    """
    if not settings.policies.enabled or view.policies.is_empty or pod.signature.enforced is not None:
        return pod
    found = effective(pod.signature, view, settings).signature
    return pod if found is None else msgspec.structs.replace(pod, signature=found)


def effective(signature: PodSignature, view: ClusterView, settings: Settings) -> Effective:
    """What the policies make of a signature; kept by the table of policies until one of them changes."""
    labels = view.namespace_labels(signature.namespace)
    known = view.policies.effective.get(signature)
    if known is None or known.namespace_labels is not labels:
        known = _made(signature, labels, view, settings)
        view.policies.keep(signature, known)
    return known


def known_effective_pod(pod: Pod, view: ClusterView) -> Pod:
    """The effective pod where it was made since the last change of a policy, else the pod itself. O(1)."""
    found = view.policies.effective.get(pod.signature)
    if found is None or found.signature is None:
        return pod
    return msgspec.structs.replace(pod, signature=found.signature)


def policy_terms(signature: PodSignature, view: ClusterView, settings: Settings) -> PodAffinity:
    """The terms about other pods that policies add to pods of a signature: for pods on a node, against which others count.

    O(1) where no policy is about other pods, else O(policies that may select the pods).
    """
    if not view.policies.about_placed_pods or signature.enforced is not None or _is_exempt(signature, settings):
        return NO_AFFINITY
    subject = _subject(signature, view.namespace_labels(signature.namespace))
    policies = [each for each in view.policies.select(subject, Moment.SCHEDULING) if _concerns(each, signature)]
    if not any(each.holds_placed_pods for each in policies):
        return NO_AFFINITY
    try:
        found, _ = enforce(signature, policies, settings)
    except Exception:  # noqa: BLE001 (called while an event is applied, which must not fail because of a policy)
        return NO_AFFINITY
    return NO_AFFINITY if found is None else found.affinity.beyond(signature.affinity)


def _is_exempt(signature: PodSignature, settings: Settings) -> bool:
    return (
        signature.namespace in settings.policies.exempt_namespaces
        or signature.labels.get(EXEMPT_LABEL) == "true"
        or signature.excess is not None
    )


def _subject(signature: PodSignature, labels: Labels | None) -> Subject:
    return Subject(
        signature.namespace,
        signature.labels,
        labels,
        signature.owner_kind,
        signature.service_account,
        signature.priority_class,
    )


def _made(signature: PodSignature, labels: Labels | None, view: ClusterView, settings: Settings) -> Effective:
    if _is_exempt(signature, settings):
        return Effective(labels)
    subject = _subject(signature, labels)
    for invalid in view.policies.invalid_for(subject):
        if invalid.scope is not None and invalid.must_not_be_missed(Moment.SCHEDULING):
            return Effective(labels, refused(signature, invalid.key, Reason.POLICY_FAILED))
    releasing = _releasing(subject, view) if settings.release.enabled else ()
    policies = [each for each in view.policies.select(subject, Moment.SCHEDULING) if _concerns(each, signature)]
    if not policies:
        return Effective(labels, gating=releasing)
    found, audited = enforce(signature, policies, settings)
    acting = {each.key for each in policies if each.acts(Moment.ADMISSION)}
    held = () if found is None or found.enforced is None else found.enforced.policies
    missed = tuple(key for key in held if key in acting)
    return Effective(labels, found, missed, audited, releasing)


def _releasing(subject: Subject, view: ClusterView) -> tuple[PolicyKey, ...]:
    """The policy that releases such pods. A pod with a schedulingGroup needs none, but that field is not known here."""
    if why_no_gate(subject, {}):
        return ()
    return tuple(
        each.key for each in gating(view.policies.select(subject, Moment.RELEASE)) if each.mode is Mode.ENFORCE
    )


def _concerns(policy: Policy, signature: PodSignature) -> bool:
    """Whether the policy is for such pods: one for templates is not for a pod that was made without one."""
    return policy.targets is not Targets.TEMPLATES or bool(signature.owner_kind)


MISSED, AUDITED, ESCAPED = "missed", "audited", "escaped"


@dataclass(slots=True)
class PolicyCounts:
    """Pods that lacked what a policy directs when they were to be scheduled, by kind of policy and result.

    ``missed``: the policy should have been injected at admission. ``audited``: the policy is in mode Audit. ``escaped``: the
    policy's gate should have held the pod until its group is released. Each pod counts once, however often it is tried,
    unless 10,000 others came between.
    """

    counts: Counter[tuple[str, str]]
    _seen: BoundedCache[str, bool]

    @classmethod
    def new(cls) -> PolicyCounts:
        """Without any pod."""
        every = [(kind, result) for kind in (NAMESPACED_KIND, CLUSTER_KIND) for result in (MISSED, AUDITED, ESCAPED)]
        return cls(Counter(dict.fromkeys(every, 0)), BoundedCache(_SEEN))

    def record(self, pod: Pod, view: ClusterView) -> tuple[PolicyKey, ...]:
        """Counts a pod as the watch shows it, after its effective pod was made; returns what it missed where that is new.

        O(1) unless it lacks something.
        """
        found = view.policies.effective.get(pod.signature)
        if found is None:
            return ()
        escaped = found.gating if pod.gating is None else ()  # a pod that was released knows it
        if not (found.missed or found.audited or escaped) or self._seen.get(pod.uid) is not None:
            return ()
        self._seen.put(pod.uid, True, 1)
        self.counts.update((key.kind, MISSED) for key in found.missed)
        self.counts.update((key.kind, AUDITED) for key in found.audited)
        self.counts.update((key.kind, ESCAPED) for key in escaped)
        return found.missed

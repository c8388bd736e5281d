"""Which required constraints of running pods are broken."""

from __future__ import annotations

from extender.features.execution.directive import ExecutionMode, ExecutionSpec
from extender.index.view import ClusterView
from extender.model.objects import PodSignature
from extender.model.policies import JsonObject, Mode, Moment, Policy
from extender.settings.configuration import Settings


def watching_policy(signature: PodSignature, view: ClusterView, settings: Settings) -> Policy | None:
    """The policy that watches pods of a signature: the first that selects them. O(policies that may select the pods)."""
    if signature.excess is not None or settings.policies.exempt.covers(signature.namespace, signature.labels):
        return None
    subject = signature.subject(view.namespace_labels(signature.namespace))
    policies = view.policies.select(subject, Moment.EXECUTION)
    return next((policy for policy in policies if policy.is_for(signature.owner_kind)), None)


def is_evicting(policy: Policy, spec: ExecutionSpec) -> bool:
    """Whether the policy moves pods, beside showing what is broken."""
    return policy.mode is Mode.ENFORCE and spec.mode is ExecutionMode.EVICT


def watching_document(signature: PodSignature, view: ClusterView, settings: Settings) -> JsonObject | None:
    """What a policy will watch of pods of a signature while they run, as a document for scripts; None without a policy."""
    policy = watching_policy(signature, view, settings)
    if policy is None or policy.execution is None:
        return None
    mode = ExecutionMode.EVICT if is_evicting(policy, policy.execution) else ExecutionMode.REPORT
    return {"policy": str(policy.key), "mode": str(mode), "constraints": sorted(map(str, policy.execution.constraints))}

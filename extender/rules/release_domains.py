"""Domains of a release: holds a pod without its gate to the domains of the policy that selects it, and to what their quotas have left.

A tenant may remove the gate from its own pods, and a pod may have been created before the policy. What the leader has released is
narrowed to its domain by a node selector, and recorded (`index/charges.py`); such a pod is left alone. Any other pod that a policy
with domains or quotas selects may go to nodes of a domain that the policy lists, if it lists any, as far as the quota goes
beside the pods that are recorded and those that passed here and are not bound yet. No eviction helps: its node is
unresolvable. It decides in both modes, and costs a request nothing while no policy lists or limits domains.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.objects.changes import Subscribable
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.policies import Policy
from extender.model.rejections import Reason, Rejection
from extender.model.release import ReleaseRecord, ReleaseSpec
from extender.model.resources import Resources, add
from extender.rules.frames import Frame
from extender.rules.rule import SUCCESS, PreparedFilter, Rule, RuleStatus, VerdictOnPod

_NAME: Final = "ReleaseDomains"
_NOTHING: Final[Resources] = {}


def _passed(pod: Pod, policy: Policy, release: ReleaseSpec, view: ClusterView) -> dict[str, dict[str, int]]:
    """By domain, what other pods of a policy take that passed here and are not bound yet, on whichever of their nodes.

    O(assumed pods × their nodes).
    """
    found: dict[str, dict[str, int]] = {}
    key = release.topology[0]
    for other, nodes in view.assumed_pods():
        if other.uid == pod.uid or view.release.holding(other) is not policy:
            continue
        numbers = [view.known[name] for name in nodes if name in view.known]
        values = {
            node.labels[key] for number in numbers if (node := view.node(number)) is not None and key in node.labels
        }
        for name in release.names_of(frozenset(values)):
            add(found.setdefault(name, {}), release.needs_of(other.requests))
    return found


@dataclass(frozen=True, slots=True)
class HeldToDomains(PreparedFilter):
    """The nodes in domains that have enough left. ``passed``: what of each is taken by pods that are not bound yet."""

    pod: Pod
    policy: Policy
    release: ReleaseSpec
    passed: Mapping[str, Resources]
    frame: Frame
    view: ClusterView
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None
    _by_value: dict[str | None, Rejection | None] = field(default_factory=dict)

    def verdict(self, position: int) -> Rejection | None:
        """Names the policy, and the resource of which the quota has too little left. O(resources) for each domain."""
        node = self.frame.node(position, self.view)
        value = None if node is None else node.labels.get(self.release.topology[0])
        if value not in self._by_value:
            self._by_value[value] = self._rejection(value)
        return self._by_value[value]

    def _rejection(self, value: str | None) -> Rejection | None:
        key, policy, release = self.release.topology[0], str(self.policy.key), self.release
        names = () if value is None else release.names_of(frozenset((value,)))
        if not names:
            return Rejection(_NAME, Reason.RELEASE_DOMAIN, topology_key=key, domain=value, blamed=(policy,))
        (name,) = names
        used = dict(self.view.release.charges.of(policy, name))
        add(used, self.passed.get(name, _NOTHING))
        needs = release.needs_of(self.pod.requests)
        for resource, most in release.quota_of(name).items():
            more = needs.get(resource, 0)
            if more and used.get(resource, 0) + more > most:
                count, limit = used.get(resource, 0), most - more
                blamed = (resource, policy)
                return Rejection(_NAME, Reason.RELEASE_QUOTA, "", key, value, count=count, limit=limit, blamed=blamed)
        return None


@dataclass(frozen=True, slots=True)
class HeldToRecord(PreparedFilter):
    """The nodes of the domain that is recorded for a pod which was not narrowed to it: its gate was removed first."""

    record: ReleaseRecord
    frame: Frame
    view: ClusterView
    status: RuleStatus = SUCCESS
    rejects_all: Rejection | None = None

    def verdict(self, position: int) -> Rejection | None:
        """Names the policy. O(1)."""
        level, node = self.record.level, self.frame.node(position, self.view)
        if level is None or (node is not None and node.labels.get(level.key) in level.admitted):
            return None
        value, blamed = None if node is None else node.labels.get(level.key), (self.record.group.policy,)
        return Rejection(_NAME, Reason.RELEASE_DOMAIN, topology_key=level.key, domain=value, blamed=blamed)


def _is_narrowed(pod: Pod, record: ReleaseRecord) -> bool:
    """Whether the pod itself can be in no other domain than its record says. O(terms)."""
    if record.level is None:
        return True
    values = pod.signature.node_affinity.values_of(record.level.key)
    return values is not None and values <= record.level.admitted


class ReleaseDomains(Rule):
    """The rule."""

    name = _NAME

    def is_active(self, compiled: CompiledConstraints, view: ClusterView) -> bool:
        """For pods that a policy selects which lists or limits domains. O(1)."""
        return view.release.domain_policies > 0 and view.release.may_hold(compiled.signature)

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """Lets a pod pass that is released as its policy says, or that no such policy selects. O(assumed pods) for another."""
        record = view.release.record_of(pod)
        if record is not None and not _is_narrowed(pod, record):
            return HeldToRecord(record, frame, view)
        policy = view.release.holding(pod)
        if policy is None or policy.release is None:
            return VerdictOnPod(None)
        return HeldToDomains(pod, policy, policy.release, _passed(pod, policy, policy.release, view), frame, view)

    def pod_key(self, pod: Pod, view: ClusterView) -> Hashable:
        """The pod's record, and what is used of the domains that it is held to; None for pods that no such policy selects."""
        if not (view.release.domain_policies and view.release.may_hold(pod.signature)):
            return None
        record, policy = view.release.record_of(pod), view.release.holding(pod)
        if policy is None or policy.release is None:
            return record
        passed = _passed(pod, policy, policy.release, view)
        names = view.release.charges.domains_of(str(policy.key))
        used = {name: tuple(sorted(view.release.charges.of(str(policy.key), name).items())) for name in names}
        return (
            str(policy.key),
            tuple(sorted(policy.release.needs_of(pod.requests).items())),
            tuple(sorted(used.items())),
            tuple(sorted((name, tuple(sorted(amounts.items()))) for name, amounts in passed.items())),
        )

    def version(self, _compiled: CompiledConstraints, view: ClusterView) -> int:
        """Of the policies, and of the namespaces whose labels select them; 0 while no policy lists or limits domains."""
        return view.policies.version + view.namespaces_version if view.release.domain_policies else 0

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Quotas of which less is used."""
        return (view.release.freed,)

"""Domains of a release: limits a pod without our gate to its policy's domains and quotas.

A tenant may remove the gate of its own pods, and a pod may have been created before the policy. The cases are:

1. A pod that the leader has released is narrowed to its domain by a node selector, and recorded (`index/charges.py`).
   The rule lets it pass.
2. Any other pod that a policy with domains or quotas selects may go to the listed domains, or to any domain if none is
   listed. Its quota must have enough left beside recorded pods, and beside pods that passed here and are not bound yet.

No eviction helps, so the node is unresolvable. The rule decides in both modes. It costs a request nothing while no
policy lists or limits domains.
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
    """By domain, the use by other pods of a policy that passed here and are not bound yet, on any of their nodes.

    O(assumed pods × their nodes).
    """
    passed: dict[str, dict[str, int]] = {}
    key = release.topology[0]
    for assumed, nodes in view.assumed_pods():
        if assumed.uid == pod.uid or view.release.holding(assumed) is not policy:
            continue
        numbers = [view.known[name] for name in nodes if name in view.known]
        values = {
            node.labels[key] for number in numbers if (node := view.node(number)) is not None and key in node.labels
        }
        # On several nodes the pod may use each of their domains, so it counts in all.
        for name in release.names_of(frozenset(values)):
            add(passed.setdefault(name, {}), release.needs_of(assumed.requests))
    return passed


@dataclass(frozen=True, slots=True)
class HeldToDomains(PreparedFilter):
    """The nodes in domains with enough left. ``passed``: by domain, what pods that are not bound yet take."""

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
        """Names the policy, and the resource whose quota has too little left. O(resources) for each domain."""
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
        # A node has one value of the key, so one domain.
        (name,) = names
        used = dict(self.view.release.charges.of(policy, name))
        add(used, self.passed.get(name, _NOTHING))
        needs = release.needs_of(self.pod.requests)
        for resource, most in release.quota_of(name).items():
            more = needs.get(resource, 0)
            # `more and`: a pod that requests no GPU is not rejected because the GPU quota is used up.
            if more and used.get(resource, 0) + more > most:
                count, limit = used.get(resource, 0), most - more
                blamed = (resource, policy)
                return Rejection(_NAME, Reason.RELEASE_QUOTA, "", key, value, count=count, limit=limit, blamed=blamed)
        return None


@dataclass(frozen=True, slots=True)
class HeldToRecord(PreparedFilter):
    """The nodes of a pod's recorded domain, if the pod is not narrowed to it because its gate was removed too early."""

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
    """Whether the pod's own requirements allow only the recorded domain. O(terms)."""
    if record.level is None:
        return True
    values = pod.signature.node_affinity.values_of(record.level.key)
    # None: the pod may go anywhere. A wider set than recorded is not narrowed either.
    return values is not None and values <= record.level.admitted


class ReleaseDomains(Rule):
    """The rule."""

    name = _NAME

    def is_active(self, compiled: CompiledConstraints, view: ClusterView) -> bool:
        """Active for pods selected by a policy that lists or limits domains. O(1)."""
        return view.release.domain_policies > 0 and view.release.may_hold(compiled.signature)

    def prepare_filter(
        self, pod: Pod, _compiled: CompiledConstraints, view: ClusterView, frame: Frame
    ) -> PreparedFilter:
        """Lets a pod pass that no such policy selects, or that is released as its policy says.

        Otherwise O(assumed pods).
        """
        record = view.release.record_of(pod)
        # Recorded, but its gate was removed before it was narrowed.
        if record is not None and not _is_narrowed(pod, record):
            return HeldToRecord(record, frame, view)
        # Released as its policy says, or selected by no such policy: passes. Otherwise the domains and quotas apply.
        policy = view.release.holding(pod)
        if policy is None or policy.release is None:
            return VerdictOnPod(None)
        return HeldToDomains(pod, policy, policy.release, _passed(pod, policy, policy.release, view), frame, view)

    def pod_key(self, pod: Pod, view: ClusterView) -> Hashable:
        """The pod's record, and the use of the domains that it may go to; None if no such policy selects the pod."""
        if not (view.release.domain_policies and view.release.may_hold(pod.signature)):
            return None
        record, policy = view.release.record_of(pod), view.release.holding(pod)
        if policy is None or policy.release is None:
            return record
        # Everything that the verdict reads beside the node: the amounts that are used, needed, and passed here before.
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
        """The version of policies and namespaces; 0 while no policy lists or limits domains."""
        return view.policies.version + view.namespaces_version if view.release.domain_policies else 0

    def unwatched_changes(self, view: ClusterView) -> tuple[Subscribable, ...]:
        """Changes after which less of a quota is used."""
        return (view.release.freed,)

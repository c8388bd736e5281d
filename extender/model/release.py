"""The release of gated pods: what a policy directs, which pods form a group, and the decision for a group.

A gated pod waits in the API server until its last scheduling gate is removed (KEP-3521). Until then it may be narrowed
to nodes (KEP-3838). Pods of a group are released together, into one domain with room for all of them. Immutable values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from extender.model.resources import PODS

RELEASE_GATE: Final = "placement.extender.dev/group"
RELEASED_ANNOTATION: Final = "placement.extender.dev/released"
MOST_LEVELS: Final = 4
MOST_GATES: Final = 8
MOST_NUMBERS: Final = 16
MOST_DOMAINS: Final = 64
MOST_VALUES: Final = 64  # of a domain
MOST_TOLERATIONS: Final = 16  # of a domain
TAINTS_OF_KUBERNETES: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
"""Prefixes of taint keys for which no domain may bring a toleration.

Otherwise its pods would run on nodes that fail, or on nodes of the control plane. `deploy/base/admission.yaml` enforces
the same for the extender's account.
"""
MOST_RESOURCES: Final = 16  # of a quota
MOST_PODS_OF_QUOTA: Final = 1_000_000
ANYWHERE: Final = "*"
"""In place of the name of a domain: the pod is not narrowed to a domain, so it counts in each."""

_NAMED: Final = 3  # values that the text of a domain names

_OF_ITS_OWN: Final = "pod/"  # neither a label's value nor a UID contains a slash


class Strategy(StrEnum):
    """Which domain with room a group gets: the tightest, the one with most or least free, or the first listed."""

    BEST_FIT = "BestFit"
    MOST_FREE = "MostFree"
    LEAST_FREE = "LeastFree"
    IN_ORDER = "InOrder"


class NoRoom(StrEnum):
    """What is done for a complete group that no domain has room for. `LAST_ACTIONS` are done when its time is over.

    - it is released into a domain that may grow, where its pods wait for nodes;
    - pods of lower priority are preempted for it;
    - it is released into several domains;
    - it is released into the domain of the first key that holds most of it, without room for all of its pods;
    - it is released without a domain;
    - it waits.
    """

    GROWING_DOMAIN = "GrowingDomain"
    PREEMPT = "Preempt"
    SEVERAL_DOMAINS = "SeveralDomains"
    COARSER_DOMAIN = "CoarserDomain"
    ANYWHERE = "Anywhere"
    WAIT = "Wait"


LAST_ACTIONS: Final = frozenset({NoRoom.COARSER_DOMAIN, NoRoom.ANYWHERE, NoRoom.WAIT})
LAST_AFTER: Final = 600.0  # seconds
MOST_ACTIONS: Final = 3  # growing and several domains exclude each other, and there is one last action


class NoRoomAction(NamedTuple):
    """An action, and after how many seconds of waiting it is done."""

    action: NoRoom
    after: float = 0.0


def default_after(action: NoRoom) -> float:
    """After how many seconds an action is done whose policy says nothing."""
    return LAST_AFTER if action in LAST_ACTIONS else 0.0


class LaterPods(StrEnum):
    """What is done with pods that come after the decision for their group.

    ``Join``: pods beyond the size join the domain too; ``Replace``: they wait until a pod of the group ends. ``OrMove``: if the
    domain has no room and no released pod exists, the group gets another domain.
    """

    JOIN = "Join"
    JOIN_OR_MOVE = "JoinOrMove"
    REPLACE = "Replace"
    REPLACE_OR_MOVE = "ReplaceOrMove"


class GroupPhase(StrEnum):
    """The state of a group: each state leads to the next, or to one of the last two.

    From these two a group can return.
    """

    COLLECTING = "Collecting"
    DECIDING = "Deciding"
    DECIDED = "Decided"
    RELEASING = "Releasing"
    BOUND = "Bound"
    DEGRADED = "Degraded"
    TIMED_OUT = "TimedOut"


@dataclass(frozen=True, slots=True)
class GroupSize:
    """How many pods a group has: ``count``, unless a label or an annotation of its pods has the number."""

    count: int = 1
    label: str = ""
    annotation: str = ""


class BroughtToleration(NamedTuple):
    """A toleration that pods get with their domain; fields as in a pod. ``seconds``: its ``tolerationSeconds``."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain that a policy lists: the nodes with one of these ``values`` of the first topology key."""

    name: str
    values: tuple[str, ...]
    # The values that its pods prefer.
    preferred: tuple[str, ...] = ()
    # By resource and `PODS`, how much pods of the policy may have there.
    quota: tuple[tuple[str, int], ...] = ()
    # Nodes may be added for pods without room.
    may_grow: bool = False
    # What pods get when they are released there.
    tolerations: tuple[BroughtToleration, ...] = ()


_WAIT: Final = NoRoomAction(NoRoom.WAIT, LAST_AFTER)


@dataclass(frozen=True, slots=True)
class ReleaseSpec:
    """The block ``release`` of a policy."""

    # Label keys of nodes, coarse to fine.
    topology: tuple[str, ...]
    gate: str = RELEASE_GATE
    # The label whose value names a pod's group. Empty: the pods of one controller are a group.
    group_label: str = ""
    size: GroupSize = GroupSize()
    strategy: Strategy = Strategy.BEST_FIT
    exclusive: bool = False
    # What is done for a group without room, in order.
    no_room: tuple[NoRoomAction, ...] = ()
    later_pods: LaterPods = LaterPods.JOIN
    # Where groups may go, in the order of `Strategy.IN_ORDER`. Empty: each value of the first key is a domain.
    domains: tuple[Domain, ...] = ()
    # How many pods of the policy each domain may have; 0 is any number.
    max_per_domain: int = 0
    # The resources that quotas limit, and `PODS`.
    limited: frozenset[str] = field(init=False, repr=False, compare=False)
    # What is done when the time of a group is over, and when that is.
    last: NoRoom = field(init=False, repr=False, compare=False)
    last_after: float = field(init=False, repr=False, compare=False)
    # Whether a domain limits what pods of the policy may have there, and whether the pods are counted by domain.
    has_quotas: bool = field(init=False, repr=False, compare=False)
    counts_domains: bool = field(init=False, repr=False, compare=False)
    _name_of: Mapping[str, str] = field(init=False, repr=False, compare=False)
    _by_name: Mapping[str, Domain] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Indexes the domains by name and by value, and collects the resources that a quota names. O(values)."""
        names = [name for domain in self.domains for name, _ in domain.quota]
        object.__setattr__(self, "limited", frozenset([*names, *((PODS,) if self.max_per_domain else ())]))
        last = next((step for step in self.no_room if step.action in LAST_ACTIONS), _WAIT)
        object.__setattr__(self, "last", last.action)
        object.__setattr__(self, "last_after", last.after)
        object.__setattr__(self, "has_quotas", bool(self.limited))
        object.__setattr__(self, "counts_domains", bool(self.domains or self.limited))
        object.__setattr__(self, "_by_name", {domain.name: domain for domain in self.domains})
        object.__setattr__(self, "_name_of", {value: domain.name for domain in self.domains for value in domain.values})

    def does(self, action: NoRoom) -> bool:
        """Whether the policy has an action for groups without room. O(actions)."""
        return any(step.action is action for step in self.no_room)

    def at(self, waited: float) -> ReleaseSpec:
        """The policy for a group that has waited so many seconds: without the actions that come later. The last action stays. O(actions)."""
        due = tuple(step for step in self.no_room if step.after <= waited or step.action in LAST_ACTIONS)
        return self if len(due) == len(self.no_room) else replace(self, no_room=due)

    @property
    def times(self) -> tuple[float, ...]:
        """After which seconds of waiting something else is done. O(actions)."""
        return (*(step.after for step in self.no_room), self.last_after)

    @property
    def joins(self) -> bool:
        """Whether pods beyond the size join the domain of their group."""
        return self.later_pods in {LaterPods.JOIN, LaterPods.JOIN_OR_MOVE}

    @property
    def moves(self) -> bool:
        """Whether a group whose domain has no room may get another domain, if no released pod of it exists."""
        return self.later_pods in {LaterPods.JOIN_OR_MOVE, LaterPods.REPLACE_OR_MOVE}

    def names_of(self, values: frozenset[str] | None) -> tuple[str, ...]:
        """The domains of nodes with one of these values of the first key; `ANYWHERE` alone for None. O(values)."""
        if values is None:
            return (ANYWHERE,)
        # Without a list of domains each value is a domain by its own name.
        if not self.domains:
            return tuple(sorted(values))
        # A node with a value that no domain lists is in no domain.
        return tuple(sorted({self._name_of[value] for value in values if value in self._name_of}))

    def quota_of(self, name: str) -> dict[str, int]:
        """The limits of a domain for pods of the policy, by resource: the smallest that apply. O(resources)."""
        domain = self._by_name.get(name)
        quotas = dict(domain.quota) if domain is not None else {}
        if self.max_per_domain:
            quotas[PODS] = min(quotas.get(PODS, self.max_per_domain), self.max_per_domain)
        return quotas

    def needs_of(self, requests: Mapping[str, int]) -> dict[str, int]:
        """What a pod with these requests uses up of quotas, in any domain. O(resources)."""
        # A pod always counts as one pod, whatever it requests.
        needs = {name: amount for name in self.limited if (amount := requests.get(name, 0)) and name != PODS}
        return {PODS: 1, **needs}

    def may_grow(self, levels: Sequence[Level]) -> bool:
        """Whether pods may be released into a domain without room for them, because nodes may be added there.

        O(domains).
        """
        is_asked = self.does(NoRoom.GROWING_DOMAIN) and bool(levels)
        return is_asked and any(domain.may_grow and self.level_of(domain) == levels[0] for domain in self.domains)

    def level_of(self, domain: Domain) -> Level:
        """The node labels that pods released into a listed domain are narrowed to."""
        several = domain.values if len(domain.values) > 1 else ()
        return Level(self.topology[0], domain.values[0], several, domain.preferred, domain.tolerations)


class DomainUse(NamedTuple):
    """How much pods of a policy have of a domain, and may have, by resource. ``values``: of the first topology key."""

    name: str
    values: tuple[str, ...]
    may_grow: bool
    quota: Mapping[str, int]
    used: Mapping[str, int]


class Gating(msgspec.Struct, frozen=True, gc=False):
    """What the release reads of a pod that is gated, or that we have released. Other pods have none."""

    # The names of its scheduling gates, at most `MOST_GATES`.
    gates: tuple[str, ...] = ()
    # The UID of its controller.
    owner: str = ""
    # Annotations whose value is a number; a policy may read the size of a group there.
    numbers: tuple[tuple[str, int], ...] = ()
    # The `GroupKey.value` of the group that it was released with.
    released: str = ""
    created: datetime | None = None


class GroupKey(NamedTuple):
    """Identifies a group. ``policy`` is ``str(PolicyKey)``, as in `GroupPlacement`.

    ``value``: the value of the group label, or the controller's UID, or for a pod with neither, `own_group`.
    """

    namespace: str
    policy: str
    value: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.value}"


def own_group(uid: str) -> str:
    """The `GroupKey.value` of a pod that forms a group by itself."""
    return _OF_ITS_OWN + uid


def is_own_group(key: GroupKey) -> bool:
    """Whether the group is a pod by itself."""
    return key.value.startswith(_OF_ITS_OWN)


class Level(NamedTuple):
    """A domain: a node label ``key`` with ``value``, or with any of ``values``, whose first is ``value``.

    ``preferred``: the values that its pods prefer. ``tolerations``: what its pods get.
    """

    key: str
    value: str
    values: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    tolerations: tuple[BroughtToleration, ...] = ()

    def __str__(self) -> str:
        """``key=value``, or ``key in (a, b)`` with the first few values."""
        return f"{self.key} in ({self.text})" if self.values else f"{self.key}={self.value}"

    @property
    def text(self) -> str:
        """The value, or the first few of the values."""
        more = len(self.values) - _NAMED
        return ", ".join((*(self.values or (self.value,))[:_NAMED], *([f"{more} more"] if more > 0 else ())))

    @property
    def admitted(self) -> frozenset[str]:
        """Each value that a node of the domain may have. O(values)."""
        return frozenset(self.values or (self.value,))

    def meets(self, other: Level) -> bool:
        """Whether a node can be in both domains. O(values)."""
        return self.key == other.key and not self.admitted.isdisjoint(other.admitted)


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """The decision for a group.

    It is written before the first pod of the group is changed, and never changes afterwards.

    ``levels``: what each pod is narrowed to, coarse to fine: the first topology key, then finer keys as long as one
    domain has room for the group. A level with one value is pinned in the nodeSelector, several values are a node
    affinity term. Without levels the pods are released together, unpinned. ``size``: how many pods the group has.
    """

    group: GroupKey
    gate: str
    size: int
    levels: tuple[Level, ...]
    decided: datetime


class ReleaseRecord(NamedTuple):
    """What the leader has written about a pod: the group that it is released with, and its domain (None: no domain)."""

    group: GroupKey
    level: Level | None


def toleration_body(toleration: BroughtToleration) -> dict[str, str | int]:
    """The toleration as the API writes it."""
    fields = {"key": toleration.key, "operator": toleration.operator, "value": toleration.value}
    body: dict[str, str | int] = {name: text for name, text in {**fields, "effect": toleration.effect}.items() if text}
    return body if toleration.seconds is None else {**body, "tolerationSeconds": toleration.seconds}


def brought_toleration(body: Mapping[str, Any]) -> BroughtToleration:
    """The toleration that a valid JSON body describes."""
    key, operator, value, effect = (str(body.get(name) or "") for name in ("key", "operator", "value", "effect"))
    return BroughtToleration(key, operator, value, effect, body.get("tolerationSeconds"))


class Slot(NamedTuple):
    """A node with room for a pod of a decided group; ``pod`` is its UID."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class RejectedDomain:
    """Why a domain of the first topology key does not get a group."""

    domain: Level
    needed: int
    # How many of the ``needed`` pods, which have no node yet, it has room for.
    holds: int = 0
    # How many of its nodes have room for no pod, by the text of the reason.
    nodes: tuple[tuple[str, int], ...] = ()
    # Another group has the domain exclusively; nothing is counted then.
    taken_by: str = ""
    # What would exceed its quota; nothing is counted then.
    excess: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Where the pods of a group that have no node yet may go, all together.

    1. Slots and levels: a slot for each pod, in the domain ``levels``.
    2. Slots without levels: the group does not need one domain (`NoRoom.SEVERAL_DOMAINS`).
    3. Slots and ``victims`` (UIDs of pods): the slots are free once the victims have left (`NoRoom.PREEMPT`).
    4. Levels without slots: the pods may be released there and wait for nodes (`NoRoom.GROWING_DOMAIN`).
    5. Neither: no domain has room.

    Without slots ``rejected`` gives the reason for each domain.
    """

    levels: tuple[Level, ...] = ()
    slots: tuple[Slot, ...] = ()
    rejected: tuple[RejectedDomain, ...] = ()
    victims: tuple[str, ...] = ()

"""What `explain` says of a pod: what its constraints count now, what rejects it on which nodes, and what would help.

Values only, in the form in which the API encodes them. The texts of reasons are those that the scheduler shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class NoAnswerCause(Enum):
    """Why there is no answer. ``FAILED``: a bug, which the log of the service tells more of."""

    UNKNOWN = "unknown"
    BUSY = "busy"
    TOO_EXPENSIVE = "too expensive"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class NotExplained(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a pod is not explained: it or the node is not known, or the budget is spent. The text says which."""

    def __init__(self, cause: NoAnswerCause, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The base: fields with their default are left out of the encoded form."""


def shown_domain(value: str) -> str:
    """A value of a topology key for people. A label may be empty."""
    return value or '""'


class DomainState(Value, frozen=True):
    """One topology domain: how many pods a constraint counts there, some of them, and whether its nodes pass.

    ``count`` includes pods whose node is undetermined, wherever that is worst; ``pods`` do not.
    """

    domain: str
    nodes: int
    count: int
    passes: bool
    pods: tuple[str, ...] = ()


class TermReach(Value, frozen=True):
    """The namespaces that a term reaches now. ``namespaces`` are the first of ``count``; all of them without a list.

    ``why``: what the term says of namespaces.
    """

    why: str
    count: int = 0
    namespaces: tuple[str, ...] = ()
    is_every: bool = False


class LeftOutDomain(Value, frozen=True):
    """A domain that policies leave out of a spread constraint: since when, and why."""

    domain: str
    why: str


class ConstraintState(Value, frozen=True):
    """What one constraint counts now. Domains that reject come first; ``more_domains`` are left out of ``domains``.

    ``pods`` is the selector of the pods that are counted, ``carrier`` one of the existing pods whose term this is.
    ``limit`` is the largest count with which a domain passes; without it the constraint misses a pod instead.
    Topology spread has ``max_skew``, ``min_domains``, the ``eligible`` domains and the ``minimum`` that skew is measured
    against. ``lacking``: nodes without the topology key, which pass or, where ``rejects_lacking``, do not. ``more_terms``: how
    many more terms of existing pods select the pod. ``left_out``: domains that policies leave out of the minimum.
    ``excludes_itself``: the spread constraint does not select the pod that has it, so placing the pod changes no count.
    """

    rule: str
    kind: str
    topology_key: str
    pods: str
    reach: TermReach
    carrier: str = ""
    limit: int | None = None
    max_skew: int = 0
    min_domains: int = 0
    eligible: int = 0
    minimum: int = 0
    lacking: int = 0
    rejects_lacking: bool = False
    is_first_pod: bool = False
    domains: tuple[DomainState, ...] = ()
    more_domains: int = 0
    more_terms: int = 0
    left_out: tuple[LeftOutDomain, ...] = ()
    excludes_itself: bool = False


class Obstacle(Value, frozen=True):
    """One reason of one rule against ``nodes`` nodes; ``examples`` are some of them, ``blamed`` what stands in the way."""

    rule: str
    reason: str
    text: str
    nodes: int = 1
    examples: tuple[str, ...] = ()
    blamed: tuple[str, ...] = ()
    topology_key: str = ""
    domain: str | None = None
    count: int = 0
    limit: int | None = None


class NodeState(Value, frozen=True):
    """One node: whether filter lets the pod pass there, whether the pod fits by itself, and every obstacle."""

    name: str
    passes: bool
    fits: bool
    obstacles: tuple[Obstacle, ...] = ()


class TriedChange(Value, frozen=True):
    """A change that was tried, after which the pod passes filter and fits on ``node``.

    ``kind`` says which of the other fields are set: addNode (``labels`` of the new node, otherwise like ``like``),
    uncordonNode (``node``), removeTaints (``taints``, each with value and effect), labelNode (``labels`` that are set, ``removedLabels``),
    movePod (``pods``, ``from``, ``to``), labelNamespace (``namespace``, and as labelNode), deletePods (``pods``; lower
    priority), addRoom (``room``: by resource what is missing; milli-CPU, else units), changeConstraint (``topology_key`` of one of the
    pod's spread constraints, and ``fields`` with their values).
    """

    kind: str
    text: str
    node: str
    like: str = ""
    labels: Mapping[str, str] = {}
    removed_labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    from_node: str = msgspec.field(name="from", default="")
    to: str = ""
    namespace: str = ""
    room: Mapping[str, int] = {}
    pdb_violations: int = 0
    topology_key: str = ""
    fields: Mapping[str, str] = {}


class HeldGroup(Value, frozen=True):
    """The group with which a gated pod is released: how far that is, where it goes, and why it waits."""

    policy: str
    group: str
    state: str
    domain: str = ""
    reason: str = ""
    text: str = ""


class AskingScheduler(Value, frozen=True):
    """A scheduler by the schedulerName of the pods that it asks about, and when it ``asked`` last (RFC 3339)."""

    name: str
    asked: str


class Asked(Value, frozen=True):
    """Whether a scheduler looks at a pod, by what schedulers have asked this replica ``since`` it answers (RFC 3339).

    ``scheduler`` is the name in the pod. ``last``: when it was last asked about, and ``answer`` what was answered; both are empty where
    no such answer is kept. ``is_unasked``: others ask, and no scheduler of this name does. ``text`` is all of it in a sentence.
    """

    scheduler: str
    text: str
    since: str
    schedulers: tuple[AskingScheduler, ...] = ()
    last: str = ""
    answer: str = ""
    is_unasked: bool = False


class Explanation(Value, frozen=True):
    """Why a pod is pending.

    ``passing`` counts the nodes that filter lets pass, ``fitting`` those of them that could take the pod by themselves;
    ``candidates`` are the first of the latter. ``policies`` are those that hold the pod to something. ``preempting`` is the node on which pods are
    preempted for it. ``is_changed``: the
    cluster changed while this was computed, so parts may not agree. ``gates`` are the scheduling gates that hold the pod, and
    ``group`` what removes the one of ours; then nodes are looked at as if it was released into the domain of the group.
    ``asked``: whether a scheduler looks at the pod; absent for one that is not pending, and where a replica that does not lead answers.
    """

    pod: str
    state: str
    nodes: int
    passing: int
    fitting: int
    rejection: str = ""
    candidates: tuple[str, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    constraints: tuple[ConstraintState, ...] = ()
    changes: tuple[TriedChange, ...] = ()
    node: NodeState | None = None
    policies: tuple[str, ...] = ()
    preempting: str = ""
    unchecked: str = ""
    is_changed: bool = False
    gates: tuple[str, ...] = ()
    group: HeldGroup | None = None
    asked: Asked | None = None

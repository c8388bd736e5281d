"""What `explain` says of a pod: what its constraints count now, what rejects it on which nodes, and what would help.

Values only, in the form in which the API encodes them. Reasons have the texts that the scheduler shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec


class NoAnswerCause(Enum):
    """Why there is no answer. ``FAILED``: a bug; the log of the service has the traceback."""

    UNKNOWN = "unknown"
    BUSY = "busy"
    TOO_EXPENSIVE = "too expensive"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"


class NotExplained(Exception):  # noqa: N818 (an answer, not an error)
    """Raised when a pod is not explained. The text says why: pod or node not known, or the budget is spent."""

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

    ``count`` includes pods whose node is undetermined, in the domain where they do most harm. ``pods`` leaves them out.
    """

    domain: str
    nodes: int
    count: int
    passes: bool
    pods: tuple[str, ...] = ()


class TermReach(Value, frozen=True):
    """The namespaces that a term reaches now.

    - ``why``: what the term says about namespaces
    - ``count``: how many namespaces; ``namespaces`` are the first of them
    - ``is_every``: every namespace; then there is no list
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
    """What one constraint counts now.

    - ``pods``: the selector of the pods that are counted
    - ``carrier``: an existing pod that has this term
    - ``limit``: the largest count with which a domain passes; absent where the constraint misses a pod instead
    - ``max_skew``, ``min_domains``, ``eligible`` (domains) and ``minimum`` (over the eligible domains): topology spread
      only
    - ``lacking``: how many nodes lack the topology key; they pass unless ``rejects_lacking``
    - ``domains``: first the domains that reject; ``more_domains`` further ones are left out of this list
    - ``more_terms``: how many further terms of existing pods select the pod
    - ``left_out``: domains that policies leave out of the minimum
    - ``excludes_itself``: the spread constraint does not select its own pod, so placing the pod changes no count
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
    """One reason of one rule against ``nodes`` nodes. ``examples``: some of the nodes.

    ``blamed``: what stands in the way.
    """

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
    """A change that was tried: after it the pod passes filter and fits on ``node``.

    ``kind`` says which of the other fields are set:

    - addNode: ``labels`` of the new node; in all else it equals the node ``like``
    - uncordonNode: ``node``
    - removeTaints: ``taints``, each with value and effect
    - labelNode: ``labels`` to set, ``removed_labels``
    - movePod: ``pods``, ``from``, ``to``
    - labelNamespace: ``namespace``, ``labels`` to set, ``removed_labels``
    - deletePods: ``pods``, all of lower priority
    - addRoom: ``room``, the missing amount by resource; milli-CPU for ``cpu``, else units
    - changeConstraint: ``topology_key`` of a spread constraint of the pod, and ``fields`` with their new values
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
    """The group with which a gated pod is released: how far the release is, its domain, and why the group waits."""

    policy: str
    group: str
    state: str
    domain: str = ""
    reason: str = ""
    text: str = ""


class AskingScheduler(Value, frozen=True):
    """A scheduler, by the schedulerName of the pods in its requests. ``asked``: time of the last request (RFC 3339)."""

    name: str
    asked: str


class Asked(Value, frozen=True):
    """Whether a scheduler looks at a pod, judged by the requests to this replica ``since`` it answers (RFC 3339).

    - ``scheduler``: the schedulerName of the pod
    - ``last``: time of the last request for the pod, and ``answer``: the answer to it; both are empty if no request is kept
    - ``is_unasked``: other schedulers send requests, and no scheduler of this name does
    - ``text``: all of this in a sentence
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

    - ``passing``: how many nodes filter lets pass
    - ``fitting``: how many passing nodes could take the pod by themselves; ``candidates`` are the first of these nodes
    - ``policies``: the policies that constrain the pod
    - ``preempting``: the node on which pods are preempted for it
    - ``is_changed``: the cluster changed while this was computed, so parts may not agree
    - ``gates``: the scheduling gates of the pod
    - ``group``: what removes our own gate; then nodes are judged as if the pod were released into the group's domain
    - ``broken``: of a pod on a node, the constraints that a policy watches and that are broken; ``move``: the move that mends
      them, or why there is none
    - ``asked``: whether a scheduler looks at the pod; absent if the pod is not pending, or if this replica does not
      lead
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
    broken: tuple[str, ...] = ()
    move: str = ""

"""Why a node is rejected: the status codes, the closed list of reasons, and a rejection with its parts.

The texts are kube-scheduler's own where it has one, because operators know them. They are few and contain no names or
numbers: each distinct text of a pod's condition is a status update, after which the scheduler tries the pod again.
Names and numbers are parts of a `Rejection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Code(StrEnum):
    """Status codes of the scheduling framework."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Reason(Enum):
    """Why a node is rejected: the text, and whether removing pods could change it."""

    SPREAD_LABEL_MISSING = ("node(s) didn't match pod topology spread constraints (missing required label)", False)
    SPREAD_SKEW = ("node(s) didn't match pod topology spread constraints", True)
    DOMAIN_EXCLUDED = ("node(s) were in an excluded topology domain", False)
    AFFINITY = ("node(s) didn't match pod affinity rules", False)
    ANTI_AFFINITY = ("node(s) didn't match pod anti-affinity rules", True)
    EXISTING_ANTI_AFFINITY = ("node(s) didn't satisfy existing pods anti-affinity rules", True)
    CORDONED = ("node(s) were unschedulable", False)
    TAINT = ("node(s) had untolerated taint(s)", False)
    NODE_AFFINITY = ("node(s) didn't match Pod's node affinity/selector", False)
    POLICY = ("node(s) didn't match scheduling policy", False)
    POLICY_CONFLICT = ("pod contradicts a scheduling policy that rejects such pods", False)
    POLICY_FAILED = ("a scheduling policy with failurePolicy Fail cannot be applied to the pod", False)
    HOST_PORTS = ("node(s) didn't have free ports for the requested pod ports", True)
    NO_ROOM = ("node(s) had too few resources left", True)
    RELEASE_DOMAIN = ("node(s) were in no domain of the policy that releases the pod", False)
    RELEASE_QUOTA = ("node(s) were in a domain whose quota is used up", False)
    RESERVED = ("node(s) have their room reserved for pods that are released together", True)
    MOVED = ("node(s) are not the node to which the pod of the same controller was moved", False)
    NOMINATED = ("node(s) are kept for nominated pods of equal or higher priority", True)
    PREEMPTING = ("node(s) wait until the pods that this pod preempts are gone", True)
    UNKNOWN_NODE = ("node(s) not known to the extender yet", False)
    QUOTA = ("pod is over a quota for affinity across namespaces", False)
    REACH = ("pod affinity reaches further than the extender allows", False)
    OVER_LIMIT = ("pod asks for more than the limits of the extender allow", False)
    OVER_BUDGET = ("pod needs more than the budget of its namespace has left", False)
    MALFORMED_POD = ("pod has affinity or spread constraints that cannot be parsed", False)

    def __init__(self, text: str, resolvable: bool) -> None:  # noqa: FBT001 (an enum's value is given by position)
        self.text = text
        self.resolvable = resolvable

    @property
    def code(self) -> Code:
        """The status code of a rejection for this reason."""
        return Code.UNSCHEDULABLE if self.resolvable else Code.UNRESOLVABLE

    @property
    def label(self) -> str:
        """The reason as the value of a metric's label."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a rule rejects a pod on one node, in parts.

    ``topology_key`` and ``domain`` say where the rule counts; see the fields. ``blamed`` names a few of the objects
    that stand in the way: pods as ``namespace/name``, a taint, a resource, or a limit of the settings.
    """

    rule: str
    reason: Reason
    # Replaces the reason's text in a rejection for every node: a limit, or constraints that cannot be parsed. It then
    # leaves the following fields empty.
    message: str = ""
    topology_key: str = ""
    # The label's value; None if the node lacks the label.
    domain: str | None = None
    # What is counted there: pods, or units of a resource.
    count: int = 0
    # The largest count with which the node would pass; None if the rule misses a pod instead.
    limit: int | None = None
    # Only topology spread: the minimum over the eligible domains, and maxSkew.
    minimum: int = 0
    max_skew: int = 0
    blamed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text for the scheduler, which shows it in the pod's condition."""
        return self.message or self.reason.text

"""What a rule says of a node: the status codes, and the closed list of refusal texts.

The texts are kube-scheduler's own where it has one, so that operators read what they know. They are few and never hold
names or numbers: each distinct text of a pod's condition is a status update that wakes the scheduler again.
"""

from __future__ import annotations

from enum import Enum, StrEnum


class Code(StrEnum):
    """The scheduler's status codes that the two plugins use."""

    SUCCESS = "Success"
    SKIP = "Skip"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Reason(Enum):
    """Why a node is refused: the text, and whether taking pods away could change it."""

    SPREAD_LABEL_MISSING = ("node(s) didn't match pod topology spread constraints (missing required label)", False)
    SPREAD_SKEW = ("node(s) didn't match pod topology spread constraints", True)
    AFFINITY = ("node(s) didn't match pod affinity rules", False)
    ANTI_AFFINITY = ("node(s) didn't match pod anti-affinity rules", True)
    EXISTING_ANTI_AFFINITY = ("node(s) didn't satisfy existing pods anti-affinity rules", True)
    CORDONED = ("node(s) were unschedulable", False)
    TAINT = ("node(s) had untolerated taint(s)", False)
    NODE_AFFINITY = ("node(s) didn't match Pod's node affinity/selector", False)
    NO_ROOM = ("node(s) had too few resources left", True)
    NOMINATED = ("node(s) are kept for nominated pods of equal or higher priority", True)
    PREEMPTING = ("node(s) wait until the pods that this pod preempts are gone", True)
    UNKNOWN_NODE = ("node(s) not known to the extender yet", False)
    OVER_LIMIT = ("pod asks for more than the limits of the extender allow", False)
    MALFORMED_POD = ("pod has affinity or spread constraints that cannot be parsed", False)

    def __init__(self, text: str, resolvable: bool) -> None:  # noqa: FBT001 (an enum's value is given by position)
        self.text = text
        self.resolvable = resolvable

    @property
    def code(self) -> Code:
        """The status code of a refusal for this reason."""
        return Code.UNSCHEDULABLE if self.resolvable else Code.UNRESOLVABLE

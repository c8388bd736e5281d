"""What is asked of what-if, and its answer: where pods would go if the cluster were changed.

Values only. The answer is in the form in which the API encodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from extender.model.answers.explanations import NotExplained, Obstacle, Value
from extender.model.objects import Object, Pod, Workload

PLACE_LIMIT = 1000
MOST_PLACED = 20_000


class NotComputed(NotExplained):
    """Raised when a what-if is not answered: one is being computed, its budget is spent, or the system refuses it."""


class Displaced(StrEnum):
    """What becomes of the pods of deleted and drained nodes: their controllers make them again, or they are gone too."""

    PLACE = "place"
    GONE = "gone"


class Given(msgspec.Struct, frozen=True):
    """An object to add or to replace. ``path``: where the request has it."""

    obj: Object
    path: str


class GivenWorkload(msgspec.Struct, frozen=True):
    """A workload to add, or to put in place of the one of its name.

    ``count``: so many pods ``make`` yields; it may raise ``WireError``. ``is_per_node``: of a DaemonSet, whose one pod is made for each node.
    ``selector``: what default constraints read of the owner of the pods. ``note``: why no pods are made.
    """

    kind: str
    namespace: str
    name: str
    path: str
    count: int
    make: Callable[[], Iterator[Pod]]
    is_per_node: bool = False
    selector: Workload | None = None
    note: str = ""

    def __str__(self) -> str:
        """As notes name it."""
        return f"{self.kind} {self.namespace}/{self.name}"


class NodeChange(msgspec.Struct, frozen=True):
    """A node to cordon or to drain: a drain cordons it and displaces its pods."""

    name: str
    path: str
    is_drain: bool = False


class Removal(msgspec.Struct, frozen=True):
    """An object to delete, by the kind of the API; ``namespace`` is empty for kinds without one."""

    kind: str
    name: str
    namespace: str
    path: str


class WhatIf(msgspec.Struct, frozen=True):
    """One what-if: deletions come first, then cordons and drains, then ``given`` in their order.

    ``pending``: pending pods are placed too, up to ``limit`` of them, beside given and displaced ones. ``notes``: what makes
    given objects differ from a cluster.
    """

    given: tuple[Given | GivenWorkload, ...] = ()
    removals: tuple[Removal, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    displaced: Displaced = Displaced.PLACE
    pending: bool = True
    limit: int = PLACE_LIMIT
    notes: tuple[str, ...] = ()


class Placement(Value, frozen=True):
    """What becomes of one pod.

    ``origin``: given in the request, displaced from a deleted or drained node, or pending. ``state``: placed on ``node``, rejected for
    ``reason``, gated, or gone for ``reason``. ``was`` is the node that it was on. ``obstacles`` are those of an explanation, for the first of the
    rejected pods. ``unchecked``: needs that the extender does not see, so kube-scheduler may still reject the node.
    """

    pod: str
    state: Literal["placed", "rejected", "gated", "gone"]
    origin: Literal["given", "displaced", "pending"]
    node: str = ""
    was: str = ""
    reason: str = ""
    obstacles: tuple[Obstacle, ...] = ()
    unchecked: str = ""


class WhatIfSummary(Value, frozen=True):
    """How many pods would be placed and rejected, how many of them are ``displaced``, and how many are gone for good.

    ``not_tried``: pending pods beyond the limit of the request.
    """

    placed: int
    rejected: int
    displaced: int = 0
    gone: int = 0
    gated: int = 0
    not_tried: int = 0


class Spent(Value, frozen=True):
    """What the answer took: seconds of processor time, and bytes of memory beside that of the service."""

    seconds: float
    bytes: int


class WhatIfAnswer(Value, frozen=True):
    """Where pods would go, in the order in which they were placed. ``budget`` is what it took.

    ``notes`` tell what makes given objects differ from a cluster, and what became of the pods that a workload had.
    """

    summary: WhatIfSummary
    placements: tuple[Placement, ...] = ()
    notes: tuple[str, ...] = ()
    budget: Spent | None = None

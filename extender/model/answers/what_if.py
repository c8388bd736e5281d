"""The question of a what-if and its answer: where pods would go if the cluster were changed.

Values only. The answer is in the form in which the API encodes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from extender.features.execution.answers import MovesAnswer
from extender.model.answers.explanations import NotExplained, Obstacle, Value
from extender.model.objects import Object, Pod, Workload

PLACE_LIMIT = 1000
MOST_PLACED = 20_000


class NotComputed(NotExplained):
    """Raised when a what-if is not answered: one is being computed, its budget is spent, or the system refuses it."""


class Displaced(StrEnum):
    """What happens to the pods of deleted and drained nodes: controllers recreate them, or they are gone too."""

    PLACE = "place"
    GONE = "gone"


class Given(msgspec.Struct, frozen=True):
    """An object to add or to replace. ``path``: where the request has it."""

    obj: Object
    path: str


class GivenWorkload(msgspec.Struct, frozen=True):
    """A workload to add, or to put in place of the workload with its name."""

    kind: str
    namespace: str
    name: str
    path: str
    count: int
    # Yields ``count`` pods, or for a DaemonSet one pod that is copied to each node. May raise ``WireError``.
    make: Callable[[], Iterator[Pod]]
    is_per_node: bool = False
    # What default constraints read of the owner of the pods.
    selector: Workload | None = None
    # Why no pods are made.
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

    ``pending``: pending pods are placed too, up to ``limit``, after given and displaced pods. ``notes``: in what the
    given objects differ from objects of a cluster. ``moves``: the moves that follow are planned too.
    """

    given: tuple[Given | GivenWorkload, ...] = ()
    removals: tuple[Removal, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    displaced: Displaced = Displaced.PLACE
    pending: bool = True
    limit: int = PLACE_LIMIT
    notes: tuple[str, ...] = ()
    moves: bool = False


class Placement(Value, frozen=True):
    """What happens to one pod.

    - ``origin``: given in the request, displaced from a deleted or drained node, or pending
    - ``state``: placed on ``node``, rejected for ``reason``, gated, or gone for ``reason``
    - ``was``: the node that it was on
    - ``obstacles``: as in an explanation; only for the first rejected pods
    - ``unchecked``: needs that the extender does not see, so kube-scheduler may still reject the node
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
    """How many pods would be placed, rejected, gated, or gone for good.

    - ``displaced``: how many of all these pods were displaced
    - ``not_tried``: pending pods beyond the limit of the request
    """

    placed: int
    rejected: int
    displaced: int = 0
    gone: int = 0
    gated: int = 0
    not_tried: int = 0


class Spent(Value, frozen=True):
    """The cost of the answer: seconds of processor time, and bytes of memory beyond the memory of the service."""

    seconds: float
    bytes: int


class WhatIfAnswer(Value, frozen=True):
    """Where pods would go, in the order in which they were placed. ``budget`` is the cost of the answer.

    ``notes``: differences between the given objects and objects of a cluster, and what happened to the old pods of a
    workload. ``moves``: what policies with `when: [Execution]` would move afterwards, if the request asks for it.
    """

    summary: WhatIfSummary
    placements: tuple[Placement, ...] = ()
    notes: tuple[str, ...] = ()
    budget: Spent | None = None
    moves: MovesAnswer | None = None

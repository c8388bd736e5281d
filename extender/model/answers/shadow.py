"""What `/debug/shadow` answers with: the shadow decisions compared with those of kube-scheduler's own plugins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from extender.model.answers.explanations import Value

Source = Literal["request", "condition"]
"""What shows how the plugins decided."""

Result = Literal["agreed", "assumed", "late", "differed", "unproven", "unconfirmed", "unconstrained", "skipped"]
"""What comes of a decision: the metric `extender_shadow_decisions_total` says what each means."""

RESULTS: Final[tuple[Result, ...]] = (
    "agreed",
    "assumed",
    "late",
    "differed",
    "unproven",
    "unconfirmed",
    "unconstrained",
    "skipped",
)
COMPARED: Final[frozenset[Result]] = frozenset({"agreed", "assumed", "late", "differed", "unproven"})
DIFFERING: Final[frozenset[Result]] = frozenset({"differed", "unproven"})


class ShadowDifference(Value, frozen=True):
    """A decision that differs. ``time`` is in Unix seconds.

    ``confirmed``: the scheduler wrote it, by the binding or by the condition; else only a filter request says so.

    Of a request: ``node`` passed the plugins and ``rule`` rejects it, one of ``nodes`` such nodes; ``bound_to`` is where the pod
    was bound, ``requests`` how many came for it until then. The counts are those of the rejection: ``count`` is what is counted in
    the ``domain`` of the ``topology_key``, ``limit`` the most with which the node would pass.

    Of a condition: it counts ``nodes`` nodes for the reason, and our rule at least ``least`` and at most ``most``.
    """

    time: float
    source: Source
    namespace: str
    pod: str
    uid: str
    confirmed: bool
    rule: str
    reason: str
    text: str
    node: str = ""
    nodes: int = 0
    bound_to: str = ""
    requests: int = 0
    topology_key: str = ""
    domain: str | None = None
    count: int = 0
    limit: int | None = None
    minimum: int = 0
    max_skew: int = 0
    blamed: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None


class RuleFigures(Value, frozen=True):
    """How many decisions a rule had something to say about, by what came of the comparison."""

    rule: str
    agreed: int
    assumed: int
    late: int
    differed: int
    unproven: int


class ShadowPage(Value, frozen=True):
    """The comparison since the start of the process. ``open`` decisions wait for the outcome; ``decisions`` are all, by result."""

    compared: int
    differ: int
    open: int
    decisions: Mapping[str, int]
    rules: tuple[RuleFigures, ...]
    differences: tuple[ShadowDifference, ...]

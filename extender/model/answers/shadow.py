"""What `/debug/shadow` answers with: shadow decisions, compared with the decisions of kube-scheduler's own plugins."""

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

    ``confirmed``: the scheduler wrote the decision, by the binding or by the condition. Otherwise only a filter request
    shows it.

    A difference in a request:

    - ``node``: passed the plugins, and ``rule`` rejects it; one of ``nodes`` such nodes
    - ``bound_to``: where the pod was bound; ``requests``: how many filter requests came for it until then
    - ``count``: what is counted in the ``domain`` of the ``topology_key``
    - ``limit``: the largest count with which the node would pass

    A difference in a condition: the condition counts ``nodes`` nodes for the reason; our rule counts at least ``least``
    and at most ``most``.
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
    """How many decisions concern a rule, by the result of the comparison."""

    rule: str
    agreed: int
    assumed: int
    late: int
    differed: int
    unproven: int


class ShadowPage(Value, frozen=True):
    """The comparison since the start of the process. ``open``: decisions without an outcome yet.

    ``decisions``: all, by result.
    """

    compared: int
    differ: int
    open: int
    decisions: Mapping[str, int]
    rules: tuple[RuleFigures, ...]
    differences: tuple[ShadowDifference, ...]

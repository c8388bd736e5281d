"""Taints and tolerations, as TaintToleration and the spread policy ``nodeTaintsPolicy`` read them.

https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
The numeric operators ``Lt`` and ``Gt`` (KEP-5471) are behind a gate that is off in 1.36 and tolerate nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
PREFER_NO_SCHEDULE = "PreferNoSchedule"


class Taint(msgspec.Struct, frozen=True, gc=False):
    """Keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""

    @property
    def repels(self) -> bool:
        """Whether a pod that does not tolerate the taint is rejected (``PreferNoSchedule`` only lowers a score)."""
        return self.effect in (NO_SCHEDULE, NO_EXECUTE)

    def is_like(self, other: Taint) -> bool:
        """Whether a node can have only one of them."""
        return (self.key, self.effect) == (other.key, other.effect)


CORDON = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)
"""The taint that the node lifecycle controller adds while ``spec.unschedulable`` is set."""


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """Lets a pod be on a node with the taint.

    An empty effect tolerates all effects, an empty key with Exists all keys.
    """

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers the taint."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        if self.operator == "Exists":
            return True
        return self.operator in ("", "Equal") and self.value == taint.value


def first_untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first NoSchedule or NoExecute taint that nothing tolerates, or None. O(taints × tolerations)."""
    allowed = tuple(tolerations)
    for taint in taints:
        if taint.repels and not any(toleration.tolerates(taint) for toleration in allowed):
            return taint
    return None

"""Whether the scheduler has placed the pods of a cluster, and why not, from their PodScheduled conditions: for `doctor`.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from extender.kube.errors import Unreachable
from extender.kube.session import Connection
from extender.wire.errors import UNREADABLE

_PAGE: Final = 500
_MOST_PAGES: Final = 10  # enough to find a pod that was bound lately; a diagnosis must not read a whole large cluster


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    message: str | None = None
    last_transition_time: datetime | None = None


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class PodConditions(msgspec.Struct):
    """One pod: which scheduler it is for, where it is, and what its PodScheduled condition says."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def scheduled_at(self) -> float:
        """When it was bound, in Unix seconds; 0 where it is not."""
        found = self._condition("True")
        moment = found.last_transition_time if found is not None and self.spec.node_name else None
        return moment.timestamp() if moment is not None else 0.0

    @property
    def rejection(self) -> str:
        """Why it is not bound; empty where it is, or where no scheduler has tried."""
        found = None if self.spec.node_name else self._condition("False")
        return (found.message or "") if found is not None else ""

    def _condition(self, status: str) -> _Condition | None:
        conditions = self.status.conditions or ()
        return next((each for each in conditions if each.type == "PodScheduled" and each.status == status), None)


class _Meta(msgspec.Struct, rename={"next": "continue"}):
    next: str = ""


class _Page(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    items: list[PodConditions] | None = None


async def read_pod_conditions(connection: Connection) -> list[PodConditions]:
    """Up to 5,000 pods, in pages. Raises ``KubeError``."""
    found: list[PodConditions] = []
    query = {"limit": str(_PAGE)}
    for _ in range(_MOST_PAGES):
        body = await connection.call("GET", "/api/v1/pods", query=query)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except UNREADABLE as error:
            raise Unreachable(f"GET /api/v1/pods: {error}") from None
        found += page.items or ()
        if not page.metadata.next:
            break
        query["continue"] = page.metadata.next
    return found

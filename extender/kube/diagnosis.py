"""What `extender doctor` asks the API server: access reviews, its clock, and whether the scheduler has placed pods.

Raises only ``KubeError``.
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions
"""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from extender.kube.errors import Unreachable
from extender.kube.listing import read_pages
from extender.kube.session import Connection
from extender.model.objects import DEFAULT_SCHEDULER
from extender.wire.errors import UNREADABLE, from_msgspec

_GROUP: Final = "/apis/authorization.k8s.io/v1"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_MOST_PODS: Final = 5000  # enough to find a pod that was bound lately; a diagnosis must not read a whole large cluster


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus = msgspec.field(default_factory=_ReviewStatus)


class AccessReviews:
    """Reviews for one account: ``account`` as RBAC names it, or empty for the account of the connection."""

    def __init__(self, connection: Connection, account: str = "") -> None:
        self._connection = connection
        self._account = account

    async def is_allowed(
        self, verb: str, group: str, resource: str, subresource: str, namespace: str = "", name: str = ""
    ) -> bool:
        """Whether the account may do that; without a namespace in all of them. One request."""
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
        attributes |= {"namespace": namespace, "name": name}
        spec: dict[str, object] = {"resourceAttributes": attributes}
        if self._account:
            spec |= {"user": self._account, "groups": _groups_of(self._account)}
        kind = "SubjectAccessReview" if self._account else "SelfSubjectAccessReview"
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = await self._connection.call("POST", f"{_GROUP}/{kind.lower()}s", body=body)
        try:
            return msgspec.json.decode(answer, type=_Review).status.allowed
        except UNREADABLE as error:
            raise Unreachable(f"{kind}: {from_msgspec(error)}") from None

    async def server_time(self) -> datetime | None:
        """The API server's wall clock to the second; None where it sends no date."""
        text = await self._connection.date()
        return parsedate_to_datetime(text) if text else None


def _groups_of(account: str) -> list[str]:
    """The groups that the API server adds to an account."""
    groups = ["system:authenticated"]
    if account.startswith(_SERVICE_ACCOUNT):
        namespace = account.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return groups


# Reasons of the condition PodScheduled.
_UNSCHEDULABLE: Final = "Unschedulable"
_SCHEDULER_ERROR: Final = "SchedulerError"
_GATED: Final = "SchedulingGated"


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: datetime | None = None


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    node_name: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class PodConditions(msgspec.Struct):
    """One pod: which scheduler it is for, where it is, and what its PodScheduled condition says. Times are Unix seconds."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def scheduler(self) -> str:
        """The name of the scheduler that is to place it."""
        return self.spec.scheduler_name or DEFAULT_SCHEDULER

    @property
    def scheduled_at(self) -> float:
        """When it was bound; 0 where it is not."""
        return self.tried_at if self.spec.node_name else 0.0

    @property
    def tried_at(self) -> float:
        """When its condition last changed; 0 where no scheduler has tried it, or may."""
        found = self._condition("True") or self._condition("False")
        moment = None if found is None or found.reason == _GATED else found.last_transition_time
        return moment.timestamp() if moment is not None else 0.0

    @property
    def untried_since(self) -> float:
        """When it was created, if no scheduler has tried it since; else 0."""
        is_tried = self.spec.node_name or self._condition("True") or self._condition("False")
        moment = None if is_tried else self.metadata.creation_timestamp
        return moment.timestamp() if moment is not None else 0.0

    @property
    def rejection(self) -> str:
        """Why no node takes it; empty where it is bound, or no scheduler has tried."""
        return self._message({None, _UNSCHEDULABLE})

    @property
    def failure(self) -> str:
        """The error that kept its scheduler from placing it, such as that of a call to an extender; empty where there is none."""
        return self._message({_SCHEDULER_ERROR})

    def _message(self, reasons: Container[str | None]) -> str:
        found = None if self.spec.node_name else self._condition("False")
        return (found.message or "") if found is not None and found.reason in reasons else ""

    def _condition(self, status: str) -> _Condition | None:
        conditions = self.status.conditions or ()
        return next((each for each in conditions if each.type == "PodScheduled" and each.status == status), None)


async def read_pod_conditions(connection: Connection, fields: str) -> list[PodConditions]:
    """Up to 5,000 pods, by a field selector. Raises ``KubeError``."""
    found: list[PodConditions] = []
    async for page in read_pages(connection, "/api/v1/pods", fieldSelector=fields):
        try:
            found += [msgspec.json.decode(item, type=PodConditions) for item in page]
        except UNREADABLE as error:
            raise Unreachable(f"GET /api/v1/pods: {error}") from None
        if len(found) >= _MOST_PODS:
            break
    return found

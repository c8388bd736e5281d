"""What `extender doctor` reads from the API server: access reviews, its clock, its version, whether pods were placed.

The service reads the version too.

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
import orjson

from extender.kube.errors import KubeError, Unreachable
from extender.kube.listing import read_pages
from extender.kube.session import Connection
from extender.model.objects import DEFAULT_SCHEDULER
from extender.wire.api_server import ADMISSION_RESOURCES, ApiServer, decode_resources, decode_version
from extender.wire.errors import UNREADABLE, from_msgspec

_GROUP: Final = "/apis/authorization.k8s.io/v1"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_MOST_PODS: Final = 5000  # enough to include a recently bound pod, without reading all pods of a large cluster


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
        """Whether the account may do that, in one namespace, or without one in all. One request."""
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
        """The API server's wall clock to the second; None if it sends no date."""
        text = await self._connection.date()
        return parsedate_to_datetime(text) if text else None


async def read_api_server(connection: Connection) -> ApiServer:
    """Version and resources. Every account may read both. Raises ``KubeError``."""
    try:
        version = decode_version(await connection.call("GET", "/version"))
        try:
            resources = decode_resources(await connection.call("GET", ADMISSION_RESOURCES))
        except KubeError:  # what is not known is not reported as missing
            return ApiServer(*version)
        return ApiServer(*version, resources)
    except UNREADABLE as error:
        raise Unreachable(f"GET /version: {from_msgspec(error)}") from None


async def read_dropped_fields(connection: Connection) -> tuple[str, ...]:
    """The fields of a new pod that the API server drops, by a dry run, which stores nothing. None of them where it is refused."""
    try:
        path = f"/api/v1/namespaces/{_DRY_RUN_NAMESPACE}/pods"
        answer = orjson.loads(await connection.call("POST", path, query={"dryRun": "All"}, body=_DRY_RUN_POD))
    except (KubeError, orjson.JSONDecodeError):  # without the permission, or refused by an admission plugin
        return ()
    spec = answer.get("spec") or {}
    # Not an echo: the API server adds defaults to what it accepts.
    if not spec.get("restartPolicy"):
        return ()
    constraint = (spec.get("topologySpreadConstraints") or [{}])[0]
    given = {"schedulingGates": spec, "minDomains": constraint, "matchLabelKeys": constraint}
    return tuple(name for name, part in given.items() if name not in part)


_DRY_RUN_NAMESPACE: Final = "default"
_DRY_RUN_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "placement-extender-doctor-dry-run"},
    "spec": {
        # It asks nothing of any scheduler: it has a gate, and is not stored.
        "schedulerName": "placement-extender-doctor",
        "schedulingGates": [{"name": "placement.extender.dev/doctor"}],
        "containers": [{"name": "none", "image": "registry.k8s.io/pause"}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 1,
                "matchLabelKeys": ["app"],
                "labelSelector": {"matchLabels": {"placement.extender.dev/doctor": "dry-run"}},
            }
        ],
    },
}


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
    """One pod: its scheduler, its node, and its PodScheduled condition. Times are Unix seconds."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def scheduler(self) -> str:
        """The schedulerName of the pod."""
        return self.spec.scheduler_name or DEFAULT_SCHEDULER

    @property
    def scheduled_at(self) -> float:
        """When it was bound; 0 if it is not."""
        return self.tried_at if self.spec.node_name else 0.0

    @property
    def tried_at(self) -> float:
        """When its condition last changed; 0 if no scheduler has tried it, or may try it (a gated pod)."""
        condition = self._condition("True") or self._condition("False")
        moment = None if condition is None or condition.reason == _GATED else condition.last_transition_time
        return moment.timestamp() if moment is not None else 0.0

    @property
    def untried_since(self) -> float:
        """When it was created, if no scheduler has tried it since; else 0."""
        is_tried = self.spec.node_name or self._condition("True") or self._condition("False")
        moment = None if is_tried else self.metadata.creation_timestamp
        return moment.timestamp() if moment is not None else 0.0

    @property
    def rejection(self) -> str:
        """Why no node takes it; empty if it is bound or not tried yet."""
        return self._message({None, _UNSCHEDULABLE})

    @property
    def failure(self) -> str:
        """The error that kept the scheduler from placing it, such as a failed call to an extender; else empty."""
        return self._message({_SCHEDULER_ERROR})

    def _message(self, reasons: Container[str | None]) -> str:
        condition = None if self.spec.node_name else self._condition("False")
        return (condition.message or "") if condition is not None and condition.reason in reasons else ""

    def _condition(self, status: str) -> _Condition | None:
        conditions = self.status.conditions or ()
        return next(
            (condition for condition in conditions if condition.type == "PodScheduled" and condition.status == status),
            None,
        )


async def read_pod_conditions(connection: Connection, fields: str) -> list[PodConditions]:
    """Up to 5,000 pods, by a field selector. Raises ``KubeError``."""
    pods: list[PodConditions] = []
    async for page in read_pages(connection, "/api/v1/pods", fieldSelector=fields):
        try:
            pods += [msgspec.json.decode(item, type=PodConditions) for item in page]
        except UNREADABLE as error:
            raise Unreachable(f"GET /api/v1/pods: {error}") from None
        if len(pods) >= _MOST_PODS:
            break
    return pods

"""Access reviews and the wall clock of the API server, for `extender doctor`.

Raises only ``KubeError``.
https://kubernetes.io/docs/reference/access-authn-authz/authorization/#checking-api-access
"""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from extender.kube.errors import Unreachable
from extender.kube.session import Connection
from extender.wire.errors import UNREADABLE, from_msgspec

_GROUP: Final = "/apis/authorization.k8s.io/v1"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


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

"""Which permissions the service needs under its settings: those of its watches and of its other API calls.

The watches are the rows of `wire.watched_kinds`, the other calls those of `wire.api_calls`. `doctor` asks the API server about each permission, and the manifests in
deploy/ grant them.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from extender.settings import Settings
from extender.wire.api_calls import API_CALLS, LEASES_GROUP
from extender.wire.watched_kinds import watched_kinds


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource. `why` is for the administrator who grants it; an empty namespace means all of them."""

    group: str
    resource: str
    subresource: str
    verb: str
    why: str
    namespace: str = ""
    name: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether a function fails without it. Without events only information is lost."""
        return self.resource != "events"

    @property
    def asked(self) -> tuple[str, str, str, str, str, str]:
        """The arguments of an access review: verb, group, resource, subresource, namespace, name."""
        return self.verb, self.group, self.resource, self.subresource, self.namespace, self.name

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {name}{'.' + self.group if self.group else ''}{where}"


def needed_permissions(settings: Settings) -> list[Permission]:
    """All permissions that these settings use, each once. Those of the Lease only where its namespace is set."""
    return [*_reads(settings), *_calls(settings)]


def _reads(settings: Settings) -> Iterator[Permission]:
    for each in watched_kinds(settings):
        for verb in ("list", "watch"):
            yield Permission(each.kind.group, each.kind.name, "", verb, each.why)


def _calls(settings: Settings) -> Iterator[Permission]:
    """One permission for each row that these settings need; rows that share a permission give it once."""
    leases = settings.leader_election
    found: dict[tuple[str, str, str, str], Permission] = {}
    for call in API_CALLS:
        what = (call.group, call.resource, call.subresource, call.verb)
        if what in found or not call.is_needed(settings):
            continue
        if call.group != LEASES_GROUP:
            found[what] = Permission(*what, call.why)
        elif leases.lease_namespace:
            # RBAC cannot restrict create by name: the object does not exist yet.
            name = "" if call.verb == "create" else leases.lease_name
            found[what] = Permission(*what, call.why, leases.lease_namespace, name)
    yield from found.values()

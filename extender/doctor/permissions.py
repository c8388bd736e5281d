"""The RBAC permissions that the service needs under its settings.

They follow from the rows of `wire.watched_kinds` and `wire.api_calls`. `doctor` reviews each of them, and the manifests
in deploy/ grant them. https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from extender.settings.configuration import Settings
from extender.wire.api_calls import API_CALLS
from extender.wire.objects.kinds import watched_kinds


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one resource. `why` tells the administrator what needs it; an empty namespace means all namespaces."""

    group: str
    resource: str
    subresource: str
    verb: str
    why: str
    namespace: str = ""
    name: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether the service fails without it. Without permission for events only information is lost."""
        return self.resource != "events"

    @property
    def review_arguments(self) -> tuple[str, str, str, str, str, str]:
        """The arguments of an access review: verb, group, resource, subresource, namespace, name."""
        return self.verb, self.group, self.resource, self.subresource, self.namespace, self.name

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {name}{'.' + self.group if self.group else ''}{where}"


def needed_permissions(settings: Settings) -> list[Permission]:
    """All permissions that these settings use, each once; those of the Lease only if its namespace is known."""
    return [*_reads(settings), *_calls(settings)]


def _reads(settings: Settings) -> Iterator[Permission]:
    for each in watched_kinds(settings):
        for verb in ("list", "watch"):
            yield Permission(each.kind.group, each.kind.resource, "", verb, each.why)


def _calls(settings: Settings) -> Iterator[Permission]:
    """The permissions of the rows that these settings need; rows can share one."""
    found: dict[tuple[str, str, str, str], Permission] = {}
    for call in API_CALLS:
        what = (call.group, call.resource, call.subresource, call.verb)
        if what in found or not call.is_needed(settings):
            continue
        place = call.place(settings)
        if place is not None:
            found[what] = Permission(*what, call.why, *place)
    yield from found.values()

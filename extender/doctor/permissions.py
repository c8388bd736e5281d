"""Which permissions the service needs under its settings: what it reads, what it writes, its Lease.

Values only; `doctor` asks the apiserver about each, and the manifests in deploy/ grant them.
https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from extender.settings import Settings


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
        """Whether the service fails at what it is for without it; without events it only tells less."""
        return self.resource != "events"

    @property
    def asked(self) -> tuple[str, str, str, str, str, str]:
        """As an access review wants it: verb, group, resource, subresource, namespace, name."""
        return self.verb, self.group, self.resource, self.subresource, self.namespace, self.name

    def __str__(self) -> str:
        name = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {name}{'.' + self.group if self.group else ''}{where}"


def needed_permissions(settings: Settings) -> list[Permission]:
    """All of them; nothing that these settings do not use. The Lease's only where its namespace is set."""
    return [*_reads(settings), *_writes(settings), *_bind(settings), *_lease(settings)]


def _reads(settings: Settings) -> Iterator[Permission]:
    for resource in ("namespaces", "nodes", "pods"):
        yield from _watched("", resource, "the index is kept from it")
    spread = settings.rules.topology_spread
    if spread.enabled and (spread.defaulting_type == "System" or spread.default_constraints):
        why = "default constraints of topology spread deduce their selectors from it"
        for group, resource in (("", "services"), ("", "replicationcontrollers"), ("apps", "replicasets")):
            yield from _watched(group, resource, why)
        yield from _watched("apps", "statefulsets", why)
    if settings.preemption.mode != "off":
        yield from _watched("policy", "poddisruptionbudgets", "preemption spares pods that a budget protects")


def _writes(settings: Settings) -> Iterator[Permission]:
    preempts = settings.preemption.mode == "execute"
    if settings.rejected_pods.nominate_elsewhere or preempts:
        yield Permission("", "pods", "status", "patch", "nominating elsewhere and preemption set nominatedNodeName")
    if settings.rejected_pods.requeue or preempts:
        yield Permission("", "pods", "", "patch", "requeueing annotates pods")
    if preempts:
        yield Permission("", "pods", "", "get", "a write that met another pod of the name looks again")
        if settings.preemption.eviction == "evict":
            yield Permission("", "pods", "eviction", "create", "preemption.eviction is evict")
        else:
            yield Permission("", "pods", "", "delete", "preemption.eviction is delete")
        yield Permission("events.k8s.io", "events", "", "create", "preemption tells about victims")


def _bind(settings: Settings) -> Iterator[Permission]:
    if settings.server.paths.bind:
        yield Permission("", "pods", "binding", "create", "server.paths.bind is set")


def _lease(settings: Settings) -> Iterator[Permission]:
    leading = settings.leader_election
    if leading.enabled and leading.lease_namespace:
        for verb in ("create", "get", "update"):
            why = "leaderElection is on"
            name = "" if verb == "create" else leading.lease_name
            yield Permission("coordination.k8s.io", "leases", "", verb, why, leading.lease_namespace, name)


def _watched(group: str, resource: str, why: str) -> Iterator[Permission]:
    for verb in ("list", "watch"):
        yield Permission(group, resource, "", verb, why)

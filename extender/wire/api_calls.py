"""The calls to the API server other than list and watch: name, permission, and the settings that need the call.

`kube.writer` makes each call by its row; the row's name is the label of the metric. `doctor/facts.py` lists the
permissions of the rows that the settings need (`needed_permissions`). deploy/base and deploy/bind grant exactly the
permissions of all rows. To add a call, add a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from extender.model.group_placements import PLACEMENTS
from extender.model.policies import GROUP as POLICY_GROUP
from extender.settings.configuration import Settings
from extender.wire.webhook_configurations import GROUP as WEBHOOKS_GROUP
from extender.wire.webhook_configurations import MUTATING, POLICY_RESOURCES, VALIDATING

# Namespace and name of the only object of a call, empty for all objects; None if the settings leave it open.
Place = tuple[str, str] | None
Need = Literal[
    "preempts",
    "nominates",
    "requeues",
    "evicts",
    "deletes",
    "records events",
    "binds",
    "elects a leader",
    "has policies",
    "releases groups",
    "moves pods",
    "makes certificates",
    "keeps the bundle",
    "publishes its endpoint",
]
About = Literal[
    "all",
    "lease",
    "namespace of lease",
    "secret",
    "namespace of webhook",
    "webhook configuration",
    "endpoint",
    "namespace of endpoint",
]


def leader_slice(service: str) -> str:
    """The EndpointSlice of a Service that has the leader's address."""
    return f"{service}-leader"


def _has_webhook_endpoint(settings: Settings) -> bool:
    """Whether the API server calls a Service, not a URL."""
    return settings.policies.enabled and not settings.policies.webhook.url


def _needs(settings: Settings) -> dict[Need, bool]:
    """What a service with these settings does."""
    rejected, policies, webhook = settings.rejected_pods, settings.policies.enabled, settings.policies.webhook
    executes, eviction = settings.preemption.mode == "execute", settings.preemption.eviction
    moves = policies and settings.execution.enabled
    return {
        "preempts": executes,
        # Preemption also nominates and requeues, so these permissions are needed even if rejectedPods is off.
        "nominates": rejected.nominate_elsewhere or executes,
        "requeues": rejected.requeue or executes,
        "evicts": (executes and eviction == "evict") or moves,
        "deletes": executes and eviction == "delete",
        "records events": executes or policies or rejected.events,
        "binds": bool(settings.server.paths.bind),
        "elects a leader": settings.leader_election.enabled,
        "has policies": policies,
        "releases groups": policies and settings.release.enabled,
        "moves pods": moves,
        "makes certificates": policies and webhook.certificates == "own",
        # If another writer sets caBundle, that writer restores a deleted configuration.
        "keeps the bundle": policies and (webhook.certificates == "own" or bool(webhook.ca_file)),
        "publishes its endpoint": _has_webhook_endpoint(settings) or bool(settings.leader_election.service),
    }


def _places(settings: Settings) -> dict[About, Place]:
    # RBAC cannot restrict create by name, because the object does not exist yet.
    election, webhook = settings.leader_election, settings.policies.webhook
    lease_namespace, webhook_namespace = election.lease_namespace, webhook.service_namespace
    in_webhook = (webhook_namespace, "") if webhook_namespace else None
    in_lease = (lease_namespace, "") if lease_namespace else None
    slice_of_leader = (lease_namespace, leader_slice(election.service)) if lease_namespace else None
    # Slices of the webhook have the names of pods; the slice of the leader has one name.
    has_webhook = _has_webhook_endpoint(settings)
    return {
        "all": ("", ""),
        "lease": (lease_namespace, election.lease_name) if lease_namespace else None,
        "namespace of lease": in_lease,
        "secret": (webhook_namespace, webhook.secret) if webhook_namespace else None,
        "namespace of webhook": in_webhook,
        "webhook configuration": ("", webhook.configuration),
        "endpoint": in_webhook if has_webhook else slice_of_leader,
        "namespace of endpoint": in_webhook if has_webhook else in_lease,
    }


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call. ``verb`` and resource as in RBAC. ``why``: for the administrator, what needs the call."""

    name: str
    group: str
    resource: str
    subresource: str
    verb: str
    why: str
    need: Need
    about: About = "all"

    def is_needed(self, settings: Settings) -> bool:
        """Whether a service with these settings makes the call."""
        return _needs(settings)[self.need]

    def place(self, settings: Settings) -> Place:
        """The object of the call with these settings."""
        return _places(settings)[self.about]


class KeptObject(NamedTuple):
    """The calls for an object whose contents the service keeps right."""

    get: ApiCall
    update: ApiCall
    create: ApiCall


def _kept(
    thing: str, group: str, resource: str, kept: tuple[str, Need, About], made: tuple[str, Need, About]
) -> KeptObject:
    """The calls to read and replace an object (``kept``) and to create it (``made``): why, need and place of each."""
    rows = (("get", kept), ("update", kept), ("create", made))
    return KeptObject(*(ApiCall(f"{verb}_{thing}", group, resource, "", verb, *row) for verb, row in rows))


LEASES_GROUP: Final = "coordination.k8s.io"
EVENTS_GROUP: Final = "events.k8s.io"
ENDPOINTS_GROUP: Final = "discovery.k8s.io"

NOMINATE: Final = ApiCall(
    "nominate", "", "pods", "status", "patch", "nominations and preemption set nominatedNodeName", "nominates"
)
SET_CONDITION: Final = ApiCall(
    "set_condition", "", "pods", "status", "patch", "preemption marks what it deletes as DisruptionTarget", "deletes"
)
ANNOTATE: Final = ApiCall("annotate", "", "pods", "", "patch", "requeueing annotates pods", "requeues")
# After a 409 the UID shows whether the name still belongs to the pod: a StatefulSet creates its pods again under the
# same names.
UID_OF: Final = ApiCall("uid_of", "", "pods", "", "get", "a write with a conflict reads the pod's UID", "preempts")
EVICT: Final = ApiCall(
    "evict", "", "pods", "eviction", "create", "preemption.eviction is evict, or policies move pods", "evicts"
)
DELETE: Final = ApiCall("delete", "", "pods", "", "delete", "preemption.eviction is delete", "deletes")
CREATE_EVENT: Final = ApiCall(
    *("create_event", EVENTS_GROUP, "events", "", "create"),
    "preemption records events about its victims, the leader about rejected pods, policies, pods that missed them, and groups of gated pods",
    "records events",
)
BIND: Final = ApiCall("bind", "", "pods", "binding", "create", "server.paths.bind is set", "binds")
NODE_OF: Final = ApiCall(
    "node_of",
    "",
    "pods",
    "",
    "get",
    "a binding without an answer, or a refused nomination, reads the pod's node",
    "binds",
)

_ELECTION: Final = "leaderElection is on"
LEASE: Final = _kept(
    *("lease", LEASES_GROUP, "leases"),
    (_ELECTION, "elects a leader", "lease"),
    (_ELECTION, "elects a leader", "namespace of lease"),
)
SECRET: Final = _kept(
    *("secret", "", "secrets"),
    ("policies.webhook.certificates is own", "makes certificates", "secret"),
    (
        "the leader restores the Secret of the webhook's certificates if it is deleted",
        "makes certificates",
        "namespace of webhook",
    ),
)
_WEBHOOKS: Final = "the leader keeps the webhook configurations of policies as the settings say"
_DELETED: Final = "the leader restores a webhook configuration of policies that is deleted"
MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS = (
    _kept(
        *(f"{which}_webhooks", WEBHOOKS_GROUP, resource),
        (_WEBHOOKS, "has policies", "webhook configuration"),
        (_DELETED, "keeps the bundle", "all"),
    )
    for which, resource in (("mutating", MUTATING), ("validating", VALIDATING))
)
_ENDPOINT: Final[tuple[str, Need]] = (
    "each replica publishes where its webhook answers, and the leader where it answers kube-scheduler",
    "publishes its endpoint",
)
ENDPOINT: Final = _kept(
    *("endpoint", ENDPOINTS_GROUP, "endpointslices"),
    (*_ENDPOINT, "endpoint"),
    (*_ENDPOINT, "namespace of endpoint"),
)
DELETE_ENDPOINT: Final = ApiCall(
    *("delete_endpoint", ENDPOINTS_GROUP, "endpointslices", "", "delete", *_ENDPOINT), "endpoint"
)

GET_POLICY, GET_CLUSTER_POLICY, PATCH_POLICY_STATUS, PATCH_CLUSTER_POLICY_STATUS = (
    ApiCall(name, POLICY_GROUP, resource, subresource, verb, "the leader writes the status of policies", "has policies")
    for name, resource, subresource, verb in (
        ("get_policy", POLICY_RESOURCES[0], "", "get"),
        ("get_cluster_policy", POLICY_RESOURCES[1], "", "get"),
        ("patch_policy_status", POLICY_RESOURCES[0], "status", "patch"),
        ("patch_cluster_policy_status", POLICY_RESOURCES[1], "status", "patch"),
    )
)
SET_DELETION_COST: Final = ApiCall(
    *("set_deletion_cost", "", "pods", "", "patch"),
    "the leader writes pod-deletion-cost where policies direct it",
    "has policies",
)
_RELEASE: Final[tuple[str, Need]] = ("the leader releases groups of gated pods", "releases groups")
GET_POD: Final = ApiCall("get_pod", "", "pods", "", "get", *_RELEASE)
RELEASE_POD: Final = ApiCall("release_pod", "", "pods", "", "patch", *_RELEASE)
READ_POD: Final = ApiCall(
    *("read_pod", "", "pods", "", "get"), "a pod that policies move, and its replacement, are read", "moves pods"
)
PLACEMENT: Final = _kept("placement", POLICY_GROUP, PLACEMENTS, (*_RELEASE, "all"), (*_RELEASE, "all"))
DELETE_PLACEMENT: Final = ApiCall("delete_placement", POLICY_GROUP, PLACEMENTS, "", "delete", *_RELEASE)
PATCH_PLACEMENT_STATUS: Final = ApiCall(
    "patch_placement_status", POLICY_GROUP, PLACEMENTS, "status", "patch", *_RELEASE
)

# Every row is a global of this module, and globals keep the order of their assignment. So a new row cannot be missing
# in the list.
API_CALLS: Final = tuple(
    call
    for each in tuple(globals().values())
    for call in (each if isinstance(each, KeptObject) else (each,))
    if isinstance(call, ApiCall)
)
"""Every call above, in order."""

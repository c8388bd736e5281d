"""The calls to the API server other than list and watch: name, permission, and the settings that need the call.

`kube.writer` makes each call by its row; the row's name is the label of the metric. `doctor.permissions` reviews the
permissions of the rows that the settings need, and deploy/base and deploy/bind grant exactly those of all rows. To add
a call, add a row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.model.group_placements import PLACEMENTS
from extender.model.policies import GROUP as POLICY_GROUP
from extender.settings.configuration import Settings
from extender.wire.webhook_configurations import GROUP as WEBHOOKS_GROUP
from extender.wire.webhook_configurations import MUTATING, POLICY_RESOURCES, VALIDATING

# Namespace and name of the one object that a call is about, empty for all of them; None where the settings leave it open.
Place = tuple[str, str] | None


def _anywhere(_settings: Settings) -> Place:
    return "", ""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One call. ``verb`` and the resource are those of RBAC; ``why`` tells the administrator what needs it."""

    name: str
    group: str
    resource: str
    subresource: str
    verb: str
    why: str
    is_needed: Callable[[Settings], bool]
    place: Callable[[Settings], Place] = _anywhere


def _preempts(settings: Settings) -> bool:
    return settings.preemption.mode == "execute"


# Preemption nominates and requeues as well, so these permissions are needed even if rejectedPods is off.
def _nominates(settings: Settings) -> bool:
    return settings.rejected_pods.nominate_elsewhere or _preempts(settings)


def _requeues(settings: Settings) -> bool:
    return settings.rejected_pods.requeue or _preempts(settings)


def _evicts(settings: Settings) -> bool:
    return _preempts(settings) and settings.preemption.eviction == "evict"


def _deletes(settings: Settings) -> bool:
    return _preempts(settings) and settings.preemption.eviction == "delete"


def _releases(settings: Settings) -> bool:
    return settings.policies.enabled and settings.release.enabled


def _binds(settings: Settings) -> bool:
    return bool(settings.server.paths.bind)


def _elects_a_leader(settings: Settings) -> bool:
    return settings.leader_election.enabled


def _lease(settings: Settings) -> Place:
    found = settings.leader_election
    return (found.lease_namespace, found.lease_name) if found.lease_namespace else None


def _lease_namespace(settings: Settings) -> Place:
    """RBAC cannot restrict create by name: the object does not exist yet."""
    namespace = settings.leader_election.lease_namespace
    return (namespace, "") if namespace else None


def _makes_certificates(settings: Settings) -> bool:
    return settings.policies.enabled and settings.policies.webhook.certificates == "own"


def _serves_a_webhook(settings: Settings) -> bool:
    return settings.policies.enabled


def _webhook_secret(settings: Settings) -> Place:
    webhook = settings.policies.webhook
    return (webhook.service_namespace, webhook.secret) if webhook.service_namespace else None


def _webhook_namespace(settings: Settings) -> Place:
    """Of the Secret; create cannot be restricted by name."""
    namespace = settings.policies.webhook.service_namespace
    return (namespace, "") if namespace else None


def _keeps_the_bundle(settings: Settings) -> bool:
    """Whether the leader writes caBundle. Where another writer does, a configuration that was deleted is theirs to apply."""
    webhook = settings.policies.webhook
    return settings.policies.enabled and (webhook.certificates == "own" or bool(webhook.ca_file))


def _publishes_its_endpoint(settings: Settings) -> bool:
    """Whether the API server finds the replicas by a Service."""
    return settings.policies.enabled and not settings.policies.webhook.url


def _webhook_configuration(settings: Settings) -> Place:
    return "", settings.policies.webhook.configuration


def _records_events(settings: Settings) -> bool:
    return _preempts(settings) or settings.policies.enabled or settings.rejected_pods.events


LEASES_GROUP: Final = "coordination.k8s.io"
EVENTS_GROUP: Final = "events.k8s.io"
ENDPOINTS_GROUP: Final = "discovery.k8s.io"

NOMINATE: Final = ApiCall(
    "nominate", "", "pods", "status", "patch", "nominations and preemption set nominatedNodeName", _nominates
)
SET_CONDITION: Final = ApiCall(
    "set_condition", "", "pods", "status", "patch", "preemption marks what it deletes as DisruptionTarget", _deletes
)
ANNOTATE: Final = ApiCall("annotate", "", "pods", "", "patch", "requeueing annotates pods", _requeues)
UID_OF: Final = ApiCall("uid_of", "", "pods", "", "get", "a write with a conflict reads the pod's UID", _preempts)
EVICT: Final = ApiCall("evict", "", "pods", "eviction", "create", "preemption.eviction is evict", _evicts)
DELETE: Final = ApiCall("delete", "", "pods", "", "delete", "preemption.eviction is delete", _deletes)
CREATE_EVENT: Final = ApiCall(
    *("create_event", EVENTS_GROUP, "events", "", "create"),
    "preemption records events about its victims, the leader about rejected pods, policies, pods that missed them, and groups of gated pods",
    _records_events,
)
BIND: Final = ApiCall("bind", "", "pods", "binding", "create", "server.paths.bind is set", _binds)
NODE_OF: Final = ApiCall("node_of", "", "pods", "", "get", "a binding without an answer reads the pod's node", _binds)
CREATE_LEASE: Final = ApiCall(
    "create_lease", LEASES_GROUP, "leases", "", "create", "leaderElection is on", _elects_a_leader, _lease_namespace
)
GET_LEASE: Final = ApiCall(
    "get_lease", LEASES_GROUP, "leases", "", "get", "leaderElection is on", _elects_a_leader, _lease
)
UPDATE_LEASE: Final = ApiCall(
    "update_lease", LEASES_GROUP, "leases", "", "update", "leaderElection is on", _elects_a_leader, _lease
)
_CERTIFICATES: Final = "policies.webhook.certificates is own"
GET_SECRET: Final = ApiCall("get_secret", "", "secrets", "", "get", _CERTIFICATES, _makes_certificates, _webhook_secret)
UPDATE_SECRET: Final = ApiCall(
    "update_secret", "", "secrets", "", "update", _CERTIFICATES, _makes_certificates, _webhook_secret
)
CREATE_SECRET: Final = ApiCall(
    "create_secret",
    *("", "secrets", "", "create"),
    *("the leader restores the Secret of the webhook's certificates if it is deleted", _makes_certificates),
    _webhook_namespace,
)
_WEBHOOKS: Final = "the leader keeps the webhook configurations of policies as the settings say"
GET_MUTATING_WEBHOOKS: Final = ApiCall(
    "get_mutating_webhooks", WEBHOOKS_GROUP, MUTATING, "", "get", _WEBHOOKS, _serves_a_webhook, _webhook_configuration
)
UPDATE_MUTATING_WEBHOOKS: Final = ApiCall(
    "update_mutating_webhooks",
    *(WEBHOOKS_GROUP, MUTATING, "", "update"),
    *(_WEBHOOKS, _serves_a_webhook, _webhook_configuration),
)
_DELETED: Final = "the leader restores a webhook configuration of policies that is deleted"
CREATE_MUTATING_WEBHOOKS: Final = ApiCall(
    "create_mutating_webhooks", WEBHOOKS_GROUP, MUTATING, "", "create", _DELETED, _keeps_the_bundle
)
GET_VALIDATING_WEBHOOKS: Final = ApiCall(
    "get_validating_webhooks",
    *(WEBHOOKS_GROUP, VALIDATING, "", "get"),
    *(_WEBHOOKS, _serves_a_webhook, _webhook_configuration),
)
UPDATE_VALIDATING_WEBHOOKS: Final = ApiCall(
    "update_validating_webhooks",
    *(WEBHOOKS_GROUP, VALIDATING, "", "update"),
    *(_WEBHOOKS, _serves_a_webhook, _webhook_configuration),
)
CREATE_VALIDATING_WEBHOOKS: Final = ApiCall(
    "create_validating_webhooks", WEBHOOKS_GROUP, VALIDATING, "", "create", _DELETED, _keeps_the_bundle
)
_ENDPOINT: Final = "each replica publishes where its webhook answers"
GET_ENDPOINT, CREATE_ENDPOINT, UPDATE_ENDPOINT, DELETE_ENDPOINT = (
    ApiCall(
        f"{verb}_endpoint",
        *(ENDPOINTS_GROUP, "endpointslices", "", verb),
        *(_ENDPOINT, _publishes_its_endpoint, _webhook_namespace),
    )
    for verb in ("get", "create", "update", "delete")
)

_STATUS: Final = "the leader writes the status of policies"
GET_POLICY: Final = ApiCall("get_policy", POLICY_GROUP, POLICY_RESOURCES[0], "", "get", _STATUS, _serves_a_webhook)
GET_CLUSTER_POLICY: Final = ApiCall(
    "get_cluster_policy", POLICY_GROUP, POLICY_RESOURCES[1], "", "get", _STATUS, _serves_a_webhook
)
PATCH_POLICY_STATUS: Final = ApiCall(
    "patch_policy_status", POLICY_GROUP, POLICY_RESOURCES[0], "status", "patch", _STATUS, _serves_a_webhook
)
PATCH_CLUSTER_POLICY_STATUS: Final = ApiCall(
    "patch_cluster_policy_status", POLICY_GROUP, POLICY_RESOURCES[1], "status", "patch", _STATUS, _serves_a_webhook
)
_RELEASE: Final = "the leader releases groups of gated pods"
GET_POD: Final = ApiCall("get_pod", "", "pods", "", "get", _RELEASE, _releases)
RELEASE_POD: Final = ApiCall("release_pod", "", "pods", "", "patch", _RELEASE, _releases)
GET_PLACEMENT: Final = ApiCall("get_placement", POLICY_GROUP, PLACEMENTS, "", "get", _RELEASE, _releases)
CREATE_PLACEMENT: Final = ApiCall("create_placement", POLICY_GROUP, PLACEMENTS, "", "create", _RELEASE, _releases)
UPDATE_PLACEMENT: Final = ApiCall("update_placement", POLICY_GROUP, PLACEMENTS, "", "update", _RELEASE, _releases)
DELETE_PLACEMENT: Final = ApiCall("delete_placement", POLICY_GROUP, PLACEMENTS, "", "delete", _RELEASE, _releases)
PATCH_PLACEMENT_STATUS: Final = ApiCall(
    "patch_placement_status", POLICY_GROUP, PLACEMENTS, "status", "patch", _RELEASE, _releases
)

API_CALLS: Final = tuple(each for each in tuple(globals().values()) if isinstance(each, ApiCall))
"""Every call above, in order."""

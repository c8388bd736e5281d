"""The kinds of the simulated API server, and the parser of its URLs.

To add a kind, add a row to `KINDS`. Called by the store and the request handlers.
"""

from dataclasses import dataclass, field

from extender.simulator.json_objects import JsonObject


@dataclass(frozen=True, slots=True, eq=False)
class ServedKind:
    """One resource: the names in its URL and in its objects. One object each, so that a look-up by it costs little."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_status: bool = True
    # The fields of a bookmark beside metadata: Go's zero value of the type.
    zero: JsonObject = field(default_factory=dict)

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`, as in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`pods` or `leases.coordination.k8s.io`, as in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


_SPEC_AND_STATUS: JsonObject = {"spec": {}, "status": {}}

PODS = ServedKind("pods", "Pod", zero={"spec": {"containers": None}, "status": {}})
NODES = ServedKind("nodes", "Node", namespaced=False, zero=_SPEC_AND_STATUS)
NAMESPACES = ServedKind("namespaces", "Namespace", namespaced=False, zero=_SPEC_AND_STATUS)
SERVICES = ServedKind("services", "Service", zero={"spec": {}, "status": {"loadBalancer": {}}})
REPLICATION_CONTROLLERS = ServedKind("replicationcontrollers", "ReplicationController", zero=_SPEC_AND_STATUS)
REPLICA_SETS = ServedKind("replicasets", "ReplicaSet", "apps", zero=_SPEC_AND_STATUS)
STATEFUL_SETS = ServedKind("statefulsets", "StatefulSet", "apps", zero=_SPEC_AND_STATUS)
# A real cluster shows the same objects in both groups of events. Here each group has a table of its own.
CORE_EVENTS = ServedKind("events", "Event", has_status=False)
EVENTS = ServedKind("events", "Event", "events.k8s.io", has_status=False)
LEASES = ServedKind("leases", "Lease", "coordination.k8s.io", has_status=False, zero={"spec": {}})
DISRUPTION_BUDGETS = ServedKind("poddisruptionbudgets", "PodDisruptionBudget", "policy", zero=_SPEC_AND_STATUS)
PRIORITY_CLASSES = ServedKind(
    "priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, has_status=False, zero={"value": 0}
)
RESOURCE_QUOTAS = ServedKind("resourcequotas", "ResourceQuota", zero=_SPEC_AND_STATUS)
SECRETS = ServedKind("secrets", "Secret", has_status=False)
DEPLOYMENTS = ServedKind("deployments", "Deployment", "apps", zero=_SPEC_AND_STATUS)
DAEMON_SETS = ServedKind("daemonsets", "DaemonSet", "apps", zero=_SPEC_AND_STATUS)
JOBS = ServedKind("jobs", "Job", "batch", zero=_SPEC_AND_STATUS)
CRON_JOBS = ServedKind("cronjobs", "CronJob", "batch", zero=_SPEC_AND_STATUS)
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = ServedKind(
    "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", _ADMISSION, namespaced=False, has_status=False
)
VALIDATING_WEBHOOKS = ServedKind(
    "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", _ADMISSION, namespaced=False, has_status=False
)


def custom_kind(kind: str, group: str, version: str, *, namespaced: bool = True) -> ServedKind:
    """A kind as a CRD with a status subresource makes it; its name ends with a y."""
    return ServedKind(f"{kind.lower()[:-1]}ies", kind, group, version, namespaced)


POLICY_KINDS = tuple(
    custom_kind(f"{scope}PodSchedulingPolicy", group, "v1alpha1", namespaced=not scope)
    for group in ("placement.extender.dev", "kupid.gardener.cloud")
    for scope in ("", "Cluster")
)
GROUP_PLACEMENTS = ServedKind("groupplacements", "GroupPlacement", "placement.extender.dev", "v1alpha1")
TOPOLOGY_DOMAINS = ServedKind(
    "topologydomains", "TopologyDomains", "placement.extender.dev", "v1alpha1", namespaced=False, has_status=False
)
OWN_POLICY_KINDS = tuple(kind for kind in POLICY_KINDS if kind.group == "placement.extender.dev")

KINDS = (
    PODS,
    NODES,
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    CORE_EVENTS,
    EVENTS,
    LEASES,
    DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    DEPLOYMENTS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    *POLICY_KINDS,
    GROUP_PLACEMENTS,
    TOPOLOGY_DOMAINS,
)
_BY_URL = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
_BY_OBJECT = {(kind.api_version, kind.kind): kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a URL. An empty name means the collection, an empty namespace all namespaces."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """The object's key in the store, which sorts as in etcd."""
        return f"{self.namespace}/{self.name}" if self.kind.namespaced else self.name


def kind_of(obj: JsonObject) -> ServedKind:
    """The kind of a complete object. Raises KeyError for a kind that is not in `KINDS`."""
    return _BY_OBJECT[obj["apiVersion"], obj["kind"]]


def key_of(kind: ServedKind, obj: JsonObject) -> str:
    """The key of an object of that kind in the store."""
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if kind.namespaced else str(metadata["name"])


def parse_path(path: str) -> Target | None:
    """Parses a path such as `/api/v1/namespaces/team-a/pods/web-1/binding`; None if it is not a resource."""
    match path.strip("/").split("/"):
        case ["api", version, first, *rest]:
            group = ""
        case ["apis", group, version, first, *rest]:
            pass
        case _:
            return None
    namespace, plural, names = "", first, rest
    # .../namespaces/team-a/pods are the pods in it; .../namespaces/team-a/status is the namespace itself with a
    # subresource.
    if first == "namespaces" and len(rest) > 1 and (group, version, rest[1]) in _BY_URL:
        namespace, plural, *names = rest
    kind = _BY_URL.get((group, version, plural))
    match names:
        case [] | [_] | [_, _] if kind is not None:
            name, subresource = (*names, "", "")[:2]
            return Target(kind, namespace, name, subresource)
        case _:
            return None

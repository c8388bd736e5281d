"""Every setting of the service with its default, and the strict parser of the configuration document.

Reads no file and no environment: `cli/files.py` does that and passes a mapping. In a document names are camelCase,
durations have Go's form ("15s"), sizes a suffix ("32Mi"). An unknown or wrong field is an error that names its path.
"""

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from extender.limit_settings import Limits
from extender.model.documents import Section, read_document, require_positive, without_nulls, write_document
from extender.model.labels import LabelKey, ObjectName
from extender.model.units import Address, ByteSize, Duration
from extender.policy_settings import Policies
from extender.quota_settings import Quota
from extender.release_settings import Release

API_VERSION: Final = "placement.extender.dev/v1alpha1"
KIND: Final = "ExtenderConfiguration"
DEFAULT_NAMESPACE: Final = "kube-system"  # of the Lease, outside of a pod: the namespace of kube-scheduler
# A verb at one of these paths would hide the service's own endpoint.
OWN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/metrics", "/configz", "/version", "/debug/loglevel"})

LEADER_JITTER: Final = 1.2  # as in client-go: a wait lasts 1 to 1.2 times the setting

Mode = Literal["offload", "augment"]

# The values that `null` stands for, by mode. In augment mode the in-tree plugins filter and score, so the same rules are
# off here, and filter removes no node that they could choose.
_BY_MODE: Final[dict[str, dict[tuple[str, ...], bool | int | str]]] = {
    "offload": {
        ("rules", "interPodAffinity", "enabled"): True,
        ("rules", "topologySpread", "enabled"): True,
        ("answers", "shortlist"): 50,
        ("placement",): "decisive",
    },
    "augment": {
        ("rules", "interPodAffinity", "enabled"): False,
        ("rules", "topologySpread", "enabled"): False,
        ("answers", "shortlist"): 0,
        ("placement",): "cooperative",
    },
}


class Logging(Section, frozen=True):
    """Level and format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Paths(Section, frozen=True):
    """The paths of the verbs: the scheduler's urlPrefix joined with the name of its verb.

    An empty `bind` disables the verb. It binds with the extender's account, so it is served only on request.
    """

    filter: str = "/filter"
    prioritize: str = "/prioritize"
    preempt: str = "/preempt"
    bind: str = ""

    def __post_init__(self) -> None:
        """Rejects paths that no request can reach, and equal paths."""
        taken = set(OWN_PATHS)
        for verb in self.__struct_fields__:
            path = getattr(self, verb)
            if verb == "bind" and not path:  # disabled
                continue
            if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
                raise ValueError(f'{verb}: expected a path such as "/filter", got "{path}"')
            if path in taken:
                raise ValueError(f'{verb}: "{path}" is taken')
            taken.add(path)


class Clients(Section, frozen=True):
    """The roles of clients, by the common name or an alternative name of their certificate.

    `scheduler` may call the verbs, `metrics` may read /metrics, `admin` may do everything. Without any name every
    certificate of the client CA has every role.
    """

    scheduler: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether any name is given, so that clients with other names are rejected."""
        return bool(self.scheduler or self.metrics or self.admin)


class Tls(Section, frozen=True):
    """HTTPS with PEM files, which are reloaded when they change. Without a certificate the server speaks plain HTTP.

    With a client CA every request but probes needs a certificate signed by it, and `clients` assigns the roles.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    clients: Clients = Clients()
    min_version: Literal["VersionTLS12", "VersionTLS13"] = "VersionTLS13"

    def __post_init__(self) -> None:
        """Rejects incomplete sets of files, which would not work or would only seem to protect."""
        for field, value, other, needed in (
            ("certFile", self.cert_file, "keyFile", self.key_file),
            ("keyFile", self.key_file, "certFile", self.cert_file),
            ("clientCAFile", self.client_ca_file, "certFile", self.cert_file),
            ("clients", self.clients.named, "clientCAFile", self.client_ca_file),
        ):
            if value and not needed:
                raise ValueError(f"{field}: needs {other}")


class Server(Section, frozen=True):
    """The HTTP server. `max_in_flight` limits the verb requests that are decided at a time.

    For `max_connections_per_peer` all loopback addresses are one peer.
    """

    bind_address: Address = Address("127.0.0.1:8888")
    max_body_bytes: ByteSize = ByteSize(8 * 2**20)
    request_timeout: Duration = Duration(4)  # below the scheduler's httpTimeout, 5 s by default
    on_deadline: Literal["error", "pass"] = "error"
    max_in_flight: Annotated[int, Meta(ge=1)] = 100  # a scheduler sends one call at a time, and a bind for each pod
    max_connections: Annotated[int, Meta(ge=1)] = 1024
    max_connections_per_peer: Annotated[int, Meta(ge=1)] = 512
    idle_timeout: Duration = Duration(120)  # above the 90 s after which Go's client closes an idle connection
    tls: Tls = Tls()
    paths: Paths = Paths()

    def __post_init__(self) -> None:
        """Rejects limits under which no request could be answered."""
        require_positive(self, "request_timeout", "max_body_bytes", "idle_timeout")


class Backoff(Section, frozen=True):
    """The wait after a failure: `initial`, doubled after each further failure up to `max`, with jitter."""

    initial: Duration = Duration(0.8)
    max: Duration = Duration(30)

    def __post_init__(self) -> None:
        """Rejects a zero wait, which would retry in a busy loop, and a `max` below `initial`."""
        require_positive(self, "initial")
        if self.max < self.initial:
            raise ValueError(f'max: must not be less than initial, "{self.initial}"')


class Watch(Section, frozen=True):
    """How reflectors list and watch. `inactivity_timeout` counts from the last event or bookmark."""

    inactivity_timeout: Duration = Duration(150)  # two missed bookmarks, which come every minute
    list_page_size: Annotated[int, Meta(ge=1)] = 500  # as in client-go
    watch_list: bool = True  # KEP-3157; pages are listed where the API server does not support it
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        """Rejects a timeout that would end every watch at once."""
        require_positive(self, "inactivity_timeout")


class Kube(Section, frozen=True):
    """The connection to the API server (config/extender.yaml says where it looks), and answers while watches lag."""

    kubeconfig: str = ""
    context: str = ""
    on_stale: Literal["error", "pass"] = "error"
    unknown_pod_wait: Duration = Duration(0.5)
    watch: Watch = Watch()


class InterPodAffinity(Section, frozen=True):
    """InterPodAffinityArgs of KubeSchedulerConfiguration, and whether the extender decides inter-pod affinity."""

    enabled: bool = True
    hard_pod_affinity_weight: Annotated[int, Meta(ge=0, le=100)] = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultConstraint(Section, frozen=True):
    """A spread constraint for pods without one. It has no selector: that is derived from each pod's workload."""

    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Meta(ge=1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"

    def __post_init__(self) -> None:
        """Rejects minDomains of a soft constraint, as the Kubernetes API does."""
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("minDomains: may only be set with whenUnsatisfiable DoNotSchedule")


class TopologySpread(Section, frozen=True):
    """PodTopologySpreadArgs of KubeSchedulerConfiguration, and whether the extender decides topology spread."""

    enabled: bool = True
    defaulting_type: Literal["System", "List"] = "System"
    default_constraints: tuple[DefaultConstraint, ...] = ()

    def __post_init__(self) -> None:
        """As kube-scheduler: rejects a list without List, and two constraints with the same key and action."""
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints: must be empty when defaultingType is System")
        seen: set[tuple[str, str]] = set()
        for number, constraint in enumerate(self.default_constraints):
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ValueError(f"defaultConstraints[{number}]: {pair[0]} with {pair[1]} is listed twice")
            seen.add(pair)


class Rules(Section, frozen=True):
    """The scheduling rules that the extender decides. `enabled` of each depends on the mode unless it is set."""

    inter_pod_affinity: InterPodAffinity = InterPodAffinity()
    topology_spread: TopologySpread = TopologySpread()


class Answers(Section, frozen=True):
    """The contents of answers. `shortlist` limits the nodes in a filter answer; 0 means all that pass."""

    score_scale: Literal["extender", "inTree"] = "extender"
    shortlist: Annotated[int, Meta(ge=0)] = 50
    rejection_cache_bytes: ByteSize = ByteSize(16 * 2**20)


class AssumedPods(Section, frozen=True):
    """How long a pod stays assumed without a binding, and how long a request waits for the node of an assumed pod."""

    enabled: bool = True
    expiry: Duration = Duration(120)  # longer than slow volume binding
    wait: Duration = Duration(1)  # far below request_timeout, and above the usual time of a binding
    failure_grace: Duration = Duration(2)  # an earlier failure belongs to the pod's previous attempt
    doubt: Duration = Duration(5)

    def __post_init__(self) -> None:
        """Rejects an expiry under which no pod would be assumed at all."""
        require_positive(self, "expiry", "doubt")


class RejectedPods(Section, frozen=True):
    """Writes that make kube-scheduler try rejected pods again, at most `per_second` of each of the two kinds; and events."""

    nominate_elsewhere: bool = True
    requeue: bool = True
    events: bool = True
    per_second: Annotated[int, Meta(ge=1)] = 50


class Preemption(Section, frozen=True):
    """How the extender preempts. `deadline` limits the writes of one preemption, `stuck_after` the wait for its success."""

    mode: Literal["advise", "execute", "off"] = "execute"
    eviction: Literal["delete", "evict"] = "delete"
    cross_node: bool = False
    max_parallel_deletes: Annotated[int, Meta(ge=1)] = 32
    writes_per_second: Annotated[int, Meta(ge=1)] = 500
    deadline: Duration = Duration(30)
    stuck_after: Duration = Duration(60)
    backoff: Backoff = Backoff(initial=Duration(0.1), max=Duration(5))

    def __post_init__(self) -> None:
        """Rejects times in which no preemption could finish."""
        require_positive(self, "deadline", "stuck_after")


class Audit(Section, frozen=True):
    """The audit, which recounts the index step by step (some nodes, or one group). A `pause` of 0 disables it."""

    pause: Duration = Duration(0.5)


class Recorder(Section, frozen=True):
    """The recording of questions, answers and changes for `extender replay`. An empty `path` disables it.

    `sampling` is the share of questions that are recorded; changes always are. `max_bytes` limits the file and the one
    before it together.
    """

    path: str = ""
    sampling: Annotated[float, Meta(ge=0, le=1)] = 1.0
    max_bytes: ByteSize = ByteSize(2**30)

    def __post_init__(self) -> None:
        """Rejects a limit that leaves room for nothing."""
        require_positive(self, "max_bytes")


class LeaderElection(Section, frozen=True):
    """Leader election by a Lease: only the leader answers and writes. An empty namespace is that of the extender's pod.

    The times are shorter than client-go's (15, 10 and 2 s): without a leader the scheduler places no pod.
    """

    enabled: bool = False
    lease_name: ObjectName = ObjectName("placement-extender")
    lease_namespace: str = ""
    lease_duration: Duration = Duration(4)
    renew_deadline: Duration = Duration(2.5)
    retry_period: Duration = Duration(0.5)
    takeover_wait: Duration = Duration(1)

    def __post_init__(self) -> None:
        """As client-go does: https://pkg.go.dev/k8s.io/client-go/tools/leaderelection#NewLeaderElector."""
        require_positive(self, "lease_duration", "renew_deadline", "retry_period")
        if self.lease_duration % 1:
            raise ValueError("leaseDuration: the Lease holds whole seconds only")
        # A leader must have stopped before another replica may take over.
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(f'leaseDuration: must be more than renewDeadline, "{self.renew_deadline}"')
        if self.renew_deadline <= self.retry_period * LEADER_JITTER:
            raise ValueError(f'renewDeadline: must be more than {LEADER_JITTER} × retryPeriod, "{self.retry_period}"')


class Settings(Section, frozen=True):
    """The whole configuration. `Settings()` equals an empty document: offload mode with all defaults."""

    api_version: Literal["placement.extender.dev/v1alpha1"] = API_VERSION
    kind: Literal["ExtenderConfiguration"] = KIND
    mode: Mode = "offload"
    placement: Literal["decisive", "cooperative"] = "decisive"
    logging: Logging = Logging()
    server: Server = Server()
    kube: Kube = Kube()
    rules: Rules = Rules()
    answers: Answers = Answers()
    limits: Limits = Limits()
    assumed_pods: AssumedPods = AssumedPods()
    leader_election: LeaderElection = LeaderElection()
    rejected_pods: RejectedPods = RejectedPods()
    audit: Audit = Audit()
    recorder: Recorder = Recorder()
    preemption: Preemption = Preemption()
    policies: Policies = Policies()
    quota: Quota = Quota()
    release: Release = Release()

    def __post_init__(self) -> None:
        """Rejects combinations that each section allows and the mode does not."""
        if self.mode == "augment" and self.answers.score_scale == "inTree":
            raise ValueError("answers.scoreScale: inTree needs mode offload; in augment mode the plugins score too")
        if self.quota.enabled and not self.assumed_pods.enabled:
            raise ValueError(
                "quota.enabled: needs assumedPods.enabled; else a pod would not count before it is seen bound"
            )
        if self.mode == "offload" and not (self.rules.inter_pod_affinity.enabled or self.rules.topology_spread.enabled):
            raise ValueError("rules: mode offload with both rules off leaves nothing to decide")


def parse_settings(document: object) -> Settings:
    """Builds the settings from a parsed document; `null` is the default. Raises DocumentError with every problem."""
    return read_document(_with_mode_defaults(document), Settings, required=("apiVersion", "kind"))


def default_settings(mode: Mode) -> Settings:
    """The settings of a document that sets only the mode."""
    return parse_settings({"apiVersion": API_VERSION, "kind": KIND, "mode": mode})


def mode_defaults(mode: Mode) -> dict[str, bool | int | str]:
    """The defaults that depend on the mode, by dotted path."""
    return {".".join(path): value for path, value in _BY_MODE[mode].items()}


def settings_document(settings: Settings) -> dict[str, Any]:
    """The settings as a document, as `/configz` shows them; `parse_settings` of it returns the same settings."""
    return write_document(settings)


def _with_mode_defaults(document: object) -> object:
    """A copy without nulls, with the defaults that depend on the mode written out."""
    # Written out before the document is decoded, because msgspec's defaults cannot depend on another field.
    resolved = without_nulls(document)
    if not isinstance(resolved, dict):
        return resolved
    for path, value in _BY_MODE.get(str(resolved.get("mode", "offload")), {}).items():
        section: Any = resolved
        for name in path[:-1]:
            section = section.setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.setdefault(path[-1], value)
    return resolved

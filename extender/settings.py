"""Every setting of the service, with its default, and the strict reading of a configuration document.

No file and no environment is read here: `cli/files.py` does that and hands over a mapping. Values are frozen and
travel as arguments; every field is in use. In a document names are camelCase, durations are Go's ("15s"),
sizes have a suffix ("32Mi"), and a field that is unknown or of the wrong type is refused with its path.
"""

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from extender.model.documents import read_document, without_nulls, write_document
from extender.model.labels import LabelKey, ObjectName
from extender.model.units import Address, ByteSize, Duration

API_VERSION: Final = "placement.extender.dev/v1alpha1"
KIND: Final = "ExtenderConfiguration"
DEFAULT_NAMESPACE: Final = "kube-system"  # of the Lease outside of a pod: where static pods and schedulers live
OWN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/metrics", "/configz", "/version", "/debug/loglevel"})

LEADER_JITTER: Final = 1.2  # client-go's: a wait is drawn between once and so many times its length

Mode = Literal["offload", "augment"]

# What `null` stands for, by mode: in augment mode the in-tree plugins decide and score, so the copies of them here are off,
# and the scheduler's own answers are not cut short.
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


def _require_positive(section: Struct, *names: str) -> None:
    """Refuse a duration or a size of zero."""
    for field in msgspec.structs.fields(section):
        if field.name in names and getattr(section, field.name) <= 0:
            raise ValueError(f"{field.encode_name}: must be more than zero")


class _Section(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all parts of the document have in common."""


class Logging(_Section, frozen=True):
    """How much is logged, and in which form."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Paths(_Section, frozen=True):
    """Where the verbs answer; the scheduler joins its urlPrefix and the verb's name.

    An empty `bind` is off: binding uses the service account of the extender, so it is offered only where the scheduler is to use it.
    """

    filter: str = "/filter"
    prioritize: str = "/prioritize"
    preempt: str = "/preempt"
    bind: str = ""

    def __post_init__(self) -> None:
        """Refuse paths that a request could not reach, or that would hide one another."""
        taken = set(OWN_PATHS)
        for verb in self.__struct_fields__:
            path = getattr(self, verb)
            if verb == "bind" and not path:
                continue
            if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", path):
                raise ValueError(f'{verb}: expected a path such as "/filter", got "{path}"')
            if path in taken:
                raise ValueError(f'{verb}: "{path}" is taken')
            taken.add(path)


class Clients(_Section, frozen=True):
    """Who may ask what, by the names in client certificates: common names, or alternative names.

    `scheduler` asks the verbs, `metrics` reads /metrics, `admin` does everything. Without any name every certificate of
    the client CA may do everything.
    """

    scheduler: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether any name is given, so that all others are refused."""
        return bool(self.scheduler or self.metrics or self.admin)


class Tls(_Section, frozen=True):
    """HTTPS, from PEM files that are read again when they change. Without a certificate it is plain HTTP.

    With a client CA only probes are answered without a certificate of it, and `clients` says who may ask what.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    clients: Clients = Clients()
    min_version: Literal["VersionTLS12", "VersionTLS13"] = "VersionTLS13"

    def __post_init__(self) -> None:
        """Refuse halves: each file without which another would do nothing, or would seem to protect."""
        for field, value, other, needed in (
            ("certFile", self.cert_file, "keyFile", self.key_file),
            ("keyFile", self.key_file, "certFile", self.cert_file),
            ("clientCAFile", self.client_ca_file, "certFile", self.cert_file),
            ("clients", self.clients.named, "clientCAFile", self.client_ca_file),
        ):
            if value and not needed:
                raise ValueError(f"{field}: needs {other}")


class Server(_Section, frozen=True):
    """The HTTP side. `max_in_flight` counts verb requests that are being decided.

    `max_connections_per_peer` counts all of loopback as one peer.
    """

    bind_address: Address = Address("127.0.0.1:8888")
    max_body_bytes: ByteSize = ByteSize(8 * 2**20)
    request_timeout: Duration = Duration(4)
    on_deadline: Literal["error", "pass"] = "error"
    max_in_flight: Annotated[int, Meta(ge=1)] = 100
    max_connections: Annotated[int, Meta(ge=1)] = 1024
    max_connections_per_peer: Annotated[int, Meta(ge=1)] = 512
    idle_timeout: Duration = Duration(120)
    tls: Tls = Tls()
    paths: Paths = Paths()

    def __post_init__(self) -> None:
        """Refuse limits under which no request could be answered."""
        _require_positive(self, "request_timeout", "max_body_bytes", "idle_timeout")


class Backoff(_Section, frozen=True):
    """How long to wait after a failure: doubled each time from `initial` to `max`, with jitter."""

    initial: Duration = Duration(0.8)
    max: Duration = Duration(30)

    def __post_init__(self) -> None:
        """Refuse a back-off that would spin or shrink."""
        _require_positive(self, "initial")
        if self.max < self.initial:
            raise ValueError(f'max: must not be less than initial, "{self.initial}"')


class Watch(_Section, frozen=True):
    """How the cluster is read. `inactivity_timeout` is measured from the last event or bookmark."""

    inactivity_timeout: Duration = Duration(150)
    list_page_size: Annotated[int, Meta(ge=1)] = 500
    watch_list: bool = True
    backoff: Backoff = Backoff()

    def __post_init__(self) -> None:
        """Refuse a timeout that would cut every watch at once."""
        _require_positive(self, "inactivity_timeout")


class Kube(_Section, frozen=True):
    """Which cluster (empty: left to the surroundings), and how long a request waits for the watch to show its pod."""

    kubeconfig: str = ""
    context: str = ""
    on_stale: Literal["error", "pass"] = "error"
    unknown_pod_wait: Duration = Duration(0.5)
    watch: Watch = Watch()


class InterPodAffinity(_Section, frozen=True):
    """As InterPodAffinityArgs of KubeSchedulerConfiguration, and whether the extender decides the rule."""

    enabled: bool = True
    hard_pod_affinity_weight: Annotated[int, Meta(ge=0, le=100)] = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultConstraint(_Section, frozen=True):
    """A spread constraint for pods that bring none; its selector is deduced for each pod, so it has none here."""

    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Meta(ge=1)] | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"

    def __post_init__(self) -> None:
        """As the API does: minDomains has a meaning for hard constraints only."""
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("minDomains: may only be set with whenUnsatisfiable DoNotSchedule")


class TopologySpread(_Section, frozen=True):
    """As PodTopologySpreadArgs of KubeSchedulerConfiguration, and whether the extender decides the rule."""

    enabled: bool = True
    defaulting_type: Literal["System", "List"] = "System"
    default_constraints: tuple[DefaultConstraint, ...] = ()

    def __post_init__(self) -> None:
        """As kube-scheduler does: a list only with List, and no pair of key and action twice."""
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints: must be empty when defaultingType is System")
        seen: set[tuple[str, str]] = set()
        for number, constraint in enumerate(self.default_constraints):
            pair = (constraint.topology_key, constraint.when_unsatisfiable)
            if pair in seen:
                raise ValueError(f"defaultConstraints[{number}]: {pair[0]} with {pair[1]} stands there twice")
            seen.add(pair)


class Rules(_Section, frozen=True):
    """The scheduling rules that the extender decides; whether each is on follows the mode unless the document says so."""

    inter_pod_affinity: InterPodAffinity = InterPodAffinity()
    topology_spread: TopologySpread = TopologySpread()


class Answers(_Section, frozen=True):
    """What an answer looks like. A `shortlist` of 0 names every node that passes; else at most so many."""

    score_scale: Literal["extender", "inTree"] = "extender"
    shortlist: Annotated[int, Meta(ge=0)] = 50
    rejection_cache_bytes: ByteSize = ByteSize(16 * 2**20)


AtLeastOne = Annotated[int, Meta(ge=1)]


class Limits(_Section, frozen=True, cache_hash=True):
    """What one pod may ask for, each number for the whole pod. `pod_bytes`: labels and constraints as JSON.

    A pod above a limit is rejected in offload mode and left to the in-tree plugins in augment mode.
    """

    pod_bytes: ByteSize = ByteSize(64 * 2**10)
    affinity_terms: AtLeastOne = 100
    topology_spread_constraints: AtLeastOne = 32
    topology_keys: AtLeastOne = 16
    namespaces: AtLeastOne = 500
    label_requirements: AtLeastOne = 500
    node_selector_terms: AtLeastOne = 100
    node_requirements: AtLeastOne = 200
    selector_values: AtLeastOne = 2000
    tolerations: AtLeastOne = 100

    def __post_init__(self) -> None:
        """Refuse a limit that no pod could keep."""
        _require_positive(self, "pod_bytes")


class AssumedPods(_Section, frozen=True):
    """How long a pod is assumed without a binding, and how long a request waits for an assumed pod's node."""

    enabled: bool = True
    expiry: Duration = Duration(120)
    wait: Duration = Duration(1)
    failure_grace: Duration = Duration(2)
    doubt: Duration = Duration(5)

    def __post_init__(self) -> None:
        """Refuse an expiry under which no pod would be assumed at all."""
        _require_positive(self, "expiry", "doubt")


class RejectedPods(_Section, frozen=True):
    """Writes that get refused pods asked about again. `per_second` limits both kinds together."""

    nominate_elsewhere: bool = True
    requeue: bool = True
    per_second: Annotated[int, Meta(ge=1)] = 50


class Preemption(_Section, frozen=True):
    """Who preempts, and how. `deadline` bounds the writes of one preemption, `stuck_after` the wait for its success."""

    mode: Literal["advise", "execute", "off"] = "execute"
    eviction: Literal["delete", "evict"] = "delete"
    cross_node: bool = False
    max_parallel_deletes: Annotated[int, Meta(ge=1)] = 32
    writes_per_second: Annotated[int, Meta(ge=1)] = 500
    deadline: Duration = Duration(30)
    stuck_after: Duration = Duration(60)
    backoff: Backoff = Backoff(initial=Duration(0.1), max=Duration(5))

    def __post_init__(self) -> None:
        """Refuse times in which nothing could be done."""
        _require_positive(self, "deadline", "stuck_after")


class Audit(_Section, frozen=True):
    """Recounting while the service runs: one step (some nodes, or one group) after each pause. A pause of 0: never."""

    pause: Duration = Duration(0.5)


class LeaderElection(_Section, frozen=True):
    """Which of several replicas answers and writes, by a Lease. An empty namespace is that of the extender's pod.

    The times are shorter than client-go's (15, 10 and 2 s): a controller without a leader is late, but a scheduler whose
    extender does not answer places no pod at all.
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
        _require_positive(self, "lease_duration", "renew_deadline", "retry_period")
        if self.lease_duration % 1:
            raise ValueError("leaseDuration: the Lease holds whole seconds only")
        if self.lease_duration <= self.renew_deadline:
            raise ValueError(f'leaseDuration: must be more than renewDeadline, "{self.renew_deadline}"')
        if self.renew_deadline <= self.retry_period * LEADER_JITTER:
            raise ValueError(f'renewDeadline: must be more than {LEADER_JITTER} × retryPeriod, "{self.retry_period}"')


class Settings(_Section, frozen=True):
    """The whole configuration. `Settings()` is what an empty document means: offload mode with all defaults."""

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
    preemption: Preemption = Preemption()

    def __post_init__(self) -> None:
        """Refuse what each part allows by itself but the mode does not."""
        if self.mode == "augment" and self.answers.score_scale == "inTree":
            raise ValueError("answers.scoreScale: inTree needs mode offload; in augment mode the plugins score too")
        if self.mode == "offload" and not (self.rules.inter_pod_affinity.enabled or self.rules.topology_spread.enabled):
            raise ValueError("rules: mode offload with both rules off leaves nothing to decide")


def parse_settings(document: object) -> Settings:
    """Build the settings from a parsed document, `null` being the default. Raises DocumentError with every problem."""
    return read_document(_with_mode_defaults(document), Settings, required=("apiVersion", "kind"))


def default_settings(mode: Mode) -> Settings:
    """What a document means that sets the mode and nothing else."""
    return parse_settings({"apiVersion": API_VERSION, "kind": KIND, "mode": mode})


def mode_defaults(mode: Mode) -> dict[str, bool | int | str]:
    """By dotted path the defaults that depend on the mode."""
    return {".".join(path): value for path, value in _BY_MODE[mode].items()}


def settings_document(settings: Settings) -> dict[str, Any]:
    """The settings in the form of a document, as `/configz` shows them; `parse_settings` gives the same back."""
    return write_document(settings)


def _with_mode_defaults(document: object) -> object:
    """A copy without nulls, in which the defaults that hang on the mode are written out."""
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

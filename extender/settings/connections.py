"""The settings of the log and of both sides of the connections: the sections `logging`, `server` and `kube`."""

import re
from typing import Final, Literal

import msgspec

from extender.model.documents import AtLeastOne, Section, require_positive
from extender.model.units import Address, ByteSize, Duration

# A verb at one of these paths would hide one of the service's own endpoints.
OWN_PATHS: Final = frozenset({"/livez", "/readyz", "/healthz", "/metrics", "/configz", "/version", "/debug/loglevel"})


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

    `scheduler` may call the verbs, `metrics` may read /metrics, `admin` may do everything. If no name is given, every
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

    With a client CA every request, except probes, needs a certificate that it has signed. `clients` assigns the roles.
    """

    cert_file: str = ""
    key_file: str = ""
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    clients: Clients = Clients()
    min_version: Literal["VersionTLS12", "VersionTLS13"] = "VersionTLS13"

    def __post_init__(self) -> None:
        for field, value, other, needed in (
            ("certFile", self.cert_file, "keyFile", self.key_file),
            ("keyFile", self.key_file, "certFile", self.cert_file),
            ("clientCAFile", self.client_ca_file, "certFile", self.cert_file),
            ("clients", self.clients.named, "clientCAFile", self.client_ca_file),
        ):
            if value and not needed:
                raise ValueError(f"{field}: needs {other}")


_LONGEST_NAME: Final = 64


class Server(Section, frozen=True):
    """The HTTP server."""

    bind_address: Address = Address("127.0.0.1:8888")
    max_body_bytes: ByteSize = ByteSize(8 * 2**20)
    request_timeout: Duration = Duration(4)  # below the scheduler's httpTimeout, 5 s by default
    on_deadline: Literal["error", "pass"] = "error"
    # Verb requests that are decided at a time. A scheduler sends one call at a time, and a bind for each pod.
    max_in_flight: AtLeastOne = 100
    # Bindings that wait for the API server.
    max_binds_in_flight: AtLeastOne = 8192
    # Connections without a complete request. All loopback addresses are one peer.
    max_connections: AtLeastOne = 1024
    max_connections_per_peer: AtLeastOne = 512
    idle_timeout: Duration = Duration(120)  # above the 90 s after which Go's client closes an idle connection
    # Whether the page at /ui/ is served.
    page: bool = True
    # Names, beside addresses and localhost, under which a reverse proxy on this machine forwards requests.
    hosts: tuple[str, ...] = ()
    # What the page calls the cluster. The Kubernetes API has no name of a cluster.
    cluster_name: str = ""
    tls: Tls = Tls()
    paths: Paths = Paths()

    def __post_init__(self) -> None:
        require_positive(self, "request_timeout", "max_body_bytes", "idle_timeout")
        if len(self.cluster_name) > _LONGEST_NAME:
            raise ValueError(f"clusterName: has more than {_LONGEST_NAME} characters")


class BackoffSettings(Section, frozen=True):
    """The wait after a failure: `initial`, doubled after each further failure up to `max`, with jitter."""

    initial: Duration = Duration(0.8)
    max: Duration = Duration(30)

    def __post_init__(self) -> None:
        """Rejects a wait of zero, which would retry in a busy loop, and a `max` below `initial`."""
        require_positive(self, "initial")
        if self.max < self.initial:
            raise ValueError(f'max: must not be less than initial, "{self.initial}"')


class WatchSettings(Section, frozen=True):
    """How reflectors list and watch. `inactivity_timeout` counts from the last event or bookmark."""

    inactivity_timeout: Duration = Duration(150)  # two missed bookmarks, which come every minute
    list_page_size: AtLeastOne = 500  # as in client-go
    watch_list: bool = True  # KEP-3157; pages are listed where the API server does not support it
    backoff: BackoffSettings = BackoffSettings()

    def __post_init__(self) -> None:
        require_positive(self, "inactivity_timeout")


class Kube(Section, frozen=True):
    """The connection to the API server (config/extender.yaml says where it looks), and answers while watches lag."""

    kubeconfig: str = ""
    context: str = ""
    on_stale: Literal["error", "pass"] = "error"
    unknown_pod_wait: Duration = Duration(0.5)
    watch: WatchSettings = WatchSettings()

"""The settings of scheduling policies, their webhook and the release of gated pods: the sections `policies` and `release`.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from extender.model.constraints.labels import ObjectName, is_dns_label
from extender.model.documents import AtLeastOne, Section, require_positive
from extender.model.policies import Exempt
from extender.model.units import Address, Duration

_KIND: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/v[a-z0-9]+/[A-Z][A-Za-z0-9]*")
_POINTER: Final = re.compile(r"(/([^/~]|~[01])+)+")  # RFC 6901; `*` stands for each item of a list
_DAY: Final = 86_400
_SHORTEST_LIFETIME: Final = 60  # seconds
_LONGEST_DRAIN: Final = 20
_LONGEST_TIMEOUT: Final = 30  # seconds; the API server accepts no more

# own: a CA of the extender's own, rotated by the leader and kept in a Secret. files: PEM files, and a caBundle from a file.
# cert-manager: PEM files, and the caBundle is left to cert-manager's CA injector.
CertificateSource = Literal["own", "files", "cert-manager"]


class Webhook(Section, frozen=True):
    """The admission webhook: where it listens, how the API server reaches it, and its certificates.

    The API server uses ``url`` where it is set, else the Service. ``timeout`` is the API server's; the webhook answers
    before it is over. ``lifetime`` is that of own certificates, which are replaced after two thirds of it. ``drain``: for how
    long a replica that is stopped still answers, until no API server calls it any more. ``client_ca_file``: only clients with a
    certificate of it are answered, and of these one of ``clients`` where it has names.
    """

    bind_address: Address = Address("0.0.0.0:9443")
    timeout: Duration = Duration(3)
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    configuration: ObjectName = ObjectName("placement-extender")
    service: ObjectName = ObjectName("placement-extender-webhook")
    service_namespace: str = ""
    url: str = ""
    certificates: CertificateSource = "own"
    secret: ObjectName = ObjectName("placement-extender-webhook")
    lifetime: Duration = Duration(90 * _DAY)
    drain: Duration = Duration(5)
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = msgspec.field(default="", name="caFile")
    client_ca_file: str = msgspec.field(default="", name="clientCAFile")
    clients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "timeout")
        if self.timeout % 1 or self.timeout > _LONGEST_TIMEOUT:
            raise ValueError(f"timeout: the API server accepts whole seconds up to {_LONGEST_TIMEOUT}s")
        if not 0 <= self.drain <= _LONGEST_DRAIN:
            raise ValueError(f"drain: must be between 0s and {_LONGEST_DRAIN}s, which a pod has until it is killed")
        if self.lifetime < _SHORTEST_LIFETIME:
            raise ValueError("lifetime: must be at least 1m, so that there is time for the steps of a rotation")
        if self.url and (urlsplit(self.url).scheme != "https" or not urlsplit(self.url).hostname):
            raise ValueError(f'url: expected a URL such as "https://10.0.0.7:9443", got "{self.url}"')
        if self.service_namespace and not is_dns_label(self.service_namespace):
            raise ValueError(f'serviceNamespace: "{self.service_namespace}" is no name of a namespace')
        self._check_files()

    def _check_files(self) -> None:
        has_files = self.certificates != "own"
        for field, value in (("certFile", self.cert_file), ("keyFile", self.key_file)):
            if bool(value) != has_files:
                raise ValueError(
                    f"{field}: {'needed' if has_files else 'not used'} with certificates {self.certificates}"
                )
        if self.clients and not self.client_ca_file:
            raise ValueError("clients: needs clientCAFile")
        if self.ca_file and self.certificates != "files":
            raise ValueError(f"caFile: not used with certificates {self.certificates}")


class Exemptions(Section, frozen=True):
    """What takes pods out of policies by something that a tenant can write, so that the platform has to allow it.

    ``label_in``: namespaces where the label `placement.extender.dev/exempt: "true"` exempts an object from all policies, or
    ``*``. ``daemon_sets_by``: users whose pods with a DaemonSet as their owner get no gate. ``scheduling_groups``: pods with a
    schedulingGroup get no gate (KEP-5732).
    """

    label_in: tuple[str, ...] = ()
    daemon_sets_by: tuple[str, ...] = (
        "system:serviceaccount:kube-system:daemon-set-controller",
        "system:kube-controller-manager",
    )
    scheduling_groups: bool = False

    def __post_init__(self) -> None:
        for namespace in self.label_in:
            if namespace != "*" and not is_dns_label(namespace):
                raise ValueError(f'labelIn: "{namespace}" is no name of a namespace, and not "*"')
        if "" in self.daemon_sets_by:
            raise ValueError("daemonSetsBy: a user has no empty name")


class Policies(Section, frozen=True):
    """Scheduling policies. ``templates``: by group/version/Kind of a custom resource the place of its pod template.

    ``max_terms``: required node selector terms that policies may make of those of a pod, which multiply with theirs.
    ``max_templates``: pod templates of one object, as those of a JobSet. ``max_of_cluster`` and ``max_per_namespace``: policies of
    the cluster-wide kind, and of one namespace, that are in effect. ``max_per_pod``: how many of those are applied to one pod; of
    more the first in order are, and the others fail by their failurePolicy.
    """

    enabled: bool = False
    kupid: bool = False
    templates: dict[str, str] = msgspec.field(
        default_factory=lambda: {"argoproj.io/v1alpha1/Rollout": "/spec/template"}
    )
    exempt_namespaces: tuple[str, ...] = ("kube-system",)
    exemptions: Exemptions = Exemptions()
    max_terms: AtLeastOne = 64
    max_templates: AtLeastOne = 100
    max_of_cluster: AtLeastOne = 2000
    max_per_namespace: AtLeastOne = 100
    max_per_pod: AtLeastOne = 100
    webhook: Webhook = Webhook()

    def __post_init__(self) -> None:
        for kind, path in self.templates.items():
            if not _KIND.fullmatch(kind):
                raise ValueError(f'templates: expected a kind such as "argoproj.io/v1alpha1/Rollout", got "{kind}"')
            if not _POINTER.fullmatch(path):
                raise ValueError(f'templates: expected a path such as "/spec/template" for {kind}, got "{path}"')
        for namespace in self.exempt_namespaces:
            if not is_dns_label(namespace):
                raise ValueError(f'exemptNamespaces: "{namespace}" is no name of a namespace')

    @property
    def exempt(self) -> Exempt:
        """What no policy applies to."""
        return Exempt(self.exempt_namespaces, self.exemptions.label_in)

    def exempting(self, namespace: str) -> Self:
        """The same with one more exempt namespace: the extender's own, whose pods must not wait for the extender itself."""
        if not namespace or namespace in self.exempt_namespaces:
            return self
        return msgspec.structs.replace(self, exempt_namespaces=(*self.exempt_namespaces, namespace))


class Release(Section, frozen=True):
    """The release of groups of gated pods, where scheduling policies are enabled.

    ``patches_per_second`` and ``max_parallel_patches`` apply to all groups together. ``reservation``: how long room is kept
    for released pods that are not bound, ``unasked``: and how long after their scheduler asked last, where it has asked about none of
    the group. ``expectation``: after so long a released pod that the watch still shows as gated is
    read. ``keep_empty``: how long the decision of a group without pods is kept. ``orphan_grace``: how long a pod keeps our
    gate when no policy releases it. A namespace has at most ``groups_per_namespace`` groups, and ``pods_per_namespace``
    pods in them, for which room is reserved at a time, as many that wait for nodes as an autoscaler adds them, and at most ``share_per_namespace`` of any resource that all nodes
    offer together. A group that is larger by itself is released without reserved room.
    """

    enabled: bool = True
    max_parallel_patches: AtLeastOne = 8
    patches_per_second: AtLeastOne = 100
    reservation: Duration = Duration(300)
    unasked: Duration = Duration(60)
    expectation: Duration = Duration(60)
    keep_empty: Duration = Duration(300)
    orphan_grace: Duration = Duration(30)
    groups_per_namespace: AtLeastOne = 100
    pods_per_namespace: AtLeastOne = 5000
    share_per_namespace: Annotated[float, Meta(gt=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        require_positive(self, "reservation", "unasked", "expectation")

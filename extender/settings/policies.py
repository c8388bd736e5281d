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
_POINTER: Final = re.compile(r"(/([^/~]|~[01])+)+")  # RFC 6901; `*` stands for every item of a list
_DAY: Final = 86_400
_SHORTEST_LIFETIME: Final = 60  # seconds
_LONGEST_DRAIN: Final = 20
_LONGEST_TIMEOUT: Final = 30  # seconds; the API server accepts no more

# own: a CA that the leader keeps in a Secret and rotates. files: PEM files, and a caBundle from a file. cert-manager:
# PEM files, and cert-manager's CA injector sets the caBundle.
CertificateSource = Literal["own", "files", "cert-manager"]


class Webhook(Section, frozen=True):
    """The admission webhook: where it listens, how the API server reaches it, and its certificates."""

    bind_address: Address = Address("0.0.0.0:9443")
    # The API server's timeout. The webhook answers before it is over.
    timeout: Duration = Duration(3)
    failure_policy: Literal["Ignore", "Fail"] = "Ignore"
    configuration: ObjectName = ObjectName("placement-extender")
    # The API server calls the URL if it is set, else the Service.
    service: ObjectName = ObjectName("placement-extender-webhook")
    service_namespace: str = ""
    url: str = ""
    certificates: CertificateSource = "own"
    secret: ObjectName = ObjectName("placement-extender-webhook")
    # Of own certificates. They are replaced after two thirds of it.
    lifetime: Duration = Duration(90 * _DAY)
    # How long a stopping replica still answers, until no API server calls it any more.
    drain: Duration = Duration(5)
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = msgspec.field(default="", name="caFile")
    # Only clients with a certificate of this CA are answered; if there are names, only these clients.
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
    """Ways to exempt pods from policies by something that a tenant can write, so the platform has to allow each."""

    # Namespaces (or ``*``) where the label `placement.extender.dev/exempt: "true"` exempts an object from all policies.
    label_in: tuple[str, ...] = ()
    # Users whose pods with a DaemonSet as their owner get no gate.
    daemon_sets_by: tuple[str, ...] = (
        "system:serviceaccount:kube-system:daemon-set-controller",
        "system:kube-controller-manager",
    )
    # Pods with a schedulingGroup get no gate (KEP-5732).
    scheduling_groups: bool = False

    def __post_init__(self) -> None:
        for namespace in self.label_in:
            if namespace != "*" and not is_dns_label(namespace):
                raise ValueError(f'labelIn: "{namespace}" is no name of a namespace, and not "*"')
        if "" in self.daemon_sets_by:
            raise ValueError("daemonSetsBy: a user has no empty name")


class Policies(Section, frozen=True):
    """Scheduling policies."""

    enabled: bool = False
    kupid: bool = False
    # By group/version/Kind of a custom resource, the path of its pod template.
    templates: dict[str, str] = msgspec.field(
        default_factory=lambda: {"argoproj.io/v1alpha1/Rollout": "/spec/template"}
    )
    exempt_namespaces: tuple[str, ...] = ("kube-system",)
    exemptions: Exemptions = Exemptions()
    # Required node selector terms of a pod after policies, whose terms multiply with the pod's own.
    max_terms: AtLeastOne = 64
    # Pod templates of one object, for example of a JobSet.
    max_templates: AtLeastOne = 100
    # Cluster-wide policies, and policies of one namespace, that are in effect.
    max_of_cluster: AtLeastOne = 2000
    max_per_namespace: AtLeastOne = 100
    # Policies that are applied to one pod: the first in order; the others fail by their failurePolicy.
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
        """The objects that no policy applies to."""
        return Exempt(self.exempt_namespaces, self.exemptions.label_in)

    def exempting(self, namespace: str) -> Self:
        """Adds an exempt namespace: the extender's own, because its pods must not wait for the extender."""
        if not namespace or namespace in self.exempt_namespaces:
            return self
        return msgspec.structs.replace(self, exempt_namespaces=(*self.exempt_namespaces, namespace))


class Release(Section, frozen=True):
    """The release of groups of gated pods, if scheduling policies are enabled."""

    enabled: bool = True
    # For all groups together.
    max_parallel_patches: AtLeastOne = 8
    patches_per_second: AtLeastOne = 100
    # How long room is kept for released pods that are not bound.
    reservation: Duration = Duration(300)
    # How long room is kept after their scheduler's last request, if it has requested none of the group's pods.
    unasked: Duration = Duration(60)
    # After so long, a released pod that the watch still shows as gated is read.
    expectation: Duration = Duration(60)
    # How long the decision of a group without pods is kept.
    keep_empty: Duration = Duration(300)
    # How long a pod keeps our gate if no policy releases it.
    orphan_grace: Duration = Duration(30)
    # Limits of the groups of a namespace for which room is reserved at a time: groups, their pods, as many pods that
    # wait for nodes as an autoscaler adds them, and the share of any resource that all nodes offer together. A group
    # that exceeds a limit by itself is released without reserved room.
    groups_per_namespace: AtLeastOne = 100
    pods_per_namespace: AtLeastOne = 5000
    share_per_namespace: Annotated[float, Meta(gt=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        require_positive(self, "reservation", "unasked", "expectation")

"""Every setting of the service with its default, and the strict parser of the configuration document.

Reads no file and no environment: `cli/files.py` does, and passes a mapping. In a document names are camelCase,
durations have Go's form ("15s"), and sizes have a suffix ("32Mi"). An unknown or wrong field is an error that names its
path.
"""

from typing import Any, Final, Literal

from msgspec.structs import replace

from extender.features.execution.settings import Execution
from extender.features.quotas.settings import Quota
from extender.model.documents import Section, read_document, without_nulls, write_document
from extender.settings.connections import Kube, Logging, Server
from extender.settings.jobs import (
    AssumedPodsSettings,
    Audit,
    LeaderElectionSettings,
    PreemptionSettings,
    RecorderSettings,
    RejectedPodsSettings,
    WhatIfSettings,
)
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Policies, Release
from extender.settings.rules import Answers, Rules

API_VERSION: Final = "placement.extender.dev/v1alpha1"
KIND: Final = "ExtenderConfiguration"
DEFAULT_NAMESPACE: Final = "kube-system"  # of the Lease, outside of a pod: the namespace of kube-scheduler
Mode = Literal["offload", "augment"]

# The values for `null`, by mode. In augment mode the in-tree plugins filter and score. So the same rules are off here,
# and filter removes no node that they could choose.
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


class Settings(Section, frozen=True):
    """The whole configuration. `Settings()` equals an empty document: offload mode with all defaults."""

    api_version: Literal["placement.extender.dev/v1alpha1"] = API_VERSION
    kind: Literal["ExtenderConfiguration"] = KIND
    mode: Mode = "offload"
    placement: Literal["decisive", "cooperative"] = "decisive"
    schedulers: Literal["one", "many"] = "one"
    shadow: bool = False
    logging: Logging = Logging()
    server: Server = Server()
    kube: Kube = Kube()
    rules: Rules = Rules()
    answers: Answers = Answers()
    limits: ConstraintLimits = ConstraintLimits()
    assumed_pods: AssumedPodsSettings = AssumedPodsSettings()
    leader_election: LeaderElectionSettings = LeaderElectionSettings()
    rejected_pods: RejectedPodsSettings = RejectedPodsSettings()
    audit: Audit = Audit()
    recorder: RecorderSettings = RecorderSettings()
    what_if: WhatIfSettings = WhatIfSettings()
    preemption: PreemptionSettings = PreemptionSettings()
    policies: Policies = Policies()
    quota: Quota = Quota()
    release: Release = Release()
    execution: Execution = Execution()

    def __post_init__(self) -> None:
        if self.mode == "augment" and self.answers.score_scale == "inTree":
            raise ValueError("answers.scoreScale: inTree needs mode offload; in augment mode the plugins score too")
        if self.schedulers == "many" and self.placement != "decisive":
            raise ValueError("schedulers: many needs placement decisive; else the node of a pod is known too late")
        if self.schedulers == "many" and not self.assumed_pods.enabled:
            raise ValueError("schedulers: many needs assumedPods.enabled; else no scheduler knows what others place")
        if self.shadow and self.mode == "offload":
            raise ValueError(
                "shadow: needs mode augment; in mode offload the plugins that it compares with are disabled"
            )
        if self.shadow and (self.rules.inter_pod_affinity.enabled or self.rules.topology_spread.enabled):
            raise ValueError("shadow: needs both rules off; a rule that rejects nodes cannot be compared")
        if self.shadow and not self.assumed_pods.enabled:
            raise ValueError(
                "shadow: needs assumedPods.enabled; else pods that are not bound yet look like differences"
            )
        if self.quota.enabled and not self.assumed_pods.enabled:
            raise ValueError(
                "quota.enabled: needs assumedPods.enabled; else a pod would not count before it is seen bound"
            )
        if self.mode == "offload" and not (self.rules.inter_pod_affinity.enabled or self.rules.topology_spread.enabled):
            raise ValueError("rules: mode offload with both rules off leaves nothing to decide")

    @property
    def decides_spread(self) -> bool:
        """Whether the extender alone decides topology spread.

        Otherwise kube-scheduler's plugin has rejected nodes before.
        """
        return self.mode == "offload" and self.rules.topology_spread.enabled


def parse_settings(document: object) -> Settings:
    """Makes the settings from a parsed document; `null` is the default. Raises DocumentError with every problem."""
    return read_document(_with_mode_defaults(document), Settings, required=("apiVersion", "kind"))


def in_namespace(settings: Settings, namespace: str) -> Settings:
    """The settings of a service in this namespace: it has the Lease and the webhook's Service, and is exempt."""
    policies, election = settings.policies.exempting(namespace), settings.leader_election
    webhook = policies.webhook
    if policies.enabled and not webhook.service_namespace:
        policies = replace(policies, webhook=replace(webhook, service_namespace=namespace))
    if election.enabled and not election.lease_namespace:
        election = replace(election, lease_namespace=namespace)
    return replace(settings, policies=policies, leader_election=election)


def in_pod_of(settings: Settings, other: Settings) -> Settings:
    """The settings as a service in another service's pod has them: `in_namespace` with that service's namespaces.

    An exempt namespace was filled in exactly if the Lease or the webhook's Service is there too. Without policies it
    does not matter.
    """
    policies, election = settings.policies, settings.leader_election
    webhook, theirs = policies.webhook, other.policies
    if not webhook.service_namespace:
        webhook = replace(webhook, service_namespace=theirs.webhook.service_namespace)
    exempt, last = policies.exempt_namespaces, theirs.exempt_namespaces[-1:]
    is_filled_in = {*last} <= {theirs.webhook.service_namespace, other.leader_election.lease_namespace}
    if theirs.exempt_namespaces == (*exempt, *last) and (is_filled_in or not theirs.enabled):
        exempt = theirs.exempt_namespaces
    if not election.lease_namespace:
        election = replace(election, lease_namespace=other.leader_election.lease_namespace)
    policies = replace(policies, webhook=webhook, exempt_namespaces=exempt)
    return replace(settings, policies=policies, leader_election=election)


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
    defaults = dict(_BY_MODE.get(str(resolved.get("mode", "offload")), {}))
    if resolved.get("schedulers") == "many":
        defaults["placement",] = "decisive"
    for path, value in defaults.items():
        section: Any = resolved
        for name in path[:-1]:
            section = section.setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.setdefault(path[-1], value)
    return resolved

"""The settings of the scheduling rules and of answers: the sections `rules` and `answers`."""

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from extender.model.constraints.labels import LabelKey
from extender.model.documents import AtLeastOne, NotNegative, Section
from extender.model.units import ByteSize


class InterPodAffinitySettings(Section, frozen=True):
    """InterPodAffinityArgs of KubeSchedulerConfiguration, and whether the extender decides inter-pod affinity.

    ``namespace_selector``: whether the field counts in terms, like the gate PodAffinityNamespaceSelector (KEP-2249).
    """

    enabled: bool = True
    namespace_selector: bool = True
    hard_pod_affinity_weight: Annotated[int, Meta(ge=0, le=100)] = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class DefaultConstraint(Section, frozen=True):
    """A spread constraint for pods without one.

    It has no selector, because that is derived from each pod's workload.
    """

    max_skew: AtLeastOne
    topology_key: LabelKey
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: AtLeastOne | None = None
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"

    def __post_init__(self) -> None:
        """Rejects minDomains of a soft constraint, as the Kubernetes API does."""
        if self.min_domains is not None and self.when_unsatisfiable != "DoNotSchedule":
            raise ValueError("minDomains: may only be set with whenUnsatisfiable DoNotSchedule")


class TopologySpreadSettings(Section, frozen=True):
    """PodTopologySpreadArgs of KubeSchedulerConfiguration, and whether the extender decides topology spread.

    ``min_domains``: whether minDomains of hard constraints counts, like the gate MinDomainsInPodTopologySpread
    (KEP-3022).
    """

    enabled: bool = True
    min_domains: bool = True
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
    """The scheduling rules that the extender decides. If `enabled` of a rule is not set, it depends on the mode."""

    inter_pod_affinity: InterPodAffinitySettings = InterPodAffinitySettings()
    topology_spread: TopologySpreadSettings = TopologySpreadSettings()


def with_both_rules(rules: Rules) -> Rules:
    """A copy with both rules enabled, as in mode offload."""
    affinity, spread = rules.inter_pod_affinity, rules.topology_spread
    return replace(
        rules,
        inter_pod_affinity=replace(affinity, enabled=True),
        topology_spread=replace(spread, enabled=True),
    )


ScoringStrategy = Literal["LeastAllocated", "MostAllocated", "Ignored"]
"""Which of equal nodes is answered, by the requests on them; as `scoringStrategy.type` of NodeResourcesFitArgs."""

PluginWeight = Annotated[int, Meta(ge=0, le=100)]


class ScorePlugins(Section, frozen=True):
    """The weights of the score plugins of the scheduler's profile, 0 for a plugin that is disabled.

    ``others``: score plugins of the profile that the extender cannot compute.
    """

    taint_toleration: PluginWeight = 3
    node_affinity: PluginWeight = 2
    node_resources_fit: PluginWeight = 1
    node_resources_balanced_allocation: PluginWeight = 1
    others: tuple[str, ...] = ()

    def by_plugin(self) -> dict[str, int]:
        """The weights by the names of the plugins."""
        return {
            "TaintToleration": self.taint_toleration,
            "NodeAffinity": self.node_affinity,
            "NodeResourcesFit": self.node_resources_fit,
            "NodeResourcesBalancedAllocation": self.node_resources_balanced_allocation,
        }


class Answers(Section, frozen=True):
    """The contents of answers.

    - ``names``: whether decisive placement answers one node for a pod that no rule touches too, or a shortlist.
    - ``scores``: by what the one node is chosen for such a pod.
    - ``shortlist``: the most nodes in any other filter answer; 0 for all that pass.
    """

    names: Literal["one", "shortlist"] = "one"
    scores: ScorePlugins = ScorePlugins()
    score_scale: Literal["extender", "inTree"] = "extender"
    scoring_strategy: ScoringStrategy = "LeastAllocated"
    shortlist: NotNegative = 50
    rejection_cache_bytes: ByteSize = ByteSize(16 * 2**20)

"""Validation of a KubeSchedulerConfiguration: values that kube-scheduler can read and refuses. With any of them it does not start.

The limits are taken from kube-scheduler 1.36 with its default feature gates. An unknown plugin is only a warning, because a scheduler
can be built with further plugins.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Final

from extender.doctor.facts import Finding
from extender.model.constraints.labels import Operator, is_label_key
from extender.wire.scheduler_config import (
    AddedAffinityRequirement,
    AddedAffinityTerm,
    DefaultPreemptionArgs,
    DynamicResourcesArgs,
    Extender,
    InterPodAffinityArgs,
    KubeSchedulerConfiguration,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    Profile,
    ResourceSpec,
    SchedulerDefaultConstraint,
    SchedulerLeaderElection,
    ScoringStrategy,
    ShapePoint,
    VolumeBindingArgs,
)

CHECK: Final = "scheduler"
FATAL: Final = ": kube-scheduler does not start with it"

_QUEUE_SORT: Final = "PrioritySort"
_BIND: Final = "DefaultBinder"
_FIT: Final = "NodeResourcesFit"
# The plugins of kube-scheduler, and the extension points of each.
PLUGINS: Final[Mapping[str, str]] = {
    "DefaultBinder": "bind",
    "DefaultPreemption": "preEnqueue postFilter",
    "DynamicResources": "preEnqueue preFilter filter postFilter score reserve preBind",
    "GangScheduling": "preEnqueue permit",
    "ImageLocality": "score",
    "InterPodAffinity": "preFilter filter preScore score",
    "NodeAffinity": "preFilter filter preScore score",
    "NodeDeclaredFeatures": "preFilter filter",
    "NodeName": "filter",
    "NodePorts": "preFilter filter",
    "NodeResourcesBalancedAllocation": "preScore score",
    "NodeResourcesFit": "preFilter filter preScore score placementScore",
    "NodeUnschedulable": "filter",
    "NodeVolumeLimits": "preFilter filter",
    "PodGroupPodsCount": "placementScore",
    "PodTopologySpread": "preFilter filter preScore score",
    "PrioritySort": "queueSort",
    "SchedulingGates": "preEnqueue",
    "TaintToleration": "filter preScore score",
    "TopologyPlacementGenerator": "placementGenerate",
    "VolumeBinding": "preFilter filter preScore score reserve preBind",
    "VolumeRestrictions": "preFilter filter",
    "VolumeZone": "preFilter filter",
}
_REMOVED: Final = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})

_ALL: Final = 100  # percent; also the greatest weight
_GREATEST_SCORE: Final = 10
_JITTER: Final = 1.2  # of the retries of leader election
_STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
_PEM: Final = b"-----BEGIN"
_OF_QUOTAS: Final = "requests."


def validate(config: KubeSchedulerConfiguration) -> Iterator[Finding]:
    """One finding for each fault. O(fields)."""
    if config.client_connection.burst < 0:
        yield _fault("clientConnection.burst", f"is {config.client_connection.burst}", "set 0 or more")
    yield from _leader_election(config.leader_election)
    if config.parallelism is not None and config.parallelism <= 0:
        yield _fault("parallelism", f"is {config.parallelism}", "set 1 or more")
    yield from _percentage("", config.percentage_of_nodes_to_score)
    yield from _backoff(config)
    yield from _profiles(config.all_profiles)
    yield from _extenders(config.extenders)
    yield from _ignored_resources(config)


def _fault(path: str, problem: str, remedy: str) -> Finding:
    return Finding("error", CHECK, f"{path} {problem}{FATAL}", remedy)


def _leader_election(election: SchedulerLeaderElection) -> Iterator[Finding]:
    if not election.leader_elect:
        return
    # 0 stands for the default. The checks are client-go's: kube-scheduler does not start if one of them fails.
    path = "leaderElection"
    lease, renew, retry = (
        given or default
        for given, default in (
            (election.lease_duration, 15.0),
            (election.renew_deadline, 10.0),
            (election.retry_period, 2.0),
        )
    )
    if lease <= renew:
        problem = f"({lease:g}s) is not longer than renewDeadline ({renew:g}s)"
        yield _fault(f"{path}.leaseDuration", problem, "make it longer; the defaults are 15s and 10s")
    if renew <= _JITTER * retry:
        problem = f"({renew:g}s) is not longer than {_JITTER:g} times retryPeriod ({retry:g}s)"
        yield _fault(f"{path}.renewDeadline", problem, "make it longer; the defaults are 10s and 2s")
    if election.resource_lock not in ("", "leases"):
        yield _fault(f"{path}.resourceLock", f"is {election.resource_lock}", "set leases")


def _percentage(path: str, share: int | None) -> Iterator[Finding]:
    if share is not None and not 0 <= share <= _ALL:
        yield _fault(f"{path}percentageOfNodesToScore", f"is {share}", "set 0 to 100")


def _backoff(config: KubeSchedulerConfiguration) -> Iterator[Finding]:
    initial = 1 if config.pod_initial_backoff_seconds is None else config.pod_initial_backoff_seconds
    longest = 10 if config.pod_max_backoff_seconds is None else config.pod_max_backoff_seconds
    if initial <= 0:
        yield _fault("podInitialBackoffSeconds", f"is {initial}", "set 1 or more")
    if longest < initial:
        problem = f"({longest}) is less than podInitialBackoffSeconds ({initial})"
        yield _fault("podMaxBackoffSeconds", problem, "set at least as much")


# -- profiles


def _profiles(profiles: Sequence[Profile]) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for number, profile in enumerate(profiles):
        path = f"profiles[{number}]"
        name = profile.scheduler_name
        # An absent name is default-scheduler only in a single profile. An empty name is never defaulted.
        if name == "" or (name is None and len(profiles) > 1):
            yield _fault(f"{path}.schedulerName", "is missing", "give each of several profiles a name of its own")
        elif profile.name in seen:
            problem = f"is {name}, as profiles[{seen[profile.name]}].schedulerName"
            yield _fault(f"{path}.schedulerName", problem, "give each profile a name of its own")
        seen.setdefault(profile.name, number)
        yield from _percentage(f"{path}.", profile.percentage_of_nodes_to_score)
        yield from _plugins(f"{path}.plugins", profile)
        yield from _plugin_config(f"{path}.pluginConfig", profile)
        # All profiles share one scheduling queue, so they must sort it alike.
        first = profiles[0].plugins.queue_sort
        if profile.plugins.queue_sort != first:
            problem = "differs from profiles[0]"
            yield _fault(f"{path}.plugins.queueSort", problem, "make it the same in all profiles")


def _plugins(path: str, profile: Profile) -> Iterator[Finding]:
    plugins = profile.plugins
    for point, plugin_set in plugins.sets():
        seen: set[str] = set()
        for place, name in enumerate(plugin_set.enabled_names):
            field = f"{path}.{point}.enabled[{place}]"
            if name in seen:
                yield _fault(field, f"enables {name} a second time", "remove it")
            seen.add(name)
            yield from _plugin(field, point, name)
    if len(plugins.queue_sort.enabled) > 1:
        yield _fault(f"{path}.queueSort.enabled", "has more than one plugin", "enable one")
    if any(name not in PLUGINS for _, plugin_set in plugins.sets() for name in plugin_set.enabled_names):
        return  # a plugin of another build may sort the queue, or bind
    for point, name in (("queueSort", _QUEUE_SORT), ("bind", _BIND)):
        if not plugins.is_active(name, point):
            # Under multiPoint it would not be enabled at a point where it is disabled.
            yield _fault(path, f"leaves no plugin at {point}", f"enable {name} under plugins.{point}")


def _plugin(field: str, point: str, name: str) -> Iterator[Finding]:
    if name in _REMOVED or not name:
        yield _fault(field, f"{name} was removed from kube-scheduler" if name else "has no name", "remove it")
    elif name not in PLUGINS:
        yield _foreign(field, name)
    elif point not in (points := ("multiPoint", *PLUGINS[name].split())):
        yield _fault(field, f"{name} has no extension point {point}", f"enable it at {' or '.join(points)}")


def _foreign(field: str, name: str) -> Finding:
    near = get_close_matches(name, PLUGINS, n=1, cutoff=0.8)
    problem = f"{field} {name} is no plugin of kube-scheduler, which starts with it only where it was built with it"
    return Finding("warning", CHECK, problem, f"write {near[0]}" if near else "remove it, unless yours was")


def _plugin_config(path: str, profile: Profile) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, config in enumerate(profile.plugin_config):
        if config.name in seen:
            yield _fault(f"{path}[{place}]", f"is a second one for {config.name}", "give one for each plugin")
            continue
        seen.add(config.name)
        if config.name in _REMOVED:
            yield _fault(f"{path}[{place}]", f"{config.name} was removed from kube-scheduler", "remove it")
        yield from _arguments(f"{path}[{place}].args", config.name, profile)


def _arguments(path: str, name: str, profile: Profile) -> Iterator[Finding]:
    match name:
        case "DefaultPreemption":
            yield from _default_preemption(path, profile.arguments(DefaultPreemptionArgs))
        case "DynamicResources":
            yield from _dynamic_resources(path, profile.arguments(DynamicResourcesArgs))
        case "InterPodAffinity":
            affinity = profile.arguments(InterPodAffinityArgs)
            if affinity is not None and not 0 <= affinity.hard_pod_affinity_weight <= _ALL:
                yield _fault(f"{path}.hardPodAffinityWeight", f"is {affinity.hard_pod_affinity_weight}", "set 0 to 100")
        case "NodeAffinity":
            yield from _node_affinity(path, profile.arguments(NodeAffinityArgs))
        case "NodeResourcesBalancedAllocation":
            yield from _balanced(path, profile.arguments(NodeResourcesBalancedAllocationArgs))
        case "NodeResourcesFit":
            yield from _fit(path, profile.arguments(NodeResourcesFitArgs))
        case "PodTopologySpread":
            yield from _spread(path, profile.arguments(PodTopologySpreadArgs))
        case "VolumeBinding":
            yield from _volume_binding(path, profile.arguments(VolumeBindingArgs))


def _default_preemption(path: str, given: DefaultPreemptionArgs | None) -> Iterator[Finding]:
    if given is None:
        return
    share, number = given.min_candidate_nodes_percentage, given.min_candidate_nodes_absolute
    if not 0 <= share <= _ALL:
        yield _fault(f"{path}.minCandidateNodesPercentage", f"is {share}", "set 0 to 100")
    if number < 0:
        yield _fault(f"{path}.minCandidateNodesAbsolute", f"is {number}", "set 0 or more")
    # Together they would make the dry run look at no node.
    if share == number == 0:
        problem = "is 0, and so is minCandidateNodesAbsolute"
        yield _fault(f"{path}.minCandidateNodesPercentage", problem, "set one of them")


def _dynamic_resources(path: str, given: DynamicResourcesArgs | None) -> Iterator[Finding]:
    shortest = 1
    if given is not None and given.binding_timeout is not None and given.binding_timeout < shortest:
        yield _fault(f"{path}.bindingTimeout", f"is {given.binding_timeout}", "set 1s or more")


def _node_affinity(path: str, given: NodeAffinityArgs | None) -> Iterator[Finding]:
    if given is None or given.added_affinity is None:
        return
    path, affinity = f"{path}.addedAffinity", given.added_affinity
    if affinity.required is not None:
        field = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for place, term in enumerate(affinity.required.node_selector_terms):
            yield from _node_term(f"{field}[{place}]", term)
    for place, preferred in enumerate(affinity.preferred):
        if preferred.weight:  # one without a weight is not read
            field = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{place}].preference"
            yield from _node_term(field, preferred.preference)


def _node_term(path: str, term: AddedAffinityTerm) -> Iterator[Finding]:
    for name, requirements in (("matchExpressions", term.match_expressions), ("matchFields", term.match_fields)):
        for place, requirement in enumerate(requirements):
            if problem := _requirement_problem(requirement, is_field=name == "matchFields"):
                yield _fault(f"{path}.{name}[{place}]", problem, "correct it as in a pod's node affinity")


def _requirement_problem(given: AddedAffinityRequirement, *, is_field: bool) -> str:
    allowed = [Operator.IN, Operator.NOT_IN] if is_field else list(Operator)
    if given.operator not in allowed:
        return f"has the operator {given.operator or 'none'}"
    operator, count = Operator(given.operator), len(given.values)
    if is_field:
        return "" if count == 1 else "needs one value"
    if not is_label_key(given.key):
        return f"has the key {given.key!r}, which is no label key"
    if operator in (Operator.IN, Operator.NOT_IN):
        return "" if count else "needs a value"
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return "has values, which the operator does not take" if count else ""
    return "" if count == 1 and given.values[0].lstrip("-").isdecimal() else "needs one value, an integer"


def _balanced(path: str, given: NodeResourcesBalancedAllocationArgs | None) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, resource in enumerate(() if given is None else given.resources):
        if resource.name in seen:
            yield _fault(f"{path}.resources[{place}].name", f"{resource.name} is listed twice", "remove it")
        seen.add(resource.name)
        if resource.weight not in (0, 1):
            yield _fault(f"{path}.resources[{place}].weight", f"is {resource.weight}", "set 1")


def _fit(path: str, given: NodeResourcesFitArgs | None) -> Iterator[Finding]:
    if given is None:
        return
    for place, name in enumerate(given.ignored_resources):
        if not is_label_key(name):
            yield _fault(f"{path}.ignoredResources[{place}]", f"{name} is no name of a resource", "correct it")
    for place, group in enumerate(given.ignored_resource_groups):
        if "/" in group or not is_label_key(group):
            yield _fault(
                f"{path}.ignoredResourceGroups[{place}]", f"{group} is no group", "write the part before the /"
            )
    if given.scoring_strategy is not None:
        yield from _strategy(f"{path}.scoringStrategy", given.scoring_strategy)


def _strategy(path: str, given: ScoringStrategy) -> Iterator[Finding]:
    if given.type not in _STRATEGIES:
        yield _fault(f"{path}.type", f"is {given.type or 'missing'}", f"set {' or '.join(_STRATEGIES)}")
    yield from _weights(f"{path}.resources", given.resources)
    ratio, field = given.requested_to_capacity_ratio, f"{path}.requestedToCapacityRatio"
    if given.type == _STRATEGIES[-1]:
        yield from _shape(f"{field}.shape", () if ratio is None else ratio.shape)
    elif ratio is not None:
        yield _fault(field, f"is set with type {given.type or 'missing'}", f"remove it, or set type {_STRATEGIES[-1]}")


def _weights(path: str, resources: Sequence[ResourceSpec]) -> Iterator[Finding]:
    for place, resource in enumerate(resources):
        if not 0 <= resource.weight <= _ALL:  # 0 stands for 1
            yield _fault(f"{path}[{place}].weight", f"is {resource.weight}", "set 1 to 100")


def _shape(path: str, points: Sequence[ShapePoint]) -> Iterator[Finding]:
    if not points:
        yield _fault(path, "has no point", "give one or more")
    for place, point in enumerate(points):
        if not 0 <= point.utilization <= _ALL:
            yield _fault(f"{path}[{place}].utilization", f"is {point.utilization}", "set 0 to 100")
        if not 0 <= point.score <= _GREATEST_SCORE:
            yield _fault(f"{path}[{place}].score", f"is {point.score}", "set 0 to 10")
    for place, (before, after) in enumerate(pairwise(points), start=1):
        if before.utilization >= after.utilization:
            yield _fault(f"{path}[{place}].utilization", "is not more than the one before", "sort the points by it")
            return


def _spread(path: str, given: PodTopologySpreadArgs | None) -> Iterator[Finding]:
    if given is None:
        return
    kind, constraints = given.defaulting_type or "System", given.default_constraints
    if kind not in ("System", "List"):
        yield _fault(f"{path}.defaultingType", f"is {kind}", "set System or List")
    if kind == "System" and constraints:
        yield _fault(f"{path}.defaultingType", "is System, and defaultConstraints are set", "set List")
    seen: set[tuple[str, str]] = set()
    for place, constraint in enumerate(constraints):
        field = f"{path}.defaultConstraints[{place}]"
        yield from _constraint(field, constraint)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            yield _fault(field, f"is a second one for {' with '.join(pair)}", "remove it")
        seen.add(pair)


def _constraint(path: str, given: SchedulerDefaultConstraint) -> Iterator[Finding]:
    actions = ("DoNotSchedule", "ScheduleAnyway")
    if given.max_skew <= 0:
        yield _fault(f"{path}.maxSkew", f"is {given.max_skew}", "set 1 or more")
    if not is_label_key(given.topology_key):
        yield _fault(f"{path}.topologyKey", f"is {given.topology_key or 'missing'}", "set a label key of nodes")
    if given.when_unsatisfiable not in actions:
        problem = f"is {given.when_unsatisfiable or 'missing'}"
        yield _fault(f"{path}.whenUnsatisfiable", problem, f"set {' or '.join(actions)}")
    if given.label_selector is not None:
        yield _fault(f"{path}.labelSelector", "is set", "remove it: selectors are deduced for each pod")


def _volume_binding(path: str, given: VolumeBindingArgs | None) -> Iterator[Finding]:
    if given is not None and given.bind_timeout_seconds < 0:
        yield _fault(f"{path}.bindTimeoutSeconds", f"is {given.bind_timeout_seconds}", "set 0 or more")
    if given is not None and given.shape:
        problem = "needs the feature gate StorageCapacityScoring, which is off by default"
        remedy = "remove it; with the gate on nothing is to do"
        yield Finding("warning", CHECK, f"{path}.shape {problem}", remedy)


# -- extenders


def _extenders(extenders: Sequence[Extender]) -> Iterator[Finding]:
    managed: set[str] = set()
    for number, entry in enumerate(extenders):
        path, tls = f"extenders[{number}]", entry.tls_config
        if entry.prioritize_verb and entry.weight <= 0:
            problem = f"is {entry.weight or '0 or missing'}, and prioritizeVerb is set"
            yield _fault(f"{path}.weight", problem, "set 1")
        # client-go refuses a CA beside InsecureSkipVerify.
        if tls.insecure and tls.has_ca:
            yield _fault(f"{path}.tlsConfig.insecure", "is set beside a CA", "remove it")
        if any(data and _PEM not in data for data in (tls.ca_data, tls.cert_data, tls.key_data)):
            yield _fault(f"{path}.tlsConfig", "has data without PEM", "give the base64 of a file in PEM form")
        for place, resource in enumerate(entry.managed_resources):
            field = f"{path}.managedResources[{place}].name"
            if not _is_extended(resource.name):
                yield _fault(field, f"{resource.name} is no extended resource", "write one such as example.com/gpu")
            if resource.name in managed:
                yield _fault(field, f"{resource.name} is listed twice", "remove it")
            managed.add(resource.name)
    binding = [number for number, entry in enumerate(extenders) if entry.bind_verb]
    if len(binding) > 1:
        problem = f"is a second one: extenders[{binding[0]}] binds too"
        yield _fault(f"extenders[{binding[1]}].bindVerb", problem, "let one of them bind")


def _ignored_resources(config: KubeSchedulerConfiguration) -> Iterator[Finding]:
    """Resources with ignoredByScheduler need NodeResourcesFit in each profile: kube-scheduler adds them to its arguments."""
    if not any(resource.ignored_by_scheduler for entry in config.extenders for resource in entry.managed_resources):
        return
    for number, profile in enumerate(config.all_profiles):
        sets = dict(profile.plugins.sets())
        is_enabled = any(_FIT in plugin_set.enabled_names for plugin_set in sets.values())
        if not (is_enabled or profile.has_arguments(_FIT)) and sets["multiPoint"].disables(_FIT):
            problem = f"disables {_FIT}, and managedResources of an extender have ignoredByScheduler"
            yield _fault(f"profiles[{number}].plugins", problem, f"enable {_FIT}, or remove ignoredByScheduler")


def _is_extended(name: str) -> bool:
    """Whether the name is an extended resource: outside of the domains of Kubernetes, and usable in a quota."""
    # As IsExtendedResourceName: such names belong to Kubernetes, and `requests.` to the names of quotas.
    is_native = "/" not in name or "kubernetes.io/" in name or name.startswith(_OF_QUOTAS)
    return is_label_key(name) and not is_native and is_label_key(f"{_OF_QUOTAS}{name}")

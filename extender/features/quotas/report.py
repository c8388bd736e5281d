"""A report on affinity across namespaces in a cluster: which pods and templates have it, and which nodes they close to others.

1. A quota of the scope CrossNamespacePodAffinity (KEP-2249) counts a pod by the form of its terms. The namespaces that the terms
   select now are reported beside it.
2. Only required anti-affinity of placed pods closes nodes: no pod that the term selects can be placed in the domain.
3. The input is the objects of a snapshot or of a cluster.

`examine_quotas` has what `extender doctor` says of quotas.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

from extender.doctor.facts import Facts, Finding, Severity, bounded
from extender.features.quotas.charges import CROSS_NAMESPACE_SCOPE, NUMBERS, can_charge, limits_pods, matches
from extender.features.quotas.settings import Quota
from extender.model.constraints.labels import Labels
from extender.model.constraints.terms import AffinityTerm, is_cross_namespace_term, may_reach_out, reached
from extender.model.objects import Namespace, Node, Object, Pod, PodQuota, PodSignature
from extender.model.policies import JsonObject
from extender.model.units import counted
from extender.verbs.admit.reviews import BUILT_IN, controller_of, read, template_paths

_MOST_NAMED: Final = 5
_LISTS: Final = tuple(
    (kind, need, f"{need}DuringSchedulingIgnoredDuringExecution")
    for kind in ("podAffinity", "podAntiAffinity")
    for need in ("required", "preferred")
)


class TermInScope(Struct, frozen=True, rename="camel"):
    """One term in the scope: its list, and how many namespaces it selects now (``reaches``). ``namespaces``: a few of them."""

    list: str
    topology_key: str
    reaches: int
    namespaces: tuple[str, ...]


class PodsInScope(Struct, frozen=True, rename="camel"):
    """Pods of one template with such terms. ``closed_nodes``: the number of nodes that they close to pods of other namespaces."""

    namespace: str
    example: str
    placed: int
    pending: int
    terms: tuple[TermInScope, ...]
    closed_nodes: int
    closed_to: tuple[str, ...]


class TemplateInScope(Struct, frozen=True, rename="camel"):
    """A workload whose pods would be in the scope. The API server accepts the workload, whatever the quotas are."""

    object: str
    terms: int


class QuotaFound(Struct, frozen=True, rename="camel"):
    """A quota with the scope. ``problem``: why it does not limit the pods of its namespace; empty if it does."""

    quota: str
    limit: int | None
    charged: int
    in_scope: int
    problem: str


class NamespaceFound(Struct, frozen=True, rename="camel"):
    """A namespace with pods in the scope, or with a quota. ``limit``: the lowest limit among quotas that count all of these pods."""

    namespace: str
    placed: int
    pending: int
    limit: int | None
    is_exempt: bool
    closed_nodes: int
    over: int = 0
    refused: tuple[str, ...] = ()


class QuotaReport(Struct, frozen=True, rename="camel"):
    """The report. ``limit``: a trial limit; the namespaces' ``over`` and ``refused`` are counted by it."""

    namespaces: tuple[NamespaceFound, ...]
    pods: tuple[PodsInScope, ...]
    templates: tuple[TemplateInScope, ...]
    quotas: tuple[QuotaFound, ...]
    without_quota: tuple[str, ...]
    limit: int | None = None


@dataclass(slots=True)
class _Cluster:
    nodes: dict[str, Node] = field(default_factory=dict)
    namespaces: dict[str, Labels] = field(default_factory=dict)
    pods: dict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    quotas: dict[str, list[PodQuota]] = field(default_factory=lambda: defaultdict(list))
    domains: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def domain(self, key: str, node: str) -> set[str]:
        """The nodes in the same domain as a node; empty if the node lacks the key. O(nodes) once for each key."""
        # Many terms share a few topology keys, so the nodes of a key are grouped once.
        by_value = self.domains.get(key)
        if by_value is None:
            by_value = self.domains[key] = defaultdict(set)
            for name, other in self.nodes.items():
                if key in other.labels:
                    by_value[other.labels[key]].add(name)
        there = self.nodes.get(node)
        return set() if there is None or key not in there.labels else by_value[there.labels[key]]


def quota_report(
    objects: Iterable[Object], templates: Iterable[JsonObject], settings: Quota, limit: int | None = None
) -> QuotaReport:
    """The report. ``templates`` are workloads as JSON. O(objects + terms in the scope × namespaces)."""
    # One pass over the objects, then everything from the collected pods: a snapshot may have 100,000 of them.
    cluster = _Cluster()
    for obj in objects:
        _take(obj, cluster)
    rows = [row for name in sorted(cluster.pods) for row in _rows(cluster.pods[name], cluster)]
    closed = {name: _closed_nodes(pods, cluster) for name, pods in cluster.pods.items()}
    names = sorted(cluster.pods.keys() | cluster.quotas.keys())
    namespaces = tuple(_namespace(name, cluster, settings, len(closed.get(name, ())), limit) for name in names)
    quotas = tuple(
        _quota(quota, cluster.pods.get(name, [])) for name in names for quota in cluster.quotas.get(name, ())
    )
    uncovered = tuple(
        name
        for name in names
        if cluster.pods.get(name) and _uncovered(cluster.pods[name], cluster.quotas.get(name, []))
    )
    return QuotaReport(
        namespaces,
        tuple(rows),
        tuple(sorted(_templates(templates), key=lambda template: template.object)),
        quotas,
        tuple(name for name in uncovered if name not in settings.exempt_namespaces),
        limit,
    )


def _take(obj: Object, cluster: _Cluster) -> None:
    match obj:
        case Pod() if obj.signature.affinity.cross_namespace and not obj.finished:
            cluster.pods[obj.namespace].append(obj)
        case Node():
            cluster.nodes[obj.name] = obj
        case Namespace():
            cluster.namespaces[obj.name] = obj.labels
        case PodQuota() if obj.scopes:
            cluster.quotas[obj.namespace].append(obj)


# ---- pods


def _rows(pods: Sequence[Pod], cluster: _Cluster) -> Iterator[PodsInScope]:
    """One row for each set of terms: the pods of a workload have the same."""
    # By affinity and not by owner: a pod without an owner has a row too, and each revision of a workload with other terms has its own.
    by_terms: dict[object, list[Pod]] = {}
    for pod in pods:
        by_terms.setdefault(pod.signature.affinity, []).append(pod)
    for same in by_terms.values():
        first = same[0]
        placed = sum(bool(pod.node) for pod in same)
        terms = tuple(_terms(first.signature, cluster))
        closing = {
            name
            for term in _closing_terms(first.signature)
            for name in reached(term, first.namespace, cluster.namespaces)
        }
        nodes = _closed_nodes(same, cluster)
        # Pods that are placed nowhere close nothing yet.
        closed_to = tuple(sorted(closing)) if nodes else ()
        yield PodsInScope(first.namespace, first.name, placed, len(same) - placed, terms, len(nodes), closed_to)


def _terms(signature: PodSignature, cluster: _Cluster) -> Iterator[TermInScope]:
    affinity = signature.affinity
    lists: tuple[Iterable[AffinityTerm], ...] = (
        affinity.required,
        (preferred.term for preferred in affinity.preferred),
        affinity.required_anti,
        (preferred.term for preferred in affinity.preferred_anti),
    )
    for (kind, need, _), terms in zip(_LISTS, lists, strict=True):
        for term in terms:
            if may_reach_out(term, signature.namespace):
                there = sorted(reached(term, signature.namespace, cluster.namespaces))
                yield TermInScope(f"{need} {kind}", term.topology_key, len(there), tuple(there[:_MOST_NAMED]))


def _closing_terms(signature: PodSignature) -> list[AffinityTerm]:
    return [term for term in signature.affinity.required_anti if may_reach_out(term, signature.namespace)]


def _closed_nodes(pods: Iterable[Pod], cluster: _Cluster) -> set[str]:
    """The nodes in the domains of placed pods whose required anti-affinity reaches a namespace. O(domains + nodes)."""
    places: dict[tuple[str, str], None] = {}
    for pod in pods:
        for term in _closing_terms(pod.signature) if pod.node else ():
            if reached(term, pod.namespace, cluster.namespaces):
                places[term.topology_key, pod.node] = None
    return set().union(*(cluster.domain(key, node) for key, node in places))


# ---- quotas and namespaces


def _quota(quota: PodQuota, pods: Sequence[Pod]) -> QuotaFound:
    charged = sum(matches(quota, pod) for pod in pods) if can_charge(quota) else 0
    limit = _limit([quota])
    problem = ""
    if not can_charge(quota):
        problem = "charges no pod: its scopes exclude each other, or it limits nothing that pods use up"
    elif not limits_pods(quota):
        problem = "limits no number of pods: any number of small ones passes"
    elif charged < len(pods):
        # A second scope such as NotTerminating leaves pods out, and the API server still counts them as covered.
        problem = f"charges {charged} of {counted(len(pods), 'pod')}: its other scopes do not match the rest, and limitedResources of the API server counts these as covered"
    return QuotaFound(quota.key, limit, charged, len(pods), problem)


def _limit(quotas: Iterable[PodQuota]) -> int | None:
    numbers = [quota.hard[name] for quota in quotas if can_charge(quota) for name in NUMBERS if name in quota.hard]
    return min(numbers, default=None)


def _uncovered(pods: Iterable[Pod], quotas: Sequence[PodQuota]) -> bool:
    counting = [quota for quota in quotas if can_charge(quota) and limits_pods(quota)]
    return any(not any(matches(quota, pod) for quota in counting) for pod in pods)


def _namespace(name: str, cluster: _Cluster, settings: Quota, closed_nodes: int, limit: int | None) -> NamespaceFound:
    pods = cluster.pods.get(name, [])
    placed = [pod for pod in pods if pod.node]
    waiting = sorted((pod for pod in pods if not pod.node), key=lambda pod: (pod.quota.created, pod.name))
    is_exempt = name in settings.exempt_namespaces
    # The trial limit: placed pods stay, and waiting pods are charged in the order of their creation.
    over, refused = 0, tuple[str, ...]()
    if limit is not None and not is_exempt:
        charged = [pod for pod in placed if pod.signature.priority_class not in settings.exempt_priority_classes]
        over = max(len(charged) - limit, 0)
        held = [pod for pod in waiting if pod.signature.priority_class not in settings.exempt_priority_classes]
        refused = tuple(pod.full_name for pod in held[max(limit - len(charged), 0) :])
    cross_limit = _limit(quota for quota in cluster.quotas.get(name, ()) if all(matches(quota, pod) for pod in pods))
    return NamespaceFound(name, len(placed), len(waiting), cross_limit, is_exempt, closed_nodes, over, refused)


# ---- templates


def _templates(objects: Iterable[JsonObject]) -> Iterator[TemplateInScope]:
    """The workloads with a template in the scope. A workload with a controller is left out: the controller is listed."""
    for obj in objects:
        kind = f"{obj.get('apiVersion')}/{obj.get('kind')}"
        if kind not in BUILT_IN or not isinstance(obj.get("metadata"), dict) or controller_of(obj):
            continue
        terms = sum(_terms_in(read(obj, path)) for path in template_paths(kind, obj, {}, 1))
        if terms:
            metadata = obj["metadata"]
            yield TemplateInScope(f"{obj.get('kind')} {metadata.get('namespace')}/{metadata.get('name')}", terms)


def _terms_in(template: Mapping[str, Any]) -> int:
    """How many terms of a pod template are in the scope. An invalid template has none."""
    counts: Counter[bool] = Counter()
    affinity = _object(_object(template, "spec"), "affinity")
    for kind, _, name in _LISTS:
        terms = _object(affinity, kind).get(name)
        for term in terms if isinstance(terms, list) else ():
            if isinstance(term, dict) and isinstance(term.get("podAffinityTerm") or {}, dict):
                counts[is_cross_namespace_term(term)] += 1
    return counts[True]


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return part if isinstance(part, dict) else {}


# ---- findings of `extender doctor`

_SEE_QUOTAS: Final = "see `kubectl get resourcequotas -A`"


def examine_quotas(facts: Facts) -> list[Finding]:
    """All findings about quotas for affinity across namespaces that limit nothing, or fewer pods than it seems. O(quotas)."""
    quotas = [quota for quota in facts.quotas or () if quota.scopes]
    # Three sorts: quotas that can charge no pod at all, quotas without a number of pods, quotas that charge only some pods.
    able = [quota for quota in quotas if can_charge(quota)]
    inert = [_inert(quota) for quota in quotas if not can_charge(quota)]
    numberless = [_numberless(quota) for quota in able if not limits_pods(quota)]
    narrow = [_narrow(quota) for quota in able if limits_pods(quota) and _other_scopes(quota)]
    return [
        finding for sort in (inert, numberless, narrow) for finding in bounded(sort, "quotas of this sort", _SEE_QUOTAS)
    ]


def _other_scopes(quota: PodQuota) -> list[str]:
    return sorted({scope.name for scope in quota.scopes} - {CROSS_NAMESPACE_SCOPE})


def _inert(quota: PodQuota) -> Finding:
    why, remedy = (
        ("its scopes exclude each other", "remove one of these scopes")
        if quota.hard
        else ("spec.hard limits nothing that pods use up", "add `pods` to spec.hard")
    )
    problem = f"can charge no pod: {why}; to the API server it may still satisfy deny by default"
    return _of_quota("warning", quota, problem, f"{remedy}, or delete it")


def _numberless(quota: PodQuota) -> Finding:
    names = ", ".join(sorted(quota.hard))
    problem = f"does not limit the number of pods, only {names}: it covers no pod for quota.default"
    return _of_quota("warning", quota, problem, "add `pods` to spec.hard")


def _narrow(quota: PodQuota) -> Finding:
    names = ", ".join(_other_scopes(quota))
    problem = f"charges only pods that match {names} too, and for quota.default covers no others"
    return _of_quota("info", quota, problem, "use the scope alone, or add a quota for the others")


def _of_quota(severity: Severity, quota: PodQuota, problem: str, remedy: str) -> Finding:
    return Finding(severity, "quotas", f"ResourceQuota {quota.key} {problem}", remedy)

"""The filter verb from the request to the answer, step by step.

The service, the snapshot server, the bench and the tests build the same `FilterVerb`. It is synchronous and has no
effects: `tasks/filter_service.py` waits for assumed pods before it, and hands the plan on after it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.bounded import BoundedCache
from extender.model.objects import Pod, PodSignature
from extender.model.policies import PolicyKey
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Code, Reason
from extender.rules import catalog
from extender.rules.catalog import Dependencies, PreparedFilters, dependencies
from extender.rules.frames import Frame, IndexFrame
from extender.rules.free_resources import static_rejection
from extender.rules.meter import FILTER, RuleMeter
from extender.rules.quota import QuotaCounts
from extender.settings.configuration import Settings
from extender.verbs.dry_run import (
    MOST_VISITED,
    DryRun,
    NodeVictims,
    best_among,
    found_beside_nominated,
    is_forbidden,
    may_plan,
    node_of_running_plan,
    plan_of,
)
from extender.verbs.effective_pod import PolicyCounts, effective_pod
from extender.verbs.kept_nodes import KeptNodes
from extender.verbs.offered_nodes import OfferedNodes
from extender.verbs.ranking import best_passing
from extender.verbs.request import RequestedNodes, RequestSearch, prepared, requested_nodes
from extender.verbs.select_host import answers_one, find_node_elsewhere, select_hosts
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter

_NO_NODES: AbstractSet[str] = frozenset()


class FilterDecision(msgspec.Struct, frozen=True, gc=False):
    """The answer, the plan that is to be carried out because of it, if any, and the policies that admission missed.

    ``missed`` is empty where an earlier decision has told of the pod.
    """

    result: FilterResult
    plan: PreemptionPlan | None = None
    missed: tuple[PolicyKey, ...] = ()


class FilterVerb:
    """The filter verb over one view and one set of settings; only its two caches and its counts change.

    ``rejections`` answers a repeated rejection without a new decision. ``unhelpful`` knows the nodes where a preemption
    was found not to help. ``policies`` counts pods that lacked what a policy directs, ``quotas`` those over a quota.
    ``meter`` counts and times the rules. Without ``plans`` a rejected pod gets no preemption plan.
    """

    def __init__(self, view: ClusterView, settings: Settings, *, plans: bool = True) -> None:
        self._view = view
        self._plans = plans
        self.settings = settings
        self.rejections = RejectionCache(settings.answers.rejection_cache_bytes)
        self.unhelpful = UnhelpfulNodeCache()
        self.policies = PolicyCounts.new()
        self.quotas = QuotaCounts()
        self.meter = RuleMeter()
        self.offered = OfferedNodes()

    def should_wait(self, args: ExtenderArgs, scored_since: float = inf) -> bool:
        """Whether waiting for assumed pods may make the answer better. O(groups) without undetermined pods, else two searches.

        Only assumed pods that can change the result are worth it. The request is decided at once where as many nodes
        pass in the worst case, and as good ones by our own score, as could pass in the best case, or where none could:
        `decide` takes the worst case, so a node that passes is right wherever the assumed pods are bound. Where
        nominated pods may take nodes out of the answer, or a rejection would start a preemption, the request waits for
        every assumed pod that it may depend on: both depend on more than the names that pass.

        Where the scheduler chooses among several nodes, their scores are to count the pods that it placed just before: the
        request waits too for pods answered after ``scored_since`` that its scores count. A pod with a slot waits for its siblings
        where they may have taken all room of the group among the requested nodes.
        """
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings) if view.policies.version else args.pod
        compiled = view.compiled(pod.signature)
        if scored_since < inf and view.is_score_undetermined(compiled, scored_since):
            return True
        if view.reserved.node_of(pod.uid) and self._lacks_room_of_siblings(pod, args):
            return True
        if not view.is_undetermined(compiled):
            return False
        if view.nominated and settings.preemption.mode != "off":
            return True
        requested = requested_nodes(args, view)
        best = catalog.prepare_filters(pod, compiled, view, requested.frame.best_case(view))
        at_best = _ranks(RequestSearch(compiled, best, requested, view, settings))
        return _ranks(prepared(pod, requested, view, settings)) != at_best if at_best else may_plan(pod, view, settings)

    def _lacks_room_of_siblings(self, pod: Pod, args: ExtenderArgs) -> bool:
        """Whether no node passes while siblings are on their way to one of several nodes. O(assumed pods + names × clauses)."""
        view = self._view
        siblings = view.reserved.siblings_of(pod.uid)
        if not any(assumed.uid in siblings and not is_doubted for assumed, _, is_doubted in view.undetermined()):
            return False
        return not prepared(pod, requested_nodes(args, view), view, self.settings).first_passing(1, 0)

    def would_pass(self, args: ExtenderArgs) -> bool:
        """Whether `decide` would let a node of a request by names pass now. Counts and caches nothing. O(names × clauses)."""
        search = self._search(args)
        return search is not None and bool(search.first_passing(1, 0))

    def still_passing(self, args: ExtenderArgs) -> Sequence[str]:
        """The names that `decide` would let pass now, if the nodes are not out themselves (deleted, cordoned, tainted, relabelled)."""
        search = self._search(args)
        if search is None:
            return []
        fit = [(position, search.requested.node(position)) for position in search.requested.positions()]
        left = [position for position, node in fit if node is not None and static_rejection(args.pod, node) is None]
        return search.requested.names_at(search.passing(left))

    def _search(self, args: ExtenderArgs) -> RequestSearch | None:
        """A request by names as `decide` would search it, beside nominated pods; None where it is rejected on every node."""
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings)
        request = structs.replace(args, pod=pod)
        if view.nominated:
            request = _without_nodes(request, KeptNodes(pod, view, settings).among(set(args.node_names or ())))
        search = prepared(pod, requested_nodes(request, view), view, settings)
        return None if search.filters.rejects_every_node else search

    def decide(self, args: ExtenderArgs, seed: int, avoid: str = "") -> FilterDecision:
        """Decides the requested nodes. O(names × clauses), and the dry runs of `plan_for_rejected_pod` if none passes.

        ``seed`` chooses among equal nodes. ``avoid`` is the node of an earlier answer where the pod was not bound;
        only decisive placement uses it. Assumed pods whose node is undetermined count wherever that is worst.
        """
        meter = self.meter
        meter.left -= 1
        if not meter.left:
            with meter.sampled(FILTER):  # not `self.decide`: a recorder would record the decision twice
                return FilterVerb.decide(self, args, seed, avoid)
        if not self._view.policies.version:
            return self._decide(args, seed, avoid)
        pod = effective_pod(args.pod, self._view, self.settings)
        missed = self.policies.record(args.pod, self._view)
        decision = self._decide(args if pod is args.pod else structs.replace(args, pod=pod), seed, avoid)
        # A plan is about the pod as the watch shows it.
        plan = None if decision.plan is None else replace(decision.plan, preemptor=args.pod)
        return FilterDecision(decision.result, plan, missed if pod is not args.pod else ())

    def _decide(self, args: ExtenderArgs, seed: int, avoid: str) -> FilterDecision:
        """The same for an effective pod."""
        pod, view, settings = args.pod, self._view, self.settings
        # Nodes of the request itself may not exist, so no pod is nominated to them or can leave them.
        preempts = args.nodes is None and settings.preemption.mode != "off"
        if pod.signature.affinity.cross_namespace:
            self.quotas.record(pod, view)

        # 1. Nominated pods of equal or higher priority keep their nodes.
        kept: AbstractSet[str] = _NO_NODES
        if preempts and view.nominated:
            kept = KeptNodes(pod, view, settings).among(set(args.node_names or ()))
        request = _without_nodes(args, kept) if kept else args

        # 2. The rejection cache, while everything that the rejection depends on is unchanged.
        compiled = view.compiled(pod.signature)
        is_undetermined = view.is_undetermined(compiled)
        result = None
        if pod.signature in self.rejections.signatures and not is_undetermined:
            result = self.rejections.find(request, compiled, view)
        if result is None:
            # 3. The rules, prepared once for all nodes.
            requested = requested_nodes(request, view)
            frame = requested.frame.worst_case(view) if is_undetermined else requested.frame
            search = self._metered_search(pod, compiled, requested, frame)

            # 4. Selection of the host, or of a shortlist of hosts.
            hosts = select_hosts(search, pod, seed, avoid)
            if hosts:
                return FilterDecision(FilterResult(hosts))
            result = _rejection(search)
            # Reserved room counts beside pods of undetermined node too.
            is_certain = Reason.RESERVED not in result.reasons or not view.undetermined()
            if is_certain and not (is_undetermined or search.filters.rejects_all):
                self.rejections.add(request, compiled, view, result)
        if result.error or not (self._plans and preempts and args.node_names):
            return FilterDecision(result)

        # 5. The preemption plan. kube-scheduler makes none for a pod that only an extender rejects.
        awaited = node_of_running_plan(pod, view)
        plan = None if awaited else _plan_for_rejected_pod(args, view, settings, self.unhelpful, seed, self.meter)
        # A plan that disruption budgets forbid is not carried out before they change.
        if plan is not None and not (settings.preemption.eviction == "evict" and is_forbidden(plan.victims, view)):
            awaited = plan.node
        return FilterDecision(_with_nominations(result, args, kept, awaited, view), plan)

    def _metered_search(
        self, pod: Pod, compiled: CompiledConstraints, requested: RequestedNodes, frame: Frame
    ) -> RequestSearch:
        """The search of a decision, whose rules are counted, and timed if it is one of the sample."""
        view, meter = self._view, self.meter
        parts = catalog.active(compiled, view)
        if parts:
            filtered = meter.filtered
            for rule, _ in parts:  # not `RuleMeter.count`: this is in every decision
                filtered[rule.name] += 1
            for used in compiled.used_fields:
                meter.fields[used] += 1
        filters = catalog.prepare(parts, pod, view, frame, meter.watch)
        return RequestSearch(compiled, filters, requested, view, self.settings, meter, offered=self.offered)


def _ranks(search: RequestSearch) -> list[float]:
    """How the nodes of the answer rank under our own score, best first. One that is chosen is chosen among all."""
    most, settings = len(search.requested), search.settings
    if settings.answers.shortlist and not answers_one(search.compiled, search.view, settings):
        most = min(most, settings.answers.shortlist)
    return [] if search.filters.rejects_every_node else [rank for rank, _ in best_passing(search, most, 0)]


# -- rejections -------------------------------------------------------------------------------------------------------

# The answer where no node passes, with a text for each requested node, and the cache that gives it again.
#
# Rejected nodes go under ``unresolvable`` even where removing pods would help: kube-scheduler answers a plain rejection
# with preemption attempts that cannot see our rules, and retries them in a hot loop (measured).
#
# Every cluster event makes kube-scheduler try every rejected pod again (measured: 200 rejected pods and 20 bindings
# are 4,000 calls). A cached rejection is valid for the same names and the same dependencies, which change whenever the
# answer may have changed, so it is never stale. The pipeline adds no answer that depends on assumed pods whose node is
# undetermined, and none that is certain without a look at any node: to decide it again costs no more.

_OVERHEAD = 500


def _rejection(search: RequestSearch) -> FilterResult:
    """Why none of the requested nodes passes, or the error that the rules report. O(nodes × clauses)."""
    if search.watch is not None:
        search.watch.switch(None)
    filters, requested = search.filters, search.requested
    failed, certain = filters.failed, filters.rejects_all
    if failed is not None and failed.status.code is Code.ERROR:
        return FilterResult((), error=failed.status.reason)
    if certain is not None and (failed is not None or requested.knows_all):
        texts = dict.fromkeys(requested.names, certain.text)
        return FilterResult((), unresolvable=texts, reasons=frozenset((certain.reason,)))
    return _rejection_by_node(filters, requested)


def _rejection_by_node(filters: PreparedFilters, requested: RequestedNodes) -> FilterResult:
    texts: dict[str, str] = {}
    reasons: set[Reason] = set()
    nodes = requested.positions()
    for reason, rejected in filters.rejected(nodes):
        if rejected:
            texts |= dict.fromkeys(requested.names_at(rejected), reason.text)
            reasons.add(reason)
    if len(nodes) < len(requested):
        known = set(requested.names_at(nodes))
        texts |= {name: Reason.UNKNOWN_NODE.text for name in requested.names if name not in known}
        reasons.add(Reason.UNKNOWN_NODE)
    return FilterResult((), unresolvable=texts, reasons=frozenset(reasons))


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    dependencies: Dependencies
    result: FilterResult
    size: int


class RejectionCache:
    """The rejections of the most recent requests, up to ``most_bytes`` together; 0 caches nothing.

    The key is the pod's signature with the bytes of the node names as they came. ``hits`` counts answers from here.
    ``signatures`` counts the entries of each signature; `find` is for those: most requests are about other pods.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[tuple[PodSignature, bytes], _CachedRejection] = {}
        self.signatures: dict[PodSignature, int] = {}
        self.bytes = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._held)

    def find(self, args: ExtenderArgs, compiled: CompiledConstraints, view: ClusterView) -> FilterResult | None:
        """The cached rejection where it still holds, else None. O(body)."""
        key = (args.pod.signature, args.raw_names())
        known = self._held.get(key)
        if known is None:
            return None
        if known.dependencies == dependencies(args.pod, compiled, view):
            self.hits += 1
            return known.result
        self._delete(key)
        return None

    def add(self, args: ExtenderArgs, compiled: CompiledConstraints, view: ClusterView, result: FilterResult) -> None:
        """Caches the result if it is a rejection that is worth it. O(size of the answer)."""
        if not (self._most_bytes and args.body):
            return
        if result.unresolvable and not (result.failed or result.error):
            key = (args.pod.signature, args.raw_names())
            self._put(key, dependencies(args.pod, compiled, view), result)

    def _put(self, key: tuple[PodSignature, bytes], version: Dependencies, result: FilterResult) -> None:
        encoded = encode_filter(result)
        size = len(key[1]) + len(encoded) + key[0].size + _OVERHEAD
        brief = FilterResult((), encoded=encoded, reasons=result.reasons)
        self._held[key] = _CachedRejection(version, brief, size)
        self.signatures[key[0]] = self.signatures.get(key[0], 0) + 1
        self.bytes += size
        while self.bytes > self._most_bytes:
            self._delete(next(iter(self._held)))

    def _delete(self, key: tuple[PodSignature, bytes]) -> None:
        self.bytes -= self._held.pop(key).size
        self.signatures[key[0]] -= 1
        if not self.signatures[key[0]]:
            del self.signatures[key[0]]


# -- nominated pods ---------------------------------------------------------------------------------------------------

# What nominated pods change in an answer: the request without the nodes that they keep, and the texts of a rejection.


def _without_nodes(args: ExtenderArgs, names: AbstractSet[str]) -> ExtenderArgs:
    """The request for the other nodes. It has no body, so that no rejection is cached for it."""
    return structs.replace(args, node_names=[name for name in args.node_names or () if name not in names], body=b"")


def _with_nominations(
    result: FilterResult, args: ExtenderArgs, kept: AbstractSet[str], awaited: str, view: ClusterView
) -> FilterResult:
    """The rejection with its own texts for nodes ``kept`` for nominated pods and for the ``awaited`` node of a plan.

    While a plan runs, the awaited node alone goes under ``failed``, all others stay unresolvable. Anything else makes
    kube-scheduler clear the nomination, or try preemption over and over (measured). O(nodes × clauses).
    """
    names = args.node_names or []
    if not kept and awaited not in names:
        return result
    if not result.unresolvable:  # a cached rejection holds its encoded form only
        filters = catalog.prepare_filters(args.pod, view.compiled(args.pod.signature), view, IndexFrame())
        left = [name for name in names if name not in kept]
        result = _rejection_by_node(filters, RequestedNodes(left, IndexFrame(), view))
    texts, reasons = dict(result.unresolvable), set(result.reasons)
    failed: dict[str, str] = {}
    if kept:
        texts |= dict.fromkeys(kept, Reason.NOMINATED.text)
        reasons.add(Reason.NOMINATED)
    if awaited and texts.pop(awaited, None) is not None:
        failed[awaited] = Reason.PREEMPTING.text
        reasons.add(Reason.PREEMPTING)
    return FilterResult((), failed, texts, reasons=frozenset(reasons))


# -- the preemption plan ----------------------------------------------------------------------------------------------

# The preemption plan for a pod that the filter rejects on every requested node.
#
# A pod rejected only because of pods of lower priority gets a plan from the filter itself: kube-scheduler never asks for
# preemption on nodes that only an extender rejects.

_MOST_BYTES: Final = 8 * 2**20

_Key: TypeAlias = tuple[PodSignature, Hashable]
_Version: TypeAlias = tuple[Dependencies, int]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A byte for each node that was tried, valid while the result depends on the same and claims are unchanged."""

    version: _Version
    nodes: bytearray


class UnhelpfulNodeCache:
    """By equal pods, the nodes where a dry run found that preemption does not help; at most ``most_bytes`` together.

    So many rejected pods cost no dry runs at every event. It is by node and not by request, since each request has
    another sample of names: a node is tried once for equal pods, until something changes.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._held: BoundedCache[_Key, _Tried] = BoundedCache(most_bytes)

    def without(self, pod: Pod, nodes: list[NodeNumber], view: ClusterView) -> list[NodeNumber]:
        """Those of the nodes where preemption may help. O(nodes)."""
        known = self._held.get(_key(pod, view))
        if known is None or known.version != _version(pod, view):
            return nodes
        tried = known.nodes
        return [node for node in nodes if not tried[node]]

    def add(self, pod: Pod, nodes: Iterable[NodeNumber], view: ClusterView) -> None:
        """Records that preemption does not help on these nodes, for as long as nothing changes. O(nodes)."""
        version, key = _version(pod, view), _key(pod, view)
        known = self._held.get(key)
        if known is None or known.version != version:
            known = _Tried(version, bytearray(len(view.node_names)))
        for node in nodes:
            known.nodes[node] = True
        self._held.put(key, known, len(known.nodes) + pod.signature.size + _OVERHEAD)


def _key(pod: Pod, view: ClusterView) -> _Key:
    """The signature with what node fit reads of the pod: its priority and its requests."""
    return pod.signature, catalog.NODE_FIT.pod_key(pod, view)


def _version(pod: Pod, view: ClusterView) -> _Version:
    return dependencies(pod, view.compiled(pod.signature), view), view.claims_version


def _plan_for_rejected_pod(
    args: ExtenderArgs,
    view: ClusterView,
    settings: Settings,
    unhelpful: UnhelpfulNodeCache,
    seed: int,
    meter: RuleMeter,
) -> PreemptionPlan | None:
    """A plan for a pod that was rejected on every requested node, None where preemption cannot or may not help."""
    pod, names = args.pod, args.node_names or []
    if not may_plan(pod, view, settings):
        return None
    run = DryRun(pod, view, across=settings.preemption.cross_node, meter=(meter, "filter"))
    if run.fits_nowhere or not run.has_constraints:
        return None
    removal = _removal(run, names, unhelpful, seed, evicts=settings.preemption.eviction == "evict")
    if removal is None:
        return None
    if not view.known.keys() <= set(names) and find_node_elsewhere(pod, view, settings, seed)[0]:
        return None  # a node outside of the scheduler's sample passes as it is: no preemption is needed
    return plan_of(pod, removal, view)


def _removal(
    run: DryRun, names: Sequence[str], unhelpful: UnhelpfulNodeCache, seed: int, *, evicts: bool
) -> NodeVictims | None:
    """The best removal on one of the nodes. O(names + nodes not found unhelpful before × dry run)."""
    pod, view = run.pod, run.view
    filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame(), run.watch)
    certain = filters.rejects_all
    if certain is not None and not certain.reason.resolvable:
        return None
    left = unhelpful.without(pod, [number for number in map(view.known.get, names) if number is not None], view)
    if not left:
        return None
    start = seed % len(left)
    tried = (left[start:] + left[:start])[: min(MOST_VISITED, run.most_nodes)]
    curable = [number for number in tried if (reason := filters.reason(number)) is None or reason.resolvable]

    def search(beside: DryRun, excluded: Collection[str]) -> NodeVictims | None:
        left_over = [number for number in curable if view.node_names[number] not in excluded]
        return best_among(left_over, beside, seed, evicts=evicts)

    removal = found_beside_nominated(run, search)
    # One that the budgets forbid helps only after they have changed, which the version of the cache contains.
    if removal is None or (evicts and is_forbidden(removal.victims, view)):
        abandoned = set(curable) - run.done if run.budget.is_spent() else set[NodeNumber]()
        unhelpful.add(pod, (number for number in tried if number not in abandoned), view)
    return removal

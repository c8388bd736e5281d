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

from extender.features.quotas.rule import QuotaCounts
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
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_NO_NODES: AbstractSet[str] = frozenset()


class FilterDecision(msgspec.Struct, frozen=True, gc=False):
    """What follows from one filter request.

    - ``result``: the answer.
    - ``plan``: the preemption to carry out because of the answer, if any.
    - ``missed``: the policies that admission missed. Empty where an earlier decision has reported the pod.
    """

    result: FilterResult
    plan: PreemptionPlan | None = None
    missed: tuple[PolicyKey, ...] = ()


class FilterVerb:
    """The filter verb over one view and one set of settings. Only its two caches and its counts change.

    - ``plans``: without them a rejected pod gets no preemption plan.
    - ``rejections``: the cache that answers a repeated rejection without a new decision.
    - ``unhelpful``: the cache of nodes where preemption was found not to help.
    - ``policies``: counts pods that lack a directive of a policy.
    - ``quotas``: counts pods that are above a quota.
    - ``meter``: counts and times the rules.
    - ``offered``: which nodes the scheduler seldom offers.
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
        """Whether the answer may be better once the nodes of assumed pods are known. O(groups), else two searches.

        `decide` takes the worst case, so a node that passes is right wherever the assumed pods are bound. The request waits:

        1. for pods answered after ``scored_since`` that its scores count. The scheduler then chooses among several nodes, and
           their scores should count the pods that it placed just before;
        2. for siblings, where the pod has a slot and siblings may have taken all room of the pod group on the requested nodes;
        3. for each assumed pod that the result may depend on, where nominated pods may take nodes out of the answer or a rejection
           would start a preemption. Both depend on more than the names that pass;
        4. for the same pods otherwise only where more or better nodes pass in the best case than in the worst case.
        """
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings) if view.policies.version else args.pod
        compiled = view.compiled(pod.signature)
        if scored_since < inf and view.is_score_undetermined(compiled, scored_since):
            return True  # 1.
        if view.reserved.node_of(pod.uid) and self._lacks_room_of_siblings(pod, args):
            return True  # 2.
        if not view.is_undetermined(compiled):
            return False
        if view.nominated and settings.preemption.mode != "off":
            return True  # 3., nominated pods
        # 4. Where no node passes in the best case, the request is rejected at once, unless that starts a preemption (3.).
        requested = requested_nodes(args, view)
        best = catalog.prepare_filters(pod, compiled, view, requested.frame.best_case(view))
        at_best = _ranks(RequestSearch(compiled, best, requested, view, settings))
        return _ranks(prepared(pod, requested, view, settings)) != at_best if at_best else may_plan(pod, view, settings)

    def _lacks_room_of_siblings(self, pod: Pod, args: ExtenderArgs) -> bool:
        """Whether no node passes while the node of an assumed sibling is undetermined. O(assumed pods + names × clauses)."""
        view = self._view
        siblings = view.reserved.siblings_of(pod.uid)
        if not any(assumed.uid in siblings and not is_doubted for assumed, _, is_doubted in view.undetermined()):
            return False
        return not prepared(pod, requested_nodes(args, view), view, self.settings).first_passing(1, 0)

    def would_pass(self, args: ExtenderArgs) -> bool:
        """Whether a node of a request by names would pass in `decide` now. Counts and caches nothing. O(names × clauses)."""
        search = self._search(args)
        return search is not None and bool(search.first_passing(1, 0))

    def still_passing(self, args: ExtenderArgs) -> Sequence[str]:
        """The names that would pass in `decide` now, without nodes that were deleted, cordoned, tainted or relabelled meanwhile."""
        search = self._search(args)
        if search is None:
            return []
        fit = [(position, search.requested.node(position)) for position in search.requested.positions()]
        possible = [position for position, node in fit if node is not None and static_rejection(args.pod, node) is None]
        return search.requested.names_at(search.passing(possible))

    def _search(self, args: ExtenderArgs) -> RequestSearch | None:
        """The search that `decide` would make for a request by names; None where the pod is rejected on every node."""
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings)
        request = structs.replace(args, pod=pod)
        if view.nominated:
            request = _without_nodes(request, KeptNodes(pod, view, settings).among(set(args.node_names or ())))
        search = prepared(pod, requested_nodes(request, view), view, settings)
        return None if search.filters.rejects_every_node else search

    def decide(self, args: ExtenderArgs, seed: int, avoid: str = "") -> FilterDecision:
        """Decides which of the requested nodes pass. O(names × clauses), and the dry runs of a preemption plan if none passes.

        - ``seed``: chooses among equal nodes.
        - ``avoid``: the node of an earlier answer, where the pod was not bound. Only decisive placement uses it.

        An assumed pod of undetermined node counts on the node that is the worst for the incoming pod.
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
        # The plan is carried out for the pod of the watch: its writes name the pod, and the effective pod exists here only.
        plan = None if decision.plan is None else replace(decision.plan, preemptor=args.pod)
        return FilterDecision(decision.result, plan, missed if pod is not args.pod else ())

    def _decide(self, args: ExtenderArgs, seed: int, avoid: str) -> FilterDecision:
        """Decides for an effective pod. A decision with hosts ends at step 4; a rejection gets its texts, and its plan, at step 5."""
        pod, view, settings = args.pod, self._view, self.settings
        # A request with whole nodes may bring nodes that do not exist. No pod is nominated to such a node, and none can leave it.
        preempts = args.nodes is None and settings.preemption.mode != "off"
        if pod.signature.affinity.cross_namespace:
            self.quotas.record(pod, view)

        # 1. Nominated pods of equal or higher priority keep their nodes. Kept nodes are left out of the request first, so the cache
        #    and the search do not see them. Their text is added in step 5.
        kept: AbstractSet[str] = _NO_NODES
        if preempts and view.nominated:
            kept = KeptNodes(pod, view, settings).among(set(args.node_names or ()))
        request = _without_nodes(args, kept) if kept else args

        # 2. The rejection cache. An entry is valid while everything that the rejection depends on is unchanged. The signature is
        #    looked up first, because most pods have no entry, and the whole key needs the bytes of all names.
        #    Not used while the result depends on undetermined pods: entries are made without such pods.
        compiled = view.compiled(pod.signature)
        is_undetermined = view.is_undetermined(compiled)
        result = None
        if pod.signature in self.rejections.signatures and not is_undetermined:
            result = self.rejections.find(request, compiled, view)
        if result is None:
            # 3. The rules, prepared once for all nodes. The worst-case frame counts undetermined pods wherever that is worst.
            requested = requested_nodes(request, view)
            frame = requested.frame.worst_case(view) if is_undetermined else requested.frame
            search = self._metered_search(pod, compiled, requested, frame)

            # 4. The hosts: one node or a shortlist. Texts by node cost more than the search, so they are made only without hosts.
            hosts = select_hosts(search, pod, seed, avoid)
            if hosts:
                return FilterDecision(FilterResult(hosts))
            result = _rejection(search)
            # Not cached: a rejection that undetermined pods may change (reserved room counts them too), and a rejection that is
            # certain without a look at any node, because it costs nothing to decide again.
            is_certain = Reason.RESERVED not in result.reasons or not view.undetermined()
            if is_certain and not (is_undetermined or search.filters.rejects_all):
                self.rejections.add(request, compiled, view, result)
        if result.error or not (self._plans and preempts and args.node_names):
            return FilterDecision(result)

        # 5. The preemption plan: kube-scheduler makes none for a pod that only an extender rejects. The plan considers all requested
        #    nodes, kept nodes too, because victims may make room beside the nominated pods.
        awaited = node_of_running_plan(pod, view)
        plan = None if awaited else _plan_for_rejected_pod(args, view, settings, self.unhelpful, seed, self.meter)
        # `awaited`: the node that goes under `failed`, so that kube-scheduler keeps the nomination. Not for a plan that disruption
        # budgets forbid: it is not carried out before they change.
        if plan is not None and not (settings.preemption.eviction == "evict" and is_forbidden(plan.victims, view)):
            awaited = plan.node
        return FilterDecision(_with_nominations(result, args, kept, awaited, view), plan)

    def _metered_search(
        self, pod: Pod, compiled: CompiledConstraints, requested: RequestedNodes, frame: Frame
    ) -> RequestSearch:
        """The search of a decision. Its rules are counted, and timed if the decision is one of the sample."""
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
    """The ranks of the nodes of the answer under our own score, best first. A single node is chosen among all requested nodes."""
    most, settings = len(search.requested), search.settings
    if settings.answers.shortlist and not answers_one(search.compiled, search.view, settings):
        most = min(most, settings.answers.shortlist)
    return [] if search.filters.rejects_every_node else [rank for rank, _ in best_passing(search, most, 0)]


# -- rejections -------------------------------------------------------------------------------------------------------

# The answer where no node passes, with a text for each requested node, and the cache that repeats it.
#
# 1. Rejected nodes go under ``unresolvable``, even where removing pods would help. kube-scheduler answers a plain rejection
#    with preemption attempts that cannot see our rules, and repeats them in a hot loop (measured).
# 2. Every cluster event makes kube-scheduler try every rejected pod again. Measured: 200 rejected pods and 20 bindings are
#    4,000 calls.
# 3. A cached rejection is never stale. It is valid for the same names and the same dependencies, and the dependencies change
#    whenever the answer may have changed.

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

    The key is the pod's signature with the bytes of the node names as they were received.

    - ``hits``: how many answers came from the cache.
    - ``signatures``: how many entries each signature has. Call `find` only for these: most requests are about other pods.
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
        """The cached rejection if it is still valid, else None. O(body)."""
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
        """Caches a result that rejects every node as unresolvable. Not for a request without a body: nodes were left out of it.

        O(size of the answer).
        """
        if not (self._most_bytes and args.body):
            return
        if result.unresolvable and not (result.failed or result.error):
            key = (args.pod.signature, args.raw_names())
            self._put(key, dependencies(args.pod, compiled, view), result)

    def _put(self, key: tuple[PodSignature, bytes], version: Dependencies, result: FilterResult) -> None:
        brief, answer_size = result.brief()
        size = len(key[1]) + answer_size + key[0].size + _OVERHEAD
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

# Nominated pods change an answer twice: the request is decided without the nodes that they keep, and a rejection gets other texts.


def _without_nodes(args: ExtenderArgs, names: AbstractSet[str]) -> ExtenderArgs:
    """The request for the other nodes. It has no body, so that no rejection is cached for it."""
    return structs.replace(args, node_names=[name for name in args.node_names or () if name not in names], body=b"")


def _with_nominations(
    result: FilterResult, args: ExtenderArgs, kept: AbstractSet[str], awaited: str, view: ClusterView
) -> FilterResult:
    """The rejection with texts for the nodes ``kept`` for nominated pods and for the node ``awaited`` by a running plan.

    While a plan runs, only the awaited node goes under ``failed``; all others stay under ``unresolvable``. Any other form makes
    kube-scheduler clear the nomination, or try preemption over and over (measured). O(nodes × clauses).
    """
    names = args.node_names or []
    if not kept and awaited not in names:
        return result
    if not result.unresolvable:  # a brief result from the cache: the texts by node are made again
        filters = catalog.prepare_filters(args.pod, view.compiled(args.pod.signature), view, IndexFrame())
        others = [name for name in names if name not in kept]
        result = _rejection_by_node(filters, RequestedNodes(others, IndexFrame(), view))
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

# The preemption plan for a pod that filter rejects on every requested node, because of pods of lower priority. Filter makes the
# plan itself: kube-scheduler never requests a preemption on nodes that only an extender rejects.

_MOST_BYTES: Final = 8 * 2**20

_Key: TypeAlias = tuple[PodSignature, Hashable]
_Version: TypeAlias = tuple[Dependencies, int]


@dataclass(frozen=True, slots=True)
class _Tried:
    """A byte for each node: 1 where it was tried. Valid while the dependencies and the claims (``version``) are unchanged."""

    version: _Version
    nodes: bytearray


class UnhelpfulNodeCache:
    """The nodes where a dry run found that preemption does not help, for equal pods; at most ``most_bytes`` together.

    Without it many rejected pods would cost dry runs at every event. The entries are by node and not by request, because each
    request has another sample of names. So a node is tried once for equal pods, until something changes.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._held: BoundedCache[_Key, _Tried] = BoundedCache(most_bytes)

    def without(self, pod: Pod, nodes: list[NodeNumber], view: ClusterView) -> list[NodeNumber]:
        """The given nodes, except nodes where preemption is known not to help. O(nodes)."""
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
    """Equal pods: the same signature, priority and requests (node fit reads these two)."""
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
        # A node outside of the scheduler's sample passes without a preemption, and the pod is nominated to it.
        return None
    return plan_of(pod, removal, view)


def _removal(
    run: DryRun, names: Sequence[str], unhelpful: UnhelpfulNodeCache, seed: int, *, evicts: bool
) -> NodeVictims | None:
    """The best removal on one of the nodes. O(names + dry runs on nodes that are not known to be unhelpful)."""
    pod, view = run.pod, run.view
    filters = catalog.prepare_filters(pod, view.compiled(pod.signature), view, IndexFrame(), run.watch)
    certain = filters.rejects_all
    if certain is not None and not certain.reason.resolvable:
        return None
    promising = unhelpful.without(pod, [number for number in map(view.known.get, names) if number is not None], view)
    if not promising:
        return None
    start = seed % len(promising)
    tried = (promising[start:] + promising[:start])[: min(MOST_VISITED, run.most_nodes)]
    curable = [number for number in tried if (reason := filters.reason(number)) is None or reason.resolvable]

    def search(beside: DryRun, excluded: Collection[str]) -> NodeVictims | None:
        left_over = [number for number in curable if view.node_names[number] not in excluded]
        return best_among(left_over, beside, seed, evicts=evicts)

    removal = found_beside_nominated(run, search)
    # A removal that disruption budgets forbid does not help either, until they change: the version of the cache has them.
    # Nodes that were not checked to the end, because the budget of work was spent, are tried again next time.
    if removal is None or (evicts and is_forbidden(removal.victims, view)):
        abandoned = set(curable) - run.done if run.budget.is_spent() else set[NodeNumber]()
        unhelpful.add(pod, (number for number in tried if number not in abandoned), view)
    return removal

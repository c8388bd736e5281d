"""The filter verb from the request to the answer, step by step.

The service, the snapshot server, the bench and the tests build the same `FilterVerb`. It is synchronous and has no
effects: `tasks/filter_service.py` waits for assumed pods before it, and hands the plan on after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import msgspec

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.policies import PolicyKey
from extender.model.preemption import PreemptionPlan
from extender.model.rejections import Reason
from extender.rules import catalog
from extender.rules.frames import BestCaseFrame, Frame, WorstCaseFrame
from extender.rules.node_fit import static_rejection
from extender.rules.quota import QuotaCounts
from extender.settings.configuration import Settings
from extender.verbs.dry_run.candidates import KeptNodes, may_plan, node_of_running_plan
from extender.verbs.dry_run.victims import is_forbidden
from extender.verbs.effective_pod import PolicyCounts, effective_pod
from extender.verbs.filter.nominated_pods import (
    rejection_with_nominations,
    without_nodes,
)
from extender.verbs.filter.preemption_plan import UnhelpfulNodeCache, plan_for_rejected_pod
from extender.verbs.filter.rejections import RejectionCache, rejection
from extender.verbs.filter.select_host import answers_one, best_passing, select_hosts
from extender.verbs.request import RequestedNodes, Search, requested_nodes
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

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
    Without ``plans`` a rejected pod gets no preemption plan.
    """

    def __init__(self, view: ClusterView, settings: Settings, *, plans: bool = True) -> None:
        self._view = view
        self._plans = plans
        self.settings = settings
        self.rejections = RejectionCache(settings.answers.rejection_cache_bytes)
        self.unhelpful = UnhelpfulNodeCache()
        self.policies = PolicyCounts.new()
        self.quotas = QuotaCounts()

    def should_wait(self, args: ExtenderArgs) -> bool:
        """Whether waiting for assumed pods may make the answer better. O(groups) without undetermined pods, else two searches.

        Only assumed pods that can change the result are worth it. The request is decided at once where as many nodes
        pass in the worst case, and as good ones by our own score, as could pass in the best case, or where none could:
        `decide` takes the worst case, so a node that passes is right wherever the assumed pods are bound. Where
        nominated pods may take nodes out of the answer, or a rejection would start a preemption, the request waits for
        every assumed pod that it may depend on: both depend on more than the names that pass.
        """
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings) if view.policies.version else args.pod
        if not view.is_undetermined(view.compiled(pod.signature)):
            return False
        if view.nominated and settings.preemption.mode != "off":
            return True
        requested = requested_nodes(args, view)
        at_best = self._ranks(pod, requested, BestCaseFrame(requested.frame, view))
        if not at_best:
            return may_plan(pod, view, settings)
        return self._ranks(pod, requested, WorstCaseFrame(requested.frame, view)) != at_best

    def _ranks(self, pod: Pod, requested: RequestedNodes, frame: Frame) -> list[float]:
        """How the nodes of the answer rank under our own score, best first. One that is chosen is chosen among all."""
        view, settings = self._view, self.settings
        compiled, most = view.compiled(pod.signature), len(requested)
        if settings.answers.shortlist and not answers_one(compiled, view, settings):
            most = min(most, settings.answers.shortlist)
        filters = catalog.prepare_filters(pod, compiled, view, frame)
        if filters.rejects_every_node:
            return []
        return [rank for rank, _ in best_passing(Search(compiled, filters, requested, view, settings), most, 0)]

    def would_pass(self, args: ExtenderArgs) -> bool:
        """Whether `decide` would let a node of a request by names pass now. Counts and caches nothing. O(names × clauses)."""
        search = self._search(args)
        return search is not None and bool(search.first_passing(1, 0))

    def still_passing(self, args: ExtenderArgs) -> Sequence[str]:
        """The names that `decide` would let pass now, if the nodes are not out themselves (deleted, cordoned, tainted, relabelled)."""
        search = self._search(args)
        if search is None:
            return []
        fit = [(each, search.requested.node(each)) for each in search.requested.positions()]
        left = [each for each, node in fit if node is not None and static_rejection(args.pod, node) is None]
        return search.requested.names_at(search.passing(left))

    def _search(self, args: ExtenderArgs) -> Search | None:
        """A request by names as `decide` would search it, beside nominated pods; None where it is rejected on every node."""
        view, settings = self._view, self.settings
        pod = effective_pod(args.pod, view, settings)
        request = msgspec.structs.replace(args, pod=pod)
        if view.nominated:
            request = without_nodes(request, KeptNodes(pod, view, settings).among(set(args.node_names or ())))
        compiled, requested = view.compiled(pod.signature), requested_nodes(request, view)
        frame = WorstCaseFrame(requested.frame, view) if view.is_undetermined(compiled) else requested.frame
        filters = catalog.prepare_filters(pod, compiled, view, frame)
        if filters.rejects_every_node:
            return None
        return Search(compiled, filters, requested, view, settings)

    def decide(self, args: ExtenderArgs, seed: int, avoid: str = "") -> FilterDecision:
        """Decides the requested nodes. O(names × clauses), and the dry runs of `plan_for_rejected_pod` if none passes.

        ``seed`` chooses among equal nodes. ``avoid`` is the node of an earlier answer where the pod was not bound;
        only decisive placement uses it. Assumed pods whose node is undetermined count wherever that is worst.
        """
        if not self._view.policies.version:
            return self._decide(args, seed, avoid)
        asked = args.pod
        pod = effective_pod(asked, self._view, self.settings)
        missed = self.policies.record(asked, self._view)
        if pod is asked:
            return self._decide(args, seed, avoid)
        decision = self._decide(msgspec.structs.replace(args, pod=pod), seed, avoid)
        if decision.plan is None and not missed:
            return decision
        # A plan is about the pod as the watch shows it.
        plan = None if decision.plan is None else replace(decision.plan, preemptor=asked)
        return FilterDecision(decision.result, plan, missed)

    def _decide(self, args: ExtenderArgs, seed: int, avoid: str) -> FilterDecision:
        """The same for an effective pod."""
        pod, view, settings = args.pod, self._view, self.settings
        # Nodes of the request itself may not exist, so no pod is nominated to them or can leave them.
        preempts = args.nodes is None and settings.preemption.mode != "off"
        if pod.signature.affinity.cross_namespace:
            self.quotas.record(pod, view)

        # 1. Nominated pods of equal or higher priority keep their nodes.
        kept = (
            KeptNodes(pod, view, settings).among(set(args.node_names or ()))
            if preempts and view.nominated
            else _NO_NODES
        )
        request = without_nodes(args, kept) if kept else args

        # 2. The rejection cache, while everything that the rejection depends on is unchanged.
        compiled = view.compiled(pod.signature)
        is_undetermined = view.is_undetermined(compiled)
        result = None
        if pod.signature in self.rejections.signatures and not is_undetermined:
            result = self.rejections.find(request, compiled, view)
        if result is None:
            # 3. The rules, prepared once for all nodes.
            requested = requested_nodes(request, view)
            frame = WorstCaseFrame(requested.frame, view) if is_undetermined else requested.frame
            search = Search(compiled, catalog.prepare_filters(pod, compiled, view, frame), requested, view, settings)

            # 4. Selection of the host, or of a shortlist of hosts.
            hosts = select_hosts(search, pod, seed, avoid)
            if hosts:
                return FilterDecision(FilterResult(hosts))
            result = rejection(search)
            # Reserved room counts beside pods of undetermined node too.
            is_certain = Reason.RESERVED not in result.reasons or not view.undetermined()
            if is_certain and not (is_undetermined or search.filters.rejects_all):
                self.rejections.add(request, compiled, view, result)
        if result.error or not (self._plans and preempts and args.node_names):
            return FilterDecision(result)

        # 5. The preemption plan. kube-scheduler makes none for a pod that only an extender rejects.
        awaited = node_of_running_plan(pod, view)
        plan = None if awaited else plan_for_rejected_pod(args, view, settings, self.unhelpful, seed)
        # A plan that disruption budgets forbid is not carried out before they change.
        is_begun = plan is not None and not (
            settings.preemption.eviction == "evict" and is_forbidden(plan.victims, view)
        )
        node = plan.node if plan is not None and is_begun else awaited
        return FilterDecision(rejection_with_nominations(result, args, kept, node, view), plan)

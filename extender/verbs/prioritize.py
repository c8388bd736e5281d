"""The prioritize verb: how much the requested nodes are preferred.

The scheduler multiplies each score by the extender's weight and by ten, and does not clamp it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.rules import catalog
from extender.rules.catalog import Points
from extender.rules.meter import SCORE, RuleMeter
from extender.rules.rule import Rule
from extender.settings.configuration import Settings
from extender.verbs.effective_pod import effective_pod
from extender.verbs.request import RequestedNodes, Unconfirmed, requested_nodes, watched_pod
from extender.wire.extender_v1 import ExtenderArgs

MAX_EXTENDER_SCORE = 10


def has_scores(settings: Settings) -> bool:
    """Whether a prioritize request is worth its cost to the scheduler.

    Not with decisive placement, because filter has chosen among the nodes by score already. Exception: without a shortlist the
    request is cheaper for kube-scheduler than its own scores of zero for thousands of nodes, even if the answer is empty
    (measured).
    """
    return settings.placement != "decisive" or not settings.answers.shortlist


def prioritize_nodes(
    args: ExtenderArgs, view: ClusterView, settings: Settings, meter: RuleMeter | None = None
) -> Mapping[str, int]:
    """Scores by node name. Empty where all nodes are equal: the scheduler then takes zero for each node.

    - Scale ``extender``: 0-10, where 10 is the most that the rules with scores can give.
    - Scale ``inTree``: the points that the in-tree plugins would give, 0-400, so that no difference is rounded away.
    - ``meter``: counts and times the rules.
    """
    compiled = view.compiled(effective_pod(args.pod, view, settings).signature)
    scoring = catalog.scoring_rules(compiled, settings.rules)
    if not scoring:
        return {}
    requested = requested_nodes(args, view)
    points = _points(compiled, requested, view, settings, scoring, meter)
    # Equal points prefer no node. An empty answer is shorter, and the scheduler takes it as zero for each node.
    if len(set(points.of.values())) <= 1:
        return {}
    names = requested.names_at(list(points.of))
    if settings.answers.score_scale == "inTree":
        return dict(zip(names, points.of.values(), strict=True))
    rounded = (round(MAX_EXTENDER_SCORE * score / points.most) for score in points.of.values())
    scores = dict(zip(names, rounded, strict=True))
    # Rounding to eleven steps may make all nodes equal.
    return scores if len(set(scores.values())) > 1 else {}


def _points(
    compiled: CompiledConstraints,
    requested: RequestedNodes,
    view: ClusterView,
    settings: Settings,
    scoring: Sequence[Rule],
    meter: RuleMeter | None,
) -> Points:
    nodes, rules = requested.positions(), settings.rules
    if meter is not None:
        meter.count("prioritize", SCORE, scoring)
        # Only every n-th request is timed, because reading the clock for each rule takes 10 to 20 µs.
        meter.left -= 1
        if not meter.left:
            with meter.sampled(SCORE):
                return catalog.points(compiled, view, requested.frame, nodes, rules, meter.watch)
    return catalog.points(compiled, view, requested.frame, nodes, rules)


def prioritize_watched(
    args: ExtenderArgs, view: ClusterView, settings: Settings, meter: RuleMeter | None = None
) -> Mapping[str, int]:
    """As `prioritize_nodes`, for the pod and the nodes that the watch shows.

    1. A deleted pod gets no scores. Any other pod that is not pending in the watch gets scores only if a requested node does not
       exist in the index: such requests are simulations, of an autoscaler for example.
    2. The index is at least as new as it was for filter's answer (KEP-2249, Design Details). A request with whole nodes has the
       nodes of the scheduler's snapshot, which may be older: they count as the watch shows them, as in filter.
    3. Only nodes of filter's answer have a score, whatever has changed since.
    """
    pod = watched_pod(args.pod.uid, args.pod.namespace, args.pod.name, view)
    if isinstance(pod, Pod):
        return prioritize_nodes(_as_filtered(replace(args, pod=pod), view), view, settings, meter)
    is_new = args.nodes is not None and not all(node.name in view.known for node in args.nodes)
    is_what_if = is_new and pod is not Unconfirmed.DELETED
    return prioritize_nodes(args, view, settings, meter) if is_what_if else {}


def _as_filtered(args: ExtenderArgs, view: ClusterView) -> ExtenderArgs:
    """The request by the names that filter answered for the pod. A request whose nodes are all unknown to the index stays as it is."""
    if args.nodes and not any(node.name in view.known for node in args.nodes):
        return args
    args, assumed = args.by_names(), view.assumed_nodes(args.pod.uid)
    if assumed is None:
        return args
    among = set(assumed)
    return replace(args, node_names=[name for name in args.node_names or () if name in among])

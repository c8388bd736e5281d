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
from extender.verbs.request import RequestedNodes, requested_nodes, watched_pod
from extender.wire.extender_v1 import ExtenderArgs

MAX_EXTENDER_SCORE = 10


def has_scores(settings: Settings) -> bool:
    """Whether a prioritize request is worth its cost to the scheduler.

    With decisive placement it is not, as filter has chosen among the nodes by score already. Without a shortlist it is
    all the same: kube-scheduler spends more on its own scores of zero for thousands of nodes than on a request with an
    empty answer (measured).
    """
    return settings.placement != "decisive" or not settings.answers.shortlist


def prioritize_nodes(
    args: ExtenderArgs, view: ClusterView, settings: Settings, meter: RuleMeter | None = None
) -> Mapping[str, int]:
    """Scores by node name; empty where all nodes are equal, which the scheduler takes as zero for each.

    Scale ``extender``: 0–10, where 10 is the most that the rules with scores can give. Scale ``inTree``: the points as
    the in-tree plugins would give them, 0–400, so that no difference is rounded away. ``meter`` counts and times the rules.
    """
    compiled = view.compiled(effective_pod(args.pod, view, settings).signature)
    scoring = catalog.scoring_rules(compiled, settings.rules)
    if not scoring:
        return {}
    requested = requested_nodes(args, view)
    found = _points(compiled, requested, view, settings, scoring, meter)
    if len(set(found.of.values())) <= 1:
        return {}
    names = requested.names_at(list(found.of))
    if settings.answers.score_scale == "inTree":
        return dict(zip(names, found.of.values(), strict=True))
    rounded = (round(MAX_EXTENDER_SCORE * score / found.most) for score in found.of.values())
    scores = dict(zip(names, rounded, strict=True))
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
        meter.left -= 1
        if not meter.left:
            with meter.sampled(SCORE):
                return catalog.points(compiled, view, requested.frame, nodes, rules, meter.watch)
    return catalog.points(compiled, view, requested.frame, nodes, rules)


def prioritize_watched(
    args: ExtenderArgs, view: ClusterView, settings: Settings, meter: RuleMeter | None = None
) -> Mapping[str, int]:
    """The same for the pod that the watch shows; empty for any other, unless a requested node does not exist."""
    pod = watched_pod(args.pod.uid, args.pod.namespace, args.pod.name, view)
    if isinstance(pod, Pod):
        return prioritize_nodes(replace(args, pod=pod), view, settings, meter)
    is_what_if = args.nodes is not None and not all(node.name in view.known for node in args.nodes)
    return prioritize_nodes(args, view, settings, meter) if is_what_if else {}

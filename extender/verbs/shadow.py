"""Shadow decisions: what mode offload would answer, compared with the plugins of kube-scheduler, which decide. Never answered.

Two things show what the plugins have decided:

1. The nodes of a filter request have passed the plugins. A node that our rules reject is a difference.
2. Where no node passes, the scheduler requests nothing from the extender. It writes into the pod's condition how many nodes it
   rejected for which reason. A reason that our rules count more or less often is a difference.

Only a certain difference counts:

1. The scheduler knows the node of an assumed pod; the extender does not until the watch shows the pod bound. So each count is taken
   in the best case for the incoming pod.
2. Other plugins may reject a node before the spread and affinity plugins, and the extender knows these plugins in part only. So
   the counts of a condition are compared with bounds.

The rules are prepared by `catalog`, as for filter. Nominated pods do not count for a node of a request: the node passed with and
without them. Directives of the extender's own policies are not compared, because the plugins do not know them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.bounded import Steps
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import NODE_FIT, PreparedFilters
from extender.rules.frames import Frame, IndexFrame
from extender.rules.free_resources import conflicting_nominated_pods, static_rejection
from extender.rules.interpod_affinity import terms_of_others

MOST_NODES: Final = 16  # nodes of one difference that are followed up
LIMITS: Final = "Limits"
_FITS_A_STEP: Final = 120  # checks of node fit, at 4 µs
_MOST_UNDONE: Final = 256  # changes of pods

RULE_OF_REASON: Final = {
    Reason.SPREAD_LABEL_MISSING: "PodTopologySpread",
    Reason.SPREAD_SKEW: "PodTopologySpread",
    Reason.AFFINITY: "InterPodAffinity",
    Reason.ANTI_AFFINITY: "InterPodAffinity",
    Reason.EXISTING_ANTI_AFFINITY: "InterPodAffinity",
}
_REASONS: Final = {reason.text: reason for reason in RULE_OF_REASON}
# Texts of plugins that node fit decides like. https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/scheduler/framework/plugins
_OF_NODE_FIT: Final = frozenset(
    reason.text for reason in (Reason.CORDONED, Reason.TAINT, Reason.NODE_AFFINITY, Reason.HOST_PORTS)
)
_OF_ROOM: Final = ("Insufficient ", "Too many pods")
_TAINT: Final = "node(s) had untolerated taint"  # kube-scheduler before 1.34 names the taint behind it


class Judged(NamedTuple):
    """A request as our rules decide it.

    - ``rules``: the rules that apply to the pod.
    - ``rejected``: nodes that our rules reject for certain, at most `MOST_NODES`; ``more``: how many others they reject.
    - ``is_assumed``: offload would have rejected a node, because an assumed pod may be there.
    """

    rules: tuple[str, ...] = ()
    rejected: Mapping[str, Rejection] = {}
    more: int = 0
    is_assumed: bool = False


def shadow_compiled(pod: Pod, view: ClusterView) -> CompiledConstraints:
    """The pod's constraints without the directives of policies, as the plugins see them. O(1) for a known signature."""
    assert view.shadow_compiled is not None  # noqa: S101 (built together)
    return view.shadow_compiled(pod.signature)


def _filters(pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> PreparedFilters:
    return catalog.prepare(catalog.active_in_place_of_plugins(compiled, view), pod, view, frame)


def judge_request(pod: Pod, names: Iterable[str], view: ClusterView) -> Judged:
    """Which nodes our rules reject although they passed the plugins. O(names × clauses); twice that with undetermined pods."""
    if (excess := pod.signature.excess) is not None:
        names = list(names)
        rejection = Rejection(LIMITS, Reason.OVER_LIMIT, excess.text)
        return Judged((LIMITS,), dict.fromkeys(names[:MOST_NODES], rejection), max(0, len(names) - MOST_NODES))
    compiled = shadow_compiled(pod, view)
    rules = tuple([rule.name for rule, _ in catalog.active_in_place_of_plugins(compiled, view)])
    if not rules:
        return Judged()
    nodes = [number for number in map(view.known.get, names) if number is not None]
    frame, is_undetermined = IndexFrame(), view.is_undetermined(compiled)
    failing = _failing(_filters(pod, compiled, view, frame.worst_case(view) if is_undetermined else frame), nodes)
    # The worst case passes everywhere, or there is one case only: no second look is needed.
    if not failing or not is_undetermined:
        return Judged(rules, *_rejections(_filters(pod, compiled, view, frame), failing, view))
    # A node that fails even in the best case is a certain difference. One that fails in the worst case alone is none.
    filters = _filters(pod, compiled, view, frame.best_case(view))
    rejected, more = _rejections(filters, _failing(filters, failing), view)
    return Judged(rules, rejected, more, is_assumed=True)


def is_comparable(pod: Pod, view: ClusterView, *, has_policy_terms: bool) -> bool:
    """Whether our counts can equal the plugins' counts: not where anti-affinity terms of policies may count against the pod."""
    return not (has_policy_terms and terms_of_others(shadow_compiled(pod, view)).anti)


def still_rejected(pod: Pod, names: Iterable[str], view: ClusterView) -> set[str]:
    """The given nodes that our rules reject now, even in the best case. O(names × clauses)."""
    return _still_rejected(pod, shadow_compiled(pod, view), names, view)


def _still_rejected(pod: Pod, compiled: CompiledConstraints, names: Iterable[str], view: ClusterView) -> set[str]:
    frame = IndexFrame()
    case = frame.best_case(view) if view.is_undetermined(compiled) else frame
    nodes = [number for number in map(view.known.get, names) if number is not None]
    return {view.node_names[node] for node in _failing(_filters(pod, compiled, view, case), nodes)}


def _failing(filters: PreparedFilters, nodes: Sequence[NodeNumber]) -> list[NodeNumber]:
    passing = filters.passing(nodes)
    if len(passing) == len(nodes):
        return []
    passed = set(passing)
    return [node for node in nodes if node not in passed]


def _rejections(
    filters: PreparedFilters, nodes: Sequence[NodeNumber], view: ClusterView
) -> tuple[dict[str, Rejection], int]:
    """The rejections of the first `MOST_NODES` failing nodes, and how many other nodes fail."""
    verdicts = {view.node_names[node]: filters.verdict(node) for node in nodes[:MOST_NODES]}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}, max(0, len(nodes) - MOST_NODES)


class PodChange(NamedTuple):
    """A pod that came to a node, changed there, or left it.

    - ``time``: when the watch showed it.
    - ``old``, ``new``: the pod before and after the change, None where it was on no node.
    - ``answered``: for a pod that was bound, when filter answered it; infinite for any other change.
    """

    time: float
    old: Pod | None
    new: Pod | None
    answered: float = inf


def rejected_before(pod: Pod, names: Collection[str], changes: Iterable[PodChange], view: ClusterView) -> set[str]:
    """The given nodes that our rules reject now and in every earlier state. The changes are undone one by one, the last one first.

    The scheduler decides by its state at the begin of the scheduling cycle, which may be older than the index. A pod with several
    changes is undone twice: first its last change alone, then all of its changes at once.
    O(changes × (groups that count the pod + names × clauses)). At the end the index is as before.
    """
    last, whole = dict[str, PodChange](), dict[str, PodChange]()
    for change in changes:
        changed = change.new or change.old
        if changed is None or changed.uid == pod.uid:
            continue
        if changed.uid in whole:
            whole[changed.uid] = whole[changed.uid]._replace(old=change.old)
        elif len(whole) < _MOST_UNDONE:
            last[changed.uid] = whole[changed.uid] = change
    rejected = _rejected_before_each(pod, set(names), last.values(), view)
    return rejected if last == whole else _rejected_before_each(pod, rejected, whole.values(), view)


def _rejected_before_each(pod: Pod, rejected: set[str], changes: Iterable[PodChange], view: ClusterView) -> set[str]:
    """The rejected nodes that our rules reject after each undone change too. Each pod has one change."""
    compiled = shadow_compiled(pod, view)
    version = compiled.serial, view.dependency_version(compiled)
    with view.trial() as trial:
        for change in changes:
            if change.new is not None:
                trial.take(change.new)
            if change.old is not None and (number := view.known.get(change.old.node)) is not None:
                trial.place(change.old, number)
            compiled = shadow_compiled(pod, view)  # again: a deleted pod that returns brings its terms back
            before, version = version, (compiled.serial, view.dependency_version(compiled))
            if version != before:
                rejected = rejected & _still_rejected(pod, compiled, rejected, view)
            if not rejected:
                break
    return rejected


# -- the condition of a pod that no node takes ----------------------------------------------------------------------------

# Such as: "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) didn't match pod affinity rules. preemption: 0/5 nodes ..."
_MESSAGE: Final = re.compile(r"Unschedulable: 0/(\d+) nodes are available: (.*)", re.DOTALL)
_COUNT: Final = re.compile(r"(\d+) (.+?)(?=, \d+ |\.(?: |$))", re.DOTALL)
_END: Final = re.compile(r"\.(?: |$)")


class Said(NamedTuple):
    """The counts of a condition: all nodes; rejected nodes by reason, for our reasons; rejections for other plugins' reasons."""

    nodes: int
    counts: Mapping[Reason, int]
    unknown: int


def read_message(message: str) -> Said | None:
    """The counts in the text of kube-scheduler's condition. None where it has no counts, or where it was cut. O(length)."""
    match = _MESSAGE.fullmatch(message)
    if match is None or _END.search(match[2]) is None:
        return None
    counts: dict[Reason, int] = {}
    unknown = at = 0
    text = match[2]
    while part := _COUNT.match(text, at):
        number, why = int(part[1]), part[2]
        if why in _REASONS:
            counts[_REASONS[why]] = number
        elif why not in _OF_NODE_FIT and not why.startswith(_OF_ROOM) and not why.startswith(_TAINT):
            unknown += number
        if not text.startswith(", ", part.end()):
            break
        at = part.end() + len(", ")
    return Said(int(match[1]), counts, unknown) if part else None


class ReasonFrequency(NamedTuple):
    """A reason that the condition counts ``often`` times, and our rules at least ``least`` and at most ``most`` times.

    ``nodes``: some nodes that our rules reject for it.
    """

    reason: Reason
    often: int
    least: int
    most: int
    nodes: tuple[str, ...] = ()


class Compared(NamedTuple):
    """A condition compared with our rules. ``rules``: the rules that apply to the pod."""

    rules: tuple[str, ...] = ()
    differing: tuple[ReasonFrequency, ...] = ()


def judge_message(pod: Pod, said: Said, view: ClusterView) -> Steps[Compared]:
    """Which reasons of a condition our rules count differently. O(nodes × (clauses + node fit)), in steps of half a millisecond.

    kube-scheduler counts a node for the first plugin that rejects it, and the plugins of node fit run first. So the bounds are:

    - most: the nodes that our rules may reject for the reason, without nodes that a taint, cordon or node affinity rejects;
    - least: the nodes that our rules reject for certain and that pass node fit, less the rejections for unknown reasons.
    """
    compiled = shadow_compiled(pod, view)
    rules = tuple([rule.name for rule, _ in catalog.active_in_place_of_plugins(compiled, view)])
    if not rules and not said.counts:
        return Compared()
    nodes = list(view.known.values())
    possible = _possible_reasons(pod, compiled, nodes, view)
    most: Counter[Reason] = Counter()
    certain: dict[Reason, list[NodeNumber]] = {}
    for at, number in enumerate(nodes):
        if at % _FITS_A_STEP == _FITS_A_STEP - 1:
            yield
        reasons, there = possible(number), view.node(number)
        if reasons == (None,) or there is None or static_rejection(pod, there) is not None:
            continue
        most.update(reason for reason in (reasons or RULE_OF_REASON) if reason is not None)
        if len(reasons) == 1 and reasons[0] is not None:
            certain.setdefault(reasons[0], []).append(number)
    differing: list[ReasonFrequency] = []
    for reason in RULE_OF_REASON:
        often, here = said.counts.get(reason, 0), certain.get(reason, [])
        # Node fit is checked last, and only for a reason that differs without it.
        if len(here) > often + said.unknown:
            here = yield from _fitting(pod, compiled, here, view)
        if often > most[reason] or len(here) > often + said.unknown:
            names = tuple([node.name for number in here[:3] if (node := view.node(number)) is not None])
            differing.append(ReasonFrequency(reason, often, len(here), most[reason], names))
    return Compared(
        rules or tuple({RULE_OF_REASON[difference.reason]: None for difference in differing}), tuple(differing)
    )


class _PossibleReasons:
    """For each node the reasons for which the plugins may reject it. None among them: it may pass. Empty: nothing is known."""

    def __init__(
        self, pod: Pod, nodes: Sequence[NodeNumber], cases: Sequence[PreparedFilters], view: ClusterView
    ) -> None:
        self._cases = [
            {node: reason for reason, rejected in filters.rejected(nodes) for node in rejected} for filters in cases
        ]
        names = (name for name in view.nominated if conflicting_nominated_pods(pod, name, view))
        self._nominated = {view.known[name] for name in names if name in view.known}

    def __call__(self, node: NodeNumber) -> tuple[Reason | None, ...]:
        # The scheduler filters such a node with and without its nominated pods, so either reason is possible.
        if node in self._nominated:
            return ()
        reasons = {case.get(node) for case in self._cases}
        return tuple(reasons) if len(reasons) == 1 else ()


def _possible_reasons(
    pod: Pod, compiled: CompiledConstraints, nodes: Sequence[NodeNumber], view: ClusterView
) -> _PossibleReasons:
    frame = IndexFrame()
    frames: Sequence[Frame] = (frame,)
    if view.is_undetermined(compiled):
        frames = (frame.best_case(view), frame.worst_case(view))
    return _PossibleReasons(pod, nodes, [_filters(pod, compiled, view, frame) for frame in frames], view)


def _fitting(
    pod: Pod, compiled: CompiledConstraints, nodes: Sequence[NodeNumber], view: ClusterView
) -> Steps[list[NodeNumber]]:
    fit, fitting = NODE_FIT.prepare_filter(pod, compiled, view, IndexFrame()), []
    for at, number in enumerate(nodes):
        if at % _FITS_A_STEP == _FITS_A_STEP - 1:
            yield
        if fit.verdict(number) is None:
            fitting.append(number)
    return fitting

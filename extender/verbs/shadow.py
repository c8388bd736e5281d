"""Shadow decisions: what offload would answer, beside a kube-scheduler whose own plugins decide; compared, never answered.

Two things show what the plugins have decided. The nodes of a filter request have passed them: each that our rules reject is
a difference. And where no node passes, the scheduler asks no extender, but counts in the pod's condition how many nodes it
rejected for which reason: a reason that it counts more or less often than our rules do is one as well.

Only what is certain is a difference. The scheduler knows on which node an assumed pod is, and we do not before the watch shows it
bound: so each count is taken in the best case for the incoming pod, for each such pod. And the plugins of the scheduler that run
before its spread and affinity plugins, which we see in part only, may reject a node first: so the counts of a condition are
compared with bounds.

The rules are those of `catalog`, prepared as `filter` prepares them. Nominated pods do not count for a node of a request: it
passed with and without them. What the scheduling policies of the extender add is not compared, as the plugins do not know it.
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
from extender.model.objects import Pod
from extender.model.rejections import Reason, Rejection
from extender.rules import catalog
from extender.rules.catalog import NODE_FIT, PreparedFilters
from extender.rules.constraint_states import Steps
from extender.rules.frames import Frame, IndexFrame
from extender.rules.free_resources import conflicting_nominated_pods, static_rejection
from extender.rules.interpod_affinity import terms_of_others

MOST_NODES: Final = 16  # of a difference that are followed
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
# Texts of plugins whose decision node fit has too. https://github.com/kubernetes/kubernetes/tree/v1.36.0/pkg/scheduler/framework/plugins
_OF_NODE_FIT: Final = frozenset(
    reason.text for reason in (Reason.CORDONED, Reason.TAINT, Reason.NODE_AFFINITY, Reason.HOST_PORTS)
)
_OF_ROOM: Final = ("Insufficient ", "Too many pods")


class Judged(NamedTuple):
    """A request as our rules decide it. ``rules`` have something to say about the pod; ``rejected`` are nodes that fail for certain.

    ``more``: how many nodes fail besides. ``is_assumed``: offload would have rejected a node, where an assumed pod may be.
    """

    rules: tuple[str, ...] = ()
    rejected: Mapping[str, Rejection] = {}
    more: int = 0
    is_assumed: bool = False


def shadow_compiled(pod: Pod, view: ClusterView) -> CompiledConstraints:
    """The constraints that the plugins decide, of a pod without what policies add. O(1) for one that was compiled before."""
    assert view.shadow_compiled is not None  # noqa: S101 (built together)
    return view.shadow_compiled(pod.signature)


def _filters(pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> PreparedFilters:
    return catalog.prepare(catalog.active_in_place_of_plugins(compiled, view), pod, view, frame)


def judge_request(pod: Pod, names: Iterable[str], view: ClusterView) -> Judged:
    """Which of the nodes that passed the plugins our rules reject. O(names × clauses); twice that while a pod is undetermined."""
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
    if not failing or not is_undetermined:
        return Judged(rules, *_rejections(_filters(pod, compiled, view, frame), failing, view))
    filters = _filters(pod, compiled, view, frame.best_case(view))
    rejected, more = _rejections(filters, _failing(filters, failing), view)
    return Judged(rules, rejected, more, is_assumed=True)


def is_comparable(pod: Pod, view: ClusterView, *, has_policy_terms: bool) -> bool:
    """Whether our counts are those of the plugins: not where policies add terms to existing pods that such pods are held to."""
    return not (has_policy_terms and terms_of_others(shadow_compiled(pod, view)).anti)


def still_rejected(pod: Pod, names: Iterable[str], view: ClusterView) -> set[str]:
    """Those of a few nodes that our rules reject now, also in the best case. O(names × clauses)."""
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
    """Why so many of the failing nodes as are followed fail, and how many others there are."""
    verdicts = {view.node_names[node]: filters.verdict(node) for node in nodes[:MOST_NODES]}
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}, max(0, len(nodes) - MOST_NODES)


class PodChange(NamedTuple):
    """A change of what counts on a node: the pod before and after it, None where it was on no node; and when it was shown.

    ``answered``: when filter let a pod pass that is bound now; infinite for any other change.
    """

    time: float
    old: Pod | None
    new: Pod | None
    answered: float = inf


def rejected_before(pod: Pod, names: Collection[str], changes: Iterable[PodChange], view: ClusterView) -> set[str]:
    """Those of a few nodes that our rules reject in every earlier state too: each of the changes, the last one first, is undone.

    The scheduler decides by what it has seen when it begins with a pod, which may be less than we have. O(changes × (groups that
    count the pod + names × clauses)), all undone at the end.
    """
    left, done = set(names), set[str]()
    compiled = shadow_compiled(pod, view)
    version = compiled.serial, view.dependency_version(compiled)
    with view.what_if() as tried:
        for change in changes:
            changed = change.new or change.old
            if changed is None or changed.uid in done or changed.uid == pod.uid:
                continue
            done.add(changed.uid)
            if change.new is not None:
                tried.take(change.new)
            if change.old is not None and (number := view.known.get(change.old.node)) is not None:
                tried.place(change.old, number)
            compiled = shadow_compiled(pod, view)  # after it, as the terms of a pod that was deleted are there again
            before, version = version, (compiled.serial, view.dependency_version(compiled))
            if version != before:
                left &= _still_rejected(pod, compiled, left, view)
            if not left or len(done) >= _MOST_UNDONE:
                break
    return left


# -- the condition of a pod that no node takes ----------------------------------------------------------------------------

# Such as: "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) didn't match pod affinity rules. preemption: 0/5 nodes ..."
_MESSAGE: Final = re.compile(r"Unschedulable: 0/(\d+) nodes are available: (.*)", re.DOTALL)
_COUNT: Final = re.compile(r"(\d+) (.+?)(?=, \d+ |\.(?: |$))", re.DOTALL)
_END: Final = re.compile(r"\.(?: |$)")


class Said(NamedTuple):
    """What a condition counts: the nodes, those rejected for each of our reasons, and rejections that node fit does not know."""

    nodes: int
    counts: Mapping[Reason, int]
    unknown: int


def read_message(message: str) -> Said | None:
    """The counts of a condition of kube-scheduler; None where it has none, or where the text was cut. O(its length)."""
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
        elif why not in _OF_NODE_FIT and not why.startswith(_OF_ROOM) and not _is_taint(why):
            unknown += number
        if not text.startswith(", ", part.end()):
            break
        at = part.end() + len(", ")
    return Said(int(match[1]), counts, unknown) if part else None


def _is_taint(text: str) -> bool:
    """kube-scheduler before 1.34 names the taint."""
    return text.startswith("node(s) had untolerated taint")


class ReasonFrequency(NamedTuple):
    """How often our rules count a reason where the condition counts it so ``often``: at least and at most, with nodes as examples."""

    reason: Reason
    often: int
    least: int
    most: int
    nodes: tuple[str, ...] = ()


class Compared(NamedTuple):
    """A condition as our rules count it. ``rules`` have something to say about the pod."""

    rules: tuple[str, ...] = ()
    differing: tuple[ReasonFrequency, ...] = ()


def judge_message(pod: Pod, said: Said, view: ClusterView) -> Steps[Compared]:
    """Which reasons of a condition our rules count otherwise. O(nodes × (clauses + node fit)), in steps of half a millisecond.

    A node is counted for the first plugin that rejects it, and those of node fit come first. At most: all nodes that our rules may
    reject for the reason and no taint, cordon or node affinity does. At least: those that they reject for certain, and that node
    fit lets pass; rejections that we do not know may be of these.
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
        if len(here) > often + said.unknown:
            here = yield from _fitting(pod, compiled, here, view)
        if often > most[reason] or len(here) > often + said.unknown:
            names = tuple([node.name for number in here[:3] if (node := view.node(number)) is not None])
            differing.append(ReasonFrequency(reason, often, len(here), most[reason], names))
    return Compared(
        rules or tuple({RULE_OF_REASON[difference.reason]: None for difference in differing}), tuple(differing)
    )


class _PossibleReasons:
    """By node, the reasons for which the plugins may reject it (None: it may pass); empty where that is not known at all."""

    def __init__(
        self, pod: Pod, nodes: Sequence[NodeNumber], cases: Sequence[PreparedFilters], view: ClusterView
    ) -> None:
        self._cases = [
            {node: reason for reason, rejected in filters.rejected(nodes) for node in rejected} for filters in cases
        ]
        names = (name for name in view.nominated if conflicting_nominated_pods(pod, name, view))
        self._nominated = {view.known[name] for name in names if name in view.known}

    def __call__(self, node: NodeNumber) -> tuple[Reason | None, ...]:
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

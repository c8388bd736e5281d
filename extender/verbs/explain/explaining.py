"""Why a pod is pending: the verdict of filter for every node, what each rule counts, and what would help.

The verdict comes from the rules of filter, prepared in the same way, so both agree. Node fit is reported beside it, because
kube-scheduler decides that itself. Each step takes about a millisecond, so that the caller can serve requests between the steps.
Each step decides a piece of the nodes. If the cluster changes meanwhile, the explanation says so.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import (
    ConstraintState,
    DomainState,
    Explanation,
    NodeState,
    Obstacle,
    shown_domain,
)
from extender.model.bounded import Steps
from extender.model.host_ports import UsedPorts
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.model.resources import CPU
from extender.model.units import agreeing, counted, cut, listed
from extender.rules import catalog
from extender.rules.free_resources import claims_on
from extender.rules.rule import PreparedFilter, Rule
from extender.settings.configuration import Settings
from extender.verbs.explain.changes import find_changes
from extender.verbs.explain.trials import Incoming

_EXAMPLES: Final = 3
_FITS_A_STEP: Final = 120  # checks of node fit, at 4 µs
_CLAUSES_A_STEP: Final = 10_000  # checks of a group for a node, at 0.05 µs
UNSEEN: Final = "volumes and devices, which the extender does not see"

_NOMINATED: Final = Rejection("NominatedPods", Reason.NOMINATED)


def explain(
    pod: Pod, view: ClusterView, settings: Settings, node: str = "", state: str = "", *, offers_changes: bool = True
) -> Steps[Explanation]:
    """The explanation for a pod that is on no node. ``node``: also the state of this node, if it exists.

    O(nodes × clauses + signatures + nodes with a counted pod), and the trials of `find_changes`.
    """
    # 1. The verdict of filter, and what each rule rejects by itself. 2. Node fit. 3. The counts of each constraint. 4. Changes, only if
    # no node passes and fits: they cost most. The version is compared at the end, because the cluster may change between steps.
    incoming = Incoming(pod, view, settings)
    version = _version(incoming)
    yield from _check(incoming)
    obstacles = [*_kept_obstacles(incoming), *(yield from _rule_obstacles(incoming))]
    yield from _check_fit(incoming)
    obstacles += _fit_obstacles(incoming)
    constraints: list[ConstraintState] = []
    for rule, part in catalog.active(incoming.compiled, view):
        constraints += yield from rule.constraint_states(incoming.pod, part, view, incoming.frame)
    fitting = [number for number in incoming.passing if incoming.rejections.get(number) is None]
    changes = []
    if offers_changes and not fitting:
        changes = yield from find_changes(incoming, constraints)
    enforced = incoming.pod.signature.enforced
    return Explanation(
        pod=pod.full_name,
        state=state or ("gated" if pod.gated else "pending"),
        rejection=pod.rejection,
        nodes=len(incoming.numbers),
        passing=len(incoming.passing),
        fitting=len(fitting),
        candidates=tuple(_names(fitting, view)),
        obstacles=tuple(obstacles),
        constraints=tuple(constraints),
        changes=tuple(changes),
        node=_state_of(node, incoming) if node in view.known else None,
        preempting=view.uncleared_node(pod.uid) or view.plan_node(pod.uid),
        policies=() if enforced is None else tuple(map(str, enforced.every_policy)),
        unchecked=UNSEEN if pod.has_unseen_needs else "",
        is_changed=version != _version(incoming),
    )


def _version(incoming: Incoming) -> Hashable:
    """A value that stays equal while everything is unchanged that the explanation depends on."""
    view, compiled = incoming.view, incoming.compiled
    return catalog.dependencies(incoming.pod, compiled, view), catalog.NODE_FIT.version(compiled, view), len(view.known)


def _check(incoming: Incoming) -> Steps[None]:
    filters = catalog.prepare_beside_fit(incoming.pod, incoming.compiled, incoming.view, incoming.frame)
    for piece in _pieces(incoming):
        incoming.passing += (number for number in filters.passing(piece) if number not in incoming.kept)
        yield


def _pieces(incoming: Incoming) -> Iterator[Sequence[NodeNumber]]:
    size = max(_CLAUSES_A_STEP // (1 + len(incoming.compiled.filter_groups())), 1)
    for start in range(0, len(incoming.numbers), size):
        yield incoming.numbers[start : start + size]


def _kept_obstacles(incoming: Incoming) -> Iterator[Obstacle]:
    if incoming.kept:
        view, nodes = incoming.view, sorted(incoming.kept)
        nominated = (view.nominated.get(name, {}).values() for name in _names(incoming.kept, view))
        pods = [pod.full_name for here in nominated for pod in here]
        yield _as_obstacle(replace(_NOMINATED, blamed=tuple(pods[:_EXAMPLES])), nodes, view)


def _prepared(incoming: Incoming) -> Iterator[tuple[Rule, PreparedFilter]]:
    for rule, part in catalog.active(incoming.compiled, incoming.view):
        prepared = rule.prepare_filter(incoming.pod, part, incoming.view, incoming.frame)
        if prepared.status.code is not Code.SKIP:
            yield rule, prepared


def _rule_obstacles(incoming: Incoming) -> Steps[list[Obstacle]]:
    """The nodes that each rule rejects by itself, by reason. Several rules may reject the same node."""
    obstacles: list[Obstacle] = []
    for rule, prepared in _prepared(incoming):
        by_reason: dict[Reason, list[NodeNumber]] = {}
        for piece in _pieces(incoming):
            for reason, nodes in prepared.rejected(piece):
                by_reason.setdefault(reason, []).extend(nodes)
            yield
        for reason, nodes in by_reason.items():
            obstacles += [_as_obstacle(_of_rule(rule, prepared, reason, nodes), nodes, incoming.view)] if nodes else []
    return obstacles


def _of_rule(rule: Rule, prepared: PreparedFilter, reason: Reason, nodes: Sequence[NodeNumber]) -> Rejection:
    """The rejection with its details on the first of the nodes, unless the constraint states show these details."""
    rejection = None
    if not (rule.counts_by_domain and reason.resolvable):
        rejection = prepared.verdict(nodes[0])
    if rejection is None or rejection.reason is not reason:
        rejection = Rejection(rule.name, reason)
    if rule.counts_by_domain:  # other nodes may be in other domains
        blamed = _excluded(prepared, nodes) if reason is Reason.DOMAIN_EXCLUDED else ()
        rejection = replace(rejection, domain=None, count=0, limit=None, blamed=blamed)
    return rejection


def _excluded(prepared: PreparedFilter, nodes: Sequence[NodeNumber]) -> tuple[str, ...]:
    """The excluded domains of the example nodes, with the time and the reason of the exclusion."""
    verdicts = [prepared.verdict(number) for number in nodes[:_EXAMPLES]]
    blamed = [
        verdict.blamed for verdict in verdicts if verdict is not None and verdict.reason is Reason.DOMAIN_EXCLUDED
    ]
    return tuple(dict.fromkeys(name for names in blamed for name in names))


def _check_fit(incoming: Incoming) -> Steps[None]:
    fit = catalog.NODE_FIT.prepare_filter(incoming.asked, incoming.compiled, incoming.view, incoming.frame)
    for at, number in enumerate(incoming.numbers):
        incoming.rejections[number] = _with_unmet(fit.verdict(number), number, incoming)
        if at % _FITS_A_STEP == _FITS_A_STEP - 1:
            yield


def _with_unmet(rejection: Rejection | None, number: NodeNumber, incoming: Incoming) -> Rejection | None:
    """The rejection. For node affinity: with the clause that the node does not satisfy."""
    node = incoming.view.node(number)
    if rejection is None or rejection.reason is not Reason.NODE_AFFINITY or node is None:
        return rejection
    unmet = incoming.asked.signature.node_affinity.unmet(node.name, node.labels)
    return replace(rejection, blamed=(cut(unmet, _LONGEST_SELECTOR),))


def _with_holder(rejection: Rejection, nodes: Sequence[NodeNumber], incoming: Incoming) -> Rejection:
    """The rejection. For a host port: with a pod that uses it on the first of the nodes. O(pods on that node)."""
    if rejection.reason is not Reason.HOST_PORTS:
        return rejection
    wanted = UsedPorts(incoming.asked.host_ports)
    node = incoming.view.node_names[nodes[0]]
    there = (*incoming.view.pods_on(nodes[0]).values(), *claims_on(node, incoming.asked, incoming.view))
    holders = (
        pod.full_name for pod in there if f"port {UsedPorts(pod.host_ports).conflict(wanted)}" == rejection.blamed[0]
    )
    return replace(rejection, blamed=(*rejection.blamed, *islice(holders, 1)))


def _fit_obstacles(incoming: Incoming) -> Iterator[Obstacle]:
    """Why nodes do not take the pod by node fit: one obstacle for each taint, resource, ..."""
    groups: dict[tuple[Reason, tuple[str, ...]], dict[NodeNumber, Rejection]] = {}
    for number, rejection in incoming.rejections.items():
        if rejection is not None:
            groups.setdefault((rejection.reason, rejection.blamed), {})[number] = rejection
    for nodes in groups.values():  # for a resource: the rejection of the node with the most free
        rejection = max(nodes.values(), key=lambda rejection: rejection.limit or 0)
        yield _as_obstacle(_with_holder(rejection, list(nodes), incoming), list(nodes), incoming.view)


def _state_of(name: str, incoming: Incoming) -> NodeState:
    number = incoming.view.known[name]
    rejections: list[Rejection] = [_NOMINATED] if number in incoming.kept else []
    rejections += (verdict for _, prepared in _prepared(incoming) if (verdict := prepared.verdict(number)) is not None)
    fit = catalog.NODE_FIT.prepare_filter(incoming.asked, incoming.compiled, incoming.view, incoming.frame)
    rejection = _with_unmet(fit.verdict(number), number, incoming)
    rejection = None if rejection is None else _with_holder(rejection, [number], incoming)
    every = rejections if rejection is None else [*rejections, rejection]
    obstacles = tuple(_as_obstacle(rejection, [number], incoming.view) for rejection in every)
    return NodeState(name=name, passes=not rejections, fits=rejection is None, obstacles=obstacles)


def _as_obstacle(rejection: Rejection, nodes: Sequence[NodeNumber], view: ClusterView) -> Obstacle:
    return Obstacle(
        rule=rejection.rule,
        reason=rejection.reason.label,
        text=rejection.text,
        nodes=len(nodes),
        examples=tuple(_names(nodes, view)),
        blamed=rejection.blamed,
        topology_key=rejection.topology_key,
        domain=rejection.domain,
        count=rejection.count,
        limit=rejection.limit,
    )


def _names(nodes: Iterable[NodeNumber], view: ClusterView) -> list[str]:
    there = (node.name for number in nodes if (node := view.node(number)) is not None)  # the others were deleted since
    return list(islice(there, _EXAMPLES))


# -- the note of an event ---------------------------------------------------------------------------------------------

# The note of an event on a rejected pod: the details that kube-scheduler's own message lacks.
#
# 1. kube-scheduler's message counts nodes by reason. The note has the rules, the domains with their counts and limits, and the
#    objects that cause the rejection.
# 2. The length is limited, because events.k8s.io/v1 rejects a note above 1 KiB.
# 3. Users who may read the pod's namespace may read the note. So it names no object of another namespace.

MOST_BYTES: Final = 900  # leaves room for how often the pod was rejected
_MOST_DOMAINS: Final = 4
_MORE_BYTES: Final = 24
_LONGEST_SELECTOR: Final = 120  # characters

_NAMESPACED: Final = re.compile(r"([a-z0-9-]+)/")

_POD, _OBJECT = "a pod", "an object"
_OTHERS: Final = {_POD: "pods", _OBJECT: "objects"}

# The text for each kind of constraint. A kind without an entry (a custom rule) is its own text.
_HEADS: Final = {
    "podAffinity": "pod affinity",
    "podAntiAffinity": "pod anti-affinity",
    "existingPodAntiAffinity": "anti-affinity of existing pods",
    "topologySpread": "topology spread",
}


def rejection_note(explanation: Explanation) -> str:
    """The note. Empty where a node passes filter, or where nothing rejects the pod. Equal explanations have equal notes."""
    if explanation.passing:
        return ""
    shown = [state for state in explanation.constraints if _rejects(state)]
    by_domain = {state.rule for state in shown}
    namespace = explanation.pod.partition("/")[0]
    parts = [f"{_head(state, namespace)}: {', '.join(_domains(state, namespace))}" for state in shown]
    parts += [_obstacle(obstacle, namespace) for obstacle in explanation.obstacles if obstacle.rule not in by_domain]
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    """As many whole parts as fit, and the number of the others. The first part is cut if it does not fit alone."""
    text = ""
    for at, part in enumerate(parts):
        longer = f"{text}; {part}" if text else part
        if len(longer.encode()) > MOST_BYTES - _MORE_BYTES:
            if text:
                return f"{text}; and {len(parts) - at} more"
            longer = f"{longer.encode()[: MOST_BYTES - _MORE_BYTES].decode(errors='ignore')}…"
        text = longer
    return text


def _rejects(state: ConstraintState) -> bool:
    return any(not domain.passes for domain in state.domains) or (bool(state.lacking) and state.rejects_lacking)


def _head(state: ConstraintState, namespace: str) -> str:
    text = f"{_HEADS.get(state.kind, state.kind)} by {state.topology_key}"
    if state.carrier:
        return f"{text}, of {_readable((state.carrier,), namespace)} for example"
    if state.kind == "topologySpread":
        without = "".join(f", without {shown_domain(domain.domain)}" for domain in state.left_out[:_MOST_DOMAINS])
        least = f", as minDomains is {state.min_domains}" if state.min_domains > state.eligible else ""
        eligible = f"minimum {state.minimum} of {counted(state.eligible, 'domain')}{least}"
        text += f" (maxSkew {state.max_skew}, {eligible}{without})"
    return f"{text} with pods {cut(state.pods, _LONGEST_SELECTOR)}" if state.pods else text


def _domains(state: ConstraintState, namespace: str) -> Iterator[str]:
    rejecting = [domain for domain in state.domains if not domain.passes]
    for domain in rejecting[:_MOST_DOMAINS]:
        yield f"{shown_domain(domain.domain)}: {_count(state, domain, namespace)}"
    if (more := len(rejecting) - _MOST_DOMAINS) > 0:
        # Rejecting domains are listed first. So unlisted domains may reject only if all listed ones do.
        least = "at least " if state.more_domains and len(rejecting) == len(state.domains) else ""
        yield f"{least}{counted(more, 'more domain')}"
    if state.lacking and state.rejects_lacking:
        yield f"{counted(state.lacking, 'node')} {agreeing(state.lacking, 'lacks', 'lack')} the label"


def _count(state: ConstraintState, domain: DomainState, namespace: str) -> str:
    """The count of a domain, the count that would pass, and the counted pods."""
    if state.limit is None:
        return "no such pod"
    return (
        f"{domain.count} counted, {state.limit} would pass{_because(_readable(domain.pods, namespace, domain.count))}"
    )


def _obstacle(obstacle: Obstacle, namespace: str) -> str:
    limit = "" if obstacle.limit is None else f", {obstacle.count} counted and {obstacle.limit} would pass"
    # A limit in the text, such as "17 topology keys, limits.topologyKeys is 16", is not named a second time.
    blamed = _readable(
        [name for name in obstacle.blamed if f"limits.{name}" not in obstacle.text], namespace, what=_OBJECT
    )
    if (
        obstacle.rule == "NodeFit"
    ):  # a taint or a label, whose key may look like a pod, a resource, or a port before its holder
        unit = "m" if obstacle.blamed == (CPU,) else ""
        limit = (
            ""
            if obstacle.limit is None
            else f", {obstacle.count}{unit} needed and {max(obstacle.limit, 0)}{unit} left at most"
        )
        blamed = ", ".join(obstacle.blamed[:1])
    return f"{obstacle.rule}: {obstacle.text}{_because(blamed)}{limit}, on {listed(obstacle.examples, count=obstacle.nodes)}"


def _because(blamed: str) -> str:
    return f" (because of {blamed})" if blamed else ""


def _readable(names: Sequence[str], namespace: str, count: int = 0, what: str = _POD) -> str:
    """The names of objects in the namespace. Objects of other namespaces are only counted."""
    own = [name for name in names if not _is_of_another(name, namespace)]
    if names and not own:
        return f"{what} of another namespace" if max(len(names), count) == 1 else f"{_OTHERS[what]} of other namespaces"
    return listed(own, count=max(len(names), count)) if own else ""


def _is_of_another(name: str, namespace: str) -> bool:
    """Whether a name is `namespace/name` of another namespace.

    Other names do not match: a resource (`example.com/gpu`) has a dot before the slash, a policy has a capital letter.
    """
    match = _NAMESPACED.match(name)
    return match is not None and match[1] != namespace

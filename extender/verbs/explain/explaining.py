"""Why a pod is pending: the verdict of filter for every node, what each rule counts, and what would help.

The verdict is that of the rules that filter, prepared in the same way, so both agree. Beside it stands node fit, which
kube-scheduler decides itself. Each step takes about a millisecond, so that the caller can serve requests in between. The
verdict is taken in one step for each piece of the nodes; if the cluster changes meanwhile, the explanation says so.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.nodes.columns import NodeNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState, DomainState, Explanation, NodeState, Obstacle
from extender.model.objects import Pod
from extender.model.rejections import Code, Reason, Rejection
from extender.model.resources import CPU
from extender.model.units import agreeing, counted
from extender.rules import catalog
from extender.rules.constraint_states import Steps
from extender.rules.frames import IndexFrame
from extender.rules.rule import PreparedFilter, Rule
from extender.settings.configuration import Settings
from extender.verbs.dry_run import KeptNodes
from extender.verbs.effective_pod import effective_pod
from extender.verbs.explain.changes import Incoming, find_changes
from extender.verbs.request import worst_case

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
    asked, pod = pod, effective_pod(pod, view, settings)
    compiled = view.compiled(pod.signature)
    subject = _Subject(pod, asked, compiled, view, settings)
    version = subject.version()
    passing = yield from subject.passing()
    obstacles = [*subject.kept_obstacles(), *(yield from subject.rule_obstacles())]
    yield from subject.check_fit()
    obstacles += subject.fit_obstacles()
    constraints: list[ConstraintState] = []
    for rule, part in catalog.active(compiled, view):
        constraints += yield from rule.constraint_states(part, view, subject.frame)
    fitting = [number for number in passing if subject.fits(number)]
    changes = []
    if offers_changes and not fitting:
        incoming = Incoming(pod, compiled, view, frozenset(subject.kept), subject.rejections, passing)
        changes = yield from find_changes(incoming, constraints)
    enforced = pod.signature.enforced
    return Explanation(
        pod=asked.full_name,
        state=state or ("gated" if asked.gated else "pending"),
        rejection=asked.rejection,
        nodes=len(subject.numbers),
        passing=len(passing),
        fitting=len(fitting),
        candidates=tuple(subject.names(fitting)),
        obstacles=tuple(obstacles),
        constraints=tuple(constraints),
        changes=tuple(changes),
        node=subject.state_of(node) if node in view.known else None,
        preempting=view.uncleared_node(asked.uid) or view.plan_node(asked.uid),
        policies=() if enforced is None else tuple(map(str, enforced.policies)),
        unchecked=UNSEEN if asked.has_unseen_needs else "",
        is_changed=version != subject.version(),
    )


class _Subject:
    """The pod and the filters that apply to it. ``kept`` are nodes kept for nominated pods, ``rejections`` those of node fit."""

    def __init__(
        self, pod: Pod, asked: Pod, compiled: CompiledConstraints, view: ClusterView, settings: Settings
    ) -> None:
        """``asked`` is the pod without what policies direct, as kube-scheduler checks it against nodes."""
        self.view = view
        self.numbers: Sequence[NodeNumber] = list(view.known.values())
        self.rejections: dict[NodeNumber, Rejection | None] = {}
        self._pod = pod
        self._compiled = compiled
        self.frame = worst_case(IndexFrame(), compiled, view)
        self._filters = catalog.prepare_beside_fit(pod, compiled, view, self.frame)
        self._fit = catalog.NODE_FIT.prepare_filter(asked, compiled, view, self.frame)
        self.kept = {view.known[name] for name in KeptNodes(pod, view, settings).among(view.known)}

    def version(self) -> Hashable:
        """Equal while nothing changes that the explanation depends on."""
        view = self.view
        depends = catalog.dependencies(self._pod, self._compiled, view)
        return depends, catalog.NODE_FIT.version(self._compiled, view), len(view.known)

    def passing(self) -> Steps[list[NodeNumber]]:
        """The nodes that filter lets pass, in order."""
        found: list[NodeNumber] = []
        for piece in self._pieces():
            found += (number for number in self._filters.passing(piece) if number not in self.kept)
            yield
        return found

    def _pieces(self) -> Iterator[Sequence[NodeNumber]]:
        size = max(_CLAUSES_A_STEP // (1 + len(self._compiled.filter_groups())), 1)
        for start in range(0, len(self.numbers), size):
            yield self.numbers[start : start + size]

    def kept_obstacles(self) -> Iterator[Obstacle]:
        """The obstacle of nominated pods."""
        if self.kept:
            nominated = self.view.nominated
            pods = [pod.full_name for name in self.names(self.kept) for pod in nominated.get(name, {}).values()]
            yield self._obstacle(_NOMINATED, sorted(self.kept), tuple(pods[:_EXAMPLES]))

    def rule_obstacles(self) -> Steps[list[Obstacle]]:
        """What each rule alone rejects, by reason, also where another rule rejects the same nodes."""
        found: list[Obstacle] = []
        for rule, part in catalog.active(self._compiled, self.view):
            prepared = rule.prepare_filter(self._pod, part, self.view, self.frame)
            by_reason: dict[Reason, list[NodeNumber]] = {}
            if prepared.status.code is Code.SKIP:
                continue
            for piece in self._pieces():
                for reason, nodes in prepared.rejected(piece):
                    by_reason.setdefault(reason, []).extend(nodes)
                yield
            for reason, nodes in by_reason.items():
                found += [self._of_rule(rule, prepared, reason, nodes)] if nodes else []
        return found

    def _of_rule(self, rule: Rule, prepared: PreparedFilter, reason: Reason, nodes: Sequence[NodeNumber]) -> Obstacle:
        """The obstacle with the parts that it has on the first of the nodes, unless constraint states show these."""
        rejection = None
        if not (rule.counts_by_domain and reason.resolvable):
            rejection = prepared.verdict(nodes[0])
        if rejection is None or rejection.reason is not reason:
            rejection = Rejection(rule.name, reason)
        if rule.counts_by_domain:  # other nodes may be in other domains
            rejection = replace(rejection, domain=None, count=0, limit=None, blamed=())
        return self._obstacle(rejection, nodes)

    def check_fit(self) -> Steps[None]:
        """Checks node fit on every node."""
        for at, number in enumerate(self.numbers):
            self.rejections[number] = self._fit.verdict(number)
            if at % _FITS_A_STEP == _FITS_A_STEP - 1:
                yield

    def fits(self, number: NodeNumber) -> bool:
        """Whether the node could take the pod by itself."""
        return self.rejections.get(number) is None

    def fit_obstacles(self) -> Iterator[Obstacle]:
        """What keeps nodes from taking the pod by themselves: by taint, by resource."""
        groups: dict[tuple[Reason, tuple[str, ...]], list[NodeNumber]] = {}
        for number, each in self.rejections.items():
            if each is not None:
                groups.setdefault((each.reason, each.blamed), []).append(number)
        for nodes in groups.values():
            rejections = [found for number in nodes if (found := self.rejections[number]) is not None]
            # For a resource: of the node with most of it left.
            yield self._obstacle(max(rejections, key=lambda each: each.limit or 0), nodes)

    def state_of(self, name: str) -> NodeState:
        """One node with all obstacles, each with the parts that it has there."""
        number = self.view.known[name]
        found: list[Rejection] = [_NOMINATED] if number in self.kept else []
        for rule, part in catalog.active(self._compiled, self.view):
            prepared = rule.prepare_filter(self._pod, part, self.view, self.frame)
            rejection = None if prepared.status.code is Code.SKIP else prepared.verdict(number)
            found += () if rejection is None else (rejection,)
        passes = not found
        fit = self._fit.verdict(number)
        found += () if fit is None else (fit,)
        obstacles = tuple(self._obstacle(each, [number]) for each in found)
        return NodeState(name=name, passes=passes, fits=fit is None, obstacles=obstacles)

    def _obstacle(self, each: Rejection, nodes: Sequence[NodeNumber], blamed: tuple[str, ...] = ()) -> Obstacle:
        return Obstacle(
            rule=each.rule,
            reason=each.reason.label,
            text=each.text,
            nodes=len(nodes),
            examples=tuple(self.names(nodes)),
            blamed=blamed or each.blamed,
            topology_key=each.topology_key,
            domain=each.domain,
            count=each.count,
            limit=each.limit,
        )

    def names(self, nodes: Iterable[NodeNumber]) -> list[str]:
        """The first few names."""
        names = self.view.node_names
        return [names[number] for number, _ in zip(nodes, range(_EXAMPLES), strict=False)]


# -- the note of an event ---------------------------------------------------------------------------------------------

# What an event on a rejected pod says: the parts of its rejection that kube-scheduler's own line lacks.
#
# The line of kube-scheduler counts nodes by reason. The note has the rules, the domains with what they count and what would
# pass, and the objects to blame. Its length is bounded, as events.k8s.io/v1 rejects a note above 1 KiB. Users who may read
# the pod's namespace may read the note, so it names no object of another namespace.

MOST_BYTES: Final = 900  # leaves room for how often the pod was rejected
_MOST_DOMAINS: Final = 4
_MORE_BYTES: Final = 24
_LONGEST_SELECTOR: Final = 120  # characters

_NAMESPACED: Final = re.compile(r"([a-z0-9-]+)/")

_POD, _OBJECT = "a pod", "an object"
_OTHERS: Final = {_POD: "pods", _OBJECT: "objects"}

_HEADS: Final = {
    "podAffinity": "pod affinity",
    "podAntiAffinity": "pod anti-affinity",
    "existingPodAntiAffinity": "anti-affinity of existing pods",
    "topologySpread": "topology spread",
}


def rejection_note(found: Explanation) -> str:
    """The note; empty where a node passes filter now, or nothing rejects the pod. Equal explanations have equal notes."""
    if found.passing:
        return ""
    shown = [state for state in found.constraints if _rejects(state)]
    by_domain = {state.rule for state in shown}
    namespace = found.pod.partition("/")[0]
    parts = [_constraint(state, namespace) for state in shown]
    parts += [_obstacle(each, namespace) for each in found.obstacles if each.rule not in by_domain]
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    """As many whole parts as fit, and how many more there are; the first one is cut where it does not fit alone."""
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
    return any(not domain.passes for domain in state.domains) or (bool(state.lacking) and _rejects_lacking(state))


def _rejects_lacking(state: ConstraintState) -> bool:
    """Whether the constraint rejects nodes without its topology key."""
    return state.kind in {"podAffinity", "topologySpread"}


def _constraint(state: ConstraintState, namespace: str) -> str:
    """One constraint with the domains that reject, the fullest first."""
    return f"{_head(state, namespace)}: {', '.join(_domains(state, namespace))}"


def _head(state: ConstraintState, namespace: str) -> str:
    text = f"{_HEADS[state.kind]} by {state.topology_key}"
    if state.carrier:
        return f"{text}, of {_readable((state.carrier,), namespace)} for example"
    if state.kind == "topologySpread":
        text += f" (maxSkew {state.max_skew}, minimum {state.minimum} of {counted(state.eligible, 'domain')})"
    return f"{text} with pods {_short(state.pods)}" if state.pods else text


def _domains(state: ConstraintState, namespace: str) -> Iterator[str]:
    rejecting = [domain for domain in state.domains if not domain.passes]
    for domain in rejecting[:_MOST_DOMAINS]:
        yield f"{domain.domain}: {_count(state, domain, namespace)}"
    if (more := len(rejecting) - _MOST_DOMAINS) > 0:
        # Those that reject are listed first, so further ones may reject only where all that are listed do.
        least = "at least " if state.more_domains and len(rejecting) == len(state.domains) else ""
        yield f"{least}{counted(more, 'more domain')}"
    if state.lacking and _rejects_lacking(state):
        yield f"{counted(state.lacking, 'node')} {agreeing(state.lacking, 'lacks', 'lack')} the label"


def _count(state: ConstraintState, domain: DomainState, namespace: str) -> str:
    """What a domain counts and what would pass, with the pods."""
    if state.limit is None:
        return "no such pod"
    return (
        f"{domain.count} counted, {state.limit} would pass{_because(_readable(domain.pods, namespace, domain.count))}"
    )


def _obstacle(each: Obstacle, namespace: str) -> str:
    """A rule that counts by no domain."""
    limit = "" if each.limit is None else f", {each.count} counted and {each.limit} would pass"
    # A limit that the text has named already, as "17 topology keys, limits.topologyKeys is 16", is not named again.
    blamed = _readable([name for name in each.blamed if f"limits.{name}" not in each.text], namespace, what=_OBJECT)
    if each.rule == "NodeFit":  # a taint, whose key may look like a pod, or a resource
        unit = "m" if each.blamed == (CPU,) else ""
        limit = "" if each.limit is None else f", {each.count}{unit} needed and {max(each.limit, 0)}{unit} left at most"
        blamed = ", ".join(each.blamed)
    return f"{each.rule}: {each.text}{_because(blamed)}{limit}, on {_some(each.examples, each.nodes)}"


def _because(blamed: str) -> str:
    return f" (because of {blamed})" if blamed else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SELECTOR else f"{text[:_LONGEST_SELECTOR]}…"


def _readable(names: Sequence[str], namespace: str, count: int = 0, what: str = _POD) -> str:
    """The names without objects of other namespaces, which are only counted."""
    own = [name for name in names if not _is_of_another(name, namespace)]
    if names and not own:
        return f"{what} of another namespace" if max(len(names), count) == 1 else f"{_OTHERS[what]} of other namespaces"
    return _some(own, max(len(names), count))


def _is_of_another(name: str, namespace: str) -> bool:
    """Whether this is `namespace/name` of another namespace; a resource has a dot before the slash, a policy a capital."""
    found = _NAMESPACED.match(name)
    return found is not None and found[1] != namespace


def _some(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if names and count > len(names) else ""
    return ", ".join(names) + more

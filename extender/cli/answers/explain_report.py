"""What `extender explain` prints: the verdict, the obstacles, the counts of each constraint, and what would help."""

from collections.abc import Iterator, Sequence

from extender.model.answers.explanations import ConstraintState, Explanation, NodeState, Obstacle, Reach
from extender.model.units import agreeing, counted

_INDENT = "  "


def report(found: Explanation) -> Iterator[str]:
    """The lines of an explanation."""
    yield f"{found.pod}: {found.state}"
    if not found.nodes:
        yield "there is no node"
    elif found.obstacles or found.passing:  # a pod that is placed has neither
        yield _verdict(found)
        yield from _notes_on_all(found)
        if found.obstacles:
            yield from ("", "What rejects it", *table(_obstacle_rows(found.obstacles)))
        for state in found.constraints:
            yield from ("", *_constraint(state))
        if found.node is not None:
            yield from ("", *_node(found.node))
        if not found.fitting:
            yield from ("", "What would help (each was tried)", *_changes(found))


def _notes_on_all(found: Explanation) -> Iterator[str]:
    if found.candidates:
        yield f"such as {', '.join(found.candidates)}"
    if found.unchecked:
        yield f"not checked: {found.unchecked}"
    if found.preempting:
        yield f"pods are preempted for it on {found.preempting}; it waits until they are gone"
    if found.policies:
        yield f"held by scheduling policies: {', '.join(found.policies)}"
    if found.rejection:
        yield f"the scheduler says: {found.rejection}"
    if found.rejection and found.fitting:
        yield "it has not been tried since the cluster changed, or another plugin of kube-scheduler rejects it"
    if found.is_changed:
        yield "the cluster changed meanwhile, so parts may not agree"


def _node(state: NodeState) -> Iterator[str]:
    yield f"On {state.name} it {'passes' if state.passes and state.fits else 'is rejected'}"
    yield from (f"{_INDENT}{line}" for each in state.obstacles for line in _on_node(each))


def _changes(found: Explanation) -> Iterator[str]:
    yield from (f"{_INDENT}- {each.text}: then it passes on {each.node}" for each in found.changes)
    if not found.changes:
        yield f"{_INDENT}none of the changes that were tried"


def _verdict(found: Explanation) -> str:
    if found.fitting:
        return f"{found.fitting} of {found.nodes} nodes would take it now"
    return f"{found.passing} of {found.nodes} nodes pass the rules of the extender, and none would take it"


def _obstacle_rows(obstacles: Sequence[Obstacle]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("RULE", "NODES", "REASON", "BECAUSE OF", "SUCH AS")]
    return rows + [
        (
            each.rule,
            str(each.nodes),
            each.text,
            ", ".join(each.blamed) or _where(each),
            _names(each.examples, each.nodes),
        )
        for each in obstacles
    ]


def _where(each: Obstacle) -> str:
    return f"topology key {each.topology_key}" if each.topology_key else "-"


def _names(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more


def _on_node(each: Obstacle) -> Iterator[str]:
    """An obstacle with the parts that it has on one node."""
    yield f"{each.rule}: {each.text}"
    parts = [f"{each.topology_key} {'missing' if each.domain is None else each.domain}"] if each.topology_key else []
    if each.limit is not None:
        parts.append(f"{each.count} counted, {each.limit} would pass")
    if each.blamed:
        parts.append(f"because of {', '.join(each.blamed)}")
    if parts:
        yield f"{_INDENT}{'; '.join(parts)}"


def _constraint(state: ConstraintState) -> Iterator[str]:
    """One constraint and its domains."""
    yield f"{_HEADS[state.kind].format(key=state.topology_key)}; pods: {state.pods}; {_reach(state.reach)}"
    for note in _notes(state):
        yield f"{_INDENT}{note}"
    rows: list[tuple[str, ...]] = [("DOMAIN", "NODES", "PODS", "PASSES", "COUNTED")]
    rows += [
        (each.domain, str(each.nodes), str(each.count), "yes" if each.passes else "no", _names(each.pods, each.count))
        for each in state.domains
    ]
    yield from table(rows)
    if state.more_domains:
        yield f"{_INDENT}and {state.more_domains} more domains"
    if state.more_terms:
        yield f"and {state.more_terms} more terms of existing pods"


_HEADS = {
    "podAffinity": "Required pod affinity by {key}",
    "podAntiAffinity": "Required pod anti-affinity by {key}",
    "existingPodAntiAffinity": "Required anti-affinity of existing pods by {key}",
    "topologySpread": "Hard topology spread by {key}",
}


def _notes(state: ConstraintState) -> Iterator[str]:
    if state.kind == "topologySpread":
        yield (
            f"maxSkew {state.max_skew}: a domain may have at most {state.limit} now, as the minimum over "
            f"{state.eligible} eligible domains is {state.minimum}"
        )
        if state.min_domains > state.eligible:
            yield f"minDomains {state.min_domains}: more than the eligible domains, so the minimum counts as 0"
    if state.is_first_pod:
        yield "no pod matches yet and this one matches itself: every domain passes"
    if state.carrier:
        yield f"carried by {state.carrier}, for example"
    if state.lacking:
        verdict = "which reject it" if state.kind in ("podAffinity", "topologySpread") else "which pass"
        yield f"{counted(state.lacking, 'node')} {agreeing(state.lacking, 'lacks', 'lack')} the label, {verdict}"


def _reach(reach: Reach) -> str:
    if reach.is_every:
        return f"namespaces: all ({reach.why})"
    names = _names(reach.namespaces, reach.count) or "none"
    return f"namespaces: {names} ({reach.why})"


def table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Columns as wide as their longest cell, the last one ragged."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield f"{_INDENT}{'  '.join([*cells, row[-1]])}".rstrip()

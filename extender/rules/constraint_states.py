"""What rules share to say what their constraints count: the states of domains, the names of pods, reached namespaces.

In steps, as a domain may have thousands of nodes: each function yields after some 0.5 ms of work, so that the caller can
let the event loop serve requests in between. The index may change meanwhile; then parts may not agree, and the caller
says so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import DomainNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import DomainState, TermReach
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that yields between its steps and returns its result."""

MOST_DOMAINS: Final = 20
MOST_NAMED: Final = 3  # pods of a domain
MOST_NAMESPACES: Final = 10
MOST_TERMS: Final = 20  # of existing pods: tenants may have hundreds that select a pod
_STEP: Final = 2000  # nodes, domains or namespaces looked at


def domain_states(
    group: GroupView,
    domains: Iterable[DomainNumber],
    counts: Mapping[int, int],
    view: ClusterView,
    passes: Callable[[int], bool],
    most: int,
) -> Steps[tuple[tuple[DomainState, ...], int]]:
    """The states of the first ``most`` of these domains, rejecting and fuller ones first, and how many more there are.

    ``passes`` tells of a count whether it lets a domain pass. O(domains + nodes that have a counted pod).
    """
    ranked = yield from _ranked(set(domains), counts, passes)
    key = group.key
    shown = list(islice((each for each in ranked if each in key.nodes_in), most))
    values = [key.value(each) for each in shown]  # a domain may be gone after the next step
    yield
    named = yield from _named_pods(group, {each for each in shown if counts.get(each)}, view)
    states = [
        DomainState(
            domain=value,
            nodes=len(key.nodes_in.get(each, ())),
            count=counts.get(each, 0),
            passes=passes(counts.get(each, 0)),
            pods=tuple(named.get(each, ())),
        )
        for each, value in zip(shown, values, strict=True)
    ]
    return tuple(states), len(ranked) - len(shown)


def _ranked(
    domains: set[DomainNumber], counts: Mapping[int, int], passes: Callable[[int], bool]
) -> Steps[list[DomainNumber]]:
    """Rejecting domains first, then the fuller ones, then by number. Most of thousands of domains count no pod, so these are not compared."""
    yield
    held = {each: count for each, count in counts.items() if count and each in domains}
    counted = sorted(held, key=lambda each: (-held[each], each))
    yield
    verdicts = {count: passes(count) for count in set(held.values())}
    found = [each for each in counted if not verdicts[held[each]]]
    others = [each for each in counted if verdicts[held[each]]]
    yield
    empty = sorted(domains.difference(held))
    return found + others + empty if passes(0) else found + empty + others


def _named_pods(group: GroupView, wanted: set[int], view: ClusterView) -> Steps[dict[int, list[str]]]:
    """Up to `MOST_NAMED` counted pods of each wanted domain. O(signatures + nodes with a counted pod), until all are found."""
    found: dict[int, list[str]] = {}
    if not wanted:
        return found
    left, column, looked = set(wanted), group.domain_of, 0
    for placed in view.placed(group):
        if placed is None:
            yield
            continue
        for node in placed.nodes:
            looked += 1
            if looked % _STEP == 0:
                yield
            if column[node] not in left:
                continue
            names = found.setdefault(column[node], [])
            here = view.pods_on(node).values()
            names += (each.full_name for each in here if placed.are(each))
            if len(names) >= MOST_NAMED:
                left.discard(column[node])
        if not left:
            break
    return {domain: sorted(names)[:MOST_NAMED] for domain, names in found.items()}


def own_namespace(namespace: str) -> TermReach:
    """The reach of a spread constraint."""
    return TermReach(why="the pod's own namespace", count=1, namespaces=(namespace,))


def reach_of(terms: Iterable[AffinityTerm], owner: str, view: ClusterView) -> Steps[TermReach]:
    """The namespaces that every one of the terms reaches now, and why. ``owner`` is that of the pod. O(namespaces × terms)."""
    terms = tuple(terms)
    why = "; ".join(dict.fromkeys(_why(each, owner) for each in terms))
    if all(each.covers_all for each in terms):
        return TermReach(why=why, is_every=True)
    names = set(view.namespaces).union(*(each.namespaces for each in terms))
    found = []
    for looked, name in enumerate(sorted(names)):
        if looked % _STEP == _STEP - 1:
            yield
        labels = view.namespace_labels(name)
        if all(each.covers(name, labels) for each in terms):
            found.append(name)
    return TermReach(why=why, count=len(found), namespaces=tuple(found[:MOST_NAMESPACES]))


def _why(term: AffinityTerm, owner: str) -> str:
    if term.covers_all:
        return "namespaceSelector {}: every namespace"
    listed = "" if not term.namespaces else f"namespaces {', '.join(term.namespaces[:MOST_NAMESPACES])}"
    if term.namespace_selector is not None:
        selected = f"namespaceSelector {term.namespace_selector}"
        return f"{listed} and {selected}" if listed else selected
    return "the namespace of the pod that has the term" if term.namespaces == (owner,) else listed


def text_of(selectors: Iterable[LabelSelector]) -> str:
    """The pods that all of these selectors select, in kubectl's notation."""
    return " and ".join(dict.fromkeys(map(str, selectors)))

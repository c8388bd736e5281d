"""What rules share for explanations of their constraints: states of domains, names of pods, reached namespaces.

A domain may have thousands of nodes, so each function yields after about 0.5 ms of work, and the caller lets the event
loop serve requests. The index may change meanwhile. Then parts may not agree, and the caller says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

from extender.index.counts.groups import GroupView
from extender.index.nodes.columns import DomainNumber
from extender.index.view import ClusterView
from extender.model.answers.explanations import DomainState, TermReach
from extender.model.bounded import Steps
from extender.model.constraints.selectors import LabelSelector
from extender.model.constraints.terms import AffinityTerm

MOST_DOMAINS: Final = 20
MOST_NAMED: Final = 3  # pods per domain
MOST_NAMESPACES: Final = 10
MOST_TERMS: Final = 20  # of existing pods: a tenant may have hundreds of terms that select a pod
_STEP: Final = 2000  # nodes, domains or namespaces visited


def domain_states(
    group: GroupView,
    domains: Iterable[DomainNumber],
    counts: Mapping[int, int],
    view: ClusterView,
    passes: Callable[[int], bool],
    most: int,
) -> Steps[tuple[tuple[DomainState, ...], int]]:
    """The states of the first ``most`` of these domains, and how many more there are.

    Rejecting and fuller domains come first.

    ``passes(count)``: whether a domain with this count passes. O(domains + nodes that have a counted pod).
    """
    ranked = yield from _ranked(set(domains), counts, passes)
    key = group.key
    shown = list(islice((domain for domain in ranked if domain in key.nodes_in), most))
    values = [key.value(domain) for domain in shown]  # read now: a domain may be deleted during the next step
    yield
    named = yield from _named_pods(group, {domain for domain in shown if counts.get(domain)}, view)
    states = [
        DomainState(
            domain=value,
            nodes=len(key.nodes_in.get(domain, ())),
            count=counts.get(domain, 0),
            passes=passes(counts.get(domain, 0)),
            pods=tuple(named.get(domain, ())),
        )
        for domain, value in zip(shown, values, strict=True)
    ]
    return tuple(states), len(ranked) - len(shown)


def _ranked(
    domains: set[DomainNumber], counts: Mapping[int, int], passes: Callable[[int], bool]
) -> Steps[list[DomainNumber]]:
    """Rejecting domains first, then fuller domains, then by number.

    Of thousands of domains most count no pod. Only domains with a pod are compared.
    """
    yield
    held = {domain: count for domain, count in counts.items() if count and domain in domains}
    counted = sorted(held, key=lambda domain: (-held[domain], domain))
    yield
    # Few distinct counts: the verdict is computed once for each.
    verdicts = {count: passes(count) for count in set(held.values())}
    rejecting = [domain for domain in counted if not verdicts[held[domain]]]
    passing = [domain for domain in counted if verdicts[held[domain]]]
    yield
    empty = sorted(domains.difference(held))
    # Empty domains reject where a domain needs a pod, as for required affinity. Then they stand with the rejecting
    # ones.
    return rejecting + passing + empty if passes(0) else rejecting + empty + passing


def _named_pods(group: GroupView, wanted: set[int], view: ClusterView) -> Steps[dict[int, list[str]]]:
    """Up to `MOST_NAMED` counted pods of each wanted domain. At most O(signatures + nodes with a counted pod)."""
    named: dict[int, list[str]] = {}
    if not wanted:
        return named
    missing, column, looked = set(wanted), group.domain_of, 0
    for placed in view.placed(group):
        if placed is None:
            yield
            continue
        for node in placed.nodes:
            looked += 1
            if looked % _STEP == 0:
                yield
            if column[node] not in missing:
                continue
            names = named.setdefault(column[node], [])
            here = view.pods_on(node).values()
            names += (pod.full_name for pod in here if placed.are(pod))
            if len(names) >= MOST_NAMED:
                missing.discard(column[node])
        # Most groups name enough pods after a few nodes.
        if not missing:
            break
    return {domain: sorted(names)[:MOST_NAMED] for domain, names in named.items()}


def own_namespace(namespace: str) -> TermReach:
    """The reach of a spread constraint."""
    return TermReach(why="the pod's own namespace", count=1, namespaces=(namespace,))


def reach_of(terms: Iterable[AffinityTerm], owner: str, view: ClusterView) -> Steps[TermReach]:
    """The namespaces that each of the terms reaches now, and why. ``owner``: the pod's namespace.

    O(namespaces × terms).
    """
    terms = tuple(terms)
    why = "; ".join(dict.fromkeys(_why(term, owner) for term in terms))
    if all(term.covers_all for term in terms):
        return TermReach(why=why, is_every=True)
    names = set(view.namespaces).union(*(term.namespaces for term in terms))
    reached = []
    for looked, name in enumerate(sorted(names)):
        if looked % _STEP == _STEP - 1:
            yield
        labels = view.namespace_labels(name)
        if all(term.covers(name, labels) for term in terms):
            reached.append(name)
    return TermReach(why=why, count=len(reached), namespaces=tuple(reached[:MOST_NAMESPACES]))


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

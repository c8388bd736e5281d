"""Random requests and changes of constrained pods, and the use of each namespace's budget recounted from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.namespace_budgets import Amounts
from extender.model.constraints.terms import AffinityTerm
from extender.model.objects import PodSignature
from extender.rules.catalog import counts_of_rules
from extender.settings.limits import NamespaceLimits
from tests.builders import Json, pod_json
from tests.laws.observing import WHOLE_ANSWERS, Cluster, apply, shape_of
from tests.strategies import LABELS, NAMESPACE_NAMES, OWN_CONSTRAINTS, TERMS, Change, one_of

LIMITS: Final = NamespaceLimits(selectors=2, topology_keys=2, cross_namespace_terms=1, compile_steps=14)
MOST: Final = (2, 2, 1, 14)
Action = tuple[str, Json | None]


# A pod with a term, one time in three on a node. The strategies are made once, and the pod gets its name afterwards.
CONSTRAINED: Final = st.builds(
    pod_json,
    namespace=one_of(NAMESPACE_NAMES[:2]),
    on=one_of(("", "", "n1")),
    labels=LABELS,
    apart=st.lists(one_of(TERMS), min_size=1, max_size=2),
    spreads=OWN_CONSTRAINTS,
)


def of_pod(name: str, body: Json | None) -> Action:
    return name, body and body | {"metadata": body["metadata"] | {"name": name, "uid": f"uid-{name}"}}


def terms_of(shape: PodSignature) -> list[AffinityTerm]:
    every = shape.affinity
    return [*every.required, *every.required_anti, *(each.term for each in (*every.preferred, *every.preferred_anti))]


def recounted(shapes: Iterable[PodSignature]) -> Amounts:
    """What pods of one namespace with these shapes use, counted at once."""
    selectors, keys, reaching, steps = set(), set(), set(), 0
    different = {
        (each.affinity, each.spread, each.node_affinity if has_spread(each) else None): each for each in shapes
    }
    for shape in different.values():
        parts = 0
        for term in set(terms_of(shape)):
            selectors.add((term.selector, term.namespaces, term.namespace_selector))
            keys.add(term.topology_key)
            if term.namespace_selector is not None or term.namespaces != (shape.namespace,):
                reaching.add(term)
            clauses = [*term.selector.requirements]
            clauses += term.namespace_selector.requirements if term.namespace_selector else ()
            parts += 1 + len(term.namespaces) + sum(1 + len(each.values) for each in clauses)
        spreads = {*shape.spread.hard, *shape.spread.soft}
        for constraint in spreads:
            selectors.add((constraint.selector, (shape.namespace,), None))
            keys.add(constraint.topology_key)
            parts += 1 + sum(1 + len(each.values) for each in constraint.selector.requirements)
        if any(each.honor_affinity for each in spreads):
            nodes = shape.node_affinity
            clauses_of_nodes = [clause for term in nodes.terms or () for clause in (*term.expressions, *term.fields)]
            parts += len(nodes.node_selector) + sum(1 + len(each.values) for each in clauses_of_nodes)
        steps += parts
    return Amounts(len(selectors), len(keys), len(reaching), steps)


def has_spread(shape: PodSignature) -> bool:
    return bool(shape.spread.hard or shape.spread.soft)


@dataclass
class Ledger:
    """Which signatures count, by the plain rule: one with a pod on a node, and one that fitted when it was asked about."""

    pods: dict[str, Json] = field(default_factory=dict)
    counting: set[PodSignature] = field(default_factory=set)

    def shapes(self) -> dict[PodSignature, list[Json]]:
        found: dict[PodSignature, list[Json]] = {}
        for body in self.pods.values():
            if body["status"]["phase"] != "Succeeded":
                found.setdefault(shape_of(body), []).append(body)
        return found

    def put(self, name: str, body: Json | None) -> None:
        if body is None:
            self.pods.pop(name, None)
        else:
            self.pods[name] = body
        there = self.shapes()
        self.counting &= there.keys()
        self.counting |= {each for each, pods in there.items() if any("nodeName" in pod["spec"] for pod in pods)}

    def used(self, namespace: str) -> Amounts:
        return recounted(each for each in self.counting if each.namespace == namespace)

    def request(self, shape: PodSignature) -> bool:
        """Whether the signature counts now, or from now on."""
        before = self.used(shape.namespace)
        after = recounted([*(each for each in self.counting if each.namespace == shape.namespace), shape])
        fits = all(new == old or new <= most for old, new, most in zip(before, after, MOST, strict=True))
        if fits and shape in self.shapes():
            self.counting.add(shape)
        return fits or shape in self.counting


def played(actions: list[Action]) -> tuple[ClusterIndex, Cluster, int]:
    """An index after these actions, each compared with the ledger; and how many requests did not fit."""
    index = ClusterIndex(WHOLE_ANSWERS.rules, counts_of_rules(), namespace_limits=LIMITS)
    cluster, ledger, waited = Cluster(), Ledger(), 0
    for name, body in actions:
        if body:
            apply(index, cluster, Change("pods", name, body))
            ledger.put(name, body)
        elif body is None:
            apply(index, cluster, Change("pods", name, None))
            ledger.put(name, None)
        elif name in ledger.pods and ledger.pods[name]["status"]["phase"] != "Succeeded":
            shape = shape_of(ledger.pods[name])
            fits = ledger.request(shape)
            waited += not fits
            assert (index.view.compiled(shape).excess is None) is fits
        uses = index.namespace_budgets.by_namespace
        for namespace in NAMESPACE_NAMES:
            amounts = uses[namespace].amounts if namespace in uses else Amounts()
            assert amounts == ledger.used(namespace)
        assert audit(index) == []
    return index, cluster, waited

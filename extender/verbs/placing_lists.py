"""The lists of a pod spec that place it (terms and spread constraints), between model objects and JSON for injection.

The index keeps a pod's constraints as model objects, and injection works on JSON. An element of the pod stands in the
JSON as the policy's element that means the same, so that injection finds that the pod has it; else as a brief note of what
conflicts are found by. Only elements that policies add are parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import orjson

from extender.model.constraints.cross_namespace import is_cross_namespace_term
from extender.model.constraints.labels import Labels
from extender.model.constraints.node_affinity import PreferredNodeTerm
from extender.model.constraints.spread import SpreadConstraint, SpreadConstraints
from extender.model.constraints.terms import AffinityTerm, PodAffinity, WeightedTerm
from extender.model.objects import PodSignature
from extender.model.policies import ConflictPolicy, JsonObject, Policy
from extender.settings.rules import Rules
from extender.verbs.admit.injecting.spec_edits import get, put
from extender.wire.objects.constraints import parse_affinity, parse_spread
from extender.wire.policies.node_terms import PLACING_LISTS, POD_TERMS, PREFERRED_NODES, SPREAD, WEIGHTED_POD_TERMS

Element: TypeAlias = PreferredNodeTerm | AffinityTerm | WeightedTerm | SpreadConstraint

_TERM_LISTS: Final = (*POD_TERMS, *WEIGHTED_POD_TERMS)
_ACTIONS: Final = {True: "DoNotSchedule", False: "ScheduleAnyway"}


class PlacingLists:
    """The lists of one signature while policies are injected into it. O(elements of the pod and of the policies).

    ``injected``: spread constraints of the pod that are not its own. They are no part of the lists, and stay part of the pod.
    """

    def __init__(
        self, signature: PodSignature, policies: Iterable[Policy], injected: Iterable[JsonObject] = ()
    ) -> None:
        self._signature = signature
        self._injected = [_parse(SPREAD, each, signature) for each in injected]
        self._own: dict[str, list[tuple[JsonObject, Element]]] = {}
        self._parsed: dict[int, Element] = {}
        self._items: list[JsonObject] = []  # kept alive, as their identities are keys
        self._cross_namespace: set[int] = set()
        by_meaning: dict[tuple[str, Element], JsonObject] = {}
        for policy in policies:
            for path, items in policy.directives.lists.items():
                for item in items if path in PLACING_LISTS else ():
                    element = _parse(path, item.value, signature)
                    if element is not None:
                        if path in _TERM_LISTS and is_cross_namespace_term(item.value):
                            self._cross_namespace.add(id(item.value))
                        self._parsed[id(item.value)] = element
                        self._items.append(item.value)
                        by_meaning.setdefault((path, element), item.value)
        for path, elements in _elements(signature):
            self._own[path] = [
                (by_meaning.get((path, each)) or _note(each, number), each)
                for number, each in enumerate(elements)
                if path != SPREAD or each not in self._injected
            ]

    def written_to(self, spec: JsonObject) -> JsonObject:
        """The spec with the lists of the pod."""
        for path, pairs in self._own.items():
            if pairs:
                spec = put(spec, path.split("."), [value for value, _ in pairs])
        return spec

    def read_from(
        self, spec: JsonObject, rules: Rules
    ) -> tuple[PodAffinity, SpreadConstraints, tuple[PreferredNodeTerm, ...]]:
        """The pod's affinity and spread as they are in an injected spec, and the preferred node terms that were added.

        Where an in-tree plugin scores what the pod prefers itself, only the preferences that were added are returned.
        """
        own = self._signature
        near, apart, prefers, avoids = (self._read(path, spec) for path in (*POD_TERMS, *WEIGHTED_POD_TERMS))
        if not rules.inter_pod_affinity.enabled:
            prefers, avoids = prefers[len(own.affinity.preferred) :], avoids[len(own.affinity.preferred_anti) :]
        is_cross = own.affinity.cross_namespace or self._adds_cross_namespace(spec)
        affinity = PodAffinity(near, apart, prefers, avoids, own.affinity.errors, is_cross)
        carried = [each for each in (*own.spread.hard, *own.spread.soft) if each in self._injected]
        constraints = tuple(dict.fromkeys((*carried, *self._read(SPREAD, spec))))
        spread = SpreadConstraints(
            tuple(each for each in constraints if each.hard),
            tuple(
                each
                for each in constraints
                if not each.hard and (rules.topology_spread.enabled or each not in own.spread.soft)
            ),
            own=own.spread.own or bool(constraints),
            hard_error=own.spread.hard_error,
            soft_error=own.spread.soft_error,
        )
        preferred: Sequence[Any] = self._read(PREFERRED_NODES, spec)
        return affinity, spread, tuple(preferred[len(own.preferred_nodes) :])

    def _adds_cross_namespace(self, spec: JsonObject) -> bool:
        """Whether a term that was added puts the pod into the quota scope CrossNamespacePodAffinity."""
        if not self._cross_namespace:
            return False
        own = {id(value) for pairs in self._own.values() for value, _ in pairs}
        added = self._cross_namespace - own
        return any(id(value) in added for path in _TERM_LISTS for value in get(spec, path.split(".")) or ())

    def _read(self, path: str, spec: JsonObject) -> tuple[Any, ...]:
        """The elements of a list; those of the pod as they are."""
        own = {id(value): element for value, element in self._own.get(path, ())}
        values = get(spec, path.split(".")) or ()
        found = (own.get(id(value)) or self._parsed.get(id(value)) for value in values)
        return tuple(each for each in found if each is not None)


def with_soft_min_domains(spread: SpreadConstraints, policies: Iterable[Policy], labels: Labels) -> SpreadConstraints:
    """The constraints with the policies' soft ones that have minDomains, which the API server refuses in a pod.

    How they score is said in `rules/topology_spread.py`. Where the pod has a soft constraint of the same key, the policy
    gives way unless it overrides. None of them rejects a pod.
    """
    soft, added = list(spread.soft), set[str]()
    for policy in policies:
        for value in policy.directives.soft_min_domains:
            for wish in parse_spread(orjson.dumps([value]), labels).soft:
                same = [each for each in soft if each.topology_key == wish.topology_key]
                overrides = policy.conflict_policy is ConflictPolicy.OVERRIDE and wish.topology_key not in added
                if same and not overrides:
                    continue
                soft = [*(each for each in soft if each not in same), wish]
                added.add(wish.topology_key)
    return replace(spread, soft=tuple(soft), own=True) if added else spread


def _elements(signature: PodSignature) -> Iterator[tuple[str, Sequence[Element]]]:
    affinity, spread = signature.affinity, signature.spread
    yield PREFERRED_NODES, signature.preferred_nodes
    yield POD_TERMS[0], affinity.required
    yield POD_TERMS[1], affinity.required_anti
    yield WEIGHTED_POD_TERMS[0], affinity.preferred
    yield WEIGHTED_POD_TERMS[1], affinity.preferred_anti
    yield SPREAD, (*spread.hard, *spread.soft)


def _note(element: Element, number: int) -> JsonObject:
    """An element that no policy has: unlike all others, and with what makes another one conflict with it."""
    if isinstance(element, SpreadConstraint):
        return {"topologyKey": element.topology_key, "whenUnsatisfiable": _ACTIONS[element.hard], "number": number}
    return {"number": number}


def _parse(path: str, value: JsonObject, signature: PodSignature) -> Element | None:
    """An element of a policy as the pod would have it; None where it cannot be parsed, which validation has ruled out."""
    if path == SPREAD:
        constraints = parse_spread(orjson.dumps([value]), signature.labels)
        return next(iter((*constraints.hard, *constraints.soft)), None)
    _, kind, name = path.split(".")
    if path in POD_TERMS:
        value = _with_label_keys(value, signature.labels)
    elif path in WEIGHTED_POD_TERMS:
        value = value | {"podAffinityTerm": _with_label_keys(value.get("podAffinityTerm") or {}, signature.labels)}
    affinity, (_, preferred) = parse_affinity(orjson.dumps({kind: {name: [value]}}), signature.namespace)
    lists = (preferred, affinity.required, affinity.required_anti, affinity.preferred, affinity.preferred_anti)
    return next((each for elements in lists for each in elements), None)


def _with_label_keys(term: JsonObject, labels: Labels) -> JsonObject:
    """The term with its label keys merged into the selector, as the API server does when a pod is created (KEP-3633)."""
    selector = term.get("labelSelector")
    if not isinstance(selector, dict):
        return term
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(name) or ()
        if key in labels
    ]
    if not more:
        return term
    return term | {"labelSelector": selector | {"matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}}

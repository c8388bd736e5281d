"""Decodes node selector terms and the elements of scheduling lists to values that injection compares and counts.

Two elements are equal to injection if they have the same key: fields in any order, values of a requirement in any
order, defaults written out or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import le
from typing import Any, Final

import msgspec
import orjson

from extender.model.constraints.clauses import FIELD, LABEL, OPAQUE, Clause, absorb, are_contradictory, clause
from extender.model.constraints.directed import Directed, DirectedConstraint, DirectedTerm, Element
from extender.model.constraints.labels import NO_LABELS
from extender.model.constraints.node_affinity import (
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    field_requirement,
    label_requirement,
)
from extender.model.constraints.selectors import SelectorError
from extender.model.constraints.terms import AffinityTerm, WeightedTerm, is_cross_namespace
from extender.model.policies import InjectedItem, JsonObject, NodeTerm, Size, TermPart
from extender.wire.objects.constraints import parse_spread
from extender.wire.objects.objects_json import RequirementJson
from extender.wire.policies.field_errors import PREFERRED, REQUIRED

NODE_TERMS: Final = f"affinity.nodeAffinity.{REQUIRED}"
PREFERRED_NODES: Final = f"affinity.nodeAffinity.{PREFERRED}"
TOLERATIONS: Final = "tolerations"
SPREAD: Final = "topologySpreadConstraints"
POD_TERMS: Final = tuple(f"affinity.{kind}.{REQUIRED}" for kind in ("podAffinity", "podAntiAffinity"))
WEIGHTED_POD_TERMS: Final = tuple(f"affinity.{kind}.{PREFERRED}" for kind in ("podAffinity", "podAntiAffinity"))
LISTS: Final = (PREFERRED_NODES, *POD_TERMS, *WEIGHTED_POD_TERMS, TOLERATIONS, SPREAD)
PLACING_LISTS: Final = tuple(path for path in LISTS if path != TOLERATIONS)  # what can hold for a pod that exists

_WRITTEN: Final = ("affinity", "nodeSelector", TOLERATIONS, SPREAD)
_SOURCES: Final = {"matchExpressions": LABEL, "matchFields": FIELD}
_BARE: Final = len(b'{"key":"","operator":"","values":[]}')  # of a requirement as JSON, without its texts
_QUOTES: Final = 3  # of a value in a list, with the comma
_REQUIREMENT_FIELDS: Final = frozenset({"key", "operator", "values"})


def value_at(spec: JsonObject, path: str) -> Any:
    """The value at a dotted path; None if a part of it is missing or not an object."""
    value: Any = spec
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def canonical(value: object) -> str:
    """A JSON value as text: equal for equal values, whatever the order of fields."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def node_term(value: JsonObject) -> NodeTerm:
    """A term with its clauses. An unknown field becomes a separate clause, so that different terms are never equal."""
    parts: list[TermPart] = []
    for name, content in value.items():
        source = _SOURCES.get(name)
        if source is None:
            text = canonical(content)
            parts.append(TermPart(name, content, Clause(OPAQUE, name, text), Size(pod_bytes=len(text))))
        elif isinstance(content, list):
            parts += (_part(name, source, item) for item in content)
    return NodeTerm(value, frozenset(part.clause for part in parts), tuple(parts))


def _part(name: str, source: str, item: Any) -> TermPart:
    clause = requirement_clause(source, item)
    size = Size(pod_bytes=len(canonical(item)), node_requirements=1, selector_values=len(clause.values))
    return TermPart(name, item, clause, size)


def pod_term(term: NodeSelectorTerm) -> NodeTerm:
    """A term of an existing pod. O(requirements)."""
    parts = (
        *(_pod_part("matchExpressions", LABEL, requirement) for requirement in term.expressions),
        *(_pod_part("matchFields", FIELD, requirement) for requirement in term.fields),
    )
    return NodeTerm({}, frozenset(part.clause for part in parts), parts, term)


def _pod_part(name: str, source: str, made: NodeRequirement) -> TermPart:
    texts = sum(map(len, made.values)) + _QUOTES * len(made.values) - bool(made.values)
    size = Size(_BARE + len(made.key) + len(made.operator) + texts, node_requirements=1)
    known = clause(source, made.key, made.operator, made.values)
    return TermPart(name, None, known, size._replace(selector_values=len(known.values)), made)


def directed_term(term: NodeTerm, selector: NodeSelectorTerm) -> NodeTerm:
    """The term of a policy with its value of the model. O(requirements)."""
    made = {"matchExpressions": iter(selector.expressions), "matchFields": iter(selector.fields)}
    # A term that cannot be parsed has no requirements in the model.
    parts = (
        TermPart(name, content, clause, size, next(made[name], None) if name in made else None)
        for name, content, clause, size, _ in term.parts
    )
    return NodeTerm(term.value, term.clauses, tuple(parts), selector)


def _parsed(part: TermPart) -> NodeRequirement | None:
    if part.name not in _SOURCES:
        return None
    item = msgspec.convert(part.content, RequirementJson)
    make = label_requirement if _SOURCES[part.name] == LABEL else field_requirement
    try:
        return make(item.key, item.operator, item.values or ())
    except SelectorError:
        return None


def is_unknown_field(part: TermPart) -> bool:
    """Whether a part is a whole field of a later API, which is taken over as it is."""
    return part.name not in _SOURCES


def selector_term(term: NodeTerm, added: Sequence[TermPart] = ()) -> NodeSelectorTerm:
    """The term, with more requirements, as a value of the model. It matches no node if one of them cannot be parsed.

    Unknown fields are skipped, as in the decoding of pods.
    """
    if term.selector is not None and not added:
        return term.selector
    found: dict[str, list[NodeRequirement]] = {name: [] for name in _SOURCES}
    for part in (*term.parts, *added):
        if part.name in found:
            made = part.requirement or _parsed(part)
            if made is None:
                return NodeSelectorTerm()
            found[part.name].append(made)
    return NodeSelectorTerm(*map(tuple, found.values()))


def normal_form(values: Iterable[JsonObject]) -> tuple[NodeTerm, ...]:
    """The terms that a disjunction needs: without a term that matches no node, and without a term that another term covers.

    O(terms² × clauses).
    """
    terms = [node_term(each) for each in values]
    possible = [each for each in terms if each.clauses and not are_contradictory(each.clauses)]
    # If no term can match a node, one of them stays: the API server refuses an empty list of terms. A term with
    # requirements goes first, because it shows the reader why no node matches.
    kept = possible or [each for each in terms if each.clauses][:1] or terms[:1]
    return tuple(kept[number] for number in absorb([each.clauses for each in kept]))


def requirement_clause(source: str, item: Any) -> Clause:
    """One requirement as a clause; opaque if it has unknown fields or types."""
    if isinstance(item, dict) and item.keys() <= _REQUIREMENT_FIELDS:
        key, operator, values = item.get("key"), item.get("operator"), item.get("values") or ()
        if isinstance(key, str) and isinstance(operator, str) and all(isinstance(each, str) for each in values):
            return clause(source, key, operator, values)
    return Clause(OPAQUE, source, canonical(item))


def list_item(path: str, value: JsonObject, element: Directed | None = None) -> InjectedItem:
    """An element of one of the `LISTS`. ``element``: its value of the model, where it is a policy's."""
    key = item_key(path, value)
    return InjectedItem(value, key, _COUNTS[path](value)._replace(pod_bytes=len(key)), element)


def directed_item(path: str, value: JsonObject, element: Element | None) -> InjectedItem:
    """An element of one of the `LISTS` of a policy. ``element``: its value of the model as in a pod, where it was parsed already."""
    return list_item(path, value, directed_constraint(value) if path == SPREAD else _directed(value, element))


def _directed(value: JsonObject, element: Element | None) -> Directed | None:
    match element:
        case AffinityTerm():
            return _directed_term(value, element)
        case WeightedTerm():
            return _directed_term(value.get("podAffinityTerm") or {}, element.term, element.weight)
        case PreferredNodeTerm():
            return element
        case _:
            return None


def directed_constraint(value: JsonObject) -> DirectedConstraint | None:
    """A spread constraint of a policy. None where its selector cannot be parsed."""
    constraints = parse_spread(orjson.dumps([value]), NO_LABELS)
    keys = tuple(value.get("matchLabelKeys") or ())
    return next((DirectedConstraint(each, keys) for each in (*constraints.hard, *constraints.soft)), None)


def _directed_term(value: JsonObject, term: AffinityTerm, weight: int = 0) -> DirectedTerm:
    is_cross = is_cross_namespace([(value.get("namespaces"), value.get("namespaceSelector"))])
    return DirectedTerm(
        term,
        weight=weight,
        match_keys=tuple(value.get("matchLabelKeys") or ()),
        mismatch_keys=tuple(value.get("mismatchLabelKeys") or ()),
        cross_namespace=is_cross,
    )


def item_key(path: str, value: Any) -> str:
    """The text that equal elements of a list share."""
    if path == TOLERATIONS and isinstance(value, dict):
        # `{key: a, operator: Equal, effect: ""}` and `{key: a}` are the same toleration.
        filled = {"operator": "Equal", **{name: field for name, field in value.items() if field not in (None, "")}}
        return canonical(filled)
    return canonical(value)


def lengths_of(spec: JsonObject) -> Size:
    """The lengths of the lists of a pod spec, a part of `counts_of`. O(1)."""
    length = {path: len(_list(value_at(spec, path))) for path in (f"{NODE_TERMS}.nodeSelectorTerms", *LISTS)}
    pairs = spec.get("nodeSelector")
    return Size(
        affinity_terms=sum(length[path] for path in (*POD_TERMS, *WEIGHTED_POD_TERMS)),
        topology_spread_constraints=length[SPREAD],
        node_selector_terms=length[f"{NODE_TERMS}.nodeSelectorTerms"] + length[PREFERRED_NODES],
        node_requirements=len(pairs) if isinstance(pairs, dict) else 0,
        tolerations=length[TOLERATIONS],
    )


def counts_within(most: Size, spec: JsonObject) -> Size:
    """The numbers of a pod spec. Only the lengths of its lists, where one of these is above ``most`` already."""
    lengths = lengths_of(spec)
    return counts_of(spec) if all(map(le, lengths, most)) else lengths


def counts_of(spec: JsonObject) -> Size:
    """The numbers of a pod spec or a policy's spec that limits apply to, without its bytes. O(elements), also if invalid."""
    pairs = spec.get("nodeSelector")
    parts = [Size(node_requirements=len(pairs) if isinstance(pairs, dict) else 0)]
    parts += map(_node_term_counts, _list(value_at(spec, f"{NODE_TERMS}.nodeSelectorTerms")))
    for path in LISTS:
        parts += map(_COUNTS[path], _list(value_at(spec, path)))
    # A sum for each field of `Size`.
    return Size(*map(sum, zip(*parts, strict=True)))


def bytes_of(spec: JsonObject) -> int:
    """The bytes of the fields that policies write, as JSON."""
    return sum(len(canonical(spec[name])) for name in _WRITTEN if spec.get(name))


def size_of(spec: JsonObject) -> Size:
    """The bytes, and the numbers of `counts_of`. O(bytes of the fields)."""
    return counts_of(spec)._replace(pod_bytes=bytes_of(spec))


def _node_term_counts(term: Any) -> Size:
    items = [*_list(value_at_or_none(term, "matchExpressions")), *_list(value_at_or_none(term, "matchFields"))]
    values = sum(len(_list(value_at_or_none(item, "values"))) for item in items)
    return Size(node_selector_terms=1, node_requirements=len(items), selector_values=values)


def value_at_or_none(value: Any, name: str) -> Any:
    """A field of a value; None if the value is not an object."""
    return value.get(name) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _preferred_size(item: Any) -> Size:
    return _node_term_counts(value_at_or_none(item, "preference"))


def _pod_term_size(item: Any) -> Size:
    selectors = [value_at_or_none(item, "labelSelector"), value_at_or_none(item, "namespaceSelector")]
    of_labels = _selector_size(selectors[0]).plus(_selector_size(selectors[1]))
    return of_labels.plus(Size(affinity_terms=1, namespaces=len(_list(value_at_or_none(item, "namespaces")))))


def _selector_size(selector: Any) -> Size:
    pairs = value_at_or_none(selector, "matchLabels")
    items = _list(value_at_or_none(selector, "matchExpressions"))
    count = len(pairs) if isinstance(pairs, dict) else 0
    values = sum(len(_list(value_at_or_none(item, "values"))) for item in items)
    return Size(label_requirements=count + len(items), selector_values=count + values)


def _weighted_size(item: Any) -> Size:
    return _pod_term_size(value_at_or_none(item, "podAffinityTerm"))


def _spread_size(item: Any) -> Size:
    return _selector_size(value_at_or_none(item, "labelSelector")).plus(Size(topology_spread_constraints=1))


def _toleration_size(_item: Any) -> Size:
    return Size(tolerations=1)


_COUNTS: Final = {
    PREFERRED_NODES: _preferred_size,
    **dict.fromkeys(POD_TERMS, _pod_term_size),
    **dict.fromkeys(WEIGHTED_POD_TERMS, _weighted_size),
    TOLERATIONS: _toleration_size,
    SPREAD: _spread_size,
}

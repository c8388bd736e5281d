"""Decodes affinity, spread, tolerations, owners and selectors to the model, and compares them with the configured limits.

Called by `trim` once per distinct pod template. A constraint that the API server would reject (an operator without
values, a malformed label) becomes an error text of the pod, because kube-scheduler has special rules for such pods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, le
from typing import Any, Final, TypeVar

import msgspec

from extender.model.bounded import PreparedValue, Steps, at_once, cached
from extender.model.constraints.labels import KEY_PATTERN, VALUE_PATTERN, Labels
from extender.model.constraints.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    field_requirement,
    label_requirement,
    node_selector,
)
from extender.model.constraints.selectors import (
    NOTHING,
    LabelSelector,
    Requirement,
    SelectorError,
    parse_selector,
    requirement,
    selector,
)
from extender.model.constraints.spread import NO_SPREAD, SpreadConstraint, SpreadConstraints
from extender.model.constraints.taints import Toleration
from extender.model.constraints.terms import (
    NO_AFFINITY,
    AffinityTerm,
    PodAffinity,
    WeightedTerm,
    is_cross_namespace,
    terms_of,
)
from extender.model.objects import Controller, Excess
from extender.model.policies import Size
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import UNREADABLE, WireError, from_msgspec
from extender.wire.objects.objects_json import (
    AffinityJson,
    AffinityTermJson,
    LabelSelectorJson,
    NodeAffinityJson,
    NodeTermJson,
    OwnerJson,
    RequirementJson,
    SpreadJson,
    TolerationJson,
    WeightedTermJson,
)

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", LabelSelector, tuple[str, ...])

# Sizes of the caches; and the size of parsed objects as a multiple of their JSON (measured).
_AFFINITY_BYTES: Final = 4 * 2**20
_TOLERATIONS_BYTES: Final = 2**20
_PARSED_FACTOR: Final = 7
_ENTRY_BYTES: Final = 500
_CLAUSES_A_STEP: Final = 1000  # at 3 µs

_AFFINITY = msgspec.json.Decoder(AffinityJson | None)
_SPREAD = msgspec.json.Decoder(list[SpreadJson] | None)
_TOLERATIONS = msgspec.json.Decoder(list[TolerationJson] | None)
_NO_OWNER: Final = OwnerJson()
_OWNERS = msgspec.json.Decoder(list[OwnerJson] | None)
_STRINGS = msgspec.json.Decoder(dict[str, str] | None)
_SELECTOR = msgspec.json.Decoder(LabelSelectorJson | None)

# Owners whose selectors default spread constraints read: apiVersion and kind.
_WORKLOADS = {("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}


def decode(decoder: msgspec.json.Decoder[T], raw: bytes, path: str) -> T | None:
    """The value of a raw field; None if it is missing. Raises ``WireError`` with the field's path."""
    if not raw:
        return None
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise from_msgspec(error, path) from None


def parse_strings(raw: bytes, path: str) -> dict[str, str]:
    """Decodes a map of strings (labels, nodeSelector)."""
    return decode(_STRINGS, raw, path) or {}


def parse_label_selector(raw: bytes, path: str) -> LabelSelector | None:
    """Decodes the LabelSelector of a workload. None if it is missing or invalid, because then it selects no pod."""
    return at_once(_selector_in_steps(raw, path))


def _selector_in_steps(raw: bytes, path: str = "spec.selector") -> Steps[LabelSelector | None]:
    parsed, clauses = decode(_SELECTOR, raw, path), list[Requirement]()
    if parsed is None:
        return None
    expressions = parsed.match_expressions or ()
    try:
        for start in range(0, len(expressions), _CLAUSES_A_STEP):
            if start:
                yield
            clauses += [
                requirement(e.key, e.operator, e.values or ()) for e in expressions[start : start + _CLAUSES_A_STEP]
            ]
        # The pairs of matchLabels are cheap, so they are made in the last step.
        return parse_selector(parsed.match_labels or {}, clauses)
    except SelectorError:
        return None


BUDGET_SELECTOR: Final = PreparedValue(_selector_in_steps)


def _label_selector(parsed: LabelSelectorJson | None) -> LabelSelector:
    if parsed is None:
        return NOTHING
    clauses = [requirement(e.key, e.operator, e.values or ()) for e in parsed.match_expressions or ()]
    return parse_selector(parsed.match_labels or {}, clauses)


def held_by(size: int) -> int:
    """Estimated memory of objects that were parsed from so many bytes of JSON."""
    return _ENTRY_BYTES + _PARSED_FACTOR * size


def parsed_from(held: int) -> int:
    """The inverse: how many bytes of JSON are parsed to objects with so much memory."""
    return max(0, held - _ENTRY_BYTES) // _PARSED_FACTOR


# The namespace is a part of the key, because a term without namespaces covers the namespace of its pod.
@cached(_AFFINITY_BYTES, lambda raw, _namespace: held_by(len(raw)))
def parse_affinity(
    raw: bytes, namespace: str
) -> tuple[PodAffinity, tuple[NodeAffinity, tuple[PreferredNodeTerm, ...]]]:
    """Decodes ``spec.affinity``: inter-pod affinity; node affinity as (required without nodeSelector, preferred)."""
    parsed = decode(_AFFINITY, raw, "spec.affinity")
    if parsed is None:
        return NO_AFFINITY, _node_affinity(None)
    return _pod_affinity(parsed, namespace), _node_affinity(parsed.node_affinity)


def _pod_affinity(parsed: AffinityJson, namespace: str) -> PodAffinity:
    affinity, anti_affinity = parsed.pod_affinity, parsed.pod_anti_affinity
    if affinity is None and anti_affinity is None:
        return NO_AFFINITY
    # kube-scheduler parses the four lists separately, and reports each list that fails.
    errors: list[str] = []
    terms = _Terms(namespace)

    # One bad term makes its whole list fail, as in kube-scheduler.
    def each(name: str, make: Callable[[T], R], items: Sequence[T] | None) -> tuple[R, ...]:
        try:
            return tuple(map(make, items or ()))
        except SelectorError as error:
            errors.append(f"{name}: {error}")
            return ()

    return PodAffinity(
        required=each("requiredAffinityTerms", terms.make, affinity.required if affinity else None),
        required_anti=each("requiredAntiAffinityTerms", terms.make, anti_affinity.required if anti_affinity else None),
        preferred=each("preferredAffinityTerms", terms.make_weighted, affinity.preferred if affinity else None),
        preferred_anti=each(
            "preferredAntiAffinityTerms", terms.make_weighted, anti_affinity.preferred if anti_affinity else None
        ),
        errors=tuple(errors),
        # From the JSON, because a list that cannot be parsed has no terms, and the API server counts the pod in the
        # quota scope anyway.
        cross_namespace=is_cross_namespace((term.namespaces, term.namespace_selector) for term in _every(parsed)),
    )


def _every(parsed: AffinityJson) -> Iterator[AffinityTermJson]:
    """The terms of the four lists, including terms that cannot be parsed."""
    for kind in (parsed.pod_affinity, parsed.pod_anti_affinity):
        if kind is not None:
            yield from kind.required or ()
            yield from (weighted.pod_affinity_term for weighted in kind.preferred or ())


class _Terms:
    """The terms of one pod.

    Equal terms and equal parts are one object: 200 terms may differ only in their topology key.
    """

    def __init__(self, own_namespace: str) -> None:
        self._own_namespace = (own_namespace,)
        self._parts: dict[LabelSelector | tuple[str, ...], Any] = {}
        self._terms: dict[tuple[str, LabelSelector, tuple[str, ...], LabelSelector | None], AffinityTerm] = {}

    def make(self, parsed: AffinityTermJson) -> AffinityTerm:
        """A term with its defaults filled in; raises ``SelectorError``."""
        names = tuple(sorted(set(parsed.namespaces or ())))
        # null adds no namespace; an empty selector `{}` selects all namespaces.
        chosen = None if parsed.namespace_selector is None else self._shared(_label_selector(parsed.namespace_selector))
        parts = (
            parsed.topology_key,
            self._shared(_label_selector(parsed.label_selector)),
            # A term covers the pod's own namespace only if it has neither names nor a selector.
            self._shared(names) if names or chosen is not None else self._own_namespace,
            chosen,
        )
        term = self._terms.get(parts)
        if term is None:
            term = self._terms[parts] = AffinityTerm(*parts)
        return term

    def make_weighted(self, parsed: WeightedTermJson) -> WeightedTerm:
        """A preferred term with its defaults filled in; raises ``SelectorError``."""
        return WeightedTerm(parsed.weight, self.make(parsed.pod_affinity_term))

    def _shared(self, part: S) -> S:
        shared_part: S = self._parts.setdefault(part, part)
        return shared_part


def _node_affinity(parsed: NodeAffinityJson | None) -> tuple[NodeAffinity, tuple[PreferredNodeTerm, ...]]:
    if parsed is None:
        return NodeAffinity(), ()
    # None: no requirement. An empty tuple: a requirement that no node satisfies.
    terms = None if parsed.required is None else tuple(map(_node_term, parsed.required.node_selector_terms or ()))
    preferred = tuple(PreferredNodeTerm(p.weight, _node_term(p.preference)) for p in parsed.preferred or ())
    return NodeAffinity(terms=terms), preferred


def _node_term(parsed: NodeTermJson) -> NodeSelectorTerm:
    try:
        return NodeSelectorTerm(
            expressions=_clauses(label_requirement, parsed.match_expressions),
            fields=_clauses(field_requirement, parsed.match_fields),
        )
    except SelectorError:
        # A term that cannot be parsed matches no node, like an empty term. Other terms may still match.
        return NodeSelectorTerm()


def _clauses(
    make: Callable[[str, str, Sequence[str]], NodeRequirement], parsed: list[RequirementJson] | None
) -> tuple[NodeRequirement, ...]:
    return tuple(make(item.key, item.operator, item.values or ()) for item in parsed or ())


def with_node_selector(affinity: NodeAffinity, raw: bytes) -> NodeAffinity:
    """The required node affinity combined with ``spec.nodeSelector``."""
    pairs = parse_strings(raw, "spec.nodeSelector")
    return NodeAffinity(node_selector(pairs), affinity.terms) if pairs else affinity


def parse_spread(raw: bytes, labels: Labels) -> SpreadConstraints:
    """Decodes a pod's own constraints, hard and soft. matchLabelKeys are resolved by the pod's current labels."""
    parsed = decode(_SPREAD, raw, "spec.topologySpreadConstraints")
    if not parsed:
        return NO_SPREAD
    # Parsed separately, as in kube-scheduler: a bad soft constraint does not stop the filter.
    hard, hard_error = _constraints([c for c in parsed if c.when_unsatisfiable == "DoNotSchedule"], labels)
    soft, soft_error = _constraints([c for c in parsed if c.when_unsatisfiable == "ScheduleAnyway"], labels)
    return SpreadConstraints(hard, soft, own=True, hard_error=hard_error, soft_error=soft_error)


def _constraints(parsed: list[SpreadJson], labels: Labels) -> tuple[tuple[SpreadConstraint, ...], str]:
    try:
        return tuple(_constraint(item, labels) for item in parsed), ""
    except SelectorError as error:
        return (), str(error)


def _constraint(parsed: SpreadJson, labels: Labels) -> SpreadConstraint:
    # A key that the pod lacks is ignored (KEP-3243).
    keys = {key: labels[key] for key in parsed.match_label_keys or () if key in labels}
    return SpreadConstraint(
        max_skew=parsed.max_skew,
        topology_key=parsed.topology_key,
        hard=parsed.when_unsatisfiable == "DoNotSchedule",
        selector=_label_selector(parsed.label_selector).and_in(keys),
        # As in kube-scheduler, nil behaves as 1: no number of domains is too small.
        min_domains=1 if parsed.min_domains is None else parsed.min_domains,
        # The two policies have different defaults (KEP-3094).
        honor_affinity=parsed.node_affinity_policy in (None, "Honor"),
        honor_taints=parsed.node_taints_policy == "Honor",
    )


@cached(_TOLERATIONS_BYTES, lambda raw: held_by(len(raw)))
def parse_tolerations(raw: bytes) -> tuple[Toleration, ...]:
    """Decodes ``spec.tolerations`` and sorts them, so that equal sets share a signature."""
    parsed = decode(_TOLERATIONS, raw, "spec.tolerations") or ()
    # A set, because a toleration that is listed twice tolerates nothing more.
    made = {Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "") for t in parsed}
    return tuple(sorted(made, key=lambda t: (t.key, t.operator, t.value, t.effect)))


def parse_owner(raw: bytes) -> OwnerJson:
    """The controlling owner. Without one: an owner without a kind."""
    owners = decode(_OWNERS, raw, "metadata.ownerReferences") or ()
    return next((owner for owner in owners if owner.controller), _NO_OWNER)


def controller_of(owner: OwnerJson) -> Controller | None:
    """The owner, if default spread constraints read selectors of its kind; else None."""
    if (owner.api_version, owner.kind) not in _WORKLOADS:
        return None
    return Controller(owner.api_version, owner.kind, owner.name)


# -- limits


DEFAULT_LIMITS: Final = ConstraintLimits()
BYTES_LIMIT: Final = "podBytes"
PORTS_LIMIT: Final = "hostPorts"


def excess_bytes(size: int, limits: ConstraintLimits) -> Excess:
    """The excess of a pod whose labels and constraints have more bytes than ``limits.podBytes``."""
    return Excess(BYTES_LIMIT, f"labels and constraints: {size} bytes, limits.podBytes is {limits.pod_bytes}")


def excess_ports(ports: int, limits: ConstraintLimits) -> Excess:
    """The excess of a pod with more host ports than ``limits.hostPorts``."""
    return Excess(PORTS_LIMIT, f"spec.containers: {ports} host ports, limits.hostPorts is {limits.host_ports}")


# The numbers that are limited, in this order: name in `ConstraintLimits`, name in the settings, text of the excess.
_COUNTED: Final = (
    ("affinity_terms", "affinityTerms", "spec.affinity: {} terms of pods"),
    ("topology_spread_constraints", "topologySpreadConstraints", "spec.topologySpreadConstraints: {} constraints"),
    ("topology_keys", "topologyKeys", "spec.affinity and constraints: {} topology keys"),
    ("namespaces", "namespaces", "spec.affinity: {} namespaces"),
    ("label_requirements", "labelRequirements", "spec.affinity and constraints: {} requirements of label selectors"),
    ("node_selector_terms", "nodeSelectorTerms", "spec.affinity.nodeAffinity: {} terms"),
    ("node_requirements", "nodeRequirements", "spec.nodeSelector and nodeAffinity: {} requirements"),
    ("selector_values", "selectorValues", "spec: {} values in selectors"),
    ("tolerations", "tolerations", "spec.tolerations: {} tolerations"),
)

_allowed = attrgetter(*(name for name, _, _ in _COUNTED))


def excess_parts(
    affinity: PodAffinity,
    spread: SpreadConstraints,
    node_affinity: NodeAffinity,
    preferred_nodes: Sequence[PreferredNodeTerm],
    tolerations: Sequence[Toleration],
    limits: ConstraintLimits,
) -> Excess | None:
    """The first limit that a pod exceeds, or None. O(terms + requirements).

    The text has only the limit and the pod's own number, so that equal pods get equal messages. A changed message would
    be a status update, after which kube-scheduler tries the pod again.
    """
    size = size_of_parts(affinity, spread, node_affinity, preferred_nodes, tolerations)
    constraints = (*spread.hard, *spread.soft)
    keys = {term.topology_key for term in terms_of(affinity)} | {constraint.topology_key for constraint in constraints}
    # `Size` begins with the bytes, which `excess_bytes` limits before parsing. It has no topology keys, so their
    # number is put at its place in `_COUNTED`.
    counts = (*size[1:3], len(keys), *size[3:])
    allowed: tuple[int, ...] = _allowed(limits)
    if all(map(le, counts, allowed)):
        return None
    limit, text, count, most = next(
        (limit, text, count, most)
        for (_, limit, text), count, most in zip(_COUNTED, counts, allowed, strict=True)
        if count > most
    )
    return Excess(limit, f"{text.format(count)}, limits.{limit} is {most}")


def size_of_parts(
    affinity: PodAffinity,
    spread: SpreadConstraints,
    node_affinity: NodeAffinity,
    preferred_nodes: Sequence[PreferredNodeTerm],
    tolerations: Sequence[Toleration],
) -> Size:
    """What a pod's constraints count against the limits, apart from bytes. O(terms + requirements).

    Counted after parsing, because the parsed form has no duplicate namespaces and is what the index keeps.
    """
    terms, constraints = list(terms_of(affinity)), (*spread.hard, *spread.soft)
    selectors = [*_selectors(terms), *(constraint.selector for constraint in constraints)]
    node_terms = [*(node_affinity.terms or ()), *(preferred.term for preferred in preferred_nodes)]
    return Size(
        affinity_terms=len(terms),
        topology_spread_constraints=len(constraints),
        namespaces=sum(len(term.namespaces) for term in terms),
        label_requirements=sum(len(selector.requirements) for selector in selectors),
        node_selector_terms=len(node_terms),
        node_requirements=len(node_affinity.node_selector)
        + sum(len(term.expressions) + len(term.fields) for term in node_terms),
        selector_values=_values(selectors, node_terms),
        tolerations=len(tolerations),
    )


def _selectors(terms: Sequence[AffinityTerm]) -> Iterator[LabelSelector]:
    for term in terms:
        yield term.selector
        if term.namespace_selector is not None:
            yield term.namespace_selector


def _values(selectors: Sequence[LabelSelector], node_terms: Sequence[NodeSelectorTerm]) -> int:
    of_labels = sum(len(clause.values) for selector in selectors for clause in selector.requirements)
    of_nodes = sum(len(clause.values) for term in node_terms for clause in (*term.expressions, *term.fields))
    return of_labels + of_nodes


# -- selectors in kubectl's notation

LONGEST_SELECTOR: Final = 4000  # characters
_CLAUSE: Final = re.compile(
    r"\s*(?:"
    r"(?P<set_key>[^\s,=!()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<key>[^\s,=!()]+)\s*(?P<equal>==|=|!=)\s*(?P<value>[^\s,=!()]*)"
    r"|!\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<present>[^\s,=!()]+)"
    r")\s*(?:,|$)"
)


_TERM: Final = (
    rf"\s*(?:{KEY_PATTERN}\s+(?:in|notin)\s*\((?!\s*\))\s*{VALUE_PATTERN}\s*(?:,\s*{VALUE_PATTERN}\s*)*\)"
    rf"|{KEY_PATTERN}\s*(?:==|=|!=)\s*{VALUE_PATTERN}|!?\s*{KEY_PATTERN})\s*"
)
SELECTOR_PATTERN: Final = rf"^(?:\s*|{_TERM}(?:,{_TERM})*)$"
"""The syntax that `parse_selector_text` reads, as a regular expression for a JSON schema."""


def parse_selector_text(text: str, path: str) -> LabelSelector:
    """Reads a label selector as kubectl does: `app=web,tier in (front, back),!canary`.

    An empty text selects everything.

    Raises ``WireError`` with this path. Comparisons of numbers (`a>1`) are not read, because selectors of pods cannot
    have them.
    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#list-and-watch-filtering
    """
    if len(text) > LONGEST_SELECTOR:
        raise WireError(path, f"is longer than {LONGEST_SELECTOR} characters")
    try:
        return selector(_text_requirements(text))
    except SelectorError as error:
        raise WireError(path, str(error)) from None


def _text_requirements(text: str) -> Iterator[Requirement]:
    at = 0
    # Blanks after a clause belong to its match. Only a text of blanks alone has to be recognized here.
    while at < len(text) and (at or text.strip()):
        match = _CLAUSE.match(text, at)
        # A clause takes the comma after it, so "app=web," would end as if nothing were missing.
        if match is None or (match.end() == len(text) and text.rstrip().endswith(",")):
            raise SelectorError(f'expected a selector such as "app=web,tier in (a,b)", got "{text[at:][:50]}"')
        yield _text_requirement(match)
        at = match.end()


def _text_requirement(match: re.Match[str]) -> Requirement:
    if match["set"]:
        operator = "In" if match["set"] == "in" else "NotIn"
        values = match["values"].split(",") if match["values"].strip() else ()
        return requirement(match["set_key"], operator, (value.strip() for value in values))
    if match["equal"]:
        return requirement(match["key"], "NotIn" if match["equal"] == "!=" else "In", (match["value"],))
    if match["absent"]:
        return requirement(match["absent"], "DoesNotExist")
    return requirement(match["present"], "Exists")

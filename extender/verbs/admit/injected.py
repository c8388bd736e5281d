"""The annotation that records the injected values of an object, and how to take them out again.

A workload is admitted at every update. First the values that an earlier version of a policy injected are taken out of its
template, then the policies of today are applied. So a changed or deleted policy leaves nothing behind. A value that the user has
changed since stays.

The annotation has one record for each pod template, by its JSON pointer (empty for a pod). A record has the injected values, and the
values of the user that they replaced. With it `subtract` merges three ways, like `kubectl apply`: what was injected, what the user wrote
before, what the user writes now. Two whole documents in place of the record would reach `MOST_RECORDED` earlier.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from extender.index.policies import PoliciesView
from extender.model.constraints.clauses import Clause
from extender.model.policies import INJECTED_ANNOTATION, SCALARS, JsonObject, NodeTerm, Policy, PolicyKey
from extender.verbs.admit.json_edits import SpecFields, drop, get, put
from extender.verbs.admit.pod_fields import GATES, TERMS_PATH, Changes, made
from extender.wire.policies.node_terms import LISTS, SPREAD, counts_of, item_key, node_term

_PATHS: Final = frozenset({*LISTS, GATES})
_PARENTS: Final = frozenset(path.split(".")[0] for path in (*_PATHS, "nodeSelector"))
ANNOTATION: Final = ("metadata", "annotations", INJECTED_ANNOTATION)
MOST_RECORDED: Final = 2**17  # bytes of the annotation; all annotations of an object may have 2**18
_MOST_SEARCHED: Final = 4000  # elements, requirements or values


class _Record(msgspec.Struct, rename="camel", omit_defaults=True):
    """Part of the annotation. An annotation of another form is ignored."""


class PolicyRecord(_Record):
    """The values that one policy added, and the values that it replaced (`was…`, `were…`).

    ``spread``: by topology key, the fields by which the pod's constraints were completed. They are never taken out: only a pod gets
    them, and a pod keeps its constraints.
    """

    policy: str
    generation: int = 0
    fields: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    lists: dict[str, list[JsonObject]] = {}
    were_fields: dict[str, str] = {}
    was_node_selector: dict[str, str] = {}
    were_constraints: list[tuple[JsonObject, JsonObject]] = []
    spread: dict[str, JsonObject] = {}

    def without_replaced(self) -> PolicyRecord:
        """The record without the replaced values, as if the pod had been empty before."""
        spread = [*self.lists.get(SPREAD, ()), *(new for new, _ in self.were_constraints)]
        lists = self.lists | {SPREAD: spread} if spread else self.lists
        return PolicyRecord(self.policy, self.generation, self.fields, self.node_selector, lists)


class TermsRecord(_Record):
    """The required node terms before and after injection.

    ``after``: for each term the position of the term in ``before`` that it began as (-1: a policy's term), and the added part.
    """

    before: list[Any] | None = None
    after: list[tuple[int, JsonObject]] = []

    def without_replaced(self) -> TermsRecord:
        """The record without ``before``, where a policy replaced these terms: then no term in ``after`` began as one of them.

        Where they were joined with a policy's terms they stay, even terms that no node can match together with the policy: all of
        them are the user's wishes.
        """
        are_joined = any(0 <= origin < len(self.before or ()) for origin, _ in self.after)
        return TermsRecord(self.before if are_joined else None, self.after)


class InjectionRecord(_Record):
    """What was injected into one pod spec. ``created``: paths of lists and objects that it did not have."""

    policies: list[PolicyRecord] = []
    created: list[str] = []
    terms: TermsRecord | None = None

    @property
    def terms_count(self) -> int:
        """The number of required node terms before or after injection: the larger one."""
        return 0 if self.terms is None else max(len(self.terms.before or ()), len(self.terms.after))

    def items(self, path: str) -> list[JsonObject]:
        """The elements that were put into a list."""
        return [item for policy in self.policies for item in policy.lists.get(path, ())]

    def without_replaced(self) -> InjectionRecord:
        """The record without replaced values. Subtracting it takes injected values out and puts no old value back."""
        terms = None if self.terms is None else self.terms.without_replaced()
        return InjectionRecord([policy.without_replaced() for policy in self.policies], self.created, terms)


_DECODER: Final = msgspec.json.Decoder(dict[str, InjectionRecord])
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def read_records(text: Any) -> dict[str, InjectionRecord]:
    """The records of the annotation, by pointer. Empty where it is missing, of another form, or longer than `MOST_RECORDED`."""
    if not isinstance(text, str) or len(text) > MOST_RECORDED:
        return {}
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}


def write_records(records: dict[str, InjectionRecord]) -> str:
    """The annotation's text; empty where there is nothing to record."""
    return _ENCODER.encode(records).decode() if records else ""


def annotated(obj: JsonObject, text: str) -> JsonObject:
    """The object with the text as its annotation. An empty text removes the annotation."""
    if text:
        return put(obj, ANNOTATION, text)
    without = drop(obj, ANNOTATION)
    return drop(without, ANNOTATION[:-1]) if without["metadata"].get("annotations") == {} else without


def is_true(record: InjectionRecord, policies: PoliciesView) -> bool:
    """Whether the policies that a record names, in the generations that it names, inject the values in it. O(record).

    A tenant can write the annotation. The replaced values in it cannot be checked, but a tenant gains nothing by them: restoring
    them gives the object values that the tenant could have written directly.
    """
    known = [(policy, _policy_of(policy, policies)) for policy in record.policies]
    required = {
        part
        for _, policy in known
        if policy
        for term in policy.directives.required_node_terms or ()
        for part in term.clauses
    }
    after = () if record.terms is None else record.terms.after
    return all(policy is not None and _injects(policy, named) for named, policy in known) and all(
        # An added part may combine clauses of several policies, and lacks clauses that the pod's own term had already.
        node_term(added).clauses <= required
        for _, added in after
    )


def _policy_of(record: PolicyRecord, policies: PoliciesView) -> Policy | None:
    key = PolicyKey.parse(record.policy)
    policy = None if key is None else policies.get(key)
    # Another generation may have directed other values, so nothing is known of what it injected.
    return policy if policy is not None and policy.generation == record.generation else None


def _injects(policy: Policy, record: PolicyRecord) -> bool:
    directs = policy.directives
    gates = {*directs.scheduling_gates, *([] if policy.release is None else [policy.release.gate])}
    keys = {path: items.keys for path, items in directs.lists.items()} | {
        GATES: {item_key(GATES, {"name": name}) for name in gates}
    }
    spread = [new for new, _ in record.were_constraints]
    completed = {directive.topology_key for directive in directs.spread}
    return (
        all(value in directs.scalars.get(name, ()) for name, value in record.fields.items())
        and record.node_selector.items() <= directs.node_selector.items()
        and record.spread.keys() <= completed
        and all(
            item_key(path, item) in keys.get(path, ())
            for path, items in (*record.lists.items(), (SPREAD, spread))
            for item in items
        )
    )


def record_of(fields: SpecFields, changes: Iterable[Changes]) -> InjectionRecord | None:
    """The record of an injection; None if it changed nothing."""
    records = list(map(_policy_record, made(changes)))
    if not records:
        return None
    after = fields.added_terms
    return InjectionRecord(records, fields.created, None if after is None else TermsRecord(fields.own_terms, after))


def joined(old: InjectionRecord | None, new: InjectionRecord) -> InjectionRecord:
    """Both records as one, for a pod that is reviewed a second time because another webhook has changed it."""
    if old is None:
        return new
    created = [*old.created, *(path for path in new.created if path not in old.created)]
    return InjectionRecord([*old.policies, *new.policies], created, new.terms or old.terms)


def _policy_record(changes: Changes) -> PolicyRecord:
    added, replaced = changes.added, changes.replaced
    return PolicyRecord(
        policy=str(changes.policy.key),
        generation=changes.policy.generation,
        fields={name: added[name] for name in SCALARS if name in added},
        node_selector=added.get("nodeSelector") or {},
        lists={path: added[path] for path in added if path in _PATHS},
        were_fields={name: replaced[name] for name in SCALARS if name in replaced},
        was_node_selector=replaced.get("nodeSelector") or {},
        were_constraints=[(new, old) for new, old in replaced.get(SPREAD) or ()],
        spread=added.get("spread") or {},
    )


def subtract(spec: JsonObject, record: InjectionRecord) -> JsonObject:
    """The spec without the injected values. A value that was changed since stays. O(record + lists that it names).

    A list that is far above every limit is not searched: policies add nothing to such a list, so it is all the user's.
    """
    # In the reverse order of an injection: values, elements, replaced constraints, terms, and at last the containers that were created
    # and are empty now.
    spec = _without_values(spec, record)
    for path in _PATHS:
        if items := record.items(path):
            spec = _without_items(spec, path, items)
    replaced = {item_key(SPREAD, new): old for policy in record.policies for new, old in policy.were_constraints}
    if replaced and isinstance(spec.get(SPREAD), list) and len(spec[SPREAD]) <= _MOST_SEARCHED:
        spec = put(
            spec, (SPREAD,), [replaced.get(item_key(SPREAD, constraint), constraint) for constraint in spec[SPREAD]]
        )
    if record.terms is not None:
        spec = _subtract_terms(spec, record.terms)
    # Innermost first: affinity.nodeAffinity must be gone before affinity is empty.
    for path in reversed(record.created):
        names = tuple(path.split("."))
        if names[0] in _PARENTS and get(spec, names) in ({}, []):
            spec = drop(spec, names)
    return spec


def _without_values(spec: JsonObject, record: InjectionRecord) -> JsonObject:
    """The spec without the injected scalar fields and node selector pairs."""
    selector = spec.get("nodeSelector")
    scalars: JsonObject = {name: spec[name] for name in SCALARS if name in spec}
    # The last policy first: it may have replaced the value of an earlier one.
    for policy in reversed(record.policies):
        _restore(scalars, policy.fields, policy.were_fields)
    for name in SCALARS:
        if scalars.get(name) != spec.get(name):
            spec = put(spec, (name,), scalars[name]) if name in scalars else drop(spec, (name,))
    pairs = _pairs_without(selector if isinstance(selector, dict) else {}, record)
    if pairs != selector and (pairs or isinstance(selector, dict)):
        spec = put(spec, ("nodeSelector",), pairs)
    return spec


def _pairs_without(selector: Mapping[str, str], record: InjectionRecord) -> dict[str, str]:
    """The node selector without the injected pairs."""
    pairs = dict(selector)
    for policy in reversed(record.policies):
        _restore(pairs, policy.node_selector, policy.was_node_selector)
        # A pair that the policy removed without another in its place: it returns, unless the user has set the key
        # since.
        for key, value in policy.was_node_selector.items():
            if key not in policy.node_selector:
                pairs.setdefault(key, value)
    return pairs


def nodes_without(
    selector: Mapping[str, str], terms: Sequence[NodeTerm] | None, record: InjectionRecord
) -> tuple[dict[str, str], Sequence[NodeTerm] | None]:
    """The node selector and the required terms of an existing pod without the injected values. O(record + requirements).

    ``terms``: None where the pod requires nothing, which is not the same as no term.
    """
    if record.terms is not None and not _is_too_large(terms or ()):
        terms = _terms_without(terms or (), record.terms)
    if not terms and ".".join(TERMS_PATH) in record.created:
        terms = None
    return _pairs_without(selector, record), terms


def _is_too_large(terms: Sequence[NodeTerm]) -> bool:
    return len(terms) > _MOST_SEARCHED or sum(len(term.parts) for term in terms) > _MOST_SEARCHED


def _restore(values: JsonObject, added: dict[str, str], were: dict[str, str]) -> None:
    """Takes out the added values that are unchanged, and puts the replaced values back in their place."""
    for name, value in added.items():
        if values.get(name) == value:
            if name in were:
                values[name] = were[name]
            else:
                del values[name]


def _without_items(spec: JsonObject, path: str, items: Sequence[JsonObject]) -> JsonObject:
    """The spec without the injected elements of a list. Of equal elements the last is taken out: injected ones are appended."""
    names = tuple(path.split("."))
    present = get(spec, names)
    if not isinstance(present, list) or len(present) > _MOST_SEARCHED:
        return spec
    missing = Counter(item_key(path, item) for item in items)
    remaining = []
    for item in reversed(present):
        key = item_key(path, item)
        if missing[key]:
            missing[key] -= 1
        else:
            remaining.append(item)
    return put(spec, names, remaining[::-1]) if len(remaining) < len(present) else spec


def _subtract_terms(spec: JsonObject, record: TermsRecord) -> JsonObject:
    """The spec with the terms from before the injection. Where the user has changed the list, each term loses its added part."""
    present = get(spec, TERMS_PATH)
    present = present if isinstance(present, list) else []
    if len(present) > _MOST_SEARCHED or max(counts_of(put({}, TERMS_PATH, present))) > _MOST_SEARCHED:
        return spec
    terms = _terms_without(list(map(_term, present)), record)
    if terms is None:
        return drop(spec, TERMS_PATH[:-1] if _is_alone(spec) else TERMS_PATH)
    return put(spec, TERMS_PATH, [term.value for term in terms])


def _term(value: Any) -> NodeTerm:
    return node_term(value) if isinstance(value, dict) else NodeTerm(value, frozenset())


def _terms_without(now: Sequence[NodeTerm], record: TermsRecord) -> Sequence[NodeTerm] | None:
    """The terms without the injected parts; None for no requirement at all."""
    before = list(map(_term, record.before or ()))
    injected = [_Injected.of(origin, added, before) for origin, added in record.after]
    is_unchanged = [term.clauses for term in now] == [term.clauses for term in injected]
    terms = before if is_unchanged else _each_without(now, injected, before)
    return None if record.before is None and (is_unchanged or not terms) else terms


def _is_alone(spec: JsonObject) -> bool:
    return not get(spec, TERMS_PATH[:-1]) or get(spec, TERMS_PATH[:-1]).keys() <= {"nodeSelectorTerms"}


class _Injected(msgspec.Struct, frozen=True):
    """A term as it was after injection."""

    origin: int
    added: NodeTerm
    clauses: frozenset[Clause]

    @classmethod
    def of(cls, origin: int, added: JsonObject, before: Sequence[NodeTerm]) -> _Injected:
        """From the record. An origin beyond ``before`` counts as -1."""
        extra = node_term(added)
        known = 0 <= origin < len(before)
        return cls(origin if known else -1, extra, extra.clauses | (before[origin].clauses if known else frozenset()))


def _each_without(now: Sequence[NodeTerm], injected: Sequence[_Injected], before: Sequence[NodeTerm]) -> list[NodeTerm]:
    """The terms of a list that the user has changed, each without its injected part.

    A term of the list is one of these:

    1. an injected term, unchanged: it becomes the term that it began as, or is left out if it was a policy's;
    2. an injected term to which the user added clauses: it loses the part that was added at injection;
    3. a term with the added part of some injected term: it loses that part;
    4. any other term: the user's own.
    """
    # `reversed`: of injected terms with equal clauses the first one stays in the mapping.
    equal = {term.clauses: term for term in reversed(injected)}
    shorter, additions = (
        _Subsets([term.clauses for term in injected]),
        _Subsets([term.added.clauses for term in injected]),
    )
    remaining: dict[frozenset[Clause], NodeTerm] = {}
    for term in now:
        match = equal.get(term.clauses)
        if match is not None:
            if match.origin >= 0:
                remaining.setdefault(before[match.origin].clauses, before[match.origin])
            continue
        number = shorter.first_in(term.clauses)
        if number is None:
            number = additions.first_in(term.clauses)
        # The user may have copied an injected term and added clauses: only the policy's part leaves.
        rest = term if number is None else _without_clauses(term, injected[number].added.clauses)
        if number is None or rest.clauses:
            remaining.setdefault(rest.clauses, rest)
    return list(remaining.values())


class _Subsets:
    """Finds the first of many sets that is a subset of a given set.

    Each set is filed under its rarest clause, so only sets are compared that share a rare clause with the given set.
    """

    def __init__(self, sets: Sequence[frozenset[Clause]]) -> None:
        first = {clauses: number for number, clauses in reversed(list(enumerate(sets))) if clauses}
        counts = Counter(chain.from_iterable(first))
        self._filed: dict[Clause, list[tuple[int, frozenset[Clause]]]] = {}
        for clauses, number in first.items():
            self._filed.setdefault(min(clauses, key=counts.__getitem__), []).append((number, clauses))

    def first_in(self, clauses: frozenset[Clause]) -> int | None:
        """The number of the first set whose clauses are all among these. O(clauses + sets that are filed under them)."""
        filed = (entry for clause in clauses for entry in self._filed.get(clause, ()))
        return min((number for number, subset in filed if subset <= clauses), default=None)


def _without_clauses(term: NodeTerm, clauses: frozenset[Clause]) -> NodeTerm:
    if not term.value:  # of an existing pod
        remaining = tuple(part for part in term.parts if part.clause not in clauses)
        return NodeTerm({}, frozenset(part.clause for part in remaining), remaining)
    value: JsonObject = {}
    parts: dict[str, list[Any]] = {}
    for part in term.parts:
        kept = parts.setdefault(part.name, [])
        if part.clause not in clauses:
            kept.append(part.content)
    for name, content in term.value.items():
        if not isinstance(content, list) or name not in parts:
            value[name] = content
        elif parts[name]:
            value[name] = parts[name]
    return node_term(value)

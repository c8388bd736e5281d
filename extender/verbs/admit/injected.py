"""The annotation that records what was injected into an object, and subtracting it again.

A template is admitted at every update. What an earlier version of a policy injected is taken out before the policies of
today are applied, so that a changed or deleted policy leaves nothing behind. What the user has changed in between stays.
The annotation holds one record for each pod template, by its JSON pointer (empty for a pod).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from extender.model.constraints.clauses import Clause
from extender.model.policies import INJECTED_ANNOTATION, JsonObject, NodeTerm
from extender.verbs.admit.json_edits import drop, get, put
from extender.verbs.admit.pod_fields import GATES, SCALARS, TERMS_PATH, Changes, PodFields
from extender.wire.policies.node_terms import LISTS, SPREAD, item_key, node_term

_PATHS: Final = frozenset({*LISTS, GATES})
_PARENTS: Final = frozenset(path.split(".")[0] for path in (*_PATHS, "nodeSelector"))
_MOST_RECORDED: Final = 2**17  # bytes of the annotation; all annotations of an object may have 2**18


class _Record(msgspec.Struct, rename="camel", omit_defaults=True):
    """Part of the annotation. Whatever has another form is not one of ours."""


class PolicyRecord(_Record):
    """What one policy added, and what it replaced (`was…`)."""

    policy: str
    generation: int = 0
    fields: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    lists: dict[str, list[JsonObject]] = {}
    were_fields: dict[str, str] = {}
    was_node_selector: dict[str, str] = {}
    were_constraints: list[tuple[JsonObject, JsonObject]] = []

    def without_replaced(self) -> PolicyRecord:
        """As if everything had been added to a pod that said nothing."""
        spread = [*self.lists.get(SPREAD, ()), *(new for new, _ in self.were_constraints)]
        lists = self.lists | {SPREAD: spread} if spread else self.lists
        return PolicyRecord(self.policy, self.generation, self.fields, self.node_selector, lists)


class TermsRecord(_Record):
    """The required node terms before injection, and for each one after it where it came from (-1: a policy) and what was added."""

    before: list[Any] | None = None
    after: list[tuple[int, JsonObject]] = []

    def without_replaced(self) -> TermsRecord:
        """Only the terms from before that are part of one after it."""
        before = self.before or []
        kept = sorted({origin for origin, _ in self.after if 0 <= origin < len(before)})
        places = {origin: number for number, origin in enumerate(kept)}
        after = [(places.get(origin, -1), added) for origin, added in self.after]
        return TermsRecord([before[origin] for origin in kept] or None, after)


class Record(_Record):
    """What was injected into one pod spec. ``created``: paths of lists and objects that it did not have."""

    policies: list[PolicyRecord] = []
    created: list[str] = []
    terms: TermsRecord | None = None

    @property
    def terms_count(self) -> int:
        """How many required node terms there were after injection."""
        return 0 if self.terms is None else len(self.terms.after)

    def items(self, path: str) -> list[JsonObject]:
        """The elements that were put into a list."""
        return [item for each in self.policies for item in each.lists.get(path, ())]

    def without_replaced(self) -> Record:
        """The same without what was replaced: then subtracting restores nothing that the pod does not have any more."""
        terms = None if self.terms is None else self.terms.without_replaced()
        return Record([each.without_replaced() for each in self.policies], self.created, terms)


_DECODER: Final = msgspec.json.Decoder(dict[str, Record])
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def read_records(annotations: Any) -> dict[str, Record]:
    """The records of an object's annotations, by pointer; empty where there are none, or none that can be read."""
    text = annotations.get(INJECTED_ANNOTATION) if isinstance(annotations, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}


def write_records(records: dict[str, Record]) -> str:
    """The annotation's text; empty where there is nothing to record."""
    return _ENCODER.encode(records).decode() if records else ""


class RecordTooLargeError(ValueError):
    """Raised where an object cannot carry the record of its injection, so that it could not be taken out again."""


def annotated(obj: JsonObject, text: str) -> JsonObject:
    """The object with the record as its annotation; without the annotation where there is nothing to record."""
    names = ("metadata", "annotations", INJECTED_ANNOTATION)
    if len(text) > _MOST_RECORDED:
        raise RecordTooLargeError(f"the annotation would have {len(text)} bytes, {_MOST_RECORDED} are allowed")
    if text:
        return put(obj, names, text)
    without = drop(obj, names)
    return drop(without, names[:-1]) if without["metadata"].get("annotations") == {} else without


def record_of(fields: PodFields, changes: Iterable[Changes]) -> Record | None:
    """What an injection did; None where it did nothing."""
    made = [_policy_record(each) for each in changes if not each.is_empty]
    if not made:
        return None
    after = [(each.origin, each.added) for each in fields.terms]
    return Record(made, fields.created, TermsRecord(fields.own_terms, after) if fields.has_new_terms else None)


def joined(old: Record | None, new: Record) -> Record:
    """Both records: of a pod that is asked about a second time, after another webhook has changed it."""
    if old is None:
        return new
    created = [*old.created, *(path for path in new.created if path not in old.created)]
    return Record([*old.policies, *new.policies], created, new.terms or old.terms)


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
    )


def subtract(spec: JsonObject, record: Record) -> JsonObject:
    """The spec without what was injected, where it still stands as it was injected. O(record + lists that it names)."""
    for each in reversed(record.policies):
        spec = _subtract_policy(spec, each)
    if record.terms is not None:
        spec = _subtract_terms(spec, record.terms)
    for path in reversed(record.created):
        names = tuple(path.split("."))
        if names[0] in _PARENTS and get(spec, names) in ({}, []):
            spec = drop(spec, names)
    return spec


def _subtract_policy(spec: JsonObject, record: PolicyRecord) -> JsonObject:
    for name, value in record.fields.items():
        if name in SCALARS and spec.get(name) == value:
            spec = _restore(spec, (name,), record.were_fields.get(name))
    present = get(spec, ("nodeSelector",))
    for key, value in record.node_selector.items():
        if isinstance(present, dict) and present.get(key) == value:
            spec = _restore(spec, ("nodeSelector", key), record.was_node_selector.get(key))
    for key, was in record.was_node_selector.items():
        if key not in record.node_selector and key not in (get(spec, ("nodeSelector",)) or {}):
            spec = put(spec, ("nodeSelector", key), was)
    for path, items in record.lists.items():
        if path in _PATHS:
            spec = _without_items(spec, path, items)
    for new, old in record.were_constraints:
        spec = _with_constraint(spec, item_key(SPREAD, new), old)
    return spec


def _restore(spec: JsonObject, names: tuple[str, ...], was: str | None) -> JsonObject:
    return drop(spec, names) if was is None else put(spec, names, was)


def _without_items(spec: JsonObject, path: str, items: Sequence[JsonObject]) -> JsonObject:
    """Takes out each element once: the last that is equal, as elements are appended."""
    names = tuple(path.split("."))
    present = get(spec, names)
    if not isinstance(present, list):
        return spec
    missing = Counter(item_key(path, item) for item in items)
    left = []
    for each in reversed(present):
        key = item_key(path, each)
        if missing[key]:
            missing[key] -= 1
        else:
            left.append(each)
    return put(spec, names, left[::-1]) if len(left) < len(present) else spec


def _with_constraint(spec: JsonObject, key: str, old: JsonObject) -> JsonObject:
    present = spec.get(SPREAD)
    if not isinstance(present, list):
        return spec
    return put(spec, (SPREAD,), [old if item_key(SPREAD, each) == key else each for each in present])


def _subtract_terms(spec: JsonObject, record: TermsRecord) -> JsonObject:
    """The terms as they were before. Where the user has changed the list, each term without what was added to it."""
    present = get(spec, TERMS_PATH)
    present = present if isinstance(present, list) else []
    before = [node_term(each if isinstance(each, dict) else {}) for each in record.before or ()]
    injected = [_Injected.of(origin, added, before) for origin, added in record.after]
    now = [node_term(each) if isinstance(each, dict) else NodeTerm(each, frozenset()) for each in present]
    if [each.clauses for each in now] == [each.clauses for each in injected]:
        left = record.before
    else:
        left = _each_without(now, injected, before)
    if left is None or (not left and record.before is None):
        return drop(spec, TERMS_PATH[:-1] if _is_alone(spec) else TERMS_PATH)
    return put(spec, TERMS_PATH, left)


def _is_alone(spec: JsonObject) -> bool:
    return not get(spec, TERMS_PATH[:-1]) or get(spec, TERMS_PATH[:-1]).keys() <= {"nodeSelectorTerms"}


class _Injected(msgspec.Struct, frozen=True):
    """A term as it was after injection."""

    origin: int
    added: NodeTerm
    clauses: frozenset[Clause]

    @classmethod
    def of(cls, origin: int, added: JsonObject, before: Sequence[NodeTerm]) -> _Injected:
        """From the record; an origin that does not exist counts as none."""
        extra = node_term(added)
        known = 0 <= origin < len(before)
        return cls(origin if known else -1, extra, extra.clauses | (before[origin].clauses if known else frozenset()))


def _each_without(
    now: Sequence[NodeTerm], injected: Sequence[_Injected], before: Sequence[NodeTerm]
) -> list[JsonObject]:
    """Each term without what was added to it: it is an injected term, or was one before the user added to it, or holds what was added."""
    equal = {each.clauses: each for each in reversed(injected)}
    shorter, additions = (
        _Subsets([each.clauses for each in injected]),
        _Subsets([each.added.clauses for each in injected]),
    )
    left: dict[frozenset[Clause], JsonObject] = {}
    for term in now:
        found = equal.get(term.clauses)
        if found is not None:
            if found.origin >= 0:
                left.setdefault(before[found.origin].clauses, before[found.origin].value)
            continue
        number = shorter.first_in(term.clauses)
        if number is None:
            number = additions.first_in(term.clauses)
        rest = term if number is None else _without_clauses(term, injected[number].added.clauses)
        if number is None or rest.clauses:
            left.setdefault(rest.clauses, rest.value)
    return list(left.values())


class _Subsets:
    """Finds the first of many sets that another one contains. Each is filed under the clause that the fewest of them have."""

    def __init__(self, sets: Sequence[frozenset[Clause]]) -> None:
        first = {each: number for number, each in reversed(list(enumerate(sets))) if each}
        counts = Counter(chain.from_iterable(first))
        self._filed: dict[Clause, list[tuple[int, frozenset[Clause]]]] = {}
        for each, number in first.items():
            self._filed.setdefault(min(each, key=counts.__getitem__), []).append((number, each))

    def first_in(self, clauses: frozenset[Clause]) -> int | None:
        """The number of the first one that is part of these clauses. O(clauses + sets filed under them)."""
        filed = (each for clause in clauses for each in self._filed.get(clause, ()))
        return min((number for number, each in filed if each <= clauses), default=None)


def _without_clauses(term: NodeTerm, clauses: frozenset[Clause]) -> NodeTerm:
    value: JsonObject = {}
    parts: dict[str, list[Any]] = {}
    for name, item, clause, _ in term.parts:
        kept = parts.setdefault(name, [])
        if clause not in clauses:
            kept.append(item)
    for name, content in term.value.items():
        if not isinstance(content, list) or name not in parts:
            value[name] = content
        elif parts[name]:
            value[name] = parts[name]
    return node_term(value)

"""The scheduling fields of a pod under review: read from the JSON of its spec, and written back to it.

The spec is never changed. Only objects on the path to a change are copied, so unknown fields are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from extender.model.policies import InjectedItem, JsonObject, NodeTerm, Size, TermPart
from extender.verbs.admit.json_edits import drop, get, missing_parents, put
from extender.verbs.admit.pod_fields import GATES, SCALARS, TERMS_PATH, Bounds, PodFields
from extender.verbs.admit.term_product import AdmissionBudget, JoinedTerm
from extender.wire.policies.node_terms import counts_of, is_unknown_field, item_key, lengths_of, node_term, size_of

_SELECTOR: Final = ("nodeSelector",)
_LAST_READ: Final = 500  # elements of a list that is above a limit


class SpecFields(PodFields):
    """The fields of a pod spec as JSON. Reading all of them costs O(scheduling fields of the spec), once."""

    def __init__(self, spec: JsonObject, bounds: Bounds, budget: AdmissionBudget) -> None:
        self._own_selector: dict[str, str] = spec.get("nodeSelector") or {}
        super().__init__(bounds, budget, {name: spec.get(name) or "" for name in SCALARS}, self._own_selector)
        self.own_terms: Any = get(spec, TERMS_PATH)
        self._spec = spec
        self.excess = self.excess_of(lengths_of(spec)) or self.excess_of(counts_of(spec))
        self.reads_terms = not self.excess or self._has_few_terms()

    def _has_few_terms(self) -> bool:
        terms = self.own_terms if isinstance(self.own_terms, list) else []
        few = len(terms) <= self.bounds.limits.node_selector_terms
        return few and not self.excess_of(counts_of(put({}, TERMS_PATH, terms)))

    def _read_terms(self) -> Iterator[NodeTerm]:
        """The required node terms."""
        values = self.own_terms if isinstance(self.own_terms, list) and self.reads_terms else []
        return (node_term(value if isinstance(value, dict) else {}) for value in values)

    def _read_items(self, path: str) -> Sequence[InjectedItem]:
        """The elements of a list."""
        values = get(self._spec, path.split("."))
        read = values[len(self._unread(path)) :] if isinstance(values, list) else ()
        return [InjectedItem(value, _key(path, value), Size()) for value in read]

    def _unread(self, path: str) -> list[Any]:
        """The elements of a list that are not read, because the pod is above a limit: all but the last ones.

        Policies append their elements, so these are among the last ones when the pod is reviewed again.
        """
        values = get(self._spec, path.split(".")) if self.excess and path != GATES else None
        return values[:-_LAST_READ] if isinstance(values, list) else []

    def _read_size(self) -> Size:
        """The size of the spec. O(bytes of the fields)."""
        return size_of(self._spec)

    @property
    def spec(self) -> JsonObject:
        """The spec with all changes. Unchanged parts are the same objects as before. O(changes)."""
        spec = self._spec
        if self._terms is not None:
            terms = [term_json(term) for term in self._terms]
            spec = put(spec, TERMS_PATH, terms) if terms else drop(spec, TERMS_PATH[:-1])
        for path, items in self._lists.items():
            spec = put(spec, path.split("."), [*self._unread(path), *(item.value for item in items)])
        if self.node_selector is not self._own_selector:
            spec = put(spec, _SELECTOR, dict(self.node_selector))
        for name, value in self.scalars.items():
            if value != (spec.get(name) or ""):
                spec = put(spec, (name,), value)
        return spec

    @property
    def created(self) -> list[str]:
        """The dotted paths of lists and objects that were created in the spec."""
        return list(dict.fromkeys(name for path in self._written() for name in missing_parents(self._spec, path)))

    def _written(self) -> Iterator[tuple[str, ...]]:
        if self._terms:
            yield TERMS_PATH
        yield from (tuple(path.split(".")) for path in self._lists)
        if self.node_selector is not self._own_selector:
            yield _SELECTOR


def _key(path: str, value: Any) -> str:
    return str(value.get("name")) if path == GATES and isinstance(value, dict) else item_key(path, value)


def term_json(term: JoinedTerm) -> JsonObject:
    """A required node term as JSON."""
    return _with_parts(term.term.value, term.added) if term.added else term.term.value


def added_json(term: JoinedTerm) -> JsonObject:
    """The part of a term that policies added; the whole term if it began as a policy's."""
    return _with_parts({}, term.added) if term.origin >= 0 else term_json(term)


def _with_parts(value: JsonObject, parts: Sequence[TermPart]) -> JsonObject:
    made = dict(value)
    lists: dict[str, list[Any]] = {}
    for part in parts:
        if is_unknown_field(part):
            made[part.name] = part.content
            continue
        if part.name not in lists:
            made[part.name] = lists[part.name] = list(made.get(part.name) or ())
        lists[part.name].append(part.content)
    return made

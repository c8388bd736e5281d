"""The JSON of objects under review: changes that leave the original alone, and the smallest JSON patch (RFC 6902) between two objects.

`SpecFields` reads the scheduling fields of a pod spec, and writes them back.

Only objects on the path to a change are copied. So an unchanged part stays the same Python object, and unknown fields are kept.
The patch skips parts that are the same object, so it costs O(changes), not O(object). It has a `test` before each `replace` and
`remove`. https://www.rfc-editor.org/rfc/rfc6902
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from extender.model.policies import SCALARS, InjectedItem, JsonObject, NodeTerm, Size, TermPart
from extender.verbs.admit.pod_fields import GATES, TERMS_PATH, Bounds, PodFields
from extender.verbs.admit.term_product import AdmissionBudget, JoinedTerm
from extender.wire.policies.node_terms import bytes_of, counts_of, counts_within, is_unknown_field, item_key, node_term

Operation = dict[str, Any]


def make_patch(old: JsonObject, new: JsonObject) -> list[Operation]:
    """The operations in order; empty where the objects are equal."""
    operations: list[Operation] = []
    _compare_objects(old, new, "", operations)
    return operations


def pointer(*names: str) -> str:
    """A JSON pointer (RFC 6901) of field names."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in names)


def _compare(old: Any, new: Any, path: str, operations: list[Operation]) -> None:
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        _compare_objects(old, new, path, operations)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(old, new, path, operations)
    elif not _equal(old, new):
        operations.append({"op": "test", "path": path, "value": old})
        operations.append({"op": "replace", "path": path, "value": new})


def _equal(old: Any, new: Any) -> bool:
    """JSON equality. It differs from Python's, where True equals 1."""
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def _compare_objects(old: JsonObject, new: JsonObject, path: str, operations: list[Operation]) -> None:
    for name, value in old.items():
        if name not in new:
            _remove(value, path + pointer(name), operations)
        elif (other := new[name]) is not value:  # most are the same object: an object may have 100,000 annotations
            _compare(value, other, path + pointer(name), operations)
    for name, value in new.items():
        if name not in old:
            operations.append({"op": "add", "path": path + pointer(name), "value": value})


def _remove(value: Any, path: str, operations: list[Operation]) -> None:
    operations.append({"op": "test", "path": path, "value": value})
    operations.append({"op": "remove", "path": path})


def _compare_lists(old: list[Any], new: list[Any], path: str, operations: list[Operation]) -> None:
    """Keeps the equal elements at the begin and the end of both lists. Between, elements are replaced, then added or removed.

    An element is added at its number and not at `-` (the end), so that the patch says where it goes.
    """
    begin = _common(old, new)
    end = _common(old[begin:][::-1], new[begin:][::-1])
    before, after = old[begin : len(old) - end], new[begin : len(new) - end]
    both = min(len(before), len(after))
    for number in range(both):
        _compare(before[number], after[number], f"{path}/{begin + number}", operations)
    # From the end: a removal moves the elements behind it, and their numbers are still needed.
    for number in range(len(before) - 1, both - 1, -1):
        _remove(before[number], f"{path}/{begin + number}", operations)
    operations += (
        {"op": "add", "path": f"{path}/{begin + number}", "value": after[number]} for number in range(both, len(after))
    )


def _common(old: list[Any], new: list[Any]) -> int:
    count = 0
    for mine, other in zip(old, new, strict=False):
        if mine is not other and not _deeply_equal(mine, other):
            break
        count += 1
    return count


def _deeply_equal(old: Any, new: Any) -> bool:
    """JSON equality at any depth. Python's own comparison comes first, because it is fast."""
    if old != new:
        return False
    if isinstance(old, dict):
        return all(_deeply_equal(value, new[name]) for name, value in old.items())
    if isinstance(old, list):
        return all(map(_deeply_equal, old, new))
    return isinstance(old, bool) == isinstance(new, bool)


def get(value: JsonObject, path: Iterable[str]) -> Any:
    """The value at a path of field names. None where it is missing, or where a part of the path is no object."""
    part: Any = value
    for name in path:
        part = part.get(name) if isinstance(part, dict) else None
    return part


def put(value: JsonObject, path: Iterable[str], new: Any) -> JsonObject:
    """A copy with a value at a path. Missing objects on the path are created. O(fields of the objects on the path)."""
    name, *rest = path
    copy = dict(value)
    below = copy.get(name)
    copy[name] = put(below if isinstance(below, dict) else {}, rest, new) if rest else new
    return copy


def drop(value: JsonObject, path: Iterable[str]) -> JsonObject:
    """A copy without the field at a path; the same object where there is no such field."""
    name, *rest = path
    if name not in value:
        return value
    copy = dict(value)
    if not rest:
        del copy[name]
        return copy
    if not isinstance(copy[name], dict):
        return value
    copy[name] = drop(copy[name], rest)
    return value if copy[name] is value[name] else copy


def missing_parents(value: JsonObject, path: tuple[str, ...]) -> list[str]:
    """The dotted paths of the missing parts of a path: objects above the field, and the field."""
    return [".".join(path[: n + 1]) for n in range(len(path)) if get(value, path[: n + 1]) is None]


# -- the scheduling fields of a pod under review

_SELECTOR: Final = ("nodeSelector",)
_LAST_READ: Final = 500  # elements of a list that is above a limit


class SpecFields(PodFields):
    """The fields of a pod spec as JSON. Reading all of them costs O(scheduling fields of the spec), once."""

    def __init__(self, spec: JsonObject, bounds: Bounds, budget: AdmissionBudget) -> None:
        self._own_selector: dict[str, str] = spec.get("nodeSelector") or {}
        super().__init__(bounds, budget, {name: spec.get(name) or "" for name in SCALARS}, self._own_selector)
        self.own_terms: Any = get(spec, TERMS_PATH)
        self._spec = spec
        self._counts = counts_within(bounds.most, spec)
        self.excess = self.excess_of(self._counts)
        self.reads_terms = not self.excess or self._has_few_terms()

    def _has_few_terms(self) -> bool:
        terms = self.own_terms if isinstance(self.own_terms, list) else []
        few = len(terms) <= self.bounds.limits.node_selector_terms
        return few and not self.excess_of(counts_within(self.bounds.most, put({}, TERMS_PATH, terms)))

    def _read_terms(self) -> list[NodeTerm]:
        """The required node terms."""
        values = self.own_terms if isinstance(self.own_terms, list) and self.reads_terms else []
        return [node_term(value if isinstance(value, dict) else {}) for value in values]

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
        counts = counts_of(self._spec) if self.excess else self._counts  # above a limit these can be lengths alone
        return counts._replace(pod_bytes=bytes_of(self._spec))

    @property
    def spec(self) -> JsonObject:
        """The spec with all changes. Unchanged parts are the same objects as before. O(changes)."""
        spec = self._spec
        if self._terms is not None:
            terms = [_term_json(term) for term in self._terms]
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
    def added_terms(self) -> list[tuple[int, JsonObject]] | None:
        """For each required node term the position of the own term that it began as, and the added part. None: unchanged."""
        return None if self._terms is None else [(term.origin, _added_json(term)) for term in self._terms]

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


def _term_json(term: JoinedTerm) -> JsonObject:
    """A required node term as JSON."""
    return _with_parts(term.term.value, term.added) if term.added else term.term.value


def _added_json(term: JoinedTerm) -> JsonObject:
    """The part of a term that policies added; the whole term if it began as a policy's."""
    return _with_parts({}, term.added) if term.origin >= 0 else _term_json(term)


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

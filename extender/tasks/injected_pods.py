"""Tells which policies were injected into new pods, whichever replica admitted them: the pods say so in an annotation.

It is the index as the event handlers use it, where policies are enabled. The text of the annotation is part of the
signature of a pod without a node. A pod is new where the index does not know it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from extender.index.known_objects import ObjectIndex
from extender.model.objects import Object, Pod, PodSignature
from extender.model.policies import CLUSTER_KIND, GROUP, INJECTED_ANNOTATION, NAMESPACED_KIND, PolicyKey
from extender.verbs.admit.injected import read_records

Told = Callable[[PodSignature, Collection[PolicyKey]], None]
_PARTS: Final = {NAMESPACED_KIND: 3, CLUSTER_KIND: 2}  # of the policy's name in the annotation


def _ignore(_signature: PodSignature, _policies: Collection[PolicyKey]) -> None:
    """The default of ``tell``."""


class InjectedPods:
    """``known`` are the UIDs of the index. ``tell`` is called with each new pod that carries a record."""

    def __init__(self, index: ObjectIndex, known: Collection[str]) -> None:
        self.tell: Told = _ignore
        self._index = index
        self._known = known
        self._last: tuple[str, tuple[PolicyKey, ...]] = ("", ())  # pods of one workload come together

    def upsert(self, obj: Object) -> bool:
        """Passes the object on. O(1) on top, for a new pod with another record than the last O(the record)."""
        if isinstance(obj, Pod) and obj.signature.injected and obj.uid not in self._known:
            self.tell(obj.signature, self._policies(obj.signature.injected))
        return self._index.upsert(obj)

    def delete(self, obj: Object) -> bool:
        """Passes the object on."""
        return self._index.delete(obj)

    def _policies(self, text: str) -> tuple[PolicyKey, ...]:
        if text != self._last[0]:
            record = read_records({INJECTED_ANNOTATION: text}).get("")
            found = [] if record is None else [_key(each.policy) for each in record.policies]
            self._last = text, tuple(key for key in found if key is not None)
        return self._last[1]


def _key(text: str) -> PolicyKey | None:
    """The reverse of ``str(PolicyKey)`` for a policy of our group; None for any other text, as a tenant may write it."""
    kind, *rest = text.split("/")
    if len(rest) + 1 != _PARTS.get(kind):
        return None
    return PolicyKey(GROUP, *([""] if kind == CLUSTER_KIND else []), *rest)

"""Rejections answered again from a cache, as long as nothing that they depend on has changed.

Every cluster event makes kube-scheduler ask again for every rejected pod (measured: 200 rejected pods and 20 bindings are
4,000 calls). An entry is valid for the same names and the same dependencies, which change whenever the answer may have
changed, so it is never stale. The pipeline does not add
answers that depend on assumed pods whose node is undetermined, and those that are certain without a look at any node: to
decide them again costs no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.index.view import ClusterView, CompiledConstraints
from extender.model.objects import PodSignature
from extender.rules.catalog import Dependencies, dependencies
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter

_OVERHEAD = 500


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    dependencies: Dependencies
    result: FilterResult
    size: int


class RejectionCache:
    """The rejections of the most recent questions, up to ``most_bytes`` together; 0 caches nothing.

    The key is the pod's signature with the bytes of the node names as they came. ``hits`` counts answers from here.
    The bytes are looked at only for a signature that has entries: most requests are about other pods.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[tuple[PodSignature, bytes], _CachedRejection] = {}
        self._entries: dict[PodSignature, int] = {}  # of each signature in `_held`
        self.bytes = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._held)

    def find(self, args: ExtenderArgs, compiled: CompiledConstraints, view: ClusterView) -> FilterResult | None:
        """The cached rejection where it still holds, else None. O(1) for a signature without any, else O(body)."""
        if args.pod.signature not in self._entries:
            return None
        key = (args.pod.signature, args.raw_names())
        known = self._held.get(key)
        if known is None:
            return None
        if known.dependencies == dependencies(args.pod, compiled, view):
            self.hits += 1
            return known.result
        self._delete(key)
        return None

    def add(self, args: ExtenderArgs, compiled: CompiledConstraints, view: ClusterView, result: FilterResult) -> None:
        """Caches the result if it is a rejection that is worth it. O(size of the answer)."""
        if not (self._most_bytes and args.body):
            return
        if result.unresolvable and not (result.failed or result.error):
            key = (args.pod.signature, args.raw_names())
            self._put(key, dependencies(args.pod, compiled, view), result)

    def _put(self, key: tuple[PodSignature, bytes], version: Dependencies, result: FilterResult) -> None:
        encoded = encode_filter(result)
        size = len(key[1]) + len(encoded) + key[0].size + _OVERHEAD
        brief = FilterResult((), encoded=encoded, reasons=result.reasons)
        self._held[key] = _CachedRejection(version, brief, size)
        self._entries[key[0]] = self._entries.get(key[0], 0) + 1
        self.bytes += size
        while self.bytes > self._most_bytes:
            self._delete(next(iter(self._held)))

    def _delete(self, key: tuple[PodSignature, bytes]) -> None:
        self.bytes -= self._held.pop(key).size
        self._entries[key[0]] -= 1
        if not self._entries[key[0]]:
            del self._entries[key[0]]

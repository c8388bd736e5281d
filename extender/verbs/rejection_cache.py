"""Refusals answered again from memory, as long as nothing that they rest on has changed.

Every cluster event makes the scheduler ask again for every refused pod (measured: 200 refused pods and 20 binds are
4,000 calls). A remembered refusal is valid for the same serial number of the question, the same names and the same
`grounds`, a number that the index changes whenever the answer may have changed, so it is never stale. Answers that hang
on a pod whose node is not known yet are not remembered, nor those that say the same of every node: they cost no more
anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from extender.index.view import ClusterView, CompiledConstraints
from extender.model.objects import PodSignature
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter

_OVERHEAD = 500

Decide = Callable[[ExtenderArgs], FilterResult]


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    serial: int
    grounds: int
    result: FilterResult
    size: int


class RejectionCache:
    """The refusals of the most recent questions by name, up to ``most_bytes``; 0 remembers nothing."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[tuple[PodSignature, bytes], _CachedRejection] = {}
        self.bytes = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._held)

    def filter(self, args: ExtenderArgs, view: ClusterView, decide: Decide) -> FilterResult:
        """The remembered refusal where it still holds, else what ``decide`` says. O(length of the names)."""
        if not (self._most_bytes and args.raw_names) or args.nodes is not None:
            return decide(args)
        key = (args.pod.signature, args.raw_names)
        compiled = view.compiled(args.pod.signature)
        if view.is_pending(compiled):
            return decide(args)
        known = self._held.get(key)
        if known is not None:
            if known.serial == compiled.serial and known.grounds == view.grounds(compiled):
                self.hits += 1
                return known.result
            self._forget(key)
        result = decide(args)
        if result.unresolvable and not (result.failed or result.error or result.told):
            self._keep(key, compiled, view.grounds(compiled), result)
        return result

    def _keep(
        self, key: tuple[PodSignature, bytes], compiled: CompiledConstraints, grounds: int, result: FilterResult
    ) -> None:
        encoded = encode_filter(result)
        size = len(key[1]) + len(encoded) + key[0].size + _OVERHEAD
        brief = FilterResult((), encoded=encoded, told=frozenset(result.unresolvable.values()))
        self._held[key] = _CachedRejection(compiled.serial, grounds, brief, size)
        self.bytes += size
        while self.bytes > self._most_bytes:
            self._forget(next(iter(self._held)))

    def _forget(self, key: tuple[PodSignature, bytes]) -> None:
        self.bytes -= self._held.pop(key).size

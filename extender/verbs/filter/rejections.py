"""The answer where no node passes, with a text for each requested node, and the cache that gives it again.

Rejected nodes go under ``unresolvable`` even where removing pods would help: kube-scheduler answers a plain rejection
with preemption attempts that cannot see our rules, and retries them in a hot loop (measured).

Every cluster event makes kube-scheduler try every rejected pod again (measured: 200 rejected pods and 20 bindings
are 4,000 calls). A cached rejection is valid for the same names and the same dependencies, which change whenever the
answer may have changed, so it is never stale. The pipeline adds no answer that depends on assumed pods whose node is
undetermined, and none that is certain without a look at any node: to decide it again costs no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.view import ClusterView
from extender.model.objects import PodSignature
from extender.model.rejections import Code, Reason
from extender.rules.catalog import Dependencies, PreparedFilters, dependencies
from extender.verbs.request import RequestedNodes, Search
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, encode_filter

_OVERHEAD = 500


def rejection(search: Search) -> FilterResult:
    """Why none of the requested nodes passes, or the error that the rules report. O(nodes × clauses)."""
    filters, requested = search.filters, search.requested
    failed, certain = filters.failed, filters.rejects_all
    if failed is not None and failed.status.code is Code.ERROR:
        return FilterResult((), error=failed.status.reason)
    if certain is not None and (failed is not None or requested.knows_all):
        texts = dict.fromkeys(requested.names, certain.text)
        return FilterResult((), unresolvable=texts, reasons=frozenset((certain.reason,)))
    return rejection_by_node(filters, requested)


def rejection_by_node(filters: PreparedFilters, requested: RequestedNodes) -> FilterResult:
    """The text for each node by its own reason."""
    texts: dict[str, str] = {}
    reasons: set[Reason] = set()
    nodes = requested.positions()
    for reason, rejected in filters.rejected(nodes):
        if rejected:
            texts |= dict.fromkeys(requested.names_at(rejected), reason.text)
            reasons.add(reason)
    if len(nodes) < len(requested):
        known = set(requested.names_at(nodes))
        texts |= {name: Reason.UNKNOWN_NODE.text for name in requested.names if name not in known}
        reasons.add(Reason.UNKNOWN_NODE)
    return FilterResult((), unresolvable=texts, reasons=frozenset(reasons))


@dataclass(frozen=True, slots=True)
class _CachedRejection:
    dependencies: Dependencies
    result: FilterResult
    size: int


class RejectionCache:
    """The rejections of the most recent requests, up to ``most_bytes`` together; 0 caches nothing.

    The key is the pod's signature with the bytes of the node names as they came. ``hits`` counts answers from here.
    ``signatures`` counts the entries of each signature; `find` is for those: most requests are about other pods.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[tuple[PodSignature, bytes], _CachedRejection] = {}
        self.signatures: dict[PodSignature, int] = {}
        self.bytes = 0
        self.hits = 0

    def __len__(self) -> int:
        return len(self._held)

    def find(self, args: ExtenderArgs, compiled: CompiledConstraints, view: ClusterView) -> FilterResult | None:
        """The cached rejection where it still holds, else None. O(body)."""
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
        self.signatures[key[0]] = self.signatures.get(key[0], 0) + 1
        self.bytes += size
        while self.bytes > self._most_bytes:
            self._delete(next(iter(self._held)))

    def _delete(self, key: tuple[PodSignature, bytes]) -> None:
        self.bytes -= self._held.pop(key).size
        self.signatures[key[0]] -= 1
        if not self.signatures[key[0]]:
            del self.signatures[key[0]]

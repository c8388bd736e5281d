"""What is measured: an index and its decisions, as the service composes them; an echo that answers without a decision.

Imports neither server nor client: the child process that imports it has its memory measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Final, TypeVar

from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.model.objects import Namespace, Node, Pod, Workload
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.limits import NamespaceLimits
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_watched
from extender.verbs.request import watched_pod
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from extender.wire.objects.kinds import WatchEvent
from tests.tools.bench.results import Audit

T = TypeVar("T", bound=Pod | Node | Namespace | Workload)
_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Decisions:
    """The verbs, bound to an index and to settings."""

    filter: Callable[[ExtenderArgs], FilterResult]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]


class Subject:
    """An empty index, and the decisions of the service about it, without a loop.

    As in the service, a pod is assumed on the nodes of its answer. The bench says where it was bound before the next
    request, so no request ever has to wait. Plans are made and not executed.
    """

    def __init__(self, namespace_limits: NamespaceLimits) -> None:
        self.index = ClusterIndex(Settings().rules, counts_of_rules(), namespace_limits=namespace_limits)
        self._rng = Random(_SEED)

    def decisions(self, settings: Settings) -> Decisions:
        index, view = self.index, self.index.view
        verb = FilterVerb(view, settings)

        def filter_and_assume(args: ExtenderArgs) -> FilterResult:
            pod = watched_pod(args.pod.uid, args.pod.namespace, args.pod.name, view)
            if not isinstance(pod, Pod):
                return FilterResult((), error=pod.text)
            args = replace(args, pod=pod)
            index.assumed.forget(pod.uid)
            result = verb.decide(args, self._rng.getrandbits(32)).result
            if result.passed:
                index.assume(pod, result.passed, monotonic())
            return result

        return Decisions(filter_and_assume, lambda args: prioritize_watched(args, view, settings))


def echo_filter(args: ExtenderArgs, count: int | None) -> FilterResult:
    """The first `count` names of the request, or all of them."""
    return FilterResult((args.node_names or [])[:count])


def echo_scores(args: ExtenderArgs, count: int | None) -> Mapping[str, int]:
    """A score for the first `count` names of the request, or for all."""
    return dict.fromkeys((args.node_names or [])[:count], 0)


def apply(index: ClusterIndex, event: WatchEvent[T]) -> None:
    if event.object is None:
        return
    if event.type == "DELETED":
        index.delete(event.object)
    else:
        index.upsert(event.object)


_GROUPS: Final = ("term_groups", "owner_groups", "spread_groups")


def recount(index: ClusterIndex) -> Audit:
    """Recounts the whole index: 3 s with 150,000 pods and 4,000 groups."""
    sizes = index.statistics()
    return Audit(tuple(audit(index)), sum(sizes[name] for name in _GROUPS))

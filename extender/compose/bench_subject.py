"""The decisions that `extender bench` measures in process: the verbs as the service binds them, without a loop.

As in the service, a pod is assumed where the answer lets it go; the bench tells where it went before it asks again, so
no question ever has to wait. Named to the bench by `bench.py`, called in its child process.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from time import monotonic
from typing import Final

from extender.compose.gc_policy import freeze_gc
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.settings import Settings
from extender.simulate.bench.subject import Decisions, Subject
from extender.verbs.filtering import filter_nodes
from extender.verbs.prioritizing import prioritize_watched
from extender.verbs.rejection_cache import RejectionCache
from extender.verbs.watched_pod import watched_pod
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class _Bound:
    filter: Callable[[ExtenderArgs], FilterResult]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]


def make_subject() -> Subject:
    """An empty index and what binds decisions to it."""
    index, rng = ClusterIndex(Settings().rules), Random(_SEED)
    return Subject(index, lambda settings: _bind(index, settings, rng), freeze_gc)


def _bind(index: ClusterIndex, settings: Settings, rng: Random) -> Decisions:
    view, memory = index.view, RejectionCache(settings.answers.rejection_cache_bytes)

    def decide(args: ExtenderArgs) -> FilterResult:
        return filter_nodes(args, view, settings, rng.getrandbits(32))

    def filter_and_assume(args: ExtenderArgs) -> FilterResult:
        pod = watched_pod(args.pod.uid, args.pod.namespace, args.pod.name, view)
        if not isinstance(pod, Pod):
            return FilterResult((), error=pod.text)
        args = replace(args, pod=pod)
        index.assumed.settle(pod.uid)
        result = memory.filter(args, view, decide)
        if result.passed:
            index.assume(pod, result.passed, monotonic())
        return result

    return _Bound(filter_and_assume, lambda args: prioritize_watched(args, view, settings))

"""The decisions that `extender bench` measures in process: the `FilterVerb` that the service runs, without a loop.

As in the service, a pod is assumed on the nodes of its answer. The bench says where it was bound before the next request, so
no request ever has to wait. Plans are made and not executed. A module of its own, as it is imported in a child process that
has neither server nor client: its memory is measured.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Final

from msgspec.structs import replace

from extender.compose.process import freeze_gc
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.limits import NamespaceLimits
from extender.simulator.bench.measurement.subject import Decisions, Subject
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_watched
from extender.verbs.request import watched_pod
from extender.wire.extender_v1 import ExtenderArgs, FilterResult

_SEED: Final = 1


@dataclass(frozen=True, slots=True)
class _Bound:
    filter: Callable[[ExtenderArgs], FilterResult]
    prioritize: Callable[[ExtenderArgs], Mapping[str, int]]


def make_subject(namespace_limits: NamespaceLimits) -> Subject:
    """An empty index and what binds decisions to it."""
    index, rng = ClusterIndex(Settings().rules, counts_of_rules(), namespace_limits=namespace_limits), Random(_SEED)
    return Subject(index, lambda settings: _bind(index, settings, rng), freeze_gc)


def _bind(index: ClusterIndex, settings: Settings, rng: Random) -> Decisions:
    view, verb = index.view, FilterVerb(index.view, settings)

    def filter_and_assume(args: ExtenderArgs) -> FilterResult:
        pod = watched_pod(args.pod.uid, args.pod.namespace, args.pod.name, view)
        if not isinstance(pod, Pod):
            return FilterResult((), error=pod.text)
        args = replace(args, pod=pod)
        index.assumed.forget(pod.uid)
        result = verb.decide(args, rng.getrandbits(32)).result
        if result.passed:
            index.assume(pod, result.passed, monotonic())
        return result

    return _Bound(filter_and_assume, lambda args: prioritize_watched(args, view, settings))

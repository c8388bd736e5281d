"""What an index counts for the constraints of a pod, by the values of the topology key."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import NamedTuple

import orjson
import pytest

from extender.index.claims import assumed
from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.counts.groups import GroupView
from extender.model.objects import Object, Pod
from extender.rules.interpod_affinity import own_terms, terms_of_others
from extender.rules.topology_spread import spread_groups
from extender.settings.limits import ConstraintLimits
from extender.wire.objects.kinds import pods_within
from tests.builders import Json

Counts = dict[str, int]

_MANY = 10**6
# What the index costs is to be linear beyond the limits too, as these can be set.
_UNLIMITED = pods_within(
    ConstraintLimits(
        affinity_terms=_MANY, topology_spread_constraints=_MANY, topology_keys=_MANY, label_requirements=_MANY
    )
)


def unlimited(body: Json) -> Pod:
    """A pod that may ask for more than the usual limits allow."""
    return _UNLIMITED.decode_object(orjson.dumps(body))


def compiled_of(index: ClusterIndex, incoming: Json) -> CompiledConstraints:
    return index.view.compiled(unlimited(incoming).signature)


def drop_all(index: ClusterIndex) -> None:
    """Drops everything that is compiled; each signature is compiled again when it is next needed."""
    compiler = index.counts.compiler
    for signature in list(compiler._compiled):
        compiler._drop(signature)


def sizes(holder: object) -> dict[str, int]:
    """How much each attribute of an object holds, where it holds several."""
    return {name: len(value) for name, value in vars(holder).items() if isinstance(value, Sized)}


def counts_of(group: GroupView) -> Counts:
    return {group.key.value(domain): count for domain, count in group.counts.items()}


def near(index: ClusterIndex, incoming: Json) -> list[Counts]:
    """Pods that match all required affinity terms, for each term's key."""
    return [counts_of(group) for group in own_terms(compiled_of(index, incoming)).affinity]


def apart(index: ClusterIndex, incoming: Json) -> list[Counts]:
    """Pods that match each required anti-affinity term."""
    return [counts_of(group) for group in own_terms(compiled_of(index, incoming)).anti]


def inverse(index: ClusterIndex, incoming: Json) -> list[Counts]:
    """Pods whose required anti-affinity selects the asking pod, for each such term that any of them carries."""
    return [counts_of(group) for group in terms_of_others(compiled_of(index, incoming)).anti if group.counts]


def spread_over(index: ClusterIndex, incoming: Json) -> list[tuple[Counts, int, int]]:
    """For each hard constraint: pods by domain, how many domains are eligible, and the least count."""
    groups = [spread.group for spread in spread_groups(compiled_of(index, incoming)).hard]
    return [(counts_of(group), group.domains, group.least()) for group in groups]


class Deleted(NamedTuple):
    """The deletion of an object, as a step of `apply`."""

    obj: Object


class Assume(NamedTuple):
    """A pod is assumed on some nodes, as a step of `apply`."""

    pod: Pod
    nodes: tuple[str, ...]
    now: float = 0.0


class Review(NamedTuple):
    """The review of assumed pods at a moment, as a step of `apply`: in doubt after 5 seconds, expired after 100."""

    now: float


Step = Object | Deleted | Assume | Review


def apply(index: ClusterIndex, *steps: Step) -> ClusterIndex:
    for step in steps:
        match step:
            case Deleted(obj):
                index.delete(obj)
            case Assume(pod, nodes, now):
                index.assume(pod, nodes, now)
            case Review(now):
                index.assumed.review(now, assumed.AssumptionTimeouts(expiry=100.0, failure_grace=2.0, doubt=5.0))
            case _:
                index.upsert(step)
    return index


class Calls:
    """How often some methods are called."""

    def __init__(self, patch: pytest.MonkeyPatch, *methods: tuple[object, str]) -> None:
        self.made = 0
        for owner, name in methods:
            patch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, method: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            self.made += 1
            return method(*arguments, **named)

        return counted

    def taken(self) -> int:
        made, self.made = self.made, 0
        return made

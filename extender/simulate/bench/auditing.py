"""The index recounted after the bench: all of it where that is quick, else a drawn part of its groups.

A full recount of 2,000 groups over 150,000 pods takes minutes, so it is bounded in time. Says what it has looked at.
"""

from random import Random
from time import perf_counter

from msgspec import Struct

from extender.index.audit import audit_steps
from extender.index.cluster import ClusterIndex


class Audit(Struct, frozen=True):
    """Every difference that was found, and how many of all groups were recounted."""

    drift: tuple[str, ...]
    recounted: int
    groups: int


def audit_seconds(pods: int) -> float:
    """How long an audit may take, as one group takes longer in a large cluster: from 1 s to 6 s at 150,000 pods."""
    return 1 + pods / 30_000


def audit_within(index: ClusterIndex, seconds: float, seed: int) -> Audit:
    """Check the tables, then groups in drawn order until the time is up."""
    tables, *groups = audit_steps(index)
    Random(seed).shuffle(groups)
    drift, recounted, until = tables(), 0, perf_counter() + seconds
    for check in groups:
        if perf_counter() >= until:
            break
        drift += check()
        recounted += 1
    return Audit(tuple(drift), recounted, len(groups))

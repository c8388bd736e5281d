"""Times and what is said of them: median, 99th percentile and the longest, in milliseconds."""

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean

NANOSECONDS_PER_MILLISECOND = 1e6

Figures = dict[str, float]


def quantile(times: Sequence[int], share: float) -> int:
    """The least of the times that at least that share of them does not exceed (nearest rank); ``share`` is above 0."""
    return sorted(times)[ceil(len(times) * share) - 1]


def milliseconds(times: Sequence[int], name: str) -> Figures:
    """`name.p50`, `.p99`, `.max` and `.mean` of times in nanoseconds; nothing where there are none."""
    if not times:
        return {}
    found = {"p50": quantile(times, 0.5), "p99": quantile(times, 0.99), "max": max(times), "mean": fmean(times)}
    return {f"{name}.{key}": value / NANOSECONDS_PER_MILLISECOND for key, value in found.items()}


def shares(parts: Mapping[str, Sequence[int]]) -> Figures:
    """`share.NAME` of each part in the sum of all, from 0 to 1."""
    whole = sum(map(sum, parts.values()))
    return {f"share.{name}": sum(times) / whole for name, times in parts.items()} if whole else {}

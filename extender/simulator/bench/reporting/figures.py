"""Measured times and their figures: median, 99th percentile, maximum and mean, in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean

NANOSECONDS_PER_MILLISECOND = 1e6

Figures = dict[str, float]


def quantile(times: Sequence[int], share: float) -> int:
    """The quantile by nearest rank; ``share`` is above 0."""
    return sorted(times)[ceil(len(times) * share) - 1]


def milliseconds(times: Sequence[int], name: str) -> Figures:
    """`name.p50`, `.p99`, `.max` and `.mean` of times in nanoseconds; empty without times."""
    if not times:
        return {}
    found = {"p50": quantile(times, 0.5), "p99": quantile(times, 0.99), "max": max(times), "mean": fmean(times)}
    return {f"{name}.{key}": value / NANOSECONDS_PER_MILLISECOND for key, value in found.items()}


def shares(parts: Mapping[str, Sequence[int]]) -> Figures:
    """`share.NAME` of each part of the sum, 0 to 1."""
    whole = sum(map(sum, parts.values()))
    return {f"share.{name}": sum(times) / whole for name, times in parts.items()} if whole else {}


_TIMED = ("filter", "decode", "decide", "encode", "rejected", "echo", "prioritize", "event", "cpu")


@dataclass(slots=True)
class Times:
    """`filter` is the wall time of an answer; decode, decide and encode are its parts, if the player measures them.

    `cpu` is the processor time of the answer, which other processes do not change.
    """

    decode: list[int] = field(default_factory=list)
    decide: list[int] = field(default_factory=list)
    encode: list[int] = field(default_factory=list)
    filter: list[int] = field(default_factory=list)
    cpu: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    echo: list[int] = field(default_factory=list)
    echo_all: list[int] = field(default_factory=list)
    prioritize: list[int] = field(default_factory=list)
    prioritize_echo: list[int] = field(default_factory=list)
    event: list[int] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0

    def figures(self) -> Figures:
        """All figures by name."""
        answered = len(self.filter)
        found = shares({"decode": self.decode, "decide": self.decide, "encode": self.encode})
        for name in _TIMED:
            found |= milliseconds(getattr(self, name), name)
        found |= milliseconds(self.echo_all, "echoAll") | milliseconds(self.prioritize_echo, "prioritizeEcho")
        if answered:
            found |= {"bytesIn": self.bytes_in / answered, "bytesOut": self.bytes_out / answered}
            found["requestsPerSecond"] = 1e9 * answered / sum(self.filter)
        return found | {"rejectedShare": len(self.rejected) / max(1, answered + len(self.rejected))}

"""Measured times and the figures made of them: median, 99th percentile, longest and mean, in milliseconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


_TIMED = ("filter", "decode", "decide", "encode", "rejected", "echo", "prioritize", "event", "own")


@dataclass(slots=True)
class Times:
    """`filter` is a whole answer by the clock; decode, decide and encode are its parts, where the player can see them.

    `own` is the processor time that the answer took: other processes on the machine do not lengthen it.
    """

    decode: list[int] = field(default_factory=list)
    decide: list[int] = field(default_factory=list)
    encode: list[int] = field(default_factory=list)
    filter: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    echo: list[int] = field(default_factory=list)
    echo_all: list[int] = field(default_factory=list)
    prioritize: list[int] = field(default_factory=list)
    prioritize_echo: list[int] = field(default_factory=list)
    event: list[int] = field(default_factory=list)
    bytes_in: int = 0
    bytes_out: int = 0

    def figures(self) -> Figures:
        """All of it by name."""
        asked = len(self.filter)
        found = shares({"decode": self.decode, "decide": self.decide, "encode": self.encode})
        for name in _TIMED:
            found |= milliseconds(getattr(self, name), name)
        found |= milliseconds(self.echo_all, "echoAll") | milliseconds(self.prioritize_echo, "prioritizeEcho")
        if asked:
            found |= {"bytesIn": self.bytes_in / asked, "bytesOut": self.bytes_out / asked}
            found["requestsPerSecond"] = 1e9 * asked / sum(self.filter)
        return found | {"rejectedShare": len(self.rejected) / max(1, asked + len(self.rejected))}

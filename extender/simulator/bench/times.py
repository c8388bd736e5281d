"""What a player has measured at one point, in nanoseconds and bytes, and the figures that come of it."""

from dataclasses import dataclass, field

from extender.simulator.bench.quantiles import Figures, milliseconds, shares

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

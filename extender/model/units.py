"""Units of configuration files, such as "1m30s", "32Mi", "127.0.0.1:8888", and counts in sentences.

Text to value and back. A size is a whole number of bytes; Kubernetes quantities are in `resources`. Called by the
settings and by the scenarios of the embedded control plane.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from sys import maxsize
from typing import Final

_SECONDS_PER_UNIT: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_BYTES_PER_UNIT: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_SIZE: Final = re.compile(r"(\d+)(k|M|G|Ki|Mi|Gi)?")
_LONGEST: Final = 2562047 * 3600.0  # 292 years, as in Go
_MOST_BYTES: Final = 2**63
_LONGEST_NUMBER: Final = 30  # digits; the largest size has fewer
_HIGHEST_PORT: Final = 65535


class Duration(float):
    """A length of time in seconds; `str()` is its Go form, such as "1m30s"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Read Go's form (https://pkg.go.dev/time#ParseDuration) without a sign. Raises ValueError."""
        parts = list(_DURATION_PART.finditer(text))
        # Go reads a zero without a unit.
        if text == "0":
            return cls(0)
        # The search skips what is no part, so the parts have to make up the whole text: "1x2s" is no duration.
        if not parts or "".join(part.group() for part in parts) != text:
            raise ValueError(f'expected a duration such as "15s", "1m30s" or "250ms", got "{text}"')
        seconds = sum(float(part[1]) * _SECONDS_PER_UNIT[part[2]] for part in parts)
        if seconds > _LONGEST:
            raise ValueError(f"longer than {cls(_LONGEST)}, the longest duration")
        return cls(seconds)

    def __str__(self) -> str:
        """Hours, minutes and seconds; below a second milliseconds."""
        if 0 < self < 1:
            return f"{round(self * 1000, 3):g}ms"
        minutes, seconds = divmod(float(self), 60)
        hours, minutes = divmod(int(minutes), 60)
        parts = [(hours, "h"), (minutes, "m"), (round(seconds, 3), "s")]
        return "".join(f"{count:.15g}{unit}" for count, unit in parts if count) or "0s"


class ByteSize(int):
    """A number of bytes; `str()` is its shortest form, such as "32Mi"."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "ByteSize":
        """Read a whole number with an optional suffix k, M, G, Ki, Mi or Gi. Raises ValueError."""
        match = _SIZE.fullmatch(text)
        if match is None:
            raise ValueError(f'expected a size such as "32Mi", "500k" or "4096", got "{text}"')
        # Cut, because Python refuses to read a number of more than 4,300 digits.
        return cls.of(int(match[1][:_LONGEST_NUMBER]) * _BYTES_PER_UNIT[match[2] or ""])

    @classmethod
    def of(cls, count: int) -> "ByteSize":
        """This many bytes. Raises ValueError for a size that no machine has."""
        if not 0 <= count < _MOST_BYTES:
            raise ValueError("expected a size from 0 to 8 EiB")
        return cls(count)

    def __str__(self) -> str:
        """Exact: a size that is a multiple of no unit is written in bytes."""
        # The largest unit first: 2 GiB are "2Gi", not "2048Mi".
        for unit in ("Gi", "Mi", "Ki"):
            count, rest = divmod(int(self), _BYTES_PER_UNIT[unit])
            if count and not rest:
                return f"{count}{unit}"
        return str(int(self))


class Address(str):
    """Where a server listens, "host:port". An empty host means every interface, port 0 a free port."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read "host:port", ":port" or "[v6]:port". Raises ValueError."""
        host, separator, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not separator or not port.isdecimal() or int(port) > _HIGHEST_PORT or (":" in host and not bracketed):
            raise ValueError(f'expected an address such as "127.0.0.1:8888" or "[::1]:8888", got "{text}"')
        return cls(text)

    @property
    def host(self) -> str:
        """The part before the port, without brackets."""
        return self.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The part after the last colon."""
        return int(self.rpartition(":")[2])


def counted(count: int, noun: str) -> str:
    """`1 pod`, `0 pods`, `2 pods`. The plural of ``noun`` ends in s."""
    return f"{count} {noun if count == 1 else f'{noun}s'}"


def agreeing(count: int, singular: str, plural: str) -> str:
    """The form of a word that agrees with a count: `has` for 1, `have` for 0 and for 2."""
    return singular if count == 1 else plural


def times(count: int) -> str:
    """`once`, `2 times`."""
    return agreeing(count, "once", f"{count} times")


def listed(names: Sequence[str], *, most: int = maxsize, count: int = 0) -> str:
    """`a, b and 3 more`: the first names. ``count``: how many there are, where ``names`` has only the first of them."""
    more = max(count, len(names)) - len(names[:most])
    return ", ".join(names[:most]) + (f" and {more} more" if more else "")


def cut(text: str, most: int) -> str:
    """The first characters of a text."""
    return text if len(text) <= most else f"{text[:most]}…"


def ago(seconds: float) -> str:
    """A time span in one unit: "40 s", "12 minutes", "3 hours", "2 days"."""
    for size, unit in ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute")):
        if seconds >= size:
            return counted(round(seconds / size), unit)
    return f"{seconds:.0f} s"


def rfc3339(moment: datetime) -> str:
    """A time as in the objects of the API: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_time(text: str | None) -> datetime | None:
    """A time of an API object; None without a text, or for an unknown form, because that must not hide the object."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None

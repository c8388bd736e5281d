"""Numbers as a person reads them: Grafana's names of units, as a factor and a sign for each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """What a number is divided by, and what is written behind it."""

    factor: float
    sign: str

    def write(self, value: float) -> str:
        """The number with at most three digits that say something."""
        scaled = abs(value / self.factor)
        if scaled == 0:
            digits = 0
        elif scaled < 0.1:
            return f"{value / self.factor:.2g}{self.sign}"
        else:
            digits = 2 if scaled < 10 else 1 if scaled < 100 else 0
        text = f"{value / self.factor:.{digits}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text) + self.sign


_KIBI = 1024.0
_SCALES: dict[str, Sequence[Scale]] = {
    "short": (Scale(1, ""), Scale(1e3, " K"), Scale(1e6, " Mil")),
    "s": (
        Scale(1e-6, " µs"),
        Scale(1e-3, " ms"),
        Scale(1, " s"),
        Scale(60, " min"),
        Scale(3600, " h"),
        Scale(86400, " days"),
    ),
    "bytes": (Scale(1, " B"), Scale(_KIBI, " KiB"), Scale(_KIBI**2, " MiB"), Scale(_KIBI**3, " GiB")),
    "Bps": (Scale(1, " B/s"), Scale(1e3, " kB/s"), Scale(1e6, " MB/s")),
    "reqps": (Scale(1, " req/s"), Scale(1e3, " kreq/s")),
    "ops": (Scale(1, " ops/s"), Scale(1e3, " kops/s")),
    "percentunit": (Scale(0.01, " %"),),
}


def scale_for(value: float, unit: str) -> Scale:
    """The largest scale in which the value is not below one. KeyError for a unit that no panel has yet."""
    scales = _SCALES[unit]
    if value == 0:
        return next((scale for scale in scales if scale.factor == 1), scales[0])
    return next((scale for scale in reversed(scales) if abs(value) >= scale.factor), scales[0])


def shown(value: float, unit: str) -> str:
    """The value with its unit."""
    return scale_for(value, unit).write(value)

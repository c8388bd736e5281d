"""The few forms that a picture is made of, as SVG text. Knows nothing of dashboards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

_LETTER = 0.52  # of the font's size: the mean width of a letter in a sans-serif font


@dataclass(frozen=True, slots=True)
class Box:
    """A place in the picture."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height

    def parts(self, number: int) -> list[Box]:
        """As many equal boxes beside each other, or below each other where they would be too narrow for a number."""
        if self.width / number >= _NARROWEST:
            width = self.width / number
            return [Box(self.x + width * place, self.y, width, self.height) for place in range(number)]
        height = self.height / number
        return [Box(self.x, self.y + height * place, self.width, height) for place in range(number)]


_NARROWEST = 90.0


def text(at: Point, content: str, kind: str, color: str = "") -> str:
    """A line of text; `kind` is a class of the style sheet."""
    fill = f' fill="{color}"' if color else ""
    return f'<text class="{kind}" x="{_number(at[0])}" y="{_number(at[1])}"{fill}>{escape(content)}</text>'


def rectangle(box: Box, kind: str, color: str = "") -> str:
    """A filled place."""
    fill = f' fill="{color}"' if color else ""
    size = f'width="{_number(box.width)}" height="{_number(box.height)}"'
    return f'<rect class="{kind}" x="{_number(box.x)}" y="{_number(box.y)}" {size}{fill}/>'


def line(points: Iterable[Point], kind: str, color: str = "") -> str:
    """A line through points; one point alone is a dot."""
    stroke = f' stroke="{color}"' if color else ""
    return f'<path class="{kind}"{stroke} d="{_path(points)}"/>'


def area(points: Iterable[Point], kind: str, color: str) -> str:
    """What lies within a closed line."""
    return f'<path class="{kind}" fill="{color}" d="{_path(points)}Z"/>'


def shortened(content: str, width: float, size: float) -> str:
    """The text, cut where it would not fit."""
    fits = int(width / (size * _LETTER))
    return content if len(content) <= fits else content[: fits - 1] + "…"


def _path(points: Iterable[Point]) -> str:
    kept = _without_straight(list(points))
    rest = "".join(f"L{_number(x)} {_number(y)}" for x, y in kept[1:]) or "h0"
    return f"M{_number(kept[0][0])} {_number(kept[0][1])}{rest}"


def _without_straight(points: Sequence[Point]) -> list[Point]:
    """Without the points between others of the same height: a flat line has two."""
    last = len(points) - 1
    return [
        point
        for place, point in enumerate(points)
        if place in {0, last} or not points[place - 1][1] == point[1] == points[place + 1][1]
    ]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

"""The boxes of the texts of a picture, as wide as its own drawing takes them to be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple
from xml.etree import ElementTree as ET

_SIZE = re.compile(r"font-size:([\d.]+)px")
_LETTER = 0.5  # of the font's size: the mean width of a letter in Helvetica


class TextBox(NamedTuple):
    """Where a text is printed: from its baseline up, without its descenders."""

    text: str
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other: TextBox) -> bool:
        """Whether the two lie over each other, by more than a pixel."""
        beside = self.right <= other.left + 1 or other.right <= self.left + 1
        return not (beside or self.bottom <= other.top + 1 or other.bottom <= self.top + 1)


def text_boxes(picture: str) -> Iterator[TextBox]:
    """The boxes of all texts, by the style sheet of the picture."""
    root = ET.fromstring(picture)  # noqa: S314 -- our own file
    style = next(found.text or "" for found in root.iter() if found.tag.endswith("style"))
    rules = re.findall(r"([.\w,]+)\{([^}]*)\}", style)
    for found in root.iter():
        if not found.tag.endswith("text"):
            continue
        kinds = {f".{kind}" for kind in found.get("class", "").split()}
        said = ";".join(rule for names, rule in rules if kinds & set(names.split(",")))
        size = float(_SIZE.findall(said)[-1])
        content = found.text or ""
        width, x, y = len(content) * size * _LETTER, float(found.get("x", "0")), float(found.get("y", "0"))
        left = x - width if "text-anchor:end" in said else x - width / 2 if "text-anchor:middle" in said else x
        yield TextBox(content, left, y - size * 0.72, left + width, y)


def overlaps(picture: str) -> list[tuple[str, str]]:
    """Texts that are printed over each other."""
    boxes = sorted(text_boxes(picture), key=lambda box: box.top)
    return [(one.text, other.text) for one, other in combinations(boxes, 2) if one.covers(other)]


def outside(picture: str) -> list[str]:
    """Texts that leave the picture."""
    width = float(ET.fromstring(picture).get("width", "0"))  # noqa: S314 -- our own file
    return [box.text for box in text_boxes(picture) if box.left < 0 or box.right > width]

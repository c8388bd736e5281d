"""Reads label selectors in kubectl's notation: `app=web,tier in (front, back),!canary`.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#list-and-watch-filtering
Where kubectl compares numbers (`a>1`) nothing is read: selectors of pods cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from extender.model.constraints.selectors import LabelSelector, Requirement, SelectorError, requirement, selector
from extender.wire.errors import WireError

_LONGEST: Final = 4000  # characters
_CLAUSE: Final = re.compile(
    r"\s*(?:"
    r"(?P<set_key>[^\s,=!()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)"
    r"|(?P<key>[^\s,=!()]+)\s*(?P<equal>==|=|!=)\s*(?P<value>[^\s,=!()]*)"
    r"|!\s*(?P<absent>[^\s,=!()]+)"
    r"|(?P<present>[^\s,=!()]+)"
    r")\s*(?:,|$)"
)


def parse_selector_text(text: str, path: str) -> LabelSelector:
    """The selector; an empty text selects everything. Raises WireError with this path."""
    if len(text) > _LONGEST:
        raise WireError(path, f"is longer than {_LONGEST} characters")
    try:
        return selector(_requirements(text))
    except SelectorError as error:
        raise WireError(path, str(error)) from None


def _requirements(text: str) -> Iterator[Requirement]:
    at = 0
    while at < len(text) and (at or text.strip()):
        found = _CLAUSE.match(text, at)
        if found is None or (found.end() == len(text) and text.rstrip().endswith(",")):
            raise SelectorError(f'expected a selector such as "app=web,tier in (a,b)", got "{text[at:][:50]}"')
        yield _requirement(found)
        at = found.end()


def _requirement(found: re.Match[str]) -> Requirement:
    if found["set"]:
        operator = "In" if found["set"] == "in" else "NotIn"
        values = found["values"].split(",") if found["values"].strip() else ()
        return requirement(found["set_key"], operator, (each.strip() for each in values))
    if found["equal"]:
        return requirement(found["key"], "NotIn" if found["equal"] == "!=" else "In", (found["value"],))
    if found["absent"]:
        return requirement(found["absent"], "DoesNotExist")
    return requirement(found["present"], "Exists")

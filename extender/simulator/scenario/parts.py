"""Reading one part of a scenario that stands at a known place: its problems are told with that place in front.

Called by `scenario/language.py` and `scenario/faults.py`.
"""

from typing import TypeVar

from msgspec import Struct

from extender.model.documents import DocumentError, read_document

PartT = TypeVar("PartT", bound=Struct)


def read_part(document: object, kind: type[PartT], path: str, problems: list[str]) -> PartT | None:
    """The part, or None when it cannot be read, with every problem added to `problems`."""
    try:
        return read_document(document, kind)
    except DocumentError as error:
        # A problem of the whole part has no path of its own: "expected a mapping".
        for text in error.problems:
            problems += [f"{path}: {text}" if text.startswith("expected") else f"{path}.{text.lstrip('.')}"]
        return None

"""What can go wrong at the embedded API server, as scenarios write it: one form for each fault, read strictly.

A condition lasts and is injected at random; a one-time fault happens when its step is taken. Nothing is injected here:
`fault_injector.py` applies the conditions, `play.py` the one-time faults. Called by `language.py`.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

from extender.model.documents import DocumentError, read_document
from extender.model.units import Duration
from extender.simulator.apiserver.kinds import KINDS

PartT = TypeVar("PartT", bound=Struct)

_PLURALS: Final = frozenset(kind.plural for kind in KINDS)

Verb: TypeAlias = Literal["read", "watch", "write"]


def _check_range(time: tuple[Duration, Duration]) -> None:
    if time[1] < time[0]:
        raise ValueError(f"time: expected the least and the most, got {time[0]} and {time[1]}")


class _Form(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What all forms have in common."""


class Condition(_Form, frozen=True):
    """A fault that lasts: on which kinds (none named: on all), how likely at each chance, how often, and how long."""

    kinds: tuple[str, ...] = ()
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    times: Annotated[int, Meta(ge=1)] | None = None
    lasts: Duration | None = None

    def __post_init__(self) -> None:
        """Reject unknown kinds: such a fault would never be injected."""
        unknown = [name for name in self.kinds if name not in _PLURALS]
        if unknown:
            raise ValueError(f'kinds: no kind is called "{unknown[0]}"')


class CutLine(Condition, frozen=True):
    """A watch's connection breaks in the middle of a line."""


class EndWatch(Condition, frozen=True):
    """A watch ends properly in the middle of a burst, as that of a slow reader does."""


class Expire(Condition, frozen=True):
    """A watch is told 410 when it begins, as an event or as a status; continued pages get the status."""

    form: Literal["event", "status"] = "event"


class ErrorEvent(Condition, frozen=True):
    """A watch gets an ERROR after what it was to get, and ends."""

    code: Annotated[int, Meta(ge=400, le=599)] = 500


class Stall(Condition, frozen=True, kw_only=True):
    """A watch says nothing for a time, then everything."""

    time: Duration


class HalfOpen(Condition, frozen=True):
    """A connection that looks alive and is not: no data, no end. A watch falls silent, a request is never answered."""

    verbs: tuple[Verb, ...] = ("watch",)


class RepeatEvents(Condition, frozen=True):
    """A watch gets the same events again."""


class Overtake(Condition, frozen=True, kw_only=True):
    """Watches are held back for a time drawn for each, so that one kind's events overtake another's."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Reject a range that cannot be drawn from."""
        Condition.__post_init__(self)
        _check_range(self.time)


class LoseBookmarks(Condition, frozen=True):
    """A watch gets no bookmarks, but for the one that ends a streaming list."""


class SlowPages(Condition, frozen=True, kw_only=True):
    """Each page of a list comes late."""

    time: Duration


class Throttle(Condition, frozen=True):
    """429, with the whole seconds to wait (0: none are named)."""

    retry_after: Annotated[int, Meta(ge=0)] = 1
    verbs: tuple[Verb, ...] = ("read", "watch")


class Fail(Condition, frozen=True):
    """A server error."""

    code: Annotated[int, Meta(ge=500, le=599)] = 500
    verbs: tuple[Verb, ...] = ("read", "watch")


class HoldUp(Condition, frozen=True, kw_only=True):
    """The process gets no processor time for a time drawn from a range: API server, scheduler and extender alike."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Reject a range that cannot be drawn from."""
        Condition.__post_init__(self)
        _check_range(self.time)


class Conflict(Condition, frozen=True):
    """409 for a write that conflicts with no other."""


class LoseAnswer(Condition, frozen=True):
    """A write is done, and the connection breaks before the answer."""


class Restart(_Form, frozen=True):
    """The server crashes and is back after a time; with a new history its versions start again lower."""

    down: Duration = Duration(0)
    new_history: bool = False


class JumpClock(_Form, frozen=True, kw_only=True):
    """The extender's monotonic clock jumps ahead."""

    by: Duration


OneTimeFault: TypeAlias = Restart | JumpClock
Fault: TypeAlias = Condition | OneTimeFault

CONDITIONS: Final[dict[str, type[Condition]]] = {
    "cutLine": CutLine,
    "endWatch": EndWatch,
    "expire": Expire,
    "errorEvent": ErrorEvent,
    "stall": Stall,
    "halfOpen": HalfOpen,
    "repeatEvents": RepeatEvents,
    "overtake": Overtake,
    "loseBookmarks": LoseBookmarks,
    "slowPages": SlowPages,
    "throttle": Throttle,
    "fail": Fail,
    "holdUp": HoldUp,
    "conflict": Conflict,
    "loseAnswer": LoseAnswer,
}
ONE_TIME_FAULTS: Final[dict[str, type[OneTimeFault]]] = {"restart": Restart, "jumpClock": JumpClock}
NAMES: Final = {form: name for name, form in CONDITIONS.items()}


def read_conditions(raw: object, path: str, problems: list[str]) -> tuple[Condition, ...]:
    """The section of a scenario: what is wrong from the start."""
    found = _read_each(raw, CONDITIONS, path, problems)
    return tuple(fault for fault in found if isinstance(fault, Condition))


def read_faults(raw: object, path: str, problems: list[str]) -> tuple[Fault, ...]:
    """The body of a step."""
    return tuple(_read_each(raw, {**CONDITIONS, **ONE_TIME_FAULTS}, path, problems))


def _read_each(raw: object, forms: dict[str, Any], path: str, problems: list[str]) -> list[Fault]:
    if raw == {}:  # a bare `faults:`
        return []
    if not isinstance(raw, list | tuple):
        problems.append(f"{path}: expected a list of faults, got {type(raw).__name__}")
        return []
    found: list[Fault] = []
    for number, document in enumerate(raw):
        place = f"{path}[{number}]"
        name = next(iter(document)) if isinstance(document, dict) and len(document) == 1 else ""
        if name not in forms:
            got = ", ".join(map(str, document)) if isinstance(document, dict) else repr(document)
            problems.append(f"{place}: expected one of {', '.join(forms)}, got {got or 'nothing'}")
            continue
        fault: Fault | None = read_part(document[name], forms[name], f"{place}.{name}", problems)
        found += [fault] if fault is not None else []
    return found


def read_part(document: object, kind: type[PartT], path: str, problems: list[str]) -> PartT | None:
    """One part of a scenario, or None when it cannot be read; adds every problem to `problems`, with `path` in front."""
    try:
        return read_document(document, kind)
    except DocumentError as error:
        # A problem of the whole part has no path of its own: "expected a mapping".
        for text in error.problems:
            problems += [f"{path}: {text}" if text.startswith("expected") else f"{path}.{text.lstrip('.')}"]
        return None

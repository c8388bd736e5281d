"""The faults that a scenario can inject into the simulated API server: one strict struct for each.

A condition lasts, and is injected at random; a one-time fault occurs when its step runs. `fault_injector.py` applies the
conditions, `play.py` the one-time faults. Called by `language.py`.
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
        raise ValueError(f"time: expected minimum and maximum, got {time[0]} and {time[1]}")


class _Form(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all faults."""


class Condition(_Form, frozen=True):
    """A fault that lasts: its kinds (empty: all), its probability at each hook, and limits of its number and duration."""

    kinds: tuple[str, ...] = ()
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    times: Annotated[int, Meta(ge=1)] | None = None
    lasts: Duration | None = None

    def __post_init__(self) -> None:
        """Rejects unknown kinds, as such a fault would never be injected."""
        unknown = [name for name in self.kinds if name not in _PLURALS]
        if unknown:
            raise ValueError(f'kinds: unknown kind "{unknown[0]}"')


class CutLine(Condition, frozen=True):
    """The connection of a watch breaks within a line."""


class EndWatch(Condition, frozen=True):
    """A watch ends normally during a burst, as the API server ends slow watches."""


class Expire(Condition, frozen=True):
    """A watch gets 410 at its start, as an event or as a status; the next page of a list gets the status."""

    form: Literal["event", "status"] = "event"


class ErrorEvent(Condition, frozen=True):
    """A watch gets an ERROR event after its next lines, and ends."""

    code: Annotated[int, Meta(ge=400, le=599)] = 500


class Stall(Condition, frozen=True, kw_only=True):
    """A watch gets no events for a time, then all of them."""

    time: Duration


class HalfOpen(Condition, frozen=True):
    """A connection is half open: a watch gets no more events and does not end, a request is never answered."""

    verbs: tuple[Verb, ...] = ("watch",)


class RepeatEvents(Condition, frozen=True):
    """A watch gets the same events again."""


class DelayEvents(Condition, frozen=True, kw_only=True):
    """The events of each watch are delayed by a random time, so that those of different kinds arrive in another order."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Rejects an empty range."""
        Condition.__post_init__(self)
        _check_range(self.time)


class LoseBookmarks(Condition, frozen=True):
    """A watch gets no bookmarks, except the one that ends a streaming list."""


class SlowPages(Condition, frozen=True, kw_only=True):
    """Each page of a list is delayed."""

    time: Duration


class Throttle(Condition, frozen=True):
    """A request gets 429 with the seconds to wait; 0 gives none."""

    retry_after: Annotated[int, Meta(ge=0)] = 1
    verbs: tuple[Verb, ...] = ("read", "watch")


class Fail(Condition, frozen=True):
    """A request gets a server error."""

    code: Annotated[int, Meta(ge=500, le=599)] = 500
    verbs: tuple[Verb, ...] = ("read", "watch")


class PauseProcess(Condition, frozen=True, kw_only=True):
    """The whole process (API server, scheduler, extender) gets no processor time for a random time."""

    time: tuple[Duration, Duration]

    def __post_init__(self) -> None:
        """Rejects an empty range."""
        Condition.__post_init__(self)
        _check_range(self.time)


class Conflict(Condition, frozen=True):
    """A write gets 409 although it has no conflict."""


class LoseAnswer(Condition, frozen=True):
    """A write is done, but the connection breaks before the answer."""


class WebhookDown(Condition, frozen=True):
    """The API server cannot reach an admission webhook; its failure policy decides. `kinds` are those of the write."""


class Restart(_Form, frozen=True):
    """The API server crashes and restarts after a time; with `new_history` its versions restart at a lower number."""

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
    "delayEvents": DelayEvents,
    "loseBookmarks": LoseBookmarks,
    "slowPages": SlowPages,
    "throttle": Throttle,
    "fail": Fail,
    "pauseProcess": PauseProcess,
    "conflict": Conflict,
    "loseAnswer": LoseAnswer,
    "webhookDown": WebhookDown,
}
ONE_TIME_FAULTS: Final[dict[str, type[OneTimeFault]]] = {"restart": Restart, "jumpClock": JumpClock}
NAMES: Final = {form: name for name, form in CONDITIONS.items()}


def read_conditions(raw: object, path: str, problems: list[str]) -> tuple[Condition, ...]:
    """Reads the section `faults` of a scenario: those that are active from the start."""
    found = _read_each(raw, CONDITIONS, path, problems)
    return tuple(fault for fault in found if isinstance(fault, Condition))


def read_faults(raw: object, path: str, problems: list[str]) -> tuple[Fault, ...]:
    """Reads the body of a step."""
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
    """Reads one part of a scenario. Returns None if it is invalid, and adds all problems with their path to `problems`."""
    try:
        return read_document(document, kind)
    except DocumentError as error:
        # A problem of the whole part has no path: "expected a mapping".
        for text in error.problems:
            problems += [f"{path}: {text}" if text.startswith("expected") else f"{path}.{text.lstrip('.')}"]
        return None

"""The options of `release` before `noRoom` and `laterPods`: still accepted, and translated here into the fields in their place.

`mode`, `whenNoRoom`, `onTimeout` and `decisionTimeout` together said what is done for a group without room, and when. `replacement` and
`growth` said what is done with pods that come later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from extender.model.policies import JsonObject
from extender.model.release import DECISION_TIMEOUT, LAST_ACTIONS, LaterPods, NoRoom, NoRoomAction
from extender.model.units import Duration


class ReleaseMode(StrEnum):
    """What happens to a group that no domain holds."""

    REQUIRED = "Required"
    PREFERRED = "Preferred"


class OnTimeout(StrEnum):
    """What happens to a group that is not decided within `decisionTimeout`."""

    KEEP_GATED = "KeepGated"
    UNGATE = "Ungate"
    UNGATE_AT_COARSER_LEVEL = "UngateAtCoarserLevel"


class WhenNoRoom(StrEnum):
    """What happens to a complete group that no domain has room for."""

    WAIT = "Wait"
    RELEASE = "Release"
    PREEMPT = "Preempt"


class Replacement(StrEnum):
    """Which domain a pod gets that replaces a pod of a decided group."""

    SAME_DOMAIN = "SameDomain"
    REDECIDE = "Redecide"


class Growth(StrEnum):
    """What happens to pods beyond the size of a decided group."""

    SAME_DOMAIN = "SameDomain"
    KEEP_GATED = "KeepGated"


# With their defaults, which an API server may have written into an object under an older schema.
OF_NO_ROOM: Final = {"mode": "Required", "whenNoRoom": "Wait", "onTimeout": "KeepGated", "decisionTimeout": "10m"}
OF_LATER_PODS: Final = {"replacement": "SameDomain", "growth": "SameDomain"}

_AT_ONCE: Final = {WhenNoRoom.RELEASE: NoRoom.GROWING_DOMAIN, WhenNoRoom.PREEMPT: NoRoom.PREEMPT}
_IN_THE_END: Final = {
    OnTimeout.KEEP_GATED: NoRoom.WAIT,
    OnTimeout.UNGATE: NoRoom.ANYWHERE,
    OnTimeout.UNGATE_AT_COARSER_LEVEL: NoRoom.COARSER_DOMAIN,
}
_LATER: Final = {
    (Replacement.SAME_DOMAIN, Growth.SAME_DOMAIN): LaterPods.JOIN,
    (Replacement.REDECIDE, Growth.SAME_DOMAIN): LaterPods.JOIN_OR_MOVE,
    (Replacement.SAME_DOMAIN, Growth.KEEP_GATED): LaterPods.REPLACE,
    (Replacement.REDECIDE, Growth.KEEP_GATED): LaterPods.REPLACE_OR_MOVE,
}


class Options(NamedTuple):
    """The options of groups without room and of later pods."""

    no_room: tuple[NoRoomAction, ...] = ()
    later_pods: LaterPods = LaterPods.JOIN


def translated(
    mode: str = "",
    when_no_room: str = "",
    on_timeout: str = "",
    decision_timeout: float = DECISION_TIMEOUT,
    replacement: str = "",
    growth: str = "",
) -> Options:
    """The fields in place of the older ones. An empty text is the default of its field."""
    actions = []
    if first := _AT_ONCE.get(WhenNoRoom(when_no_room or WhenNoRoom.WAIT)):
        actions.append(NoRoomAction(first))
    if mode == ReleaseMode.PREFERRED:
        actions.append(NoRoomAction(NoRoom.SEVERAL_DOMAINS))
    last = _IN_THE_END[OnTimeout(on_timeout or OnTimeout.KEEP_GATED)]
    if last is not NoRoom.WAIT or decision_timeout != DECISION_TIMEOUT:
        actions.append(NoRoomAction(last, decision_timeout))
    key = Replacement(replacement or Replacement.SAME_DOMAIN), Growth(growth or Growth.SAME_DOMAIN)
    return Options(tuple(actions), _LATER[key])


def read_options(release: JsonObject) -> Options:
    """The options of a valid block `release`, from its fields or from the older ones."""
    timeout = release.get("decisionTimeout")
    older = translated(
        release.get("mode") or "",
        release.get("whenNoRoom") or "",
        release.get("onTimeout") or "",
        float(Duration.parse(timeout)) if timeout else DECISION_TIMEOUT,
        release.get("replacement") or "",
        release.get("growth") or "",
    )
    listed, later = release.get("noRoom"), release.get("laterPods")
    return Options(
        older.no_room if listed is None else tuple(map(_action, listed)),
        LaterPods(later) if later else older.later_pods,
    )


def _action(step: JsonObject) -> NoRoomAction:
    action, after = NoRoom(step["action"]), step.get("after")
    return NoRoomAction(action, float(Duration.parse(after)) if after else _default_after(action))


def _default_after(action: NoRoom) -> float:
    return DECISION_TIMEOUT if action in LAST_ACTIONS else 0.0


def older_options(release: Mapping[str, Any], older: Mapping[str, str]) -> Iterator[str]:
    """The names of older fields of a block that say something else than their default."""
    for name, default in older.items():
        value = release.get(name)
        if value is not None and value != default:
            yield name


def deprecation(release: JsonObject) -> str:
    """Which fields of a valid block are older ones, and what says the same; empty if it has none."""
    names = list(older_options(release, OF_NO_ROOM | OF_LATER_PODS))
    if not names:
        return ""
    options = read_options(release)
    parts = [f"noRoom: [{', '.join(map(_written, options.no_room))}]"] if options.no_room else []
    parts += [f"laterPods: {options.later_pods}"] if options.later_pods is not LaterPods.JOIN else []
    return f"{', '.join(names)}: deprecated, {'write ' + ' and '.join(parts) if parts else 'leave it out'}"


def _written(step: NoRoomAction) -> str:
    is_at_once = not step.after and not _default_after(step.action)
    return f"{{action: {step.action}}}" if is_at_once else f"{{action: {step.action}, after: {step.after:g}s}}"

"""The answer where no decision was possible in time, or the index is too old for one.

By the settings it is the verb's error, or an answer that passes everything, as if there were no extender. Each is counted,
and logged at intervals. Before they decide, handlers call `prepare_decision` with the answer that passes everything, which
the middleware falls back on. It first handles the events that have arrived, and checks that the client still waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from aiohttp import web

from extender.server.callers import check_caller
from extender.server.collaborators import Collaborators
from extender.server.failures import Late, Stale

Policy = Literal["error", "pass"]


@dataclass(frozen=True, slots=True)
class _PassAll:
    answer: Callable[[], web.Response]


_PASS_ALL: Final = web.RequestKey("PASSING", _PassAll)


async def prepare_decision(request: web.Request, app: Collaborators, passing: Callable[[], web.Response]) -> None:
    """Registers the answer that passes everything, and brings the index up to date.

    Returns once the events that arrived before the request are in the index. Raises Stale or Abandoned.
    """
    request[_PASS_ALL] = _PassAll(passing)
    await app.verbs.catch_up()
    await check_caller(request)
    if app.readiness.is_stale:
        missing = (name for name, problem in app.readiness.checks().items() if problem)
        raise Stale(f"changes of {', '.join(missing)} cannot be followed now; /readyz says why")


def is_decision(request: web.Request) -> bool:
    """Whether the answer decides where a pod may go, unlike that of bind, which reports a write."""
    return _PASS_ALL in request


def fall_back(request: web.Request, app: Collaborators, verb: str, cause: Exception) -> web.Response | None:
    """The answer that passes everything, if the settings choose it; None where the cause is the answer."""
    if not isinstance(cause, Stale | Late):
        return None
    stale = isinstance(cause, Stale)
    policy: Policy = app.settings.kube.on_stale if stale else app.settings.server.on_deadline
    passing = request.get(_PASS_ALL) if policy == "pass" else None
    reason, answer = "stale" if stale else "deadline", "pass" if passing else "error"
    app.metrics.record_fallback(verb, reason, answer)
    app.undecided.warn(verb=verb, reason=reason, answer=answer, cause=str(cause))
    return passing.answer() if passing else None

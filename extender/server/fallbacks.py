"""What is answered where nothing can be decided: in time, or on a picture of the cluster that is still true.

Either the verb's error, or as if there were no extender, as the settings say; counted each time, logged now and then.
Handlers `offer` what lets everything pass, before they decide; the middleware falls back on it. Until then nothing is
known but what was read: so first of all the cluster's news are read as far as they have come, and whether the one who
asked is still there.
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
class _Passing:
    answer: Callable[[], web.Response]


_PASSING: Final = web.RequestKey("PASSING", _Passing)


async def offer(request: web.Request, app: Collaborators, passing: Callable[[], web.Response]) -> None:
    """The question has been read, and this would let everything pass.

    Returns once all counts that had arrived with the question. Raises Stale or Abandoned before anything is decided.
    """
    request[_PASSING] = _Passing(passing)
    await app.verbs.catch_up()
    await check_caller(request)
    if app.readiness.is_stale:
        missing = (name for name, problem in app.readiness.checks().items() if problem)
        raise Stale(f"changes of {', '.join(missing)} cannot be followed now; /readyz says why")


def is_decision(request: web.Request) -> bool:
    """Whether the answer lets a pod go somewhere, unlike that of bind, which tells what has happened."""
    return _PASSING in request


def fall_back(request: web.Request, app: Collaborators, verb: str, cause: Exception) -> web.Response | None:
    """The answer that lets everything pass, if the settings want it; None where the cause is to be told instead."""
    if not isinstance(cause, Stale | Late):
        return None
    stale = isinstance(cause, Stale)
    policy: Policy = app.settings.kube.on_stale if stale else app.settings.server.on_deadline
    passing = request.get(_PASSING) if policy == "pass" else None
    reason, answer = "stale" if stale else "deadline", "pass" if passing else "error"
    app.metrics.fell_back(verb, reason, answer)
    app.undecided.tell(verb=verb, reason=reason, answer=answer, cause=str(cause))
    return passing.answer() if passing else None

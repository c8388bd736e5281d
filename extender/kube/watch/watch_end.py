"""How a list or a watch can end, and what the next one must do. Values only; ``reflector`` acts on them.

Rules of the API: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

from extender.kube.errors import (
    LONGEST_RETRY_AFTER,
    NO_CONNECTION,
    Expired,
    KubeError,
    NotFound,
    Rejected,
    Throttled,
    TooLarge,
)
from extender.kube.watch.reflector_values import RestartReason
from extender.wire.objects.kinds import Status


@dataclass(frozen=True, slots=True)
class WatchEnd:
    """Why it ended; whether a new list is needed; the pause in seconds that the server requests.

    ``doubtful``: the resourceVersion may be the cause. After one such end the watch is retried, after two in a row relisted.
    ``at_once``: the next round needs no back-off. ``not_served``: the API server does not know the resource.
    """

    why: RestartReason
    text: str = ""
    relist: bool = False
    retry_after: float = 0.0
    doubtful: bool = False
    at_once: bool = False
    not_served: bool = False


def end_of_error(error: KubeError) -> WatchEnd:
    """For a request that was rejected, or a stream that broke off."""
    text, wait = str(error), error.retry_after
    if isinstance(error, Expired):
        return WatchEnd(RestartReason.EXPIRED, text, relist=True)
    if isinstance(error, TooLarge):
        return WatchEnd(RestartReason.OVERSIZED, text, relist=True)
    if isinstance(error, Throttled):
        return WatchEnd(RestartReason.THROTTLED, text, retry_after=wait)
    if error.status and _blames_version(text):
        # Measured: an unknown resourceVersion is answered with 500, one from the future with 504.
        return WatchEnd(RestartReason.BAD_VERSION, text, relist=True, retry_after=wait)
    if isinstance(error, Rejected | NotFound):
        return WatchEnd(RestartReason.REJECTED, text, not_served=isinstance(error, NotFound))
    # A server that was away may return with an older history, from a backup. The version of the watch is then in its
    # future, and it sends nothing before it gets there.
    was_away = error.reason == NO_CONNECTION
    doubtful = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return WatchEnd(RestartReason.UNREACHABLE, text, relist=was_away, retry_after=wait, doubtful=doubtful)


def end_of_status(status: Status) -> WatchEnd:
    """For an ERROR event. The stream ends with it and its version is lost, so every code leads to a new list."""
    expired = status.code == HTTPStatus.GONE or status.reason in {"Expired", "Gone"}
    return WatchEnd(
        RestartReason.EXPIRED if expired else RestartReason.ERROR_EVENT,
        f"{status.code} {status.message or status.reason or 'no message'}",
        relist=True,
        retry_after=min(float(status.retry_after_seconds), LONGEST_RETRY_AFTER),
    )


def rejects_watch_list(error: KubeError) -> bool:
    """Whether the server knows no streaming list: it calls the request invalid, or malformed where it is very old."""
    return error.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}


def _blames_version(text: str) -> bool:
    folded = text.casefold()
    return "resourceversion" in folded or "resource version" in folded

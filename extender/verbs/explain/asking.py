"""Whether any scheduler schedules a pod, judged by the requests of schedulers.

kube-scheduler requests filter for each pod that passes its own plugins on some node. If no scheduler with the pod's schedulerName
sends requests while others do, then the name is misspelt, or that scheduler does not run, or it does not call the extender. A pod
whose schedulerName belongs to no scheduler stays pending for ever.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from extender.model.answers.explanations import Asked, AskingScheduler
from extender.model.objects import Pod
from extender.model.units import ago, rfc3339

SETTLED_SECONDS: Final = 60.0  # of answers, before a scheduler that has not asked is missed
_SHOWN: Final = 5  # schedulers by name
_LONGEST_NAME: Final = 100  # of a scheduler, in a sentence; seven of them fit into the note of an event


@dataclass(frozen=True, slots=True)
class Heard:
    """The requests of schedulers that this replica has received until ``now``, after ``seconds`` of answering.

    - ``ages``: by schedulerName the seconds since the last request about any of its pods. ``is_whole``: no name is left out.
    - ``elsewhere``: schedulers without requests that have pods on nodes, so they exist.
    """

    now: datetime
    seconds: float
    ages: Mapping[str, float]
    is_whole: bool = True
    elsewhere: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """The last kept answer about a pod: its age in seconds, and its text."""

    age: float
    text: str


def is_unasked(pod: Pod, heard: Heard) -> bool:
    """Whether no scheduler has the pod's schedulerName. Only True after other schedulers have sent requests for a while. O(1)."""
    if pod.node or pod.gated or pod.terminating or pod.rejection or pod.nominated_node:
        return False
    if pod.scheduler in heard.ages or pod.scheduler in heard.elsewhere:
        return False
    return bool(heard.ages) and heard.is_whole and heard.seconds >= SETTLED_SECONDS


def asked_about(pod: Pod, heard: Heard, last: LastAnswer | None) -> Asked:
    """What is known about requests for a pending pod. O(schedulers)."""
    latest = sorted(heard.ages, key=heard.ages.__getitem__)
    unasked = last is None and is_unasked(pod, heard)
    return Asked(
        scheduler=pod.scheduler,
        text=unasked_note(pod, heard) if unasked else _sentence(pod, heard, last),
        since=rfc3339(heard.now - timedelta(seconds=heard.seconds)),
        schedulers=tuple(AskingScheduler(name, _moment(heard, heard.ages[name])) for name in latest),
        last="" if last is None else _moment(heard, last.age),
        answer="" if last is None else last.text,
        is_unasked=unasked,
    )


def unasked_note(pod: Pod, heard: Heard) -> str:
    """The sentence about a pod that `is_unasked`, also for an event: less than 1 KiB."""
    near = difflib.get_close_matches(pod.scheduler, heard.ages, n=1)
    hint = f', did you mean "{_short(near[0])}"?' if near else ""
    return f"no scheduler named {_short(pod.scheduler)} has sent a request about any pod for {ago(heard.seconds)}{hint}; {_others(heard)}"


def _others(heard: Heard) -> str:
    latest = sorted(heard.ages, key=heard.ages.__getitem__)
    shown = ", ".join(f"{_short(name)} {ago(heard.ages[name])} ago" for name in latest[:_SHOWN])
    return f"others have: {shown}" + (f" and {len(latest) - _SHOWN} more" if len(latest) > _SHOWN else "")


def _sentence(pod: Pod, heard: Heard, last: LastAnswer | None) -> str:
    if last is not None:
        return f"{pod.scheduler} sent its last request about it {ago(last.age)} ago: {last.text}"
    if not heard.ages:
        return f"no scheduler has sent a request here for {ago(heard.seconds)}, since this replica answers"
    if pod.scheduler in heard.ages:
        return f"{pod.scheduler} sent a request {ago(heard.ages[pod.scheduler])} ago, but none about this pod as far as answers are kept"
    if pod.rejection and heard.is_whole:
        return f"{pod.scheduler} has tried it and sends no request here: its plugins reject the pod before, or its configuration lacks the extender"
    if pod.scheduler in heard.elsewhere:
        return f"{pod.scheduler} has pods on nodes, and has sent no request here for {ago(heard.seconds)}"
    return f"{pod.scheduler} has sent no request yet"


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _moment(heard: Heard, age: float) -> str:
    return rfc3339(heard.now - timedelta(seconds=age))

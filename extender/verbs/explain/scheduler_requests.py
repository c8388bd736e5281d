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
from extender.model.units import ago, cut, listed, rfc3339

SETTLED_SECONDS: Final = 60.0  # of answers, before a scheduler that has not asked is missed
_SHOWN: Final = 5  # schedulers by name
_LONGEST_NAME: Final = 100  # of a scheduler, in a sentence; seven of them fit into the note of an event


@dataclass(frozen=True, slots=True)
class KnownSchedulers:
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


def is_unasked(pod: Pod, known: KnownSchedulers) -> bool:
    """Whether no scheduler has the pod's schedulerName. Only True after other schedulers have sent requests for a while. O(1)."""
    if pod.node or pod.gated or pod.terminating or pod.rejection or pod.nominated_node:
        return False
    if pod.scheduler in known.ages or pod.scheduler in known.elsewhere:
        return False
    return bool(known.ages) and known.is_whole and known.seconds >= SETTLED_SECONDS


def asked_about(pod: Pod, known: KnownSchedulers, last: LastAnswer | None) -> Asked:
    """What is known about requests for a pending pod. O(schedulers)."""
    latest = sorted(known.ages, key=known.ages.__getitem__)
    unasked = last is None and is_unasked(pod, known)
    return Asked(
        scheduler=pod.scheduler,
        text=unasked_note(pod, known) if unasked else _sentence(pod, known, last),
        since=rfc3339(known.now - timedelta(seconds=known.seconds)),
        schedulers=tuple(AskingScheduler(name, _moment(known, known.ages[name])) for name in latest),
        last="" if last is None else _moment(known, last.age),
        answer="" if last is None else last.text,
        is_unasked=unasked,
    )


def unasked_note(pod: Pod, known: KnownSchedulers) -> str:
    """The sentence about a pod that `is_unasked`, also for an event: less than 1 KiB."""
    near = difflib.get_close_matches(pod.scheduler, known.ages, n=1)
    hint = f', did you mean "{cut(near[0], _LONGEST_NAME)}"?' if near else ""
    return f"no scheduler named {cut(pod.scheduler, _LONGEST_NAME)} has sent a request about any pod for {ago(known.seconds)}{hint}; {_others(known)}"


def _others(known: KnownSchedulers) -> str:
    latest = sorted(known.ages, key=known.ages.__getitem__)
    shown = [f"{cut(name, _LONGEST_NAME)} {ago(known.ages[name])} ago" for name in latest[:_SHOWN]]
    return f"others have: {listed(shown, count=len(latest))}"


def _sentence(pod: Pod, known: KnownSchedulers, last: LastAnswer | None) -> str:
    if last is not None:
        return f"{pod.scheduler} sent its last request about it {ago(last.age)} ago: {last.text}"
    if not known.ages:
        return f"no scheduler has sent a request here for {ago(known.seconds)}, since this replica answers"
    if pod.scheduler in known.ages:
        return f"{pod.scheduler} sent a request {ago(known.ages[pod.scheduler])} ago, but none about this pod as far as answers are kept"
    if pod.rejection and known.is_whole:
        return f"{pod.scheduler} has tried it and sends no request here: its plugins reject the pod before, or its configuration lacks the extender"
    if pod.scheduler in known.elsewhere:
        return f"{pod.scheduler} has pods on nodes, and has sent no request here for {ago(known.seconds)}"
    return f"{pod.scheduler} has sent no request yet"


def _moment(known: KnownSchedulers, age: float) -> str:
    return rfc3339(known.now - timedelta(seconds=age))

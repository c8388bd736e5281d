"""The extender and the cluster at a glance. Answered at any time, also by a replica that is not ready."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Final

from aiohttp import web
from msgspec import structs

from extender.model.answers.pages import ClusterFigures, Features, HealthCheck, Overview
from extender.model.units import times
from extender.server.collaborators import COLLABORATORS, Collaborators
from extender.server.openapi import Operation
from extender.server.v1.answers import browser_of, check_parameters, shared_answer

_MEMORY: Final = Path("/proc/self/statm")  # sizes in pages; the second one is resident


async def overview(request: web.Request) -> web.Response:
    """`GET /v1/overview`."""
    check_parameters(request)
    app = request.app[COLLABORATORS]

    browser = browser_of(app)

    async def compute() -> Overview:
        return _overview(await browser.figures(), browser.freshness(), app)

    return await shared_answer(request, compute)


def _overview(figures: ClusterFigures, freshness: float | None, app: Collaborators) -> Overview:
    settings, readiness = app.settings, app.readiness
    return Overview(
        **structs.asdict(figures),
        version=app.version,
        mode=settings.mode,
        placement=settings.placement,
        uptime_seconds=round(monotonic() - app.started, 3),
        leader=readiness.may_answer,
        ready=readiness.is_ready,
        health=(*_checks(app), *_warnings(figures)),
        freshness_seconds=freshness,
        resident_bytes=_resident_bytes(),
        verbs=tuple(metrics.recent.rate(verb) for verb, metrics in app.metrics.verbs.items()),
        features=Features(
            whatif=app.verbs.what_ifs is not None,
            policies=settings.policies.enabled,
            preemption=settings.preemption.mode,
            quotas=settings.quota.enabled,
        ),
    )


def _checks(app: Collaborators) -> Iterator[HealthCheck]:
    """The readiness checks in words."""
    is_stale = app.readiness.is_stale
    for name, problem in app.readiness.checks().items():
        if not problem:
            yield HealthCheck(check=name, status="ok", text="ok")
        else:
            yield HealthCheck(check=name, status="warning" if is_stale else "failing", text=problem)


def _warnings(figures: ClusterFigures) -> Iterator[HealthCheck]:
    """What does not keep the extender from answering, and is wrong."""
    if figures.rebuilds:
        text = f"the counts were wrong and were built again {times(figures.rebuilds)}; the log has what was wrong"
        yield HealthCheck(check="index", status="warning", text=text)
    if figures.invalid_policies:
        text = f"{figures.invalid_policies} scheduling policies are invalid and are not applied"
        yield HealthCheck(check="policies", status="warning", text=text)


def _resident_bytes() -> int:
    """The memory of this process, 0 where the system does not tell. 10 µs."""
    try:
        return int(_MEMORY.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


OPERATIONS: Final = (
    Operation(
        "getOverview",
        "GET",
        "/v1/overview",
        overview,
        "The extender and the cluster at a glance: health, rates, counts, topology keys.",
        Overview,
        errors=frozenset({413, 429, 503}),
    ),
)

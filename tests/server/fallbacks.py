"""Requests that nothing can be decided for, and the fallback that is answered."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, Literal, Never

from extender.model.units import Duration
from extender.server.collaborators import Verbs
from extender.settings.connections import Server
from extender.wire.extender_v1 import ExtenderArgs, FilterResult
from tests.server.serving import (
    BY_NAMES,
    PREEMPTION,
    Client,
    Switch,
    every_candidate,
    everything_passes,
    scores_by_length,
)

Policy = Literal["error", "pass"]
QUESTIONS = {"filter": BY_NAMES, "prioritize": BY_NAMES, "preempt": PREEMPTION}


def stale() -> Switch:
    """A picture that was complete once."""
    return Switch({"nodes": "", "pods": "watch silent for 200 s"}, was_ready=True)


async def never(_: ExtenderArgs) -> FilterResult:
    """A decision that waits for what does not come."""
    await asyncio.Event().wait()
    raise AssertionError


def nothing_decided(_: object) -> Never:
    """A decision that must not be asked for."""
    raise AssertionError


def nothing_refused() -> Never:
    """What must not be told."""
    raise AssertionError


def short(policy: Policy = "error", most: int = 100) -> Server:
    """A deadline that comes soon, and not before a slow machine has read a request or has answered one."""
    return Server(request_timeout=Duration(0.25), on_deadline=policy, max_in_flight=most)


async def fallbacks(client: Client) -> list[str]:
    """The lines of the metric that are not zero."""
    page = await (await client.get("/metrics")).text()
    return [line for line in page.splitlines() if line.startswith("extender_fallbacks_total{")]


async def passed(client: Client, verb: str) -> Any:
    """What a verb lets pass, without what stands around it."""
    answer = await client.post(f"/{verb}", json=QUESTIONS[verb])
    assert answer.status == HTTPStatus.OK
    found = await answer.json()
    return found.get("NodeNames") or found.get("NodeNameToMetaVictims") if isinstance(found, dict) else found


def handed_over(readiness: Switch, *, leads_then: bool, elsewhere: bool) -> Verbs:
    """Verbs of a replica behind a Service: its next term, or that of another one, begins while a call waits."""

    async def wait(redirects: int) -> bool:
        assert redirects in {0, 9}
        if leads_then:
            readiness.missing["leadership"] = ""
        return elsewhere

    return Verbs(everything_passes, scores_by_length, every_candidate, is_handed_over=wait)


def broken(args: object) -> Never:
    raise RuntimeError(f"secret detail of {args}")


async def filter_error(client: Client, body: bytes) -> str:
    """The text that filter answers with status 200, next to lists that name no node."""
    answer = await client.post("/filter", data=body)
    assert answer.status == HTTPStatus.OK
    fields: dict[str, object] = await answer.json()
    text = str(fields.pop("Error"))
    assert fields == {"Nodes": None, "NodeNames": [], "FailedNodes": {}, "FailedAndUnresolvableNodes": {}}
    return text

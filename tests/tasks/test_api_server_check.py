"""Reads which API server this is, and says what it lacks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from extender.kube.errors import NotFound, Unreachable
from extender.kube.reflector_status import ReflectorStatus, RestartReason
from extender.kube.session import Connection
from extender.settings.configuration import Settings
from extender.tasks.api_server_check import CHECK, ApiServerCheck
from extender.tasks.readiness import Readiness
from tests.fakes import FakeClock


class Versions(Connection):
    """A connection to an API server of a version."""

    def __init__(self, version: str, *resources: str) -> None:
        self.version = version
        self.resources = resources
        self.is_down = False
        self.calls: list[str] = []

    async def call(self, method: str, path: str, **_: Any) -> bytes:
        self.calls.append(f"{method} {path}")
        if self.is_down:
            raise Unreachable("connection refused")
        if path == "/version":
            return json.dumps({"gitVersion": self.version}).encode()
        if not self.resources:
            raise NotFound("no such group")
        return json.dumps({"resources": [{"name": name} for name in self.resources]}).encode()


class Scene:
    """The check, the watches, and the clock."""

    def __init__(self, version: str, *resources: str) -> None:
        self.connection, self.clock = Versions(version, *resources), FakeClock()
        self.pods = ReflectorStatus("pods")
        self.check = ApiServerCheck(self.connection, Settings(), self.clock, lambda: {"pods": self.pods})

    async def look(self, seconds: float = 60.0) -> None:
        """Let the job run for so long."""
        job = asyncio.create_task(self.check.run())
        await self.clock.advance(seconds)
        job.cancel()


async def test_what_an_old_api_server_lacks_is_in_readiness_and_the_metric() -> None:
    scene = Scene("v1.30.4", "validatingadmissionpolicies")
    readiness = Readiness(remarks={CHECK: scene.check.remark})
    assert readiness.pod_checks() == ({}, {})
    await scene.look()
    assert readiness.pod_checks() == ({CHECK: ""}, {CHECK: "v1.30.4; lacks affinity-label-keys"})
    assert readiness.is_ready
    assert scene.check.lacks() == {
        ("supported-version", "v1.30.4"): False,
        ("affinity-label-keys", "v1.30.4"): True,
        ("validating-admission-policy", "v1.30.4"): False,
        ("watch-list", "v1.30.4"): False,
    }


async def test_it_is_read_once_and_again_after_a_watch_was_restarted() -> None:
    scene = Scene("v1.30.4", "validatingadmissionpolicies")
    job = asyncio.create_task(scene.check.run())
    await scene.clock.advance(3600)
    assert scene.connection.calls.count("GET /version") == 1
    scene.connection.version = "v1.31.0"
    scene.connection.is_down = True
    scene.pods.restarts[RestartReason.UNREACHABLE] += 1
    await scene.clock.advance(60)
    assert scene.check.remark().startswith("v1.30.4"), "an attempt that fails changes nothing"
    scene.connection.is_down = False
    await scene.clock.advance(60)
    job.cancel()
    assert scene.check.remark() == "v1.31.0"


async def test_a_streaming_list_that_was_refused_counts() -> None:
    scene = Scene("v1.33.1", "validatingadmissionpolicies")
    scene.pods.restarts[RestartReason.NO_WATCH_LIST] += 1
    await scene.look()
    assert scene.check.remark() == "v1.33.1; lacks watch-list"


async def test_resources_that_cannot_be_read_are_not_missing() -> None:
    scene = Scene("v1.36.2")
    await scene.look()
    assert scene.check.remark() == "v1.36.2"


async def test_an_api_server_after_the_newest_says_so() -> None:
    scene = Scene("v1.37.0", "validatingadmissionpolicies")
    await scene.look()
    assert scene.check.remark() == "v1.37.0; newer than 1.36, the newest version that was tried"


async def test_an_api_server_without_a_number_says_so_and_lacks_nothing_else() -> None:
    scene = Scene("v0.0.0-master+$Format:%H$", "validatingadmissionpolicies")
    await scene.look()
    assert scene.check.remark() == "v0.0.0-master+$Format:%H$; lacks supported-version"

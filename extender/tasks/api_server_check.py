"""Reads which API server this is, and says what it lacks for the features in use: in the log, in readiness and in a metric.

It is read at the start. It is read again after a watch was restarted, as an upgrade of the API server ends all of them. Behind several
API servers of two versions, the last answer counts until then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from extender.kube.diagnosis import read_api_server
from extender.kube.errors import KubeError
from extender.kube.reflector_status import ReflectorStatus, RestartReason
from extender.kube.session import Connection
from extender.kube.timing import Clock
from extender.settings.configuration import Settings
from extender.wire.api_server import NEWEST, REQUIREMENTS, ApiServer, missing

_LOG = logging.getLogger(__name__)
CHECK: Final = "apiserver"
"""The readiness check that has the remark. It never fails."""
_LOOK_SECONDS: Final = 10.0


class ApiServerCheck:
    """``server`` is what is known of the API server, None before it was read. ``statuses``: of the reflectors."""

    def __init__(
        self,
        connection: Connection,
        settings: Settings,
        clock: Clock,
        statuses: Callable[[], Mapping[str, ReflectorStatus]],
    ) -> None:
        self.server: ApiServer | None = None
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._statuses = statuses

    async def run(self) -> None:
        """Reads it until cancelled: at once, then after restarts of watches. A failed attempt is repeated."""
        read = -1
        while True:
            restarts = sum(sum(status.restarts.values()) for status in self._statuses().values())
            if restarts != read and await self._read():
                read = restarts
            await self._clock.sleep(_LOOK_SECONDS)

    async def _read(self) -> bool:
        try:
            server = await read_api_server(self._connection)
        except KubeError as error:
            _LOG.debug("the version of the API server cannot be read", extra={"problem": str(error)})
            return False
        refused = any(status.restarts[RestartReason.NO_WATCH_LIST] for status in self._statuses().values())
        known = replace(server, has_streaming_lists=not refused)
        if known != self.server:
            _LOG.info("API server", extra={"version": known.version, "minor": known.minor})
            for row in missing(known, self._settings):
                _LOG.warning("the API server lacks a feature", extra={"feature": row.feature, "effect": row.effect})
        self.server = known
        return True

    def lacks(self) -> dict[tuple[str, str], bool]:
        """By feature in use and version whether the API server lacks what it needs; empty before it was read."""
        if self.server is None:
            return {}
        lacking = {row.feature for row in missing(self.server, self._settings)}
        version = self.server.version
        return {(row.feature, version): row.feature in lacking for row in REQUIREMENTS if row.is_needed(self._settings)}

    def remark(self) -> str:
        """The version, and what is missing; empty before it was read."""
        if self.server is None:
            return ""
        lacking = [row.feature for row in missing(self.server, self._settings)]
        untried = (
            [] if (self.server.minor or 0) <= NEWEST else [f"newer than 1.{NEWEST}, the newest version that was tried"]
        )
        return "; ".join([self.server.version, *untried, *([f"lacks {', '.join(lacking)}"] if lacking else [])])

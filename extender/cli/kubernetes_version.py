"""The version of Kubernetes that a command writes for: the version in its arguments, or of the current cluster."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from extender.cli.files import access_to
from extender.cli.main import CommandError
from extender.compose.process import run_on_loop
from extender.kube.credentials import Access
from extender.kube.diagnosis import read_api_server
from extender.kube.errors import KubeError
from extender.kube.session import SessionOptions, open_session
from extender.kube.timing import SystemClock
from extender.settings.connections import Kube
from extender.wire.api_server import NEWEST, OLDEST

_GIVEN: Final = re.compile(r"v?1\.(\d+)(?:\.\d+)?")
_PATIENCE: Final = 2.0  # seconds; the cluster is asked only for a default


def minor_given(text: str) -> int | None:
    """The minor version of an argument; None for an empty one. Raises CommandError."""
    match = _GIVEN.fullmatch(text)
    if text and match is None:
        raise CommandError(f"--kubernetes: expected a version such as 1.{NEWEST}, got {text}")
    minor = int(match[1]) if match else None
    if minor is not None and minor < OLDEST:
        raise CommandError(f"--kubernetes: 1.{OLDEST} is the oldest supported version, got {text}")
    return minor


def minor_of_cluster() -> int | None:
    """The version of the current cluster; None where there is none, or it does not answer in time."""
    access = access_to(Kube())
    # Without a kubeconfig and outside of a cluster nothing is asked, so that the command works offline at once.
    if not access.host and not any(Path(file).is_file() for file in access.kubeconfig.split(":")):
        return None
    with suppress(KubeError):  # also an unusable kubeconfig
        return run_on_loop(_read(access))
    return None


async def _read(access: Access) -> int | None:
    options = SessionOptions(connect_timeout=_PATIENCE, request_timeout=_PATIENCE)
    async with open_session(access, SystemClock(), options) as session:
        server = await read_api_server(session.reads)
        return None if server is None else server.minor

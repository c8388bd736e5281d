"""The version of Kubernetes of the current cluster, which is read where the arguments name none."""

from contextlib import suppress
from pathlib import Path
from typing import Final

from extender.cli.files import access_to
from extender.compose.process import run_on_loop
from extender.kube.credentials import Access
from extender.kube.diagnosis import read_api_server
from extender.kube.errors import KubeError
from extender.kube.session import SessionOptions, open_session
from extender.kube.timing import SystemClock
from extender.settings.connections import Kube

_PATIENCE: Final = 2.0  # seconds; the cluster is asked only for a default


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
        return (await read_api_server(session.reads)).minor

"""A filter request passes few files of the server, so that a reader with a debugger can keep them in mind."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import orjson
import pytest

import extender
from extender.model.units import Address
from extender.server.app import listening
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Clients, Server
from tests.pki import SCHEDULER, Pki
from tests.server.raw import whole, wire
from tests.server.serving import BY_NAMES, app_with

PACKAGE = Path(extender.__file__).parent
QUESTION = whole("POST", "/filter", orjson.dumps(BY_NAMES))
PASSED = {
    "server": {"middleware.py", "request_checks.py", "transport/connections.py", "verbs.py"},
    "telemetry": {"decision_log.py", "verb_metrics.py"},
}


@contextmanager
def files_called() -> Iterator[dict[str, set[str]]]:
    """The files of the server's and telemetry's floors with a function that is called in the block."""
    found: dict[str, set[str]] = {floor: set() for floor in PASSED}

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            floor, _, rest = path.relative_to(PACKAGE).as_posix().partition("/")
            if floor in found:
                found[floor].add(rest)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "with a client certificate"])
async def test_a_warm_filter_request_passes_few_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, with_tls: bool
) -> None:
    monkeypatch.setattr("extender.server.transport.connections._SWEEP_SECONDS", 3600.0)  # no part of a request
    pki = Pki(tmp_path) if with_tls else None
    tls = pki.giving(Clients(scheduler=(SCHEDULER,))) if pki else None
    app = app_with(server=Server(tls=tls) if tls else Server())
    client = pki.client(pki.scheduler()) if pki else None
    served = listening(app, Address("127.0.0.1:0"), ServerTls(tls) if tls else None)
    async with served as url, wire(url, client) as one:
        await one.send(QUESTION)
        assert await one.status() == 200
        with files_called() as found:
            await one.send(QUESTION)
            assert await one.status() == 200
    assert found == PASSED

"""A process of its own that probes the service without a break, and says how long the service's loop stood still.

What a probe waits for is not all the service's doing: on a busy machine the service, and the prober, wait for a processor.
Linux counts that for each thread (/proc/PID/schedstat, https://docs.kernel.org/scheduler/sched-stats.html), and it is taken
off. What remains is at least the processor time that the service's loop used while the probe waited; where the two waited for
a quarter of the time or more the machine was busy, and it is that alone: the kernel's own work on behalf of others counts as
no one's waiting.

`Prober` starts it; `python -m tests.attack.pulse URL PID` is its life. Each line of its input asks for a line of output.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
import ssl
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

PROBE = b"GET /livez HTTP/1.1\r\nHost: extender\r\n\r\n"
PAUSE_SECONDS = 0.01
PATIENCE_SECONDS = 10.0
_BUSY = 0.25  # of the time of a probe


@dataclass(slots=True)
class Pulse:
    """Since the last question, in seconds: the longest standstill, what the clock showed then, and the slowest connection.

    ``probes`` counts those that were answered.
    """

    still: float = 0.0
    clock: float = 0.0
    connecting: float = 0.0
    probes: int = 0

    def answered(self, still: float, clock: float) -> None:
        """One probe on an open connection."""
        self.probes += 1
        if still > self.still:
            self.still, self.clock = still, clock

    def connected(self, seconds: float) -> None:
        """A connection was made."""
        self.connecting = max(self.connecting, seconds)


class Prober:
    """The process, seen from the attacks."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    @asynccontextmanager
    async def of(cls, url: str, process: int) -> AsyncIterator[Prober]:
        """Probes the service at the URL until the block is left."""
        arguments = ("-m", "tests.attack.pulse", url, str(process))
        child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
        try:
            yield cls(child)
        finally:
            child.kill()
            await child.communicate()

    async def pulse(self) -> Pulse:
        """What was seen since the last call."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS + 5):
            return Pulse(**json.loads(await self._process.stdout.readline()))


@dataclass(frozen=True, slots=True)
class Used:
    """Seconds that a thread has run, and that it has waited for a processor."""

    ran: float
    waited: float

    @classmethod
    def of(cls, process: int | str) -> Used:
        """The main thread of a process; nothing where the kernel does not count."""
        with suppress(OSError):
            ran, waited, _ = Path(f"/proc/{process}/schedstat").read_text("ascii").split()
            return cls(int(ran) / 1e9, int(waited) / 1e9)
        return cls(0.0, 0.0)


class Timer:
    """Measures what the service made us wait for: what its loop ran, or all but what both waited for a processor."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._ours, self._theirs, self._begun = Used.of("self"), Used.of(process), perf_counter()

    def still_and_clock(self) -> tuple[float, float]:
        """Seconds since the timer was made: without the waits for a processor, and by the clock."""
        clock, ours, theirs = perf_counter() - self._begun, Used.of("self"), Used.of(self._process)
        waited = theirs.waited - self._theirs.waited + ours.waited - self._ours.waited
        ran = min(clock, theirs.ran - self._theirs.ran)
        return ran if waited > clock * _BUSY else max(ran, clock - waited), clock


@asynccontextmanager
async def within(process: int, seconds: float) -> AsyncIterator[None]:
    """Raises TimeoutError after so many seconds in which neither this thread nor that of the process waited for a processor."""
    begun, (ours, theirs) = perf_counter(), (Used.of("self"), Used.of(process))

    def waited() -> float:
        return Used.of("self").waited - ours.waited + Used.of(process).waited - theirs.waited

    async with asyncio.timeout(seconds) as limit:

        async def extend() -> None:
            while not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time() + begun + seconds + waited() - perf_counter())
                await asyncio.sleep(min(1.0, seconds / 4))

        extending = asyncio.create_task(extend())
        try:
            yield
        finally:
            extending.cancel()


class Connection:
    """One connection that probes go over, made anew where it was closed for others."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._address = (place.hostname or "", place.port or 0)
        self._tls = ssl.create_default_context() if place.scheme == "https" else None
        if self._tls:
            self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._socket: socket.socket | None = None

    @property
    def is_open(self) -> bool:
        """As far as is known."""
        return self._socket is not None

    def open(self) -> bool:
        """Connect; False where that failed."""
        try:
            plain = socket.create_connection(self._address, PATIENCE_SECONDS)
            self._socket = self._tls.wrap_socket(plain) if self._tls else plain
        except OSError as error:
            return isinstance(error, TimeoutError)  # it has waited for all of it
        return True

    def probe(self) -> bool:
        """One request and its answer; False where the connection was closed instead."""
        assert self._socket is not None
        try:
            self._socket.sendall(PROBE)
            received = b""
            while b"\r\n\r\n" not in received:
                received += (piece := self._socket.recv(2**16))
                if not piece:
                    raise ConnectionError
        except OSError as error:
            self._socket.close()
            self._socket = None
            return isinstance(error, TimeoutError)  # it has stood still for all of it
        return True


def main(url: str, process: str) -> None:
    """Probe until the input ends."""
    connection, pulse = Connection(url), Pulse()
    while True:
        timer = Timer(process)
        if not connection.is_open and connection.open():
            pulse.connected(timer.still_and_clock()[0])
            timer = Timer(process)
        if connection.is_open and connection.probe():
            pulse.answered(*timer.still_and_clock())
        if select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            if not sys.stdin.readline():
                return
            sys.stdout.write(json.dumps(asdict(pulse)) + "\n")
            sys.stdout.flush()
            pulse = Pulse()


if __name__ == "__main__":
    main(*sys.argv[1:])

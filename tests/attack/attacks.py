"""What an attack is, and the list of all of them."""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from urllib.parse import urlsplit

from extender.simulator.apiserver.server import ApiServer
from tests.attack.hostile_api import HostileApi
from tests.attack.pulse import Prober
from tests.server.raw import Wire, wire


@dataclass(frozen=True, slots=True)
class Target:
    """The service under attack. It reads `api` through `front`.

    `tls` holds a certificate of the scheduler, `stranger` none; both None for plain HTTP. `webhook` is the URL of the other port, for
    clients without the API server's certificate, which it asks for where `tls` is given.
    """

    url: str
    process: int
    api: ApiServer
    front: HostileApi
    prober: Prober
    webhook: str
    webhook_tls: ssl.SSLContext
    tls: ssl.SSLContext | None = None
    stranger: ssl.SSLContext | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        place = urlsplit(self.url)
        return place.hostname or "", place.port or 0

    def wire(self) -> AbstractAsyncContextManager[Wire]:
        """A connection as the scheduler makes it."""
        return wire(self.url, self.tls)

    def bare(self) -> AbstractAsyncContextManager[Wire]:
        """A TCP connection without a handshake."""
        return wire(self.url)

    async def status(self, request: bytes) -> str:
        """What one request is answered on a connection of its own: the status, or "cut"."""
        async with self.wire() as connection:
            with suppress(ConnectionError):  # refused before all was sent; the answer may be there all the same
                await connection.send(request)
            return status_text(await connection.status())


Play = Callable[[Target], Awaitable[str]]


@dataclass
class Attacks:
    """All attacks by name. `quick` ones take less than a second each and are played as tests, too.

    `still`: for how many seconds the loop may stand still: 50 ms, and twice that for one request, whose body of 8 MiB is decoded in one
    step. Only what may send requests of the scheduler can send one.
    """

    plays: dict[str, Play] = field(default_factory=dict)
    quick: set[str] = field(default_factory=set)
    still: dict[str, float] = field(default_factory=dict)

    def attack(self, name: str, *, quick: bool = True, still: float = 0.05) -> Callable[[Play], Play]:
        """Register one."""
        if name in self.plays:
            raise ValueError(f"two attacks have the name {name}")

        def register(play: Play) -> Play:
            self.plays[name] = play
            self.still[name] = still
            if quick:
                self.quick.add(name)
            return play

        return register

    def each(self, name: str, request: bytes, *, quick: bool = True) -> None:
        """Register one that is a single request.

        It may take 100 ms: bodies of 8 MiB with the most containers or nodes take 50 to 78 ms on a busy machine.
        """

        async def play(target: Target) -> str:
            return await target.status(request)

        self.attack(name, quick=quick, still=0.1)(play)


def registered() -> "Attacks":
    """All attacks. Imports their modules, which make bodies of many MiB: some seconds, so not while tests are collected."""
    for module in ("requests", "connections", "handshakes", "streams", "bodies", "reviews"):
        import_module(f"tests.attack.{module}")
    return ATTACKS


def status_text(status: int) -> str:
    """A status for people; 0 is a connection that was closed without an answer."""
    return str(status) if status else "cut"


ATTACKS = Attacks()

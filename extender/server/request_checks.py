"""The checks of a request before its handler: its client and its encoding. And the limits of a request: its memory and its time.

1. OpenSSL verifies the client certificate against server.tls.clientCAFile in the handshake, before a request is read.
   kube-scheduler has no other means of authentication. `settings.Clients` gives roles to the names in certificates.
2. kube-scheduler sends every body with a Content-Length and without compression. Any other body is rejected before a byte of it is
   read (`connections` does not parse chunks).
3. `BodyMemory` limits the memory of all bodies together, `Deadlines` the time of a request.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address
from typing import Any, Final, Literal, TypedDict, TypeGuard
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from extender.model.units import cut
from extender.server.failures import REDIRECTS, Failure, forbidden, overloaded
from extender.settings.connections import Clients, Server

Role = Literal["scheduler", "metrics", "admin"]

# By the path of the route. Verbs are recognised by the name of the route, as their paths are settings.
_PROBES: Final = frozenset({"/livez", "/readyz", "/readyz/{check}", "/healthz"})
_METRICS: Final = "/metrics"
_ROLES: Final[Mapping[str, Role]] = {_METRICS: "metrics", "/configz": "admin", "/debug/loglevel": "admin"}
_API: Final = "/v1/"
_OWN_SITE: Final = frozenset({"same-origin", "none"})  # the latter: typed or bookmarked by the user
_JSON: Final = "application/json"
# With one of these types, or with none, a browser sends a page's request to another site without a preflight request.
# https://fetch.spec.whatwg.org/#cors-safelisted-request-header
_SIMPLE_TYPES: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
_ABOUT_PODS: Final = (_API, "/debug/decisions", "/debug/shadow", "/ui")  # tell what is in the cluster
_READING: Final = frozenset({"GET", "HEAD"})
_MOST_DIGITS: Final = 2

# Forms that hold one text. The others ("othername", "DirName", "Registered ID") hold no text that a list could name.
_PLAIN_FORMS: Final = frozenset({"DNS", "URI", "email", "IP Address"})
_PAIR: Final = 2  # (form, value)
_LONGEST_NAMES: Final = 500  # characters of names in an answer and in the log

_OF_SERVICES: Final = (".svc", ".svc.cluster.local")  # another cluster domain needs server.hosts
_LOCALHOST: Final = "localhost"  # https://www.rfc-editor.org/rfc/rfc6761#section-6.3
_IDENTITY: Final = "identity"
_OTHER_SITE: Final = "a page of another site asked for this request; only pages of the extender may"
_LONGEST_ENCODING: Final = 40  # characters of a client's header in an answer and in the log


class PeerCertificate(TypedDict, total=False):
    """The parts that are read of `ssl.SSLSocket.getpeercert`: groups of (field, value), and pairs (type, value)."""

    subject: tuple[tuple[tuple[str, str], ...], ...]
    subjectAltName: tuple[tuple[object, ...], ...]


def check_verb(request: web.Request, server: Server) -> None:
    """Raises Failure where the client may not use the verbs.

    Without a client CA every client that reaches the port may use them, except a browser that a page of another site has sent here:
    verbs nominate, bind and delete pods. kube-scheduler sends JSON, the host of its urlPrefix, and none of a browser's headers.
    """
    # With a client CA the host does not matter: a page of another site has no client certificate of its own, and `_check_site` rejects
    # requests with the user's.
    tls = server.tls
    if tls.client_ca_file:
        _check_role(client_names(request), "scheduler", tls.clients)
    else:
        _check_host(request, server.hosts)
    _check_site(request)
    kind = request.headers.get(hdrs.CONTENT_TYPE)
    if kind != _JSON and (kind is None or request.content_type in _SIMPLE_TYPES):
        raise _not_json(request.content_type)


def redirects_of(request: web.Request) -> int:
    """How often other replicas have redirected this call, by its parameter. 0 where that has not one or two digits."""
    text = request.query.get(REDIRECTS, "")
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0


def check_client(request: web.Request, server: Server) -> None:
    """Raises Failure where the client may not use a path that is no verb.

    1. Probes of the kubelet have no certificate, and their answers are no secret: they are always answered.
    2. Without a client CA every client that reaches the port is answered, except a browser that a page of another site has sent here.
       Only changes of the service, and questions about the cluster, are limited to clients on this machine.
    3. Prometheus may use the name of a Service as the host.
    """
    path = _route(request)
    if path in _PROBES and request.method in _READING:
        return
    role: Role | None = "admin" if path.startswith(_ABOUT_PODS) else _ROLES.get(path)
    tls = server.tls
    if not tls.client_ca_file:
        is_open = request.method in _READING and not path.startswith(_ABOUT_PODS)
        if role == "admin" and not is_open and not _is_local(request.remote):
            raise forbidden(
                "without server.tls.clientCAFile only this machine may change anything or ask for explanations"
            )
        _check_host(request, server.hosts, of_services=path == _METRICS)
        return
    names = client_names(request)
    if role is not None:
        _check_role(names, role, tls.clients)


def _check_host(request: web.Request, hosts: Sequence[str], *, of_services: bool = False) -> None:
    """Raises Failure where the host of the request may be the name of another site (DNS rebinding).

    The owner of a site can make its name resolve to 127.0.0.1. Then a browser takes the extender for that site, but it still sends
    the site's name as the host. An address, and localhost, cannot be made to resolve to anything else.

    ``of_services``: accept names of Services too. No site outside of the cluster can have such a name; inside of it a tenant can.
    """
    host = request.headers.get(hdrs.HOST)
    if host is not None and not _is_known_host(host, tuple(hosts), of_services=of_services):
        text = f'the host "{host[:_LONGEST_NAMES]}" is not among server.hosts'
        raise forbidden(f"{text}; http://127.0.0.1 and http://localhost need not be")


@lru_cache(maxsize=64)  # every request of the scheduler names the same one
def _is_known_host(host: str, hosts: tuple[str, ...], *, of_services: bool) -> bool:
    """Whether the Host of a request is an address, localhost, a host of the settings or a Service, with any port."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    try:
        ip_address(name)
    except ValueError:
        is_service = of_services and name.endswith(_OF_SERVICES)
        return name == _LOCALHOST or name.endswith(f".{_LOCALHOST}") or name in hosts or is_service
    return True


def client_names(request: web.Request, setting: str = "server.tls.clientCAFile") -> list[str]:
    """The names in the client's certificate. Raises Failure without a certificate of the CA in ``setting``."""
    certificate: PeerCertificate | None = request.get_extra_info("peercert")
    if not certificate:
        raise Failure(HTTPStatus.UNAUTHORIZED, "unauthenticated", f"a client certificate of {setting} is needed")
    return list(names_in(certificate))


def _check_role(names: Sequence[str], role: Role, clients: Clients) -> None:
    """Raises Failure unless one of the names has the role; an admin has them all."""
    if not clients.named:  # no roles are configured: every client of the CA may do everything
        return
    by_role: Mapping[Role, Sequence[str]] = {"scheduler": clients.scheduler, "metrics": clients.metrics, "admin": ()}
    check_names(names, {*by_role[role], *clients.admin}, f"server.tls.clients.{role}")


def check_names(names: Sequence[str], known: Collection[str], setting: str) -> None:
    """Raises Failure where none of the names in a client's certificate is in the setting."""
    if set(known).isdisjoint(names):
        raise forbidden(
            f"the client certificate's names ({cut(', '.join(names), _LONGEST_NAMES)}) are not among {setting}"
        )


def check_same_site(request: web.Request) -> None:
    """Raises Failure for a POST under /v1 that a page of another site may have made a browser send."""
    if request.method in _READING or not _route(request).startswith(_API):
        return
    _check_site(request)
    if request.content_type != _JSON:
        raise _not_json(request.content_type)


def _check_site(request: web.Request) -> None:
    """Raises Failure for a request that a page of another site may have made a browser send.

    1. Such a request comes from the user's machine, with the user's certificate.
    2. A browser reports the site in Sec-Fetch-Site, an older one in Origin only. Other clients send neither header.
    3. A browser sends a content type that no form has only after a preflight request, which is not answered here.

    https://www.w3.org/TR/fetch-metadata/
    """
    headers = request.headers
    if (site := headers.get("Sec-Fetch-Site")) is not None:
        if site not in _OWN_SITE:
            raise forbidden(_OTHER_SITE)
    elif (origin := headers.get(hdrs.ORIGIN)) is not None and urlsplit(origin).netloc != headers.get(hdrs.HOST):
        raise forbidden(_OTHER_SITE)


def _not_json(kind: str) -> Failure:
    text = (
        f'the body of this request needs the header "Content-Type: application/json", got "{kind[:_LONGEST_ENCODING]}"'
    )
    return Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", text)


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


def _is_local(remote: str | None) -> bool:
    try:
        address = ip_address(remote or "")
    except ValueError:
        return False
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_loopback


def names_in(certificate: PeerCertificate) -> Iterator[str]:
    """The common names, then the alternative names of the types DNS, URI, email and IP address; each once."""
    names = [value for group in certificate.get("subject", ()) for field, value in group if field == "commonName"]
    names += [entry[1] for entry in certificate.get("subjectAltName", ()) if _is_plain(entry)]
    yield from dict.fromkeys(names)


def _is_plain(entry: tuple[object, ...]) -> TypeGuard[tuple[str, str]]:
    """OpenSSL gives a directory name as nested groups, and other forms with more or fewer parts."""
    return len(entry) == _PAIR and entry[0] in _PLAIN_FORMS and isinstance(entry[1], str)


def check_encoding(request: web.Request) -> None:
    """Raises Failure where the body is sent in chunks, or has a content coding.

    Parsing chunks of one byte costs 500 times as much as the bytes. Inflating a body may give a thousand times its size.

    https://www.rfc-editor.org/rfc/rfc9112#section-6.1 , https://www.rfc-editor.org/rfc/rfc9110#section-8.4
    """
    headers = request.headers
    if hdrs.TRANSFER_ENCODING in headers:
        text = "request bodies need a Content-Length; Transfer-Encoding is not accepted"
        raise Failure(HTTPStatus.LENGTH_REQUIRED, "no_length", text)
    if hdrs.CONTENT_ENCODING in headers:
        for value in headers.getall(hdrs.CONTENT_ENCODING):
            if value.strip().lower() != _IDENTITY:
                text = f'request bodies must not be compressed (Content-Encoding "{value[:_LONGEST_ENCODING]}")'
                accepted = {"Accept-Encoding": "identity"}
                raise Failure(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "compressed", text, headers=accepted)


@dataclass(eq=False, slots=True)
class HeldBody:
    """The memory of one body."""

    request: web.BaseRequest
    size: int = 0
    is_complete: bool = False
    is_dropped: bool = False


class BodyMemory:
    """The memory of the bodies of all requests until they are answered: at most `most` bytes.

    Where it is used up, the oldest incomplete body is dropped. A body that arrives quickly is never the oldest for long. A body that
    is sent slowly, to occupy memory, is.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[HeldBody, None] = {}  # the oldest first
        self.size = 0

    @property
    def requests(self) -> int:
        """How many requests are being read or answered."""
        return len(self._held)

    def acquire(self, request: web.BaseRequest) -> HeldBody:
        """Memory for one request; `release` must follow."""
        held = HeldBody(request)
        self._held[held] = None
        return held

    def release(self, held: HeldBody) -> None:
        """Frees the memory of a body. Idempotent."""
        if held in self._held:
            del self._held[held]
            self.size -= held.size

    def add(self, held: HeldBody, size: int) -> None:
        """Counts a piece of a body. Raises Failure where this body was dropped, or where no other body can be dropped for it."""
        if held.is_dropped:
            raise overloaded("the body was not complete when its memory was needed")
        # Complete bodies are never dropped: their requests are being decided. This body is not dropped for itself either; it fails, which
        # its client sees as overloaded.
        held.size += size
        self.size += size
        while self.size > self._most:
            oldest = next((body for body in self._held if not body.is_complete and body is not held), None)
            if oldest is None:
                raise overloaded("bodies of requests hold all memory that is set aside for them")
            self.release(oldest)
            oldest.is_dropped = True
            if oldest.request.transport is not None:
                oldest.request.transport.abort()


class Deadline:
    """The time limit of one request: a context manager like `asyncio.timeout`. Raises TimeoutError when the time is over."""

    __slots__ = ("_deadlines", "_task", "end", "is_over")

    def __init__(self, deadlines: "Deadlines") -> None:
        self._deadlines = deadlines
        self.end = 0.0
        self.is_over = False

    def __enter__(self) -> None:
        self._task = self._deadlines.add(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Raises TimeoutError where the time is over. A cancellation for another reason, such as the shutdown, stays one."""
        self._deadlines.remove(self)
        # As `asyncio.timeout`: only if no other cancellation is pending the CancelledError is the deadline's own.
        if self.is_over and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise TimeoutError

    def expire(self) -> None:
        """Cancels the request at the point where it waits."""
        self.is_over = True
        self._task.cancel()


DEADLINE: Final = web.RequestKey("DEADLINE", Deadline)  # of a request for people and tools


class Deadlines:
    """The deadlines of all requests. Each lasts `seconds`, so they end in the order in which they began.

    So one timer is enough, for the oldest deadline. `asyncio.timeout` starts and cancels a timer for each request, which costs 5 µs.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._running: dict[Deadline, None] = {}  # the oldest first
        self._is_armed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # kept: to find it takes a system call before Python 3.12

    def add(self, deadline: Deadline) -> asyncio.Task[Any]:
        """Starts a deadline of the current task, which expires unless it is removed before. Returns the task."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 (for the type checker: only coroutines get here)
        deadline.end = loop.time() + self._seconds
        self._running[deadline] = None
        if not self._is_armed:
            self._arm(loop, deadline)
        return task

    def remove(self, deadline: Deadline) -> None:
        """Stops a deadline, as its request is answered. Idempotent."""
        self._running.pop(deadline, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, oldest: Deadline) -> None:
        self._is_armed = True
        loop.call_at(oldest.end, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """Expires all deadlines that are due, then sets the timer for the oldest of the others."""
        self._is_armed = False
        now = loop.time()
        while (oldest := next(iter(self._running), None)) is not None:
            if oldest.end > now:
                self._arm(loop, oldest)
                return
            del self._running[oldest]
            oldest.expire()


async def read_body(request: web.Request, limit: int, setting: str, bodies: BodyMemory, held: HeldBody) -> bytes:
    """The whole body. Raises Failure, before a byte is read, where the body is too large, or is compressed or in chunks.

    `setting`: the setting with the limit, for the text of the error.
    """
    check_encoding(request)
    if (request.content_length or 0) > limit:
        text = f"{setting} ({limit})" if setting else f"{limit} bytes"
        raise Failure(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", f"request body is larger than {text}")
    # A body of some hundred names mostly comes with the head: then it is read without an await and without a copy.
    content = request.content
    if not content.is_eof():
        return await _read_pieces(request, bodies, held)
    bodies.add(held, content.total_bytes)  # all of it came with the head
    held.is_complete = True
    return content.read_nowait()


async def _read_pieces(request: web.Request, bodies: BodyMemory, held: HeldBody) -> bytes:
    body = bytearray()  # one block, which goes back to the system; many small ones would stay in the process
    try:
        while piece := await request.content.readany():
            bodies.add(held, len(piece))
            body += piece
        held.is_complete = True
        return bytes(body)
    finally:
        body.clear()  # the traceback of an error holds this frame until the collector finds it

"""Authorisation of clients: the names in a client's certificate, and the roles that the settings give them.

OpenSSL has verified the certificate against server.tls.clientCAFile before a request is seen; a wrong or expired
one is rejected in the handshake. kube-scheduler has no other means of authentication.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final, Literal, TypedDict, TypeGuard

from aiohttp import web

from extender.settings import Clients, Tls

Role = Literal["scheduler", "metrics", "admin"]

# By the path of the route. Verbs are recognised by the name of the route, as their paths are settings.
_PROBES: Final = frozenset({"/livez", "/readyz", "/readyz/{check}", "/healthz"})
_ROLES: Final[Mapping[str, Role]] = {"/metrics": "metrics", "/configz": "admin", "/debug/loglevel": "admin"}
_READING: Final = frozenset({"GET", "HEAD"})

# Forms that hold one text. The others ("othername", "DirName", "Registered ID") hold no text that a list could name.
_PLAIN_FORMS: Final = frozenset({"DNS", "URI", "email", "IP Address"})
_PAIR: Final = 2  # (form, value)
_LONGEST_NAMES: Final = 500  # characters of names in an answer and in the log


class PeerCertificate(TypedDict, total=False):
    """What is read of `ssl.SSLSocket.getpeercert`: groups of (field, value), and (type, value)."""

    subject: tuple[tuple[tuple[str, str], ...], ...]
    subjectAltName: tuple[tuple[object, ...], ...]


class NoCertificate(Exception):  # noqa: N818 (a state, not an error)
    """Raised when a client must show a certificate and shows none."""


class UnknownName(Exception):  # noqa: N818 (as above)
    """Raised when a client's certificate is good, but none of its names has the role that the request needs."""

    def __init__(self, names: str, role: Role) -> None:
        super().__init__(names)
        self.names = names
        self.role = role


class NotLocal(Exception):  # noqa: N818 (as above)
    """Raised when an unauthenticated client requests a change from another machine."""


def check_peer(request: web.Request, tls: Tls) -> None:
    """Raise NoCertificate, UnknownName or NotLocal where the client must not have an answer.

    The kubelet's probes have no certificate, and their answer is no secret. Without a client CA every client that reaches
    the port is answered; only changes of the service are limited to this machine.
    """
    path = _route(request)
    if path in _PROBES and request.method in _READING:
        return
    role: Role | None = "scheduler" if request.match_info.route.name is not None else _ROLES.get(path)
    if not tls.client_ca_file:
        if role == "admin" and request.method not in _READING and not _is_local(request.remote):
            raise NotLocal
        return
    certificate: PeerCertificate | None = request.get_extra_info("peercert")
    if not certificate:
        raise NoCertificate
    if role is not None:
        _check_role(list(names_in(certificate)), role, tls.clients)


def _check_role(names: Sequence[str], role: Role, clients: Clients) -> None:
    """Raise UnknownName unless one of the names has the role; an admin has them all."""
    if not clients.named:
        return
    by_role: Mapping[Role, Sequence[str]] = {"scheduler": clients.scheduler, "metrics": clients.metrics, "admin": ()}
    if not {*by_role[role], *clients.admin}.intersection(names):
        raise UnknownName(_shortened(names), role)


def _route(request: web.Request) -> str:
    """The path as the route was registered with; empty where there is no such route."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


def _is_local(remote: str | None) -> bool:
    """Whether an address is that of this machine's loopback."""
    try:
        address = ip_address(remote or "")
    except ValueError:
        return False
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (inner or address).is_loopback


def names_in(certificate: PeerCertificate) -> Iterator[str]:
    """The common names, then the alternative names of the forms DNS, URI, email and IP address; each once."""
    found = [value for group in certificate.get("subject", ()) for field, value in group if field == "commonName"]
    found += [entry[1] for entry in certificate.get("subjectAltName", ()) if _is_plain(entry)]
    yield from dict.fromkeys(found)


def _is_plain(entry: tuple[object, ...]) -> TypeGuard[tuple[str, str]]:
    """OpenSSL gives a directory name as nested groups, and other forms with more or fewer parts."""
    return len(entry) == _PAIR and entry[0] in _PLAIN_FORMS and isinstance(entry[1], str)


def _shortened(names: Sequence[str]) -> str:
    """The names as text, shortened: a certificate may hold thousands."""
    text = ", ".join(names)
    return text if len(text) <= _LONGEST_NAMES else f"{text[:_LONGEST_NAMES]}…"

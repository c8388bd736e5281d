"""Who asks: the names in a client's certificate, and whether somebody with these names is answered.

OpenSSL has verified the certificate against server.tls.clientCAFile before a request is seen; a wrong or expired one
never gets here. kube-scheduler has no other way to say who it is.
"""

from collections.abc import Iterator
from typing import Final, TypedDict

from aiohttp import web

from extender.settings import Tls

_PROBES: Final = frozenset({"/livez", "/readyz", "/healthz"})
_ONE_CHECK: Final = "/readyz/"


class PeerCertificate(TypedDict, total=False):
    """What is read of `ssl.SSLSocket.getpeercert`: groups of (field, value), and (type, value)."""

    subject: tuple[tuple[tuple[str, str], ...], ...]
    subjectAltName: tuple[tuple[str, str], ...]


class NoCertificate(Exception):  # noqa: N818 (a state, not an error of anybody)
    """Raised when a client must show a certificate and shows none."""


class UnknownName(Exception):  # noqa: N818 (as above)
    """Raised when a client's certificate is good, but its names are not in the list; the text holds them."""


def check_peer(request: web.Request, tls: Tls) -> None:
    """Raise NoCertificate or UnknownName where the client must not have an answer.

    The kubelet's probes bring no certificate, and what they ask is no secret.
    """
    if not tls.client_ca_file or _is_probe(request):
        return
    certificate: PeerCertificate | None = request.get_extra_info("peercert")
    if not certificate:
        raise NoCertificate
    names = list(names_in(certificate))
    if tls.client_names and not set(tls.client_names).intersection(names):
        raise UnknownName(", ".join(names))


def _is_probe(request: web.Request) -> bool:
    return request.method == "GET" and (request.path in _PROBES or request.path.startswith(_ONE_CHECK))


def names_in(certificate: PeerCertificate) -> Iterator[str]:
    """The common names, then the alternative names of every type."""
    for group in certificate.get("subject", ()):
        yield from (value for field, value in group if field == "commonName")
    yield from (value for _, value in certificate.get("subjectAltName", ()))

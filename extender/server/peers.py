"""Who asks: the names in a client's certificate, and whether somebody with these names is answered.

OpenSSL has verified the certificate against server.tls.clientCAFile before a request is seen; a wrong or expired one
never gets here. kube-scheduler has no other way to say who it is.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypedDict, TypeGuard

from aiohttp import web

from extender.settings import Tls

_PROBES: Final = frozenset({"/livez", "/readyz", "/healthz"})
_ONE_CHECK: Final = "/readyz/"
# Forms that hold one text. The others ("othername", "DirName", "Registered ID") name nobody whom a list could name.
_PLAIN_FORMS: Final = frozenset({"DNS", "URI", "email", "IP Address"})
_PAIR: Final = 2  # (form, value)
_LONGEST_NAMES: Final = 500  # characters of names in an answer and in the log


class PeerCertificate(TypedDict, total=False):
    """What is read of `ssl.SSLSocket.getpeercert`: groups of (field, value), and (type, value)."""

    subject: tuple[tuple[tuple[str, str], ...], ...]
    subjectAltName: tuple[tuple[object, ...], ...]


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
        raise UnknownName(_told(names))


def _is_probe(request: web.Request) -> bool:
    return request.method == "GET" and (request.path in _PROBES or request.path.startswith(_ONE_CHECK))


def names_in(certificate: PeerCertificate) -> Iterator[str]:
    """The common names, then the alternative names of the forms DNS, URI, email and IP address; each once."""
    found = [value for group in certificate.get("subject", ()) for field, value in group if field == "commonName"]
    found += [entry[1] for entry in certificate.get("subjectAltName", ()) if _is_plain(entry)]
    yield from dict.fromkeys(found)


def _is_plain(entry: tuple[object, ...]) -> TypeGuard[tuple[str, str]]:
    """OpenSSL gives a directory name as nested groups, and other forms with more or fewer parts."""
    return len(entry) == _PAIR and entry[0] in _PLAIN_FORMS and isinstance(entry[1], str)


def _told(names: Sequence[str]) -> str:
    """The names for people, shortened: a certificate may hold thousands."""
    text = ", ".join(names)
    return text if len(text) <= _LONGEST_NAMES else f"{text[:_LONGEST_NAMES]}…"

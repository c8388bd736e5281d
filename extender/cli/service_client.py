"""Asks a running service over HTTP: its settings, readiness and metrics for `doctor`, explanations and what-ifs. Blocking calls."""

import argparse
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import orjson

from extender.cli.progress import progress
from extender.doctor.certificate_faults import certificate_fault
from extender.doctor.facts import LEADERSHIP, Sample
from extender.doctor.service import EXPIRED_CLIENT, OF_CERTIFICATE, OF_CERTIFICATE_HERE, OTHER_CA, OTHER_CLIENT, Fault
from extender.model.documents import DocumentError
from extender.settings.configuration import Settings, parse_settings
from extender.telemetry.metrics import read_page

_SECONDS: Final = 10.0
_WHAT_IF_SECONDS: Final = 600.0
_UNAUTHORIZED: Final = (401, 403)
_HTTPS: Final = 443
CONFIGZ_NAME: Final = "placement.extender.dev"


class ServiceError(Exception):
    """Raised when the service cannot be read. `check` and `remedy`: for doctor's finding."""

    def __init__(self, check: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.check = check
        self.remedy = remedy


class NoAnswerError(ServiceError):
    """Raised when nothing that the service sent has arrived."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Paths for HTTPS: the trusted CA (empty: the CAs of the system) and the client certificate (empty: none).

    ``checks_name``: whether the server's certificate must have the URL's name. Not behind a port-forward: the URL has a loopback
    address there, and the certificate the name of a Service. A CA of `extender certs` signs no other servers.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    checks_name: bool = True


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service. `readiness` is by check, empty for a pass; `date` is the service's clock in Unix seconds."""

    settings: Settings
    readiness: Mapping[str, str]
    samples: Sequence[Sample]
    date: float | None


def read_service(url: str, trust: Trust) -> ServiceState:
    """Makes three requests. Raises ServiceError."""
    base = url.rstrip("/")
    try:
        configz, sent = _ask(f"{base}/configz", trust)
        page, _ = _ask(f"{base}/metrics", trust)
    except urllib.error.HTTPError as error:
        raise _rejection(error.url, error.code) from None
    try:
        ready, _ = _ask(f"{base}/readyz?verbose", trust)
    except urllib.error.HTTPError as error:  # 503 with the failing checks is an answer
        ready = error.read()
    try:
        settings = parse_settings(orjson.loads(configz)[CONFIGZ_NAME])
        samples = [Sample(name, labels, value) for name, labels, value in read_page(page.decode())]
        checks = _checks(ready.decode())
    except (ValueError, KeyError, TypeError, DocumentError) as error:
        remedy = "check that --url is the address of the extender, and that it has the version of this command"
        raise ServiceError("service", f"{base} has an unexpected answer: {error}", remedy) from None
    return ServiceState(settings, checks, samples, sent)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `Trust`."""
    for name, what in (
        ("ca", "CA of the service's certificate"),
        ("cert", "client certificate of this command"),
        ("key", "key of that certificate"),
    ):
        parser.add_argument(f"--{name}-file", metavar="FILE", default="", help=f"for https: {what}")
    parser.set_defaults(forward="")


def trust_of(arguments: argparse.Namespace) -> Trust:
    """What `add_trust` has added. ``forward``: what the URL leads through, see `extender.cli.kubectl`."""
    forwarded = bool(arguments.forward and arguments.ca_file)
    return Trust(arguments.ca_file, arguments.cert_file, arguments.key_file, checks_name=not forwarded)


def fetch(url: str, trust: Trust, path: str, body: bytes, remedy: str) -> bytes:
    """The answer of the service at this path. Raises ServiceError; ``remedy`` is for an error that the service answers.

    Waits as long as the longest what-if computes, see `whatIf.seconds`.
    """
    base = url.rstrip("/")
    try:
        with progress("waits for the answer of the service"):
            return _ask(f"{base}{path}", trust, body)[0]
    except urllib.error.HTTPError as error:
        try:
            text = str(orjson.loads(error.read())["error"])
        except (ValueError, KeyError, TypeError):
            # The body is not of this service: another program answers at the address.
            raise _rejection(base, error.code) from None
        if error.code in _UNAUTHORIZED:
            remedy = "ask from the machine of the service, or give --cert-file and --key-file"
        raise ServiceError("tls" if error.code in _UNAUTHORIZED else "service", f"{base}: {text}", remedy) from None


def read_answer(url: str, trust: Trust, path: str, most: int) -> bytes:
    """The body at a path, also where it says that the service is not ready (503). At most ``most`` bytes. Raises ServiceError."""
    base = url.rstrip("/")
    try:
        body = _ask(f"{base}{path}", trust, most=most + 1)[0]
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.SERVICE_UNAVAILABLE:
            raise _rejection(base, error.code) from None
        body = error.read(most)
    if len(body) > most:
        raise ServiceError("service", f"{base}{path} has more than {most} bytes", "check that --url is the extender's")
    return body


def _ask(url: str, trust: Trust, body: bytes = b"", most: int = -1) -> tuple[bytes, float | None]:
    """The body of an answer, of at most ``most`` bytes, and the service's clock. Raises HTTPError for another status than 200, ServiceError for the rest."""
    if not url.startswith(("http://", "https://")):
        raise ServiceError("service", f"{url} is not an http or https URL", "write --url http://HOST:PORT")
    context = tls_context(trust) if url.startswith("https:") else None
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        # Only what-ifs and pods of a file have a body, and a what-if may be computed for minutes.
        with _open(url, context, body, headers, _WHAT_IF_SECONDS if body else _SECONDS) as answer:
            date = answer.headers.get("Date", "")
            return answer.read(most), parsedate_to_datetime(date).timestamp() if date else None
    except urllib.error.HTTPError:
        # It is an OSError too, and the caller tells statuses apart.
        raise
    except (OSError, ValueError, HTTPException) as error:  # the last: what answers is no HTTP
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(reason, ssl.SSLError):
            problem = f"the TLS handshake with {url} fails: {reason}"
            raise NoAnswerError("tls", problem, OF_CERTIFICATE_HERE[certificate_fault(str(reason))]) from None
        remedy = "check that it runs, and that --url has its address and port"
        raise NoAnswerError("service", f"{url} cannot be reached: {reason}", remedy) from None


def try_as_scheduler(url: str, name: str, pem: Mapping[str, bytes], end: float | None) -> Fault | None:
    """What is wrong with kube-scheduler's ``ca``, ``cert`` and ``key`` in a call of the service under a name; None if nothing is.

    ``end``: of the client certificate. ``/version`` needs no role. Raises OSError where the service cannot be reached.
    """
    address = urlsplit(url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go, also without names in the subject
    context.hostname_checks_common_name = False
    try:
        context.load_verify_locations(cadata=pem["ca"].decode())
        if pem["cert"]:
            with TemporaryDirectory() as folder:  # OpenSSL reads a pair from files only
                for part in ("cert", "key"):
                    Path(folder, part).write_bytes(pem[part])
                context.load_cert_chain(f"{folder}/cert", f"{folder}/key")
    except (ssl.SSLError, ValueError) as error:
        return Fault(
            f"the files of tlsConfig cannot be used: {error}", "write the CA, a certificate and its key in PEM"
        )
    try:
        with (
            socket.create_connection((address.hostname or "", address.port or _HTTPS), _SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=name) as secured,
        ):
            secured.sendall(f"GET /version HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n\r\n".encode())
            is_answered = bool(secured.recv(1))  # a rejected certificate shows in the first read
    except ssl.SSLCertVerificationError as error:
        fault = certificate_fault(str(error))
        return OTHER_CA if fault is None else OF_CERTIFICATE[fault]
    except (ssl.SSLError, ConnectionResetError):
        is_answered = False
    if is_answered:
        return None
    # The server refuses a client certificate with an alert or a reset. The certificate's own date tells an expired one
    # from a wrong one.
    return EXPIRED_CLIENT if end is not None and end < time.time() else OTHER_CLIENT


def webhook_fault(url: str, authorities: bytes) -> tuple[str, bool]:
    """Why a URL does not lead to an admission webhook, and whether that is certain for every caller. Empty if it does."""
    context = ssl.create_default_context(cadata=authorities.decode("ascii", "replace") or None)
    try:
        _open(url, context, b"", {}, _SECONDS).close()
    except urllib.error.HTTPError as error:
        # The webhook answers an empty GET with an error of its own. Only 404 means that its path is not served.
        return (f"{error.code} Not Found", True) if error.code == HTTPStatus.NOT_FOUND else ("", True)
    except (OSError, ValueError, HTTPException) as error:  # the last: what answers is no HTTP
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        # A timeout or an unknown host may concern only this machine. A refused connection or a wrong certificate
        # concerns all.
        return str(reason), isinstance(reason, ssl.SSLError | ConnectionRefusedError)
    return "", True


def _open(
    url: str, context: ssl.SSLContext | None, body: bytes, headers: dict[str, str], seconds: float
) -> HTTPResponse:
    """Opens an http or https URL. Proxies are ignored, as by the scheduler: a proxy could lead to another service."""
    request = urllib.request.Request(url, body or None, headers)  # noqa: S310 (`_ask` checks it; of webhooks the API server does)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    answer: HTTPResponse = opener.open(request, timeout=seconds)
    return answer


def tls_context(trust: Trust) -> ssl.SSLContext:
    """For connections to the service. Raises ServiceError where the files cannot be used."""
    try:
        context = ssl.create_default_context(cafile=trust.ca_file or None)
        context.check_hostname = trust.checks_name
        if trust.cert_file:
            context.load_cert_chain(trust.cert_file, trust.key_file or None)
    except OSError as error:
        problem, remedy = f"the files for https cannot be used: {error}", "correct --ca-file, --cert-file or --key-file"
        raise ServiceError("tls", problem, remedy) from None
    return context


def _rejection(url: str, status: int) -> ServiceError:
    if status in _UNAUTHORIZED:
        remedy = (
            "give --cert-file and --key-file, signed by server.tls.clientCAFile and named in server.tls.clients.admin"
        )
        return ServiceError("tls", f"{url} answers {status}: it requires a client certificate", remedy)
    return ServiceError("service", f"{url} answers {status}", "check that --url is the address of the extender")


def _checks(text: str) -> dict[str, str]:
    """The lines of `/readyz?verbose`: "[+]pods ok", "[-]pods failed: not listed yet", "[+]leadership ok (standby, ...)".

    The remark of leadership explains why calls are not answered although the pod is ready. Other remarks are no problems.
    """
    checks: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("[+]"):
            name, _, remark = line[3:].partition(" ok")
            checks[name] = remark.strip(" ()") if name == LEADERSHIP else ""
        elif line.startswith("[-]"):
            name, _, problem = line[3:].partition(" failed: ")
            checks[name] = problem or "failed"
    return checks

"""Asks a running service over HTTP: its settings, readiness and metrics for `doctor`, explanations and what-ifs. Blocking calls."""

import argparse
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import orjson

from extender.doctor.facts import Sample
from extender.model.documents import DocumentError
from extender.settings.configuration import Settings, parse_settings
from extender.telemetry.metrics import read_page

_SECONDS: Final = 10.0
_WHAT_IF_SECONDS: Final = 600.0
_UNAUTHORIZED: Final = (401, 403)
_CONFIGZ_NAME: Final = "placement.extender.dev"


class ServiceError(Exception):
    """Raised when the service cannot be read. `check` and `remedy` are those of doctor's finding."""

    def __init__(self, check: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.check = check
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Trust:
    """Paths for HTTPS: the trusted CA (empty: those of the system) and the client certificate (empty: none)."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ServiceState:
    """The state of a service. `readiness` is by check, empty for a pass; `date` is the service's clock in Unix seconds."""

    settings: Settings
    readiness: Mapping[str, str]
    samples: Sequence[Sample]
    date: float | None


@dataclass(frozen=True, slots=True)
class _Answer:
    body: str
    date: str


def read_service(url: str, trust: Trust) -> ServiceState:
    """Makes three requests. Raises ServiceError."""
    base = url.rstrip("/")
    context = _context(base, trust)
    configz = _get(f"{base}/configz", context)
    ready = _get(f"{base}/readyz?verbose", context)
    samples = _samples(_get(f"{base}/metrics", context).body, base)
    settings = _settings(configz.body, base)
    date = parsedate_to_datetime(configz.date).timestamp() if configz.date else None
    return ServiceState(settings, _checks(ready.body), samples, date)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `Trust`."""
    for name, what in (
        ("ca", "CA of the service's certificate"),
        ("cert", "client certificate of this command"),
        ("key", "key of that certificate"),
    ):
        parser.add_argument(f"--{name}-file", metavar="FILE", default="", help=f"for https: {what}")


def fetch(url: str, trust: Trust, path: str, body: bytes, remedy: str) -> bytes:
    """What the service answers at this path. Raises ServiceError, with this remedy for an error that the service answers.

    Waits as long as the longest what-if computes, see `whatIf.seconds`.
    """
    _check_url(url)
    base = url.rstrip("/")
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(f"{base}{path}", body or None, headers)  # noqa: S310 (checked by _check_url)
    try:
        return _open(request, _context(base, trust), _WHAT_IF_SECONDS if body else _SECONDS)[0]
    except urllib.error.HTTPError as error:
        raise _said(error, base, remedy) from None


def _said(error: urllib.error.HTTPError, base: str, remedy: str) -> ServiceError:
    """The error that the service answers, in its own words."""
    try:
        text = str(orjson.loads(error.read())["error"])
    except (ValueError, KeyError, TypeError):
        return _rejection(base, error.code)
    if error.code in _UNAUTHORIZED:
        return ServiceError(
            "tls", f"{base}: {text}", "ask from the machine of the service, or give --cert-file and --key-file"
        )
    return ServiceError("service", f"{base}: {text}", remedy)


def _context(base: str, trust: Trust) -> ssl.SSLContext | None:
    """What https needs; None for http."""
    if not base.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cafile=trust.ca_file or None)
        if trust.cert_file:
            context.load_cert_chain(trust.cert_file, trust.key_file or None)
    except OSError as error:
        raise ServiceError(
            "tls", f"the files for https cannot be used: {error}", "correct --ca-file, --cert-file or --key-file"
        ) from None
    return context


def _get(url: str, context: ssl.SSLContext | None) -> _Answer:
    _check_url(url)
    try:
        body, date = _open(urllib.request.Request(url), context)  # noqa: S310 (checked by _open)
        return _Answer(body.decode(), date)
    except urllib.error.HTTPError as error:
        if "/readyz" in url:  # 503 with the failing checks is an answer
            return _Answer(error.read().decode(), "")
        raise _rejection(url, error.code) from None


def _open(
    request: urllib.request.Request, context: ssl.SSLContext | None, seconds: float = _SECONDS
) -> tuple[bytes, str]:
    """The body of an answer, and its date. Raises HTTPError for another status than 200, ServiceError for the rest."""
    url = request.full_url
    try:
        with _opener(context).open(request, timeout=seconds) as answer:
            return answer.read(), answer.headers.get("Date", "")
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        raise _failure(url, error.reason) from None
    except (OSError, ValueError) as error:
        raise _failure(url, error) from None


def _check_url(url: str) -> None:
    if not url.startswith(("http://", "https://")):
        raise ServiceError("service", f"{url} is not an http or https URL", "write --url http://HOST:PORT")


def _opener(context: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Ignores proxies, as the scheduler does: a proxy could lead to another service."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def _rejection(url: str, status: int) -> ServiceError:
    if status in _UNAUTHORIZED:
        remedy = (
            "give --cert-file and --key-file, signed by server.tls.clientCAFile and named in server.tls.clients.admin"
        )
        return ServiceError("tls", f"{url} answers {status}: it requires a client certificate", remedy)
    return ServiceError("service", f"{url} answers {status}", "check that --url is the address of the extender")


def _failure(url: str, reason: object) -> ServiceError:
    if isinstance(reason, ssl.SSLError):
        remedy = "check that --ca-file signed its certificate, that it has not expired, and that it has the URL's name"
        return ServiceError("tls", f"the TLS handshake with {url} fails: {reason}", remedy)
    remedy = "check that it runs, and that --url has its address and port"
    return ServiceError("service", f"{url} cannot be reached: {reason}", remedy)


def _settings(body: str, base: str) -> Settings:
    try:
        return parse_settings(orjson.loads(body)[_CONFIGZ_NAME])
    except (ValueError, KeyError, TypeError, DocumentError) as error:
        raise _unexpected_answer(base, error) from None


def _samples(body: str, base: str) -> list[Sample]:
    try:
        return [Sample(name, labels, value) for name, labels, value in read_page(body)]
    except ValueError as error:
        raise _unexpected_answer(base, error) from None


def _unexpected_answer(base: str, error: Exception) -> ServiceError:
    remedy = "check that --url is the address of the extender, and that it has the version of this command"
    return ServiceError("service", f"{base} has an unexpected answer: {error}", remedy)


def _checks(text: str) -> dict[str, str]:
    """The lines of `/readyz?verbose`: "[+]pods ok", "[-]pods failed: not listed yet"."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("[+]"):
            found[line[3:].split(" ")[0]] = ""
        elif line.startswith("[-]"):
            name, _, problem = line[3:].partition(" failed: ")
            found[name] = problem or "failed"
    return found

"""HTTPS, on two ports: certificates from the files of server.tls, which are replaced when they change, and the webhook's from memory.

1. A socket keeps the context with which it was opened. The SNI callback switches each handshake to the newest context. OpenSSL calls
   it also where the client names no server (an IP address in the URL).
2. So a new certificate, key or client CA applies to every new connection, and open connections continue.
3. Each change makes a new context, because loading files into the old one could not remove a CA from it.
4. The files are checked before they are used. Errors name the setting and the file. `request_checks` decides what a client may
   request.
"""

import logging
import os
import ssl
import stat
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final, Never

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from extender.certificates.rotation import CertificateError, ServingPair, certificates_in
from extender.kube.timing import Clock
from extender.settings.connections import Tls

_LOG = logging.getLogger(__name__)
_POLL_SECONDS: Final = 5.0  # a renewed Secret takes a minute to reach the files; these seconds add little
_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
SERVER: Final = "server"
CLIENT_CA: Final = "client_ca"
_CERT_FILE: Final = "server.tls.certFile"
_KEY_FILE: Final = "server.tls.keyFile"
_CLIENT_CA_FILE: Final = "server.tls.clientCAFile"
_MISSING: Final = "there is none yet"


class TLSFileProblem(StrEnum):
    """Why files of server.tls cannot be used; a label of a metric."""

    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    PASSWORD = "password"  # noqa: S105 (names a cause)
    MISMATCH = "mismatch"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    NO_AUTHORITY = "no_authority"
    REJECTED = "rejected"


_USABLE: Final[Mapping[str, float]] = dict.fromkeys(TLSFileProblem, 0.0)


class TlsError(Exception):
    """Raised when a file of server.tls cannot be used; the text begins with the setting and the file."""

    def __init__(self, cause: TLSFileProblem, text: str) -> None:
        super().__init__(text)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Material:
    """The content of the files as it was at one moment; `client_ca` is empty where clients are not verified."""

    cert: bytes
    key: bytes
    client_ca: bytes


def read_material(tls: Tls) -> Material:
    """The files as they are now: three small reads. Raises TlsError."""
    client_ca = _read(_CLIENT_CA_FILE, tls.client_ca_file) if tls.client_ca_file else b""
    return Material(_read(_CERT_FILE, tls.cert_file), _read(_KEY_FILE, tls.key_file), client_ca)


def check_material(material: Material, tls: Tls, now: datetime) -> Mapping[str, datetime]:
    """By name the end of each certificate. Raises TlsError for files with which clients, or their certificates, would be rejected."""
    place = f"{_CERT_FILE} {tls.cert_file}"
    leaf = _certificates(material.cert, place)[0]  # what follows it is the chain to the CA
    _check_key(material.key, leaf, tls)
    _check_time(leaf, place, now)
    ends = {SERVER: leaf.not_valid_after_utc}
    if material.client_ca:
        ends[CLIENT_CA] = _check_authorities(material.client_ca, f"{_CLIENT_CA_FILE} {tls.client_ca_file}", now)
    return ends


def readable_by_all(path: str) -> bool:
    """Whether every account of the machine may read a file. False where that is unknown."""
    try:
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsError(TLSFileProblem.UNREADABLE, f"{setting} {path}: {error.strerror}") from None


def _certificates(pem: bytes, place: str) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise TlsError(TLSFileProblem.MALFORMED, f"{place}: holds no certificate in PEM form") from None


def _check_key(pem: bytes, leaf: x509.Certificate, tls: Tls) -> None:
    """Checks that key and certificate belong together. The most common mistake: one of the files is from before a renewal."""
    place = f"{_KEY_FILE} {tls.key_file}"
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise TlsError(
            TLSFileProblem.PASSWORD, f"{place}: is protected by a password, which a service cannot ask for"
        ) from None
    except ValueError:
        raise TlsError(TLSFileProblem.MALFORMED, f"{place}: holds no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise TlsError(
            TLSFileProblem.MISMATCH, f"{place}: is not the key of the certificate in {_CERT_FILE} {tls.cert_file}"
        )


def _check_time(certificate: x509.Certificate, place: str, now: datetime) -> None:
    if now > certificate.not_valid_after_utc:
        raise TlsError(
            TLSFileProblem.EXPIRED,
            f'{place}: certificate "{_title(certificate)}" expired on {certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}',
        )
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise TlsError(
            TLSFileProblem.NOT_YET_VALID, f'{place}: certificate "{_title(certificate)}" is not valid before {begin}'
        )


def _check_authorities(pem: bytes, place: str, now: datetime) -> datetime:
    """The end of the authority that expires first, of the authorities that are valid now.

    During a rotation the file has the old and the new authority. The old one may have expired already, which has no effect.
    """
    certificates = _certificates(pem, place)
    authorities = [certificate for certificate in certificates if _is_authority(certificate)]
    if not authorities:
        raise TlsError(
            TLSFileProblem.NO_AUTHORITY,
            f'{place}: certificate "{_title(certificates[0])}" is not a CA certificate (basicConstraints)',
        )
    valid = [
        authority for authority in authorities if authority.not_valid_before_utc <= now <= authority.not_valid_after_utc
    ]
    if not valid:
        _check_time(authorities[-1], place, now)
    return min(authority.not_valid_after_utc for authority in valid)


def _is_authority(certificate: x509.Certificate) -> bool:
    """Certificates of version 1 have no extensions and may stand for an authority."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return certificate.version is x509.Version.v1


def _title(certificate: x509.Certificate) -> str:
    """The common name, else the whole subject."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string()


def _now() -> datetime:
    return datetime.now(UTC)


class ServerTls:
    """The TLS side of the socket. `context` is for listening; `ends` and `reloads` are for metrics.

    Raises TlsError when the files cannot be used. `reloads` counts by "succeeded" and "failed"; `unusable` has 1 for
    the cause for which the files on disk cannot be used now, and 0 for all others.
    """

    def __init__(self, tls: Tls, now: Callable[[], datetime] = _now) -> None:
        self.reloads: Counter[str] = Counter({"succeeded": 0, "failed": 0})
        self._tls = tls
        self._now = now
        self.unusable: Mapping[str, float] = _USABLE
        self._problem = ""
        self._load()
        self.context = _context_of(tls)
        self.context.sni_callback = self._switch_context

    @property
    def ends(self) -> Mapping[str, float]:
        """By name of the certificate, the Unix time at which it expires."""
        return {name: end.timestamp() for name, end in self._ends.items()}

    def reload(self) -> None:
        """Loads the files if they have changed. Unusable files are logged once, and the old ones stay in use."""
        try:
            changed = read_material(self._tls) != self._material
            if changed:
                self._load()
        except TlsError as error:
            self._keep_old(error)
            return
        self._problem, self.unusable = "", _USABLE
        if changed:
            self.reloads["succeeded"] += 1
            ends = {name: end.isoformat() for name, end in self._ends.items()}
            _LOG.info("certificates read again", extra={"expire": ends})

    async def follow(self, clock: Clock) -> None:
        """Polls the files until cancelled, by content: a mounted Secret changes by a link, whose times do not change."""
        while True:
            await clock.sleep(_POLL_SECONDS)
            self.reload()

    def _load(self) -> None:
        """Loads the files. Raises TlsError, and then nothing has changed."""
        material = read_material(self._tls)
        ends = check_material(material, self._tls, self._now())
        context = _context_of(self._tls)
        # OpenSSL reads the files again. If they were replaced meanwhile, the context may hold files that were not checked, or a key
        # and a certificate of two renewals: the next poll tries again.
        if read_material(self._tls) != material:
            raise TlsError(
                TLSFileProblem.MISMATCH, f"server.tls.certFile {self._tls.cert_file}: changed while it was read"
            )
        self._material, self._ends, self._current = material, ends, context
        if readable_by_all(self._tls.key_file):
            _LOG.warning("every account of this machine may read the private key", extra={"file": self._tls.key_file})

    def _keep_old(self, error: TlsError) -> None:
        """Counts and logs a failure once, however often the same files are polled."""
        problem, self.unusable = str(error), {**_USABLE, error.cause: 1.0}
        if problem != self._problem:
            self.reloads["failed"] += 1
            _LOG.error("the old certificates stay in use", extra={"problem": problem})
        self._problem = problem

    def _switch_context(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by OpenSSL in each handshake, before a certificate is chosen."""
        handshake.context = self._current


def _new_context(least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = least
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _context_of(tls: Tls) -> ssl.SSLContext:
    """A context for servers. Raises TlsError for what only OpenSSL objects to, such as a key that is too short."""
    context = _new_context(_VERSIONS[tls.min_version])
    # No tickets, because a resumed session would continue under the CA of its first handshake, although the file has changed. (TLS
    # 1.2 keeps sessions for five minutes without tickets too, which Python cannot switch off.)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_reject_password)
        if tls.client_ca_file:
            # Optional, as probes of the kubelet bring no certificate; `peers` rejects all others without one.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(tls.client_ca_file)
    except OSError as error:  # also every ssl.SSLError
        raise TlsError(TLSFileProblem.REJECTED, f"server.tls.certFile {tls.cert_file}: {error}") from None
    return context


def _reject_password() -> Never:
    """Without this callback OpenSSL would ask at the terminal."""
    raise TlsError(
        TLSFileProblem.PASSWORD, "server.tls.keyFile: is protected by a password, which a service cannot ask for"
    )


class WebhookTls:
    """The TLS side of the webhook's socket. ``context``: for listening. ``use``: replaces the certificate for later handshakes.

    With ``client_ca_file`` clients may show a certificate of that CA; probes of the kubelet have none.
    """

    def __init__(self, client_ca_file: str = "", now: Callable[[], datetime] = _now) -> None:
        self._now = now
        self._client_ca_file = client_ca_file
        self._client_ca = b""
        self._pair: ServingPair | None = None
        self.context = self._current = (
            self._made()
        )  # a handshake requests the client's certificate by the context with which it began
        self.context.sni_callback = self._switch_context

    @property
    def is_ready(self) -> bool:
        """Whether a certificate is served that is valid now."""
        return self._pair is not None and not self._pair.problem(self._now())

    @property
    def is_stale(self) -> bool:
        """Always False: a certificate is valid or not, and never just too old."""
        return False

    def checks(self) -> Mapping[str, str]:
        """The readiness check of the certificate."""
        problem = _MISSING if self._pair is None else self._pair.problem(self._now())
        return {"webhook certificate": problem}

    @property
    def ends(self) -> Mapping[str, float]:
        """The Unix time at which the certificate expires."""
        return {} if self._pair is None else {"serving": self._pair.end.timestamp()}

    def use(self, pair: ServingPair) -> None:
        """Serves this pair, with the present client CA. Raises CertificateError where OpenSSL refuses them; then the old ones stay."""
        client_ca = self._read_client_ca()
        if pair == self._pair and client_ca == self._client_ca:
            return
        context = self._made()
        if client_ca:
            context.load_verify_locations(cadata=client_ca.decode("ascii", "replace"))
        with _as_file(pair.certificate_pem + b"\n" + pair.key_pem) as path:
            try:
                context.load_cert_chain(path)
            except OSError as error:  # also every ssl.SSLError
                raise CertificateError(str(error)) from None
        self._pair, self._client_ca, self._current = pair, client_ca, context
        _LOG.info("the webhook has a certificate", extra={"expires": pair.end.isoformat()})

    def _made(self) -> ssl.SSLContext:
        context = _new_context()
        if self._client_ca_file:
            context.num_tickets = 0
            context.options |= ssl.OP_NO_TICKET  # see `_context_of`
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _read_client_ca(self) -> bytes:
        """The authorities of clients, empty where none are asked for. Raises CertificateError."""
        if not self._client_ca_file:
            return b""
        place = f"policies.webhook.clientCAFile {self._client_ca_file}"
        try:
            pem = Path(self._client_ca_file).read_bytes()
            certificates_in(pem)
        except OSError as error:
            raise CertificateError(f"{place}: {error.strerror}") from None
        except CertificateError as error:
            raise CertificateError(f"{place}: {error}") from None
        return pem

    def _switch_context(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by OpenSSL in each handshake, before a certificate is chosen."""
        handshake.context = self._current


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path that OpenSSL can read, which accepts no bytes. On Linux the content stays in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("webhook-tls")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.TemporaryDirectory() as folder:  # only its owner may enter it
        path = Path(folder, "tls.pem")
        path.write_bytes(content)
        yield str(path)

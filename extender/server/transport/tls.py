"""HTTPS: builds a context from the files of server.tls, and replaces it when the files change.

The socket keeps the context that it was opened with; the SNI callback switches each handshake to the newest one. OpenSSL
calls it also where the client names no server (an IP address in the URL). So a new certificate, key or client CA applies
to every new connection, and open connections continue. A CA that was removed from the file disappears with the old
context; loading into the same context could not remove it.

`peers` decides what a client may request.
"""

import logging
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Never

from extender.kube.timing import Clock
from extender.server.transport.certificates import Cause, TlsError, check_material, read_material, readable_by_all
from extender.settings.connections import Tls

_LOG = logging.getLogger(__name__)
_POLL_SECONDS: Final = 5.0  # a renewed Secret takes a minute to reach the files; these seconds add little
_USABLE: Final[Mapping[str, float]] = dict.fromkeys(Cause, 0.0)
_VERSIONS: Final = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


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
        if read_material(self._tls) != material:  # the context is built from the files, not from what was checked
            raise TlsError(Cause.MISMATCH, f"server.tls.certFile {self._tls.cert_file}: changed while it was read")
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


def _context_of(tls: Tls) -> ssl.SSLContext:
    """A context for servers. Raises TlsError for what only OpenSSL objects to, such as a key that is too short."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    # A resumed session would continue under the CA of its first handshake, although the file has changed. (TLS 1.2 keeps
    # sessions for five minutes without a ticket, which Python cannot switch off.)
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password=_reject_password)
        if tls.client_ca_file:
            # Optional, as probes of the kubelet bring no certificate; `peers` rejects all others without one.
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(tls.client_ca_file)
    except OSError as error:  # also every ssl.SSLError
        raise TlsError(Cause.REJECTED, f"server.tls.certFile {tls.cert_file}: {error}") from None
    return context


def _reject_password() -> Never:
    """Without this callback OpenSSL would ask at the terminal."""
    raise TlsError(Cause.PASSWORD, "server.tls.keyFile: is protected by a password, which a service cannot ask for")

"""The TLS side of the webhook's port: a certificate that comes from memory and is exchanged while connections go on.

As in `tls`, the socket keeps its context and the SNI callback gives each handshake the newest one. Until there is a
certificate a handshake fails. API servers show no certificate of their own unless they are configured to, so none is asked for.
"""

import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from extender.certificates.rotation import CertificateError, ServingPair

_LOG = logging.getLogger(__name__)
_MISSING: Final = "there is none yet"


def _now() -> datetime:
    return datetime.now(UTC)


class WebhookTls:
    """``context`` is for listening. ``use`` exchanges the certificate for all handshakes from then on."""

    def __init__(self, now: Callable[[], datetime] = _now) -> None:
        self._now = now
        self._pair: ServingPair | None = None
        self.context = self._current = _new_context()
        self.context.sni_callback = self._switch_context

    @property
    def is_ready(self) -> bool:
        """Whether a certificate is served that is valid now."""
        return self._pair is not None and not self._pair.problem(self._now())

    @property
    def is_stale(self) -> bool:
        """A certificate is never only old: it is valid or not."""
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
        """Serve this one. Raises CertificateError where OpenSSL refuses it; then the old one stays."""
        if pair == self._pair:
            return
        context = _new_context()
        with _as_file(pair.certificate_pem + b"\n" + pair.key_pem) as path:
            try:
                context.load_cert_chain(path)
            except OSError as error:  # also every ssl.SSLError
                raise CertificateError(str(error)) from None
        self._pair, self._current = pair, context
        _LOG.info("the webhook has a certificate", extra={"expires": pair.end.isoformat()})

    def _switch_context(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by OpenSSL in each handshake, before a certificate is chosen."""
        handshake.context = self._current


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


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

"""The webhook's own certificates and their rotation, one step at a time. Values only; `tasks.webhook` reads and writes them.

Each serving certificate has an authority of its own. The authority's key is dropped after this one signature, so nothing else can be
signed with it. At every moment each replica serves a certificate that each API server trusts, because a rotation has these steps:

1. *prepared*, at two thirds of life: the bundle has the new authority beside the old one. The new certificate is kept and not served.
2. The webhook configurations get the bundle (`tasks.webhook.keeper`).
3. *switched*, after every API server has had time to read the bundle: the new certificate is served. A replica that has not read it
   yet serves the old one, whose authority is still in the bundle.
4. *pruned*: the old authority has expired and leaves the bundle.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from extender.certificates.authority import SERVER, Authority

Step = Literal["made", "prepared", "switched", "pruned"]

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
NEXT_CERTIFICATE: Final = "next.crt"
NEXT_KEY: Final = "next.key"
BUNDLE: Final = "ca.crt"

_NAME: Final = "placement-extender-webhook"
_DAY: Final = timedelta(days=1)


class CertificateError(ValueError):
    """A certificate or a key that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class ServingPair:
    """A certificate and its key in PEM; ``certificate`` is the parsed one. Checked to belong together."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    certificate: x509.Certificate = field(repr=False, compare=False)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> ServingPair:
        """Raises CertificateError."""
        leaf = certificates_in(certificate_pem)[0]  # what follows it is the chain to the authority
        try:
            key = load_pem_private_key(key_pem, password=None)
        except TypeError:
            raise CertificateError("the private key is protected by a password") from None
        except ValueError:
            raise CertificateError("no private key in PEM form") from None
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if key.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
            raise CertificateError("the private key does not belong to the certificate")
        return cls(certificate_pem, key_pem, leaf)

    @property
    def end(self) -> datetime:
        """When it expires."""
        return self.certificate.not_valid_after_utc

    def problem(self, now: datetime) -> str:
        """Why it cannot be used now; empty where it can."""
        if now > self.end:
            return f"expired on {self.end:%Y-%m-%dT%H:%M:%SZ}"
        begin = self.certificate.not_valid_before_utc
        return f"not valid before {begin:%Y-%m-%dT%H:%M:%SZ}" if now < begin else ""

    def is_for(self, names: Iterable[str]) -> bool:
        """Whether the certificate has all of these host names and addresses."""
        try:
            alternatives = self.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return False
        return set(names) <= {str(name.value) for name in alternatives}


@dataclass(frozen=True, slots=True)
class Certificates:
    """The kept certificates: the served pair, the prepared pair (``waiting``), and the authorities that API servers must trust."""

    serving: ServingPair | None = None
    waiting: ServingPair | None = None
    authorities: tuple[x509.Certificate, ...] = ()

    @property
    def bundle(self) -> bytes:
        """The authorities in PEM, the oldest first."""
        return b"".join(authority.public_bytes(Encoding.PEM) for authority in self.authorities)

    def data(self) -> dict[str, bytes]:
        """The data of a Secret. `read_certificates` reads it."""
        data = {BUNDLE: self.bundle} if self.authorities else {}
        for pair, certificate, key in ((self.serving, CERTIFICATE, KEY), (self.waiting, NEXT_CERTIFICATE, NEXT_KEY)):
            if pair is not None:
                data |= {certificate: pair.certificate_pem, key: pair.key_pem}
        return data


def read_certificates(data: Mapping[str, bytes]) -> Certificates:
    """The certificates from the data of a Secret. A part that cannot be used is left out, so `next_step` makes it again."""
    try:
        authorities = tuple(certificates_in(data[BUNDLE])) if data.get(BUNDLE) else ()
    except CertificateError:
        authorities = ()
    return Certificates(_pair(data, CERTIFICATE, KEY), _pair(data, NEXT_CERTIFICATE, NEXT_KEY), authorities)


def next_step(
    known: Certificates, now: datetime, names: Sequence[str], lifetime: timedelta, trusted: bytes
) -> tuple[Step, Certificates] | None:
    """The step to take now, and the certificates after it. None where nothing has to be done.

    ``names``: the names by which the API server calls the webhook. ``trusted``: the bundle that every API server has by now.
    """
    # An expired authority verifies nothing, so it leaves the bundle with any step.
    kept = tuple(authority for authority in known.authorities if now <= authority.not_valid_after_utc)
    serving = known.serving if _is_usable(known.serving, kept, now, names) else None
    waiting = known.waiting if _is_usable(known.waiting, kept, now, names) else None
    # Nothing usable is served (expired, other names, the Secret was damaged): at once, as API servers trust nothing anyway.
    if serving is None and waiting is not None:
        return "switched", Certificates(waiting, None, kept)
    if serving is None:
        made, authority = _make(now, names, lifetime)
        return "made", Certificates(made, None, (*kept, authority))
    # A rotation. It switches only after every API server has the bundle with the new authority (``trusted``).
    # Of 90 days the new pair is prepared on day 60.
    if waiting is None and now >= serving.end - lifetime / 3:
        made, authority = _make(now, names, lifetime)
        return "prepared", Certificates(serving, made, (*kept, authority))
    if waiting is not None and _has_issuer(waiting, _readable(trusted)):
        return "switched", Certificates(waiting, None, kept)
    return ("pruned", Certificates(serving, waiting, kept)) if len(kept) < len(known.authorities) else None


def certificates_in(pem: bytes) -> Sequence[x509.Certificate]:
    """All certificates of a file. Raises CertificateError where there is none."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise CertificateError("no certificate in PEM form") from None


def is_verified(certificate: bytes, bundle: bytes) -> bool:
    """Whether an authority of the bundle has signed the certificate. Both are PEM; False where one of them cannot be read."""
    authorities = _readable(bundle)
    # The first certificate is the leaf, and what follows is its chain.
    return any(_has_signed(authority, leaf) for leaf in _readable(certificate)[:1] for authority in authorities)


def last_day(pem: bytes) -> float | None:
    """The end of the first certificate in PEM, in Unix seconds; None where none can be read."""
    return next((certificate.not_valid_after_utc.timestamp() for certificate in _readable(pem)), None)


def _readable(pem: bytes) -> Sequence[x509.Certificate]:
    try:
        return certificates_in(pem)
    except CertificateError:
        return ()


def _pair(data: Mapping[str, bytes], certificate: str, key: str) -> ServingPair | None:
    try:
        return ServingPair.load(data[certificate], data[key])
    except (KeyError, CertificateError):
        return None


def _is_usable(
    pair: ServingPair | None, authorities: Sequence[x509.Certificate], now: datetime, names: Sequence[str]
) -> bool:
    """Whether the API server would accept the pair under these names, with these authorities."""
    return pair is not None and not pair.problem(now) and pair.is_for(names) and _has_issuer(pair, authorities)


def _has_issuer(pair: ServingPair, authorities: Iterable[x509.Certificate]) -> bool:
    return any(_has_signed(authority, pair.certificate) for authority in authorities)


def _has_signed(authority: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _make(now: datetime, names: Sequence[str], lifetime: timedelta) -> tuple[ServingPair, x509.Certificate]:
    """A new pair and its authority. The authority's key is dropped here."""
    days = lifetime / _DAY
    # A name of its own: some verifiers look for the issuer by its name alone.
    authority = Authority.make(f"{_NAME} {now:%Y-%m-%dT%H:%M:%SZ} {secrets.token_hex(4)}", now, days)
    made = authority.issue(_NAME, now, days, SERVER, names)
    pair = ServingPair(made.certificate_pem, made.key_pem, made.certificate)
    return pair, authority.pair.certificate

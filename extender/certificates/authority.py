"""A private certificate authority and the certificates that it signs, for `extender certs` and the webhook. No I/O.

Keys are on P-256, which every TLS 1.2 client supports. The extensions are what strict verifiers require (RFC 5280, as checked by
OpenSSL's X509_STRICT and by Go).
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_SKEW: Final = timedelta(minutes=5)  # the clock of the peer may be behind


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate in PEM form, for a certFile or a caFile."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key in PEM form without a password, for a keyFile."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates. Clients and servers must trust `pair.certificate`."""

    pair: Pair

    @classmethod
    def make(cls, name: str, now: datetime, days: float) -> Self:
        """Creates a self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        draft = _draft(name, key, now, now + timedelta(days=days)).issuer_name(_subject(name))
        # path_length 0: the certificates that it signs cannot sign others.
        draft = draft.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        draft = draft.add_extension(_usage(signs=True), critical=True)
        return cls(Pair(draft.sign(key, SHA256()), key))

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Loads an authority. Raises ValueError if the key belongs to another certificate, or is not of the type that `make` creates."""
        certificate, key = x509.load_pem_x509_certificate(certificate_pem), load_pem_private_key(key_pem, None)
        # In the encoded form, which keys of every type have: a file may have a key of another type.
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        fits = key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
        if not fits or not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key does not belong to the certificate")
        return cls(Pair(certificate, key))

    @property
    def end(self) -> datetime:
        """When it expires. No certificate that it signs is valid for longer."""
        return self.pair.certificate.not_valid_after_utc

    def issue(
        self, name: str, now: datetime, days: float, use: x509.ObjectIdentifier, names: Iterable[str] = ()
    ) -> Pair:
        """Issues a certificate for a common name and, for servers, the host names and addresses in `names`."""
        key = ec.generate_private_key(ec.SECP256R1())
        # Not longer than the authority: after its end the certificate would fail verification, although it looks valid.
        issuer, end = self.pair.certificate, min(now + timedelta(days=days), self.end)
        draft = _draft(name, key, now, end).issuer_name(issuer.subject)
        draft = draft.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        draft = draft.add_extension(_usage(signs=False), critical=True)
        draft = draft.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.pair.key.public_key())
        draft = draft.add_extension(identifier, critical=False)
        if alternatives := [_alternative(text) for text in names]:
            draft = draft.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return Pair(draft.sign(self.pair.key, SHA256()), key)


def _draft(name: str, key: ec.EllipticCurvePrivateKey, now: datetime, end: datetime) -> x509.CertificateBuilder:
    draft = x509.CertificateBuilder().subject_name(_subject(name)).public_key(key.public_key())
    draft = draft.serial_number(x509.random_serial_number())
    # `end` is in the past if the authority has expired, and the builder refuses an end before the beginning.
    draft = draft.not_valid_before(min(now - _SKEW, end - _SKEW)).not_valid_after(end)
    return draft.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    # An ECDSA key only signs; encipherment of keys is for RSA.
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(text: str) -> x509.GeneralName:
    """An address or a DNS name: verifiers compare addresses only with entries of that type."""
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)

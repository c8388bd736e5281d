"""Reads and checks the files of server.tls before they are used; errors name the setting and the file.

`tls` builds contexts from the files that pass here.
"""

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from extender.settings.connections import Tls

SERVER: Final = "server"
CLIENT_CA: Final = "client_ca"
_CERT_FILE: Final = "server.tls.certFile"
_KEY_FILE: Final = "server.tls.keyFile"
_CLIENT_CA_FILE: Final = "server.tls.clientCAFile"


class Cause(StrEnum):
    """Why files of server.tls cannot be used; a label of a metric."""

    UNREADABLE = "unreadable"
    MALFORMED = "malformed"
    PASSWORD = "password"  # noqa: S105 (names a cause)
    MISMATCH = "mismatch"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    NO_AUTHORITY = "no_authority"
    REJECTED = "rejected"


class TlsError(Exception):
    """Raised when a file of server.tls cannot be used; the text begins with the setting and the file."""

    def __init__(self, cause: Cause, text: str) -> None:
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
    """By name of the certificate the moment at which it ends. Raises TlsError when clients would reject it, or it them."""
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
        raise TlsError(Cause.UNREADABLE, f"{setting} {path}: {error.strerror}") from None


def _certificates(pem: bytes, place: str) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise TlsError(Cause.MALFORMED, f"{place}: holds no certificate in PEM form") from None


def _check_key(pem: bytes, leaf: x509.Certificate, tls: Tls) -> None:
    """The most common mistake: one of the two files is from before the renewal."""
    place = f"{_KEY_FILE} {tls.key_file}"
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        raise TlsError(Cause.PASSWORD, f"{place}: is protected by a password, which a service cannot ask for") from None
    except ValueError:
        raise TlsError(Cause.MALFORMED, f"{place}: holds no private key in PEM form") from None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if key.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        raise TlsError(Cause.MISMATCH, f"{place}: is not the key of the certificate in {_CERT_FILE} {tls.cert_file}")


def _check_time(found: x509.Certificate, place: str, now: datetime) -> None:
    if now > found.not_valid_after_utc:
        raise TlsError(
            Cause.EXPIRED,
            f'{place}: certificate "{_title(found)}" expired on {found.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}',
        )
    if now < found.not_valid_before_utc:
        begin = f"{found.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}"
        raise TlsError(Cause.NOT_YET_VALID, f'{place}: certificate "{_title(found)}" is not valid before {begin}')


def _check_authorities(pem: bytes, place: str, now: datetime) -> datetime:
    """When the first authority that is valid now ends.

    During a rotation the old one stands beside the new, and its expiry has no effect once it has passed.
    """
    found = _certificates(pem, place)
    authorities = [certificate for certificate in found if _is_authority(certificate)]
    if not authorities:
        raise TlsError(
            Cause.NO_AUTHORITY,
            f'{place}: certificate "{_title(found[0])}" is not that of an authority (basicConstraints)',
        )
    valid = [one for one in authorities if one.not_valid_before_utc <= now <= one.not_valid_after_utc]
    if not valid:
        _check_time(authorities[-1], place, now)
    return min(one.not_valid_after_utc for one in valid)


def _is_authority(found: x509.Certificate) -> bool:
    """Certificates of version 1 have no extensions and may stand for an authority."""
    try:
        return found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return found.version is x509.Version.v1


def _title(found: x509.Certificate) -> str:
    """The common name, else the whole subject."""
    names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else found.subject.rfc4514_string()

"""The certificates of an installation in Secrets, and which of them are made again now. Values only; `cli.certificate_secrets` reads and writes.

The authority is a Secret of its own, which no pod mounts. Each other Secret has a certificate, its key, and the authorities that the
holder trusts. A certificate is made again in the last third of its life, so that its holder has weeks of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.certificates.rotation import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    CertificateError,
    ServingPair,
    certificates_in,
    is_verified,
)

AUTHORITY: Final = "authority"
SERVING: Final = "tls"
AUTHORITY_DAYS: Final = 3650.0

Data = Mapping[str, bytes]  # of a Secret, decoded


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the certificates are to say: the names of the server, the common name of each client by its part, and their days of life."""

    server_names: Sequence[str]
    clients: Mapping[str, str]
    days: float


def renewed(secrets: Mapping[str, Data], wanted: Wanted, now: datetime) -> dict[str, Data]:
    """The parts whose data change, with all of their data. ``secrets``: the present data by part, `AUTHORITY` and `SERVING` among them."""
    changes: dict[str, Data] = {}
    kept = secrets.get(AUTHORITY, {})
    authority = _authority(kept, now + timedelta(days=wanted.days))
    bundle = kept.get(BUNDLE, b"")
    if authority is None:
        authority = Authority.make("placement-extender", now, AUTHORITY_DAYS)
        # The earlier authority stays trusted: its certificates are in use until each holder has read the new ones.
        bundle = authority.pair.certificate_pem + _unexpired(kept.get(CERTIFICATE, b""), now)
        pair = authority.pair
        changes[AUTHORITY] = {CERTIFICATE: pair.certificate_pem, KEY: pair.key_pem, BUNDLE: bundle}
    common_names = {SERVING: wanted.server_names[0], **wanted.clients}
    for part, name in common_names.items():
        names = wanted.server_names if part == SERVING else ()
        data = secrets.get(part, {})
        if data.get(BUNDLE) == bundle and _is_fresh(data, authority, name, names, now):
            continue
        made = authority.issue(name, now, wanted.days, SERVER if part == SERVING else CLIENT, names)
        changes[part] = {CERTIFICATE: made.certificate_pem, KEY: made.key_pem, BUNDLE: bundle}
    return changes


def _authority(data: Data, needed_until: datetime) -> Authority | None:
    """The kept authority; None where it cannot be used or ends before the certificates that it would sign now."""
    try:
        authority = Authority.load(data[CERTIFICATE], data[KEY])
    except (KeyError, ValueError, TypeError):
        return None
    return authority if authority.end > needed_until and data.get(BUNDLE) else None


def _unexpired(pem: bytes, now: datetime) -> bytes:
    try:
        (certificate,) = certificates_in(pem)
    except ValueError:
        return b""
    return pem if certificate.not_valid_after_utc > now else b""


def _is_fresh(data: Data, authority: Authority, name: str, names: Sequence[str], now: datetime) -> bool:
    try:
        pair = ServingPair.load(data[CERTIFICATE], data[KEY])
    except (KeyError, CertificateError):
        return False
    certificate = pair.certificate
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    # A certificate that another tool has put there may have none.
    common_names = [each.value for each in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return (
        is_verified(pair.certificate_pem, authority.pair.certificate_pem)
        and common_names[:1] == [name]
        and (not names or pair.is_for(names))
        and now < certificate.not_valid_after_utc - life / 3
    )

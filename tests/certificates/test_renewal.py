"""Which certificates of an installation are made again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from extender.certificates.authority import Pair
from extender.certificates.renewal import AUTHORITY, SERVING, Wanted, renewed
from extender.certificates.rotation import CERTIFICATE, KEY

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WANTED = Wanted(["placement-extender.ns.svc"], {"client": "system:kube-scheduler"}, 90.0)


def test_what_is_fresh_stays() -> None:
    made = renewed({}, WANTED, NOW)
    assert set(made) == {AUTHORITY, SERVING, "client"}
    assert renewed(made, WANTED, NOW + timedelta(days=1)) == {}
    assert set(renewed(made, WANTED, NOW + timedelta(days=61))) == {SERVING, "client"}


def test_a_certificate_without_a_common_name_is_made_again() -> None:
    """Any tool may have written the Secret before."""
    key, nobody = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    draft = x509.CertificateBuilder().subject_name(nobody).issuer_name(nobody).public_key(key.public_key())
    draft = draft.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + timedelta(days=90))
    pair = Pair(draft.sign(key, SHA256()), key)
    made = dict(renewed({}, WANTED, NOW))
    made["client"] = {**made["client"], CERTIFICATE: pair.certificate_pem, KEY: pair.key_pem}
    assert set(renewed(made, WANTED, NOW)) == {"client"}

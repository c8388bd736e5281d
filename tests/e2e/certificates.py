"""What kube-apiserver needs to be spoken to over TLS: an authority of our own, its certificate, a key to sign tokens.

Made for each control plane anew, and valid for a day.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from extender.certificates.authority import SERVER, Authority

AUTHORITY, CERTIFICATE, KEY = "ca.crt", "server.crt", "server.key"
TOKEN_KEY, TOKEN_PUBLIC_KEY = "tokens.key", "tokens.pub"
_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc")


def write_certificates(folder: Path) -> None:
    """Write the files named above into a folder."""
    now = datetime.now(UTC)
    authority = Authority.make("e2e", now, days=1)
    server = authority.issue("kube-apiserver", now, 1, SERVER, _NAMES)
    tokens = authority.issue("tokens", now, 1, SERVER)  # of this pair only the keys are used
    public = tokens.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for name, content in {
        AUTHORITY: authority.pair.certificate_pem,
        CERTIFICATE: server.certificate_pem,
        KEY: server.key_pem,
        TOKEN_KEY: tokens.key_pem,
        TOKEN_PUBLIC_KEY: public,
    }.items():
        (folder / name).write_bytes(content)

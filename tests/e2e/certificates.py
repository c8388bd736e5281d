"""What kube-apiserver needs to be spoken to over TLS: an authority of our own, its certificate, a key to sign tokens.

Made with the `openssl` command (3.0 or later) for each control plane anew, valid for a day.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.programs import ProgramError

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1")
_FILES = ("ca.crt", "server.crt", "server.key", "tokens.key", "tokens.pub")
_NAMES = "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files."""

    authority: Path
    certificate: Path
    key: Path
    token_key: Path
    token_public_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write them into a folder. ProgramError without openssl."""
    made = Certificates(*(folder / name for name in _FILES))
    authority_key = folder / "ca.key"
    _openssl("req", "-x509", *_NEW_KEY, "-subj", "/CN=e2e", "-keyout", authority_key, "-out", made.authority)
    signed_by = ("-CA", made.authority, "-CAkey", authority_key)
    about = ("-subj", "/CN=kube-apiserver", "-addext", _NAMES, "-addext", "basicConstraints=critical,CA:FALSE")
    _openssl("req", "-x509", *_NEW_KEY, *signed_by, *about, "-keyout", made.key, "-out", made.certificate)
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", made.token_key)
    _openssl("pkey", "-in", made.token_key, "-pubout", "-out", made.token_public_key)
    return made


def _openssl(*arguments: str | Path) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise ProgramError("the openssl command is needed to make certificates")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramError(f"openssl {arguments[0]}: {done.stderr}")

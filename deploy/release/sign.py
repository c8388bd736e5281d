"""`python -m deploy.release.sign`: signs the checksums of a release with cosign; `make sign` calls it.

`SHA256SUMS` names every file of a release, so one signature covers all files. The image is signed in its registry, because cosign
stores that signature beside the image: the command for it is printed, with the digest of the release. https://docs.sigstore.dev/cosign/signing/
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from deploy.release.image import NAME, ROOT, ReleaseError

CHECKSUMS, DIGEST = "SHA256SUMS", "image-digest"
BUNDLE = f"{CHECKSUMS}.sigstore.json"


def check(folder: Path) -> None:
    """ReleaseError where a file is not the one whose checksum is signed."""
    file = folder / CHECKSUMS
    if not file.is_file():
        raise ReleaseError(f"{file} is not there: `make release` writes it")
    for line in file.read_text("utf-8").splitlines():
        wanted, _, name = line.partition("  ")
        part = folder / name
        if not part.is_file() or sha256(part.read_bytes()).hexdigest() != wanted:
            raise ReleaseError(f"{part} is not the file that {CHECKSUMS} names")


def sign(folder: Path, name: str, key: str) -> None:
    """Sign the checksums, with a key or without (keyless: an identity of an OpenID provider). ReleaseError where that fails."""
    check(folder)
    program = shutil.which("cosign")
    if program is None:
        raise ReleaseError(
            "cosign is not installed, so nothing is signed; see https://docs.sigstore.dev/cosign/system_config/installation/"
        )
    options = [f"--key={key}"] if key else []
    command = [program, "sign-blob", "--yes", *options, f"--bundle={folder / BUNDLE}", str(folder / CHECKSUMS)]
    if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode:
        raise ReleaseError(f"failed: {shlex.join(command)}")
    print(folder / BUNDLE)
    digest = folder / DIGEST
    if digest.is_file():
        reference = f"{name}@{digest.read_text('utf-8').strip()}"
        print("once the image is pushed:", shlex.join(["cosign", "sign", "--yes", "--recursive", *options, reference]))


def main(arguments: Sequence[str]) -> int:
    """Sign a release. 1 where that fails; the text on standard error says why."""
    parser = argparse.ArgumentParser(prog="make sign", description="Sign the checksums of a release with cosign.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder of the release (default dist)")
    parser.add_argument("--name", default=NAME, help="where the image is pushed to, without a tag")
    parser.add_argument("--key", default="", help="a private key of cosign (default: keyless)")
    asked = parser.parse_args(arguments)
    try:
        sign(asked.out, asked.name, asked.key)
    except ReleaseError as error:
        print(f"make sign: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

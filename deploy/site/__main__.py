"""`python -m deploy.site FOLDER`: the site. A link that leads nowhere is an error.

`python -m deploy.site --fetch` gets what draws diagrams, from a wheel of the package index that
`requirements/mermaid.txt` names with its hash. So a browser needs no other host.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.site.conf import MERMAID

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "deploy" / "requirements" / "mermaid.txt"
_MEMBER = "artoo_mermaid/assets/mermaid.min.js"
# The wheel is a container for the script, and is not installed: so the version of Python for which it is made does not matter.
_ANY_PYTHON = ("--no-deps", "--only-binary=:all:", "--python-version=3.13")


def fetch() -> int:
    """Write the script into the virtual environment. The status of pip where it fails."""
    with TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *_ANY_PYTHON]
        done = subprocess.run([*pip, "--require-hashes", "-r", str(PINNED), "-d", temporary], check=False)
        if done.returncode == 0:
            (wheel,) = Path(temporary).glob("*.whl")
            with zipfile.ZipFile(wheel) as opened:
                MERMAID.write_bytes(opened.read(_MEMBER))
    return done.returncode


def build(out: Path) -> int:
    """Build all pages anew. The status of Sphinx."""
    with TemporaryDirectory() as cache:
        sphinx = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder=html"]
        where = [f"--doctree-dir={cache}", "--conf-dir=deploy/site", ".", str(out.resolve())]
        return subprocess.run([*sphinx, *where], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(fetch() if sys.argv[1:] == ["--fetch"] else build(Path(sys.argv[1])))

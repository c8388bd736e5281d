"""Installed packages of an image, read from its OCI archive without running it: Python packages and Debian packages."""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import Any

from deploy.release.image import ReleaseError

_WANTED = re.compile(
    r"(.*/)?[^/]+\.dist-info/METADATA|var/lib/dpkg/status(\.d/[^/]+)?|usr/lib/os-release|opt/extender/pyvenv\.cfg"
)
_DELETED, _EMPTIED = ".wh.", ".wh..wh..opq"
_BLOBS = "blobs/sha256"


@dataclass(frozen=True)
class Contents:
    """``python``: the metadata of each distribution. ``debian``: the fields of each installed package."""

    python: list[Message]
    debian: list[Message]
    system: dict[str, str]
    interpreter: str


def manifests_of(archive: Path) -> dict[str, str]:
    """The digest of each image in an OCI archive with an index, by platform, such as linux/amd64."""
    with tarfile.open(archive) as opened:
        (described,) = _json(opened, "index.json")["manifests"]
        index = _json(opened, _blob(described["digest"]))["manifests"]
    return {f"{each['platform']['os']}/{each['platform']['architecture']}": each["digest"] for each in index}


def contents_of(archive: Path, digest: str) -> Contents:
    """Reads the layers of an image of an OCI archive from the lowest to the highest. ReleaseError for one that is compressed otherwise."""
    with tarfile.open(archive) as opened:
        files = _files(opened, digest)
    read = Parser().parsestr
    python = [read(text) for path, text in files.items() if path.endswith("/METADATA")]
    sections = [
        section
        for path, text in files.items()
        if path.startswith("var/lib/dpkg/")
        for section in text.split("\n\n")
        if section.strip()
    ]
    debian = [each for each in map(read, sections) if "installed" in each.get("Status", "installed").split()]
    settings = dict(line.split(" = ", 1) for line in files["opt/extender/pyvenv.cfg"].splitlines())
    system = dict(line.split("=", 1) for line in files.get("usr/lib/os-release", "").splitlines() if "=" in line)
    return Contents(python, debian, {key: value.strip('"') for key, value in system.items()}, settings["version"])


def _files(archive: tarfile.TarFile, digest: str) -> dict[str, str]:
    """The wanted files as the layers leave them, by path."""
    manifest = _json(archive, _blob(digest))
    found: dict[str, str] = {}
    for layer in manifest["layers"]:
        blob = archive.extractfile(_blob(layer["digest"]))
        assert blob is not None
        try:
            with tarfile.open(fileobj=blob) as opened:
                _apply(opened, found)
        except tarfile.ReadError as error:
            raise ReleaseError(f"a layer of type {layer['mediaType']} cannot be read") from error
    return found


def _apply(layer: tarfile.TarFile, found: dict[str, str]) -> None:
    """What a layer deletes is gone before what it adds is there (OCI image specification, whiteouts)."""
    added: dict[str, str] = {}
    for member in layer:
        path = PurePosixPath(member.name)
        if path.name.startswith(_DELETED):
            gone = path.parent if path.name == _EMPTIED else path.parent / path.name.removeprefix(_DELETED)
            for name in [name for name in found if PurePosixPath(name).is_relative_to(gone)]:
                del found[name]
        elif member.isfile() and _WANTED.fullmatch(str(path)):
            content = layer.extractfile(member)
            assert content is not None
            added[str(path)] = content.read().decode("utf-8")
    found |= added


def _json(archive: tarfile.TarFile, name: str) -> dict[str, list[dict[str, Any]]]:
    file = archive.extractfile(name)
    assert file is not None
    found: dict[str, list[dict[str, Any]]] = json.load(file)
    return found


def _blob(digest: str) -> str:
    return f"{_BLOBS}/{digest.removeprefix('sha256:')}"

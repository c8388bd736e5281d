"""Bills of materials in CycloneDX JSON: of the wheel, with the locked versions of what it needs, and of the image.

The wheel's names the versions of `deploy/requirements/run.txt`, with which it is tested and which the image has; its metadata
allows ranges. Equal inputs give equal bytes. https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.message import Message
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.contrib.this.builders import this_component
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.release.contents import Contents
from deploy.release.image import NAME, version

_EXTRAS: Final = ("", "uvloop")  # what the image installs of the project
_LOCKED: Final = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;]+)")
_NEEDED_BY: Final = re.compile(r"\s+#\s+(?:via\s+)?(?P<name>(?!via$)[\w.-]+)")
_LONGEST_LICENSE: Final = 64  # the field may hold the whole text


def bill_of_wheel(wheel: Path, locked: str, time: int) -> str:
    """``locked``: the text of a file that `make lock` wrote."""
    root = _python_component(NAME, version(), hashes=[_hash(sha256(wheel.read_bytes()).hexdigest())])
    parts, needs, last = {NAME: root}, list[tuple[str, str]](), ""
    for line in locked.splitlines():
        if match := _LOCKED.match(line):
            last = str(canonicalize_name(match["name"]))
            parts[last] = _python_component(last, match["version"])
        elif match := _NEEDED_BY.match(line):
            needs.append((match["name"], last))
    return _bill(root, parts, needs, time)


def bill_of_image(contents: Contents, digest: str, time: int) -> str:
    """``digest``: of its manifest."""
    root = _component(
        ComponentType.CONTAINER,
        PackageURL("oci", None, NAME, digest, {"tag": version()}),
        version(),
        hashes=[_hash(digest.removeprefix("sha256:"))],
    )
    parts = {str(canonicalize_name(each["Name"])): _of_metadata(each) for each in contents.python}
    needs = list(_needs(contents, parts))
    interpreter = PackageURL("generic", None, "python", contents.interpreter)
    parts["the interpreter"] = _component(ComponentType.PLATFORM, interpreter, contents.interpreter)
    system = contents.system
    if "ID" in system:
        named = PackageURL("generic", None, system["ID"], system.get("VERSION_ID"))
        parts["the system"] = _component(ComponentType.OPERATING_SYSTEM, named, system.get("VERSION_ID"))
    for each in contents.debian:
        qualifiers = {"arch": each["Architecture"], "distro": f"{system.get('ID')}-{system.get('VERSION_ID')}"}
        purl = PackageURL("deb", system.get("ID"), each["Package"], each["Version"], qualifiers)
        parts[f"deb {purl}"] = _component(ComponentType.LIBRARY, purl, each["Version"])
    parts["the image"] = root
    return _bill(root, parts, [*needs, *(("the image", name) for name in parts if name != "the image")], time)


def _needs(contents: Contents, parts: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
    """Which installed distribution needs which other installed distribution."""
    environment = {
        "python_full_version": contents.interpreter,
        "python_version": ".".join(contents.interpreter.split(".")[:2]),
    }
    for each in contents.python:
        for line in each.get_all("Requires-Dist", []):
            wanted = Requirement(line)
            holds = wanted.marker is None or any(
                wanted.marker.evaluate({**environment, "extra": extra}) for extra in _EXTRAS
            )
            if holds and canonicalize_name(wanted.name) in parts:
                yield str(canonicalize_name(each["Name"])), str(canonicalize_name(wanted.name))


def _of_metadata(fields: Message) -> Component:
    component = _python_component(fields["Name"], fields["Version"])
    text = fields.get("License-Expression") or fields.get("License", "")
    if text and len(text) <= _LONGEST_LICENSE:
        component.licenses.add(LicenseFactory().make_from_string(text))
    return component


def _python_component(name: str, number: str, hashes: Iterable[HashType] = ()) -> Component:
    purl = PackageURL("pypi", None, str(canonicalize_name(name)), number)
    return _component(ComponentType.LIBRARY, purl, number, hashes)


def _component(kind: ComponentType, purl: PackageURL, number: str | None, hashes: Iterable[HashType] = ()) -> Component:
    return Component(type=kind, name=purl.name, version=number, purl=purl, bom_ref=purl.to_string(), hashes=hashes)


def _hash(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


def _bill(root: Component, parts: Mapping[str, Component], needs: Iterable[tuple[str, str]], time: int) -> str:
    """The document. Its serial number follows from the root, so that it is the same for the same file or image."""
    bom = Bom(
        components=[each for each in parts.values() if each is not root],
        serial_number=uuid5(NAMESPACE_URL, str([each.content for each in root.hashes])),
    )
    bom.metadata.timestamp = datetime.fromtimestamp(time, UTC)
    bom.metadata.component = root
    bom.metadata.tools.components.add(this_component())
    for each in parts.values():
        bom.register_dependency(each)
    for name, needed in needs:
        bom.register_dependency(parts[name], [parts[needed]])
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n"

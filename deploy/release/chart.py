"""The Helm chart of a release: the package that `helm install` takes, and the same as an OCI archive for a registry."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from deploy.release.image import NAME, ROOT, ReleaseError, run, version

CHART = ROOT / "deploy" / "chart"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def helm() -> str:
    """Its path. ReleaseError where it is not installed."""
    found = shutil.which("helm")
    if found is None:
        raise ReleaseError("helm is not installed, so the chart cannot be packed")
    return found


def write_chart(folder: Path, time: int, name: str = NAME, digest: str = "") -> None:
    """Write the package and the OCI archive. With another name of the image it is the default, by its digest if given."""
    with TemporaryDirectory() as temporary:
        run([helm(), "package", str(CHART), "--destination", temporary])
        (packed,) = Path(temporary).glob("*.tgz")
        with tarfile.open(packed) as archive:
            files = {member.name: _content(archive, member) for member in archive if member.isfile()}
    values = f"{NAME}/values.yaml"
    files[values] = _with_image(files[values].decode(), name, digest).encode()
    # helm gives each file the time of the packing; here it is the time of the release, so that equal sources give equal bytes.
    package = gzip.compress(_tar(files, time), mtime=time)
    (folder / f"{NAME}-chart-{version()}.tgz").write_bytes(package)
    (folder / f"{NAME}-chart-{version()}.oci.tar").write_bytes(_oci_archive(package, time))


def _with_image(values: str, name: str, digest: str) -> str:
    if name == NAME:
        return values
    head, image, rest = values.partition(f"\n  repository: {NAME}\n")
    assert image, "values.yaml names the image"
    rest = rest.replace('digest: ""', f'digest: "{digest}"', 1)
    return f"{head}\n  repository: {name}\n{rest}"


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


def _tar(files: Mapping[str, bytes], time: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), time, 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _oci_archive(package: bytes, time: int) -> bytes:
    """https://helm.sh/docs/topics/registries/#helm-chart-manifest ."""
    config = json.dumps(yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))).encode()
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = sha256(content).hexdigest()
        files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    document = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": blob(_CONFIG, config)}
    manifest = blob(_MANIFEST, json.dumps({**document, "layers": [blob(_CONTENT, package)]}).encode())
    named = {**manifest, "annotations": {"org.opencontainers.image.ref.name": version()}}
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [named]}).encode()
    return _tar(files, time)

"""One file for each overlay, for `kubectl apply -f`: what `kubectl kustomize` prints of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from deploy.release.image import NAME, ROOT, ReleaseError

OVERLAYS = ROOT / "deploy" / "overlays"


def kubectl() -> str:
    """Its path. ReleaseError where it is not installed."""
    found = shutil.which("kubectl")
    if found is None:
        raise ReleaseError("kubectl is not installed, so no overlay can be built")
    return found


def write_manifests(folder: Path, name: str = NAME, digest: str = "") -> None:
    """Write `install-OVERLAY.yaml` for each. With another name of the image the pods run that one, by its digest if given."""
    for overlay in sorted(each for each in OVERLAYS.iterdir() if each.is_dir()):
        with TemporaryDirectory() as temporary:
            built = _with_image(overlay, Path(temporary), name, digest) if name != NAME else overlay
            done = subprocess.run([kubectl(), "kustomize", str(built)], check=False, capture_output=True)
        if done.returncode:
            raise ReleaseError(f"kubectl kustomize {overlay}: {done.stderr.decode('utf-8', 'replace')}")
        (folder / f"install-{overlay.name}.yaml").write_bytes(done.stdout)


def _with_image(overlay: Path, folder: Path, name: str, digest: str) -> Path:
    """A kustomization of an overlay with another image. Without a digest the image keeps the tag of the overlay."""
    image = {"name": NAME, "newName": name, **({"digest": digest} if digest else {})}
    document = {"resources": [os.path.relpath(overlay, folder.resolve())], "images": [image]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document), "utf-8")
    return folder

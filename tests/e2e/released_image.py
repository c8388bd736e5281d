"""A release: its image on a base, its manifests, and a container that runs it."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from extender.simulator.json_objects import JsonObject
from tests.deploy.building import of_kind
from tests.e2e.control_plane import ControlPlane
from tests.programs import tool

BASE = "localhost/debian-python:e2e"
USER = "65532:65532"
_STORAGE = '[storage]\ndriver = "{driver}"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
WHO_AND_WHERE = """
import os
print(os.getuid(), os.getgid())
for folder in ("/", "/tmp", "/opt/extender"):
    try:
        open(os.path.join(folder, "file"), "w")
    except OSError as error:
        print(folder, error.strerror)
"""


@dataclass(frozen=True)
class Released:
    """The files of a release, and its image as podman has it."""

    folder: Path
    image: str
    podman: str

    def command(self, *arguments: str, flags: tuple[str, ...] = ()) -> list[str]:
        """What runs the image in a container, with this machine's network."""
        limits = [
            "--ulimit=nofile=4096:4096",
            "--ulimit=nproc=4096:4096",
        ]  # podman's own need a right that root may lack
        container = ["run", "--rm", "--network=host", "--read-only", "--read-only-tmpfs=false", *limits, *flags]
        return [self.podman, "--runtime=runc", *container, self.image, *arguments]

    def run(self, *arguments: str, flags: tuple[str, ...] = ()) -> str:
        """What a command of the image prints. AssertionError where it fails."""
        done = subprocess.run(self.command(*arguments, flags=flags), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file(self, end: str) -> Path:
        (found,) = [each for each in self.folder.iterdir() if each.name.endswith(end)]
        return found

    @property
    def archive(self) -> Path:
        """The OCI archive of the image; the chart has one too."""
        (found,) = self.folder.glob("*-image-*.oci.tar")
        return found

    @property
    def digest(self) -> str:
        """Of the index of the image."""
        with tarfile.open(self.archive) as archive:
            return str(json.loads(content_of(archive, "index.json"))["manifests"][0]["digest"])


def content_of(archive: tarfile.TarFile, name: str) -> bytes:
    opened = archive.extractfile(name)
    assert opened is not None
    return opened.read()


def make_base(folder: Path, podman: str) -> None:
    """Have a Debian with Python as an index for two platforms, of the release and from the archive that this machine has its packages from."""
    requested = [tool("apt-get", "apt"), "indextargets", "--format", "$(RELEASE) $(REPO_URI)"]
    targets = subprocess.run(
        [*requested, "Created-By: Packages", "Label: Debian"], check=True, capture_output=True, text=True
    )
    release, archive = targets.stdout.splitlines()[0].split()
    packages = "--include=python3,python3-venv,ca-certificates"
    file = folder / "base.tar"
    subprocess.run([tool("mmdebstrap"), "--variant=essential", packages, release, str(file), archive], check=True)
    # The same files under the name of another platform: nothing of that base is run.
    parts = [f"{BASE}-{architecture}" for architecture in ("amd64", "arm64")]
    for part in parts:
        architecture = part.rpartition("-")[2]
        subprocess.run([podman, "import", "--quiet", "--arch", architecture, str(file), part], check=True)
    subprocess.run([podman, "manifest", "create", BASE], check=True, capture_output=True)
    for part in parts:
        subprocess.run([podman, "manifest", "add", BASE, f"containers-storage:{part}"], check=True, capture_output=True)
    file.unlink()


@contextmanager
def storage(folder: Path, podman: str) -> Iterator[None]:
    """Images and containers are in this folder until the block is left; as whole copies where overlays are not possible."""
    file = folder / "storage.conf"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(file))
        for driver in ("overlay", "vfs"):
            file.write_text(_STORAGE.format(driver=driver, folder=folder), "utf-8")
            if subprocess.run([podman, "info"], check=False, capture_output=True).returncode == 0:
                break
        try:
            yield
        finally:
            # The driver mounts this folder over itself.
            subprocess.run([tool("umount", "mount"), folder / "graph" / "overlay"], check=False, capture_output=True)
            shutil.rmtree(folder / "graph")


def volumes(
    folder: Path, documents: list[JsonObject], certificates: Path, plane: ControlPlane, token: str
) -> dict[str, Path]:
    """What the kubelet would mount: the ConfigMap, the Secret of `extender certs`, and the token of the account."""
    (configuration,) = of_kind(documents, "ConfigMap")
    contents = {
        "configuration": {name: text.encode() for name, text in configuration["data"].items()},
        "tls": {
            "tls.crt": (certificates / "server.crt").read_bytes(),
            "tls.key": (certificates / "server.key").read_bytes(),
            "ca.crt": (certificates / "ca.crt").read_bytes(),
        },
        "extender-token": {
            "token": token.encode(),
            "ca.crt": plane.authority.read_bytes(),
            "namespace": b"kube-system",
        },
    }
    for name, files in contents.items():
        (folder / name).mkdir()
        for file, content in files.items():
            path = folder / name / file
            path.write_bytes(content)
            path.chmod(0o440)
            os.chown(path, 0, int(USER.partition(":")[2]))
    return {name: folder / name for name in contents}


def flags_of(template: JsonObject, mounted: Mapping[str, Path]) -> tuple[str, ...]:
    """The manifest's container `extender` in podman's words."""
    pod = template["spec"]
    (container,) = [each for each in pod["containers"] if each["name"] == "extender"]
    account, own = pod["securityContext"], container["securityContext"]
    assert own["readOnlyRootFilesystem"], "as Released.command has it"
    assert not own["allowPrivilegeEscalation"]
    return (
        f"--user={account['runAsUser']}:{account['runAsGroup']}",
        "--security-opt=no-new-privileges",
        *(f"--cap-drop={each}" for each in own["capabilities"]["drop"]),
        *(f"--volume={mounted[each['name']]}:{each['mountPath']}:ro" for each in container["volumeMounts"]),
    )


def is_ready(url: str, authority: Path) -> bool:
    """As the kubelet's probe."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", context=ssl.create_default_context(cafile=authority)) as answer:  # noqa: S310 -- https
            return bool(answer.status == 200)
    except OSError:
        return False

"""A release is made, its image is run, and its manifests are applied.

The base is a Debian of this machine's archive, made by mmdebstrap, as no registry need be reachable. The image is built without a
daemon. It is run from the OCI archive of the release by podman and runc, with the user, the root and the mounts of the manifest.
Where one of these programs is missing a test is skipped and names it. `deploy/release` tests a release without its image.
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.release.__main__ import main
from deploy.release.contents import manifests_of
from deploy.release.image import PLATFORMS, version
from deploy.release.manifests import write_manifests
from deploy.release.sign import CHECKSUMS, DIGEST
from extender.simulator.json_objects import name_of
from tests.deploy.building import DEPLOY, DEPLOYED, OVERLAYS, of_kind
from tests.deploy.test_image import locked
from tests.e2e.cluster import Cluster
from tests.e2e.control_plane import HOST
from tests.e2e.granting import kubeconfig_of_account
from tests.e2e.overlays import FOREIGN, installed, place_apart
from tests.e2e.programs import Program, free_ports, our_command
from tests.e2e.released_image import (
    BASE,
    USER,
    WHO_AND_WHERE,
    Released,
    content_of,
    flags_of,
    is_ready,
    make_base,
    storage,
    volumes,
)
from tests.programs import tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

NAME = "registry.example/placement/extender"
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
ELF = {
    "linux/amd64": (62).to_bytes(2, "little"),
    "linux/arm64": (183).to_bytes(2, "little"),
}  # e_machine of the ELF header
HERE, AWAY = PLATFORMS if platform.machine() == "x86_64" else PLATFORMS[::-1]
MOST_ABOVE_THE_BASE = 150e6  # bytes


def files_of_highest_layer(file: Path, digest: str) -> dict[str, bytes]:
    """What an OCI archive adds to its base, which is one layer."""
    with tarfile.open(file) as archive:
        manifest = json.loads(content_of(archive, f"blobs/sha256/{digest.removeprefix('sha256:')}"))
        _, added = manifest["layers"]
        opened = archive.extractfile(f"blobs/sha256/{added['digest'].removeprefix('sha256:')}")
        with tarfile.open(fileobj=opened) as layer:
            return {each.name: content_of(layer, each.name) for each in layer if each.isfile()}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    """A release for a registry, on that base."""
    tool("mmdebstrap")
    tool("runc")
    tool("kubectl")
    tool("helm")
    podman, folder = tool("podman"), tmp_path_factory.mktemp("image")
    with storage(folder, podman):
        make_base(folder, podman)
        assert main(["--out", str(folder / "dist"), "--base", BASE, "--name", NAME]) == 0
        (archive,) = (folder / "dist").glob("*-image-*.oci.tar")
        pull = [podman, "pull", "--quiet", f"oci-archive:{archive}"]
        pulled = subprocess.run(pull, check=True, capture_output=True, text=True)
        yield Released(folder / "dist", pulled.stdout.strip(), podman)


@pytest.fixture(scope="module")
def added(released: Released) -> dict[str, bytes]:
    return files_of_highest_layer(released.archive, manifests_of(released.archive)[HERE])


def test_the_release_has_its_image_a_bill_of_each_platform_and_checksums_of_all(released: Released) -> None:
    stem = f"placement-extender-image-{version()}"
    names = {each.name for each in released.folder.iterdir()}
    bills = {f"{stem}-{each.replace('/', '-')}.cdx.json" for each in PLATFORMS}
    assert {name for name in names if name.startswith(stem)} == {f"{stem}.oci.tar", *bills}
    assert (released.folder / DIGEST).read_text("utf-8").strip() == released.digest
    images = manifests_of(released.archive)
    assert tuple(images) == PLATFORMS, "in this order, so that an equal release has an equal digest"
    assert {f"install-{name}.yaml" for name in OVERLAYS} < names
    subprocess.run([tool("sha256sum", "coreutils"), "--check", "--strict", CHECKSUMS], cwd=released.folder, check=True)
    bill = json.loads(released.file(f"-{HERE.replace('/', '-')}.cdx.json").read_text("utf-8"))
    assert bill["metadata"]["component"]["hashes"][0]["content"] == images[HERE].removeprefix("sha256:")
    named = {each["name"]: each["version"] for each in bill["components"] if each["purl"].startswith("pkg:pypi/")}
    assert named.pop("placement-extender") == version()
    assert {name: (str(locked("run.txt")[name][0])) for name in named} == named, "what is installed was locked"
    assert {"aiohttp", "cryptography", "uvloop"} < named.keys()
    assert {"libc6", "python3", "openssl"} <= {each["name"] for each in bill["components"]}


def test_the_image_adds_the_wheel_and_what_it_needs_to_the_base_and_nothing_else(
    released: Released, added: dict[str, bytes]
) -> None:
    size = sum(map(len, added.values()))
    print(f"{size / 1e6:.0f} MB above the base")  # noqa: T201 -- shown by -s
    assert size <= MOST_ABOVE_THE_BASE
    assert {name.split("/")[:2] == ["opt", "extender"] for name in added} == {True}, "no source, no secret, no cache"
    assert [name for name in added if name.endswith((".pyi", ".pyx", ".h")) or "/pip/" in name] == []
    assert {name for name in added if name.startswith("opt/extender/bin/")} == {"opt/extender/bin/extender"}
    (site,) = {name.partition("/site-packages/")[0] for name in added if "/site-packages/" in name}
    with zipfile.ZipFile(released.file(".whl")) as wheel:
        other = [
            name
            for name in wheel.namelist()
            if not name.endswith("/RECORD") and added.get(f"{site}/site-packages/{name}") != wheel.read(name)
        ]
    assert other == [], "the image has the same files as the wheel of the release"


def test_the_image_of_the_other_platform_has_the_same_files_and_the_libraries_of_its_platform(
    released: Released, added: dict[str, bytes]
) -> None:
    """It cannot be run here: it is built from the wheels of its platform."""
    (other,) = [digest for each, digest in manifests_of(released.archive).items() if each != HERE]
    found = {
        name.replace(MACHINES[AWAY], MACHINES[HERE]): content
        for name, content in files_of_highest_layer(released.archive, other).items()
    }
    assert found.keys() == added.keys()
    libraries = {name for name in added if re.search(r"\.so(\.|$)", name)}
    assert len(libraries) > 10
    assert {found[name][18:20] for name in libraries} == {ELF[AWAY]}
    assert {added[name][18:20] for name in libraries} == {ELF[HERE]}
    different = {name for name in added if found[name] != added[name]} - libraries
    assert [name for name in different if ".dist-info/" not in name] == [], (
        "tags and hashes of wheels differ, and no code"
    )


def test_byte_code_is_there_for_what_serve_loads_and_counts_whatever_time_its_source_has(
    added: dict[str, bytes],
) -> None:
    code = {name: content for name, content in added.items() if name.endswith(".pyc")}
    assert any("/extender/cli/__pycache__/serve." in name for name in code)
    assert any("/aiohttp/__pycache__/web." in name for name in code)
    assert [name for name in code if "/kubernetes_asyncio/" in name or "/pygments/" in name] == []
    assert {content[4:8] for content in code.values()} == {(1).to_bytes(4, "little")}, "PEP 552: unchecked hash"


def test_the_image_runs_as_a_user_without_privileges_on_a_root_that_is_read_only(released: Released) -> None:
    requested = released.run("-c", WHO_AND_WHERE, flags=("--entrypoint=/opt/extender/bin/python",))
    assert requested.splitlines() == [
        USER.replace(":", " "),
        *(f"{folder} Read-only file system" for folder in ("/", "/tmp", "/opt/extender")),  # noqa: S108 -- in the container
    ]
    assert released.run("version") == f"extender {version()}\n"
    for name in OVERLAYS:
        file = DEPLOY / "overlays" / name / "extender.yaml"
        if file.exists():
            mount = f"--volume={file}:/etc/placement-extender/extender.yaml:ro"
            validated = released.run("config", "validate", "/etc/placement-extender/extender.yaml", flags=(mount,))
            assert "valid (ExtenderConfiguration, mode" in validated


async def test_from_its_manifest_and_its_image_the_release_serves_a_real_scheduler(
    released: Released, cluster: Cluster, tmp_path: Path
) -> None:
    plane, certificates = cluster.plane, tmp_path / "certificates"
    await asyncio.to_thread(subprocess.check_call, our_command("certs", "--out", str(certificates)))
    manifest = released.folder / "install-second-scheduler.yaml"
    documents = list(yaml.safe_load_all(manifest.read_text("utf-8")))
    (deployment,) = of_kind(documents, "Deployment")
    template = deployment["spec"]["template"]
    (container,) = [each for each in template["spec"]["containers"] if each["name"] == "extender"]
    assert container["image"] == f"{NAME}@{released.digest}"
    (port,) = free_ports(1)
    kubectl = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    await asyncio.to_thread(subprocess.check_call, [*kubectl, "apply", "-f", str(manifest)])
    try:
        accounts = {}
        for name in ("placement-extender", "placement-scheduler"):
            accounts[name] = await kubeconfig_of_account(cluster.api, plane, tmp_path, name, "kube-system")
        access = yaml.safe_load(accounts["placement-extender"].read_text("utf-8"))
        token = access["users"][0]["user"]["token"]
        server = access["clusters"][0]["cluster"]["server"].removeprefix("https://")
        mounted = volumes(tmp_path, documents, certificates, plane, token)
        environment = dict(zip(("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"), server.split(":"), strict=True))
        flags = (*flags_of(template, mounted), *(f"--env={name}={value}" for name, value in environment.items()))
        command = released.command(*container["args"], f"--bind-address={HOST}:{port}", flags=flags)
        program, url = Program("extender-image", command, tmp_path), f"https://{HOST}:{port}"
        try:
            await asyncio.to_thread(program.start, lambda: is_ready(url, certificates / "ca.crt"))
            document = installed("second-scheduler", "kube-scheduler.yaml", certificates, plane)
            document["extenders"][0]["urlPrefix"] = url
            own = accounts["placement-scheduler"]
            document["clientConnection"] = {"kubeconfig": str(own)}
            paths = [f"--{what}-kubeconfig={own}" for what in ("authentication", "authorization")]
            await place_apart(cluster, document, "placement-scheduler", *paths)
            assert "forbidden" not in plane.scheduler.log()
        finally:
            plane.scheduler.stop()
            await asyncio.to_thread(program.stop, 30.0)
        assert "stopped" in program.log().splitlines()[-1], "SIGTERM reaches it, and it ends in order"
    finally:
        await asyncio.to_thread(subprocess.check_call, [*kubectl, "delete", "--wait=false", "-f", str(manifest)])


@pytest.mark.parametrize("name", OVERLAYS)
async def test_the_manifest_of_each_overlay_is_applied_and_deleted_by_kubectl(
    cluster: Cluster, tmp_path: Path, name: str
) -> None:
    """The kinds of cert-manager are not there, so its objects are left out."""
    tool("kubectl")
    write_manifests(tmp_path)
    file = tmp_path / f"install-{name}.yaml"
    documents = list(yaml.safe_load_all(file.read_text("utf-8")))
    if foreign := of_kind(documents, *FOREIGN):
        file.write_text(yaml.safe_dump_all([each for each in documents if each not in foreign]), "utf-8")
    kubectl = [tool("kubectl"), f"--kubeconfig={cluster.plane.kubeconfig}"]
    await asyncio.to_thread(subprocess.check_call, [*kubectl, "apply", "-f", str(file)])
    try:
        again = [*kubectl, "diff", "-f", str(file)]
        assert (await asyncio.to_thread(subprocess.run, again, check=False, capture_output=True)).returncode == 0
        for deployment in of_kind(documents, "Deployment") if name in DEPLOYED else ():
            path = f"/apis/apps/v1/namespaces/{deployment['metadata']['namespace']}/deployments/{name_of(deployment)}"
            assert await cluster.api.request("GET", path)
    finally:
        await asyncio.to_thread(subprocess.check_call, [*kubectl, "delete", "--wait=false", "-f", str(file)])

"""A release without its image, which `tests/e2e/test_image.py` builds: every file, equal in two runs, and what is told where it fails."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import pytest
from cyclonedx.schema import SchemaVersion

from deploy.release.__main__ import main
from deploy.release.bill import bill_of_image
from deploy.release.chart import write_chart
from deploy.release.contents import contents_of, manifests_of
from deploy.release.image import ROOT, ReleaseError, build, index_settings, listed_platforms, version
from deploy.release.manifests import write_manifests
from deploy.release.sign import BUNDLE, CHECKSUMS
from deploy.release.sign import DIGEST as DIGEST_FILE
from deploy.release.sign import main as sign
from tests.deploy.building import DEPLOY, DEPLOYED, OVERLAYS, images_of, load_all
from tests.programs import tool

DIGEST = f"sha256:{'0' * 63}1"
WHEEL = f"placement_extender-{version()}-py3-none-any.whl"
CHARTS = tuple(f"placement-extender-chart-{version()}.{ending}" for ending in ("tgz", "oci.tar"))
LOCKED = re.findall(r"^(\S+)==(\S+)", (DEPLOY / "requirements" / "run.txt").read_text("utf-8"), re.MULTILINE)

# A builder of images that writes down what it is told.
RECORDING_BUILDER = """#!/bin/sh
printf '%s\\n' "$@" >"$TOLD/arguments"
for each in "$@"; do
    case "$each" in --secret=*) cat "${each#*src=}" >>"$TOLD/secrets" ;; esac
done
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert tool("kubectl")
    assert tool("helm")
    folder = tmp_path_factory.mktemp("release") / "dist"
    assert main(["--out", str(folder), "--without-image"]) == 0
    return folder


def valid(text: str) -> dict[str, Any]:
    """A bill of materials that the schema of CycloneDX accepts."""
    validation = import_module("cyclonedx.validation.json")  # a second: not while tests are collected
    assert validation.JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    document: dict[str, Any] = json.loads(text)
    return document


def test_it_has_every_file_and_a_checksum_of_each(released: Path) -> None:
    expected = {f"install-{name}.yaml" for name in OVERLAYS} | {WHEEL, f"{WHEEL}.cdx.json", CHECKSUMS, *CHARTS}
    assert {each.name for each in released.iterdir()} == expected | {f"placement_extender-{version()}.tar.gz"}
    lines = [line.split("  ") for line in (released / CHECKSUMS).read_text("utf-8").splitlines()]
    assert {name for _, name in lines} == {each.name for each in released.iterdir()} - {CHECKSUMS}
    assert [name for digest, name in lines if sha256((released / name).read_bytes()).hexdigest() != digest] == []


def test_two_releases_of_the_same_sources_are_equal_byte_by_byte(released: Path, tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--without-image"]) == 0
    assert (tmp_path / CHECKSUMS).read_bytes() == (released / CHECKSUMS).read_bytes()


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_manifest_of_an_overlay_is_what_kubectl_prints_of_it(released: Path, name: str) -> None:
    command = [tool("kubectl"), "kustomize", str(DEPLOY / "overlays" / name)]
    printed = subprocess.run(command, check=True, capture_output=True).stdout
    assert (released / f"install-{name}.yaml").read_bytes() == printed


def test_without_a_name_of_the_image_the_pods_run_this_version(released: Path) -> None:
    for name in DEPLOYED:
        assert f"placement-extender:{version()}" in images_of(load_all(released / f"install-{name}.yaml"))


def test_where_the_image_will_be_pushed_to_is_in_the_manifests_with_its_digest(tmp_path: Path) -> None:
    tool("kubectl")
    write_manifests(tmp_path, "registry.example/a/b", DIGEST)
    for name in DEPLOYED:
        images = images_of(load_all(tmp_path / f"install-{name}.yaml"))
        assert f"registry.example/a/b@{DIGEST}" in images
        assert {each for each in images if "placement-extender" in each} == set()


def test_the_bill_of_the_wheel_names_everything_that_is_locked_and_what_needs_it(released: Path) -> None:
    bill = valid((released / f"{WHEEL}.cdx.json").read_text("utf-8"))
    root = bill["metadata"]["component"]
    assert root["purl"] == f"pkg:pypi/placement-extender@{version()}"
    assert root["hashes"] == [{"alg": "SHA-256", "content": sha256((released / WHEEL).read_bytes()).hexdigest()}]
    assert {(each["name"], each["version"]) for each in bill["components"]} == set(LOCKED)
    needs = {each["ref"].partition("@")[0]: each.get("dependsOn", []) for each in bill["dependencies"]}
    direct = {each.partition("@")[0] for each in needs["pkg:pypi/placement-extender"]}
    assert {"pkg:pypi/aiohttp", "pkg:pypi/uvloop", "pkg:pypi/rich"} <= direct
    assert "pkg:pypi/yarl" not in direct
    assert "pkg:pypi/yarl" in {each.partition("@")[0] for each in needs["pkg:pypi/aiohttp"]}


def archive_of(file: Path, *layers: Mapping[str, str]) -> Path:
    """An OCI archive with these layers."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes) -> dict[str, str]:
        digest = sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": "any", "digest": f"sha256:{digest}"}

    def packed(files: Mapping[str, bytes], mode: Literal["w:gz", "w"] = "w:gz") -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode=mode) as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    described = [blob(packed({name: text.encode() for name, text in each.items()})) for each in layers]
    manifest = blob(json.dumps({"layers": described}).encode())
    other = blob(b'{"layers": []}')
    named = [
        {**one, "platform": {"os": "linux", "architecture": architecture}}
        for one, architecture in ((manifest, "amd64"), (other, "arm64"))
    ]
    index = blob(json.dumps({"manifests": named}).encode())
    blobs["index.json"] = json.dumps({"manifests": [index]}).encode()
    file.write_bytes(packed(blobs, "w"))
    return file


def test_the_bill_of_an_image_names_what_its_layers_leave(tmp_path: Path) -> None:
    site = "opt/extender/lib/python3.13/site-packages"
    archive = archive_of(
        tmp_path / "image.tar",
        {
            "usr/lib/os-release": 'ID=debian\nVERSION_ID="12"\n',
            "var/lib/dpkg/status": (
                "Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nArchitecture: amd64\nDescription: C\n is\n\n"
                "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: amd64\n"
            ),
            "usr/lib/python3/replaced-1.0.dist-info/METADATA": "Name: replaced\nVersion: 1.0\n",
            "usr/lib/other/emptied-1.0.dist-info/METADATA": "Name: emptied\nVersion: 1.0\n",
        },
        {
            "usr/lib/python3/.wh.replaced-1.0.dist-info": "",
            "usr/lib/other/.wh..wh..opq": "",
            "opt/extender/pyvenv.cfg": "home = /usr/bin\nversion = 3.13.1\n",
            f"{site}/placement_extender-0.1.0.dist-info/METADATA": (
                "Name: placement-extender\nVersion: 0.1.0\nLicense-Expression: Apache-2.0\nRequires-Dist: PyYAML>=6\n"
                "Requires-Dist: absent; extra == 'dev'\nRequires-Dist: old; python_version < '3.12'\n"
            ),
            f"{site}/pyyaml-6.0.3.dist-info/METADATA": "Name: PyYAML\nVersion: 6.0.3\nLicense: MIT\n\nA text.\n",
            f"{site}/old-1.dist-info/METADATA": "Name: old\nVersion: 1\n",
        },
    )
    images = manifests_of(archive)
    assert list(images) == ["linux/amd64", "linux/arm64"]
    text = bill_of_image(contents_of(archive, images["linux/amd64"]), DIGEST, time=1790000000)
    bill = valid(text)
    assert text == bill_of_image(contents_of(archive, images["linux/amd64"]), DIGEST, time=1790000000)
    own, yaml_library, old = "pkg:pypi/placement-extender@0.1.0", "pkg:pypi/pyyaml@6.0.3", "pkg:pypi/old@1"
    libc = "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12"
    parts = {own, yaml_library, old, libc, "pkg:generic/python@3.13.1", "pkg:generic/debian@12"}
    assert {each["purl"] for each in bill["components"]} == parts
    root = bill["metadata"]["component"]
    assert (root["type"], root["purl"].partition("?")[0]) == ("container", f"pkg:oci/placement-extender@{DIGEST}")
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert set(needs[root["bom-ref"]]) == parts
    assert needs[own] == [yaml_library]
    assert bill["metadata"]["timestamp"] == "2026-09-21T14:13:20+00:00"


def test_without_a_builder_of_images_nothing_is_written_and_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kubectl").symlink_to(tool("kubectl"))
    (tmp_path / "helm").symlink_to(tool("helm"))
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "dist"
    assert main(["--out", str(folder)]) == 1
    assert "neither buildah nor podman is installed" in capsys.readouterr().err
    assert not folder.exists()


def test_without_kubectl_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "dist"), "--without-image"]) == 1
    assert "kubectl is not installed" in capsys.readouterr().err


def test_without_helm_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kubectl").symlink_to(tool("kubectl"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--out", str(tmp_path / "dist"), "--without-image"]) == 1
    assert "helm is not installed" in capsys.readouterr().err


def test_the_packed_chart_renders_what_the_folder_renders(released: Path) -> None:
    arguments = [tool("helm"), "template", "any", "--set=policies.enabled=true,dashboards.enabled=true"]
    packed, folder = (
        subprocess.run([*arguments, str(chart)], check=True, capture_output=True).stdout
        for chart in (released / CHARTS[0], DEPLOY / "chart")
    )
    assert packed == folder
    with tarfile.open(released / CHARTS[0]) as archive:
        names = archive.getnames()
    assert [name for name in names if name.endswith((".py", ".svg", ".png")) or "sidecar" in name] == []
    assert len(names) < 120


def test_without_a_network_the_files_of_a_release_name_only_the_registry_of_the_operator(
    released: Path, tmp_path: Path
) -> None:
    """The printed commands, with every way out closed. `helm template` shows what `helm install` applies."""
    page = (DEPLOY / "docs" / "image.md").read_text("utf-8")
    section = page.partition("\n### Without a network\n")[2].partition("\n### ")[0]
    naming = re.findall(r"^    (sed .*)$", page.partition("\n## From a release\n")[2], re.MULTILINE)
    (install,) = re.findall(r"^    (helm install (?:.*\\\n)*.*)$", section, re.MULTILINE)
    for file in [CHARTS[0], *(f"install-{name}.yaml" for name in DEPLOYED)]:
        (tmp_path / file).write_bytes((released / file).read_bytes())
    dead = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    folders = f"{Path(tool('helm')).parent}:/usr/bin:/bin"
    environment = {"PATH": folders, "HOME": str(tmp_path), "REGISTRY": "registry.local/a", "VERSION": "v1.35.2", **dead}
    rendering = install.replace("helm install", "helm template --kube-version v1.35.2")
    printed = ""
    for command in [*naming, rendering]:
        done = subprocess.run(
            [tool("bash"), "-euc", command], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        printed += done.stdout
    images = set(re.findall(r"^ *(?:- )?image: (.*)$", printed, re.MULTILINE))
    scheduler = "registry.local/a/kube-scheduler:v1.35.2"
    assert images == {f"registry.local/a/placement-extender:{version()}", scheduler}
    for name in DEPLOYED:
        assert images_of(load_all(tmp_path / f"install-{name}.yaml")) <= images


def test_the_archive_of_the_chart_is_an_oci_artifact_as_helm_pushes_it(released: Path) -> None:
    with tarfile.open(released / CHARTS[1]) as archive:
        blobs = {name: file.read() for name in archive.getnames() if (file := archive.extractfile(name))}
    (named,) = json.loads(blobs["index.json"])["manifests"]
    assert named["annotations"] == {"org.opencontainers.image.ref.name": version()}
    manifest = json.loads(blobs[f"blobs/sha256/{named['digest'].removeprefix('sha256:')}"])
    (layer,) = manifest["layers"]
    for one in (named, manifest["config"], layer):
        content = blobs[f"blobs/sha256/{one['digest'].removeprefix('sha256:')}"]
        assert (sha256(content).hexdigest(), len(content)) == (one["digest"].removeprefix("sha256:"), one["size"])
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert blobs[f"blobs/sha256/{layer['digest'].removeprefix('sha256:')}"] == (released / CHARTS[0]).read_bytes()


def test_the_packed_chart_runs_the_image_that_will_be_pushed(tmp_path: Path) -> None:
    tool("helm")
    write_chart(tmp_path, 5, "registry.example/a/b", DIGEST)
    command = [tool("helm"), "template", "any", str(tmp_path / CHARTS[0])]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert f"image: registry.example/a/b@{DIGEST}" in rendered


def test_what_is_in_the_folder_is_not_taken_for_a_part_of_the_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool("kubectl")
    (tmp_path / "other").touch()
    assert main(["--out", str(tmp_path), "--without-image"]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_of_the_settings_of_pip_those_of_the_index_count_the_environment_first_and_no_folder_of_this_machine() -> None:
    listed = """:env:.index-url='https://first.example/simple'
global.index-url='https://second.example/simple'
global.extra-index-url='file:///srv/wheels https://more.example/simple'
global.constraint='/etc/constraints.txt'
install.trusted-host='more.example'
global.cert='/etc/ssl/all.pem'
freeze.timeout='10'
WARNING: this is no setting
"""
    assert index_settings(listed) == (
        {
            "index-url": "https://first.example/simple",
            "extra-index-url": "https://more.example/simple",
            "trusted-host": "more.example",
        },
        "/etc/ssl/all.pem",
    )


def test_the_build_gets_the_index_of_this_machine_as_a_secret_and_in_no_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in = programs / "buildah"
    stand_in.write_text(RECORDING_BUILDER, "utf-8")
    stand_in.chmod(0o755)
    authorities = tmp_path / "authorities.pem"
    authorities.write_text("an authority\n", "utf-8")
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("TOLD", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:password@index.example/simple")
    monkeypatch.setenv("PIP_CERT", str(authorities))
    build("any:0.1.0", "a-base", 5)
    reported = (tmp_path / "arguments").read_text("utf-8").splitlines()
    secrets = (tmp_path / "secrets").read_text("utf-8")
    assert {"build", "--build-arg=BASE=a-base", "--timestamp=5", str(DEPLOY / "Containerfile"), str(ROOT)} <= set(
        reported
    )
    assert "example" not in "".join(reported)
    assert "index-url = https://user:password@index.example/simple" in secrets
    assert "cert = /run/secrets/pip.pem" in secrets
    assert "an authority" in secrets


@pytest.mark.parametrize("platforms", [[], ["linux/amd64", "linux/arm64"]])
def test_an_index_is_built_platform_by_platform_so_that_its_order_is_the_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platforms: list[str]
) -> None:
    stand_in = tmp_path / "buildah"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/commands\n', "utf-8")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    build("any:0.1.0", "a-base", 5, platforms)
    commands = (tmp_path / "commands").read_text("utf-8").splitlines()
    told = [
        re.findall(r"--platform (\S+) --manifest any:0.1.0", each) for each in commands if each.startswith("build ")
    ]
    assert told == [[each] for each in platforms] or (told == [[]] and not platforms)
    removed = [each for each in commands if not each.startswith("build ")]
    assert removed == (["manifest rm any:0.1.0", "rmi any:0.1.0"] if platforms else []), "an earlier index would grow"
    assert any("--tag any:0.1.0" in each for each in commands) == (not platforms)


def test_a_platform_without_wheels_is_refused() -> None:
    assert listed_platforms("linux/arm64, linux/amd64") == ["linux/arm64", "linux/amd64"]
    with pytest.raises(ReleaseError, match="linux/s390x is none of linux/amd64, linux/arm64"):
        listed_platforms("linux/amd64,linux/s390x")


def signed(folder: Path, monkeypatch: pytest.MonkeyPatch, *, has_cosign: bool = True) -> Path:
    """A release of one file, and a cosign that writes down its command and makes the bundle."""
    programs, release = folder / "bin", folder / "dist"
    programs.mkdir()
    release.mkdir()
    (release / "a.whl").write_bytes(b"a wheel")
    (release / CHECKSUMS).write_text(f"{sha256(b'a wheel').hexdigest()}  a.whl\n", "utf-8")
    (release / DIGEST_FILE).write_text(f"{DIGEST}\n", "utf-8")
    if has_cosign:
        cosign = programs / "cosign"
        cosign.write_text(f'#!/bin/sh\necho "$@" >>{folder}/commands\n', "utf-8")
        cosign.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return release


@pytest.mark.parametrize(("key", "option"), [("", ""), ("cosign.key", "--key=cosign.key ")])
def test_the_checksums_are_signed_and_the_command_for_the_image_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str, option: str
) -> None:
    release = signed(tmp_path, monkeypatch)
    assert sign(["--out", str(release), "--name", "r.example.com/x", *([f"--key={key}"] if key else [])]) == 0
    command = (tmp_path / "commands").read_text("utf-8")
    assert command == f"sign-blob --yes {option}--bundle={release / BUNDLE} {release / CHECKSUMS}\n"
    assert f"cosign sign --yes --recursive {option}r.example.com/x@{DIGEST}" in capsys.readouterr().out


def test_without_cosign_nothing_is_signed_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert sign(["--out", str(signed(tmp_path, monkeypatch, has_cosign=False))]) == 1
    assert "make sign: cosign is not installed, so nothing is signed" in capsys.readouterr().err


def test_a_file_with_another_checksum_is_not_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release = signed(tmp_path, monkeypatch)
    (release / "a.whl").write_bytes(b"another wheel")
    assert sign(["--out", str(release)]) == 1
    assert "is not the file that SHA256SUMS names" in capsys.readouterr().err
    assert sign(["--out", str(tmp_path)]) == 1
    assert "`make release` writes it" in capsys.readouterr().err
    assert not (tmp_path / "commands").exists()


def test_a_builder_that_fails_is_reported_with_what_it_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "podman").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseError, match=r"failed: .*/podman build"):
        build("any:0.1.0")


def test_the_image_can_be_built_by_a_python_without_any_package() -> None:
    """`make image` must not wait for the tools of development."""
    command = [sys.executable, "-S", "-m", "deploy.release.image", "--help"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

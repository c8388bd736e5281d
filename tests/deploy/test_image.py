"""The image: two stages, no root, and nothing downloaded but what deploy/requirements names by version and hash."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.deploy.building import DEPLOY, ROOT
from tests.programs import tool

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
DIRECT = {
    "run.txt": [*PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"]["uvloop"]],
    "build.txt": PROJECT["build-system"]["requires"],
}
EACH = pytest.mark.parametrize("file", DIRECT)


def locked(file: str) -> dict[str, tuple[Version, list[str]]]:
    """The version and the hashes of each name in a file. AssertionError for a line of any other form."""
    text = (DEPLOY / "requirements" / file).read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    found: dict[str, tuple[Version, list[str]]] = {}
    for line in lines:
        match = re.fullmatch(r"(\S+)==(\S+)(?: ; [^#]+?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line)
        assert match, (
            f"{file}: a version, perhaps for a platform, and hashes are expected, not an option or an address: {line}"
        )
        found[canonicalize_name(match[1])] = Version(match[2]), match[3].split()
    return found


def everything_for(direct: Iterable[str]) -> Iterator[Requirement]:
    """Requirements, and those of the distributions that meet them, as far as they hold for this interpreter."""
    waiting, seen = [Requirement(text) for text in direct], set[str]()
    while waiting:
        wanted = waiting.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        yield wanted
        if wanted.name not in seen:
            seen.add(wanted.name)
            waiting += [Requirement(text) for text in requires(wanted.name) or ()]


@EACH
def test_every_dependency_is_locked_within_its_range(file: str) -> None:
    held = locked(file)
    wanted = [Requirement(text) for text in DIRECT[file]]
    assert len(wanted) >= 1
    outside = [str(each) for each in wanted if held[canonicalize_name(each.name)][0] not in each.specifier]
    assert outside == [], "run `make lock`"


@EACH
def test_what_the_dependencies_need_themselves_is_locked_as_well(file: str) -> None:
    """Pip ends at the first name without a hash, which would be seen when the image is built."""
    missing = {each.name for each in everything_for(DIRECT[file]) if canonicalize_name(each.name) not in locked(file)}
    assert missing == set(), "run `make lock`"


@EACH
def test_every_locked_version_has_more_than_one_hash_none_twice(file: str) -> None:
    """A wheel and an sdist at least; a hash that stands twice is a file that was edited by hand."""
    for name, (_, hashes) in locked(file).items():
        assert len(hashes) == len(set(hashes)) >= 2, name


def lines() -> list[str]:
    """The Containerfile's instructions, each on one line."""
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_image_installs_nothing_without_a_hash() -> None:
    calls = [call for line in lines() for call in re.split("&&|;", line) if re.search(r"\bpip\b.* install ", call)]
    assert len(calls) == 4
    assert [call for call in calls if "--require-hashes" not in call and "--no-index --no-deps" not in call] == []
    named = {match for call in calls for match in re.findall(r"-r requirements/(\S+)", call)}
    assert named == set(DIRECT)


def test_the_image_is_made_in_two_stages_from_one_base_and_does_not_run_as_root() -> None:
    stages = [line for line in lines() if line.startswith("FROM ")]
    first, second = "FROM --platform=$BUILDPLATFORM ${BASE} AS build", "FROM ${BASE}"
    assert stages == [first, second], "one digest, given from outside, holds both"
    after = lines()[lines().index(second) :]
    assert [line for line in after if line.startswith("RUN ")] == [], (
        "it may be of a platform that this machine cannot run"
    )
    (base,) = [line for line in lines() if line.startswith("ARG BASE=")]
    assert re.fullmatch(r"ARG BASE=\S+:\d+\.\d+-slim", base)
    (user,) = [line.removeprefix("USER ") for line in lines() if line.startswith("USER ")]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert lines().index(f"USER {user}") > lines().index(stages[1])


def test_pip_of_the_image_reads_the_index_of_this_machine_where_the_build_is_given_it() -> None:
    """By `deploy/release/image.py`, under these names; a secret that is not given is none."""
    (first,) = [line for line in lines() if "requirements/run.txt" in line and line.startswith("RUN ")]
    assert re.findall(r"--mount=type=secret,id=(\S+)", first) == ["pip.conf", "pip.pem"]
    assert any("PIP_CONFIG_FILE=/run/secrets/pip.conf" in line for line in lines() if line.startswith("ENV "))
    assert "required" not in first


def test_the_image_names_no_index_of_packages() -> None:
    assert "://" not in "".join(lines())


def test_every_tag_of_the_image_in_these_files_is_the_version_of_the_project() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    tags = {tag for path in files for tag in re.findall(r"placement-extender:(\d[\w.]*)", path.read_text("utf-8"))}
    assert tags == {PROJECT["project"]["version"]}


def test_what_the_image_copies_is_there_and_holds_what_the_wheel_ships() -> None:
    copied = [line.split()[1:-1] for line in lines() if line.startswith("COPY ") and "--from" not in line]
    names = {name for names in copied for name in names}
    assert {name for name in names if not (ROOT / name).exists()} == set()
    shipped = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {name for name in shipped if name.split("/")[0] not in names} == set()


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", "x86_64"), ("arm64", "aarch64"), ("s390x", "")])
def test_the_wheels_of_another_platform_are_chosen_by_its_name(architecture: str, machine: str) -> None:
    script = f'TARGETARCH={architecture}; . requirements/platforms.sh; echo "$FOREIGN"'
    done = subprocess.run([tool("bash"), "-c", script], cwd=DEPLOY, check=False, capture_output=True, text=True)
    assert (done.returncode == 0) == bool(machine)
    options = done.stdout.split()
    assert options == [] or options[0] == "--only-binary=:all:"
    assert all(option.endswith(f"_{machine}") for option in options[1:])
    assert machine or "no wheels are known for the platform linux/s390x" in done.stderr

"""`extender support-bundle`: what is in it, that no name is, and what it says where parts cannot be had."""

from __future__ import annotations

import asyncio
import gzip
import re
import stat
import tarfile
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.cli.main import main
from extender.cli.redacted_texts import TextRedactor
from extender.simulator.apiserver.kinds import PODS
from tests.cli.kubectl_plugin import Plugin
from tests.cli.printing import called
from tests.simulator.plain import pod

PARTS: Final = (
    *("about.txt", "decisions.json", "configuration.json", "versions.json", "readyz.txt"),
    *("metrics.txt", "doctor.json", "recording.jsonl.gz"),
)
# Names in the cluster of the fixture, and one that the test adds.
NAMES: Final = (b"web-1", b"web-2", b"node-a", b"shop", b"secret-project", b"extender-1")
KEY: Final = b"a key of some length"


def parts_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {Path(each.name).name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]


async def collected(plugin: Plugin, path: Path, *arguments: str) -> tuple[dict[str, Any], str, str]:
    code, out, error = await plugin.run("support-bundle", "--file", str(path), *arguments)
    assert code == 0, error
    return parts_of(path), out, error


async def test_it_has_each_part_and_no_name(plugin: Plugin, tmp_path: Path) -> None:
    plugin.add("extender-1", "kube-system")
    plugin.api.operations.create(PODS, pod("secret-project", "shop", labels={"secret-project": "secret-project"}))
    (tmp_path / "key").write_bytes(KEY)
    bundle = tmp_path / "bundle.tar.gz"
    parts, out, error = await collected(plugin, bundle, "--redact-key-file", str(tmp_path / "key"))
    assert sorted(parts) == sorted(PARTS), error
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    assert out == f"{bundle}: {', '.join(PARTS[1:])}\n"
    plain = {name: gzip.decompress(body) if name.endswith(".gz") else body for name, body in parts.items()}
    assert {(name, each) for name, body in plain.items() for each in NAMES if each in body} == set()
    assert orjson.loads(parts["configuration.json"])["mode"] == "offload"
    assert re.findall(rb"\[\+\]x\S*", parts["readyz.txt"]) == []
    assert b"[+]replicationcontrollers ok" in parts["readyz.txt"]
    assert re.findall(rb'le="[^"]*x[^"]*"', parts["metrics.txt"]) == []
    assert b'extender_index_entries{kind="pods"} 4.0' in parts["metrics.txt"]
    assert orjson.loads(parts["versions.json"])["service"]["version"] == orjson.loads(parts["versions.json"])["command"]
    findings = orjson.loads(parts["doctor.json"])["findings"]
    assert {each["severity"] for each in findings} <= {"info", "warning", "error"}
    assert any("scheduler" in each["problem"] for each in findings)
    assert TextRedactor(KEY).name("secret-project").encode() in plain["recording.jsonl.gz"]


async def test_the_objects_are_a_recording_that_replay_reads(
    plugin: Plugin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin.add("extender-1", "kube-system")
    parts, _, _ = await collected(plugin, tmp_path / "bundle.tar.gz")
    (tmp_path / "recording.jsonl.gz").write_bytes(parts["recording.jsonl.gz"])
    replayed = called(capsys, "replay", str(tmp_path / "recording.jsonl.gz"))
    assert (replayed.code, replayed.out.endswith("0 answers differ\n")) == (0, True), replayed
    assert orjson.loads(gzip.decompress(parts["recording.jsonl.gz"]).splitlines()[0])["redacted"] is True


async def test_without_a_service_it_has_the_cluster_and_says_what_it_lacks(plugin: Plugin, tmp_path: Path) -> None:
    parts, out, error = await collected(plugin, tmp_path / "bundle.tar.gz")
    assert sorted(parts) == ["about.txt", "recording.jsonl.gz", "versions.json"]
    assert out.endswith(": versions.json, recording.jsonl.gz\n")
    for part in ("decisions.json", "configuration.json", "readyz.txt", "metrics.txt", "doctor.json"):
        assert f"left out: {part}: no pod of the extender was found in any namespace" in error
        assert f"left out: {part}: no pod of the extender was found" in parts["about.txt"].decode()


async def test_a_service_that_answers_nonsense_is_no_reason_to_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\033[2J\033]0;owned\007"
    answers = {
        "/configz": b"[" * 100_000,
        "/debug/decisions": orjson.dumps(
            {"decisions": [{"namespace": hostile, "pod": hostile, "uid": 1, "nodes": {}}]}
        ),
        "/version": orjson.dumps({"version": hostile}),
        "/readyz": hostile.encode(),
        "/metrics": b"x" * (9 * 2**20),
    }

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=answers.get(request.path, b"\xff"))

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        path = tmp_path / "bundle.tar.gz"
        given = ["support-bundle", "--url", url, "--no-cluster", "--file", str(path)]
        assert await asyncio.to_thread(main, given) == 0
    printed = capsys.readouterr()
    assert "\033" not in printed.out + printed.err
    assert f"left out: metrics.txt: {url}/metrics has more than 8388608 bytes" in printed.err
    assert "left out: configuration.json: " in printed.err
    parts = parts_of(path)
    assert sorted(parts) == ["about.txt", "decisions.json", "doctor.json", "readyz.txt", "versions.json"]
    assert not [name for name, body in parts.items() if b"\033" in body or b"owned" in body]


def test_a_file_that_exists_is_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(b"mine")
    result = called(capsys, "support-bundle", "--file", str(path))
    assert (result.code, result.err) == (1, f"extender: {path}: File exists\n")
    assert path.read_bytes() == b"mine"


def test_words_of_messages_stay_and_names_do_not() -> None:
    texts = TextRedactor(KEY)
    said = texts.message("the account may not list pods in kube-system: 403, user system:serviceaccount:shop:web-1.")
    assert said.startswith("the account may not list pods in kube-system: 403, user ")
    assert "shop" not in said
    assert "web-1" not in said
    assert said.endswith(".")
    assert texts.message("+ 1.048576e+06, v1.36.3, 99% and NaN") == "+ 1.048576e+06, v1.36.3, 99% and NaN"
    assert texts.message("10.1.2.3:8888") == f"{texts.names.text('10.1.2.3')}:8888"
    assert texts.message("pods are listed") == "pods are listed"
    assert texts.message("web") == texts.names.text("web")  # a name that modules import, and no word of a message
    assert texts.name("listed") == texts.names.text("listed")  # a namespace of this name
    assert texts.message("pods are listed").startswith("pods are x")

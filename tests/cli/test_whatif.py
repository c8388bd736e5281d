"""`extender whatif` as a user runs it: what README shows, a snapshot, and what it says of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import orjson
import pytest
import yaml

from extender.cli.main import main
from tests.builders import node_json, pod_json
from tests.cli.test_explain import README, running_main, scenario

__all__ = ["scenario"]  # the fixture that tests here name
ROOM: Final = {"cpu": "2", "memory": "1Gi", "pods": "3"}


def blocks() -> Iterator[tuple[str, str]]:
    """The commands of README's section, each with the output that follows."""
    section = README.partition("### What if?")[2].partition("\n### ")[0]
    for commands, output in re.findall(r"((?:^    .*\n)+)\n```text\n((?:.*\n)*?)```", section, re.MULTILINE):
        yield re.sub(r"^    ", "", commands, flags=re.MULTILINE), output


@pytest.mark.asyncio(loop_scope="module")
async def test_the_readme_shows_what_is_printed(
    scenario: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = list(blocks())
    assert len(shown) == 2
    for commands, output in shown:
        for name, content in re.findall(r"cat > (\S+) <<'END'\n(.*?)^END$", commands, re.MULTILINE | re.DOTALL):
            tmp_path.joinpath(name).write_text(content, "utf-8")
        (arguments,) = re.findall(r"^\.venv/bin/extender (.*)$", commands, re.MULTILINE)
        code, printed, _ = await running_main(capsys, *arguments.split(), "--url", scenario)
        assert (code, printed) == (0, output)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_bad_change_is_named(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = await running_main(capsys, "whatif", "--delete", "node/none", "--url", scenario)
    assert (code, "delete[0].name: Node none is not known" in said) == (1, True)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """A file with two nodes, one of which is full, and a pending pod that fits on none."""
    objects = [
        node_json("n0", allocatable=ROOM) | {"kind": "Node"},
        node_json("n1", allocatable=ROOM) | {"kind": "Node"},
        pod_json("old", on="n0", requests={"cpu": "2"}) | {"kind": "Pod"},
        pod_json("large", requests={"cpu": "4"}) | {"kind": "Pod"},
    ]
    path = tmp_path / "cluster.json"
    path.write_bytes(orjson.dumps({"kind": "List", "items": objects}))
    return str(path)


def test_a_snapshot_gives_the_same_without_a_service(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--snapshot", snapshot, "--delete", "node/n0"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 placed, 1 rejected, 1 displaced from deleted nodes",
        "",
        "  POD            WHY ASKED  WAS ON  GOES TO   REASON",
        "  default/old    displaced  n0      n1",
        "  default/large  pending    -       rejected  0/1 nodes are available: 1 node(s) had too few resources left.",
    ]


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_manifests_are_objects_to_add_and_the_output_has_other_forms(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str
) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(yaml.safe_dump(node_json("n2", allocatable={"cpu": "8", "pods": "9"}) | {"kind": "Node"}))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path), "-o", form]) == 0
    printed = capsys.readouterr().out
    found = orjson.loads(printed) if form == "json" else yaml.safe_load(printed)
    assert found["placements"] == [{"pod": "default/large", "state": "placed", "origin": "pending", "node": "n2"}]


def test_pods_of_a_deleted_node_may_be_gone(snapshot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "--snapshot", snapshot, "--delete", "node/n0", "--displaced", "gone"]) == 0
    assert "default/old    displaced  n0      gone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"aply": []}, "object contains unknown field aply"),
        ({"apply": [{"kind": "Pod", "metadata": {}}]}, "apply[0].metadata.name: is missing"),
        (
            {"apply": [{"kind": "Secret", "metadata": {"name": "a"}}]},
            "apply[0].kind: expected a kind that decisions read",
        ),
        ({"apply": [node_json("n5") | {"kind": "Node"}]}, "apply[0].status.allocatable: is missing"),
        ({"delete": [{"kind": "Pod", "name": "none"}]}, "delete[0].name: Pod default/none is not known"),
        ({"delete": [{"kind": "Node", "name": "n0", "namespace": "a"}]}, "delete[0].namespace: Node has none"),
        ({"place": {"limit": -1}}, "place.limit"),
        ({"displaced": "moved"}, "displaced"),
    ],
)
def test_a_field_at_fault_is_named(
    snapshot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, document: object, problem: str
) -> None:
    path = tmp_path / "changes.yaml"
    path.write_text(yaml.safe_dump(document))
    assert main(["whatif", "--snapshot", snapshot, "-f", str(path)]) == 1
    said = capsys.readouterr().err
    assert problem in said.replace("`", "")
    assert str(path) in said


@pytest.mark.parametrize("wrong", ["n0", "node", "node//", "secret/a", "pod/a/b/c"])
def test_an_object_to_delete_has_a_kind_and_a_name(capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--delete", wrong])
    assert ended.value.code == 2
    assert f'expected KIND/NAME or KIND/NAMESPACE/NAME, got "{wrong}"' in capsys.readouterr().err

"""`extender simulate`: the real service on an embedded cluster, the last line, the exit codes, and errors for people."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main

KEEP_APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def _scenario(folder: Path, **parts: Any) -> str:
    document = {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "Scenario",
        "name": "test",
        "cluster": {"nodes": [{"count": 3}], "namespaces": [{"name": "default"}]},
        "templates": {"web": {"labels": {"app": "web"}, "spec": {"affinity": KEEP_APART}}},
        "steps": [{"arrive": {"template": "web", "count": 4}}, {"settle": {"calm": "200ms"}}],
        **parts,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return str(path)


def test_the_real_service_rejects_what_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", _scenario(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    reason = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."
    assert lines[-2:] == [f"pending: default/web-3: {reason}", "placed 3, pending 1, violations 0"]


def test_a_report_is_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", _scenario(tmp_path), "--seed", "5", "-o", "json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (report["seed"], report["placed"], report["pending"], report["violations"]) == (5, 3, 1, [])
    assert captured.err.splitlines()[-1] == "placed 3, pending 1, violations 0"


def test_an_expectation_that_fails_is_reported_and_gives_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"settle": {"calm": "50ms"}}, {"expect": {"placed": 9}}]
    assert main(["simulate", _scenario(tmp_path, steps=steps)]) == 1
    out = capsys.readouterr().out
    assert "unexpected: steps[1].expect.placed: expected 9, got 0" in out
    assert out.splitlines()[-1] == "placed 0, pending 0, violations 0"


def test_a_pod_that_is_pending_for_another_reason_gives_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"arrive": {"template": "web", "count": 4}}, {"settle": {"calm": "50ms"}}]
    path = _scenario(tmp_path, steps=[*steps, {"expect": {"waiting": {"*": "Insufficient cpu"}}}])
    assert main(["simulate", path]) == 1
    said = "default/web-3: 0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules."
    problem = f"unexpected: steps[2].expect.waiting: expected only what is listed, got {said}"
    assert problem in capsys.readouterr().out.splitlines()


def test_a_short_run_has_its_own_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = {"nodes": [{"count": {"full": 3, "short": 2}}], "namespaces": [{"name": "default"}]}
    for short, line in (([], "placed 3, pending 1, violations 0"), (["--short"], "placed 2, pending 2, violations 0")):
        assert main(["simulate", _scenario(tmp_path, cluster=cluster), *short]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == line


def test_the_scenario_sets_the_extender(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # With its rule off the extender lets the pods crowd, and the judge, which knows no settings, says so.
    rules = {"interPodAffinity": {"enabled": False}}
    path = _scenario(
        tmp_path,
        extender={"rules": rules, "placement": "cooperative"},
        steps=[
            {"changeNodes": {"action": "delete", "nodes": "node-[12]"}},
            {"arrive": {"template": "web", "count": 2}},
        ],
    )
    assert main(["simulate", path]) == 1
    out = capsys.readouterr().out
    assert "violation: decision 2: default/web-1 on node-0: node(s) didn't match pod anti-affinity rules" in out
    assert out.splitlines()[-1] == "placed 2, pending 0, violations 1"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"sede": 1}, 'sede: unknown field, did you mean "seed"?'),
        ({"extender": {"mode": "offlaod"}}, "extender.mode: expected offload or augment, got 'offlaod'"),
        ({"cluster": {"files": ["nodes.yaml"]}}, "No such file or directory"),
        ({"steps": [{"arrive": {"template": "web", "count": 1, "namespaces": "x"}}]}, 'no namespace matches "x"'),
    ],
)
def test_a_scenario_that_cannot_be_played_is_reported_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, Any], message: str
) -> None:
    assert main(["simulate", _scenario(tmp_path, **parts)]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_files_beside_the_scenario_hold_ordinary_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{i}", "labels": {"kubernetes.io/hostname": f"n{i}"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}},
        }
        for i in range(2)
    ]
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "a.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes}), "utf-8")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    (folder / "b.yaml").write_text("---\n---\n" + yaml.safe_dump(namespace), "utf-8")
    assert main(["simulate", _scenario(tmp_path, cluster={"files": ["cluster"]})]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "placed 2, pending 2, violations 0"

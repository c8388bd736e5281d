"""The command as a whole: its exit codes, and where its words go."""

import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import orjson
import pytest

from extender.cli import kubectl
from extender.cli.main import COMMANDS, OUTPUT_CLOSED, main, say
from tests.builders import namespace_json, node_json, pod_json, term
from tests.policies import policy_json

ROOT = Path(__file__).resolve().parents[2]


def test_version_prints_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"extender {version('placement-extender')}\n"


@pytest.mark.parametrize(
    ("argv", "without"),
    [
        (["version"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich", "yaml", "msgspec"}),
        (["config", "validate", "config/extender.yaml"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich"}),
        (["config", "generate"], {"aiohttp", "kubernetes_asyncio", "cryptography", "rich"}),
        (["certs", "--help"], {"aiohttp", "kubernetes_asyncio", "rich"}),
        (["serve", "--help"], {"rich", "extender.simulator"}),
        (["doctor", "--help"], {"extender.simulator"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_no_library_that_it_does_not_need(argv: list[str], without: set[str]) -> None:
    """The Kubernetes client alone takes half a second to import, which every command would take longer to start."""
    script = f"import sys\nfrom extender.cli.main import main\ntry: main({argv})\nfinally: print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    imported = set(ran.stdout.splitlines()[-1].split())
    assert "extender.cli.main" in imported
    assert imported & without == set()


def test_output_that_is_read_in_part_ends_the_command_quietly() -> None:
    command = [sys.executable, "-m", "extender", "config", "generate"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.wait(30) == OUTPUT_CLOSED
        assert running.stderr.read() == b""


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert set(COMMANDS) <= {line.split()[0] for line in shown.splitlines() if line.startswith("    ")}


@pytest.mark.parametrize("argv", [[], ["dance"], ["config"], ["serve", "--log-level", "loud"]], ids=" ".join)
def test_wrong_usage_is_exit_code_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "usage: extender" in capsys.readouterr().err


def test_a_wrong_address_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--bind-address", "8888"])
    assert 'expected an address such as "127.0.0.1:8888"' in capsys.readouterr().err


def test_what_a_command_cannot_do_is_reported_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--config", "/nowhere/extender.yaml"]) == 1
    assert capsys.readouterr().err == "extender: /nowhere/extender.yaml: No such file or directory\n"


def test_ctrl_c_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("extender.cli.main.print_version", interrupted)
    assert main(["version"]) == 130


def test_the_console_script_and_python_m_are_the_same_command(tmp_path: Path) -> None:
    for name, function in (
        ("extender", main),
        ("kubectl-placement", kubectl.main),
        ("kubectl_complete-placement", kubectl.complete),
    ):
        (script,) = entry_points(group="console_scripts", name=name)
        assert script.load() is function
    ran = subprocess.run(
        [sys.executable, "-m", "extender", "version"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"extender {version('placement-extender')}\n"


def test_what_tenants_write_controls_no_terminal_and_forges_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    """An ANSI sequence, a C1 one, a carriage return, a new line, and a bidirectional override."""
    say("a\x1b[2Jb\x9bm\rc\nd\u202ee", "é ·", to=sys.stderr)
    assert capsys.readouterr().err == "a\\u001b[2Jb\\u009bm\\u000dc\\u000ad\\u202ee\né ·\n"


HOSTILE = "\x1b[31mred\x9b0m\r\nforged: line\u202e"


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "shop/web"],
        ["explain", "shop/web", "-o", "json"],
        ["explain", "shop/web", "-o", "yaml"],
        ["whatif"],
        ["policy", "test", "{policies}", "-n", "shop"],
        ["policy", "test", "{policies}", "-n", "shop", "-o", "json"],
        ["policy", "test", "{policies}", "-n", "shop", "-o", "yaml"],
        ["quota", "report"],
        ["groups"],
    ],
    ids=" ".join,
)
def test_no_command_prints_what_an_object_would_have_the_terminal_do(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    far = term("zone", app="web", namespace_selector={})
    labels = {"app": "web", "note": HOSTILE}
    pending = pod_json("web", namespace="shop", labels=labels, apart=[far, term(HOSTILE, app=HOSTILE)])
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": HOSTILE}
    pending["status"] = {"conditions": [condition]}
    pending["metadata"]["annotations"] = {"note": HOSTILE}
    other = pod_json(HOSTILE, namespace="shop", labels=labels, on="n1", apart=[far])
    taint = {"key": HOSTILE, "value": HOSTILE, "effect": "NoSchedule"}
    node = node_json("n1", zone="z1", allocatable={"cpu": "4", "pods": "9"}, taints=[taint])
    objects = [("Node", node), ("Pod", pending), ("Pod", other), ("Namespace", namespace_json("shop"))]
    items = [{"apiVersion": "v1", "kind": kind, **each} for kind, each in objects]
    (tmp_path / "cluster").write_bytes(orjson.dumps({"kind": "List", "items": [*items, {"kind": HOSTILE}, 7]}))
    policies = tmp_path / "policies"
    policies.write_bytes(orjson.dumps(policy_json(nodeSelector={"pool": "a"})))
    given = [each.format(policies=policies) for each in arguments]
    assert main([*given, "--snapshot", str(tmp_path / "cluster")]) in (0, 1)
    printed = capfd.readouterr()
    assert [char for char in (printed.out + printed.err).replace("\n", "") if not char.isprintable()] == []
    assert not any(line.lstrip().startswith("forged") for line in (printed.out + printed.err).splitlines())

"""Reading files and the environment."""

import gzip
import io
from pathlib import Path

import pytest
import yaml

from extender.cli.files import access_to, own_file, read_bytes, read_documents, read_snapshot
from extender.cli.main import CommandError, main
from extender.kube.credentials import ACCOUNT_FOLDER, Access
from extender.settings.connections import Kube
from extender.settings.limits import ConstraintLimits

PODS = b'{"kind": "PodList", "items": [{"metadata": {"name": "web-1", "uid": "u-1"}, "spec": {"nodeName": "node-a"}}]}'


@pytest.fixture(autouse=True)
def _bare_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster around us, and a home of our own."""
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_what_the_settings_name_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    kube = Kube(kubeconfig="/etc/extender/kubeconfig", context="blue")
    assert access_to(kube) == Access(kubeconfig="/etc/extender/kubeconfig", context="blue")


@pytest.mark.parametrize(
    ("host", "port", "url"),
    [("10.0.0.1", "6443", "https://10.0.0.1:6443"), ("fd00::1", "443", "https://[fd00::1]:443")],
)
def test_inside_a_cluster_the_pods_account_is_used(
    monkeypatch: pytest.MonkeyPatch, host: str, port: str, url: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    assert access_to(Kube()) == Access(host=url, account_folder=ACCOUNT_FOLDER)


def test_elsewhere_it_is_what_kubectl_would_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert access_to(Kube()) == Access(kubeconfig=f"{tmp_path}/.kube/config")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    assert access_to(Kube(context="blue")) == Access(kubeconfig="/elsewhere", context="blue")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=f"^{tmp_path}: Is a directory$"):
        read_bytes(str(tmp_path))


def test_a_snapshot_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(PODS)))
    assert [found.name for found in read_snapshot("-", ConstraintLimits()).objects] == ["web-1"]


LISTED = PODS.decode()
AS_YAML = yaml.safe_dump(yaml.safe_load(PODS))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(LISTED.encode("utf-8-sig"), id="byte order mark"),
        pytest.param(LISTED.encode("utf-16"), id="UTF-16"),
        pytest.param(b"\xfe\xff" + LISTED.encode("utf-16-be"), id="UTF-16, the other way round"),
        pytest.param(LISTED.encode("utf-16-le"), id="UTF-16 without a mark"),
        pytest.param(LISTED.encode("utf-16-be"), id="UTF-16 without a mark, the other way round"),
        pytest.param(AS_YAML.encode(), id="YAML"),
        pytest.param(AS_YAML.encode("utf-16"), id="YAML in UTF-16"),
        pytest.param(f"# nodes\nkind: NodeList\nitems: []\n---\n{AS_YAML}---\n".encode(), id="documents of YAML"),
        pytest.param(
            yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(PODS)]}).encode(), id="a List within a List"
        ),
    ],
)
def test_a_snapshot_is_read_in_every_form_that_a_shell_writes(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "cluster"
    path.write_bytes(body)
    assert [found.name for found in read_snapshot(str(path), ConstraintLimits()).objects] == ["web-1"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_manifest_may_be_a_list_within_a_list_in_any_encoding_with_a_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "pods.yaml"
    path.write_bytes(yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(PODS)]}).encode(encoding))
    assert [found["metadata"]["name"] for found in read_documents(str(path))] == ["web-1"]


def test_the_folder_of_a_dump_is_a_snapshot(tmp_path: Path) -> None:
    """As `kubectl cluster-info dump --output-directory` writes it."""
    (tmp_path / "default" / "web-1").mkdir(parents=True)
    (tmp_path / "nodes.json").write_bytes(b'{"kind": "NodeList", "items": [{"metadata": {"name": "n1"}}]}')
    (tmp_path / "default" / "pods.json").write_bytes(PODS)
    (tmp_path / "default" / "web-1" / "logs.txt").write_bytes(b"==== START logs")
    assert [found.name for found in read_snapshot(str(tmp_path), ConstraintLimits()).objects] == ["web-1", "n1"]
    with pytest.raises(CommandError, match="a folder without files of JSON or YAML"):
        read_snapshot(str(tmp_path / "default" / "web-1"), ConstraintLimits())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"NAME    READY   STATUS\nweb-1   1/1     Running\n", "expected objects, as `kubectl get -o json` or"),
        (b"\xff\xfe{", "begins with the byte order mark of utf-16, but is not"),
        (gzip.compress(PODS), "is compressed with gzip, unpack it first"),
        (b"error: {{ x }}: y", "line 1"),
        (b"", "truncated"),
    ],
)
def test_what_is_no_snapshot_is_reported(tmp_path: Path, body: bytes, problem: str) -> None:
    path = tmp_path / "cluster"
    path.write_bytes(body)
    with pytest.raises(CommandError, match=problem):
        read_snapshot(str(path), ConstraintLimits())


def test_a_snapshot_that_cannot_be_read_is_rejected_with_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(b'{"kind":"List","items":7}')
    with pytest.raises(CommandError, match=r"cluster\.json: items: expected"):
        read_snapshot(str(path), ConstraintLimits())


# -- `extender config validate` ----------------------------------------------------------------------------------------

DECIMAL = "write it as a decimal number, without a leading 0 or a colon"
ALIASES = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{number}: &a{number} [{','.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 10)
)  # 10^10 values in 500 bytes
MANY_KEYS = "".join(f"k{number}: 1\n" for number in range(60_000))
GOOD = "apiVersion: placement.extender.dev/v1alpha1\nkind: ExtenderConfiguration\n"


def write(folder: Path, text: str, name: str = "extender.yaml") -> str:
    """A file with this text; gives its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def test_a_valid_file_is_called_valid_with_its_kind_and_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD + "mode: augment\n")
    assert main(["config", "validate", path]) == 0
    assert capsys.readouterr().out == f"{path}: valid (ExtenderConfiguration, mode augment)\n"


def test_every_problem_is_a_line_with_the_file_and_the_fields_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, GOOD + "server:\n  maxBodyBytes: lots\n  port: 1\nlogging: {level: 5}\n")
    assert main(["config", "validate", path]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        f'{path}: server.maxBodyBytes: expected a size such as "32Mi", "500k" or "4096", got "lots"',
        f"{path}: server.port: unknown field",
        f"{path}: logging.level: expected str, got int",
    ]


def test_of_several_files_one_bad_one_is_enough_for_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write(tmp_path, GOOD, "good.yaml"), write(tmp_path, "kind: Pod\n", "bad.yaml")
    assert main(["config", "validate", bad, good]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"{good}: valid (ExtenderConfiguration, mode offload)\n"
    assert f"{bad}: apiVersion: is missing" in printed.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("mode: [offload\n", "line 2, column 1: expected ',' or ']', but got '<stream end>'"),
        (GOOD + "mode: offload\nmode: augment\n", 'line 4, column 1: "mode" is set twice'),
        ("", "expected a mapping, got NoneType"),
        ("--- 1\n--- 2\n", "line 2, column 1: but found another document"),
        (ALIASES, "line 5, column 38: more than 100,000 values, counting the values of each alias"),
        ("a: [[1]]\nb: &b {c: [*b]}\n", "line 2, column 12: an alias inside the node that it refers to"),
        ("a: " + "[" * 100_000 + "\n", "line 1, column 103: more than 100 levels"),
        (MANY_KEYS, "line 50001, column 1: more than 100,000 values"),
        (GOOD + "server: {maxInFlight: 010}\n", f"line 3, column 23: 010 is read as 8: {DECIMAL}"),
        (GOOD + "server: {maxInFlight: 1:30}\n", f"line 3, column 23: 1:30 is read as 90: {DECIMAL}"),
    ],
    ids=[
        *("broken", "a field twice", "empty", "two documents"),
        *("aliases", "a loop of aliases", "levels", "keys", "base 8", "base 60"),
    ],
)
def test_what_is_not_one_yaml_mapping_is_rejected_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    path = write(tmp_path, text)
    assert main(["config", "validate", path]) == 1
    assert capsys.readouterr().err == f"{path}: {problem}\n"


# -- any command ------------------------------------------------------------------------------------------------------

READERS = {
    "config validate": ["config", "validate"],
    "serve": ["serve", "--config"],
    "simulate": ["simulate"],
    "doctor --config": ["doctor", "--no-cluster", "--config"],
    "doctor --scheduler-config": ["doctor", "--no-cluster", "--scheduler-config"],
    "explain": ["explain", "--url", "http://127.0.0.1:9", "-f"],
    "whatif": ["whatif", "--url", "http://127.0.0.1:9", "-f"],
    "policy test": ["policy", "test", "--pod", "/nowhere/pod.yaml"],
    "policy export": ["policy", "export", "--as", "MutatingAdmissionPolicy"],
}
UNRENDERED = "kind: Pod\nmetadata: {name: web, labels: {{ .Values.labels }}}\n"


@pytest.mark.parametrize("command", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (UNRENDERED, "line 2, column 32: expected text as a key"),
        ("kind: Pod\nmetadata: {? [a] : b}\n", "line 2, column 14: expected text as a key"),
        ("kind: Pod\nsince: 2024-13-45\n", 'line 2, column 8: "2024-13-45" is no timestamp'),
        ("kind: Pod\nsize: !!int many\n", 'line 2, column 7: "many" is no int'),
        ("kind: Pod\nsize: !!bool perhaps\n", 'line 2, column 7: "perhaps" is no bool'),
    ],
    ids=["a template that is not rendered", "a list as a key", "no date", "no integer", "no boolean"],
)
def test_what_yaml_cannot_be_is_named_with_its_line_by_every_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], text: str, place: str
) -> None:
    path = write(tmp_path, text)
    assert main([*command, path]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{path}: {place}" in line


def test_a_file_of_a_scenario_that_is_no_yaml_is_named_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = write(tmp_path, UNRENDERED, "objects.yaml")
    head = yaml.safe_load((own_file("demo/scenario.yaml")).read_text("utf-8"))
    scenario = yaml.safe_dump({**head, "cluster": {"files": [objects]}})
    assert main(["simulate", write(tmp_path, scenario, "scenario.yaml")]) == 1
    assert f"{objects}: line 2" in capsys.readouterr().err


# -- manifests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [ALIASES, "a: &a [*a]\n", "a: " + "{b: " * 5_000], ids=["aliases", "loop", "levels"])
@pytest.mark.parametrize(
    "command",
    [
        ["policy", "test", "FILE", "--pod", "POD"],
        ["policy", "test", "POLICY", "--pod", "FILE"],
        ["policy", "export", "--as", "MutatingAdmissionPolicy", "FILE"],
        ["explain", "-f", "FILE", "--snapshot", "FILE"],
        ["whatif", "-f", "FILE", "--snapshot", "FILE"],
        ["doctor", "--scheduler-config", "FILE", "--no-cluster"],
        ["simulate", "FILE"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_no_file_keeps_a_command_busy_or_ends_it_with_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str], text: str
) -> None:
    """What a bound refuses is named with its place. `ALIASES` has more values than fit into any memory."""
    meta = (
        "apiVersion: placement.extender.dev/v1alpha1\nkind: ClusterPodSchedulingPolicy\nmetadata: {name: a}\nspec: {}\n"
    )
    files = {
        "FILE": write(tmp_path, text),
        "POD": write(tmp_path, "kind: Pod\nmetadata: {name: a}\nspec: {}\n", "pod.yaml"),
        "POLICY": write(tmp_path, meta, "policy.yaml"),
    }
    assert main([files.get(word, word) for word in command]) == 1
    assert f"{files['FILE']}: line " in capsys.readouterr().err


def test_an_alias_stands_for_the_same_value_and_a_mode_is_octal_in_a_manifest(tmp_path: Path) -> None:
    text = "kind: A\nx: &x {mode: 0644}\ny: *x\n---\nkind: B\nx: &x [1]\ny: [*x, *x]\n"
    one, two = read_documents(write(tmp_path, text))
    assert (one["y"], two["y"]) == ({"mode": 420}, [[1], [1]])

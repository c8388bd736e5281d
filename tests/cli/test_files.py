"""Reading files and the environment."""

import io
from pathlib import Path

import pytest

from extender.cli.files import access_to, read_bytes, read_snapshot
from extender.cli.main import CommandError
from extender.kube.credentials import ACCOUNT_FOLDER, Access
from extender.settings.connections import Kube
from extender.settings.limits import Limits

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
    assert [found.name for found in read_snapshot("-", Limits()).objects] == ["web-1"]


def test_a_snapshot_that_cannot_be_read_is_rejected_with_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_bytes(b'{"kind":"List","items":7}')
    with pytest.raises(CommandError, match=r"cluster\.json: items: expected"):
        read_snapshot(str(path), Limits())

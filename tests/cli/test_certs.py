"""`extender certs`: files that a server and a client can use at once, and a second run that only renews."""

import stat
from pathlib import Path

import pytest
from cryptography import x509

from extender.cli.main import main
from extender.server.transport.tls import ServerTls
from extender.settings.connections import Tls
from tests.pki import NOW

MADE = ("ca", "server", "client", "metrics", "admin")


def made(folder: Path, *arguments: str) -> dict[str, x509.Certificate]:
    """The certificates that a run leaves behind, by file."""
    assert main(["certs", "--out", str(folder), *arguments]) == 0
    found = {path.name: x509.load_pem_x509_certificate(path.read_bytes()) for path in folder.glob("*.crt")}
    assert set(found) == {f"{name}.crt" for name in MADE}
    return found


def names_of(certificate: x509.Certificate) -> list[str]:
    """The names for which a server's certificate is good."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_the_files_are_what_server_tls_takes(tmp_path: Path) -> None:
    made(tmp_path)
    tls = Tls(
        cert_file=str(tmp_path / "server.crt"),
        key_file=str(tmp_path / "server.key"),
        client_ca_file=str(tmp_path / "ca.crt"),
    )
    assert set(ServerTls(tls).ends) == {"server", "client_ca"}


def test_names_and_days_are_as_asked(tmp_path: Path) -> None:
    found = made(tmp_path, "--names", "extender.example", "10.0.0.7", "--client-name", "me", "--days", "7")
    assert names_of(found["server.crt"]) == ["extender.example", "10.0.0.7"]
    assert found["client.crt"].subject.rfc4514_string() == "CN=me"
    assert {(found[name].not_valid_after_utc - NOW).days for name in ("server.crt", "client.crt")} == {7}


@pytest.mark.parametrize("name", ["CLUSTER-IP", "10.0.0.", "<address>", ""])
def test_a_placeholder_is_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit):
        main(["certs", "--out", str(tmp_path / "certs"), "--names", "extender.example", name])
    assert f'--names: expected a host name or an address, got "{name}"' in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_without_names_it_is_for_this_machine_and_kube_scheduler(tmp_path: Path) -> None:
    found = made(tmp_path)
    assert names_of(found["server.crt"]) == ["localhost", "127.0.0.1", "::1"]
    names = {name: found[f"{name}.crt"].subject.rfc4514_string() for name in ("client", "metrics", "admin")}
    assert names == {
        "client": "CN=system:kube-scheduler",
        "metrics": "CN=prometheus",
        "admin": "CN=placement-extender-admin",
    }


def modes(folder: Path) -> dict[str, int]:
    """Which users may read what is directly in a folder."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_keys_are_for_their_owner_only_and_that_of_the_authority_is_apart(tmp_path: Path) -> None:
    made(tmp_path)
    assert modes(tmp_path) == {
        **{f"{name}.crt": 0o644 for name in MADE},
        **{f"{name}.key": 0o600 for name in MADE if name != "ca"},
        "authority": 0o700,
    }
    assert modes(tmp_path / "authority") == {"ca.crt": 0o644, "ca.key": 0o600}


def test_the_authority_can_be_anywhere_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    safe = tmp_path / "safe" / "authority"
    first = made(tmp_path / "one", "--authority", str(safe))
    assert f"{safe}/ca.key: signs certificates for every role" in capsys.readouterr().out
    second = made(tmp_path / "two", "--authority", str(safe))
    assert second["ca.crt"] == first["ca.crt"]
    assert not (tmp_path / "one" / "authority").exists()


def test_no_new_authority_takes_the_place_of_one_whose_key_is_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = made(tmp_path, "--authority", str(tmp_path / "safe"))
    assert main(["certs", "--out", str(tmp_path)]) == 1
    problem = f"{tmp_path}/ca.crt exists, but its key is not in {tmp_path}/authority"
    assert problem in capsys.readouterr().err
    assert made(tmp_path, "--authority", str(tmp_path / "safe"))["ca.crt"] == first["ca.crt"]


def test_a_second_run_renews_under_the_same_authority(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path)
    assert second["ca.crt"] == first["ca.crt"]
    assert second["server.crt"] != first["server.crt"]
    second["server.crt"].verify_directly_issued_by(first["ca.crt"])


def test_an_authority_whose_key_is_not_there_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    (tmp_path / "authority" / "ca.key").unlink()
    assert main(["certs", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"extender: {tmp_path}/authority/ca.key: No such file or directory\n"


def test_a_key_of_another_authority_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path)
    (tmp_path / "authority" / "ca.key").write_bytes((tmp_path / "client.key").read_bytes())
    assert main(["certs", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"extender: {tmp_path}/authority: the key does not belong to the certificate\n"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["certs", "--out", str(tmp_path / "file" / "folder")]) == 1
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-3", "nan"])
def test_certificates_for_no_time_are_wrong_usage(tmp_path: Path, days: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["certs", "--out", str(tmp_path), "--days", days])

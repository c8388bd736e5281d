"""What is wrong with a certificate file is told before anything listens, by setting and file."""

from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.server.transport.tls import ServerTls, TlsError
from extender.settings.connections import Tls
from tests.server.pki import LONG_AGO, LOOPBACK, NOW, Pki


def problem_of(tls: Tls) -> str:
    """The text with which the files are refused."""
    with pytest.raises(TlsError) as rejected:
        ServerTls(tls)
    return str(rejected.value)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """Good files, for the test to spoil."""
    return Pki(tmp_path)


def test_good_files_are_taken_and_their_ends_are_known(pki: Pki) -> None:
    pki.put_clients_of(pki.authority)
    ends = ServerTls(pki.tls).ends
    assert ends == {
        "server": pytest.approx((NOW + timedelta(days=5)).timestamp(), abs=1),
        "client_ca": pytest.approx((NOW + timedelta(days=10)).timestamp(), abs=1),
    }


def test_a_missing_file_is_named(pki: Pki) -> None:
    Path(pki.tls.key_file).unlink()
    assert problem_of(pki.tls) == f"server.tls.keyFile {pki.tls.key_file}: No such file or directory"


def test_a_file_that_cannot_be_read_is_named(pki: Pki) -> None:
    Path(pki.tls.cert_file).unlink()
    Path(pki.tls.cert_file).mkdir()  # a folder refuses root too, unlike a file without permissions
    assert problem_of(pki.tls) == f"server.tls.certFile {pki.tls.cert_file}: Is a directory"


def test_files_that_hold_something_else_are_named(pki: Pki) -> None:
    Path(pki.tls.cert_file).write_text("-----BEGIN NONSENSE-----")
    assert problem_of(pki.tls) == f"server.tls.certFile {pki.tls.cert_file}: holds no certificate in PEM form"
    pki.put_server(pki.authority.issue("extender", NOW, 5, SERVER, LOOPBACK))
    Path(pki.tls.key_file).write_bytes(Path(pki.tls.cert_file).read_bytes())
    assert problem_of(pki.tls) == f"server.tls.keyFile {pki.tls.key_file}: holds no private key in PEM form"


def test_a_key_of_another_certificate_is_reported_as_that(pki: Pki) -> None:
    Path(pki.tls.key_file).write_bytes(pki.scheduler().key_pem)
    assert problem_of(pki.tls) == (
        f"server.tls.keyFile {pki.tls.key_file}: is not the key of the certificate in"
        f" server.tls.certFile {pki.tls.cert_file}"
    )


def test_a_key_with_a_password_is_rejected_without_a_prompt(pki: Pki) -> None:
    key = pki.scheduler().key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    Path(pki.tls.key_file).write_bytes(key)
    assert problem_of(pki.tls).startswith(f"server.tls.keyFile {pki.tls.key_file}: is protected by a password")


def test_an_expired_certificate_is_reported_with_its_end(pki: Pki) -> None:
    pki.put_server(pki.authority.issue("extender", LONG_AGO, 5, SERVER, LOOPBACK))
    end = (LONG_AGO + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert problem_of(pki.tls) == f'server.tls.certFile {pki.tls.cert_file}: certificate "extender" expired on {end}'


def test_a_certificate_of_tomorrow_is_reported_with_its_begin(pki: Pki) -> None:
    pki.put_server(pki.authority.issue("extender", NOW + timedelta(days=1), 5, SERVER, LOOPBACK))
    assert '"extender" is not valid before ' in problem_of(pki.tls)


def test_an_authority_that_has_expired_is_rejected_unless_another_stands_beside_it(pki: Pki) -> None:
    old = Authority.make("old", LONG_AGO, 5)
    pki.put_clients_of(old)
    assert 'clients.crt: certificate "old" expired on ' in problem_of(pki.tls)
    pki.put_clients_of(old, pki.authority)
    assert ServerTls(pki.tls).ends["client_ca"] == pytest.approx((NOW + timedelta(days=10)).timestamp(), abs=1)


def test_a_clients_certificate_in_place_of_its_authority_is_reported(pki: Pki) -> None:
    pki.put_clients_of(pki.authority)
    Path(pki.tls.client_ca_file).write_bytes(pki.authority.issue("someone", NOW, 5, CLIENT).certificate_pem)
    assert problem_of(pki.tls).startswith(f"server.tls.clientCAFile {pki.tls.client_ca_file}: certificate ")
    assert problem_of(pki.tls).endswith('"someone" is not that of an authority (basicConstraints)')


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False)])
def test_a_key_that_every_account_may_read_draws_a_warning(
    pki: Pki, caplog: pytest.LogCaptureFixture, mode: int, *, warned: bool
) -> None:
    Path(pki.tls.key_file).chmod(mode)
    ServerTls(pki.tls)
    assert [vars(record)["file"] for record in caplog.records] == [pki.tls.key_file] * warned

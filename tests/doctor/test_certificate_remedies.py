"""Certificate files that the service cannot use, or that end soon: doctor says which fault it is, and the remedy ends it.

The files are read as `extender serve` reads them (`ServerTls`), and its metrics are what doctor sees.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from extender.certificates.authority import SERVER, Authority
from extender.cli.main import main
from extender.cli.service_client import ServiceError, Trust, read_service
from extender.compose.embedded import FREE_PORT
from extender.doctor.facts import Facts, Finding, Sample
from extender.doctor.surroundings import examine_surroundings
from extender.server.app import listening
from extender.server.transport.tls import ServerTls, TLSFileProblem
from extender.settings.configuration import Settings
from extender.settings.connections import Tls
from tests.pki import LOOPBACK, NOW, Pki
from tests.server.serving import app_with


def findings(tls: ServerTls) -> list[Finding]:
    """What doctor finds of the metrics of these files."""
    unusable = [
        Sample("extender_certificate_files_unusable", {"cause": cause}, value) for cause, value in tls.unusable.items()
    ]
    ends = [Sample("extender_certificate_expiry_timestamp_seconds", {"name": n}, end) for n, end in tls.ends.items()]
    return examine_surroundings(Facts(Settings(), NOW.timestamp(), samples=[*unusable, *ends]))


def issued(pki: Pki, begin: datetime, days: float = 300.0) -> None:
    pki.put_server(pki.authority.issue("extender", begin, days, SERVER, LOOPBACK))


def lost(pki: Pki) -> None:
    Path(pki.tls.cert_file).unlink()


def no_pem(pki: Pki) -> None:
    Path(pki.tls.cert_file).write_text("certificate", "utf-8")


def with_password(pki: Pki) -> None:
    pair = pki.authority.issue("extender", NOW, 300, SERVER, LOOPBACK)
    pki.put_server(pair)
    encrypted = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    Path(pki.tls.key_file).write_bytes(encrypted)


def of_another(pki: Pki) -> None:
    other = pki.authority.issue("extender", NOW, 300, SERVER, LOOPBACK)
    Path(pki.tls.key_file).write_bytes(other.key_pem)


def of_a_leaf(pki: Pki) -> None:
    leaf = pki.authority.issue("extender", NOW, 300, SERVER, LOOPBACK)
    Path(pki.tls.client_ca_file).write_bytes(leaf.certificate_pem)


def too_short(pki: Pki) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 -- which is refused
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "extender")])
    draft = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(1).public_key(key.public_key())
    signed = draft.not_valid_before(NOW).not_valid_after(NOW + timedelta(days=300)).sign(key, SHA256())
    Path(pki.tls.cert_file).write_bytes(signed.public_bytes(Encoding.PEM))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path(pki.tls.key_file).write_bytes(pem)


def right(pki: Pki) -> None:
    """Both files of one renewal, in PEM, without a password, valid now; and the CA's own certificate for clients."""
    issued(pki, NOW)
    pki.put_clients_of(pki.authority)


@dataclass(frozen=True)
class Row:
    """Wrong files, and what doctor says of them."""

    wrong: Callable[[Pki], None]
    problem: str
    remedy: str


ROWS = {
    TLSFileProblem.UNREADABLE: Row(lost, "cannot be opened", "make them readable for the service's user"),
    TLSFileProblem.MALFORMED: Row(no_pem, "are not in PEM form", "write the certificate and its key in PEM form"),
    TLSFileProblem.PASSWORD: Row(with_password, "contain a key with a password", "write the key without a password"),
    TLSFileProblem.MISMATCH: Row(
        of_another, "are a certificate and the key of another one", "write both files of one renewal"
    ),
    TLSFileProblem.EXPIRED: Row(
        lambda pki: issued(pki, NOW - timedelta(days=9), 3), "contain an expired certificate", "renew it"
    ),
    TLSFileProblem.NOT_YET_VALID: Row(
        lambda pki: issued(pki, NOW + timedelta(days=3), 5),
        "contain a certificate that is not valid yet",
        "check the clocks and the certificate's notBefore",
    ),
    TLSFileProblem.NO_AUTHORITY: Row(
        of_a_leaf,
        "contain a client CA certificate without CA:TRUE",
        "put the CA's own certificate into server.tls.clientCAFile",
    ),
    TLSFileProblem.REJECTED: Row(too_short, "are rejected by OpenSSL", "see OpenSSL's message in the service's log"),
}


@pytest.mark.parametrize("cause", TLSFileProblem)
def test_files_that_cannot_be_used_are_named_and_the_right_ones_end_it(cause: TLSFileProblem, tmp_path: Path) -> None:
    row = ROWS[cause]
    pki = Pki(tmp_path)
    pki.put_clients_of(pki.authority)
    tls = ServerTls(pki.tls)
    assert all("files on disk" not in finding.problem for finding in findings(tls))
    row.wrong(pki)
    tls.reload()
    (found,) = [finding for finding in findings(tls) if "files on disk" in finding.problem]
    assert found.problem == f"the certificate files on disk {row.problem}; the previous ones stay in use"
    assert found.remedy.startswith(row.remedy)
    right(pki)
    tls.reload()
    assert all("files on disk" not in finding.problem for finding in findings(tls))


@pytest.mark.parametrize(("days", "problem"), [(10, "expires in 10 days"), (3, "expires in 3 days")])
def test_certificates_that_end_soon_are_renewed_by_the_command_of_the_remedy(
    days: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["certs", "--out", "certs", "--days", str(days)]) == 0
    tls = ServerTls(Tls(cert_file="certs/server.crt", key_file="certs/server.key", client_ca_file="certs/ca.crt"))
    (found,) = findings(tls)
    assert found.problem == f"the certificate server {problem}"
    command = re.findall("`(extender certs [^`]+)`", found.remedy)[0]
    assert main(shlex.split(command)[1:]) == 0
    tls.reload()
    assert findings(tls) == []


# -- this command is the client


@dataclass(frozen=True)
class Handshake:
    """Names and days of the service's certificate, and whose CA is given with --ca-file."""

    remedy: str
    names: tuple[str, ...] = LOOPBACK
    begins: float = 0.0
    trusts_another: bool = False


HANDSHAKES = {
    "another name": Handshake("make one for that name (`extender certs --out certs --names", ("elsewhere.example",)),
    "expired": Handshake("renew it (`extender certs", begins=-9),
    "not yet valid": Handshake("synchronize the clocks", begins=3),
    "another authority": Handshake("give the CA that signed server.tls.certFile", trusts_another=True),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_the_fault_of_a_handshake_is_told_apart_and_its_remedy_ends_it(name: str, tmp_path: Path) -> None:
    row, pki = HANDSHAKES[name], Pki(tmp_path)
    (another := tmp_path / "another.crt").write_bytes(Authority.make("another", NOW, 10).pair.certificate_pem)
    begin = NOW + timedelta(days=row.begins)
    # A long-lived authority: nothing that it signs is valid for longer.
    long = Authority.make("first", NOW - timedelta(days=30), 90)
    (ca := tmp_path / "ca.crt").write_bytes(long.pair.certificate_pem)
    pki.put_server(long.issue("extender", begin, 3, SERVER, row.names))
    clock = [begin + timedelta(days=1)]  # so that it starts
    tls = ServerTls(pki.tls, lambda: clock[-1])
    async with listening(app_with(), FREE_PORT, tls) as url:
        with pytest.raises(ServiceError, match=r"the TLS handshake with .* fails: ") as raised:
            await asyncio.to_thread(read_service, url, Trust(str(another if row.trusts_another else ca)))
        assert raised.value.check == "tls"
        assert raised.value.remedy.startswith(row.remedy)
        pki.put_server(long.issue("extender", NOW, 30, SERVER, LOOPBACK))
        clock.append(NOW)
        tls.reload()
        state = await asyncio.to_thread(read_service, url, Trust(str(ca)))
    assert state.readiness


async def test_a_service_without_tls_is_asked_by_http(tmp_path: Path) -> None:
    (ca := tmp_path / "ca.crt").write_bytes(Authority.make("any", NOW, 10).pair.certificate_pem)
    async with listening(app_with(), FREE_PORT) as url:
        with pytest.raises(ServiceError) as raised:
            await asyncio.to_thread(read_service, url.replace("http:", "https:"), Trust(str(ca)))
        assert raised.value.remedy == "check that the service has server.tls; else write http:// in --url"
        assert (await asyncio.to_thread(read_service, url, Trust())).readiness

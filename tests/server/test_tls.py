"""HTTPS and which clients are answered, with clients as kube-scheduler's TLSConfig makes them, over real connections."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from extender.certificates.authority import CLIENT, SERVER, Authority
from extender.certificates.rotation import CertificateError, ServingPair
from extender.model.units import Address
from extender.server.admission import admitting
from extender.server.transport.tls import ServerTls, WebhookTls
from extender.settings.policies import Webhook
from tests.pki import LONG_AGO, LOOPBACK, NOW, SCHEDULER, Pki, new_connections, shown
from tests.server.serving import BY_NAMES
from tests.server.tls_clients import answer, certificates, client, pair, problem_of, served, service, status, statuses

SERVICE = "placement-extender.kube-system.svc"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.mark.parametrize("names", [(), (SCHEDULER,), ("other", SCHEDULER)])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_client_with_its_certificate_is_answered_by_host_name_and_by_address(
    pki: Pki, host: str, names: tuple[str, ...]
) -> None:
    async with served(pki.verifying(*names)) as url:
        by_name = url.replace("127.0.0.1", host)
        assert await answer(by_name, pki.client(pki.scheduler())) == ["node-a", "node-bb"]


async def test_a_server_name_of_its_own_is_verified_instead_of_the_urls(pki: Pki) -> None:
    pki.put_server(pki.authority.issue("extender", NOW, 5, SERVER, (SERVICE,)))
    async with served(pki.verifying()) as url:
        context = pki.client(pki.scheduler())
        assert await answer(url, context, SERVICE) == ["node-a", "node-bb"]
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await answer(url, context)


async def test_an_insecure_client_need_not_know_our_authority_but_must_show_its_certificate(pki: Pki) -> None:
    stranger = Authority.make("stranger", NOW, 5)
    async with served(pki.verifying()) as url:
        known = pki.client(pki.scheduler(), stranger, insecure=True)
        assert await answer(url, known) == ["node-a", "node-bb"]
        unknown = pki.client(None, stranger, insecure=True)
        assert await status(url, unknown) == HTTPStatus.UNAUTHORIZED


async def test_without_a_client_ca_no_client_needs_a_certificate(pki: Pki) -> None:
    async with served(pki.tls) as url:
        assert await answer(url, pki.client()) == ["node-a", "node-bb"]


async def test_a_client_without_a_certificate_is_rejected_before_its_request_is_read(pki: Pki) -> None:
    async with served(pki.verifying()) as url, new_connections(pki.client()) as session:
        response = await session.post(f"{url}/filter", data=b"{no json")
        assert response.status == HTTPStatus.UNAUTHORIZED
        assert await response.json() == {"error": "a client certificate of server.tls.clientCAFile is needed"}


@pytest.mark.parametrize("kind", ["of another authority", "expired", "for servers"])
async def test_a_bad_client_certificate_ends_the_handshake(pki: Pki, kind: str) -> None:
    async with served(pki.verifying()) as url:
        with pytest.raises(aiohttp.ClientError):
            await status(url, pki.client(certificates(pki)[kind]))
        assert await status(url, pki.client(pki.scheduler())) == HTTPStatus.OK


async def test_an_alternative_name_counts_as_well_as_the_common_one(pki: Pki) -> None:
    pair = pki.authority.issue("whoever", NOW, 5, CLIENT, ["scheduler.example"])
    async with served(pki.verifying("scheduler.example")) as url:
        assert await answer(url, pki.client(pair)) == ["node-a", "node-bb"]


async def test_a_name_outside_the_list_is_forbidden_and_reported_to_both_sides(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    pair = pki.authority.issue("system:kube-scheduler-2", NOW, 5, CLIENT)
    async with served(pki.verifying(SCHEDULER)) as url, new_connections(pki.client(pair)) as session:
        response = await session.post(f"{url}/filter", json=BY_NAMES)
        assert response.status == HTTPStatus.FORBIDDEN
        text = "the client certificate's names (system:kube-scheduler-2) are not among server.tls.clients.scheduler"
        assert await response.json() == {"error": text}
        await session.post(f"{url}/prioritize", json=BY_NAMES)
    warnings = [vars(record)["problem"] for record in caplog.records if record.message == "request rejected"]
    assert warnings == [text, text]  # one for each path


OPEN = dict.fromkeys(("/livez", "/readyz", "/readyz/pods", "/healthz"), HTTPStatus.OK)
CLOSED = dict.fromkeys(("/metrics", "/configz", "/version", "/filter"), HTTPStatus.UNAUTHORIZED)


async def test_probes_need_no_certificate_and_everything_else_does(pki: Pki) -> None:
    async with served(pki.verifying(SCHEDULER)) as url:
        found = {path: await status(url, pki.client(), path) for path in OPEN | CLOSED}
    assert found == OPEN | CLOSED


@pytest.mark.parametrize(("lowest", "answers"), [("VersionTLS12", True), ("VersionTLS13", False)])
async def test_the_lowest_version_is_a_setting(pki: Pki, lowest: str, *, answers: bool) -> None:
    tls = msgspec.structs.replace(pki.tls, min_version=lowest)
    context = pki.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with served(tls) as url:
        if answers:
            assert await status(url, context) == HTTPStatus.OK
        else:
            with pytest.raises(aiohttp.ClientConnectorError):
                await status(url, context)


# -- The certificate of the webhook's port: none at first, exchanged under load, and refused where it cannot be used ---


async def test_before_there_is_a_certificate_no_handshake_succeeds() -> None:
    tls = WebhookTls()
    assert not tls.is_ready
    assert tls.checks() == {"webhook certificate": "there is none yet"}
    async with admitting(service(), Address("127.0.0.1:0"), tls.context) as url:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shown(url, client())
        tls.use(pair("first"))
        assert await shown(url, client()) == "CN=first"
    assert tls.is_ready


async def test_a_new_certificate_is_for_new_connections_and_open_ones_go_on() -> None:
    tls = WebhookTls()
    tls.use(pair("first"))
    async with admitting(service(), Address("127.0.0.1:0"), tls.context) as url, aiohttp.ClientSession() as session:
        context = client()
        async with session.get(f"{url}/livez", ssl=context) as answer:
            assert answer.status == 200
        tls.use(pair("second"))
        assert await shown(url, client()) == "CN=second"
        async with session.get(f"{url}/livez", ssl=context) as answer:  # on the connection of before
            assert answer.status == 200


def test_an_expired_certificate_makes_the_webhook_unready() -> None:
    now = [NOW]
    tls = WebhookTls(now=lambda: now[0])
    tls.use(pair("first"))
    assert tls.checks() == {"webhook certificate": ""}
    assert tls.ends == {"serving": pytest.approx((NOW + timedelta(days=5)).timestamp(), abs=1)}
    now[0] = NOW + timedelta(days=6)
    assert tls.checks()["webhook certificate"].startswith("expired on ")
    assert not tls.is_ready


def test_the_same_certificate_again_changes_nothing() -> None:
    tls, first = WebhookTls(), pair("first")
    tls.use(first)
    ends = tls.ends
    tls.use(ServingPair.load(first.certificate_pem, first.key_pem))
    assert tls.ends == ends
    assert datetime.fromtimestamp(ends["serving"], UTC) == first.end


async def test_only_the_api_server_is_answered_where_its_client_ca_is_known(tmp_path: Path) -> None:
    ca, known, other = tmp_path / "clients.crt", Authority.make("clients", NOW, 5), Authority.make("others", NOW, 5)
    ca.write_bytes(known.pair.certificate_pem)
    tls = WebhookTls(str(ca))
    tls.use(pair("first"))
    webhook = Webhook(client_ca_file=str(ca), clients=("kube-apiserver",))
    probe = {"/readyz": 200}
    async with admitting(service(webhook), Address("127.0.0.1:0"), tls.context) as url:
        assert await statuses(url, known.issue("kube-apiserver", NOW, 5, CLIENT)) == {
            "/mutate": 200,
            "/validate": 200,
            **probe,
        }
        assert await statuses(url, known.issue("a-tenant", NOW, 5, CLIENT)) == {
            "/mutate": 403,
            "/validate": 403,
            **probe,
        }
        assert await statuses(url) == {"/mutate": 401, "/validate": 401, **probe}
        with pytest.raises(aiohttp.ClientError):
            await statuses(url, other.issue("kube-apiserver", NOW, 5, CLIENT))
        ca.write_bytes(other.pair.certificate_pem)
        tls.use(pair("first"))
        assert (await statuses(url, other.issue("kube-apiserver", NOW, 5, CLIENT)))["/mutate"] == 200
        with pytest.raises(aiohttp.ClientError):
            await statuses(url, known.issue("kube-apiserver", NOW, 5, CLIENT))


@pytest.mark.parametrize(("content", "problem"), [(None, "No such file"), (b"nonsense", "no certificate in PEM form")])
async def test_without_a_client_ca_that_can_be_read_no_certificate_is_served(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    ca = tmp_path / "clients.crt"
    if content is not None:
        ca.write_bytes(content)
    tls = WebhookTls(str(ca))
    with pytest.raises(CertificateError, match=f"policies.webhook.clientCAFile {ca}: .*{problem}"):
        tls.use(pair("first"))
    assert not tls.is_ready


# -- What is wrong with a certificate file is told before anything listens, by setting and file ------------------------


@pytest.fixture
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
    assert problem_of(pki.tls).endswith('"someone" is not a CA certificate (basicConstraints)')


@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o604, True), (0o640, False), (0o600, False)])
def test_a_key_that_every_account_may_read_draws_a_warning(
    pki: Pki, caplog: pytest.LogCaptureFixture, mode: int, *, warned: bool
) -> None:
    Path(pki.tls.key_file).chmod(mode)
    ServerTls(pki.tls)
    assert [vars(record)["file"] for record in caplog.records] == [pki.tls.key_file] * warned

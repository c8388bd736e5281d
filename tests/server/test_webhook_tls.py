"""The certificate of the webhook's port: none at first, exchanged under load, and refused where it cannot be used."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.certificates.rotation import CertificateError, ServingPair
from extender.model.units import Address
from extender.server.admission import AdmissionService, admitting
from extender.server.transport.tls import WebhookTls, _as_file
from extender.settings.connections import Server
from extender.settings.policies import Webhook
from extender.telemetry.metrics import AdmissionMetrics
from tests.server.pki import LOOPBACK, NOW
from tests.server.serving import Switch
from tests.server.test_admission import Decisions
from tests.server.test_tls_rotation import shown

AUTHORITY = Authority.make("one", NOW, 10)
WEBHOOK = Webhook()


def pair(name: str, days: float = 5, at: datetime = NOW) -> ServingPair:
    """A certificate of the authority."""
    made = AUTHORITY.issue(name, at, days, SERVER, LOOPBACK)
    return ServingPair.load(made.certificate_pem, made.key_pem)


def client() -> ssl.SSLContext:
    """What an API server with the bundle does."""
    return ssl.create_default_context(cadata=AUTHORITY.pair.certificate_pem.decode())


def service(webhook: Webhook = WEBHOOK) -> AdmissionService:
    """A webhook that lets everything pass."""
    return AdmissionService(Decisions().decide, Switch(), AdmissionMetrics(CollectorRegistry()), Server(), webhook)


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


async def asked(url: str, shows: Pair | None = None) -> dict[str, int]:
    """What a client with this certificate is answered."""
    context = client()
    if shows is not None:
        with _as_file(shows.certificate_pem + shows.key_pem) as path:
            context.load_cert_chain(path)
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}}
    found = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for method, path in (("POST", "/mutate"), ("POST", "/validate"), ("GET", "/readyz")):
            async with session.request(method, url + path, json=review if method == "POST" else None) as answer:
                found[path] = answer.status
    return found


async def test_only_the_api_server_is_answered_where_its_client_ca_is_known(tmp_path: Path) -> None:
    ca, known, other = tmp_path / "clients.crt", Authority.make("clients", NOW, 5), Authority.make("others", NOW, 5)
    ca.write_bytes(known.pair.certificate_pem)
    tls = WebhookTls(str(ca))
    tls.use(pair("first"))
    webhook = Webhook(client_ca_file=str(ca), clients=("kube-apiserver",))
    probe = {"/readyz": 200}
    async with admitting(service(webhook), Address("127.0.0.1:0"), tls.context) as url:
        assert await asked(url, known.issue("kube-apiserver", NOW, 5, CLIENT)) == {
            "/mutate": 200,
            "/validate": 200,
            **probe,
        }
        assert await asked(url, known.issue("a-tenant", NOW, 5, CLIENT)) == {"/mutate": 403, "/validate": 403, **probe}
        assert await asked(url) == {"/mutate": 401, "/validate": 401, **probe}
        with pytest.raises(aiohttp.ClientError):
            await asked(url, other.issue("kube-apiserver", NOW, 5, CLIENT))
        ca.write_bytes(other.pair.certificate_pem)
        tls.use(pair("first"))
        assert (await asked(url, other.issue("kube-apiserver", NOW, 5, CLIENT)))["/mutate"] == 200
        with pytest.raises(aiohttp.ClientError):
            await asked(url, known.issue("kube-apiserver", NOW, 5, CLIENT))


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

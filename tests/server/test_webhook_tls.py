"""The certificate of the webhook's port: none at first, exchanged under load, and refused where it cannot be used."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from extender.certificates.authority import SERVER, Authority
from extender.certificates.rotation import ServingPair
from extender.model.units import Address
from extender.server.admission import AdmissionService, admitting
from extender.server.transport.tls import WebhookTls
from extender.settings.connections import Server
from extender.telemetry.metrics import AdmissionMetrics
from tests.server.pki import LOOPBACK, NOW
from tests.server.serving import Switch
from tests.server.test_admission import Decisions
from tests.server.test_tls_rotation import shown

AUTHORITY = Authority.make("one", NOW, 10)


def pair(name: str, days: float = 5, at: datetime = NOW) -> ServingPair:
    """A certificate of the authority."""
    made = AUTHORITY.issue(name, at, days, SERVER, LOOPBACK)
    return ServingPair.load(made.certificate_pem, made.key_pem)


def client() -> ssl.SSLContext:
    """What an API server with the bundle does."""
    return ssl.create_default_context(cadata=AUTHORITY.pair.certificate_pem.decode())


def service() -> AdmissionService:
    """A webhook that lets everything pass."""
    return AdmissionService(Decisions().decide, Switch(), AdmissionMetrics(CollectorRegistry()), Server(), timeout=10.0)


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
    tls = WebhookTls(lambda: now[0])
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

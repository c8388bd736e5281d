"""Clients with certificates as kube-scheduler's TLSConfig makes them, and what the server answers."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from http import HTTPStatus

import aiohttp
import pytest

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.certificates.rotation import ServingPair
from extender.model.units import Address
from extender.server.admission import AdmissionService
from extender.server.app import listening
from extender.server.transport.tls import ServerTls, TlsError, _as_file
from extender.settings.connections import Server, Tls
from extender.settings.policies import Webhook
from extender.telemetry.metrics import Metrics
from tests.pki import LONG_AGO, LOOPBACK, NOW, SCHEDULER, Pki, new_connections
from tests.server.serving import BY_NAMES, Decisions, Switch, app_with


@asynccontextmanager
async def served(tls: Tls) -> AsyncIterator[str]:
    """The service under these settings; yields its URL."""
    async with listening(app_with(server=Server(tls=tls)), Address("127.0.0.1:0"), ServerTls(tls)) as url:
        yield url


async def answer(url: str, context: ssl.SSLContext, server_name: str | None = None) -> list[str]:
    async with (
        new_connections(context) as session,
        session.post(f"{url}/filter", json=BY_NAMES, server_hostname=server_name) as response,
    ):
        assert response.status == HTTPStatus.OK
        passed: list[str] = (await response.json())["NodeNames"]
        return passed


async def status(url: str, context: ssl.SSLContext, path: str = "/filter") -> int:
    method = "POST" if path == "/filter" else "GET"
    async with new_connections(context) as session, session.request(method, f"{url}{path}", data=b"{}") as response:
        return response.status


def certificates(pki: Pki) -> dict[str, Pair]:
    """Certificates that are good for nothing here."""
    return {
        "of another authority": Authority.make("first", NOW, 5).issue(SCHEDULER, NOW, 5, CLIENT),
        "expired": pki.authority.issue(SCHEDULER, LONG_AGO, 5, CLIENT),
        "for servers": pki.authority.issue(SCHEDULER, NOW, 5, SERVER),
    }


AUTHORITY = Authority.make("one", NOW, 10)
WEBHOOK = Webhook()


def pair(name: str, days: float = 5, at: datetime = NOW) -> ServingPair:
    made = AUTHORITY.issue(name, at, days, SERVER, LOOPBACK)
    return ServingPair.load(made.certificate_pem, made.key_pem)


def client() -> ssl.SSLContext:
    """What an API server with the bundle does."""
    return ssl.create_default_context(cadata=AUTHORITY.pair.certificate_pem.decode())


def service(webhook: Webhook = WEBHOOK) -> AdmissionService:
    return AdmissionService(Decisions().decide, Switch(), Metrics("1").admission(), Server(), webhook)


async def statuses(url: str, shows: Pair | None = None) -> dict[str, int]:
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


def problem_of(tls: Tls) -> str:
    """The text with which the files are refused."""
    with pytest.raises(TlsError) as rejected:
        ServerTls(tls)
    return str(rejected.value)

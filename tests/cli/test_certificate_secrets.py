"""`extender certs --secrets`: certificates that a cluster makes and renews itself."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from extender.certificates.renewal import AUTHORITY, AUTHORITY_DAYS, SERVING, Data, Wanted, renewed
from extender.certificates.rotation import BUNDLE, CERTIFICATE, KEY, certificates_in, is_verified
from extender.cli.main import main
from extender.simulator.apiserver.kinds import SECRETS
from extender.simulator.apiserver.server import ApiServer

Json = dict[str, Any]
NOW = datetime(2026, 11, 29, tzinfo=UTC)
CLIENTS = {"scheduler": "system:kube-scheduler", "prometheus": "prometheus", "admin": "placement-extender-admin"}
WANTED = Wanted(["localhost", "10.0.0.1"], CLIENTS, days=90)
OURS: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ours"}}
PARTS = {AUTHORITY, SERVING, *CLIENTS}


def after(days: float, secrets: dict[str, Data], wanted: Wanted = WANTED) -> dict[str, Data]:
    """What changes at that time."""
    return renewed(secrets, wanted, NOW + timedelta(days=days))


@pytest.fixture(scope="module")
def made() -> dict[str, Data]:
    return renewed({part: {} for part in PARTS}, WANTED, NOW)


def test_all_are_made_of_nothing_and_verify(made: dict[str, Data]) -> None:
    assert made.keys() == PARTS
    for part, data in made.items():
        assert is_verified(data[CERTIFICATE], data[BUNDLE]), part
    assert next(iter(made)) == AUTHORITY, "written first"


def test_a_server_and_a_client_can_use_them_at_once(made: dict[str, Data], tmp_path: Path) -> None:
    for part, purpose in ((SERVING, ssl.Purpose.CLIENT_AUTH), ("scheduler", ssl.Purpose.SERVER_AUTH)):
        for key, content in made[part].items():
            (tmp_path / key).write_bytes(content)
        context = ssl.create_default_context(purpose, cafile=str(tmp_path / BUNDLE))
        context.load_cert_chain(tmp_path / CERTIFICATE, tmp_path / KEY)


def test_nothing_is_due_until_the_last_third_of_life(made: dict[str, Data]) -> None:
    assert after(59, made) == {}
    assert after(61, made).keys() == PARTS - {AUTHORITY}
    assert after(61, made)[SERVING][BUNDLE] == made[SERVING][BUNDLE], "by the same authority"


def test_what_is_damaged_or_has_other_names_is_made_again_alone(made: dict[str, Data]) -> None:
    assert after(1, made | {"admin": {}}).keys() == {"admin"}
    assert after(1, made | {"admin": {**made["admin"], KEY: b"no key"}}).keys() == {"admin"}
    assert after(1, made | {"admin": {**made["admin"], BUNDLE: b""}}).keys() == {"admin"}
    assert after(1, made | {"admin": made["prometheus"]}).keys() == {"admin"}, "for another client"
    assert after(1, made, Wanted(["localhost", "10.0.0.2"], CLIENTS, 90)).keys() == {SERVING}
    assert after(1, made, Wanted(["localhost"], CLIENTS, 90)) == {}, "a name too many does no harm"


def test_a_new_authority_signs_all_and_the_earlier_one_stays_trusted(made: dict[str, Data]) -> None:
    late = AUTHORITY_DAYS - 60
    changes = after(late, made)
    assert changes.keys() == PARTS
    assert len(certificates_in(changes[SERVING][BUNDLE])) == 2
    assert is_verified(made["admin"][CERTIFICATE], changes[SERVING][BUNDLE])
    assert after(late + 1, changes) == {}
    assert after(1, made | {AUTHORITY: {}}).keys() == PARTS, "its key is lost"


# -- the command ----------------------------------------------------------------------------------------------------


async def run(folder: Path, api: ApiServer, *arguments: str) -> int:
    kubeconfig = str(api.write_kubeconfig(folder / "kubeconfig"))
    return await asyncio.to_thread(main, ["certs", "--secrets", "ours", *arguments, "--kubeconfig", kubeconfig])


def stored(api: ApiServer) -> dict[str, Json]:
    return {key: secret.read() for key, secret in api.store.table(SECRETS).objects.items()}


def alternatives(api: ApiServer) -> set[str]:
    """The names in the server's certificate."""
    pem = base64.b64decode(stored(api)["ours/placement-extender-tls"]["data"][CERTIFICATE])
    (certificate, *_) = certificates_in(pem)
    names = next(each for each in certificate.extensions if each.oid.dotted_string == "2.5.29.17")
    return {str(name.value) for name in names.value}


async def test_it_fills_the_secrets_that_are_there_and_creates_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
    async with ApiServer() as api:
        metadata = {"name": "placement-extender-tls", "namespace": "ours", "labels": {"kept": "yes"}}
        api.store.load([OURS, {**empty, "metadata": metadata}])
        assert await run(tmp_path, api) == 0
        secrets = stored(api)
        assert set(secrets) == {f"ours/placement-extender-{part}" for part in PARTS}
        assert secrets["ours/placement-extender-tls"]["metadata"]["labels"] == {"kept": "yes"}
        assert set(secrets["ours/placement-extender-tls"]["data"]) == {CERTIFICATE, KEY, BUNDLE}
        assert {"127.0.0.1", "placement-extender.ours.svc"} <= alternatives(api)
        capsys.readouterr()
        assert await run(tmp_path, api) == 0
        assert capsys.readouterr().out == "no certificate is due\n"
        assert stored(api) == secrets


async def test_the_address_of_the_service_is_in_the_certificate(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "10.96.0.50"}}
    async with ApiServer() as api:
        api.store.load([OURS, {**service, "metadata": {"name": "placement-extender", "namespace": "ours"}}])
        assert await run(tmp_path, api, "--names", "extender.example") == 0
        assert alternatives(api) == {"extender.example", "placement-extender.ours.svc", "10.96.0.50"}


async def test_a_namespace_that_is_no_name_is_refused_before_a_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["certs", "--secrets", "../other"]) == 1
    assert "--secrets: '../other' is no name of a namespace" in capsys.readouterr().err
    del tmp_path


async def test_a_token_of_the_extenders_account_is_bound_to_its_secret_and_written(tmp_path: Path) -> None:
    requests: list[tuple[str, str, Json]] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append((request.method, request.path, await request.json() if request.can_read_body else {}))
        if request.method == "POST" and request.path.endswith("/placement-extender/token"):
            return web.json_response({"status": {"token": "a.new.token"}}, status=201)
        if request.method == "GET" and "/secrets/" in request.path:
            return web.json_response({"metadata": {"resourceVersion": "7", "uid": "u-1"}})
        return web.json_response({}, status=404 if request.method == "GET" else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app) as server:
        cluster = {"name": "c", "cluster": {"server": str(server.make_url("/"))}}
        context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
        document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "c", "user": {}}]}
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps({**document, "current-context": "c"}), "utf-8")
        command = ["certs", "--secrets", "ours", "--token", "--kubeconfig", str(file)]
        assert await asyncio.to_thread(main, command) == 0
    (spec,) = (body["spec"] for method, path, body in requests if method == "POST" and path.endswith("/token"))
    secret = {"apiVersion": "v1", "kind": "Secret", "name": "placement-extender-token", "uid": "u-1"}
    assert spec == {"expirationSeconds": 604800, "boundObjectRef": secret}
    method, path, body = requests[-1]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/ours/secrets/placement-extender-token")
    assert body["data"] == {"token": base64.b64encode(b"a.new.token").decode()}

"""`extender certs --secrets NAMESPACE`: makes the certificates of an installation in Secrets, and renews them. A CronJob runs it.

Reads and writes only the Secrets `placement-extender-...` of the certificates, and reads the address of the Service.
"""

import argparse
import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from extender.certificates.renewal import AUTHORITY, SERVING, Data, Wanted, renewed
from extender.cli.files import access_to
from extender.cli.main import CommandError, say
from extender.cli.sources import cluster_of
from extender.compose.process import run_on_loop
from extender.kube.errors import KubeError, NotFound
from extender.kube.session import MERGE_PATCH, Session, open_session
from extender.kube.timing import SystemClock
from extender.model.constraints.labels import is_dns_label

PART_OF_CLIENT: Final = {"client": "scheduler", "metrics": "prometheus", "admin": "admin"}
SERVICE: Final = "placement-extender"
ACCOUNT: Final = "placement-extender"  # of the extender
PART_OF_ACCOUNT: Final = "token"
_TOKEN_SECONDS: Final = 7 * 24 * 3600
_LIMIT: Final = 10.0


def run(arguments: argparse.Namespace) -> int:
    """Writes what is due, and says what. Returns 0."""
    if not is_dns_label(arguments.secrets):
        raise CommandError(f"--secrets: {arguments.secrets!r} is no name of a namespace")
    kube = cluster_of(arguments)

    async def write() -> list[str]:
        async with open_session(access_to(kube), SystemClock()) as session:
            return await _renew(session, arguments)

    try:
        written = run_on_loop(write())
    except KubeError as error:
        raise CommandError(f"the API server: {error}") from None
    say(*([f"Secret {name}: written" for name in written] or ["no certificate is due"]))
    return 0


async def _renew(session: Session, arguments: argparse.Namespace) -> list[str]:
    namespace = arguments.secrets
    clients = {part: str(getattr(arguments, f"{file}_name")) for file, part in PART_OF_CLIENT.items()}
    names = [*arguments.names, f"{SERVICE}.{namespace}.svc", *await _address(session, namespace)]
    found = {part: await _read(session, namespace, part) for part in (AUTHORITY, SERVING, *clients)}
    present = {part: _data(secret) for part, secret in found.items() if secret is not None}
    wanted = Wanted(list(dict.fromkeys(names)), clients, arguments.days)
    changes = renewed(present, wanted, datetime.now(UTC))
    # The authority is written first: a run that ends here is continued by the next one with this authority.
    for part, data in changes.items():
        await _write(session, namespace, part, data, found[part])
    written = [_name(part) for part in changes]
    return [*written, await _renew_token(session, namespace)] if arguments.token else written


async def _renew_token(session: Session, namespace: str) -> str:
    """Writes a new token of the extender's account, and returns the name of the Secret. The deletion of the Secret revokes the token."""
    secret = await _read(session, namespace, PART_OF_ACCOUNT)
    if secret is None:
        raise CommandError(f"--token: the Secret {_name(PART_OF_ACCOUNT)} does not exist in {namespace}")
    bound = {"apiVersion": "v1", "kind": "Secret", "name": _name(PART_OF_ACCOUNT), "uid": secret["metadata"]["uid"]}
    # The API server may shorten it, on some clouds to a day. So each of the four runs of a day replaces the token.
    spec = {"expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{ACCOUNT}/token"
    answer = orjson.loads(await session.writes.call("POST", path, body=body, limit=_LIMIT))
    await _write(session, namespace, PART_OF_ACCOUNT, {"token": answer["status"]["token"].encode()}, secret)
    return _name(PART_OF_ACCOUNT)


def _name(part: str) -> str:
    return f"placement-extender-{part}"


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets"


async def _address(session: Session, namespace: str) -> list[str]:
    """The address of the Service that a scheduler on the host's network calls; empty where the layout has none."""
    try:
        body = await session.reads.call("GET", f"/api/v1/namespaces/{namespace}/services/{SERVICE}", limit=_LIMIT)
    except NotFound:
        return []
    address = str(orjson.loads(body)["spec"].get("clusterIP") or "")
    return [address] if address not in {"", "None"} else []


async def _read(session: Session, namespace: str, part: str) -> dict[str, Any] | None:
    try:
        body = await session.reads.call("GET", f"{_path(namespace)}/{_name(part)}", limit=_LIMIT)
    except NotFound:
        return None
    secret: dict[str, Any] = orjson.loads(body)
    return secret


def _data(secret: Mapping[str, Any]) -> Data:
    return {key: base64.b64decode(text) for key, text in (secret.get("data") or {}).items()}


async def _write(session: Session, namespace: str, part: str, data: Data, present: Mapping[str, Any] | None) -> None:
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    if present is None:
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": _name(part)},
            "type": "Opaque",
            "data": encoded,
        }
        await session.writes.call("POST", _path(namespace), body=body, limit=_LIMIT)
        return
    # With the resourceVersion the API server answers 409 if another run was faster: two runs must not mix their authorities.
    body = {"metadata": {"resourceVersion": present["metadata"]["resourceVersion"]}, "data": encoded}
    path = f"{_path(namespace)}/{_name(part)}"
    await session.writes.call("PATCH", path, body=body, content_type=MERGE_PATCH, limit=_LIMIT)

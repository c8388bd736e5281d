"""Reads scenario files, the Kubernetes objects that they name and the extender's settings in them.

Called by `simulate` and `demo`.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from extender.cli.command import CommandError
from extender.cli.files import read_bytes, read_yaml
from extender.compose.embedded import FREE_PORT
from extender.compose.service import Service
from extender.model.documents import DocumentError
from extender.model.units import Address
from extender.settings.configuration import API_VERSION, DEFAULT_NAMESPACE, KIND, Settings, parse_settings
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from extender.simulator.scenario.language import BIND_PATH, Play, parse_scenario
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

_WEBHOOK_WITHIN_SECONDS: Final = 60.0


def read_scenario(path: str, *, short: bool = False) -> Play:
    """Reads a scenario file. Raises CommandError with a line for each problem. ``short``: its short run."""
    try:
        return parse_scenario(read_yaml(path), short=short)
    except DocumentError as error:
        raise CommandError(*(f"{path}: {problem}" for problem in error.problems)) from None


def read_objects(play: Play, path: str) -> list[dict[str, Any]]:
    """The Kubernetes objects of the files and folders that a scenario names. Their paths are relative to its folder."""
    objects: list[dict[str, Any]] = []
    for name in play.scenario.cluster.files:
        place = Path(path).parent / name
        found = sorted(place.glob("*.yaml")) if place.is_dir() else [place]
        for file in found:
            objects += _documents(str(file))
    return objects


def _documents(path: str) -> Iterator[dict[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(read_bytes(path)))
    except yaml.YAMLError as error:
        raise CommandError(f"{path}: {error}") from None
    for document in documents:
        if not isinstance(document, dict):
            if document is not None:
                raise CommandError(f"{path}: expected Kubernetes objects, got {type(document).__name__}")
            continue
        yield from document.get("items", [document])


def scenario_settings(play: Play, path: str, address: Address = FREE_PORT) -> Settings:
    """The extender's settings in a scenario, with this address. Raises CommandError."""
    document = {"apiVersion": API_VERSION, "kind": KIND, **play.scenario.extender}
    try:
        settings = parse_settings(document)
    except DocumentError as error:
        raise CommandError(*(f"{path}: extender.{problem}" for problem in error.problems)) from None
    # Otherwise every binding of the run would get 404.
    if play.scenario.scheduler.bind and settings.server.paths.bind != BIND_PATH:
        raise CommandError(f"{path}: scheduler.bind: needs extender.server.paths.bind: {BIND_PATH}")
    server = msgspec.structs.replace(settings.server, bind_address=address)
    webhook = msgspec.structs.replace(settings.policies.webhook, bind_address=FREE_PORT)
    policies = msgspec.structs.replace(settings.policies, webhook=webhook)
    return msgspec.structs.replace(settings, server=server, policies=policies)


async def lead_to_webhook(simulated: SimulatedCluster, service: Service) -> None:
    """Makes the webhook's Service lead to its port, and waits until its configurations do. Raises CommandError.

    Does nothing without policies. The objects that the extender fills in (two webhook configurations and the Secret of its
    certificates) have to be in the scenario's cluster.
    """
    admission = service.admission
    if admission is None:
        return
    webhook, api = service.settings.policies.webhook, simulated.api
    home = webhook.service_namespace or DEFAULT_NAMESPACE
    needed = [(kind, str(webhook.configuration)) for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]
    if webhook.certificates == "own":
        needed.append((SECRETS, f"{home}/{webhook.secret}"))
    missing = [f"{kind.kind} {key}" for kind, key in needed if key not in api.store.table(kind).objects]
    if missing:
        raise CommandError(*(f"cluster.files: extender.policies.enabled needs the {each}" for each in missing))
    place = urlsplit(admission.url)
    api.admission.services[home, webhook.service] = (place.hostname or "", place.port or 0)
    correct = admission.keeper.configurations.correct
    try:
        async with asyncio.timeout(_WEBHOOK_WITHIN_SECONDS):
            while not all(correct.values()):  # noqa: ASYNC110 (the task has no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise CommandError(f"the webhook was not configured within {_WEBHOOK_WITHIN_SECONDS:g} s") from None

"""Keeps the two webhook configurations as the settings and the certificates require. For the leader.

Changes by other writers are reverted and counted, and a configuration that was deleted is created again. Fields that the
extender does not require stay as they are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from extender.kube.errors import Conflict, KubeError, NotFound
from extender.wire.webhook_configurations import GROUP, differs, merged

JsonObject = dict[str, Any]
Wanted = Callable[[bytes | None], Sequence[JsonObject]]

_LOG = logging.getLogger(__name__)
MUTATING: Final = "mutating"
VALIDATING: Final = "validating"


class ConfigurationStore(Protocol):
    """Reads, replaces and creates the two; a write raises ``Conflict`` if the object has changed, or exists by now."""

    async def get_mutating_webhooks(self, name: str) -> JsonObject:
        """The MutatingWebhookConfiguration as it is now."""

    async def update_mutating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Replaces it."""

    async def create_mutating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Creates it."""

    async def get_validating_webhooks(self, name: str) -> JsonObject:
        """The ValidatingWebhookConfiguration as it is now."""

    async def update_validating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Replaces it."""

    async def create_validating_webhooks(self, configuration: JsonObject) -> JsonObject:
        """Creates it."""


@dataclass(frozen=True, slots=True)
class _Access:
    """The calls for one of the two."""

    kind: str
    get: Callable[[str], Awaitable[JsonObject]]
    update: Callable[[JsonObject], Awaitable[JsonObject]]
    create: Callable[[JsonObject], Awaitable[JsonObject]]


class WebhookConfigurations:
    """``wanted``: by configuration its webhooks, for a bundle of authorities, or without one of ours."""

    def __init__(self, store: ConfigurationStore, name: str, wanted: Mapping[str, Wanted]) -> None:
        self.repairs: Counter[str] = Counter({MUTATING: 0, VALIDATING: 0})
        self.correct = {MUTATING: 0.0, VALIDATING: 0.0}
        self._name = name
        self._wanted = wanted
        self._problems: dict[str, str] = {}
        self._access = {
            MUTATING: _Access(
                "MutatingWebhookConfiguration",
                *(store.get_mutating_webhooks, store.update_mutating_webhooks, store.create_mutating_webhooks),
            ),
            VALIDATING: _Access(
                "ValidatingWebhookConfiguration",
                *(store.get_validating_webhooks, store.update_validating_webhooks, store.create_validating_webhooks),
            ),
        }

    async def keep(self, bundle: bytes | None) -> bool:
        """Reads both, and writes what differs. Whether both are now as required.

        ``None`` leaves the bundle to another writer, such as cert-manager, and then also the creation of what was deleted:
        its annotations tell that writer which bundle it is.
        """
        done = [await self._keep_one(each, bundle) for each in (MUTATING, VALIDATING)]
        return all(done)

    def stand_by(self) -> None:
        """This replica does not lead any more, so it does not know."""
        self.correct.update(dict.fromkeys(self.correct, 0.0))

    async def _keep_one(self, which: str, bundle: bytes | None) -> bool:
        try:
            await self._repair(which, bundle, self._access[which])
        except Conflict:
            return False  # changed in between; the next round reads it again
        except KubeError as error:
            if self._problems.get(which) != str(error):
                _LOG.warning(
                    "a webhook configuration cannot be kept", extra={"configuration": which, "problem": str(error)}
                )
            self._problems[which], self.correct[which] = str(error), 0.0
            return False
        self._problems[which], self.correct[which] = "", 1.0
        return True

    async def _repair(
        self,
        which: str,
        bundle: bytes | None,
        access: _Access,
    ) -> None:
        try:
            found = await access.get(self._name)
        except NotFound:
            if bundle is None:
                raise
            body = {"apiVersion": f"{GROUP}/v1", "kind": access.kind, "metadata": {"name": self._name}}
            await access.create({**body, "webhooks": list(self._wanted[which](bundle))})
            self.repairs[which] += 1
            _LOG.warning("webhook configuration created, it did not exist", extra={"configuration": which})
            return
        present = found.get("webhooks")
        wanted = merged(self._wanted[which](bundle), present)
        if differs(wanted, present):
            await access.update({**found, "webhooks": wanted})
            self.repairs[which] += 1
            _LOG.info("webhook configuration written", extra={"configuration": which})

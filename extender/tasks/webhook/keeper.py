"""The job of the leader: the next step of the certificates, then the webhook configurations, again and again.

In this order, so that a new authority reaches the configurations in the same round.
"""

from __future__ import annotations

from typing import Protocol

from extender.tasks.ports import Clock
from extender.tasks.webhook.certificates import POLL_SECONDS
from extender.tasks.webhook.configurations import WebhookConfigurations


class CertificateSource(Protocol):
    """Own certificates, or those of files."""

    @property
    def bundle(self) -> bytes | None:
        """The authorities for the webhook configurations; None leaves them to another writer."""

    async def lead(self) -> None:
        """Takes the next step, if one is due."""

    def confirm(self, bundle: bytes) -> None:
        """Both webhook configurations contain this bundle now."""


class WebhookKeeper:
    """Runs while this replica leads."""

    def __init__(self, certificates: CertificateSource, configurations: WebhookConfigurations, clock: Clock) -> None:
        self._certificates = certificates
        self.configurations = configurations
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self.step()
                await self._clock.sleep(POLL_SECONDS)
        finally:
            self.configurations.stand_by()

    async def step(self) -> None:
        """One round. Without any authority nothing is written: the API server would refuse every certificate."""
        await self._certificates.lead()
        bundle = self._certificates.bundle
        if bundle == b"":
            return
        if await self.configurations.keep(bundle) and bundle is not None:
            self._certificates.confirm(bundle)

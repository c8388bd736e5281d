"""Keeps what policies add to the pods on nodes up to date in the counts, after policies or namespaces have changed.

Signature by signature, in slices: the counts are consistent after each one. While it runs, some pods count as an earlier
version of the policies said. 5,000 signatures take some 50 ms. On every replica. A new signature is counted right at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from extender.index.counts.signature_counts import SignatureCounts
from extender.index.objects.changes import Subscribable, Subscribers
from extender.tasks.ports import Clock

SLICE_SECONDS: Final = 0.002
PAUSE_SECONDS: Final = 0.002


class PolicyTable(Protocol):
    """What is read of the policies."""

    about_placed_pods: int
    recounted: Subscribers[None]

    @property
    def changes(self) -> Subscribable:
        """Changes of policies."""


class RecountedCounts(Protocol):
    """The counts."""

    @property
    def signatures(self) -> Iterable[SignatureCounts]:
        """Pods by signature."""

    @property
    def has_policy_terms(self) -> bool:
        """Whether policies add a term to any pods."""

    def recheck_policies(self, counts_of_signature: SignatureCounts) -> bool:
        """Corrects what policies add to the pods of a signature; False where nothing changes."""


class PolicyRecount:
    """``run`` until cancelled. ``recounted`` is how many signatures it has corrected."""

    def __init__(
        self, counts: RecountedCounts, policies: PolicyTable, namespace_changes: Subscribable, clock: Clock
    ) -> None:
        self.recounted = 0
        self._counts = counts
        self._policies = policies
        self._clock = clock
        self._changed = asyncio.Event()
        for source in (policies.changes, namespace_changes):
            source.subscribe(self._note)

    def _note(self, _change: object) -> None:
        if self._policies.about_placed_pods or self._counts.has_policy_terms:
            self._changed.set()

    async def run(self) -> None:
        """Recounts after each change. A change meanwhile begins another round."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if await self._round() and not self._changed.is_set():
                self._policies.recounted.notify(None, None)

    async def _round(self) -> bool:
        """Whether any signature was corrected. O(signatures), and O(terms × nodes of its pods) for each that is."""
        corrected, begun = 0, self._clock.now()
        for each in list(self._counts.signatures):
            corrected += self._counts.recheck_policies(each)
            if self._clock.now() - begun >= SLICE_SECONDS:
                await self._clock.sleep(PAUSE_SECONDS)
                begun = self._clock.now()
        self.recounted += corrected
        return corrected > 0

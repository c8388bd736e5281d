"""Publishes where replicas answer, as EndpointSlices of Services without a selector.

A pod is ready once it could answer, also while it stands by. But only the leader answers kube-scheduler, so endpoints by the
readiness of pods would be wrong:

- the webhook: each replica publishes a slice of its own when its webhook can answer. At shutdown it withdraws the slice
  before all else, because with a selector calls would reach pods that end, and fail. The pod owns the slice, so Kubernetes
  deletes both together.
- kube-scheduler: the leader writes its address into the only slice of the Service. The next leader overwrites the address.
  So the slice never has two addresses. After a leader dies, calls fail until the next leader writes its own address.

https://kubernetes.io/docs/concepts/services-networking/service/#services-without-selectors
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from extender.kube.errors import Conflict, KubeError, NotFound
from extender.kube.timing import Clock
from extender.kube.writer import WebhookObjects
from extender.model.policies import JsonObject
from extender.tasks.readiness import Readiness
from extender.wire.api_calls import ENDPOINT
from extender.wire.webhook_configurations import OwnPod, differs

_LOG = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.5  # between looks at whether the webhook can answer, and after a write that failed
REPAIR_SECONDS: Final = 10.0  # between comparisons of the slice with what it has to be
PACE_SECONDS: Final = 0.25  # between looks at whether another replica answers
PACE_GROWTH: Final = 1.3  # with each redirect of a call, so that the ten that kube-scheduler follows take 10 s
LEARNED_SECONDS: Final = 3.0  # until every node knows another endpoint
_SUCCESSOR_SECONDS: Final = 8.0  # for another replica to take over
HANDOVER_SECONDS: Final = _SUCCESSOR_SECONDS + LEARNED_SECONDS + 1.0
MANAGED_BY: Final = "placement-extender"
WEBHOOK_PORT: Final = "webhook"  # names of ports of the Services
LEADER_PORT: Final = "extender"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The Service, the pod and the port of this replica. ``slice_name``: where all replicas write one slice."""

    namespace: str
    service: str
    pod: OwnPod
    port: int
    port_name: str = WEBHOOK_PORT
    slice_name: str = ""

    @property
    def name(self) -> str:
        """The name of the slice."""
        return self.slice_name or f"{self.service}-{self.pod.name}"[:253].rstrip("-.")

    def document(self) -> JsonObject:
        """The slice as it has to be."""
        pod = self.pod
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        target = {"kind": "Pod", "namespace": self.namespace, "name": pod.name, "uid": pod.uid}
        return {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {
                    "kubernetes.io/service-name": self.service,
                    "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
                },
                "ownerReferences": [owner],
            },
            "addressType": "IPv6" if ":" in pod.address else "IPv4",
            "endpoints": [{"addresses": [pod.address], "conditions": {"ready": True}, "targetRef": target}],
            "ports": [{"name": self.port_name, "port": self.port, "protocol": "TCP"}],
        }

    def is_elsewhere(self, present: JsonObject) -> bool:
        """Whether a slice leads to another pod."""
        others = [(endpoint.get("targetRef") or {}).get("uid") for endpoint in present.get("endpoints") or ()]
        return bool(others) and self.pod.uid not in others


async def _publish(store: WebhookObjects, endpoint: Endpoint, is_wanted: Callable[[], bool]) -> None:
    """Creates the slice, or replaces what differs. ``is_wanted`` is asked once more before the write."""
    wanted = endpoint.document()
    try:
        present = await store.get(ENDPOINT, endpoint.namespace, endpoint.name)
    except NotFound:
        present = {}
    if not is_wanted():
        return  # meanwhile
    if not present:
        await store.create(ENDPOINT, wanted)
    elif present.get("addressType") != wanted["addressType"]:  # which no update can change
        await store.delete_endpoint(endpoint.namespace, endpoint.name)
        await store.create(ENDPOINT, wanted)
    elif differs(wanted, present):
        version = {"resourceVersion": present["metadata"].get("resourceVersion", "")}
        await store.update(ENDPOINT, {**wanted, "metadata": {**wanted["metadata"], **version}})


class WebhookEndpoint:
    """``is_published``: as far as this replica knows."""

    def __init__(self, store: WebhookObjects, endpoint: Endpoint, readiness: Readiness, clock: Clock) -> None:
        self.is_published = False
        self._store = store
        self._endpoint = endpoint
        self._readiness = readiness
        self._clock = clock
        self._is_withdrawn = False
        self._compared = -REPAIR_SECONDS
        self._problem = ""

    @property
    def is_ready(self) -> bool:
        """Whether the API server finds this replica."""
        return self.is_published

    @property
    def is_stale(self) -> bool:
        """It is published or not."""
        return False

    def checks(self) -> dict[str, str]:
        """For the readiness of the pod: a rollout must not end another replica before this one is called."""
        return {"webhook endpoint": "" if self.is_published else self._problem or "not published yet"}

    async def run(self) -> None:
        """Publishes while the webhook can answer, until `withdraw` or cancelled."""
        while not self._is_withdrawn:
            await self._look()
            await self._clock.sleep(LOOK_SECONDS)

    async def withdraw(self) -> None:
        """Call before the webhook ends: it has to answer until every API server and node knows that its slice is gone."""
        self._is_withdrawn = True
        await self._attempt(is_wanted=False)

    async def _look(self) -> None:
        is_wanted, now = self._readiness.is_ready, self._clock.now()
        if is_wanted != self.is_published or now - self._compared >= REPAIR_SECONDS:
            self._compared = now
            await self._attempt(is_wanted=is_wanted)

    async def _attempt(self, *, is_wanted: bool) -> None:
        """A problem is logged once, and tried again at the next look."""
        try:
            if is_wanted:
                await _publish(self._store, self._endpoint, lambda: not self._is_withdrawn)
            else:
                await self._delete()
        except Conflict:
            return  # changed in between; the next look reads it again
        except KubeError as error:
            if self._problem != str(error):
                _LOG.warning("the endpoint of the webhook cannot be published", extra={"problem": str(error)})
            self._problem = str(error)
        else:
            self._problem = ""
            if self.is_published != is_wanted:
                _LOG.info("webhook endpoint written", extra={"published": is_wanted})
            self.is_published = is_wanted

    async def _delete(self) -> None:
        try:
            await self._store.delete_endpoint(self._endpoint.namespace, self._endpoint.name)
        except NotFound:
            return


class LeaderEndpoint:
    """The one slice of the Service that kube-scheduler calls, with the address of the leader alone.

    A call that reaches a standby waits. Either the standby becomes the leader and answers, or the Service gets the address of
    another replica and the client is redirected there. So no call fails in an orderly change of leaders.

    ``answers``: whether this replica answers now.
    ``patience``: the seconds that a call waits at most.
    The store refuses writes of a replica that does not lead.
    """

    def __init__(
        self, store: WebhookObjects, endpoint: Endpoint, answers: Callable[[], bool], clock: Clock, patience: float
    ) -> None:
        self._store = store
        self._endpoint = endpoint
        self._answers = answers
        self._clock = clock
        self._patience = patience
        self._problem = ""
        self._has_led = False
        self._is_elsewhere = False
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """Writes this replica into the slice, and repairs it. Runs while leading."""
        while True:
            is_written = await self._write()
            await self._clock.sleep(REPAIR_SECONDS if is_written else LOOK_SECONDS)

    async def is_handed_over(self, redirects: int) -> bool:
        """Waits until this replica or another one answers, or the patience is over. True if another one answers.

        The wait before the first look grows with ``redirects``. A client whose node does not know the new endpoint yet is sent
        back here at once, and kube-scheduler follows ten redirects only: they must last until the node knows.
        """
        # The first look comes only after a pause: at the call the slice names this replica, because the client was sent here.
        until = self._clock.now() + self._patience
        pace = min(PACE_SECONDS * PACE_GROWTH**redirects, self._patience)
        while self._clock.now() < until:
            await self._clock.sleep(pace)
            pace = PACE_SECONDS
            if self._answers():
                return False
            if await self._look():
                return True
        return False

    async def complete_handover(self) -> None:
        """Call after the release of the Lease. Returns once another replica is called and every node had time to learn that.

        Returns at once if this replica has never led, and after `_SUCCESSOR_SECONDS` if no other replica takes over.
        """
        until = self._clock.now() + _SUCCESSOR_SECONDS
        while self._has_led and self._clock.now() < until:
            if await self._look():
                await self._clock.sleep(LEARNED_SECONDS)
                return
            await self._clock.sleep(PACE_SECONDS)

    async def _write(self) -> bool:
        """Whether the slice names this replica now. A problem is logged once."""
        try:
            await _publish(self._store, self._endpoint, lambda: True)
        except Conflict:
            return False  # changed in between
        except KubeError as error:
            if self._problem != str(error):
                _LOG.warning("the Service cannot lead to this replica", extra={"problem": str(error)})
            self._problem = str(error)
            return False
        self._problem, self._has_led = "", True
        return True

    async def _look(self) -> bool:
        """Whether the Service leads to another replica. All calls that wait share one look."""
        async with self._looking:
            if self._clock.now() - self._looked >= PACE_SECONDS / 2:
                self._looked = self._clock.now()
                try:
                    present = await self._store.get(ENDPOINT, self._endpoint.namespace, self._endpoint.name)
                    self._is_elsewhere = self._endpoint.is_elsewhere(present)
                except KubeError:
                    self._is_elsewhere = False
            return self._is_elsewhere

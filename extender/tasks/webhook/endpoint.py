"""Publishes where the webhook of this replica answers, as an EndpointSlice of the webhook's Service. For every replica.

Only the leader is ready for kube-scheduler, but every replica admits. So the readiness of the pod, by which Kubernetes
selects the endpoints of a Service, is the wrong one here, and the Service has no selector: a replica publishes itself when
its webhook can answer, and withdraws first of all when it stops. With `publishNotReadyAddresses` instead, calls would also
reach pods that start or end, and fail. The slice belongs to the pod, so that it is deleted with it.
https://kubernetes.io/docs/concepts/services-networking/service/#services-without-selectors
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.errors import Conflict, KubeError, NotFound
from extender.kube.timing import Clock
from extender.kube.writer import WebhookObjects
from extender.tasks.readiness import Readiness
from extender.wire.api_calls import ENDPOINT
from extender.wire.webhook_configurations import OwnPod, differs

JsonObject = dict[str, Any]

_LOG = logging.getLogger(__name__)
LOOK_SECONDS: Final = 0.5  # between looks at whether the webhook can answer
REPAIR_SECONDS: Final = 10.0  # between comparisons of the slice with what it has to be
MANAGED_BY: Final = "placement-extender"
_PORT_NAME: Final = "webhook"  # that of the Service


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The Service, the pod and the port of this replica."""

    namespace: str
    service: str
    pod: OwnPod
    port: int

    @property
    def name(self) -> str:
        """The name of the slice."""
        return f"{self.service}-{self.pod.name}"[:253].rstrip("-.")

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
            "ports": [{"name": _PORT_NAME, "port": self.port, "protocol": "TCP"}],
        }


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

    async def run(self) -> None:
        """Publishes while the webhook can answer, until `withdraw` or cancelled."""
        while not self._is_withdrawn:
            await self._look()
            await self._clock.sleep(LOOK_SECONDS)

    async def withdraw(self) -> None:
        """The webhook is about to end. It has to answer until every API server and node knows that."""
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
            await (self._publish() if is_wanted else self._delete())
        except Conflict:
            return  # changed in between; the next look reads it again
        except KubeError as error:
            if self._problem != str(error):
                _LOG.warning("the endpoint of the webhook cannot be published", extra={"problem": str(error)})
            self._problem = str(error)
        else:
            self._problem = ""
            if self.is_published != is_wanted:
                _LOG.info("webhook endpoint %s", "published" if is_wanted else "withdrawn")
            self.is_published = is_wanted

    async def _publish(self) -> None:
        wanted, known = self._endpoint.document(), self._endpoint
        try:
            found = await self._store.get(ENDPOINT, known.namespace, known.name)
        except NotFound:
            found = {}
        if self._is_withdrawn:
            return  # meanwhile
        if not found:
            await self._store.create(ENDPOINT, wanted)
        elif differs(wanted, found):
            version = {"resourceVersion": found["metadata"].get("resourceVersion", "")}
            await self._store.update(ENDPOINT, {**wanted, "metadata": {**wanted["metadata"], **version}})

    async def _delete(self) -> None:
        try:
            await self._store.delete_endpoint(self._endpoint.namespace, self._endpoint.name)
        except NotFound:
            return

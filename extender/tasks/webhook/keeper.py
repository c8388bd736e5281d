"""Keeps the webhook's certificates and its two configurations."""

from __future__ import annotations

import base64
import binascii
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from extender.certificates.rotation import (
    CertificateError,
    Certificates,
    ServingPair,
    next_step,
    read_certificates,
)
from extender.kube.errors import Conflict, KubeError, NotFound
from extender.kube.timing import Clock
from extender.kube.writer import WebhookObjects
from extender.model.policies import JsonObject
from extender.wire.api_calls import MUTATING_WEBHOOKS, SECRET, VALIDATING_WEBHOOKS
from extender.wire.webhook_configurations import (
    GROUP,
    REQUIRED_ANNOTATION,
    differs,
    merged,
    narrowed,
    required_annotation,
)

_LOG = logging.getLogger(__name__)
POLL_SECONDS: Final = 5.0
# How long an API server may take to learn of a changed webhook configuration by its watch.
SETTLE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class OwnCertificatesOptions:
    """``names``: the host names and addresses by which the API server reaches the webhook."""

    namespace: str
    secret: str
    names: Sequence[str]
    lifetime: timedelta


class OwnCertificates:
    """The certificates in the Secret. ``use`` is called with the one to serve, whenever it changes.

    Every replica follows the Secret. The leader takes the steps of the rotation (`extender.certificates.rotation`). It writes
    with the resourceVersion that it has read, so two leaders cannot overwrite each other.
    """

    def __init__(
        self,
        store: WebhookObjects,
        options: OwnCertificatesOptions,
        clock: Clock,
        utc_now: Callable[[], datetime],
        use: Callable[[ServingPair], None],
    ) -> None:
        self.steps: Counter[str] = Counter(
            {"made": 0, "prepared": 0, "switched": 0, "pruned": 0, "restored": 0, "failed": 0}
        )
        self.problem = ""
        self._store = store
        self._options = options
        self._clock = clock
        self._utc_now = utc_now
        self._use = use
        self._known = Certificates()
        self._confirmed = b""
        self._confirmed_since = 0.0

    @property
    def bundle(self) -> bytes:
        """The authorities that the webhook configurations are to contain; empty before the first certificate."""
        return self._known.bundle

    @property
    def ends(self) -> Mapping[str, float]:
        """The Unix time at which the newest authority expires."""
        ends = [authority.not_valid_after_utc.timestamp() for authority in self._known.authorities]
        return {"authority": max(ends)} if ends else {}

    def confirm(self, bundle: bytes) -> None:
        """Both webhook configurations contain this bundle now."""
        if bundle != self._confirmed:
            self._confirmed, self._confirmed_since = bundle, self._clock.now()

    async def follow(self) -> None:
        """Reads the Secret again and again, until cancelled. For every replica."""
        while True:
            await self._attempt(self._read)
            await self._clock.sleep(POLL_SECONDS)

    async def lead(self) -> None:
        """Takes the next step of the rotation, if one is due. For the leader."""
        await self._attempt(self._advance)

    async def _attempt(self, action: Callable[[], Any]) -> None:
        """A problem is logged once and tried again at the next round: the certificates in use go on."""
        try:
            await action()
        except Conflict:
            return  # another replica was faster; the next round reads what it has written
        except (KubeError, CertificateError) as error:
            if self.problem != str(error):
                self.steps["failed"] += 1
                _LOG.warning("the webhook's certificates cannot be read or written", extra={"problem": str(error)})
            self.problem = str(error)
        else:
            self.problem = ""

    async def _read(self) -> JsonObject:
        secret = await self._store.get(SECRET, self._options.namespace, self._options.secret)
        self._take(read_certificates(_decoded(secret)))
        return secret

    def _take(self, certificates: Certificates) -> None:
        self._known = certificates
        if certificates.serving is not None:
            self._use(certificates.serving)

    async def _advance(self) -> None:
        try:
            secret = await self._read()
        except NotFound:
            secret = await self._restore()
        # An API server learns of the bundle by its watch. Until each has had time for that, nothing counts as trusted.
        settled = self._clock.now() >= self._confirmed_since + SETTLE_SECONDS
        trusted = self._confirmed if settled else b""
        step = next_step(self._known, self._utc_now(), self._options.names, self._options.lifetime, trusted)
        if step is None:
            return
        what, wanted = step
        await self._store.update(SECRET, {**secret, "data": _encoded(wanted.data())})
        self._take(wanted)
        self.steps[what] += 1
        _LOG.info("webhook certificates", extra={"step": what, "authorities": len(wanted.authorities)})

    async def _restore(self) -> JsonObject:
        """Creates the Secret with the certificates in use, so that every replica and API server can go on with them."""
        place = {"namespace": self._options.namespace, "name": self._options.secret}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": place, "type": "Opaque"}
        secret = await self._store.create(SECRET, {**body, "data": _encoded(self._known.data())})
        self.steps["restored"] += 1
        _LOG.warning(
            "the Secret of the webhook's certificates created, it did not exist", extra={"secret": self._options.secret}
        )
        return secret


def _decoded(secret: JsonObject) -> dict[str, bytes]:
    """The data of a Secret. A value that is not base64 counts as absent."""
    decoded: dict[str, bytes] = {}
    data = secret.get("data")
    for name, value in data.items() if isinstance(data, dict) else ():
        try:
            decoded[name] = base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            continue
    return decoded


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


class FileCertificates:
    """The certificate of files, read again when they change. An empty ``ca_file``: another writer keeps the bundle."""

    def __init__(
        self, cert_file: str, key_file: str, ca_file: str, clock: Clock, use: Callable[[ServingPair], None]
    ) -> None:
        self.steps: Counter[str] = Counter({"switched": 0, "failed": 0})
        self.problem = ""
        self.bundle: bytes | None = None
        self._files = (cert_file, key_file, ca_file)
        self._clock = clock
        self._use = use
        self._loaded: tuple[bytes, ...] = ()
        self._pair: ServingPair | None = None

    @property
    def ends(self) -> Mapping[str, float]:
        """Empty: another writer keeps the authority."""
        return {}

    def confirm(self, bundle: bytes) -> None:
        """Does nothing: the writer of the files decides the order of the steps."""

    async def lead(self) -> None:
        """The leader has nothing to write."""

    async def follow(self) -> None:
        """Reads the files again and again, by content: a mounted Secret changes by a link."""
        while True:
            self.reload()
            await self._clock.sleep(POLL_SECONDS)

    def reload(self) -> None:
        """Reads the files. Unusable ones are logged once, and the old certificate stays in use."""
        try:
            content = tuple(Path(file).read_bytes() if file else b"" for file in self._files)
            if self._pair is None or content != self._loaded:
                self._pair = ServingPair.load(content[0], content[1])
            self._use(self._pair)  # which reads the authorities of clients again
            if content == self._loaded:
                return
        except (OSError, CertificateError) as error:
            if self.problem != str(error):
                self.steps["failed"] += 1
                _LOG.warning("the webhook's certificate files cannot be used", extra={"problem": str(error)})
            self.problem = str(error)
            return
        self._loaded, self.problem = content, ""
        self.bundle = content[2] or None
        self.steps["switched"] += 1


Wanted = Callable[[bytes | None], Sequence[JsonObject]]

MUTATING: Final = "mutating"
VALIDATING: Final = "validating"


_CALLS: Final = {  # for each of the two its kind and its calls
    MUTATING: ("MutatingWebhookConfiguration", MUTATING_WEBHOOKS),
    VALIDATING: ("ValidatingWebhookConfiguration", VALIDATING_WEBHOOKS),
}


class WebhookConfigurations:
    """Keeps the two webhook configurations: changes by others are reverted and counted, and a deleted one is created again.

    Fields that the extender does not require stay. So do changes that narrow the rules or a selector of the mutating webhook.
    ``wanted``: the webhooks of each configuration, for a bundle of authorities; None leaves the bundle out.
    """

    def __init__(self, store: WebhookObjects, name: str, wanted: Mapping[str, Wanted]) -> None:
        self.repairs: Counter[str] = Counter({MUTATING: 0, VALIDATING: 0})
        self.correct = {MUTATING: 0.0, VALIDATING: 0.0}
        self._name = name
        self._wanted = wanted
        self._problems: dict[str, str] = {}
        self._store = store

    async def keep(self, bundle: bytes | None) -> bool:
        """Reads both, and writes what differs. Returns whether both are now as required.

        ``None`` leaves the bundle to another writer, such as cert-manager. Then a deleted configuration is not created again,
        because its annotations say which bundle that writer has to write.
        """
        done = [await self._keep_one(configuration, bundle) for configuration in (MUTATING, VALIDATING)]
        return all(done)

    def stand_by(self) -> None:
        """Call when this replica stops to lead: it does not know the configurations then."""
        self.correct.update(dict.fromkeys(self.correct, 0.0))

    async def _keep_one(self, which: str, bundle: bytes | None) -> bool:
        try:
            await self._repair(which, bundle)
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

    async def _repair(self, which: str, bundle: bytes | None) -> None:
        kind, calls = _CALLS[which]
        try:
            obj = await self._store.get(calls, None, self._name)
        except NotFound:
            if bundle is None:
                raise
            webhooks = list(self._wanted[which](bundle))
            named = {"name": self._name, **self._annotated(which, {}, webhooks)}
            body = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": named}
            await self._store.create(calls, {**body, "webhooks": webhooks})
            self.repairs[which] += 1
            _LOG.warning("webhook configuration created, it did not exist", extra={"configuration": which})
            return
        present, required = obj.get("webhooks"), self._wanted[which](bundle)
        metadata: JsonObject = obj.get("metadata") or {}
        # The annotation records the full requirement, before it is narrowed: the next round compares with the full one.
        noted = metadata | self._annotated(which, metadata, required)
        if which == MUTATING:
            before = (metadata.get("annotations") or {}).get(REQUIRED_ANNOTATION)
            required = narrowed(required, present, before)
        wanted = merged(required, present)
        if noted != metadata or differs(wanted, present):
            await self._store.update(calls, {**obj, "metadata": noted, "webhooks": wanted})
            self.repairs[which] += 1
            _LOG.info("webhook configuration written", extra={"configuration": which})

    @staticmethod
    def _annotated(which: str, metadata: JsonObject, required: Sequence[JsonObject]) -> JsonObject:
        """The annotations, with the required form of the mutating webhook among them."""
        if which != MUTATING:
            return {}
        annotations = metadata.get("annotations") or {}
        return {"annotations": {**annotations, REQUIRED_ANNOTATION: required_annotation(required)}}


@dataclass(eq=False, slots=True)
class WebhookKeeper:
    """Runs while this replica leads."""

    certificates: OwnCertificates | FileCertificates
    configurations: WebhookConfigurations
    clock: Clock

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self.step()
                await self.clock.sleep(POLL_SECONDS)
        finally:
            self.configurations.stand_by()

    async def step(self) -> None:
        """One round. Without any authority nothing is written: the API server would refuse every certificate."""
        await self.certificates.lead()
        bundle = self.certificates.bundle
        if bundle == b"":
            return
        if await self.configurations.keep(bundle) and bundle is not None:
            self.certificates.confirm(bundle)

"""Builds the verbs of a service, with a recorder of their decisions if the settings enable it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from extender.compose.foundation import make_index
from extender.compose.process import installed_version
from extender.index.cluster import ClusterIndex
from extender.index.state import state_of
from extender.kube.timing import Clock
from extender.model.changes import ObjectChange
from extender.model.objects import Object
from extender.model.policies import PolicyObject
from extender.settings.configuration import Settings, settings_document
from extender.tasks.preempt_and_bind import OnPreemption
from extender.tasks.recorder import RecordedFilterVerb, Recorder
from extender.telemetry import catalogue
from extender.telemetry.metrics import Metrics
from extender.verbs.filter import FilterVerb
from extender.verbs.prioritize import prioritize_watched
from extender.wire.extender_v1 import ExtenderArgs
from extender.wire.recordings.recording import RecordingEncoder, Start
from extender.wire.recordings.redaction import Redactor

_KEY_BYTES: Final = 32

Prioritize = Callable[[ExtenderArgs], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class VerbParts:
    """The filter and the prioritize verb, and the target of preemption plans. ``recorder``: None if nothing is recorded."""

    filter: FilterVerb
    prioritize: Prioritize
    on_preemption: OnPreemption | None = None
    recorder: Recorder | None = None

    def jobs(self, metrics: Metrics) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        """The job that writes the recording, and its metrics."""
        recorder = self.recorder
        if recorder is None:
            return []
        metrics.report(catalogue.RECORDER_RECORDS, recorder.results)
        metrics.report(catalogue.RECORDER_BYTES, lambda: recorder.bytes)
        return [("recorder", recorder.run)]


def recorded_objects(settings: Settings, objects: Iterable[Object], now: float, redactor: Redactor) -> Iterator[bytes]:
    """The lines of a recording of a cluster with these objects, without names. It has no question."""
    index, policies = make_index(settings), []
    for obj in objects:
        index.upsert(obj)
        if isinstance(obj, PolicyObject):
            policies.append(obj)
    encoder = RecordingEncoder(redactor.line)
    yield encoder.encode(Start(settings_document(settings), installed_version(), now))
    yield from map(encoder.encode, chain(map(ObjectChange, policies), state_of(index)))


def verb_parts(index: ClusterIndex, settings: Settings, clock: Clock, redaction_key: bytes = b"") -> VerbParts:
    """The parts. The index must still be empty, so that a recording has every change.

    ``redaction_key``: the key for redacted names. Empty: a new random key, which is kept nowhere else.
    """

    # `verb` is bound below, before the first call.
    def prioritize(args: ExtenderArgs) -> Mapping[str, int]:
        return prioritize_watched(args, index.view, settings, verb.meter)

    if not settings.recorder.path:
        verb = FilterVerb(index.view, settings)
        return VerbParts(verb, prioritize)
    redactor = Redactor(redaction_key or secrets.token_bytes(_KEY_BYTES)) if settings.recorder.redact else None
    recorder = Recorder(index, settings, clock, time.time, installed_version(), redactor)

    def prioritize_recorded(args: ExtenderArgs) -> Mapping[str, int]:
        scores = prioritize(args)
        recorder.record_prioritize(args, scores)
        return scores

    verb = RecordedFilterVerb(recorder, index, settings)
    return VerbParts(verb, prioritize_recorded, recorder.record_preempt, recorder)

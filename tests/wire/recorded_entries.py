"""Entries of a recording after they were written and read, with their names and without."""

from __future__ import annotations

from typing import Any

import orjson

from extender.model.changes import (
    ObjectChange,
)
from extender.model.objects import Object, Pod, PodSignature
from extender.model.policies import PolicyObject
from extender.settings.limits import ConstraintLimits
from extender.wire.objects.kinds import policies_within
from extender.wire.recordings.recording import (
    Entry,
    RecordingDecoder,
    RecordingEncoder,
    Start,
)
from extender.wire.recordings.redaction import Redactor
from tests.policies import policy_json


def through(*entries: Entry) -> list[Entry]:
    """The entries after they were written and read."""
    encoder, decoder = RecordingEncoder(), RecordingDecoder(ConstraintLimits())
    lines = b"".join(map(encoder.encode, (Start({}), *entries))).splitlines()
    return [found for line in lines for found in decoder.decode(line)][1:]


def parts(signature: PodSignature) -> list[object]:
    """What a signature consists of: it is compared by identity itself."""
    return [getattr(signature, name) for name in PodSignature.__slots__ if name != "__weakref__"]


def same(one: Pod, other: Pod) -> bool:
    """Whether two pods are equal but for the identity of their signature."""
    names = [name for name in one.__struct_fields__ if name != "signature"]
    return parts(one.signature) == parts(other.signature) and all(
        getattr(one, name) == getattr(other, name) for name in names
    )


KEY = b"a key of sixteen"


POLICIES = policies_within(ConstraintLimits(), "ClusterPodSchedulingPolicy", "placement.extender.dev")


def policy_named(name: str, **spec: Any) -> PolicyObject:
    """A policy as the watch shows it."""
    found = POLICIES.decode_object(orjson.dumps(policy_json(name, **spec)))
    assert isinstance(found, PolicyObject)
    return found


def redacted(*found: Object) -> list[Object]:
    """The objects after they were recorded with a redaction, and read."""
    encoder, decoder = RecordingEncoder(Redactor(KEY).line), RecordingDecoder(ConstraintLimits())
    entries: list[Entry] = [Start({}), *map(ObjectChange, found)]
    lines = b"".join(encoder.encode(entry) for entry in entries).splitlines()
    return [entry.obj for line in lines for entry in decoder.decode(line) if isinstance(entry, ObjectChange)]

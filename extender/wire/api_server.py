"""What the API server lacks that a feature of the extender needs. To add a need, add a row to `REQUIREMENTS`.

The version and the served resources are read once, and again after the watches were restarted (`tasks/api_server_check.py`). Readiness, the
metric, `doctor` and the status of policies show what is missing.
https://kubernetes.io/docs/reference/command-line-tools-reference/feature-gates/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from extender.model.constraints.directed import DirectedTerm
from extender.model.policies import Mode, Moment, Policy
from extender.settings.configuration import Settings

OLDEST: Final = 29
"""The oldest minor version of Kubernetes that is supported and tried."""
NEWEST: Final = 36
"""The newest minor version that was tried."""
ADMISSION_RESOURCES: Final = "/apis/admissionregistration.k8s.io/v1"
"""The discovery document whose resources `ApiServer.resources` has."""

_MINOR: Final = re.compile(r"v?1\.(\d+)(?:\.|$)")


def minor_of(text: str) -> int | None:
    """The minor version in a tag or a version, such as 33 of "v1.33.4-gke.1"; None for other texts."""
    match = _MINOR.match(text)
    return int(match[1]) if match else None


@dataclass(frozen=True, slots=True)
class ApiServer:
    """What is known about an API server.

    - ``minor``: the minor version whose features it has. A binary with --emulated-version has the features of an older version. None for a build
      without a number, such as "v0.0.0-master+$Format:%H$".
    - ``resources``: the resources of admissionregistration.k8s.io/v1, None if they could not be read.
    - ``has_streaming_lists``: false after it has refused one (the gate WatchList).
    """

    version: str
    minor: int | None
    resources: frozenset[str] | None = None
    has_streaming_lists: bool = True


class Requirement(NamedTuple):
    """A need of a feature.

    - ``feature``: a stable name, the label of the metric.
    - ``since``: the first minor version that has it by default; ``is_present``: whether this API server has it.
    - ``effect``: what happens without it.
    - ``is_needed``: whether these settings need it.
    """

    feature: str
    since: int
    effect: str
    is_present: Callable[[ApiServer], bool]
    is_needed: Callable[[Settings], bool] = lambda _settings: True


_LABEL_KEYS: Final = "affinity-label-keys"
TRIED: Final = "supported-version"
"""The requirement without which every other finding is a guess."""
REQUIREMENTS: Final = (
    Requirement(
        TRIED,
        OLDEST,
        "nothing was tried with this version",
        lambda server: server.minor is not None and server.minor >= OLDEST,
    ),
    Requirement(
        _LABEL_KEYS,
        31,
        "it drops matchLabelKeys and mismatchLabelKeys of affinity terms: such a term selects the pods of all revisions",
        lambda server: server.minor is None or server.minor >= 31,  # noqa: PLR2004 - `since`, the gate MatchLabelKeysInPodAffinity
    ),
    Requirement(
        "validating-admission-policy",
        30,
        "no admission policy limits the writes of the extender's account: it may do all that RBAC allows",
        lambda server: server.resources is None or "validatingadmissionpolicies" in server.resources,
    ),
    Requirement(
        "watch-list",
        34,
        "lists are read in pages, which cost the API server more memory",
        lambda server: server.has_streaming_lists,
        lambda settings: settings.kube.watch.watch_list,
    ),
)


def missing(server: ApiServer, settings: Settings) -> Iterator[Requirement]:
    """The requirements of these settings that the API server does not meet."""
    return (row for row in REQUIREMENTS if row.is_needed(settings) and not row.is_present(server))


def loss_of(policy: Policy, server: ApiServer | None) -> str:
    """What the API server drops of the fields that this policy injects; empty for nothing, and before it is known.

    Only injected fields are lost. A policy that acts at scheduling is completed by the extender.
    """
    if server is None or policy.mode is not Mode.ENFORCE or Moment.ADMISSION not in policy.when:
        return ""
    (keys,) = (row for row in REQUIREMENTS if row.feature == _LABEL_KEYS)
    if keys.is_present(server) or not _has_label_keys(policy):
        return ""
    return f"the API server is {server.version}, and before 1.{keys.since} {keys.effect}"


def _has_label_keys(policy: Policy) -> bool:
    elements = (item.element for items in policy.directives.lists.values() for item in items)
    return any(isinstance(term, DirectedTerm) and (term.match_keys or term.mismatch_keys) for term in elements)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = "unnamed"
    emulation_minor: str = ""


def decode_version(body: bytes) -> tuple[str, int | None]:
    """Version and minor version of the answer to GET /version.

    ``emulationMinor`` is there since 1.33: gitVersion is the binary's. https://kep.k8s.io/4330
    """
    found = msgspec.json.decode(body, type=_Version)
    digits = found.emulation_minor
    return found.git_version, int(digits) if digits.isdecimal() else minor_of(found.git_version)


class _Resource(msgspec.Struct):
    name: str = ""


class _Resources(msgspec.Struct):
    resources: list[_Resource] = msgspec.field(default_factory=list)


def decode_resources(body: bytes) -> frozenset[str]:
    """The names in an APIResourceList."""
    return frozenset(resource.name for resource in msgspec.json.decode(body, type=_Resources).resources)

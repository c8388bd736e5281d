"""Findings about fields that stop kube-scheduler from starting: it decodes its configuration strictly.

Messages of 1.36: `strict decoding error: unknown field "extenders[0].nodeCachecapable"`, and `json: cannot unmarshal
number into Go struct field Extender.extenders.httpTimeout of type string`. Field names are case-sensitive.
https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from extender.doctor.facts import Finding
from extender.model.units import Duration

Document = Mapping[str, Any]

_TOP: Final = frozenset(
    {
        "apiVersion",
        "clientConnection",
        "delayCacheUntilActive",
        "enableContentionProfiling",
        "enableProfiling",
        "extenders",
        "kind",
        "leaderElection",
        "parallelism",
        "percentageOfNodesToScore",
        "podInitialBackoffSeconds",
        "podMaxBackoffSeconds",
        "profiles",
    }
)
_CONNECTION: Final = frozenset({"acceptContentTypes", "burst", "contentType", "kubeconfig", "qps"})
_PROFILE: Final = frozenset({"percentageOfNodesToScore", "pluginConfig", "plugins", "schedulerName"})
_EXTENDER: Final = frozenset(
    {
        "bindVerb",
        "enableHTTPS",
        "filterVerb",
        "httpTimeout",
        "ignorable",
        "managedResources",
        "nodeCacheCapable",
        "preemptVerb",
        "prioritizeVerb",
        "tlsConfig",
        "urlPrefix",
        "weight",
    }
)
_TLS: Final = frozenset(
    {
        "caData",
        "caFile",
        "certData",
        "certFile",
        "insecure",
        "keyData",
        "keyFile",
        "serverName",
    }
)


def examine_fields(document: Document) -> Iterator[Finding]:
    """One finding for each such field, in the sections that concern an extender."""
    yield from _unknown(document, _TOP, "")
    yield from _unknown(document.get("clientConnection"), _CONNECTION, "clientConnection.")
    for number, profile in enumerate(document.get("profiles") or ()):
        yield from _unknown(profile, _PROFILE, f"profiles[{number}].")
    for number, entry in enumerate(document.get("extenders") or ()):
        path = f"extenders[{number}]."
        yield from _unknown(entry, _EXTENDER, path)
        yield from _unknown(entry.get("tlsConfig"), _TLS, f"{path}tlsConfig.")
        yield from _duration(entry.get("httpTimeout"), f"{path}httpTimeout")


def misspelt(section: Document, name: str) -> str | None:
    """A field that differs from `name` only in case; None if there is none."""
    return next((field for field in section if field != name and field.lower() == name.lower()), None)


def _unknown(section: object, known: frozenset[str], path: str) -> Iterator[Finding]:
    if not isinstance(section, Mapping):
        return
    for field in section:
        if field not in known:
            problem = (
                f"{path}{field} is not a field of KubeSchedulerConfiguration: kube-scheduler does not start with it"
            )
            yield Finding("error", "scheduler", problem, _suggestion(str(field), known))


def _suggestion(field: str, known: frozenset[str]) -> str:
    # A wrong case is the most frequent mistake, so names are compared without it.
    by_case = {name.lower(): name for name in known}
    close = get_close_matches(field.lower(), by_case, n=1, cutoff=0.8)
    return f"write {by_case[close[0]]}" if close else "remove it"


def _duration(value: object, path: str) -> Iterator[Finding]:
    if value is None:
        return
    if not isinstance(value, str):
        problem = f"{path} is the number {value} without a unit: kube-scheduler does not start with it"
        yield Finding("error", "scheduler", problem, f"write {value}s")
        return
    try:
        Duration.parse(value)
    except ValueError as error:
        problem = f"{path}: {error}: kube-scheduler does not start with it"
        yield Finding("error", "scheduler", problem, "write a number with a unit, such as 5s")

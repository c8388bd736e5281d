"""Paths of API objects. Every name is checked before it becomes part of one.

A name such as `..` survives percent-encoding and would be resolved on the way: `DELETE .../pods/..` is another request
than the one that was meant. Names come from the watch, but also from requests to this service and from settings.
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from typing import Final

from extender.kube.errors import Refused
from extender.kube.writes.effects import PodRef

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SHOWN: Final = 80  # characters of a bad name in the error


def pod_path(pod: PodRef) -> str:
    """The path of a pod. Raises ``Refused`` where its namespace or name cannot be that of an object."""
    return f"{pods_path(pod.namespace)}/{_segment('pod', pod.name)}"


def pods_path(namespace: str) -> str:
    """The pods of a namespace. Raises ``Refused``."""
    return f"/api/v1/namespaces/{_segment('namespace', namespace)}/pods"


def events_path(namespace: str) -> str:
    """The events of a namespace. Raises ``Refused``."""
    return f"/apis/events.k8s.io/v1/namespaces/{_segment('namespace', namespace)}/events"


def leases_path(namespace: str) -> str:
    """The Leases of a namespace. Raises ``Refused``."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{_segment('namespace', namespace)}/leases"


def lease_path(namespace: str, name: str) -> str:
    """The path of a Lease. Raises ``Refused``."""
    return f"{leases_path(namespace)}/{_segment('Lease', name)}"


def _segment(what: str, name: str) -> str:
    """The name itself: none of its characters needs encoding."""
    if not _NAME.fullmatch(name):
        raise Refused(f"{name[:_SHOWN]!r} is no name of a {what}", reason="Invalid")
    return name

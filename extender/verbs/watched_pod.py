"""Which pod a request is about: the one that the watch shows under the request's UID, namespace and name.

A request identifies a pod and says nothing else of it that is believed. Priority, preemption policy, scheduling gates,
node, requests and constraints are those of the pod that the watch shows, so the sender of a request can neither
preempt by a priority that the API server never admitted, nor take up room for a pod that does not exist.

Constraints come from the watch too. Those of a pod without gates do not change any more, except labels, owners and
added tolerations (KEP-3838), so where they differ from the request's, one of the two is behind by an update. The
watch's version is the one that counts for other pods, now and once the pod is bound, so the decision is made by it.
Where the watch may be the one behind, `tasks/watched_pods.py` waits for it first.
"""

from __future__ import annotations

from enum import Enum

from extender.index.view import ClusterView
from extender.model.objects import Pod, PodSignature


class Unconfirmed(Enum):
    """Why nothing is decided about a pod for the moment: a stable text, and whether the next watch event may cure it.

    The scheduler asks again by its own back-off. https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
    """

    NOT_SHOWN = ("the watch does not show this pod yet", True)
    GATED = ("the watch shows scheduling gates on this pod", True)
    OTHER_NAME = ("the watch shows a pod of another name under this UID", False)
    PLACED = ("the watch shows this pod on a node already", False)
    DELETED = ("the watch shows this pod as deleted", False)

    def __init__(self, text: str, may_pass: bool) -> None:  # noqa: FBT001 (an enum's value is given by position)
        self.text = text
        self.may_pass = may_pass


def watched_pod(uid: str, namespace: str, name: str, view: ClusterView) -> Pod | Unconfirmed:
    """The pending pod without gates that the watch shows, or why there is none. O(1)."""
    shown = view.pod(uid)
    if shown is None:
        return Unconfirmed.DELETED if uid in view.gone else Unconfirmed.NOT_SHOWN
    if shown.name != name or shown.namespace != namespace:
        return Unconfirmed.OTHER_NAME
    if shown.node:
        return Unconfirmed.PLACED
    if shown.terminating:
        return Unconfirmed.DELETED
    return Unconfirmed.GATED if shown.gated else shown


def asks_alike(one: PodSignature, other: PodSignature) -> bool:
    """Whether two signatures ask for the same. O(1) for one object, else O(size)."""
    return one is other or _parts(one) == _parts(other)


def _parts(signature: PodSignature) -> tuple[object, ...]:
    placement = (signature.affinity, signature.spread, signature.node_affinity, signature.preferred_nodes)
    return (signature.namespace, signature.labels, signature.tolerations, signature.controller, *placement)

"""Which pods get the gate of a policy that releases groups, when they are created (KEP-3521).

A pod without the gate escapes: kube-scheduler places it at once and alone. A gate can only be set at creation, and only the
extender removes it, so pods that a group never holds, or that nothing may hold back, get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from extender.model.policies import JsonObject, Mode, Policy, Subject

_OF_EACH_NODE: Final = "DaemonSet"


def why_no_gate(subject: Subject, spec: JsonObject) -> str:
    """Why a new pod with this spec gets no gate; empty where it may get one.

    Mirror pods and exempt namespaces and pods are left alone by admission as a whole (`decision.py`).
    """
    if spec.get("nodeName"):
        return "it has a node: the API server refuses gates beside it"
    if subject.owner_kind == _OF_EACH_NODE:
        return "a pod of a DaemonSet belongs to one node"
    if spec.get("schedulingGroup"):
        return "kube-scheduler places the pods of its schedulingGroup together itself (KEP-5732)"
    return ""


def gating(policies: Sequence[Policy]) -> Sequence[Policy]:
    """The policies whose gates are considered, of those that select a pod at release, in their order.

    One policy releases a pod: the first that enforces. Those before it only audit.
    """
    for number, policy in enumerate(policies):
        if policy.mode is Mode.ENFORCE:
            return policies[: number + 1]
    return policies

"""Nodes that nominated pods keep from the incoming pod.

A node to which pods of equal or higher priority are nominated passes only if the pod passes there with them and without
them, as in kube-scheduler (RunFilterPluginsWithNominatedPods). Nominated pods of lower priority do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.rules.node_fit import conflicting_nominated_pods
from extender.verbs.dry_run.victims import DryRun
from extender.wire.extender_v1 import ExtenderArgs


def nodes_kept_for_nominated_pods(args: ExtenderArgs, view: ClusterView) -> AbstractSet[str]:
    """The requested nodes on which the pod conflicts with nominated pods. O(nominated nodes × dry run)."""
    run = DryRun(args.pod, view)
    requested = set(args.node_names or ())
    return {
        node
        for node, nominated in view.nominated.items()
        if node in requested and (run.has_constraints or _have_anti_affinity(nominated)) and not _leaves_room(node, run)
    }


def without_nodes(args: ExtenderArgs, names: AbstractSet[str]) -> ExtenderArgs:
    """The question about the other nodes. Its names are not the bytes that came, so no rejection is cached for it."""
    return replace(args, node_names=[name for name in args.node_names or () if name not in names], body=b"")


def _have_anti_affinity(nominated: Mapping[str, Pod]) -> bool:
    """Whether any nominated pod could reject a pod that has no constraints itself."""
    return any(each.signature.affinity.required_anti for each in nominated.values())


def _leaves_room(node: str, run: DryRun) -> bool:
    conflicting = conflicting_nominated_pods(run.pod, node, run.view)
    if not conflicting:
        return True
    with run.view.what_if() as tried:
        return run.passes_beside(conflicting, run.view.known[node], tried)

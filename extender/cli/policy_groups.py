"""`extender policy test`: the groups that tested pods would wait in, and the domains that these would get.

The release itself chooses the domain (`verbs/release/choice.py`), for each group alone, in the room that the pods of the snapshot
leave. The GroupPlacements of the snapshot show which quotas are used and which domains are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.objects import Object, Pod
from extender.model.policies import JsonObject
from extender.model.release import GroupKey, Level
from extender.model.units import counted
from extender.settings.configuration import Settings
from extender.tasks.release.groups import group_state, quota_excess, runs_in
from extender.verbs.release.choice import Rest, propose
from extender.verbs.release.progress import Do, GroupState, message_of, next_step

_MOST_PODS: Final = 5000  # of one template, as release.podsPerNamespace


class TestedPods(NamedTuple):
    """A pod as it was admitted, and how many of its kind are made."""

    pod: Pod
    made: int


def add_pods(index: ClusterIndex, objects: Iterable[Object], tested: Sequence[TestedPods]) -> None:
    """Adds the objects of the cluster to an index with policies, then the tested pods. They replace pods of the same name."""
    copies = [pod for pods in tested for pod in _copies(pods)]
    # A tested pod that exists would otherwise take room twice.
    names = {pod.full_name for pod in copies}
    for obj in objects:
        if not isinstance(obj, Pod) or obj.full_name not in names:
            index.upsert(obj)
    for pod in copies:
        index.upsert(pod)


def _copies(tested: TestedPods) -> Iterator[Pod]:
    """The pods of one template. The first one has the name and UID of the tested pod."""
    for number in range(min(tested.made, _MOST_PODS)):
        name = f"{tested.pod.name}-{number}" if number else tested.pod.name
        yield replace(tested.pod, uid=f"tested/{tested.pod.namespace}/{name}", name=name)


def group_of(pod: Pod, index: ClusterIndex, settings: Settings, *, is_known: bool) -> JsonObject | None:
    """The group that a tested pod waits in, as the document for scripts; None if it waits in none.

    ``is_known``: whether the nodes of the cluster are known.
    """
    group = index.gated.group_of(f"tested/{pod.namespace}/{pod.name}")
    if group is None:
        return None
    state = group_state(group.key, index)
    if state is None:
        return None
    # No decision and no memory, as for a group that was just created.
    step = next_step(state, None, ())
    document = {
        "policy": group.key.policy,
        "group": group.key.value,
        "size": state.size,
        "pods": state.ready,
        "domain": "",
        "nodes": 0,
        "message": step.message,
    }
    if step.do is not Do.DECIDE:
        return document
    if not is_known:
        return document | {"message": "the domain is not known without --snapshot or --kubeconfig"}
    return document | _proposed(group.key, state, step.pods, index, settings)


def _proposed(
    key: GroupKey, state: GroupState, pods: Sequence[Pod], index: ClusterIndex, settings: Settings
) -> JsonObject:
    taken = [
        (placement.group, placement.levels)
        for placement in index.placements
        if placement.decided
        and placement.group.policy == key.policy
        and runs_in(placement.group, placement.levels, index)
    ]
    siblings = state.released + state.bound
    rest = Rest(key, state.spec, pods, siblings, taken=taken, excess=_excess(state, index))
    proposal = propose(rest, index.view, settings)
    domain = ", ".join(map(str, proposal.levels))
    nodes = len({slot.node for slot in proposal.slots})
    if proposal.slots:
        return {"domain": domain, "nodes": nodes, "message": "" if domain else "it needs no domain"}
    return {"domain": domain, "message": f"no domain holds it: {message_of(proposal)}"}


def _excess(state: GroupState, index: ClusterIndex) -> Callable[[Sequence[Level]], str]:
    """A function: how the quota of a domain would be exceeded, by the released pods of the snapshot."""
    return lambda levels: quota_excess(state, levels, index.gated.charges, {}) if state.spec.has_quotas else ""


def group_lines(document: JsonObject) -> Iterator[str]:
    """The line for people."""
    size = f"{document['pods']} of {counted(document['size'], 'pod')}"
    name = f"held at the gate of {document['policy']} with its group {document['group']}"
    if document["domain"] and document["nodes"]:
        yield f"{name} ({size}), which would get {document['domain']}"
    elif document["domain"]:
        yield f"{name} ({size}), which would be released to {document['domain']} to wait for nodes: {document['message']}"
    else:
        yield f"{name} ({size}): {document['message'] or 'it would be released'}"

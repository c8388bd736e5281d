"""What the steps of a scenario do to the cluster: one function each, given the simulated cluster and the step's form.

They call the API server's operations directly, without HTTP: the clients that change a cluster are not under test.
Called by `scenario/play.py`.
"""

import asyncio
import time
from itertools import count, islice
from random import Random
from typing import TypeVar

from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, Kind, Target
from extender.simulator.apiserver.store import Stored
from extender.simulator.json_objects import JsonObject, labels_of, namespace_of
from extender.simulator.scenario.language import (
    Amount,
    Arrive,
    ChangeNodes,
    ChangePods,
    DeletePods,
    Labels,
    NodeGroup,
    RelabelNamespace,
)
from extender.simulator.scenario.simulated_cluster import SimulatedCluster
from extender.simulator.scenario.synthetic import chosen, draw, make_nodes, make_pod

Item = TypeVar("Item")

_AT_ONCE = 50  # pods created before others have their turn on the loop
_CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


async def arrive(simulated: SimulatedCluster, step: Arrive) -> None:
    """Create pods, at a rate or as fast as they can be created. ValueError when no namespace fits."""
    homes = chosen(step.namespaces, _names(simulated, NAMESPACES))
    if not homes:
        raise ValueError(f'no namespace fits "{step.namespaces}"')
    left_out = chosen(simulated.without, homes)
    homes = [home for home in homes if home not in left_out]
    if not homes:
        return
    mix = step.mix or {step.template: 1}
    drawn = simulated.rng.choices(list(mix), list(mix.values()), k=draw(step.count, simulated.rng))
    begun = time.monotonic()
    for number, template in enumerate(drawn):
        if step.rate:
            await asyncio.sleep(max(0.0, begun + number / step.rate - time.monotonic()))
        elif number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        home = homes[number % len(homes)]
        name = _free_name(simulated, home, step.name or template)
        with simulated.api.store.working():
            pod = make_pod(simulated.play.templates[template], name, home, number)
            simulated.api.operations.create(PODS, pod)


def relabel_namespace(simulated: SimulatedCluster, step: RelabelNamespace) -> None:
    """Change labels of namespaces."""
    for name in chosen(step.namespaces, _names(simulated, NAMESPACES)):
        _edit(simulated, NAMESPACES, name, "labels", step.labels)


def change_pods(simulated: SimulatedCluster, step: ChangePods) -> None:
    """Change labels and annotations of pods."""
    found = _select(simulated, step.namespaces, step.selector, step.count)
    for stored in found:
        if step.pending is None or step.pending == (not stored.node):
            _edit(simulated, PODS, stored.key, "labels", step.labels)
            _edit(simulated, PODS, stored.key, "annotations", step.annotations)


def delete_pods(simulated: SimulatedCluster, step: DeletePods) -> None:
    """Delete pods, as a client would."""
    for stored in _select(simulated, step.namespaces, step.selector, step.count):
        namespace, _, name = stored.key.partition("/")
        options = {} if step.grace is None else {"gracePeriodSeconds": int(step.grace)}
        simulated.api.pods.delete(Target(PODS, namespace, name), options)


def add_nodes(simulated: SimulatedCluster, step: NodeGroup) -> None:
    """Add nodes, under the first numbers that are free; a name without a number has to be free itself."""
    taken = simulated.api.store.table(NODES).objects
    is_numbered = "{i}" in step.name
    free = (number for number in count() if not is_numbered or step.name.replace("{i}", str(number)) not in taken)
    for number in islice(free, draw(step.count, simulated.rng)):
        for node in make_nodes(step, 1, number):
            simulated.api.operations.create(NODES, node)


def change_nodes(simulated: SimulatedCluster, step: ChangeNodes) -> None:
    """Cordon, uncordon, relabel or delete nodes."""
    names = chosen(step.nodes, _names(simulated, NODES))
    for name in _drawn(names, step.count, simulated.rng):
        match step.action:
            case "delete":
                simulated.api.operations.delete(Target(NODES, "", name), {})
            case "relabel":
                _edit(simulated, NODES, name, "labels", step.labels)
            case "cordon":
                simulated.api.operations.change(NODES, name, _cordon)
            case "uncordon":
                simulated.api.operations.change(NODES, name, _uncordon)


def _cordon(node: JsonObject) -> None:
    """As kubectl and the node controller do it: the field, and the taint that goes with it."""
    _uncordon(node)
    node["spec"]["unschedulable"] = True
    node["spec"]["taints"] = [*(node["spec"].get("taints") or []), dict(_CORDONED)]


def _uncordon(node: JsonObject) -> None:
    spec = node["spec"]
    spec.pop("unschedulable", None)
    spec["taints"] = [taint for taint in spec.get("taints") or [] if taint["key"] != _CORDONED["key"]]
    if not spec["taints"]:
        del spec["taints"]


def _edit(simulated: SimulatedCluster, kind: Kind, key: str, field: str, values: Labels) -> None:
    if not values:
        return

    def edit(obj: JsonObject) -> None:
        there = {**(obj["metadata"].get(field) or {}), **values}
        obj["metadata"][field] = {name: value for name, value in there.items() if value != ""}

    simulated.api.operations.change(kind, key, edit)


def _select(simulated: SimulatedCluster, namespaces: str, selector: Labels, count: Amount | None) -> list[Stored]:
    homes = set(chosen(namespaces, _names(simulated, NAMESPACES)))
    found = [stored for stored in simulated.pods() if _is_selected(stored.read(), homes, selector)]
    return _drawn(found, count, simulated.rng)


def _is_selected(pod: JsonObject, namespaces: set[str], selector: Labels) -> bool:
    return namespace_of(pod) in namespaces and selector.items() <= labels_of(pod).items()


def _drawn(items: list[Item], count: Amount | None, rng: Random) -> list[Item]:
    if count is None:
        return items
    return rng.sample(items, min(len(items), draw(count, rng)))


def _names(simulated: SimulatedCluster, kind: Kind) -> list[str]:
    return [stored.key for stored in simulated.api.store.table(kind).latest()]


def _free_name(simulated: SimulatedCluster, namespace: str, prefix: str) -> str:
    taken = simulated.api.store.table(PODS).objects
    while True:
        number = simulated.numbers[prefix] = simulated.numbers.get(prefix, -1) + 1
        if f"{namespace}/{prefix}-{number}" not in taken:
            return f"{prefix}-{number}"

"""Whether a node has room for a pod, by adding up requests. Plain objects, exact fractions."""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle.brute_force import SUCCESS, ClusterState, PluginStatus

_SUFFIXES: Final = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}


def room_on(pod: JsonObject, node: str, state: ClusterState) -> PluginStatus:
    """Success, or which resource the node has too little of. O(pods on the node)."""
    offered = {name: _amount(text) for name, text in state.nodes[node]["status"].get("allocatable", {}).items()}
    others = [placed.pod for placed in state.on_node(node)]
    if len(others) + 1 > offered.get("pods", 0):
        return PluginStatus("Unschedulable", "node runs too many pods")
    wanted, taken = _requests(pod), _added(map(_requests, others))
    for name, amount in wanted.items():
        if amount > 0 and amount + taken[name] > offered.get(name, 0):
            return PluginStatus("Unschedulable", f"node has too little {name}")
    if _ports(pod) & {port for other in others for port in _ports(other)}:
        return PluginStatus("Unschedulable", "a host port is taken")
    return SUCCESS


def _requests(pod: JsonObject) -> Counter[str]:
    spec = pod["spec"]
    needed = _added(map(_of_container, spec.get("containers") or ()))
    for container in spec.get("initContainers") or ():
        for name, amount in _of_container(container).items():
            needed[name] = max(needed[name], amount)
    for name, text in (spec.get("overhead") or {}).items():
        needed[name] += _amount(text)  # type: ignore[assignment]  # a Counter of fractions
    return needed


def _of_container(container: JsonObject) -> Counter[str]:
    requests = (container.get("resources") or {}).get("requests") or {}
    return Counter({name: _amount(text) for name, text in requests.items()})


def _added(parts: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _ports(pod: JsonObject) -> set[tuple[str, int]]:
    """Protocol and number of each host port, as if all were for every address."""
    ports = [port for container in pod["spec"].get("containers") or () for port in container.get("ports") or ()]
    return {(port.get("protocol", "TCP"), port["hostPort"]) for port in ports if port.get("hostPort")}


def _amount(text: object) -> Fraction:
    number = str(text).rstrip("kKMGTim")
    return Fraction(number) * _SUFFIXES[str(text)[len(number) :]]

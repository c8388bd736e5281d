"""Plays the steps of a scenario on a simulated cluster in order, and checks what the scenario expects.

The result is a report of placed pods, pending pods and violated constraints. Called by the command line and by tests.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from fnmatch import fnmatchcase
from itertools import count, islice
from random import Random
from typing import Any, TypeVar

from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.kinds import NAMESPACES, NODES, PODS, RESOURCE_QUOTAS, ServedKind, Target, kind_of
from extender.simulator.apiserver.store import Stored
from extender.simulator.json_objects import (
    JsonObject,
    is_finished,
    is_terminating,
    labels_of,
    name_of,
    namespace_of,
    node_of,
)
from extender.simulator.oracle.brute_force import matches_node_affinity
from extender.simulator.oracle.moves import NO_MOVES
from extender.simulator.process_usage import peak_megabytes
from extender.simulator.scenario.faults import Condition, JumpClock, Restart
from extender.simulator.scenario.language import (
    Action,
    Amount,
    Arrive,
    ArriveGroups,
    ChangeFaults,
    ChangeNodes,
    ChangePods,
    ChangeQuotas,
    Create,
    DeletePods,
    Expect,
    ExpectMoves,
    Labels,
    NodeGroup,
    Pause,
    RelabelNamespace,
    ReplacePods,
    RestartExtender,
    ScaleDown,
    ScenarioStep,
    Settle,
)
from extender.simulator.scenario.overview import largest_skew
from extender.simulator.scenario.report import Report, is_within, judged_by_policies, make_report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster, controller_of
from extender.simulator.scenario.synthetic import (
    chosen,
    draw,
    make_nodes,
    make_object,
    make_pod,
    metadata_of_replacement,
)

Item = TypeVar("Item")

_NONE = ExpectMoves(evictions=0, broken=0)
_AT_ONCE = 50  # pods created before other tasks run
_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


async def arrive(simulated: SimulatedCluster, step: Arrive) -> None:
    """Creates pods, at a rate or as fast as possible. Raises ValueError if no namespace matches."""
    namespaces = _namespaces(simulated, step.namespaces)
    if not namespaces:
        return
    mix = step.mix or {step.template: 1}
    # All at once, before the first pause: steps that run beside this one draw from the same generator.
    drawn = simulated.rng.choices(list(mix), list(mix.values()), k=draw(step.count, simulated.rng))
    begun = time.monotonic()
    for number, template in enumerate(drawn):
        if step.rate:
            # By a fixed schedule: a creation that takes long delays no later one.
            await asyncio.sleep(max(0.0, begun + number / step.rate - time.monotonic()))
        elif number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        namespace = namespaces[number % len(namespaces)]
        name = _free_name(simulated, namespace, step.name or template)
        with simulated.api.store.other_work.counted():  # not the extender's processor time
            pod = make_pod(simulated.play.templates[template], name, namespace, number)
            simulated.give_to_scheduler(pod)
        await simulated.api.create(PODS, pod)


def _namespaces(simulated: SimulatedCluster, pattern: str) -> list[str]:
    """The matching namespaces, except the ones that this run omits. Raises ValueError if none matches."""
    names = chosen(pattern, _names(simulated, NAMESPACES))
    if not names:
        raise ValueError(f'no namespace matches "{pattern}"')
    omitted = chosen(simulated.without, names)
    return [name for name in names if name not in omitted]


async def create(simulated: SimulatedCluster, step: Create) -> None:
    """Creates objects. Raises ValueError if no namespace matches, ApiError where the API server or a webhook refuses one."""
    kind = kind_of(step.object)
    for namespace in _namespaces(simulated, step.namespaces):
        for number in range(draw(step.count, simulated.rng)):
            with simulated.api.store.other_work.counted():
                made = make_object(step.object, namespace, number)
            await simulated.api.create(kind, made, namespace)


async def arrive_groups(simulated: SimulatedCluster, step: ArriveGroups) -> None:
    """Creates groups, one after the other, `rate` of them per second. Raises ValueError if no namespace matches."""
    namespaces = _namespaces(simulated, step.namespaces)
    # A generator of its own, because the sizes are drawn between pauses, in which other steps draw too.
    begun, rng = time.monotonic(), Random(f"groups {simulated.seed} {step.template} {step.label}")
    for number in range(draw(step.groups, rng) if namespaces else 0):
        if step.rate:
            await asyncio.sleep(max(0.0, begun + number / step.rate - time.monotonic()))
        namespace, size = namespaces[number % len(namespaces)], draw(step.size, rng)
        simulated.numbers[step.label] = serial = simulated.numbers.get(step.label, -1) + 1
        for member in range(size):
            name = f"{step.template}-{serial}-{member}"
            with simulated.api.store.other_work.counted():
                pod = make_pod(simulated.play.templates[step.template], name, namespace, member)
                pod["metadata"]["labels"][step.label] = f"{step.template}-{serial}"
                pod["metadata"].setdefault("annotations", {})[step.size_annotation] = str(size)
                simulated.give_to_scheduler(pod)
            await simulated.api.create(PODS, pod)


async def replace_pods(simulated: SimulatedCluster, step: ReplacePods) -> None:
    """Pods fail, and each is replaced by a pod of the same template. Failed pods stay, like the pods of a Job.

    With ``keep`` no pod fails, so the groups grow.
    """
    selected = [
        stored
        for stored in _select(simulated, step.namespaces, step.selector, None)
        if not is_finished(stored.read()) and (_is_lost(simulated, stored) if step.lost else stored.node)
    ]
    for stored in _drawn(selected, step.count, simulated.rng):
        if not step.keep:
            simulated.api.operations.change(PODS, stored.key, _fail)
        old = stored.read()
        # Names count on from the last one, because failed pods keep theirs.
        name = _free_name(simulated, namespace_of(old), f"{name_of(old)}-r")
        pod = {"kind": "Pod", "apiVersion": "v1", "metadata": metadata_of_replacement(old, name)}
        pod["spec"] = {"containers": old["spec"]["containers"]}
        simulated.give_to_scheduler(pod)
        await simulated.api.create(PODS, pod)


def _is_lost(simulated: SimulatedCluster, stored: Stored) -> bool:
    """Whether the pod's node is deleted, or each node that a released pod may be on. A released pod keeps its node affinity."""
    nodes = {node.key: node.read() for node in simulated.api.store.table(NODES).latest()}
    if stored.node:
        return stored.node not in nodes
    pod = stored.read()
    is_gated = bool(pod["spec"].get("schedulingGates"))
    return not is_gated and not any(matches_node_affinity(pod, node) for node in nodes.values())


def _fail(pod: JsonObject) -> None:
    pod.setdefault("status", {})["phase"] = "Failed"


def relabel_namespace(simulated: SimulatedCluster, step: RelabelNamespace) -> None:
    """Changes labels of namespaces."""
    for name in chosen(step.namespaces, _names(simulated, NAMESPACES)):
        _edit(simulated, NAMESPACES, name, "labels", step.labels)


def change_pods(simulated: SimulatedCluster, step: ChangePods) -> None:
    """Changes labels and annotations of pods."""
    chosen_pods = _select(simulated, step.namespaces, step.selector, step.count)
    for stored in chosen_pods:
        if step.pending is None or step.pending == (not stored.node):
            _edit(simulated, PODS, stored.key, "labels", step.labels)
            _edit(simulated, PODS, stored.key, "annotations", step.annotations)


def delete_pods(simulated: SimulatedCluster, step: DeletePods) -> None:
    """Deletes pods with a grace period, as a client does."""
    for stored in _select(simulated, step.namespaces, step.selector, step.count):
        namespace, _, name = stored.key.partition("/")
        options = {} if step.grace is None else {"gracePeriodSeconds": int(step.grace)}
        simulated.api.pods.delete(Target(PODS, namespace, name), options)


def scale_down(simulated: SimulatedCluster, step: ScaleDown) -> None:
    """Each ReplicaSet deletes pods in this order: without a node, lowest cost, on the fullest node, youngest."""
    owned: dict[str, list[JsonObject]] = {}
    for pod in (stored.read() for stored in _select(simulated, step.namespaces, step.selector, None)):
        if controller_of(pod) == "ReplicaSet" and not is_terminating(pod):
            owner = next(
                reference["uid"] for reference in pod["metadata"]["ownerReferences"] if reference.get("controller")
            )
            owned.setdefault(f"{namespace_of(pod)}/{owner}", []).append(pod)
    for pods in owned.values():
        beside = Counter(map(node_of, pods))
        # Sorts are stable, so the least important criterion comes first: random, then the age, then the others.
        simulated.rng.shuffle(pods)
        pods.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
        pods.sort(key=lambda pod: (bool(node_of(pod)), _deletion_cost(pod), -beside[node_of(pod)]))
        for pod in pods[: step.by]:
            # Before the deletion, which would otherwise bring a replacement.
            simulated.controllers.release(pod)
            simulated.api.pods.delete(Target(PODS, namespace_of(pod), name_of(pod)), {"gracePeriodSeconds": 0})


def _deletion_cost(pod: JsonObject) -> int:
    return int((pod["metadata"].get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost", "0"))


def add_nodes(simulated: SimulatedCluster, step: NodeGroup) -> None:
    """Adds nodes with the first unused numbers. A name without a number must be unused."""
    taken = simulated.api.store.table(NODES).objects
    is_numbered = "{i}" in step.name
    # A deleted node leaves its number free, and a new node takes it.
    free = (number for number in count() if not is_numbered or step.name.replace("{i}", str(number)) not in taken)
    for number in islice(free, draw(step.count, simulated.rng)):
        for node in make_nodes(step, 1, number):
            simulated.api.operations.create(NODES, node)


def change_nodes(simulated: SimulatedCluster, step: ChangeNodes) -> None:
    """Cordons, uncordons, relabels or deletes nodes."""
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


def change_quotas(simulated: SimulatedCluster, step: ChangeQuotas) -> None:
    """Changes limits of quotas. Raises ValueError if no namespace that matches has one."""
    namespaces = set(chosen(step.namespaces, _names(simulated, NAMESPACES)))
    keys = [key for key in _names(simulated, RESOURCE_QUOTAS) if key.partition("/")[0] in namespaces]
    if not keys:
        raise ValueError(f'no namespace that matches "{step.namespaces}" has a quota')

    def edit(quota: JsonObject) -> None:
        hard = {**(quota["spec"].get("hard") or {}), **step.hard}
        quota["spec"]["hard"] = {name: amount for name, amount in hard.items() if amount != ""}

    for key in keys:
        simulated.api.operations.change(RESOURCE_QUOTAS, key, edit)


def _cordon(node: JsonObject) -> None:
    """Sets the field, as kubectl does, and the taint, as the node controller does."""
    # A node that is cordoned twice has one taint.
    _uncordon(node)
    node["spec"]["unschedulable"] = True
    node["spec"]["taints"] = [*(node["spec"].get("taints") or []), dict(_UNSCHEDULABLE_TAINT)]


def _uncordon(node: JsonObject) -> None:
    spec = node["spec"]
    spec.pop("unschedulable", None)
    spec["taints"] = [taint for taint in spec.get("taints") or [] if taint["key"] != _UNSCHEDULABLE_TAINT["key"]]
    if not spec["taints"]:
        del spec["taints"]


def _edit(simulated: SimulatedCluster, kind: ServedKind, key: str, field: str, values: Labels) -> None:
    if not values:
        return

    def edit(obj: JsonObject) -> None:
        there = {**(obj["metadata"].get(field) or {}), **values}
        obj["metadata"][field] = {name: value for name, value in there.items() if value != ""}

    simulated.api.operations.change(kind, key, edit)


def _select(simulated: SimulatedCluster, namespaces: str, selector: Labels, count: Amount | None) -> list[Stored]:
    names = set(chosen(namespaces, _names(simulated, NAMESPACES)))
    selected = [stored for stored in simulated.pods() if _is_selected(stored.read(), names, selector)]
    return _drawn(selected, count, simulated.rng)


def _is_selected(pod: JsonObject, namespaces: set[str], selector: Labels) -> bool:
    return namespace_of(pod) in namespaces and selector.items() <= labels_of(pod).items()


def _drawn(items: list[Item], count: Amount | None, rng: Random) -> list[Item]:
    if count is None:
        return items
    return rng.sample(items, min(len(items), draw(count, rng)))


def _names(simulated: SimulatedCluster, kind: ServedKind) -> list[str]:
    return [stored.key for stored in simulated.api.store.table(kind).latest()]


def _free_name(simulated: SimulatedCluster, namespace: str, prefix: str) -> str:
    taken = simulated.api.store.table(PODS).objects
    while True:
        number = simulated.numbers[prefix] = simulated.numbers.get(prefix, -1) + 1
        if f"{namespace}/{prefix}-{number}" not in taken:
            return f"{prefix}-{number}"


Narrator = Callable[[str], None]


class StepFailed(Exception):  # noqa: N818 -- names the event
    """Raised when a step cannot run; the text begins with its path in the scenario."""


class Player:
    """Runs steps. `narrate` is called with the titles and with failed expectations."""

    def __init__(self, simulated: SimulatedCluster, narrate: Narrator = lambda _: None) -> None:
        self.simulated = simulated
        self.failures: list[str] = []
        self._narrate = narrate
        self._arrivals: list[asyncio.Task[None]] = []
        self._begun = time.monotonic()
        self._has_settled = False

    async def run(self, steps: Iterable[ScenarioStep]) -> None:
        """Runs the steps in order. Raises StepFailed if one is impossible on this cluster."""
        for step in steps:
            if step.title:
                self._narrate(step.title)
            if not isinstance(step.action, Expect):
                # An expectation changes nothing, so the cluster stays settled after it.
                self._has_settled = isinstance(step.action, Settle)
            try:
                await self._take(step, step.action)
            except (ValueError, ApiError) as error:
                raise StepFailed(f"{step.path}: {error}") from error

    async def finish(self) -> Report:
        """Waits until the scheduler is idle, unless the last step did; then stops it and checks the result."""
        if not self._has_settled:
            await self._settle(Settle(), "the end")
        # Before the result is checked: a loop that goes on would change what is judged.
        await self.simulated.stop_scheduling()
        seconds = time.monotonic() - self._begun
        return make_report(self.simulated, self.failures, seconds, peak_megabytes(), self._narrate)

    async def _take(self, step: ScenarioStep, action: Action) -> None:
        match action:
            case Arrive():
                await self._arrive(arrive(self.simulated, action), in_background=action.background)
            case Create():
                await self._arrive(create(self.simulated, action), in_background=False)
            case ArriveGroups() | ReplacePods() | RestartExtender():
                await self._take_of_groups(action)
            case Settle():
                await self._settle(action, step.path)
            case Pause():
                await asyncio.sleep(action.time)
            case Expect() if self.simulated.without:
                pass  # the expectation is written for a run with all pods
            case Expect():
                self._check(action, step.path)
            case ChangeFaults():
                await self._change_faults(action)
            case _:
                self._change(action)

    async def _arrive(self, arriving: Coroutine[Any, Any, None], *, in_background: bool) -> None:
        """Creates pods. Clients of the API server do this in a real cluster, so it does not count as work of the extender."""
        work = self.simulated.api.store.other_work.of(arriving)
        if in_background:
            self._arrivals.append(asyncio.create_task(work))
        else:
            await work

    async def _take_of_groups(self, action: ArriveGroups | ReplacePods | RestartExtender) -> None:
        match action:
            case ArriveGroups():
                await self._arrive(arrive_groups(self.simulated, action), in_background=action.background)
            case ReplacePods():
                await replace_pods(self.simulated, action)
            case RestartExtender():
                await self.simulated.restart_extender(action.down)

    def _change(self, action: Action) -> None:
        match action:
            case RelabelNamespace():
                relabel_namespace(self.simulated, action)
            case ChangePods():
                change_pods(self.simulated, action)
            case DeletePods():
                delete_pods(self.simulated, action)
            case ScaleDown():
                scale_down(self.simulated, action)
            case NodeGroup():
                add_nodes(self.simulated, action)
            case ChangeNodes():
                change_nodes(self.simulated, action)
            case ChangeQuotas():
                change_quotas(self.simulated, action)

    async def _change_faults(self, action: ChangeFaults) -> None:
        self.simulated.fault_injector.change(fault for fault in action.faults if isinstance(fault, Condition))
        for fault in action.faults:
            match fault:
                case Restart():
                    await self.simulated.api.restart(fault.down, new_history=fault.new_history)
                case JumpClock():
                    self.simulated.clock.jump(fault.by)

    async def _settle(self, action: Settle, path: str) -> None:
        # Pods that still arrive in the background would end the calm.
        while self._arrivals:
            await self._arrivals.pop()
        if not await self.simulated.settle(within=action.timeout, calm=action.calm):
            self._fail(f"{path}: not idle after {action.timeout}")

    def _check(self, expected: Expect, path: str) -> None:
        judged, missed = judged_by_policies(self.simulated)
        placed, pending = len(self.simulated.loop.bound), len(self.simulated.pending())
        counts = {"placed": placed, "pending": pending, "judged": judged, "missed": missed}
        counts["victims"] = len(self.simulated.api.pods.victims)
        for name, figure in counts.items():
            wanted = getattr(expected, name)
            if wanted is not None and not is_within(figure, wanted):
                self._fail(f"{path}.{name}: expected {wanted}, got {figure}")
        for pattern, wanted in expected.skew.items():
            if not is_within(figure := largest_skew(self.simulated, pattern), wanted):
                self._fail(f"{path}.skew.{pattern}: expected {wanted}, got {figure}")
        if expected.moves is not None:
            self._check_moves(expected.moves, f"{path}.moves")
        if expected.waiting is not None:
            self._check_reasons(expected.waiting, f"{path}.waiting")

    def _check_moves(self, expected: Mapping[str, ExpectMoves], path: str) -> None:
        found = self.simulated.moves()
        for namespace in sorted(expected.keys() | found.keys()):
            moves, wanted = found.get(namespace, NO_MOVES), expected.get(namespace, _NONE)
            figures = {"evictions": moves.evictions, "broken": len(moves.broken), "worst": moves.worst}
            for name, figure in figures.items():
                amount = getattr(wanted, name)
                if amount is not None and not is_within(figure, amount):
                    self._fail(f"{path}.{namespace}.{name}: expected {amount}, got {figure}")

    def _check_reasons(self, expected: Labels, path: str) -> None:
        """Fails at most once, with the first pod that waits for an unexpected reason and the number of such pods."""
        others = [
            f"{pod}: {message or 'no attempt yet'}"
            for pod, message in self.simulated.waiting()
            if not any(fnmatchcase(pod, pattern) and text in message for pattern, text in expected.items())
        ]
        if others:
            more = f", and {len(others) - 1} more" if others[1:] else ""
            self._fail(f"{path}: expected only what is listed, got {others[0]}{more}")

    def _fail(self, text: str) -> None:
        self.failures.append(text)
        self._narrate(text)

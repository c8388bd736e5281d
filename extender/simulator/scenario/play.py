"""Plays the steps of a scenario on a simulated cluster in order, and checks what the scenario expects.

The result is a report of placed pods, pending pods and violated constraints. Called by the command line and by tests.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from fnmatch import fnmatchcase
from typing import Any

from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.process_usage import peak_megabytes
from extender.simulator.scenario import actions
from extender.simulator.scenario.faults import Condition, JumpClock, Restart
from extender.simulator.scenario.language import (
    Action,
    Arrive,
    ArriveGroups,
    ChangeFaults,
    ChangeNodes,
    ChangePods,
    ChangeQuotas,
    DeletePods,
    Expect,
    Labels,
    NodeGroup,
    Pause,
    RelabelNamespace,
    ReplacePods,
    RestartExtender,
    Settle,
    Step,
)
from extender.simulator.scenario.report import Report, is_within, judged_by_policies, make_report
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

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

    async def run(self, steps: Iterable[Step]) -> None:
        """Runs the steps in order. Raises StepFailed if one is impossible on this cluster."""
        for step in steps:
            if step.title:
                self._narrate(step.title)
            if not isinstance(step.action, Expect):
                self._has_settled = isinstance(step.action, Settle)
            try:
                await self._take(step, step.action)
            except (ValueError, ApiError) as error:
                raise StepFailed(f"{step.path}: {error}") from error

    async def finish(self) -> Report:
        """Waits until the scheduler is idle, unless the last step did; then stops it and checks the result."""
        if not self._has_settled:
            await self._settle(Settle(), "the end")
        await self.simulated.stop_scheduling()
        return make_report(self.simulated, self.failures, time.monotonic() - self._begun, peak_megabytes())

    async def _take(self, step: Step, action: Action) -> None:
        match action:
            case Arrive():
                await self._arrive(actions.arrive(self.simulated, action), in_background=action.background)
            case ArriveGroups() | ReplacePods() | RestartExtender():
                await self._take_of_groups(action)
            case Settle():
                await self._settle(action, step.path)
            case Pause():
                await asyncio.sleep(action.time)
            case Expect() if self.simulated.without:
                pass  # the expectation is that of a run with all pods
            case Expect():
                self._check(action, step.path)
            case ChangeFaults():
                await self._change_faults(action)
            case _:
                self._change(action)

    async def _arrive(self, arriving: Coroutine[Any, Any, None], *, in_background: bool) -> None:
        """Creates pods. The clients that do so are no part of the extender, so their work is none of its."""
        work = self.simulated.api.store.other_work.of(arriving)
        if in_background:
            self._arrivals.append(asyncio.create_task(work))
        else:
            await work

    async def _take_of_groups(self, action: ArriveGroups | ReplacePods | RestartExtender) -> None:
        match action:
            case ArriveGroups():
                await self._arrive(actions.arrive_groups(self.simulated, action), in_background=action.background)
            case ReplacePods():
                await actions.replace_pods(self.simulated, action)
            case RestartExtender():
                await self.simulated.restart_extender(action.down)

    def _change(self, action: Action) -> None:
        match action:
            case RelabelNamespace():
                actions.relabel_namespace(self.simulated, action)
            case ChangePods():
                actions.change_pods(self.simulated, action)
            case DeletePods():
                actions.delete_pods(self.simulated, action)
            case NodeGroup():
                actions.add_nodes(self.simulated, action)
            case ChangeNodes():
                actions.change_nodes(self.simulated, action)
            case ChangeQuotas():
                actions.change_quotas(self.simulated, action)

    async def _change_faults(self, action: ChangeFaults) -> None:
        self.simulated.fault_injector.change(fault for fault in action.faults if isinstance(fault, Condition))
        for fault in action.faults:
            match fault:
                case Restart():
                    await self.simulated.api.restart(fault.down, new_history=fault.new_history)
                case JumpClock():
                    self.simulated.clock.jump(fault.by)

    async def _settle(self, action: Settle, path: str) -> None:
        while self._arrivals:
            await self._arrivals.pop()
        if not await self.simulated.settle(within=action.timeout, calm=action.calm):
            self._fail(f"{path}: not idle after {action.timeout}")

    def _check(self, expected: Expect, path: str) -> None:
        judged, missed = judged_by_policies(self.simulated)
        placed, pending = len(self.simulated.loop.bound), len(self.simulated.pending())
        counts = {"placed": placed, "pending": pending, "judged": judged, "missed": missed}
        counts["victims"] = len(self.simulated.api.pods.victims)
        for name, count in counts.items():
            wanted = getattr(expected, name)
            if wanted is not None and not is_within(count, wanted):
                self._fail(f"{path}.{name}: expected {wanted}, got {count}")
        if expected.waiting is not None:
            self._check_reasons(expected.waiting, f"{path}.waiting")

    def _check_reasons(self, expected: Labels, path: str) -> None:
        """Fails once, with the first pod that waits for another reason than expected, and the number of such pods."""
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

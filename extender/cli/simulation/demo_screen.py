"""The output of the demo: a live table on a terminal, else plain lines. Reads the simulated cluster, changes nothing."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from extender.simulator.scenario.overview import TERMINATING, Overview, PodRow, look
from extender.simulator.scenario.policy_moments import MOMENTS
from extender.simulator.scenario.simulated_cluster import SimulatedCluster

_EVERY_SECONDS: Final = 0.25
_TITLES: Final = 4


class Screen(Protocol):
    """A context manager that shows the simulated cluster and the titles of steps."""

    def narrate(self, text: str) -> None:
        """Shows the title of a step."""

    async def follow(self) -> None:
        """Shows the cluster until cancelled."""

    def __enter__(self) -> Self:
        """Takes over the terminal."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restores the terminal."""


class LiveScreen:
    """The cluster as one page that is redrawn at intervals."""

    def __init__(self, simulated: SimulatedCluster, url: str) -> None:
        self._simulated = simulated
        self._url = url
        self._titles: deque[str] = deque(maxlen=_TITLES)
        self._live = Live(console=Console(), auto_refresh=False, transient=False, vertical_overflow="crop")

    def narrate(self, text: str) -> None:
        """Shows the title of a step above the tables."""
        self._titles.append(text)

    async def follow(self) -> None:
        """Redraws the cluster until cancelled."""
        while True:
            self._live.update(page(look(self._simulated), self._url, list(self._titles)), refresh=True)
            await asyncio.sleep(_EVERY_SECONDS)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()


class LinePrinter:
    """One line for each step and for each pod that changes, for pipes and logs."""

    def __init__(self, simulated: SimulatedCluster, url: str) -> None:
        self._simulated = simulated
        self._url = url
        self._shown: dict[str, PodRow] = {}

    def narrate(self, text: str) -> None:
        """Prints the changes before the step, then its title."""
        self.print_changes()
        print(f"-- {text}", flush=True)

    async def follow(self) -> None:
        """Prints changes until cancelled."""
        while True:
            self.print_changes()
            await asyncio.sleep(_EVERY_SECONDS)

    def print_changes(self) -> None:
        """Prints the pods that were added, deleted or changed."""
        rows = {row.name: row for row in look(self._simulated).pods}
        for name, row in rows.items():
            if self._shown.get(name) != row:
                print(_line(row), flush=True)
        for name in self._shown.keys() - rows.keys():
            print(f"{name}: deleted", flush=True)
        self._shown = rows

    def __enter__(self) -> Self:
        print(f"the extender listens on {self._url}; stop with Ctrl-C", flush=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        print("stopped", flush=True)


def _line(row: PodRow) -> str:
    if row.node:
        policies = f" ({row.policies})" if row.policies else ""
        return f"{row.name}: on {row.node} in {row.zone}{', terminating' if row.message else ''}{policies}"
    return f"{row.name}: pending{': ' if row.message else ''}{row.message}"


def page(seen: Overview, url: str, titles: list[str]) -> Panel:
    """The whole page at one moment."""
    story = Text("\n".join(titles), style="italic")
    right = Group(_spread_table(seen), Text(), _policy_table(seen), Text(), _reason_table(seen))
    columns = Table.grid(padding=(0, 3))
    columns.add_row(_pod_table(seen), right)
    title = f"extender demo · listening on {url} · Ctrl-C to stop"
    return Panel(Group(story, Text(), columns), title=title, title_align="left")


def _pod_table(seen: Overview) -> Table:
    table = Table("pod", "node", "zone", "message", title="Pods", title_justify="left", box=None, pad_edge=False)
    # Pending pods come first, because the page is cut at the height of the terminal.
    for row in sorted(seen.pods, key=lambda row: (bool(row.node), row.app, row.name)):
        style = "dim" if row.message == TERMINATING else "" if row.node else "yellow"
        table.add_row(row.name, row.node or "pending", row.zone, row.message or row.policies, style=style)
    return table


def _spread_table(seen: Overview) -> Table:
    zones = list(seen.spreads[0].counts) if seen.spreads else []
    table = Table("workload", *zones, "skew", title="Pods per zone", title_justify="left", box=None, pad_edge=False)
    for row in seen.spreads:
        table.add_row(row.app, *(str(row.counts[zone]) for zone in zones), str(row.skew))
    return table


def _policy_table(seen: Overview) -> Table:
    title = "Pods under policies"
    table = Table("policy", *map(str.lower, MOMENTS), title=title, title_justify="left", box=None, pad_edge=False)
    for row in seen.policies:
        table.add_row(row.policy, *(str(row.pods[moment]) for moment in MOMENTS))
    return table


def _reason_table(seen: Overview) -> Table:
    table = Table("count", "reason", title="Rejections", title_justify="left", box=None, pad_edge=False)
    for reason, count in seen.reasons:
        table.add_row(str(count), reason)
    return table

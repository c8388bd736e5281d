"""`python -m tests.tools.bench.own_cost`: what each placed pod costs the extender's process, in microseconds of processor time.

`extender serve` follows an API server over TLS, and answers one filter request for each pod. The events of each pod's life come one
by one between the requests, as in Kubernetes' own SchedulingBasic: created, bound, running. Three tables:

1. A pod: all of it together, in the kernel and outside of it, and beside it an echo without a framework.
2. The parts of a request and of its events, from a second run with a clock at each part. The clocks take some of the time.
3. Each kind of event alone, and requests alone, at the same pace.

Processor time is from /proc. Other work on the machine changes it by a tenth, so compare the least of several runs.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import IO, Final, NamedTuple, TypeVar, cast

import orjson
import yaml
from aiohttp import web

from extender.certificates.authority import SERVER, Authority
from extender.simulator.apiserver.server import ApiServer, ApiServerSettings
from tests.tools.bench.api_server import BenchApiServer
from tests.tools.bench.bare_echo import run_bare_echo
from tests.tools.bench.child_process import Calls, Child, child_running
from tests.tools.bench.cluster import PodId, RequestMaker, SyntheticCluster
from tests.tools.bench.http_connection import BadAnswer, Connection
from tests.tools.bench.over_http import wait_for
from tests.tools.bench.scenario import Load, parse_bench

T = TypeVar("T")

_EXISTING: Final = 1000
_NAMES: Final = 100
_AHEAD: Final = 20  # pods that are created before the request for them
_RUNNING_AFTER: Final = 10  # requests between the binding of a pod and its start
_STEP_SECONDS: Final = 0.0015  # between an answer, the events, and the next request: 150 pods a second
_HISTORY: Final = 100_000
_SETTLE_SECONDS: Final = 1.0
PARTS: Final = {
    "read": "reading HTTP",
    "limits": "limits, checks, metrics",
    "fresh": "making sure that the index is fresh",
    "decode": "decoding the request",
    "decide": "deciding, assuming the pod",
    "write": "writing the answer",
    "event.read": "events: reading HTTP",
    "event.decode": "events: decoding",
    "event.apply": "events: applying",
}
_TIMED: Final = "tests.tools.bench.timed_service"
_PODS_APART: Final = 1_000_000  # so that each run has pods of its own
_FIRST: Final = itertools.count(1)
_SCENARIO: Final = """
apiVersion: placement.extender.dev/v1alpha1
kind: BenchScenario
name: own-cost
template: {labels: {color: "basic-{v}"}}
cases: [{labels: [short], pods: [1000], names: [100]}]
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.bench.own_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--pods", type=int, default=2000, help="pods that are placed in each run")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--runs", type=int, default=3, help="the run with the least time counts")
    parser.add_argument("--config", default="", help="a configuration of the extender")
    parser.add_argument(
        "--earlier",
        metavar="FOLDER",
        nargs="*",
        default=[],
        help="earlier versions, which are played in turns with this one",
    )
    parser.add_argument("--short", action="store_true", help="only the first table")
    arguments = parser.parse_args(argv)
    for line in tables(arguments):
        print(line, flush=True)
    return 0


def load_of(nodes: int) -> Load:
    """A cluster of so many nodes, and pods without constraints."""
    scenario = yaml.safe_load(_SCENARIO)
    return Load(parse_bench(scenario | {"cluster": {"nodes": nodes}}), _EXISTING, 1, (), 0.0)


def tables(arguments: argparse.Namespace) -> Iterator[str]:
    """The lines of the three tables."""
    load, runs = load_of(arguments.nodes), arguments.runs
    with TemporaryDirectory() as folder, child_running(run_api_server, load, folder) as api_server:
        api_server.receive()
        measure = partial(
            _measured,
            load=load,
            pods=arguments.pods,
            api_server=api_server,
            folder=Path(folder),
            config=arguments.config,
        )
        yield "| a pod: one request and three events | µs | in the kernel | wakings | call p50 ms | p90 ms | p99 ms |\n|---|---|---|---|---|---|---|"
        versions = {"this version": "."} | {f"version in {folder}": folder for folder in arguments.earlier}
        lives = defaultdict[str, list[Cost]](list)
        for _ in range(runs):  # in turns: a slow phase of the machine then concerns both
            for name, version in versions.items():
                lives[name].append(measure(Player.lives, "extender", version=version))
            lives["a bare echo of one name, without events"].append(_echo(load, arguments.pods, api_server))
        for name, costs in lives.items():
            yield f"| {name} | {min(costs, key=_total).row} |"
        if arguments.short:
            return
        yield "\n| part | µs a pod |\n|---|---|"
        timed = min((measure(Player.lives, _TIMED) for _ in range(runs)), key=_total)
        for part, title in PARTS.items():
            yield f"| {title} | {timed.parts.get(part, 0.0):.0f} |"
        yield f"| event loop: waking, system calls, tasks, TLS of the watch | {timed.total - sum(timed.parts.values()):.0f} |"
        yield f"| all, with the clocks | {timed.total:.0f} |"
        yield "\n| alone, at the same pace | µs | in the kernel | wakings |\n|---|---|---|---|"
        for name, cost in measure(Player.alone, "extender").items():
            yield f"| {name} | {cost.total:.0f} | {cost.kernel:.0f} | {cost.wakings:.1f} |"


class Cost(NamedTuple):
    """Microseconds of processor time a pod; how often the process woke for it; the milliseconds of the calls; microseconds of each part."""

    total: float
    kernel: float
    wakings: float = 0.0
    calls: Sequence[float] = ()
    parts: Mapping[str, float] = {}

    @property
    def row(self) -> str:
        """Cells of a table."""
        ranks = quantiles(self.calls, n=100)
        return f"{self.total:.0f} | {self.kernel:.0f} | {self.wakings:.1f} | {median(self.calls):.2f} | {ranks[89]:.2f} | {ranks[98]:.2f}"


def _total(cost: Cost) -> float:
    return cost.total


# -- the API server ------------------------------------------------------------------------------------------------


def run_api_server(pipe: Pipe, load: Load, folder: str) -> None:
    """The target of the child process: an API server over TLS, with a kubeconfig in the folder."""
    asyncio.run(_serve_api(pipe, SyntheticCluster(load), Path(folder)))


async def _serve_api(pipe: Pipe, cluster: SyntheticCluster, folder: Path) -> None:
    objects = BenchApiServer(cluster)
    api = ApiServer(ApiServerSettings(history=_HISTORY, slow_after=_HISTORY, bookmark_every=20), store=objects.store)
    runner = web.ServerRunner(web.Server(api.answer), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_certificate(folder))
    await site.start()
    port = runner.addresses[0][1]
    api.url = f"https://127.0.0.1:{port}"
    document = api.kubeconfig()
    document["clusters"][0]["cluster"]["certificate-authority"] = str(folder / "ca.pem")
    (folder / "kubeconfig").write_bytes(orjson.dumps(document))
    calls = Calls(pipe, {}, unanswered={"write": objects.write})
    calls.listen()
    calls.send(api.url)
    await calls.stopped.wait()


def _certificate(folder: Path) -> ssl.SSLContext:
    authority = Authority.make("bench", datetime.now(UTC), 10)
    pair = authority.issue("api", datetime.now(UTC), 5, SERVER, ("127.0.0.1",))
    (folder / "ca.pem").write_bytes(authority.pair.certificate_pem)
    (folder / "api.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "api.pem")
    return context


# -- the extender --------------------------------------------------------------------------------------------------


def _measured(
    play: Callable[[Player], T],
    module: str,
    *,
    load: Load,
    pods: int,
    api_server: Child,
    folder: Path,
    config: str,
    version: str = ".",
) -> T:
    """What a play measures with an extender of its own. ``version``: the folder with its code."""
    with _serving(folder, config, module, version) as (process, url):
        return play(Player(SyntheticCluster(load), api_server, process, url, pods))


def _echo(load: Load, pods: int, api_server: Child) -> Cost:
    """What an echo without a framework takes for the same requests."""
    with child_running(run_bare_echo) as process:
        addresses: dict[str, str] = process.receive()
        return Player(SyntheticCluster(load), api_server, process, addresses["one"], pods).requests()


@contextmanager
def _serving(folder: Path, config: str, module: str, version: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A process that serves, and its URL, once it is ready."""
    document = yaml.safe_load(Path(config).read_text("utf-8")) if config else {}
    document |= {"apiVersion": "placement.extender.dev/v1alpha1", "kind": "ExtenderConfiguration"}
    document["kube"] = (document.get("kube") or {}) | {"kubeconfig": str(folder / "kubeconfig")}
    (folder / "extender.yaml").write_bytes(orjson.dumps(document))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
    arguments = ["serve", "--config", str(folder / "extender.yaml"), "--bind-address", address, "--log-level", "error"]
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=version) as process:
        try:
            wait_for(partial(_is_ready, f"http://{address}"))
            yield process, f"http://{address}"
        finally:
            process.terminate()


def _is_ready(url: str) -> bool:
    try:
        with closing(Connection(url)) as connection:
            connection.get("/readyz")
    except (BadAnswer, OSError):
        return False
    return True


class Usage(NamedTuple):
    """The processor time of a process so far, in microseconds: all of it, and in the kernel. And how often it went to sleep."""

    total: float
    kernel: float
    wakings: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """Read from /proc. The total is exact, the share of the kernel is counted in ticks of the clock."""
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        user, kernel = int(fields[11]), int(fields[12])
        try:
            total = sum(
                int(path.read_text("ascii").split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")
            )
        except OSError:  # a kernel without it
            total = 0
        ticks = 1e6 / os.sysconf("SC_CLK_TCK")
        status = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
        wakings = next(int(line.split()[1]) for line in status if line.startswith("voluntary"))
        return cls(total / 1000 or (user + kernel) * ticks, kernel * ticks, wakings)


# -- the plays -----------------------------------------------------------------------------------------------------


class Player:
    """Plays the lives of pods: each event, and each request, at a time of its own."""

    def __init__(
        self,
        cluster: SyntheticCluster,
        api_server: Child,
        process: subprocess.Popen[bytes] | Child,
        url: str,
        pods: int,
    ) -> None:
        self._api_server = api_server
        self._process = process
        self._url = url
        self._first = next(_FIRST) * _PODS_APART
        self._pods = [cluster.incoming_pod(self._first + number) for number in range(pods + _AHEAD)]
        self._requests = RequestMaker(cluster, _NAMES, 1)
        self._nodes = dict[PodId, str]()
        self.calls: list[float] = []

    def lives(self) -> Cost:
        """All of it for each pod, mixed as in a cluster where pods come and are placed all the time."""
        pods = self._pods[:-_AHEAD]
        for pod in self._pods[:_AHEAD]:
            self.create(pod)

        def live(number: int) -> None:
            self.request(pods[number])
            time.sleep(_STEP_SECONDS)
            self.bind(pods[number])
            time.sleep(_STEP_SECONDS)
            self.create(self._pods[number + _AHEAD])
            time.sleep(_STEP_SECONDS)
            if number >= _RUNNING_AFTER:
                self.start(pods[number - _RUNNING_AFTER])

        cost = self._measured(live, len(pods))
        for pod in self._pods:
            self.delete(pod)
        return cost

    def requests(self) -> Cost:
        """A request for each pod at the same pace, without an event."""

        def ask(number: int) -> None:
            self.request(self._pods[number])
            time.sleep(3 * _STEP_SECONDS)

        return self._measured(ask, len(self._pods) - _AHEAD)

    def alone(self) -> dict[str, Cost]:
        """Each step for all pods, before the next step begins."""
        pods = self._pods[:-_AHEAD]
        steps = {
            "event: the pod is created": self.create,
            "request": self.request,
            "event: the pod is bound": self.bind,
            "event: the pod runs": self.start,
            "event: the pod is deleted": self.delete,
        }

        def step(act: Callable[[PodId], None], number: int) -> None:
            act(pods[number])

        return {title: self._measured(partial(step, act), len(pods)) for title, act in steps.items()}

    def create(self, pod: PodId) -> None:
        self._write("ADDED", pod, "pending")

    def request(self, pod: PodId) -> None:
        answer, took = self._connection.post("/filter", self._requests.filter_body(pod))
        self._nodes[pod] = orjson.loads(answer)["NodeNames"][0]
        self.calls.append(took / 1e6)

    def bind(self, pod: PodId) -> None:
        self._write("MODIFIED", pod, "bound")

    def start(self, pod: PodId) -> None:
        self._write("MODIFIED", pod, "running")

    def delete(self, pod: PodId) -> None:
        self._write("DELETED", pod, "terminating" if pod in self._nodes else "pending")

    def _write(self, event: str, pod: PodId, state: str) -> None:
        self._api_server.notify("write", event, pod, "" if state == "pending" else self._nodes[pod], state)

    def _measured(self, act: Callable[[int], None], count: int) -> Cost:
        """The cost of an act for each pod."""
        time.sleep(_SETTLE_SECONDS)
        with closing(Connection(self._url)) as self._connection:
            self.calls, parts, before = [], self._parts(), Usage.of(self._process.pid)
            for number in range(count):
                act(number)
                time.sleep(_STEP_SECONDS)
        time.sleep(_SETTLE_SECONDS)
        after = Usage.of(self._process.pid)
        spent = {part: (value - parts.get(part, 0.0)) / count for part, value in self._parts().items()}
        total, kernel, wakings = ((new - old) / count for new, old in zip(after, before, strict=True))
        return Cost(total, kernel, wakings, self.calls, spent)

    def _parts(self) -> dict[str, float]:
        """The microseconds of each part so far, if the process has clocks."""
        if isinstance(self._process, Child) or _TIMED not in cast("list[str]", self._process.args):
            return {}
        self._process.send_signal(signal.SIGUSR1)
        parts: dict[str, int] = orjson.loads(cast("IO[bytes]", self._process.stdout).readline())
        return {part: value / 1000 for part, value in parts.items()}


if __name__ == "__main__":
    sys.exit(main())

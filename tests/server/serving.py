"""What the server's tests share: stand-in decisions, a readiness that can be switched, and bodies of requests."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web
from aiohttp.test_utils import TestClient

from extender.model.answers.explanations import Explanation, NotExplained
from extender.model.answers.pages import (
    ClusterFigures,
    ConstraintsPage,
    GroupPage,
    PageOf,
    PendingPage,
    PendingQuestion,
    PendingRow,
    PolicyPage,
    PreemptionPage,
    TopologyPage,
    TopologyQuestion,
    WorkloadPage,
)
from extender.model.answers.shadow import RuleFigures, ShadowDifference, ShadowPage
from extender.model.answers.what_if import NotComputed
from extender.model.objects import Pod
from extender.model.policies import JsonObject
from extender.model.preemption import Candidate
from extender.server.app import make_app
from extender.server.collaborators import Verbs
from extender.settings.configuration import Settings
from extender.settings.connections import Kube, Server
from extender.tasks.browse_service import BrowseService, ExplainService
from extender.tasks.readiness import Readiness
from extender.tasks.what_if.service import WhatIfService
from extender.telemetry.metrics import Metrics
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, PreemptionArgs
from tests.builders import CONTAINER

T = TypeVar("T")
Client = TestClient[web.Request, web.Application]
Serve = Callable[..., Awaitable[Client]]

POD = {"metadata": {"name": "web-1", "namespace": "team-a", "uid": "u-1"}, "spec": {"containers": [CONTAINER]}}
BY_NAMES = {"Pod": POD, "Nodes": None, "NodeNames": ["node-a", "node-bb"]}
NODES = [{"metadata": {"name": name, "labels": {"zone": "z1"}}} for name in ("node-a", "node-bb")]
BY_NODES = {"Pod": POD, "Nodes": {"items": NODES}, "NodeNames": None}
PREEMPTION = {
    "Pod": POD,
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {"node-a": {"Pods": [{"UID": "u-9"}], "NumPDBViolations": 1}},
}
FIGURES = tuple(each for each in ClusterFigures.__struct_fields__ if each != "topology_keys")
DEFAULT_LIMITS = Server()
DEFAULT_CLUSTER = Kube()


@dataclass
class Switch(Readiness):
    """A readiness that the test sets: what each check still misses."""

    missing: dict[str, str] = field(default_factory=lambda: {"nodes": "", "pods": ""})
    was_ready: bool = False
    may_answer: bool = True

    @property
    def is_ready(self) -> bool:
        return not any(self.missing.values())

    @property
    def is_stale(self) -> bool:
        """What is missing now was there before."""
        return self.was_ready and not self.is_ready

    @property
    def is_current(self) -> bool:
        """What is missing has nothing to do with the index."""
        missing = {name for name, problem in self.missing.items() if problem}
        return self.was_ready or missing <= {"leadership", "shutdown"}

    def checks(self) -> dict[str, str]:
        return self.missing

    def pod_checks(self) -> tuple[dict[str, str], dict[str, str]]:
        """The same; a standby passes, and says so."""
        remarks = {name: text for name, text in self.missing.items() if name == "leadership" and text}
        return self.missing | dict.fromkeys(remarks, ""), remarks


async def everything_passes(args: ExtenderArgs) -> FilterResult:
    """Answers the nodes that were asked, in either form."""
    return FilterResult(args.node_names or [node.name for node in args.nodes or ()])


def scores_by_length(args: ExtenderArgs) -> Mapping[str, int]:
    """Any score that can be told from another."""
    return {name: len(name) for name in args.node_names or ()}


async def every_candidate(args: PreemptionArgs) -> Sequence[Candidate]:
    return args.candidates


@dataclass
class Answering(ExplainService):
    """An explainer that answers what it was asked, or raises."""

    requested: list[tuple[str, ...]] = field(default_factory=list)
    problem: NotExplained | None = None

    async def explain(self, namespace: str, name: str, node: str = "") -> Explanation:
        return self._answer(f"{namespace}/{name}", node)

    async def explain_given(self, pod: Pod, node: str = "") -> Explanation:
        return self._answer(pod.full_name, node, pod.node)

    def _answer(self, pod: str, *more: str) -> Explanation:
        if self.problem is not None:
            raise self.problem
        self.requested.append((pod, *more))
        return Explanation(pod=pod, state="pending", nodes=3, passing=0, fitting=0)


@dataclass
class Browsing(BrowseService):
    """A browser that answers pages without rows and counts them, or raises."""

    problem: NotExplained | None = None
    requested: list[object] = field(default_factory=list)
    invalid_policies: int = 0
    rebuilds: int = 0

    async def figures(self) -> ClusterFigures:
        figures = dict.fromkeys(FIGURES, 0) | {"invalid_policies": self.invalid_policies, "rebuilds": self.rebuilds}
        return self._answer("figures", ClusterFigures(**figures, topology_keys=()))

    async def topology(self, asked: TopologyQuestion) -> TopologyPage:
        return self._answer(asked, TopologyPage(key=asked.key, lacking=0, matching=0))

    async def manifest(self, kind: str, name: str) -> JsonObject:
        return self._answer((kind, name), {"kind": kind, "metadata": {"name": name}})

    async def pending(self, asked: PendingQuestion) -> PendingPage:
        row = PendingRow(
            namespace="team-a", pod="web-1", uid="u-1", state="pending", since="2026-01-01T00:00:00Z", priority=0
        )
        return self._answer(asked, PendingPage(pods=(row,)))

    async def workloads(self, asked: PageOf) -> WorkloadPage:
        return self._answer(asked, WorkloadPage(workloads=()))

    async def constraints(self, namespace: str, name: str) -> ConstraintsPage:
        return self._answer((namespace, name), ConstraintsPage(pod=f"{namespace}/{name}", node="", constraints=()))

    async def preemptions(self, asked: PageOf) -> PreemptionPage:
        return self._answer(("preemptions", asked), PreemptionPage(preemptions=()))

    async def groups(self, asked: PageOf) -> GroupPage:
        return self._answer(("groups", asked), GroupPage(groups=()))

    async def policies(self, asked: PageOf) -> PolicyPage:
        return self._answer(("policies", asked), PolicyPage(policies=()))

    def freshness(self) -> float | None:
        return 0.5

    def _answer(self, asked: object, answer: T) -> T:
        if self.problem is not None:
            raise self.problem
        self.requested.append(asked)
        return answer


@dataclass
class WhatIfAnswering(WhatIfService):
    """Answers what-ifs with an empty answer, once it may, or raises."""

    problem: NotComputed | None = None
    may_answer: asyncio.Event | None = None
    requested: list[bytes] = field(default_factory=list)
    cancelled: list[bytes] = field(default_factory=list)

    async def answer(self, body: bytes) -> bytes:
        self.requested.append(body)
        if self.problem is not None:
            raise self.problem
        try:
            if self.may_answer is not None:
                await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled.append(body)
            raise
        return b'{"summary":{"placed":0,"rejected":0}}'


def nothing_compared(_limit: int) -> ShadowPage:
    """No shadow decisions yet."""
    return ShadowPage(compared=0, differ=0, open=0, decisions={}, rules=(), differences=())


_DIFFERENCE = ShadowDifference(
    time=1_800_000_000.5,
    source="request",
    namespace="shop",
    pod="web-1",
    uid="u-1",
    confirmed=True,
    rule="PodTopologySpread",
    reason="spread_skew",
    text="node(s) didn't match pod topology spread constraints",
    node="general-0",
    nodes=2,
    bound_to="general-0",
    requests=1,
    topology_key="topology.kubernetes.io/zone",
    domain="zone-0",
    count=3,
    limit=2,
    minimum=1,
    max_skew=1,
    blamed=("shop/web-0",),
)


def two_differences(limit: int) -> ShadowPage:
    """Two equal ones, as far as so many are wanted."""
    rules = (RuleFigures(rule="PodTopologySpread", agreed=7, assumed=1, late=1, differed=2, unproven=0),)
    decisions = {"agreed": 7, "assumed": 1, "late": 1, "differed": 2}
    found = (_DIFFERENCE,) * min(limit, 2)
    return ShadowPage(compared=11, differ=2, open=3, decisions=decisions, rules=rules, differences=found)


AGREEABLE = Verbs(everything_passes, scores_by_length, every_candidate, explainer=Answering(), shadow=nothing_compared)


def app_with(
    decisions: Verbs = AGREEABLE,
    readiness: Switch | None = None,
    server: Server = DEFAULT_LIMITS,
    kube: Kube = DEFAULT_CLUSTER,
) -> web.Application:
    """An application around given decisions and limits."""
    return make_app(Settings(server=server, kube=kube), decisions, readiness or Switch(), Metrics("1.2.3"), "1.2.3")


@dataclass
class Decisions:
    """Answers every review with these fields of a response; `seen` are the reviews."""

    response: JsonObject = field(default_factory=lambda: {"allowed": True})
    problem: Exception | None = None
    seen: list[JsonObject] = field(default_factory=list)

    async def decide(self, review: JsonObject) -> JsonObject:
        """The answer that the test has set."""
        self.seen.append(review)
        if self.problem is not None:
            raise self.problem
        return {**review, "request": None, "response": {"uid": review["request"]["uid"], **self.response}}


def is_listening(url: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1).close()
    except OSError:
        return False
    return True

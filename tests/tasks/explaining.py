"""An explain service in steps, over clusters to explain and to browse."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from datetime import UTC, datetime

from extender.index.cluster import ClusterIndex
from extender.model.answers.explanations import NoAnswerCause, NotExplained
from extender.settings.configuration import Settings
from extender.settings.policies import Exemptions, Policies
from extender.tasks.browse_service import BrowseService, ExplainService
from extender.tasks.preemption.manager import PreemptionRecord
from extender.tasks.sliced_work import SlicedWork
from tests.builders import index_of, namespace, node, pod, term
from tests.fakes import FakeClock

APART = term("zone", app="web")


def cluster(nodes: int = 2) -> ClusterIndex:
    """Nodes in two zones with a web pod each, and a web pod that must be alone in its zone."""
    index = index_of(*(node(f"n{at}", zone=f"z{at % 2}", allocatable={"cpu": "4", "pods": "9"}) for at in range(nodes)))
    for at in range(nodes):
        index.upsert(pod(f"on-n{at}", on=f"n{at}", app="web"))
    index.upsert(pod("asking", app="web", apart=[APART]))
    return index


def service(index: ClusterIndex, clock: FakeClock | None = None) -> ExplainService:
    nodes = {uid: assumed.nodes for uid, assumed in index.assumed.held.items()}
    return ExplainService(index.view, Settings(), clock or FakeClock(), lambda uid: nodes.get(uid, ()))


Steps = Generator[None, None, list[str]]


def steps(done: list[str], count: int = 3) -> Steps:
    """Work that notes each of its steps."""
    for _ in range(count):
        done.append("step")
        yield
    return done


def refusing() -> Steps:
    """Work that finds that there is no such pod."""
    yield
    raise NotExplained(NoAnswerCause.UNKNOWN, "pod a/b is not known")


def failing() -> Steps:
    yield
    raise ZeroDivisionError


def counted(work: SlicedWork) -> dict[tuple[str, str], int]:
    return {key: count for key, count in work.outcomes.items() if count}


NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def browsed_cluster(nodes: int = 2) -> ClusterIndex:
    return index_of(
        namespace("default"),
        *(node(f"n{at}", zone=f"z{at % 2}") for at in range(nodes)),
        pod("placed", on="n0"),
        pod("waits"),
        pod("passed"),
        pod("held", gates=["example.com/quota"]),
        pod("leaving", terminating=True),
    )


def browsing(
    index: ClusterIndex,
    clock: FakeClock | None = None,
    preemptions: Sequence[PreemptionRecord] = (),
    work: SlicedWork | None = None,
) -> BrowseService:
    clock = clock or FakeClock()
    return BrowseService(
        index,
        Settings(policies=Policies(exemptions=Exemptions(label_in=("default",)))),
        work or SlicedWork(clock),
        clock,
        lambda: NOW,
        lambda: preemptions,
    )

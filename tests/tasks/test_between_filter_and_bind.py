"""What changes between the answer of filter and the binding: the answer stands, and from then on everything counts as it is now."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.kube.errors import NotFound
from extender.model.objects import Object
from extender.model.policies import PolicyObject
from extender.settings.configuration import Settings
from extender.tasks.leader_election import LeadershipLost
from extender.tasks.preempt_and_bind import BindService, UnansweredBindings
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import BindingArgs
from tests.builders import extender_args, index_of, matching, namespace, node, pod, pod_json, taint, term
from tests.fakes import FakeClock, FakeWriter
from tests.index.counting import Deleted, apply
from tests.policies import expression as requirement
from tests.policies import node_term, policy, requiring

NODES = ("n1", "n2", "n3")
TEAM_A = matching(team="a")
COMING = pod("web", namespace="red", app="web")
# Keeps away from pods of team a in its zone, and comes after the change.
LATER = pod_json("later", apart=[term("zone", namespace_selector=TEAM_A, app="web")])
ELSEWHERE = policy(
    podSelector=matching(app="web"),
    when=["Scheduling"],
    affinity=requiring(node_term(requirement("zone", "In", "z2"))),
)
BINDING = BindingArgs("red", "web", "uid-web", "n1")


def passed_to_n1() -> ClusterIndex:
    """Two zones. The pod was let through to n1, in the first of them."""
    nodes = (node("n1", zone="z1"), node("n2", zone="z2"), node("n3", zone="z1"))
    index = index_of(*nodes, namespace("red", team="a"), COMING)
    index.assume(COMING, ("n1",), 0.0)
    return index


def allowed(index: ClusterIndex) -> list[str]:
    """The nodes that filter lets the later pod have."""
    verb = FilterVerb(index.view, Settings(placement="cooperative"))
    return sorted(
        verb.decide(extender_args(LATER, *(name for name in NODES if name in index.view.known)), 0).result.passed
    )


async def bind(index: ClusterIndex, *failures: Exception) -> tuple[str, list[str]]:
    """The answer of the bind verb, and what was written."""
    clock, writer = FakeClock(), FakeWriter(failures=list(failures))
    service = BindService(index, writer, clock, UnansweredBindings(index, FakeWriter(), clock))
    return await service.bind(BINDING), writer.effects


@dataclass(frozen=True)
class Change:
    """An object as it is afterwards, or its deletion, and the nodes that filter lets the later pod have from then on."""

    step: Object | Deleted
    nodes: tuple[str, ...]


CHANGES = {
    "nothing": Change(COMING, ("n2",)),
    "the labels of its namespace, which others select no longer": Change(namespace("red", team="b"), NODES),
    "its own labels, which others select no longer": Change(pod("web", namespace="red", app="x"), NODES),
    "the zone of its node": Change(node("n1", zone="z2"), ("n3",)),
    "a cordon of its node": Change(node("n1", zone="z1", unschedulable=True), ("n2",)),
    "a taint of its node": Change(node("n1", zone="z1", taints=[taint("gone", effect="NoExecute")]), ("n2",)),
    "a policy that directs it elsewhere": Change(PolicyObject(ELSEWHERE), ("n2",)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_the_pod_is_bound_as_it_was_decided_and_counts_by_what_is_true_now(change: Change) -> None:
    index = apply(passed_to_n1(), change.step)
    assert allowed(index) == list(change.nodes)
    assert await bind(index) == ("", ["bind web n1"])
    assert allowed(index) == list(change.nodes)
    assert audit(index) == []


async def test_the_node_is_deleted_and_the_pod_counts_nowhere_until_it_comes_back() -> None:
    """The API server takes the binding; the garbage collector of pods deletes the pod then."""
    index = apply(passed_to_n1(), Deleted(node("n1", zone="z1")))
    assert await bind(index) == ("", ["bind web n1"])
    assert (allowed(index), audit(index)) == (["n2", "n3"], [])
    index.upsert(node("n1", zone="z1"))
    assert (allowed(index), audit(index)) == (["n2"], [])


async def test_the_pod_is_deleted_and_nothing_is_bound() -> None:
    index = apply(passed_to_n1(), Deleted(COMING))
    answer, written = await bind(index, NotFound("404", status=404))
    assert (answer.startswith("not bound: "), written) == (True, [])
    assert (allowed(index), audit(index)) == (list(NODES), [])


async def test_the_lease_is_lost_before_the_write_and_the_room_is_given_back() -> None:
    """The call is answered with an error, nothing is written, and the scheduler tries the pod again at the next leader."""
    index = passed_to_n1()
    assert await bind(index, LeadershipLost("another replica leads, or none")) == ("another replica leads, or none", [])
    assert (allowed(index), index.assumed.held, audit(index)) == (list(NODES), {}, [])

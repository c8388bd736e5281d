"""Pods that were let through and that the watch has not shown yet: counted, or known to be pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.model.bounded import MOST_DELETED, DeletedPods
from extender.model.objects import ON_ITS_WAY, Object, Pod
from extender.rules.interpod_affinity import own_terms
from tests.builders import index_of, matching, namespace, node, pod, pod_json, read_pod, term, weighted
from tests.contenders import cluster, contender, names, stage
from tests.index.counting import Assume, Counts, Deleted, Review, Step, apart, apply, compiled_of, near

NEAR_WEB = pod_json(near=[term("zone", app="web")])
FRIENDLY = pod_json(apart=[term("zone", namespace_selector=matching(team="a"), app="web")])
WEB = pod("web", app="web")


def zoned(*objects: Object) -> ClusterIndex:
    return index_of(node("n1", zone="z1"), node("n2", zone="z2"), node("n3", zone="z1"), *objects)


def assumed(index: ClusterIndex, coming: Pod, *names: str, now: float = 0.0) -> ClusterIndex:
    index.assume(coming, names, now)
    return index


def is_undetermined(index: ClusterIndex) -> bool:
    return index.view.is_undetermined(compiled_of(index, NEAR_WEB))


def places(index: ClusterIndex) -> tuple[dict[str, int], dict[str, int]]:
    """Where the pods are sure to come, and where they may."""
    (group,) = own_terms(compiled_of(index, NEAR_WEB)).affinity
    sure, possible = index.view.expected(group)
    return {group.key.value(d): n for d, n in sure.items()}, {group.key.value(d): n for d, n in possible.items()}


BOUND, OTHER = pod("web", on="n1", app="web"), pod("web", app="other")
N1, N3 = node("n1", zone="z1"), node("n3", zone="z1")
KNOWN, SEVERAL, DOUBTED = {"known": 1}, {"undetermined": 1}, {"doubted": 1}
ON_N1, ON_N1_OR_N2, ON_N1_OR_N3 = Assume(WEB, ("n1",)), Assume(WEB, ("n1", "n2")), Assume(WEB, ("n1", "n3"))
ANYWHERE = Assume(WEB, ("n1", "n2", "n3"))
IN_BOTH = {"z1": 1, "z2": 1}
IN_Z1, IN_Z2 = {"z1": 1}, {"z2": 1}
RELABELLED = (OTHER, Assume(OTHER, ("n1", "n2")), WEB)


@pytest.mark.parametrize(
    ("steps", "counted", "sure", "possible", "held"),
    [
        # On one node the pod counts there.
        pytest.param([ON_N1], IN_Z1, {}, {}, KNOWN, id="on one node"),
        pytest.param([ON_N1, BOUND], IN_Z1, {}, {}, {}, id="bound there"),
        pytest.param(
            [ON_N1, pod("web", on="n1", app="web", x="y")], IN_Z1, {}, {}, {}, id="bound with a further label"
        ),
        pytest.param([ON_N1, pod("web", on="n2", app="web")], IN_Z2, {}, {}, {}, id="bound elsewhere"),
        pytest.param([WEB, ON_N1, Deleted(WEB)], {}, {}, {}, {}, id="deleted"),
        pytest.param([ON_N1, Assume(WEB, ("n2",))], IN_Z2, {}, {}, KNOWN, id="a new answer"),
        pytest.param([ON_N1, Assume(WEB, ())], {}, {}, {}, {}, id="a new answer without a node"),
        pytest.param([BOUND, Assume(WEB, ("n2",))], IN_Z1, {}, {}, {}, id="bound already"),
        pytest.param([OTHER, Assume(OTHER, ("n1",))], {}, {}, {}, KNOWN, id="with other labels"),
        pytest.param([OTHER, Assume(OTHER, ("n1",)), WEB], IN_Z1, {}, {}, KNOWN, id="with the labels that it has now"),
        pytest.param([OTHER, Assume(OTHER, ("n1",)), WEB, BOUND], IN_Z1, {}, {}, {}, id="bound with them"),
        pytest.param([ON_N1, Deleted(N1)], {}, {}, {}, KNOWN, id="its node goes"),
        pytest.param([ON_N1, Deleted(N1), node("n1", zone="z2")], IN_Z2, {}, {}, KNOWN, id="its node is back"),
        # On several it counts nowhere, and constraints that depend on it are undetermined.
        pytest.param([ANYWHERE], {}, {}, IN_BOTH, SEVERAL, id="on several"),
        pytest.param([ON_N1_OR_N3], {}, IN_Z1, {}, SEVERAL, id="sure to come to a domain that has all of them"),
        pytest.param([ON_N1_OR_N3, Deleted(N3)], {}, {}, IN_Z1, SEVERAL, id="not sure while one of them is deleted"),
        pytest.param([ON_N1_OR_N3, node("n3")], {}, {}, IN_Z1, SEVERAL, id="not sure while one has no domain"),
        pytest.param(RELABELLED, {}, {}, IN_BOTH, SEVERAL, id="on several, with the labels that it has now"),
        pytest.param([*RELABELLED, OTHER], {}, {}, {}, SEVERAL, id="on several, with other labels now"),
        pytest.param([Assume(pod("db", app="db"), ("n1", "n2"))], {}, {}, {}, SEVERAL, id="a pod that does not count"),
        pytest.param([WEB, ON_N1_OR_N2, BOUND], IN_Z1, {}, {}, {}, id="bound to one of several"),
        pytest.param([WEB, ON_N1_OR_N2, pod("web", app="web", phase="Failed")], {}, {}, {}, {}, id="finished"),
        # In doubt it is on one of its nodes, or on none.
        pytest.param([ON_N1, Review(4.9)], IN_Z1, {}, {}, KNOWN, id="before it is in doubt"),
        pytest.param([ON_N1, Review(5.0)], {}, {}, IN_Z1, DOUBTED, id="in doubt"),
        pytest.param([ON_N1_OR_N3, Review(5.0)], {}, {}, IN_Z1, DOUBTED, id="in doubt on several of one domain"),
        pytest.param([ON_N1, Review(5.0), BOUND], IN_Z1, {}, {}, {}, id="bound after doubt"),
        pytest.param([ON_N1_OR_N2, Review(5.0), BOUND], IN_Z1, {}, {}, {}, id="bound after doubt on several"),
        pytest.param([ON_N1, Review(5.0), Assume(WEB, ("n2",), 6.0)], IN_Z2, {}, {}, KNOWN, id="answered after doubt"),
        # The scheduler may ask about a pod that was deleted meanwhile; nothing would ever end what began then.
        pytest.param([WEB, Deleted(WEB), ON_N1], {}, {}, {}, {}, id="deleted before"),
        pytest.param([WEB, Deleted(WEB), WEB, ON_N1], IN_Z1, {}, {}, KNOWN, id="deleted and restored before"),
    ],
)
def test_where_an_assumed_pod_counts(
    steps: Sequence[Step], counted: Counts, sure: Counts, possible: Counts, held: dict[str, int]
) -> None:
    """``sure`` and ``possible`` by domain, for a pod that counts nowhere; ``held`` by how certain its node is."""
    index = apply(zoned(), *steps)
    assert (near(index, NEAR_WEB), places(index), audit(index)) == ([counted], (sure, possible), [])
    assert is_undetermined(index) is bool(sure or possible)
    assert {kind: number for kind, number in index.assumed.places().items() if number} == held


def test_a_request_need_not_wait_for_a_pod_in_doubt() -> None:
    index, notified = apply(zoned(), ON_N1_OR_N2), list[int]()
    index.assumed.changes.subscribe(lambda _: notified.append(index.assumed.several))
    apply(index, Review(5.0))
    assert notified == [0]


def test_a_pod_that_did_not_count_for_a_moment_hides_no_later_one() -> None:
    """A score waits for pods that were answered since then: they are looked up from the newest on."""
    index = zoned(WEB, later := pod("later", app="web"))
    for number, each in enumerate((WEB, later)):
        index.assume(each, ("n1", "n2"), float(number))
    before = list(index.assumed.held.items())
    with index.assumed.apart(WEB.uid):
        pass
    assert list(index.assumed.held.items()) == before
    prefers = compiled_of(index, pod_json("prefers", prefers=[weighted(1, term("zone", app="web"))]))
    assert index.view.is_score_undetermined(prefers, 0.5)


def test_a_namespace_that_is_no_longer_selected_leaves_no_pod_undetermined() -> None:
    index = zoned(namespace("red", team="a"))
    compiled_of(index, FRIENDLY)
    assumed(index, pod("web", namespace="red", app="web"), "n1", "n2")
    seen = []
    for team in ("a", "b", "a"):
        index.upsert(namespace("red", team=team))
        seen.append(index.view.is_undetermined(compiled_of(index, FRIENDLY)))
    assert (seen, apart(index, FRIENDLY)) == ([True, False, True], [{}])


FAILED = pod_json("web", app="web")
FAILED["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


@pytest.mark.parametrize(
    ("assumed_at", "reported", "now", "expiry", "known", "ended"),
    [
        (100.0, False, 129.0, 30.0, {}, 0),
        (100.0, False, 130.0, 30.0, {}, 1),
        # A report of failure ends it unless the report is of an earlier attempt.
        (0.0, True, 1.0, 30.0, {}, 0),
        (0.0, True, 2.0, 30.0, {}, 1),
        # The watch may lag: what is read now was written at any time since the watch was last read to its end.
        (0.0, True, 60.0, 300.0, {"known_before": 1.9}, 0),
        (0.0, True, 60.0, 300.0, {"known_before": 2.0}, 1),
        # It does not expire while its binding may lie unread.
        (100.0, False, 190.0, 30.0, {"known_until": 129.0}, 0),
        (100.0, False, 190.0, 30.0, {"known_until": 130.0}, 1),
    ],
)
def test_what_ends_an_assumption_when_the_watch_says_nothing(
    assumed_at: float, now: float, expiry: float, known: dict[str, float], ended: int, *, reported: bool
) -> None:
    index = assumed(zoned(*[WEB] * reported), WEB, "n1", now=assumed_at)
    if reported:
        index.upsert(read_pod(FAILED))
    limits = AssumptionTimeouts(expiry=expiry, failure_grace=2.0)
    assert index.assumed.review(now, limits, **known) == ended
    assert near(index, NEAR_WEB) == [{} if ended else {"z1": 1}]


class TestDeletion:
    """The scheduler may ask about a pod that was deleted meanwhile; nothing would ever end what began then."""

    def test_it_is_not_cached_as_rejected_either(self) -> None:
        index = zoned(waiting := pod("web", app="web"))
        index.delete(waiting)
        index.rejected.add(WEB, None)
        assert len(index.rejected) == 0

    def test_only_the_last_ones_are_cached_and_a_repeated_report_drops_no_other(self) -> None:
        held, uids = DeletedPods(()), [f"u{number}" for number in range(100_000)]
        for uid in uids:
            held.add(uid)
        assert all(uid in held for uid in uids[-5_000:])
        assert sum(uid in held for uid in uids) <= MOST_DELETED
        held, few = DeletedPods(()), uids[:2_000]
        for uid in [*few, *few[::2] * 40]:
            held.add(uid)
        assert all(uid in held for uid in few)

    @pytest.mark.parametrize(
        ("there", "listed_at", "counted"), [((), 5.0, {"z1": 1}), ((), 6.0, {}), ((WEB,), 6.0, {"z1": 1})]
    )
    def test_a_later_list_that_lacks_it_ends_it(
        self, there: tuple[Pod, ...], listed_at: float, counted: Counts
    ) -> None:
        """The pod may be younger than a list of the same moment."""
        index = assumed(zoned(*there), WEB, "n1", now=5.0)
        index.assumed.listed(index.pods, listed_at)
        assert (near(index, NEAR_WEB), index.statistics()["assumed_pods"]) == ([counted], len(counted))

    def test_one_that_exists_again_is_not_deleted(self) -> None:
        pods: set[str] = set()
        held = DeletedPods(pods)
        held.add("u1")
        held.add("u2")
        pods.add("u1")
        assert [uid in held for uid in ("u1", "u2", "u3")] == [False, True, False]
        pods.clear()
        held.add("u1")
        assert "u1" in held


def reported(message: str, reason: str = "SchedulerError") -> Pod:
    """The pod as the watch shows it after kube-scheduler's report of a failed attempt."""
    body = pod_json("web", app="web")
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    body["status"] = {"conditions": [condition]}
    return read_pod(body)


class TestFailedBinding:
    """kube-scheduler says at which step an attempt failed."""

    @pytest.mark.parametrize(
        ("report", "ended"),
        [
            (reported('running Bind plugin "DefaultBinder": pods "web" is forbidden: not this one'), 1),
            (reported('running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'), 1),
            (reported("binding rejected: node n1 is gone"), 1),
            # A recording has a pseudonym in place of the text.
            (replace(reported(f"running filter: cannot decide: {ON_ITS_WAY}"), rejection="a pseudonym"), 1),
            (reported("0/3 nodes", "Unschedulable"), 0),
            (reported("Post: EOF", "SchedulerError"), 0),
        ],
    )
    def test_a_report_of_a_failed_binding_ends_the_assumption_at_once(self, report: Pod, ended: int) -> None:
        """Only an attempt that passed the filter comes so far; another failure may be an earlier attempt's."""
        index = assumed(zoned(WEB), WEB, "n1")
        unconfirmed: list[object] = []
        index.assumed.unconfirmed.subscribe(unconfirmed.append)
        index.upsert(report)
        assert (near(index, NEAR_WEB), len(unconfirmed)) == ([{} if ended else {"z1": 1}], ended)
        assert (index.assumed.ended, index.assumed.expired, audit(index)) == (ended, 0, [])

    @pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1",)], ids=["undetermined", "in doubt"])
    def test_so_it_does_where_the_node_is_not_certain(self, nodes: tuple[str, ...]) -> None:
        index = zoned(WEB)
        index.assume(WEB, nodes, 0.0, doubted=len(nodes) == 1)
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout'))
        assert (places(index), is_undetermined(index)) == (({}, {}), False)
        assert audit(index) == []

    @pytest.mark.parametrize("attempts", [1, 2])
    def test_as_many_late_reports_as_attempts_ended_before_leave_it_assumed(self, attempts: int) -> None:
        """An API server under load rejects several bindings of a pod, and the watch lags."""
        index = assumed(zoned(WEB), WEB, "n1")
        for _ in range(attempts):
            index.assumed.forget(WEB.uid)
            assumed(index, WEB, "n2")
        seen = []
        for report in range(attempts + 1):
            index.upsert(reported(f'running Bind plugin "DefaultBinder": {report}'))
            seen.append(near(index, NEAR_WEB))
        assert seen == [[{"z2": 1}]] * attempts + [[{}]]
        index.assumed.forget(WEB.uid)
        index.delete(WEB)
        assert index.assumed._unreported == {}

    def test_another_event_of_the_pod_is_no_report(self) -> None:
        """It carries the condition of an older attempt still."""
        old = reported('running Bind plugin "DefaultBinder": an older failure')
        index = assumed(zoned(old), WEB, "n1")
        index.assumed.forget(WEB.uid)
        index.upsert(replace(old, nominated_node="n2"))
        assumed(index, WEB, "n2")
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout'))
        assert near(index, NEAR_WEB) == [{"z2": 1}]


# -- Which pod is to come to which node: nominations of the status, promises of plans, and when either ends ------------


def to_come(held: ClusterIndex) -> dict[str, list[str]]:
    return {node: names(pods) for node, pods in held.view.nominated.items()}


def waiting(nominated: str = "", **fields: object) -> Pod:
    return contender("a", nominated=nominated, **fields)


def nominate(node: str, *victims: str) -> Callable[[ClusterIndex], object]:
    """The pod is nominated in memory, before its status says so."""
    return lambda held: held.nominate_in_memory(waiting(), node, victims)


def release(held: ClusterIndex) -> None:
    held.release_nomination("uid-a")


# Objects and changes, and after each of them the node to which the pod is nominated.
NOMINATIONS: dict[str, list[tuple[Object | Deleted | Callable[[ClusterIndex], object], str]]] = {
    "until it has a node": [(waiting("n1"), "n1"), (waiting("n1", on="n1"), "")],
    "it moves and is dropped": [
        (waiting("n1"), "n1"),
        (waiting("n2"), "n2"),
        (waiting(), ""),
        (Deleted(waiting()), ""),
    ],
    "a terminating pod": [(waiting("n1", terminating=True), "")],
    "a finished pod": [(waiting("n1", phase="Failed"), "")],
    "in memory it wins over an older one in the status": [
        *((waiting("n1"), "n1"), (contender("victim", on="n2"), "n1"), (nominate("n2", "uid-victim"), "n2")),
        (waiting("n1", labels={"changed": "yes"}), "n2"),
    ],
    "released, the status counts": [(waiting("n1"), "n1"), (nominate("n2"), "n2"), (release, "n1")],
    "of a pod that the watch has not shown": [(nominate("n2"), "n2"), (release, "")],
    "of a pod that got a node or was deleted": [
        *((waiting(), ""), (nominate("n2"), "n2"), (waiting(on="n3"), ""), (Deleted(waiting()), "")),
    ],
}


@pytest.mark.parametrize("steps", NOMINATIONS.values(), ids=NOMINATIONS)
def test_where_a_pod_is_nominated(
    steps: Sequence[tuple[Object | Deleted | Callable[[ClusterIndex], object], str]],
) -> None:
    held = cluster(stage())
    for step, name in steps:
        if callable(step):
            step(held)
        else:
            apply(held, step)
        assert to_come(held) == ({name: ["a"]} if name else {})
    assert steps[-1][1] or held.nominations._node_of == {}


def test_a_plan_is_known_until_it_ends_and_its_node_is_awaited_while_a_victim_exists() -> None:
    held = cluster(waiting(), contender("v1", on="n2"), contender("v2", on="n2"))
    held.nominate_in_memory(waiting(), "n2", ["uid-v1", "uid-v2"])
    uncleared = []
    for victim in ("v1", "v2"):
        uncleared.append(held.view.uncleared_node("uid-a"))
        held.delete(contender(victim))
    assert [*uncleared, held.view.uncleared_node("uid-a"), held.view.uncleared_node("uid-b")] == ["n2", "n2", "", ""]
    held.release_nomination("uid-a")
    plans = [held.view.plan_node("uid-a"), held.view.plan_node("uid-b")]
    held.end_nomination("uid-a")
    assert [*plans, held.view.plan_node("uid-a"), to_come(held)] == ["n2", "", "", {}]


def test_the_victims_of_every_promise_of_a_node_are_leaving_it_until_they_are_gone() -> None:
    held = cluster(*(contender(name, on="n2") for name in ("v1", "v2", "stays")))
    held.nominate_in_memory(waiting(), "n2", ["uid-v1"])
    held.nominate_in_memory(contender("b"), "n2", ["uid-v1", "uid-v2"])
    held.nominate_in_memory(contender("c"), "n1", ["uid-stays"])
    seen = [sorted(each.name for each in held.view.leaving("n2"))]
    held.delete(contender("v1"))
    seen.append([each.name for each in held.view.leaving("n2")])
    held.end_nomination("uid-b")
    assert [*seen, held.view.leaving("n2")] == [["v1", "v2"], ["v2"], []]


def test_claims_have_a_new_version_whenever_they_change_and_only_then() -> None:
    held = cluster()
    versions = [held.view.claims_version]
    for step in (waiting(), waiting("n1"), waiting("n1"), waiting("n2"), waiting("n2", on="n2")):
        held.upsert(step)
        versions.append(held.view.claims_version)
    assert [later - earlier for earlier, later in pairwise(versions)] == [0, 1, 0, 1, 1]


def test_pods_are_outranked_while_one_of_lower_priority_stands_somewhere() -> None:
    held = cluster(contender("low", on="n1", priority=5), contender("waiting", priority=1))
    assert [held.view.has_below(priority) for priority in (5, 6)] == [False, True]
    held.delete(contender("low"))
    assert not held.view.has_below(1000)

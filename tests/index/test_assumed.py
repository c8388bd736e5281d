"""Pods that were let through and that the watch has not shown yet: counted, or known to be pending."""

from __future__ import annotations

import orjson
import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.claims.assumed import Limits
from extender.index.cluster import ClusterIndex
from extender.model.bounded import MOST_DELETED, DeletedPods
from extender.model.objects import ON_ITS_WAY, Object, Pod
from extender.rules.interpod_affinity import own_terms
from extender.wire.objects.kinds import PODS
from tests.builders import index_of, matching, namespace, node, pod, pod_json, term
from tests.index.counting import apart, compiled_of, near

NEAR_WEB = pod_json(near=[term("zone", app="web")])
FRIENDLY = pod_json(apart=[term("zone", namespace_selector=matching(team="a"), app="web")])
WEB = pod("web", app="web")


def zoned(*objects: Object) -> ClusterIndex:
    """Three nodes in two zones."""
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


class TestOneNode:
    """The place is known: the pod counts there."""

    def test_it_counts_as_if_it_stood_there(self) -> None:
        index = assumed(zoned(), WEB, "n1")
        assert (near(index, NEAR_WEB), is_undetermined(index)) == ([{"z1": 1}], False)

    def test_its_binding_takes_its_place_without_counting_twice(self) -> None:
        index = assumed(zoned(), WEB, "n1")
        index.upsert(pod("web", on="n1", app="web", labels={"topology.kubernetes.io/zone": "z1"}))
        assert (near(index, NEAR_WEB), index.statistics()["assumed_pods"]) == ([{"z1": 1}], 0)

    def test_a_binding_elsewhere_is_the_truth(self) -> None:
        index = assumed(zoned(), WEB, "n1")
        index.upsert(pod("web", on="n2", app="web"))
        assert near(index, NEAR_WEB) == [{"z2": 1}]

    def test_its_deletion_takes_it_out(self) -> None:
        index = assumed(zoned(waiting := pod("web", app="web")), WEB, "n1")
        index.delete(waiting)
        assert near(index, NEAR_WEB) == [{}]

    def test_a_new_answer_takes_the_place_of_the_last(self) -> None:
        index = assumed(assumed(zoned(), WEB, "n1"), WEB, "n2")
        assert near(index, NEAR_WEB) == [{"z2": 1}]
        assert near(assumed(index, WEB), NEAR_WEB) == [{}]

    def test_only_those_whose_node_is_not_known_are_several(self) -> None:
        index = assumed(assumed(zoned(), WEB, "n1"), pod("other", app="web"), "n1", "n2")
        seen = [index.assumed.places()]
        for uid in ("uid-web", "uid-other"):
            index.assumed.forget(uid)
            seen.append(index.assumed.places())
        assert [(each["known"], each["undetermined"]) for each in seen] == [(1, 1), (0, 1), (0, 0)]

    def test_a_pod_that_stands_already_is_left_alone(self) -> None:
        index = assumed(zoned(pod("web", on="n1", app="web")), WEB, "n2")
        assert near(index, NEAR_WEB) == [{"z1": 1}]

    def test_it_counts_by_the_labels_that_it_has_now(self) -> None:
        """They may change before it is bound, and then the scheduler places others beside what it will be."""
        index = assumed(zoned(other := pod("web", app="other")), other, "n1")
        assert near(index, NEAR_WEB) == [{}]
        index.upsert(pod("web", app="web"))
        assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])
        index.upsert(pod("web", on="n1", app="web"))
        assert (near(index, NEAR_WEB), audit(index)) == ([{"z1": 1}], [])

    def test_a_node_that_goes_takes_it_out_and_brings_it_back(self) -> None:
        index = assumed(zoned(), WEB, "n1")
        index.delete(node("n1", zone="z1"))
        assert near(index, NEAR_WEB) == [{}]
        index.upsert(node("n1", zone="z2"))
        assert near(index, NEAR_WEB) == [{"z2": 1}]


class TestSeveralNodes:
    """The node is undetermined: the pod counts nowhere, and constraints that depend on it are undetermined."""

    def test_constraints_that_count_it_are_undetermined_and_know_where_it_may_be(self) -> None:
        index = assumed(zoned(), WEB, "n1", "n2", "n3")
        assert (near(index, NEAR_WEB), is_undetermined(index)) == ([{}], True)
        assert places(index) == ({}, {"z1": 1, "z2": 1})

    def test_it_may_come_there_with_the_labels_that_it_has_now(self) -> None:
        index = assumed(zoned(other := pod("web", app="other")), other, "n1", "n2")
        index.upsert(pod("web", app="web"))
        assert (is_undetermined(index), places(index)) == (True, ({}, {"z1": 1, "z2": 1}))
        index.upsert(other)
        assert (is_undetermined(index), audit(index)) == (False, [])

    def test_it_is_sure_to_come_to_a_domain_that_holds_all_its_nodes(self) -> None:
        index = assumed(zoned(), WEB, "n1", "n3")
        assert (near(index, NEAR_WEB), is_undetermined(index), places(index)) == ([{}], True, ({"z1": 1}, {}))

    def test_it_is_not_sure_to_come_while_one_of_its_nodes_is_gone_or_has_no_such_domain(self) -> None:
        index = assumed(zoned(), WEB, "n1", "n3")
        index.delete(node("n3", zone="z1"))
        assert places(index) == ({}, {"z1": 1})
        index.upsert(node("n3"))
        assert places(index) == ({}, {"z1": 1})

    def test_constraints_that_do_not_count_it_are_not_undetermined(self) -> None:
        assert not is_undetermined(assumed(zoned(), pod("db", app="db"), "n1", "n2"))

    @pytest.mark.parametrize(
        "ending",
        [pod("web", on="n1", app="web"), pod("web", app="web", phase="Failed")],
        ids=["bound", "finished"],
    )
    def test_the_watch_ends_it(self, ending: Pod) -> None:
        index = assumed(zoned(pod("web", app="web")), WEB, "n1", "n2")
        index.upsert(ending)
        assert not is_undetermined(index)

    def test_a_request_that_is_put_later_is_pending_as_well(self) -> None:
        index = assumed(zoned(), WEB, "n1", "n2")
        assert is_undetermined(index)

    def test_a_namespace_that_is_no_longer_selected_leaves_no_pod_undetermined(self) -> None:
        index = zoned(namespace("red", team="a"))
        compiled_of(index, FRIENDLY)
        assumed(index, pod("web", namespace="red", app="web"), "n1", "n2")
        seen = []
        for team in ("a", "b", "a"):
            index.upsert(namespace("red", team=team))
            seen.append(index.view.is_undetermined(compiled_of(index, FRIENDLY)))
        assert (seen, apart(index, FRIENDLY)) == ([True, False, True], [{}])


class TestReview:
    """What ends an assumption when the watch says nothing."""

    def test_it_expires(self) -> None:
        index = assumed(zoned(), WEB, "n1", now=100.0)
        assert (index.assumed.review(129.0, Limits(expiry=30.0, failure_grace=2.0)), near(index, NEAR_WEB)) == (
            0,
            [{"z1": 1}],
        )
        assert (index.assumed.review(130.0, Limits(expiry=30.0, failure_grace=2.0)), near(index, NEAR_WEB)) == (1, [{}])

    def test_a_report_of_failure_ends_it_unless_it_is_of_an_earlier_attempt(self) -> None:
        rejected = pod_json("web", app="web")
        rejected["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        for age, ended in ((1.0, 0), (2.0, 1)):
            index = assumed(zoned(pod("web", app="web")), WEB, "n1", now=0.0)
            index.upsert(PODS.decode_object(orjson.dumps(rejected)))
            assert index.assumed.review(age, Limits(expiry=30.0, failure_grace=2.0)) == ended

    def test_a_report_that_may_be_older_than_the_answer_does_not_end_it(self) -> None:
        """The watch may have been held up: what is read now was written at any time since it was last read to its end."""
        rejected = pod_json("web", app="web")
        rejected["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        for known_before, ended in ((1.9, 0), (2.0, 1)):
            index = assumed(zoned(pod("web", app="web")), WEB, "n1", now=0.0)
            index.upsert(PODS.decode_object(orjson.dumps(rejected)))
            limits = Limits(expiry=300.0, failure_grace=2.0)
            assert index.assumed.review(60.0, limits, known_before=known_before) == ended

    def test_it_does_not_expire_while_its_binding_may_lie_unread(self) -> None:
        index = assumed(zoned(), WEB, "n1", now=100.0)
        limits = Limits(expiry=30.0, failure_grace=2.0)
        assert (index.assumed.review(190.0, limits, known_until=129.0), near(index, NEAR_WEB)) == (0, [{"z1": 1}])
        assert (index.assumed.review(190.0, limits, known_until=130.0), near(index, NEAR_WEB)) == (1, [{}])


class TestDoubt:
    """A pod that no binding has confirmed in time stands on one of its nodes, or nowhere."""

    LIMITS = Limits(expiry=100.0, failure_grace=2.0, doubt=5.0)

    def doubted(self, *names: str) -> ClusterIndex:
        index = assumed(zoned(), WEB, *names, now=0.0)
        assert index.assumed.review(5.0, self.LIMITS) == 0
        return index

    def test_until_then_it_counts(self) -> None:
        index = assumed(zoned(), WEB, "n1", now=0.0)
        index.assumed.review(4.9, self.LIMITS)
        assert (near(index, NEAR_WEB), is_undetermined(index), places(index)) == ([{"z1": 1}], False, ({}, {}))

    @pytest.mark.parametrize("names", [("n1",), ("n1", "n3")], ids=["one node", "several in one domain"])
    def test_then_it_may_be_there_and_is_not_sure_to_be(self, names: tuple[str, ...]) -> None:
        index = self.doubted(*names)
        assert (near(index, NEAR_WEB), is_undetermined(index), places(index)) == ([{}], True, ({}, {"z1": 1}))
        assert (index.assumed.places(), audit(index)) == ({"known": 0, "undetermined": 0, "doubted": 1}, [])

    @pytest.mark.parametrize("names", [("n1",), ("n1", "n2")], ids=["one node", "several"])
    def test_its_binding_ends_the_doubt(self, names: tuple[str, ...]) -> None:
        index = self.doubted(*names)
        index.upsert(pod("web", on="n1", app="web"))
        assert (near(index, NEAR_WEB), is_undetermined(index)) == ([{"z1": 1}], False)
        assert (index.assumed.places(), audit(index)) == ({"known": 0, "undetermined": 0, "doubted": 0}, [])

    def test_a_new_answer_ends_it_too(self) -> None:
        index = assumed(self.doubted("n1"), WEB, "n2", now=6.0)
        assert (near(index, NEAR_WEB), is_undetermined(index), audit(index)) == ([{"z2": 1}], False, [])

    def test_a_request_need_not_wait_for_it_any_more(self) -> None:
        index, told = assumed(zoned(), WEB, "n1", "n2", now=0.0), list[int]()
        index.assumed.changes.subscribe(lambda _: told.append(index.assumed.several))
        index.assumed.review(5.0, self.LIMITS)
        assert told == [0]


class TestGone:
    """The scheduler may ask about a pod that was deleted meanwhile; nothing would ever end what began then."""

    def test_a_pod_that_was_deleted_is_not_assumed_any_more(self) -> None:
        index = zoned(waiting := pod("web", app="web"))
        index.delete(waiting)
        assumed(index, WEB, "n1")
        assert (near(index, NEAR_WEB), index.statistics()["assumed_pods"]) == ([{}], 0)

    def test_it_is_not_cached_as_rejected_either(self) -> None:
        index = zoned(waiting := pod("web", app="web"))
        index.delete(waiting)
        index.rejected.add(WEB, None)
        assert len(index.rejected) == 0

    def test_one_that_a_restored_server_has_back_is_assumed_again(self) -> None:
        index = zoned(waiting := pod("web", app="web"))
        index.delete(waiting)
        index.upsert(waiting)
        assert near(assumed(index, WEB, "n1"), NEAR_WEB) == [{"z1": 1}]

    def test_only_the_last_ones_are_cached(self) -> None:
        held, uids = DeletedPods(()), [f"u{number}" for number in range(100_000)]
        for uid in uids:
            held.add(uid)
        assert all(uid in held for uid in uids[-5_000:])
        assert sum(uid in held for uid in uids) <= MOST_DELETED

    def test_a_deletion_that_is_reported_again_and_again_makes_no_other_forgotten(self) -> None:
        held, uids = DeletedPods(()), [f"u{number}" for number in range(2_000)]
        for uid in uids:
            held.add(uid)
        for uid in uids[::2] * 40:
            held.add(uid)
        assert all(uid in held for uid in uids)

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

    def test_a_list_that_was_asked_for_later_and_lacks_it_ends_it(self) -> None:
        index = assumed(zoned(), WEB, "n1", now=5.0)
        index.assumed.listed(index.pods, 5.0)
        assert near(index, NEAR_WEB) == [{"z1": 1}], "the pod may be younger than the list"
        index.assumed.listed(index.pods, 6.0)
        assert (near(index, NEAR_WEB), index.statistics()["assumed_pods"]) == ([{}], 0)

    def test_a_list_that_has_it_does_not(self) -> None:
        index = assumed(zoned(pod("web", app="web")), WEB, "n1", now=5.0)
        index.assumed.listed(index.pods, 6.0)
        assert near(index, NEAR_WEB) == [{"z1": 1}]


def reported(message: str, reason: str = "SchedulerError") -> Pod:
    """The pod as the watch shows it after kube-scheduler's report of a failed attempt."""
    body = pod_json("web", app="web")
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    body["status"] = {"conditions": [condition]}
    return PODS.decode_object(orjson.dumps(body))


class TestFailedBinding:
    """kube-scheduler says at which step an attempt failed."""

    @pytest.mark.parametrize(
        "message",
        [
            'running Bind plugin "DefaultBinder": pods "web" is forbidden: not this one',
            'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded',
            "binding rejected: node n1 is gone",
        ],
    )
    def test_a_report_of_a_failed_binding_ends_the_assumption_at_once(self, message: str) -> None:
        """Only an attempt that passed the filter comes so far, so that it is no earlier attempt's."""
        index = assumed(zoned(WEB), WEB, "n1")
        told: list[object] = []
        index.assumed.unconfirmed.subscribe(told.append)
        index.upsert(reported(message))
        assert (near(index, NEAR_WEB), len(told), index.assumed.endings()) == ([{}], 1, {"expired": 0, "failed": 1})
        assert audit(index) == []

    @pytest.mark.parametrize("nodes", [("n1", "n2"), ("n1",)], ids=["undetermined", "in doubt"])
    def test_so_it_does_where_the_node_is_not_certain(self, nodes: tuple[str, ...]) -> None:
        index = zoned(WEB)
        index.assume(WEB, nodes, 0.0, doubted=len(nodes) == 1)
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout'))
        assert (places(index), is_undetermined(index)) == (({}, {}), False)
        assert audit(index) == []

    def test_so_it_does_in_a_recording_without_the_text(self) -> None:
        index = assumed(zoned(WEB), WEB, "n1")
        index.upsert(replace(reported(f"running filter: cannot decide: {ON_ITS_WAY}"), rejection="a pseudonym"))
        assert near(index, NEAR_WEB) == [{}]

    @pytest.mark.parametrize(("reason", "message"), [("Unschedulable", "0/3 nodes"), ("SchedulerError", "Post: EOF")])
    def test_a_report_of_another_failure_may_be_an_earlier_attempts(self, reason: str, message: str) -> None:
        index = assumed(zoned(WEB), WEB, "n1")
        index.upsert(reported(message, reason))
        assert near(index, NEAR_WEB) == [{"z1": 1}]

    def test_a_late_report_of_the_last_attempt_leaves_the_next_one_assumed(self) -> None:
        """The scheduler asks again before the watch shows its report: the room of the second attempt is taken."""
        index = assumed(zoned(WEB), WEB, "n1")
        index.assumed.forget(WEB.uid)
        assumed(index, WEB, "n2")
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout'))
        first = near(index, NEAR_WEB)
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout again'))
        assert (first, near(index, NEAR_WEB)) == ([{"z2": 1}], [{}])

    def test_as_many_late_reports_as_attempts_ended_before_leave_it_assumed(self) -> None:
        """An API server under load refuses several bindings of a pod, and the watch lags."""
        index = assumed(zoned(WEB), WEB, "n1")
        for _ in range(2):
            index.assumed.forget(WEB.uid)
            assumed(index, WEB, "n2")
        seen = []
        for report in ("first", "second", "third"):
            index.upsert(reported(f'running Bind plugin "DefaultBinder": {report}'))
            seen.append(near(index, NEAR_WEB))
        assert seen == [[{"z2": 1}], [{"z2": 1}], [{}]]

    def test_another_event_of_the_pod_is_no_report(self) -> None:
        """It carries the condition of an older attempt still."""
        old = reported('running Bind plugin "DefaultBinder": an older failure')
        index = assumed(zoned(old), WEB, "n1")
        index.assumed.forget(WEB.uid)
        index.upsert(replace(old, nominated_node="n2"))
        assumed(index, WEB, "n2")
        index.upsert(reported('running Bind plugin "DefaultBinder": timeout'))
        assert near(index, NEAR_WEB) == [{"z2": 1}]

    def test_what_is_remembered_of_attempts_goes_with_the_pod(self) -> None:
        index = assumed(zoned(WEB), WEB, "n1")
        index.assumed.forget(WEB.uid)
        index.delete(WEB)
        assert index.assumed._unreported == {}

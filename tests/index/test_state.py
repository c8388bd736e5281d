"""The state of an index makes an empty one equal to it, and so do the changes that it has noted on the way."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

import pytest
from msgspec.structs import replace

from extender.index.audit import audit
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.index.counts.compiled_constraints import CompiledConstraints
from extender.index.state import apply_change, state_of
from extender.model.changes import Change, ObjectChange
from extender.model.objects import Object, Pod
from extender.model.release import GroupKey, Slot
from extender.rules.catalog import counts_of_rules, prepare_filters
from extender.rules.frames import IndexFrame
from extender.settings.rules import Rules
from tests.builders import index_of, namespace, node, pod, term, workload
from tests.contenders import cluster, contender, stage

GROUP, OTHER = GroupKey("ns", "policy", "a"), GroupKey("ns", "policy", "b")
APART = [term("kubernetes.io/hostname", app="web")]
PODS = {name: pod(name, labels={"app": "web"}, apart=APART, requests={"cpu": "1"}) for name in "abcdefgh"}


def changed(index: ClusterIndex) -> None:
    """Every kind of change at least once, and for each claim one that ends and one that stays."""
    objects: list[Object] = [namespace("ns", {"team": "a"}), *(node(f"n{number}", zone="z") for number in range(6))]
    for found in (*objects, workload("Service", "web", {"app": "web"}), pod("old", on="n5"), *PODS.values()):
        index.upsert(found)
    index.delete(pod("old", on="n5"))
    index.assume(PODS["a"], ("n0",), 1.0)
    index.assume(PODS["b"], ("n1", "n2"), 1.0)
    index.assume(PODS["c"], ("n3",), 1.0, doubted=True)
    index.assume(PODS["d"], ("n4",), 1.0)
    index.assumed.forget(PODS["d"].uid)
    index.nominate_in_memory(PODS["e"], "n4", {"x", "y"})
    index.nominate_in_memory(PODS["f"], "n5", set())
    index.release_nomination(PODS["f"].uid)
    index.nominate_in_memory(PODS["g"], "n5", set())
    index.end_nomination(PODS["g"].uid)
    index.reserved.reserve(GROUP, [Slot(PODS["g"].uid, "n3"), Slot(PODS["h"].uid, "n4")], 9.0)
    index.reserved.reserve(OTHER, [Slot(PODS["d"].uid, "n5")], 9.0)
    index.reserved.release(OTHER)


def held(index: ClusterIndex) -> dict[str, object]:
    """What decisions read of an index, by name."""
    view = index.view
    numbers = [view.known[name] for name in sorted(view.known)]
    return {
        "pods": index.pods,
        "nodes": [view.node(number) for number in numbers],
        "namespaces": index.namespaces.objects,
        "workloads": index.workloads.objects,
        "requested": [dict(view.requested(number)) for number in numbers],
        "assumed": {uid: (found.nodes, found.doubted, found.pod.node) for uid, found in index.assumed.held.items()},
        "nominated": {name: sorted(pods) for name, pods in view.nominated.items()},
        "plans": index.nominations.in_memory,
        "reserved": {group: index.reserved.slots_of(group) for group in index.reserved.groups},
        "totals": index.reserved.totals,
    }


def from_state(index: ClusterIndex, _: list[Change]) -> list[Change]:
    return list(state_of(index))


def from_journal(_: ClusterIndex, noted: list[Change]) -> list[Change]:
    return noted


@pytest.mark.parametrize("changes", [from_state, from_journal])
def test_the_changes_make_an_empty_index_equal(
    changes: Callable[[ClusterIndex, list[Change]], list[Change]],
) -> None:
    index, noted = ClusterIndex(Rules(), counts_of_rules()), list[Change]()
    index.journal.note = noted.append
    changed(index)
    again = ClusterIndex(Rules(), counts_of_rules())
    for change in changes(index, noted):
        apply_change(again, change)
    assert held(again) == held(index)
    assert audit(again) == []
    assert len(held(index)["assumed"]) == 3  # type: ignore[arg-type]  # a dict
    assert held(index)["nominated"] == {"n4": [PODS["e"].uid]}


def test_a_state_keeps_the_order_of_the_pods_on_a_node() -> None:
    """Preemption chooses among equal victims by it, so a replay from a state would choose others."""
    placed = [pod(name, on="n0" if name != "d" else "absent") for name in "edcba"]
    index = index_of(node("n0"), *(pod(name) for name in "abcde"), *placed)  # bound in another order than they came
    again = ClusterIndex(Rules(), counts_of_rules())
    for change in state_of(index):
        apply_change(again, change)
    assert [found.name for found in index.view.pods_on(index.view.known["n0"]).values()] == list("ecba")
    assert [found.name for found in again.view.pods_on(again.view.known["n0"]).values()] == list("ecba")
    assert again.pods == index.pods
    assert again.unplaced == index.unplaced == {}


def test_a_state_is_of_its_moment() -> None:
    index = index_of(node("n0"), pod("a", on="n0"), PODS["b"])
    changes = state_of(index)
    index.delete(pod("a", on="n0"))
    index.upsert(pod("b", on="n0", labels={"app": "web"}))
    shown = [change.obj for change in changes if isinstance(change, ObjectChange) and isinstance(change.obj, Pod)]
    assert shown == [pod("a", on="n0"), PODS["b"]]


def test_what_ends_is_noted_once_and_what_leaves_the_index_as_it_is_never() -> None:
    index, noted = index_of(node("n0"), PODS["a"]), list[Change]()
    index.journal.note = noted.append
    index.upsert(PODS["a"])
    index.assumed.forget("absent")
    index.reserved.release(GROUP)
    assert noted == []
    index.assume(PODS["a"], ("n0",), 1.0)
    noted.clear()
    index.upsert(pod("a", on="n0", labels={"app": "web"}))
    assert [type(each) for each in noted] == [ObjectChange]  # that the assumption ends follows from it


def test_a_review_that_doubts_or_ends_an_assumption_is_noted() -> None:
    index, noted = index_of(node("n0"), PODS["a"], PODS["b"]), list[Change]()
    index.assume(PODS["a"], ("n0",), 1.0)
    index.assume(PODS["b"], ("n0",), 90.0)
    index.journal.note = noted.append
    index.assumed.review(100.0, AssumptionTimeouts(expiry=50.0, failure_grace=1.0, doubt=5.0))
    again = index_of(node("n0"), PODS["a"], PODS["b"])
    again.assume(PODS["a"], ("n0",), 0.0)
    again.assume(PODS["b"], ("n0",), 0.0)
    for change in noted:
        apply_change(again, change)
    assert held(again) == held(index)
    assert again.assumed.doubted == index.assumed.doubted == 1


def test_what_is_decided_apart_from_an_assumption_is_noted_so() -> None:
    """Else a replay would decide a question about an assumed pod against the pod itself."""
    index, noted = index_of(node("n0"), PODS["a"]), list[Change]()
    index.assume(PODS["a"], ("n0",), 1.0)
    before, again = held(index), index_of(node("n0"), PODS["a"])
    again.assume(PODS["a"], ("n0",), 0.0)
    index.journal.note = noted.append
    with index.assumed.apart(PODS["a"].uid):
        for change in noted:
            apply_change(again, change)
        assert held(again) == held(index) != before
        noted.clear()
    for change in noted:
        apply_change(again, change)
    assert held(again) == held(index) == before


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_report_of_failure_is_of_the_same_attempt_in_a_replay(attempts: int) -> None:
    """A report of an attempt that was forgotten before it came does not end the assumption of the next one."""
    failed = replace(PODS["a"], rejection="SchedulerError: running Bind plugin", binding_failed=True)
    index, noted = index_of(node("n0"), PODS["a"]), list[Change]()
    again = index_of(node("n0"), PODS["a"])
    index.journal.note = noted.append
    index.assume(PODS["a"], ("n0",), 1.0)
    if attempts > 1:
        index.assumed.forget(PODS["a"].uid)
    else:
        with index.assumed.apart(PODS["a"].uid):
            pass
    index.assume(PODS["a"], ("n0",), 2.0)
    index.upsert(failed)
    for change in noted:
        apply_change(again, change)
    assert held(again) == held(index)
    assert len(index.assumed.held) == attempts - 1


@pytest.mark.parametrize("passed", [True, False])
def test_a_late_report_leaves_a_later_attempt_assumed_in_a_replay_too(passed: bool) -> None:  # noqa: FBT001 (a parameter)
    late = replace(PODS["a"], rejection="SchedulerError: cannot decide", on_its_way=True)
    index, noted = index_of(node("n0"), PODS["a"]), list[Change]()
    again = index_of(node("n0"), PODS["a"])
    index.journal.note = noted.append
    index.assume(PODS["a"], ("n0",), 1.0)
    for now, answer in ((2.0, False), (3.0, passed)):
        with index.assumed.apart(PODS["a"].uid):
            pass
        index.assumed.note_attempt(PODS["a"].uid, now, passed=answer)
    index.upsert(late)
    for change in noted:
        apply_change(again, change)
    assert held(again) == held(index)
    assert len(index.assumed.held) == passed


def test_the_copied_pods_are_not_visited_by_each_garbage_collection() -> None:
    """A list of a million pods holds each collection, and so the event loop, for 50 ms until it is read."""
    index = index_of(*PODS.values())
    state = state_of(index)
    gc.collect()
    assert not [each for each in gc.get_referrers(PODS["h"]) if isinstance(each, list)]
    assert sum(isinstance(each, ObjectChange) for each in state) == len(PODS)


# -- A what-if counts as if the change were real, and leaves no trace --------------------------------------------------

INCOMING = contender("asking", app="web", apart=[term("host", app="web")])


def passing(held: ClusterIndex, compiled: CompiledConstraints | None = None) -> list[str]:
    filters = prepare_filters(INCOMING, compiled or held.view.compiled(INCOMING.signature), held.view, IndexFrame())
    return [held.view.node_names[node] for node in filters.passing(sorted(held.view.known.values()))]


def web(name: str, on: str = "", **fields: object) -> Pod:
    return contender(name, on=on, app="web", **fields)


def test_pods_that_are_taken_and_put_back_change_the_answer_one_by_one() -> None:
    """However often a pod is taken, it counts once."""
    first, second = web("w1", on="n1"), web("w2", on="n2")
    held = cluster(stage("n1"), stage("n2"), first, second)
    compiled = held.view.compiled(INCOMING.signature)
    with held.view.trial() as trial:
        seen = [passing(held, compiled)]
        for step in (trial.take, trial.take, trial.put_back, trial.put_back):
            for existing in (first, second):
                step(existing)
                seen.append(passing(held, compiled))
    both = ["n1", "n2"]
    assert seen == [[], ["n1"], both, both, both, ["n2"], [], [], []]
    assert (passing(held), audit(held)) == ([], [])


def test_a_pod_that_is_made_to_stand_counts_with_its_own_terms_too() -> None:
    held = cluster(stage("n1"), stage("n2"))
    coming = contender("coming", apart=[term("host", app="web")])
    with held.view.trial() as trial:
        trial.place(coming, held.view.known["n1"])
        inside = passing(held)
        trial.remove_last()
        after = passing(held)
    assert (inside, after) == (["n2"], ["n1", "n2"])


@pytest.mark.parametrize("fails", [False, True])
def test_afterwards_everything_is_as_it_was(*, fails: bool) -> None:
    """Also after a failure inside."""
    there = web("w1", on="n1")
    held = cluster(stage("n1"), stage("n2"), there)
    compiled = held.view.compiled(INCOMING.signature)
    before = held.view.dependency_version(compiled), held.statistics()

    def fail() -> None:
        raise LookupError

    with suppress(LookupError), held.view.trial() as trial:
        trial.take(there)
        trial.place(web("coming"), held.view.known["n2"])
        if fails:
            fail()
    assert (held.view.dependency_version(compiled), held.statistics()) == before
    assert audit(held) == []
    assert held.view.compiled(INCOMING.signature) is compiled


def test_only_pods_that_a_request_counts_are_counted_for_it() -> None:
    there, other = web("w1", on="n1"), contender("other", on="n1", app="db")
    held = cluster(stage("n1"), there, other)
    compiled = held.view.compiled(INCOMING.signature)
    assert [held.view.is_counted(each, frozenset(compiled.filter_groups())) for each in (there, other)] == [True, False]

"""A restart or a change of the leader in the middle of a move: the place of the replacement is kept."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from extender.features.execution.mover import ROUND_SECONDS
from extender.features.execution.schema import MOST_STORED, moves_of_status
from extender.index.audit import audit
from extender.kube.errors import KubeError, Rejected, Unreachable
from extender.model.objects import Object
from extender.model.policies import JsonObject, PolicyObject
from extender.model.release import GroupKey, Slot
from extender.model.units import rfc3339
from extender.wire.objects.constraints import DEFAULT_LIMITS
from extender.wire.objects.kinds import policies_within
from tests.builders import namespace, node, pod, term
from tests.features.execution.test_mover import (
    EVICT,
    LARGE,
    OLD,
    REPLICA,
    Scene,
    askew,
    controllers,
    nodes_for,
    scene,
)
from tests.features.execution.watching import watch, web, zoned
from tests.policies import policy_json

CLAIM, MINUTE = 300.0, 60.0
"""claimTimeout."""
ALONE: dict[str, Any] = {"owner": ("ReplicaSet", "web"), "spreads": [], "apart": [term("host", app="db")]}


def alone() -> Scene:
    """The only pod of its controller has to leave, and one node has room."""
    small = [node(name, zone=name[0], allocatable={"cpu": "1", "pods": "9"}) for name in ("c0",)]
    mine = replace(web("web", "a0", **ALONE, **LARGE), start_time=OLD)
    return scene(*zoned(1, 1), *small, pod("db", on="a0", app="db"), mine)


def stored(here: Scene) -> list[JsonObject]:
    return [entry for entries in here.index.policies.moves.values() for entry in entries]


def store(here: Scene, *entries: JsonObject) -> None:
    (policy,) = here.index.policies
    here.index.upsert(PolicyObject(policy, moves=entries))


def entry(here: Scene, **changes: Any) -> JsonObject:
    """A move of the pod web-a0 to b0, as it is stored."""
    return {
        "namespace": "default",
        "pod": "web-a0",
        "uid": "uid-web-a0",
        "kind": "ReplicaSet",
        "controller": "web",
        "node": "a0",
        "target": "b0",
        "constraint": "TopologySpread",
        "since": rfc3339(here.now()),
        "requests": {"cpu": "5"},
    } | changes


async def test_a_move_is_stored_before_the_eviction() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, **LARGE))
    await here.rounds(1)
    assert here.writes.calls == ["store web-a0", "evict web-a0"]
    assert stored(here) == [entry(here)]


async def test_moves_that_begin_together_are_one_write_for_each_policy() -> None:
    here = scene(*zoned(1, 6, 6), *controllers(6))
    await here.rounds(1)
    assert [call.partition(" ")[0] for call in here.writes.calls] == ["store", *["evict"] * 6]
    assert len(stored(here)) == 6


async def test_moves_whose_replacements_have_a_node_fall_out_with_the_next_write() -> None:
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0", "b0")
    await here.rounds(1)
    assert [one["pod"] for one in stored(here)] == ["web-a1"]


@pytest.mark.parametrize("error", [Rejected("403", status=403), Unreachable("no answer")])
async def test_a_move_that_cannot_be_stored_does_not_begin(error: KubeError) -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    here.writes.store_error = error
    await here.rounds(24 * 60, seconds=MINUTE)
    assert (here.writes.evicted, here.mover.under_way, list(here.index.reserved.keys)) == ([], {}, [])
    assert set(here.outcomes) == {("web-a0", "failed")}
    assert len(here.outcomes) <= 7 + 23, "after 1, 2, 4 to 32 minutes, then each hour"
    assert here.waits == [f"the move cannot be stored: {error}"]
    here.writes.store_error = None
    await here.rounds(70, seconds=MINUTE)
    assert here.writes.evicted == ["web-a0"]


async def test_what_is_mended_while_the_moves_are_stored_is_not_evicted() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    write = here.writes.write_moves

    async def slow(*arguments: Any) -> None:
        await write(*arguments)
        here.delete("web-a1")

    here.writes.write_moves = slow  # type: ignore[assignment, method-assign]
    await here.rounds(1)
    assert (here.writes.evicted, here.mover.under_way, list(here.index.reserved.keys)) == ([], {}, [])


async def test_so_many_moves_of_a_policy_wait_for_a_node_at_most() -> None:
    limits = {**EVICT, "maxConcurrent": 1000, "maxPerMinute": 6000}
    here = scene(*zoned(1, 9, 9), *controllers(MOST_STORED + 2), policy=watch(**limits))
    for _ in range(4):
        await here.rounds(1, seconds=MINUTE)
    assert len(here.writes.evicted) == len(stored(here)) == MOST_STORED
    assert here.waits[0] == f"the policy has {MOST_STORED} moves under way whose replacements have no node"


# -- the leader is killed between each two writes

MOMENTS = ["stored", "evicted", "gone", "created"]


@pytest.mark.parametrize("is_alone", [False, True], ids=["other pods of the controller", "the only pod"])
@pytest.mark.parametrize("killed", MOMENTS)
async def test_the_place_is_kept_when_the_leader_is_killed(killed: str, is_alone: bool) -> None:  # noqa: FBT001
    here = alone() if is_alone else scene(*zoned(1, 1, 1), *askew(2, 0, 0, **LARGE))
    fields: dict[str, Any]
    name, fields = ("web", ALONE) if is_alone else ("web-a0", REPLICA)
    fields = {**fields, **LARGE}

    class Killed(Exception):  # noqa: N818 -- not an error
        pass

    async def die(*_: Any) -> None:
        raise Killed

    evict = here.writes.evict
    if killed == "stored":
        here.writes.evict = die  # type: ignore[assignment, method-assign]
        with pytest.raises(Killed):
            await here.rounds(1)
        here.writes.evict = evict  # type: ignore[method-assign]
    else:
        await here.rounds(1)
    if killed in ("gone", "created"):
        here.delete(name)
    if killed == "created":
        here.create("web-n0", **fields)
    here.restart()
    assert audit(here.index) == []
    if killed == "stored":
        assert (list(here.index.reserved.keys), here.states) == ([], []), "the pod was not evicted"
        await here.rounds(1)
    # A competitor does not get the place, at once and later; the replacement does.
    for _ in range(3):
        assert "b0" not in nodes_for(here, "competitor", **LARGE)
        assert nodes_for(here, "web-n0", **{"app": "web", **fields}) == ["b0"]
        await here.rounds(1, seconds=2 * ROUND_SECONDS)
    assert here.writes.evicted == [name]
    assert audit(here.index) == []
    if killed not in ("gone", "created"):
        here.delete(name)
    here.create("web-n0", "b0", **fields)
    await here.rounds(1)
    assert here.outcomes == [(name, "completed")]
    assert list(here.index.reserved.keys) == []


async def test_no_place_is_kept_once_the_replacement_has_a_node() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, **LARGE))
    await here.rounds(1)
    here.delete("web-a0")
    here.create("web-n0", "b0", **LARGE)
    here.restart()
    assert (list(here.index.reserved.keys), here.mover.under_way) == ([], {})


async def test_a_pod_of_a_stateful_set_is_replaced_by_the_pod_of_its_name() -> None:
    """The kubelet's clock is an hour late."""
    owner = {"owner": ("StatefulSet", "web")}
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, **owner))
    await here.rounds(1)
    here.delete("web-a0")
    here.index.upsert(replace(web("web-a0", "b0", uid="new", **owner), start_time=OLD))
    here.restart()
    assert here.mover.under_way == {}


async def test_a_replacement_that_never_comes_ends_the_move_as_late_as_without_a_restart() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    await here.rounds(1)
    here.delete("web-a0")
    for _ in range(5):
        await here.rounds(1, seconds=50.0)
        assert list(here.index.reserved.by_node) == ["b0"]
        here.restart()
    await here.rounds(1, seconds=51.0)
    assert here.outcomes == [("web-a0", "not_replaced")]
    assert not here.index.reserved.by_node
    here.restart()
    assert not here.index.reserved.by_node, "the entry is too old"


async def test_a_place_is_kept_while_the_evicted_pod_terminates_over_restarts() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0, owner=("StatefulSet", "web")))
    for _ in range(20):
        await here.rounds(1, seconds=MINUTE)
        here.restart()
        assert list(here.index.reserved.by_node) == ["b0"]


async def test_no_move_begins_while_the_constraints_of_a_replacement_are_unknown() -> None:
    here = alone()
    await here.rounds(1)
    here.delete("web")
    here.restart()
    for made in controllers(1):
        here.index.upsert(made)
    await here.rounds(2)
    assert here.waits == ["the replacement for a pod that an earlier leader moved does not exist yet"]
    here.create("web-n0", **ALONE, **LARGE)
    await here.rounds(2)
    assert len(here.writes.evicted) == 2


@pytest.mark.parametrize("is_bound", [True, False])
async def test_a_replacement_on_its_node_and_its_place_do_not_both_count(is_bound: bool) -> None:  # noqa: FBT001
    """Two moves to a node that both replacements fill: the second one passes before the mover has seen the first one."""
    apart = [term("host", app="db")]
    fields: dict[str, Any] = {"spreads": [], "apart": apart, "requests": {"cpu": "4"}}
    both = [replace(web(name, "a0", owner=("ReplicaSet", name), **fields), start_time=OLD) for name in ("one", "two")]
    here = scene(*zoned(1, 1), pod("db", on="a0", app="db"), *both)
    await here.rounds(1)
    assert here.writes.evicted == ["one", "two"]
    for name in ("one", "two"):
        here.delete(name)
        asked: dict[str, Any] = {"app": "web", "owner": ("ReplicaSet", name), **fields}
        assert nodes_for(here, f"{name}-new", **asked) == ["b0"]
        new = web(f"{name}-new", "b0" if is_bound else "", owner=("ReplicaSet", name), **fields)
        here.index.upsert(new)
        if not is_bound:
            here.index.assume(new, ["b0"], here.clock.now())
        assert audit(here.index) == []
    assert "b0" not in nodes_for(here, "other", requests={"cpu": "1"})
    if not is_bound:
        here.index.assumed.discard("uid-one-new")
        assert "b0" not in nodes_for(here, "other", requests={"cpu": "1"}), "a binding that fails gives no room away"
    await here.rounds(1)
    assert list(here.index.reserved.keys) == ([] if is_bound else list(here.mover.under_way))


# -- entries that are wrong, or that another writer of the status has made


WRONG: dict[str, dict[str, Any]] = {
    "no time": {"since": "soon"},
    "a time without a zone": {"since": "2026-01-01T00:16:40"},
    "no node": {"target": ""},
    "an unknown node": {"target": "z9"},
    "an unknown constraint": {"constraint": "Preferred"},
    "a number in place of a text": {"pod": 7},
    "a pod that runs": {"uid": "uid-web-a1"},
    "a pod of another controller": {"uid": "uid-db", "controller": "db"},
    "no quantity": {"uid": "gone", "controller": "gone", "requests": {"cpu": "much"}},
    "a negative quantity": {"uid": "gone", "controller": "gone", "requests": {"cpu": "-5"}},
    "more room than a node has": {"uid": "gone", "controller": "gone", "requests": {"cpu": "500"}},
    "a resource that the node has not": {"uid": "gone", "controller": "gone", "requests": {"example.com/gpu": "1"}},
    "too many resources": {"requests": {f"example.com/{number}": "1" for number in range(17)}},
    "pods that the policy does not select": {"namespace": "other", "controller": "theirs", "uid": "theirs"},
}


def selecting(in_namespace: str = "", **fields: Any) -> PolicyObject:
    found = policy_json("watch", in_namespace, when=["Execution"], execution=EVICT, **fields)
    return policies_within(DEFAULT_LIMITS, found["kind"], "placement.extender.dev").decode_object(
        msgspec.json.encode(found)
    )


def terminating(*others: Object) -> Scene:
    """One pod is terminating, as after its eviction; another one of its controller runs."""
    gone, stays = askew(2, 0, 0, **LARGE)
    theirs = web("theirs-0", "a0", namespace="other", owner=("ReplicaSet", "theirs"))
    chosen = selecting(namespaceSelector={"matchLabels": {"moves": "yes"}})
    db = pod("db", on="a0", app="db", owner=("ReplicaSet", "db2"))
    spaces = namespace("default", moves="yes"), namespace("other")
    return scene(*zoned(1, 1, 1), *spaces, replace(gone, terminating=True), stays, theirs, db, *others, policy=chosen)


async def test_an_entry_that_is_right_is_recovered() -> None:
    here = terminating()
    store(here, entry(here))
    here.mover.recover()
    assert list(here.index.reserved.by_node) == ["b0"]


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
async def test_an_entry_that_is_wrong_is_ignored(wrong: dict[str, Any]) -> None:
    here = terminating()
    store(here, entry(here, **wrong))
    here.mover.recover()
    assert not here.index.reserved.by_node


@pytest.mark.parametrize(
    ("seconds", "is_kept"), [(-3700, False), (-299, True), (-301, False), (1800, True), (3700, False)]
)
async def test_an_entry_counts_for_a_time(seconds: float, is_kept: bool) -> None:  # noqa: FBT001
    """Of a pod that is gone. A time to come counts as now, because clocks differ: the place is kept no longer for it."""
    here = terminating()
    here.clock.time += 7200
    at = entry(here)["since"]
    here.clock.time -= seconds
    here.delete("web-a0")
    store(here, entry(here, since=at))
    here.mover.recover()
    assert bool(here.index.reserved.by_node) is is_kept
    await here.rounds(1, seconds=CLAIM + 1)
    assert not here.index.reserved.by_node


async def test_a_namespaced_policy_keeps_no_place_for_pods_of_another_namespace() -> None:
    here = terminating()
    (policy,) = here.index.policies
    here.index.delete(PolicyObject(policy))
    here.index.upsert(selecting("other"))
    for named in ("default", "other"):
        store(here, entry(here, namespace=named, uid="gone", controller="gone"))
        here.mover.recover()
        assert bool(here.index.reserved.by_node) is (named == "other")


async def test_a_place_of_a_group_is_not_taken_for_a_move() -> None:
    waiting = pod("uid-web-a0", uid="waiting", requests={"cpu": "1"})
    here = terminating(waiting)
    here.index.reserved.reserve(GroupKey("default", "gang", "one"), [Slot("waiting", "c0")], 1e9)
    store(here, entry(here, uid="waiting"))
    here.mover.recover()
    assert here.index.reserved.node_of("waiting") == "c0"
    assert list(here.index.reserved.by_node) == ["c0"]


async def test_so_many_entries_are_read_at_most_and_not_those_of_a_deleted_policy() -> None:
    entries = [{"pod": str(number)} for number in range(MOST_STORED + 9)]
    body = policy_json("watch", when=["Execution"], execution=EVICT) | {"status": {"execution": {"moves": entries}}}
    kind = policies_within(DEFAULT_LIMITS, body["kind"], "placement.extender.dev")
    read = kind.decode_object(msgspec.json.encode(body))
    here = scene(*zoned(1))
    here.index.upsert(read)
    assert stored(here) == entries[:MOST_STORED]
    here.index.upsert(PolicyObject(read.policy))
    assert stored(here) == []
    here.index.upsert(read)
    here.index.delete(read)
    assert stored(here) == []


@pytest.mark.parametrize("status", [b"", b"{}", b'{"moves":1}', b'{"execution":{"moves":1}}', b'["moves"]'])
def test_a_status_without_moves(status: bytes) -> None:
    assert moves_of_status(status) == ()


async def test_a_status_changes_no_policy() -> None:
    here = scene(*zoned(1, 1, 1), *askew(2, 0, 0))
    changes: list[object] = []
    here.index.policies.changes.subscribe(changes.append)
    version = here.index.policies.version
    await here.rounds(1)
    assert stored(here)
    assert (changes, here.index.policies.version) == ([], version)


async def test_a_pod_that_no_kubelet_has_seen_is_the_replacement_only_on_the_target() -> None:
    """A lost node keeps a pod of the controller that was bound long ago, and never started."""
    here = scene(*zoned(1, 1, 1), *askew(3, 0, 0, **LARGE))
    await here.rounds(1)
    here.delete("web-a0")
    here.index.upsert(replace(web("web-lost", "c0", **LARGE), start_time=None))
    here.restart()
    assert list(here.index.reserved.by_node) == ["b0"]
    here.index.upsert(replace(web("web-n0", "b0", **LARGE), start_time=None))
    here.restart()
    assert not here.index.reserved.by_node

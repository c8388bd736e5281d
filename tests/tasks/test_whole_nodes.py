"""Requests with whole nodes: those of a scheduler, and those about nodes that do not exist."""

from __future__ import annotations

import orjson
import pytest

from extender.index.audit import audit
from extender.wire.extender_v1 import ExtenderArgs, decode_args, encode_filter_nodes
from extender.wire.objects.kinds import NODES
from tests.tasks.filter_scene import APART, HOST, JsonObject, Played, pending_pod

NEW = {"metadata": {"name": "new", "labels": {HOST: "new"}}}
EXISTING = {"metadata": {"name": "n1", "labels": {HOST: "n1"}}}
NOT_KNOWN = "node(s) not known to the extender yet"


def with_nodes(name: str, *nodes: JsonObject) -> ExtenderArgs:
    return decode_args(orjson.dumps({"Pod": pending_pod(name, APART), "Nodes": {"items": nodes}}))


async def test_a_request_where_neither_the_pod_nor_a_node_exists_is_answered_and_changes_nothing() -> None:
    """As an autoscaler does with a node that it could add."""
    played = Played("decisive")
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert (played.index.assumed.held, played.rejected) == ({}, [])


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_pending_pod_gets_no_node_that_the_watch_does_not_show_yet(placement: str) -> None:
    """On such a node it would count for no other pod: two pods that must be apart would both be let through to it."""
    played = Played(placement)
    for name in ("w0", "w1"):
        played.show(name, APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW, EXISTING))).passed == ["n1"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [("n1",)]
    second = await played.filter_service.filter(with_nodes("w1", NEW, EXISTING))
    assert (list(second.passed), second.unresolvable["new"]) == ([], NOT_KNOWN)
    assert audit(played.index) == []


@pytest.mark.parametrize("placement", ["decisive", "cooperative"])
async def test_a_pending_pod_on_a_new_node_counts_there_once_the_watch_shows_the_node(placement: str) -> None:
    """As a scheduler asks for a pod of a DaemonSet, whose affinity names a node that has just come."""
    played = Played(placement)
    for name in ("w0", "w1"):
        played.show(name, APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [("new",)]
    assert audit(played.index) == []
    played.index.upsert(NODES.decode_object(orjson.dumps(NEW)))
    assert audit(played.index) == []
    assert list((await played.filter_service.filter(with_nodes("w1", NEW))).passed) == []
    played.show("w0", APART, on="new")
    assert played.index.assumed.held == {}
    assert audit(played.index) == []


async def test_a_pod_that_may_go_to_several_new_nodes_is_assumed_on_none() -> None:
    """A tool tries nodes that do not exist: no other request may wait for that."""
    played = Played("cooperative")
    played.show("w0", APART)
    other = {"metadata": {"name": "other", "labels": {HOST: "other"}}}
    assert sorted((await played.filter_service.filter(with_nodes("w0", NEW, other))).passed) == ["new", "other"]
    assert played.index.assumed.held == {}


async def test_a_request_about_new_nodes_alone_does_not_end_an_assumption() -> None:
    """It may be a tool that asks about a pod that is being bound."""
    played = Played("decisive")
    (node,) = await played.ask("w0", APART)
    assert (await played.filter_service.filter(with_nodes("w0", NEW))).passed == ["new"]
    assert [held.nodes for held in played.index.assumed.held.values()] == [(node,)]
    assert audit(played.index) == []


async def test_a_request_about_a_pod_that_does_not_exist_is_decided_as_it_was_sent_if_a_node_is_new() -> None:
    played = Played("cooperative")
    assert sorted((await played.filter_service.filter(with_nodes("w0", NEW, EXISTING))).passed) == ["n1", "new"]
    error = "cannot decide: the watch does not show this pod yet"
    assert (await played.filter_service.filter(with_nodes("w0", EXISTING))).error == error
    assert played.index.assumed.held == {}
    played.show("w0", APART)
    assert (await played.filter_service.filter(with_nodes("w0", EXISTING))).passed == ["n1"]
    assert list(played.index.assumed.held) == ["w0"]


async def test_a_repeated_rejection_of_whole_nodes_is_answered_in_their_form() -> None:
    played = Played("decisive")
    await played.ask("w0", APART, ("n1",))
    played.show("w1", APART)
    request = with_nodes("w1", EXISTING)
    answers = [
        orjson.loads(encode_filter_nodes(await played.filter_service.filter(request), request)) for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert (answers[0]["Nodes"]["items"], answers[0]["NodeNames"]) == ([], None)
    assert list(answers[0]["FailedAndUnresolvableNodes"]) == ["n1"]

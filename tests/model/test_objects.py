"""Pods and nodes of which little is known: what is taken for granted then."""

from __future__ import annotations

from extender.model.objects import Node, Pod, PodSignature


def test_a_pod_of_which_nothing_is_known_stands_nowhere_and_is_of_no_importance() -> None:
    bare = Pod("uid", "name", PodSignature("ns"))
    assert (bare.node, bare.priority, bare.nominated_node, bare.rejection, dict(bare.requests)) == ("", 0, "", "", {})
    states = bare.terminating, bare.finished, bare.gated, bare.preempted, bare.never_preempts, bare.has_unseen_needs
    assert not any(states)


def test_a_pod_is_identified_by_its_uid_and_named_with_its_namespace() -> None:
    made = Pod("u", "p", PodSignature("ns"))
    assert (made.key, made.full_name, made.namespace) == ("u", "ns/p", "ns")


def test_a_node_of_which_nothing_is_known_is_open_and_offers_nothing() -> None:
    bare = Node("n")
    assert (dict(bare.labels), bare.taints, bare.unschedulable, dict(bare.allocatable)) == ({}, (), False, {})

"""A label key may lose its last node and get a new one: what is counted then equals what a fresh index counts.

Terms over a key that no node carries have no counts, so these are made and corrected while the index runs.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex
from extender.index.counts.groups import GroupView
from extender.model.objects import Node, Pod, PodSignature
from extender.rules.interpod_affinity import WeightedGroup, own_terms, terms_of_others
from tests.builders import Json, index_of, namespace, node, pod, term, weighted
from tests.index.counting import Counts, counts_of

KEYS = ("zone", "example.com/rack", "example.com/shelf", "example.com/never")
NODES = 4


def some_node(rng: Random, number: int) -> Node:
    """A node that carries each of the keys but the last one, or not."""
    return node(f"n{number}", labels={key: rng.choice("xy") for key in KEYS[:-1] if rng.random() < 0.3})


def some_pod(rng: Random, name: str) -> Pod:
    """A pod with terms of every kind over any of the keys."""

    def terms() -> list[Json]:
        return [term(rng.choice(KEYS), app=rng.choice("pq")) for _ in range(rng.randint(0, 2))]

    kinds: dict[str, Any] = {"near": terms(), "apart": terms()}
    kinds |= {kind: [weighted(rng.randint(1, 9), each) for each in terms()] for kind in ("prefers", "avoids")}
    return pod(name, on=f"n{rng.randrange(NODES)}", app=rng.choice("pq"), **kinds)


def counted(groups: tuple[GroupView, ...]) -> list[tuple[str, Counts]]:
    """The groups that count any pod: one that counts none neither rejects nor scores."""
    return sorted(((group.key.key, counts_of(group)) for group in groups if group.counts), key=str)


def scored(groups: tuple[WeightedGroup, ...]) -> list[tuple[int, str, Counts]]:
    """The same of preferences."""
    return sorted(
        ((each.weight, each.group.key.key, counts_of(each.group)) for each in groups if each.group.counts), key=str
    )


def compiled(index: ClusterIndex, signature: PodSignature) -> tuple[object, ...]:
    """What rules read for pods of a signature."""
    found = index.view.compiled(signature)
    affinity = [(group.key.key, counts_of(group)) for group in own_terms(found).affinity]
    required = (
        affinity,
        own_terms(found).matches_itself,
        counted(own_terms(found).anti),
        counted(terms_of_others(found).anti),
    )
    return (
        *required,
        scored(own_terms(found).preferences),
        scored(terms_of_others(found).preferences),
        counted(terms_of_others(found).required),
    )


@given(st.randoms(use_true_random=False))
def test_counts_equal_those_of_a_fresh_index_when_label_keys_come_and_go(rng: Random) -> None:
    index = index_of(namespace("default"))
    nodes, pods = dict[int, Node](), dict[int, Pod]()
    incoming = [some_pod(rng, f"incoming-{number}").signature for number in range(2)]
    for _ in range(20):
        number = rng.randrange(NODES)
        if rng.random() < 0.5:
            nodes[number] = some_node(rng, number)
            index.upsert(nodes[number])
        elif number in nodes and rng.random() < 0.3:
            index.delete(nodes.pop(number))
        elif number in pods:
            index.delete(pods.pop(number))
        else:
            pods[number] = some_pod(rng, f"p{number}")
            index.upsert(pods[number])
        fresh = index_of(namespace("default"), *nodes.values(), *pods.values())
        for signature in incoming:
            assert compiled(index, signature) == compiled(fresh, signature)
        assert audit(index) == []

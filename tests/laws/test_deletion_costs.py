"""Which pods of a ReplicaSet go first: the costs keep the spread, however many go, and a pod keeps its cost."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from extender.model.objects import Pod, PodSignature
from extender.verbs.deletion_costs import costs_of

SIGNATURE = PodSignature("shop")
COUNTS = st.dictionaries(st.integers(1, 5), st.integers(1, 8), min_size=1)


def pods_of(counts: dict[int, int]) -> dict[int, list[Pod]]:
    return {
        domain: [Pod(f"{domain}-{n}", f"{domain}-{n}", SIGNATURE) for n in range(count)]
        for domain, count in counts.items()
    }


def written(domains: dict[int, list[Pod]]) -> dict[int, list[Pod]]:
    """The pods once their costs are written."""
    costs = costs_of(domains)

    def marked(pod: Pod) -> Pod:
        cost = costs.get(pod.uid, 0)
        return replace(pod, deletion_cost=str(cost) if cost else "", has_own_cost=bool(cost))

    return {domain: [marked(pod) for pod in pods] for domain, pods in domains.items()}


def smaller(domains: dict[int, list[Pod]], count: int, rng: Random) -> dict[int, list[Pod]]:
    """After a scale-down by so many, as the controller of ReplicaSets chooses; equal costs in any order."""
    every = [pod for pods in domains.values() for pod in pods]
    rng.shuffle(every)
    deleted = {pod.uid for pod in sorted(every, key=lambda pod: int(pod.deletion_cost or 0))[:count]}
    return {domain: [pod for pod in pods if pod.uid not in deleted] for domain, pods in domains.items()}


@given(COUNTS, st.integers(0, 40), st.integers(0, 2**32).map(Random))
def test_the_pods_that_go_are_those_of_the_fullest_domains(counts: dict[int, int], deleted: int, rng: Random) -> None:
    left = {domain: len(pods) for domain, pods in smaller(written(pods_of(counts)), deleted, rng).items()}
    for domain, count in left.items():
        fuller = [each for each in left.values() if each > count + 1]
        assert not fuller or count == counts[domain], "a domain lost a pod although another one had two more"


@given(COUNTS, st.integers(0, 10), st.integers(0, 2**32).map(Random))
def test_after_a_scale_down_no_cost_changes(counts: dict[int, int], deleted: int, rng: Random) -> None:
    before = smaller(written(pods_of(counts)), deleted, rng)
    assert written(before) == before


@given(COUNTS, st.integers(0, 2**32).map(Random))
def test_a_pod_that_fails_costs_one_write_at_most_and_so_does_its_replacement(
    counts: dict[int, int], rng: Random
) -> None:
    before = written(pods_of(counts))
    domain = rng.choice(sorted(before))
    failed = rng.choice(before[domain])
    left = [pod for pod in before[domain] if pod is not failed]
    for after in (left, [*left, Pod("new", "new", SIGNATURE)]):
        now = {pod.uid: pod.deletion_cost for pod in written({**before, domain: after})[domain]}
        assert sum(now[pod.uid] != pod.deletion_cost for pod in after) <= 1

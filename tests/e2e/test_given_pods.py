"""Pods that a person gives, against a real apiserver: it stores what the completion makes of them, or refuses the same fields."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Final

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.given_pods import compare, completed, random_pod, refused_or_stored
from tests.wire.given_pods import a_pod, keyed_pod
from tests.wire.test_given_pods import COMPLETED, REFUSED

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_RANDOM_PODS: Final = 150


async def test_pods_that_are_given_by_file_become_those_of_the_apiserver(cluster: Cluster) -> None:
    pods = {name: a_pod(**deepcopy(spec)) for name, (spec, _) in COMPLETED.items()} | {"label keys": keyed_pod()}
    assert await compare(cluster.api, pods) == {}


async def test_pods_that_the_apiserver_refuses_are_refused_for_the_same_fields(cluster: Cluster) -> None:
    pods = {name: a_pod(**deepcopy(spec)) for name, (spec, _) in REFUSED.items()}
    answers = {name: await refused_or_stored(cluster.api, pod) for name, pod in pods.items()}
    assert [name for name, (fields, _) in answers.items() if not fields] == []
    assert await compare(cluster.api, pods) == {}


@pytest.mark.parametrize("seed", range(3))
async def test_random_pods_get_the_answer_of_the_apiserver(cluster: Cluster, seed: int) -> None:
    rng = Random(seed)
    pods = {f"p{number}": random_pod(rng) for number in range(_RANDOM_PODS)}
    assert await compare(cluster.api, pods) == {}
    verdicts = [bool(completed(pod)[0]) for pod in pods.values()]
    assert _RANDOM_PODS / 5 < sum(verdicts) < _RANDOM_PODS * 4 / 5

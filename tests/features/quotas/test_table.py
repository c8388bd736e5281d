"""The table of quotas: the state of each quota for the metric, and that a cluster without quotas counts nothing."""

from __future__ import annotations

import pytest

from extender.features.quotas.settings import Quota
from extender.features.quotas.table import quota_table
from extender.index.cluster import ClusterIndex
from extender.model.objects import PodQuota
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.features.quotas.tenants import SCOPE, Tenants, limited, quota, quotas_of, reaching


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (limited(2), "free"),
        (limited(1), "full"),
        (quota(hard={"pods": "5", "count/pods": "1"}), "full"),
        (limited(0), "forbidding"),
        (quota(hard={"requests.cpu": "1"}), "without_number"),
        (quota(hard={"count/secrets": "1"}), "inert"),
        (limited(3, scopes=[SCOPE, "Terminating", "NotTerminating"]), "inert"),
    ],
    ids=["free", "full", "full by one of two", "forbidding", "without a number", "of nothing", "for no pod"],
)
def test_each_quota_has_one_state(found: PodQuota, state: str) -> None:
    tenants = Tenants(found, reaching("bound", on="n1"), quota("plain", scopes=()), limited(1, in_namespace="other"))
    states = quotas_of(tenants.index).states()
    states["free"] -= 1  # that of the other namespace
    assert {name for name, count in states.items() if count} == {state}
    assert set(states) == {"free", "full", "forbidding", "without_number", "inert"}


def test_the_state_follows_the_pods() -> None:
    tenants = Tenants(limited(1))
    quotas = quotas_of(tenants.index)
    seen = [quotas.states()["free"]]
    tenants.put(reaching("bound", on="n1"))
    seen.append(quotas.states()["full"])
    tenants.index.delete(limited(1))
    assert [*seen, sum(quotas.states().values())] == [1, 1, 0]


def test_without_quotas_no_pod_is_counted_and_a_rebuilt_index_counts_none_either() -> None:
    index = ClusterIndex(Rules(), counts_of_rules(), tables=(quota_table(Quota()),))
    index.upsert(reaching("bound", on="n1"))
    index.rebuild()
    assert (index.statistics()["quota_pods"], quotas_of(index).namespaces()) == (0, [])

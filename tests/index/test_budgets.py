"""Disruption budgets: read from the API, found by namespace, and the pods that each protects."""

from __future__ import annotations

import pytest

from extender.model.objects import DisruptionBudget
from extender.wire.objects.kinds import DISRUPTION_BUDGETS
from tests.contenders import budget, cluster, contender
from tests.reflected_index import ReflectedIndex


@pytest.mark.parametrize(
    ("given", "protects"),
    [
        pytest.param(budget(app="db"), True, id="selected"),
        pytest.param(budget(app="web"), False, id="another label"),
        pytest.param(budget(app="db", namespace="other"), False, id="another namespace"),
        pytest.param(budget(), False, id="no selector selects no pod"),
        pytest.param(budget(selector={}), True, id="the empty selector selects every pod"),
        pytest.param(budget(app="db", disrupted=("db-1",)), False, id="its eviction has been let through already"),
    ],
)
def test_a_budget_protects_the_pods_that_it_selects(given: DisruptionBudget, *, protects: bool) -> None:
    assert given.protects(contender("db-1", app="db")) is protects


def test_a_budget_is_found_in_its_namespace_until_it_is_deleted() -> None:
    held = cluster(budget("keep", 1), budget("other", namespace="elsewhere"))
    seen = [[each.allowed for each in held.view.budgets_in("default")]]
    held.upsert(budget("keep", 2))
    seen.append([each.allowed for each in held.view.budgets_in("default")])
    held.delete(budget("keep"))
    seen.append([each.allowed for each in held.view.budgets_in("default")])
    assert seen == [[1], [2], []]


def test_a_new_list_of_budgets_replaces_the_old_one() -> None:
    kind = DISRUPTION_BUDGETS.name
    reflected = ReflectedIndex(cluster(), [kind], {kind: [budget("old"), budget("keep", 1)]})
    assert reflected.replace(kind, [budget("keep", 1), budget("new")]) == 2
    assert sorted(each.name for each in reflected.index.view.budgets_in("default")) == ["keep", "new"]


def test_a_budget_that_is_gone_is_not_kept_by_its_namesake_in_another_namespace() -> None:
    kind = DISRUPTION_BUDGETS.name
    web = {space: budget("web", namespace=space) for space in ("team-a", "team-b")}
    reflected = ReflectedIndex(cluster(), [kind], {kind: list(web.values())})
    seen = [[len(reflected.index.view.budgets_in(space)) for space in web]]
    reflected.replace(kind, [web["team-a"]])
    seen.append([len(reflected.index.view.budgets_in(space)) for space in web])
    reflected.apply(kind, web["team-b"])
    reflected.apply(kind, web["team-a"], gone=True)
    reflected.replace(kind, [])
    seen.append([len(reflected.index.view.budgets_in(space)) for space in web])
    assert seen == [[1, 1], [1, 0], [0, 0]]


def test_a_budget_that_has_not_changed_changes_nothing() -> None:
    held = cluster(budget("keep", 1))
    before = held.view.claims_version
    assert not held.upsert(budget("keep", 1))
    assert held.view.claims_version == before

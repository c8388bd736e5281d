"""Disruption budgets: read from the API, found by namespace, and the pods that each protects."""

from __future__ import annotations

import pytest

from extender.index.cluster import ClusterIndex
from extender.index.disruption_budgets import MOST_BUDGETS, MOST_READ
from extender.model.objects import DisruptionBudget, Pod
from extender.wire.objects.kinds import DISRUPTION_BUDGETS
from tests.builders import matching
from tests.contenders import budget, cluster, contender
from tests.reflected_index import ReflectedIndex


def protecting(index: ClusterIndex, pod: Pod) -> list[str] | None:
    """The names of the budgets that protect a pod; None for more than can be read."""
    budgets, _ = index.view.budgets_protecting(pod)
    return None if budgets is None else sorted(each.name for each in budgets)


@pytest.mark.parametrize(
    ("given", "protects"),
    [
        pytest.param(budget(app="db"), True, id="selected"),
        pytest.param(budget(app="web"), False, id="another label"),
        pytest.param(budget(app="db", namespace="other"), False, id="another namespace"),
        pytest.param(budget(), False, id="no selector selects no pod"),
        pytest.param(budget(selector={}), True, id="the empty selector selects every pod"),
        pytest.param(budget(selector=matching(("tier", "DoesNotExist", []))), True, id="no label required"),
        pytest.param(budget(app="db", disrupted=("db-1",)), False, id="its eviction has been let through already"),
    ],
)
def test_a_budget_protects_the_pods_that_it_selects(given: DisruptionBudget, *, protects: bool) -> None:
    assert protecting(cluster(given), contender("db-1", app="db")) == (["keep"] if protects else [])


def test_a_budget_protects_until_its_selector_changes_or_it_is_deleted() -> None:
    db = contender("db", app="db")
    held = cluster(budget("keep", 1, app="db"), budget("other", namespace="elsewhere", app="db"))

    def allowed() -> list[int]:
        budgets, _ = held.view.budgets_protecting(db)
        return [each.allowed for each in budgets or ()]

    seen = [allowed()]
    for change in (budget("keep", 2, app="db"), budget("keep", 2, app="web"), budget("keep", 3, app="db")):
        held.upsert(change)
        seen.append(allowed())
    held.delete(budget("keep", 3, app="db"))
    assert [*seen, allowed()] == [[1], [2], [], [3], []]
    assert len(held.budgets.objects) == 1


def test_selectors_are_read_once_for_a_signature_while_only_statuses_change() -> None:
    held = cluster(*(budget(f"b{n}", selector=matching((f"key-{n}", "DoesNotExist", []))) for n in range(9)))
    pods = [contender(f"db-{number}", app="db") for number in range(2)]
    reads = [held.view.budgets_protecting(each)[1] for each in (*pods, pods[0])]
    held.upsert(budget("b0", 5, selector=matching(("key-0", "DoesNotExist", []))))
    reads.append(held.view.budgets_protecting(pods[0])[1])
    held.upsert(budget("b0", 5, selector=matching(("key-1", "DoesNotExist", []))))
    reads.append(held.view.budgets_protecting(pods[0])[1])
    assert reads[0] == reads[4] > reads[1] == reads[2] == reads[3]


@pytest.mark.parametrize(
    "budgets",
    [
        [budget(f"b{n}", selector=matching((f"key-{n}", "DoesNotExist", []))) for n in range(MOST_READ)],
        [budget(f"b{n}", app="db") for n in range(MOST_BUDGETS + 1)],
        [budget(selector=matching(("key", "NotIn", [f"v{n}" for n in range(MOST_READ)])))],
    ],
    ids=["requirements", "budgets", "values"],
)
def test_more_budgets_than_can_be_read_protect_the_pod_and_cost_no_more(budgets: list[DisruptionBudget]) -> None:
    held = cluster(*budgets)
    assert protecting(held, contender("db", app="db")) is None
    assert held.view.budgets_protecting(contender("other", app="db", tier="x"))[1] <= MOST_READ
    assert protecting(held, contender("db", app="db", namespace="elsewhere")) == []


def test_budgets_that_require_other_labels_are_not_read() -> None:
    held = cluster(*(budget(f"b{number}", app=f"app-{number}") for number in range(1000)))
    assert protecting(held, contender("db", app="app-7")) == ["b7"]


def test_a_new_list_of_budgets_replaces_the_old_one() -> None:
    kind = DISRUPTION_BUDGETS.name
    reflected = ReflectedIndex(cluster(), [kind], {kind: [budget("old"), budget("keep", 1)]})
    assert reflected.replace(kind, [budget("keep", 1), budget("new")]) == 2
    assert sorted(each.name for each in reflected.index.budgets.objects.values()) == ["keep", "new"]


def test_a_budget_that_is_gone_is_not_kept_by_its_namesake_in_another_namespace() -> None:
    kind = DISRUPTION_BUDGETS.name
    web = {space: budget("web", namespace=space, app="web") for space in ("team-a", "team-b")}
    reflected = ReflectedIndex(cluster(), [kind], {kind: list(web.values())})
    pods = [contender("web", namespace=space, app="web") for space in web]
    seen = [[protecting(reflected.index, each) for each in pods]]
    reflected.replace(kind, [web["team-a"]])
    seen.append([protecting(reflected.index, each) for each in pods])
    reflected.apply(kind, web["team-b"])
    reflected.apply(kind, web["team-a"], gone=True)
    reflected.replace(kind, [])
    seen.append([protecting(reflected.index, each) for each in pods])
    assert seen == [[["web"], ["web"]], [["web"], []], [[], []]]


def test_a_budget_that_has_not_changed_changes_nothing() -> None:
    held = cluster(budget("keep", 1))
    before = held.view.claims_version
    assert not held.upsert(budget("keep", 1))
    assert held.view.claims_version == before

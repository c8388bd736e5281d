"""What is kept of disruption budgets. Which of them protect a pod is tested where victims are chosen."""

from __future__ import annotations

from extender.index.disruption_budgets import Budgets
from tests.builders import pod
from tests.contenders import budget
from tests.index.counting import sizes


def test_budgets_that_are_deleted_leave_nothing_but_a_number_for_their_namespace() -> None:
    """By it those that were found before are found again. What was found for a signature goes with the signature."""
    budgets, web = Budgets(), pod("web", app="web")
    before = sizes(budgets)
    for name in ("a", "b"):
        budgets.change(f"default/{name}", budget(name, app="web"))
    assert [each.name for each in budgets.protecting(web)[0] or ()] == ["a", "b"]
    for name in ("a", "b"):
        budgets.change(f"default/{name}", None)
    assert budgets.protecting(web)[0] == []
    assert sizes(budgets) | {"_changes": 0, "_selecting": 0} == before

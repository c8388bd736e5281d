"""PodDisruptionBudgets: which budgets select a pod, and how many disruptions each allows now.

A bound pod counts as healthy, because there is no kubelet that makes it ready. Called by the pod operations.
"""

from extender.simulator.apiserver.kinds import DISRUPTION_BUDGETS, PODS
from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject, is_finished, is_terminating, labels_of, namespace_of, selects


def matching_budgets(store: Store, pod: JsonObject) -> list[JsonObject]:
    """The budgets of the pod's namespace whose selector matches it."""
    namespace = namespace_of(pod)
    rows = store.table(DISRUPTION_BUDGETS).objects.items()
    budgets = [stored.read() for key, stored in rows if key.startswith(f"{namespace}/")]
    return [budget for budget in budgets if selects(budget["spec"].get("selector"), labels_of(pod))]


def disruptions_allowed(store: Store, budget: JsonObject) -> int:
    """How many disruptions the budget allows; never negative. O(pods)."""
    namespace, spec = namespace_of(budget), budget["spec"]
    rows = store.table(PODS).objects.items()
    pods = [stored.read() for key, stored in rows if key.startswith(f"{namespace}/")]
    guarded = [pod for pod in pods if selects(spec.get("selector"), labels_of(pod)) and not is_finished(pod)]
    healthy = sum(1 for pod in guarded if pod["spec"].get("nodeName") and not is_terminating(pod))
    if spec.get("maxUnavailable") is not None:
        wanted = len(guarded) - _amount(spec["maxUnavailable"], len(guarded))
    else:
        wanted = _amount(spec.get("minAvailable", 1), len(guarded))
    return max(0, healthy - wanted)


def _amount(value: int | str, total: int) -> int:
    """A number, or a percentage of the total rounded up."""
    if isinstance(value, str):
        return -(-int(value.removesuffix("%")) * total // 100)
    return value

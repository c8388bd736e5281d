"""A platform's policies, and what a tenant writes against them."""

from __future__ import annotations

from typing import Any

from extender.model.policies import Policy
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Policies
from extender.verbs.admit.decision import AdmitVerb
from tests.builders import Json
from tests.policies import expression, node_term, policy, preferring, requiring
from tests.verbs.admit.reviewing import Answer, pod, review, reviewed, verb

POOL = {"pool": "tenants"}
TAINTED = {"key": "pool", "operator": "Exists"}
REQUIRES = requiring(node_term(expression("zone", "In", "a", "b")), node_term(expression("disk", "Exists")))


def platform(**spec: Any) -> Policy:
    """A policy of the platform that no pod may do without."""
    return policy("platform", **{"conflictPolicy": "Override", "failurePolicy": "Fail", **spec})


def tenants(count: int, **spec: Any) -> list[Policy]:
    """Policies of the tenant, which want to be first."""
    return [policy(f"t{number:03}", "shop", priority=1000 + number, **spec) for number in range(count)]


def tolerating(count: int, prefix: str = "k") -> list[Json]:
    return [{"key": f"{prefix}{number}", "operator": "Exists"} for number in range(count)]


PADDED: dict[str, tuple[Json, Json]] = {
    "nodeRequirements": ({"nodeSelector": {f"k{n}": "v" for n in range(200)}}, {"nodeSelector": POOL}),
    "maxTerms": (
        {"affinity": requiring(*(node_term(expression("k", "In", f"v{n}")) for n in range(64)))},
        {"affinity": REQUIRES},
    ),
    "nodeSelectorTerms": (
        {"affinity": preferring(*((1, node_term(expression("k", "In", f"v{n}"))) for n in range(100)))},
        {"affinity": REQUIRES},
    ),
    "tolerations": ({"tolerations": tolerating(100)}, {"tolerations": [TAINTED]}),
    "podBytes": (
        {"affinity": requiring(*(node_term(expression("k", "In", "v" * 63, f"v{n}")) for n in range(60)))},
        {"nodeSelector": POOL},
    ),
}


def _settings(name: str) -> tuple[ConstraintLimits, Policies]:
    return ConstraintLimits(pod_bytes=6000 if name == "podBytes" else 65_536), Policies()  # type: ignore[arg-type]


def admit_pod(name: str, *policies: Policy, rejects_excess: bool = True) -> Answer:
    limits, settings = _settings(name)
    admit: AdmitVerb = verb(*policies, limits=limits, settings=settings, rejects_excess=rejects_excess)
    return reviewed(admit, pod(PADDED[name][0]))


MANY = Policies(max_per_pod=1000)


def heavy(number: int, elements: int = 90, **spec: Any) -> Policy:
    """A policy with so many tolerations of its own, the lower the number the earlier."""
    tolerations = [{"key": f"t{number}-{each}", "operator": "Exists"} for each in range(elements)]
    return policy(f"p{number:04}", priority=-number, tolerations=tolerations, **spec)


def changes(policies: list[Policy]) -> list[list[str]]:
    """The messages of the conflicts of each policy."""
    found = verb(*policies, settings=MANY).admit(review(pod()))
    return [[conflict.message for conflict in each.conflicts] for each in found.changes]


def toleration(name: str) -> Json:
    return {"key": name, "operator": "Exists"}

"""The block `release` of a policy: how groups of gated pods are put together, placed and let go. Each field is declared once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from extender.model.constraints.labels import is_label_key, is_label_value
from extender.model.policies import GROUP, JsonObject
from extender.model.release import (
    LAST_ACTIONS,
    MOST_ACTIONS,
    MOST_DOMAINS,
    MOST_LEVELS,
    MOST_PODS_OF_QUOTA,
    MOST_RESOURCES,
    MOST_TOLERATIONS,
    MOST_VALUES,
    RELEASE_GATE,
    TAINTS_OF_KUBERNETES,
    LaterPods,
    NoRoom,
    Strategy,
    default_after,
)
from extender.model.resources import PODS
from extender.model.units import Duration
from extender.wire.policies.field_errors import ErrorType, Problems, check_label_key, check_namespace, check_tolerations
from extender.wire.policies.pod_schema import TOLERATION
from extender.wire.policies.schema import (
    DNS_LABEL,
    LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    LONGEST_LABEL,
    Field,
    FieldRule,
    Flag,
    Many,
    Pairs,
    Record,
    Text,
    WholeNumber,
    choice,
    duration,
    predicate,
)

GATE_PREFIX: Final = f"{GROUP}/"
MOST_PODS: Final = 10_000  # of a group
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$"
LONGEST_QUANTITY: Final = 24
_LONGEST_NAME: Final = 100  # of a resource, in an error
_LONGEST_TIMEOUT: Final = 7 * 24 * 3600.0
_OWN_TAINT: Final = "must not be the key of a taint that Kubernetes itself sets"
_TIMEOUT_LIMITS: Final = "must be more than 0 and at most 168h"
_NEEDS_GROWTH: Final = "needs a domain with `mayGrow: true`"
_OUTSIDE: Final = frozenset({NoRoom.SEVERAL_DOMAINS, NoRoom.COARSER_DOMAIN, NoRoom.ANYWHERE})


def _check_gate(found: Problems, gate: str, path: str) -> None:
    """The admission policy of deploy/base lets the extender remove no other gates."""
    if gate and not gate.startswith(GATE_PREFIX):
        found.invalid(path, gate, f"must begin with {GATE_PREFIX}: the extender removes no other gates")
    else:
        check_label_key(found, gate, path)


def _check_value(found: Problems, value: str, path: str) -> None:
    if not value or not is_label_value(value):
        found.invalid(path, value, "not a valid label value, or empty")


def _check_brought(found: Problems, tolerations: Any, path: str) -> None:
    check_tolerations(found, tolerations, path)
    if isinstance(tolerations, list) and len(tolerations) > MOST_TOLERATIONS:
        found.too_many(path, len(tolerations), MOST_TOLERATIONS)


def _check_brought_by_policy(found: Problems, tolerations: Any, path: str) -> None:
    _check_brought(found, tolerations, path)
    for toleration, at in found.objects(tolerations, path):
        key = toleration.get("key") or ""
        # Pods with such a toleration would stay on a node that is not ready, and start on a cordoned node.
        tolerates_every_taint = not key and toleration.get("operator") == "Exists"
        if tolerates_every_taint or (isinstance(key, str) and key.startswith(TAINTS_OF_KUBERNETES)):
            found.invalid(f"{at}.key", key, _OWN_TAINT)


def _check_resources(found: Problems, value: Any, path: str) -> None:
    resources = found.read_strings(value, path)
    if len(resources) > MOST_RESOURCES:
        found.too_many(path, len(resources), MOST_RESOURCES)
    for name, amount in list(resources.items())[:MOST_RESOURCES]:
        at = f"{path}.{name[:_LONGEST_NAME]}"
        if name == PODS:
            found.invalid(at, amount, "is not a resource here: use `pods` of the quota")
        elif not is_label_key(name):
            found.invalid(at, name, "not the name of a resource")
        elif len(amount) > LONGEST_QUANTITY or not re.fullmatch(QUANTITY, amount):
            found.invalid(at, amount, 'not a quantity that is at least 0, such as "4", 500m or 16Gi')


def _check_quota(found: Problems, quota: JsonObject, path: str) -> None:
    if not quota or not quota.keys() <= {"pods", "resources"}:
        found.invalid(path, quota, "must have pods or resources, and nothing else")


def pods_of_quota(name: str, about: str, least: int = 0) -> Field:
    """A number of pods that a domain may have."""
    return Field(name, WholeNumber(least, MOST_PODS_OF_QUOTA), about)


AMOUNTS: Final = Record(
    (
        pods_of_quota("pods", "How many pods."),
        Field(
            "resources",
            Pairs(Text(QUANTITY, LONGEST_QUANTITY), MOST_RESOURCES),
            "How much of each resource these request together, such as cpu.",
            check=_check_resources,
        ),
    )
)
_QUOTA: Final = replace(
    AMOUNTS,
    predicates=(
        predicate(_check_quota, FieldRule("has(self.pods) || has(self.resources)", "must have pods or resources")),
    ),
)
BROUGHT: Final = Field(
    "tolerations",
    Many(TOLERATION, MOST_TOLERATIONS),
    "What pods get when they are released into the domain, such as those for the taint of its nodes.",
    check=_check_brought,
)
_TAINTS: Final = ", ".join(f"'{prefix}'" for prefix in TAINTS_OF_KUBERNETES)
_OF_OWN_TAINT: Final = FieldRule(
    "has(self.key) && self.key != ''"
    f" ? ![{_TAINTS}].exists(prefix, self.key.startsWith(prefix))"
    " : !has(self.operator) || self.operator != 'Exists'",
    _OWN_TAINT,
    ".key",
)
# A GroupPlacement, which the extender writes, may hold one from before this rule.
_BROUGHT_BY_POLICY: Final = replace(
    BROUGHT,
    type=Many(
        replace(TOLERATION, predicates=(*TOLERATION.predicates, predicate(None, _OF_OWN_TAINT))), MOST_TOLERATIONS
    ),
    check=_check_brought_by_policy,
)
_VALUE: Final = replace(LABEL_VALUE, check=_check_value, may_be_empty=False)


def _prefers_own_values(found: Problems, domain: JsonObject, path: str) -> None:
    values = set(_texts(domain.get("values")))
    for value in _texts(domain.get("preferred")):
        if value not in values:
            found.invalid(f"{path}.preferred", value, f"is none of {path}.values")


DOMAIN: Final = Record(
    (
        Field("name", Text(DNS_LABEL, LONGEST_LABEL, check=check_namespace), is_required=True),
        Field(
            "values",
            Many(_VALUE, MOST_VALUES, least=1, is_set=True, needs="must list at least one value"),
            "A node is in the domain with one of these.",
            is_required=True,
        ),
        Field("preferred", Many(_VALUE, MOST_VALUES, is_set=True), "Those of the values that pods prefer."),
        Field("quota", _QUOTA, "What released pods of this policy may have in the domain."),
        _BROUGHT_BY_POLICY,
        Field("mayGrow", Flag(), "Nodes may be added for pods that wait for room here, see noRoom."),
    ),
    (
        predicate(
            _prefers_own_values,
            FieldRule(
                "!has(self.preferred) || self.preferred.all(each, each in self.values)",
                "has a value that `values` has not",
                ".preferred",
            ),
        ),
    ),
)


def _needs_order(found: Problems, release: JsonObject, path: str) -> None:
    if release.get("domains") is None and release.get("strategy") == Strategy.IN_ORDER:
        found.required(f"{path}.domains", "is needed where `strategy` is InOrder")


def _has_one_place_for_a_value(found: Problems, release: JsonObject, path: str) -> None:
    """A value is in one domain only, so that it is clear where a pod counts."""
    # No CEL rule says this: comparing every pair of values exceeds the cost that the API server allows for a rule.
    places: dict[str, str] = {}
    levels = len(_texts(release.get("topology")))
    for domain, at in _domains(release, path):
        values = _texts(domain.get("values"))[:MOST_VALUES]
        for value in values:
            if places.setdefault(value, at) != at:
                found.invalid(f"{at}.values", value, f"is a value of {places[value]} too")
        # The lower keys are chosen within one value of the first key.
        if len(values) > 1 and levels > 1:
            found.invalid(f"{at}.values", values, "may be several only where `topology` has one key")


def _stays_inside(found: Problems, release: JsonObject, path: str) -> None:
    """Rejects settings that would release pods outside the listed domains, or more pods than a domain may have."""
    limit = next((name for name in ("domains", "maxPerDomain") if release.get(name) is not None), "")
    for action, at in _actions(release, path):
        if limit and action in _OUTSIDE:
            found.invalid(f"{at}.action", action, f"would release groups outside of `{limit}`")


def _may_grow(found: Problems, release: JsonObject, path: str) -> None:
    may_grow = any(domain.get("mayGrow") is True for domain, _ in _domains(release, path))
    for action, at in _actions(release, path):
        if action == NoRoom.GROWING_DOMAIN and not may_grow:
            found.invalid(f"{at}.action", action, _NEEDS_GROWTH)


def _takes_turns(found: Problems, release: JsonObject, path: str) -> None:
    """An action comes no earlier than the one before it, and what is done in the end comes last."""
    steps, latest = _steps(release, path), 0.0
    for number, (step, at) in enumerate(steps, start=1):
        action, after = step.get("action"), _seconds_of(step)
        if action in LAST_ACTIONS and number < len(steps):
            found.invalid(f"{at}.action", action, "must be the last action")
        if after is not None and after < latest:
            found.invalid(f"{at}.after", step.get("after", ""), "is less than the time of the action before it")
        latest = max(latest, after or 0.0)


def _texts_of(actions: Iterable[NoRoom]) -> str:
    return ", ".join(f"'{action}'" for action in NoRoom if action in set(actions))


def _seconds_of(step: JsonObject) -> float | None:
    """After how many seconds an action is done; None if that cannot be read."""
    after = step.get("after")
    if not after:
        return default_after(step["action"]) if step.get("action") in LAST_ACTIONS else 0.0
    try:
        return float(Duration.parse(after)) if isinstance(after, str) else None
    except ValueError:
        return None


def _stays_inside_rules(limit: str) -> tuple[FieldRule, ...]:
    text = f"would release groups outside of `{limit}`"
    actions = f"!self.noRoom.exists(each, each.action in [{_texts_of(_OUTSIDE)}])"
    return (FieldRule(f"!has(self.{limit}) || !has(self.noRoom) || {actions}", text, ".noRoom"),)


_ACTION: Final = Record(
    (
        Field("action", choice(NoRoom, has_default=False), is_required=True),
        Field(
            "after",
            duration(lambda seconds: 0 < seconds <= _LONGEST_TIMEOUT, _TIMEOUT_LIMITS),
            "After which time of waiting: at once without it, and after 10m for CoarserDomain, Anywhere and Wait.",
        ),
    ),
    (
        predicate(
            None,
            FieldRule(
                "!has(self.after) || (duration(self.after) > duration('0s') && duration(self.after) <= duration('168h'))",
                _TIMEOUT_LIMITS,
                ".after",
            ),
        ),
    ),
)
SIZE: Final = Record(
    (Field("count", WholeNumber(1, MOST_PODS)), Field("label", LABEL_KEY), Field("annotation", LABEL_KEY)),
    is_choice=True,
    default=(("count", 1),),
)
RELEASE: Final = Record(
    (
        Field(
            "gate",
            Text(rf"^{re.escape(GATE_PREFIX)}{LABEL}$", len(GATE_PREFIX) + 63, check=_check_gate, default=RELEASE_GATE),
            "The gate; set when a pod is created. The extender removes no others.",
        ),
        Field(
            "group",
            Record(
                (Field("label", LABEL_KEY), Field("owner", Flag(only_true=True))),
                is_choice=True,
                default=(("owner", True),),
            ),
            "Which pods belong together: the value of a label, or the same controller.",
        ),
        Field(
            "size",
            SIZE,
            "How many pods a group has: a number, or where its pods tell it. A group is decided once they all wait.",
        ),
        Field(
            "topology",
            Many(LABEL_KEY, MOST_LEVELS, least=1, needs="must name at least one label key of nodes", is_unique=True),
            "Label keys of nodes, coarse to fine. A group lands in one domain of the first, and of the finest that holds it.",
            is_required=True,
        ),
        Field(
            "domains",
            Many(DOMAIN, MOST_DOMAINS, least=1, keys=("name",), needs="must list at least one domain"),
            "Where groups may go: sets of values of the first key, in the order of InOrder. Without it each value is a domain.",
        ),
        pods_of_quota("maxPerDomain", "How many pods of this policy each domain may have.", least=1),
        Field(
            "noRoom",
            Many(_ACTION, MOST_ACTIONS, least=1, keys=("action",), needs="must list at least one action"),
            "What is done for a group that no domain has room for, in order: GrowingDomain releases it into the first domain that "
            "may grow, Preempt removes pods of lower priority, SeveralDomains releases it into several. In the end CoarserDomain, "
            "Anywhere or Wait.",
        ),
        Field(
            "laterPods",
            choice(LaterPods, has_default=False),
            "What is done with pods that come after the decision: those beyond the size Join the domain, or wait to Replace one.",
        ),
        Field("strategy", choice(Strategy), "Which of the domains that hold a group."),
        Field("exclusive", Flag(default=False), "The domain takes no other group of this policy."),
    ),
    (
        predicate(
            None,
            FieldRule(
                "self.topology.all(key, self.topology.exists_one(other, other == key))",
                "has a key twice",
                ".topology",
                ErrorType.DUPLICATE,
            ),
        ),
        predicate(
            _needs_order,
            FieldRule(
                "!has(self.strategy) || self.strategy != 'InOrder' || has(self.domains)",
                "is needed where `strategy` is InOrder",
                ".domains",
                ErrorType.REQUIRED,
            ),
        ),
        predicate(
            _has_one_place_for_a_value,
            FieldRule(
                "!has(self.domains) || size(self.topology) == 1 || self.domains.all(each, size(each.values) == 1)",
                "`values` may be several only where `topology` has one key",
                ".domains",
            ),
        ),
        predicate(_stays_inside, *_stays_inside_rules("domains"), *_stays_inside_rules("maxPerDomain")),
        predicate(
            _may_grow,
            FieldRule(
                "!has(self.noRoom) || !self.noRoom.exists(each, each.action == 'GrowingDomain')"
                " || (has(self.domains) && self.domains.exists(each, has(each.mayGrow) && each.mayGrow))",
                _NEEDS_GROWTH,
                ".noRoom",
            ),
        ),
        predicate(
            _takes_turns,
            FieldRule(
                f"!has(self.noRoom) || self.noRoom.filter(each, each.action in [{_texts_of(LAST_ACTIONS)}]).size() == 0"
                f" || (self.noRoom.filter(each, each.action in [{_texts_of(LAST_ACTIONS)}]).size() == 1"
                f" && self.noRoom[self.noRoom.size() - 1].action in [{_texts_of(LAST_ACTIONS)}])",
                f"must have one of {', '.join(action for action in NoRoom if action in LAST_ACTIONS)} at the end, and nowhere else",
                ".noRoom",
            ),
        ),
    ),
)


def _domains(release: JsonObject, path: str) -> list[tuple[JsonObject, str]]:
    listed = release.get("domains")
    numbered = enumerate(listed[:MOST_DOMAINS] if isinstance(listed, list) else ())
    return [(each, f"{path}.domains[{number}]") for number, each in numbered if isinstance(each, dict)]


def _steps(release: JsonObject, path: str) -> list[tuple[JsonObject, str]]:
    listed = release.get("noRoom")
    numbered = enumerate(listed[:MOST_ACTIONS] if isinstance(listed, list) else ())
    return [(step, f"{path}.noRoom[{number}]") for number, step in numbered if isinstance(step, dict)]


def _actions(release: JsonObject, path: str) -> list[tuple[Any, str]]:
    return [(step.get("action"), at) for step, at in _steps(release, path) if isinstance(step.get("action"), str)]


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []

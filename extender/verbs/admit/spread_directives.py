"""The directives `spread` of policies. They complete spread constraints that a pod has, its own or those added by a policy.

At admission they complete the constraints of a new pod. At scheduling they complete the constraints of the effective pod, so they
also hold for a pod that admission missed. A field that the constraint has already stays. Of several policies that set the same field
for one topology key the first counts.

- `matchLabelKeys: IfMissing`: only pods of the same revision are counted (KEP-3243). So the pods of the old revision do not count
  during a rollout. The key is the label that the pod's controller writes (`revision_key`). It is not added where the selector of
  the constraint has a requirement for the key, or selects no pod.
- `minDomains`: a hard constraint without it gets the policy's number, or the number of declared domains. An autoscaler sees it in
  the pod. Filter counts the declared domains again for each decision, also for a pod that has the number from an earlier time.
- The other fields of a directive are for filter alone: `rules/excluded_domains.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from extender.model.constraints.spread import (
    NO_SPREAD,
    DomainRules,
    SpreadConstraint,
    SpreadConstraints,
    SpreadDirective,
    revision_key,
)
from extender.model.objects import PodSignature
from extender.model.policies import InjectedItem, JsonObject, Policy, PolicyKey, Size
from extender.wire.policies.node_terms import SPREAD, canonical, list_item

MATCH_LABEL_KEYS: Final = "matchLabelKeys"
MIN_DOMAINS: Final = "minDomains"


def _none_declared(_topology_key: str) -> int:
    return 0


class NewPod(NamedTuple):
    """The directives that complete the constraints of a new pod, in the order of their policies.

    - ``revision``: the label key of the pod's revision, empty without one.
    - ``declared``: the number of declared domains of a topology key.
    """

    revision: str = ""
    directives: Sequence[SpreadDirective] = ()
    declared: Callable[[str], int] = _none_declared


NO_COMPLETIONS: Final = NewPod()


def completions(constraint: JsonObject, directive: SpreadDirective, new: NewPod) -> JsonObject:
    """The fields to write into a constraint of a new pod, with their whole values. Empty where it lacks nothing. O(requirements)."""
    fields: JsonObject = {}
    revision = new.revision
    # The API server allows minDomains only beside DoNotSchedule.
    if constraint.get("whenUnsatisfiable") == "DoNotSchedule" and constraint.get(MIN_DOMAINS) is None:
        least = new.declared(directive.topology_key) if directive.declared else directive.min_domains
        # 1 is the default, and would only make the pod larger.
        if least > 1:
            fields[MIN_DOMAINS] = least
    if directive.completes_keys and revision and _lacks_key(constraint, revision):
        fields[MATCH_LABEL_KEYS] = [*(constraint.get(MATCH_LABEL_KEYS) or ()), revision]
    return fields


def _lacks_key(constraint: JsonObject, key: str) -> bool:
    """Whether to add a label key to a constraint: it selects pods, and has no requirement for the key.

    The API server refuses a key in `matchLabelKeys` that the selector has too.
    """
    selector, keys = constraint.get("labelSelector"), constraint.get(MATCH_LABEL_KEYS) or ()
    if not isinstance(selector, dict) or not isinstance(keys, list | tuple) or key in keys:
        return False
    expressions = selector.get("matchExpressions") or ()
    named = {expression.get("key") for expression in expressions if isinstance(expression, dict)}
    return key not in (selector.get("matchLabels") or {}) and key not in named


def complete(
    items: Sequence[InjectedItem], directives: Iterable[SpreadDirective], new: NewPod
) -> tuple[list[InjectedItem], dict[str, JsonObject], Size]:
    """The constraints of a new pod completed by one policy; by topology key the fields that were added; the growth of the pod."""
    made, recorded, growth = list(items), dict[str, JsonObject](), Size()
    by_key = {directive.topology_key: directive for directive in directives}
    for place, item in enumerate(items):
        value: Any = item.value
        key = str(value.get("topologyKey")) if isinstance(value, dict) else ""
        if key in by_key and (more := completions(value, by_key[key], new)):
            # matchLabelKeys becomes one more requirement of the selector, and counts as one.
            growth = growth.plus(Size(len(canonical(more)), label_requirements=MATCH_LABEL_KEYS in more))
            made[place] = list_item(SPREAD, value | more)
            recorded[key] = recorded.get(key, {}) | more
    return made, recorded, growth


def completed(constraint: JsonObject, new: NewPod) -> JsonObject:
    """The constraint of a new pod, completed by the directives for its topology key. The same object where it lacks nothing."""
    for directive in new.directives:
        if directive.topology_key == constraint.get("topologyKey") and (
            more := completions(constraint, directive, new)
        ):
            constraint = constraint | more
    return constraint


def of_revision(constraint: SpreadConstraint, key: str, labels: Mapping[str, str]) -> SpreadConstraint:
    """The constraint with the label key of the pod's revision. Unchanged where it selects no pods, or has a requirement for the key."""
    selector = constraint.selector
    if not key or selector.nothing or any(requirement.key == key for requirement in selector.requirements):
        return constraint
    return replace(constraint, selector=selector.and_in({key: labels[key]}))


class Directed(NamedTuple):
    """Completed constraints.

    ``missed``: the policies that should have completed them at admission. ``ruling``: the policies with rules about domains.
    """

    spread: SpreadConstraints
    missed: tuple[PolicyKey, ...] = ()
    ruling: tuple[PolicyKey, ...] = ()


NOTHING_DIRECTED: Final = Directed(NO_SPREAD)


def directed(
    spread: SpreadConstraints, policies: Iterable[Policy], signature: PodSignature, completed_before: Mapping[str, int]
) -> Directed:
    """The constraints of an effective pod, completed by the policies. The same constraints where the policies change nothing.

    ``completed_before``: by topology key the minDomains that admission gave to the pod. They do not count as the pod's own.
    O(constraints × directives).
    """
    revision = revision_key(signature.owner_kind, signature.labels)
    missed: list[PolicyKey] = []
    ruling: list[PolicyKey] = []
    hard, soft = spread.hard, spread.soft
    for policy in policies:
        for directive in policy.directives.spread:
            keyed = [
                tuple(_of_revision(constraint, directive, revision, signature) for constraint in constraints)
                for constraints in (hard, soft)
            ]
            # Admission adds matchLabelKeys to new pods. This pod lacks it: it is older than the policy, or the webhook
            # missed it.
            if keyed != [hard, soft]:
                missed.append(policy.key)
            # Rules about domains are for filter, so only hard constraints get them.
            ruled = tuple(_with_rules(constraint, directive, completed_before) for constraint in keyed[0])
            if ruled != keyed[0]:
                ruling.append(policy.key)
            hard, soft = ruled, keyed[1]
    if (hard, soft) == (spread.hard, spread.soft):
        return Directed(spread)
    return Directed(replace(spread, hard=hard, soft=soft), tuple(missed), tuple(ruling))


def _of_revision(
    constraint: SpreadConstraint, directive: SpreadDirective, revision: str, signature: PodSignature
) -> SpreadConstraint:
    if constraint.topology_key != directive.topology_key or not directive.completes_keys:
        return constraint
    return of_revision(constraint, revision, signature.labels)


def _with_rules(
    constraint: SpreadConstraint, directive: SpreadDirective, completed_before: Mapping[str, int]
) -> SpreadConstraint:
    """A hard constraint with one directive's rules about domains. A rule that an earlier policy has set stays."""
    if constraint.topology_key != directive.topology_key:
        return constraint
    rules = constraint.domains or DomainRules()
    # minDomains 1 is the default. The number that admission wrote is the policy's, so the policy may change it.
    is_own = constraint.min_domains not in (1, completed_before.get(constraint.topology_key, 1))
    if (directive.declared or directive.min_domains) and not (rules.declared or is_own):
        constraint = replace(constraint, min_domains=directive.min_domains or 1)
        rules = replace(rules, declared=directive.declared)
    if rules.excludes_after is None:
        rules = replace(rules, excludes_after=directive.excludes_after)
    rules = replace(rules, excludes_full=rules.excludes_full or directive.excludes_full)
    return constraint if rules == DomainRules() else replace(constraint, domains=rules)

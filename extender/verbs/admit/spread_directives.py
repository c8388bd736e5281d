"""The directives `spread` of policies: what holds for the spread constraints that a pod has, of its own or of a policy.

At admission they complete the constraints of a new pod. At scheduling they are applied to the constraints of the effective pod,
also of one that admission missed. Of two policies that say the same of one topology key the first one holds, and what a
constraint says itself stays.

`matchLabelKeys: IfMissing`: only pods of the same revision are counted (KEP-3243), so that after a rollout the old pods have
not counted. The key is the one that the pod's controller writes (`revision_key`). It is left out where the selector of the
constraint says anything of the key, or selects no pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from extender.model.constraints.spread import SpreadConstraint, SpreadConstraints, SpreadDirective, revision_key
from extender.model.objects import PodSignature
from extender.model.policies import Item, JsonObject, Policy, PolicyKey, Size
from extender.wire.policies.node_terms import SPREAD, canonical, list_item

MATCH_LABEL_KEYS: Final = "matchLabelKeys"


def completions(constraint: JsonObject, directive: SpreadDirective, revision: str) -> JsonObject:
    """The fields that a constraint of a new pod gets, by name, with their whole values; empty where it lacks nothing.

    ``revision``: the label key of the pod's revision, empty where it has none. O(requirements).
    """
    found: JsonObject = {}
    if directive.completes_keys and revision and _lacks_key(constraint, revision):
        found[MATCH_LABEL_KEYS] = [*(constraint.get(MATCH_LABEL_KEYS) or ()), revision]
    return found


def _lacks_key(constraint: JsonObject, key: str) -> bool:
    """Whether a constraint selects pods and says nothing of a label key, which the API server would refuse twice."""
    selector, keys = constraint.get("labelSelector"), constraint.get(MATCH_LABEL_KEYS) or ()
    if not isinstance(selector, dict) or not isinstance(keys, list | tuple) or key in keys:
        return False
    expressions = selector.get("matchExpressions") or ()
    named = {each.get("key") for each in expressions if isinstance(each, dict)}
    return key not in (selector.get("matchLabels") or {}) and key not in named


def complete(
    items: Sequence[Item], directives: Iterable[SpreadDirective], revision: str
) -> tuple[list[Item], dict[str, JsonObject], Size]:
    """The constraints of a new pod as one policy completes them, what they got by topology key, and by how much the pod grows."""
    made, recorded, growth = list(items), dict[str, JsonObject](), Size()
    by_key = {each.topology_key: each for each in directives}
    for place, item in enumerate(items):
        value: Any = item.value
        key = str(value.get("topologyKey")) if isinstance(value, dict) else ""
        if key in by_key and (more := completions(value, by_key[key], revision)):
            growth = growth.plus(Size(len(canonical(more)), label_requirements=MATCH_LABEL_KEYS in more))
            made[place] = list_item(SPREAD, value | more)
            recorded[key] = recorded.get(key, {}) | more
    return made, recorded, growth


def completed(constraint: JsonObject, directives: Iterable[SpreadDirective], revision: str) -> JsonObject:
    """The constraint of a new pod with what the directives about its topology key give it; itself where it lacks nothing."""
    for each in directives:
        if each.topology_key == constraint.get("topologyKey") and (more := completions(constraint, each, revision)):
            constraint = constraint | more
    return constraint


def of_revision(constraint: SpreadConstraint, key: str, labels: Mapping[str, str]) -> SpreadConstraint:
    """The constraint with the label key of the pod's revision, where it selects pods and says nothing of the key."""
    selector = constraint.selector
    if not key or selector.nothing or any(each.key == key for each in selector.requirements):
        return constraint
    return replace(constraint, selector=selector.and_in({key: labels[key]}))


def directed(
    spread: SpreadConstraints, policies: Iterable[Policy], signature: PodSignature
) -> tuple[SpreadConstraints, tuple[PolicyKey, ...]]:
    """The constraints of an effective pod as the policies direct, and the policies that should have completed them at admission.

    The same constraints where the policies change nothing. O(constraints × directives).
    """
    revision = revision_key(signature.owner_kind, signature.labels)
    missed: list[PolicyKey] = []
    hard, soft = spread.hard, spread.soft
    for policy in policies:
        for each in policy.directives.spread:
            new = [tuple(_directed(found, each, revision, signature) for found in some) for some in (hard, soft)]
            if new != [hard, soft]:
                hard, soft = new
                missed.append(policy.key)
    if not missed:
        return spread, ()
    return replace(spread, hard=hard, soft=soft), tuple(dict.fromkeys(missed))


def _directed(
    constraint: SpreadConstraint, directive: SpreadDirective, revision: str, signature: PodSignature
) -> SpreadConstraint:
    if constraint.topology_key != directive.topology_key or not directive.completes_keys:
        return constraint
    return of_revision(constraint, revision, signature.labels)

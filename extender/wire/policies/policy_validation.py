"""Validates a scheduling policy: every error with its field, as the API server would report it.

The errors agree with those of gardener/kupid for the fields that both have. What is legal and probably a mistake is a
warning (`verbs/admit/policy_reviews.py`). As a CRD the block `release` has the same rules (`deploy/policies/crds.yaml`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from extender.model.constraints.labels import is_dns_subdomain, is_label_key, is_label_value
from extender.model.policies import CLUSTER_KIND, GROUP, KUPID_GROUP, NAMESPACED_KIND, JsonObject, Moment
from extender.model.release import (
    MOST_DOMAINS,
    MOST_LEVELS,
    MOST_PODS_OF_QUOTA,
    MOST_RESOURCES,
    MOST_TOLERATIONS,
    MOST_VALUES,
    Growth,
    OnTimeout,
    ReleaseMode,
    Replacement,
    Strategy,
    WhenNoRoom,
)
from extender.model.resources import PODS
from extender.model.units import Duration
from extender.settings.limits import ConstraintLimits
from extender.wire.policies.field_errors import (
    ErrorType,
    FieldError,
    Problems,
    check_affinity,
    check_label_key,
    check_label_selector,
    check_labels,
    check_namespace,
    check_spread_constraints,
    check_subdomain,
    check_tolerations,
)
from extender.wire.policies.node_terms import size_of

_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_INT32: Final = 2**31 - 1
_LISTS: Final = ("ownerKinds", "serviceAccounts", "priorityClassNames")

KINDS: Final = (NAMESPACED_KIND, CLUSTER_KIND)


def validate(policy: Any, limits: ConstraintLimits, *, kind: str = "") -> list[FieldError]:
    """Every error of a policy object. ``kind`` is used if the object has none."""
    found = Problems()
    if not isinstance(policy, dict):
        found.add(ErrorType.TYPE_INVALID, "", "must be an object", policy)
        return found.errors
    kind = kind or found.read_text(policy.get("kind"), "kind")
    if kind not in KINDS:
        found.not_supported("kind", kind, KINDS)
    _check_metadata(found, policy.get("metadata"), kind)
    _check_spec(found, found.read_object(policy.get("spec"), "spec"), kind)
    if not found.errors:  # sizes are counted in what has the right types
        _check_limits(found, policy.get("spec") or {}, limits)
    return found.errors


def is_policy(group: str, kind: str) -> bool:
    """Whether an object is a policy of the extender's API group or of kupid's."""
    return group in (GROUP, KUPID_GROUP) and kind in KINDS


def _check_metadata(found: Problems, value: Any, kind: str) -> None:
    metadata = found.read_object(value, "metadata")
    name = found.read_text(metadata.get("name"), "metadata.name")
    prefix = found.read_text(metadata.get("generateName"), "metadata.generateName")
    if name:
        check_subdomain(found, name, "metadata.name")
    elif not prefix:
        found.required("metadata.name", "name or generateName is required")
    if prefix and not is_dns_subdomain(f"{prefix}x"):
        check_subdomain(found, prefix, "metadata.generateName")
    _check_namespace(found, found.read_text(metadata.get("namespace"), "metadata.namespace"), kind)
    check_labels(found, metadata.get("labels"), "metadata.labels")
    for key in found.read_strings(metadata.get("annotations"), "metadata.annotations"):
        if not is_label_key(key.lower()):
            found.invalid("metadata.annotations", key, "not a qualified name")
    for text, at in found.items(metadata.get("finalizers"), "metadata.finalizers"):
        if text not in _STANDARD_FINALIZERS and ("/" not in str(text) or not is_label_key(str(text))):
            found.invalid(at, text, "name is neither a standard finalizer name nor is it fully qualified")


def _check_namespace(found: Problems, namespace: str, kind: str) -> None:
    if kind == CLUSTER_KIND and namespace:
        found.forbidden("metadata.namespace", "not allowed on this type")
    elif kind == NAMESPACED_KIND and not namespace:
        found.required("metadata.namespace", "")
    elif namespace:
        check_namespace(found, namespace, "metadata.namespace")


def _check_spec(found: Problems, spec: JsonObject, kind: str) -> None:
    check_label_selector(found, spec.get("podSelector"), "spec.podSelector")
    if kind == CLUSTER_KIND:
        check_label_selector(found, spec.get("namespaceSelector"), "spec.namespaceSelector")
    elif spec.get("namespaceSelector") is not None:
        found.forbidden("spec.namespaceSelector", f"only a {CLUSTER_KIND} selects namespaces")
    _check_conditions(found, spec.get("matchConditions"), "spec.matchConditions")
    check_labels(found, spec.get("nodeSelector"), "spec.nodeSelector")
    node_name = found.read_text(spec.get("nodeName"), "spec.nodeName")
    if node_name:
        check_subdomain(found, node_name, "spec.nodeName")
    check_affinity(found, spec.get("affinity"), "spec.affinity")
    check_tolerations(found, spec.get("tolerations"), "spec.tolerations")
    check_spread_constraints(found, spec.get("topologySpreadConstraints"), "spec.topologySpreadConstraints")
    _check_names(found, spec)
    _check_behaviour(found, spec)
    _check_spread(found, spec)
    _check_release(found, spec)


def _check_conditions(found: Problems, value: Any, path: str) -> None:
    conditions = found.read_object(value, path)
    exclude = found.read_object(conditions.get("exclude"), f"{path}.exclude")
    for name in _LISTS:
        found.read_texts(conditions.get(name), f"{path}.{name}")
        found.read_texts(exclude.get(name), f"{path}.exclude.{name}")
    for name, at in found.items(exclude.get("namespaces"), f"{path}.exclude.namespaces"):
        check_namespace(found, str(name), at)
    check_label_selector(found, exclude.get("podSelector"), f"{path}.exclude.podSelector")


def _check_names(found: Problems, spec: JsonObject) -> None:
    one = found.read_text(spec.get("schedulerName"), "spec.schedulerName")
    several = found.read_list(spec.get("schedulerNames"), "spec.schedulerNames")
    if one and several:
        found.forbidden("spec.schedulerNames", "may not be specified together with `schedulerName`")
    names: set[str] = set()
    for name, at in found.items(several, "spec.schedulerNames"):
        check_subdomain(found, str(name), at)
        if str(name) in names:
            found.add(ErrorType.DUPLICATE, at, "", name)
        names.add(str(name))
    priority_class = found.read_text(spec.get("priorityClassName"), "spec.priorityClassName")
    if priority_class:
        check_subdomain(found, priority_class, "spec.priorityClassName")
    seen: set[str] = set()
    for gate, at in found.objects(spec.get("schedulingGates"), "spec.schedulingGates"):
        name = found.read_text(gate.get("name"), f"{at}.name")
        check_label_key(found, name, f"{at}.name")
        if name in seen:
            found.add(ErrorType.DUPLICATE, f"{at}.name", "", name)
        seen.add(name)
    if seen and spec.get("nodeName"):
        found.forbidden("spec.schedulingGates", "a pod with a node may have no gate: leave out `nodeName`")


def _check_behaviour(found: Problems, spec: JsonObject) -> None:
    for moment, at in found.items(spec.get("when"), "spec.when"):
        found.read_choice(moment, at, list(Moment))
    if spec.get("when") == []:
        found.required("spec.when", "must name at least one moment")
    found.read_choice(spec.get("targets"), "spec.targets", ("Pods", "Templates", "Both"))
    found.read_choice(spec.get("conflictPolicy"), "spec.conflictPolicy", ("KeepPod", "Override", "Reject"))
    found.read_choice(spec.get("failurePolicy"), "spec.failurePolicy", ("Ignore", "Fail"))
    found.read_choice(spec.get("mode"), "spec.mode", ("Enforce", "Audit"))
    found.read_number(spec.get("priority"), "spec.priority", -_INT32 - 1, _INT32)


_LIMITED: Final = {
    "pod_bytes": "spec",
    "affinity_terms": "spec.affinity",
    "topology_spread_constraints": "spec.topologySpreadConstraints",
    "namespaces": "spec.affinity",
    "label_requirements": "spec.affinity",
    "node_selector_terms": "spec.affinity.nodeAffinity",
    "node_requirements": "spec.affinity.nodeAffinity",
    "selector_values": "spec.affinity",
    "tolerations": "spec.tolerations",
}


def _check_limits(found: Problems, spec: JsonObject, limits: ConstraintLimits) -> None:
    """Rejects a policy above a limit of pods: every pod that it selects would be rejected."""
    for name, count in size_of(spec)._asdict().items():
        most = getattr(limits, name)
        if count > most:
            found.add(ErrorType.TOO_MANY, _LIMITED[name], f"{limit_name(name)} is {most}", count)


@cache
def limit_name(name: str) -> str:
    """The name of a limit in the configuration: ``limits.affinityTerms``."""
    first, *rest = name.split("_")
    return f"limits.{first}{''.join(part.capitalize() for part in rest)}"


# -- the block `release`: how groups of gated pods are put together, placed and let go

GATE_PREFIX: Final = f"{GROUP}/"
MOST_PODS: Final = 10_000  # of a group
LONGEST_TIMEOUT: Final = 7 * 24 * 3600.0
_PATH: Final = "spec.release"
QUANTITY: Final = r"^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i)?$"
LONGEST_QUANTITY: Final = 24
_LONGEST_NAME: Final = 100  # of a resource, in an error
_CHOICES: Final = {
    "mode": ReleaseMode,
    "strategy": Strategy,
    "onTimeout": OnTimeout,
    "replacement": Replacement,
    "growth": Growth,
    "whenNoRoom": WhenNoRoom,
}
RELEASE_FIELDS: Final = (
    *("gate", "group", "size", "topology", "domains", "maxPerDomain", "exclusive", "decisionTimeout"),
    *_CHOICES,
)


def _check_release(found: Problems, spec: JsonObject) -> None:
    when = spec.get("when")
    acts = isinstance(when, list) and Moment.RELEASE in when
    if spec.get("release") is None:
        if acts:
            found.required(_PATH, "is needed where `when` contains Release")
        return
    if not acts:
        found.invalid(_PATH, spec["release"], "acts at release only, so `when` must contain Release")
    if spec.get("nodeName"):
        found.forbidden(_PATH, "a pod with a node may have no gate: leave out `nodeName`")
    release = found.read_object(spec["release"], _PATH)
    _check_gate(found, release.get("gate"))
    _check_group(found, release.get("group"))
    _check_size(found, release.get("size"))
    _check_topology(found, release.get("topology"))
    for name, choices in _CHOICES.items():
        found.read_choice(release.get(name), f"{_PATH}.{name}", list(choices))
    _check_flag(found, release, "exclusive", _PATH)
    _check_timeout(found, release.get("decisionTimeout"))
    found.read_number(release.get("maxPerDomain"), f"{_PATH}.maxPerDomain", 1, MOST_PODS_OF_QUOTA)
    _check_domains(found, release)
    _check_stays(found, release)


def _check_gate(found: Problems, value: Any) -> None:
    """The admission policy of deploy/base lets the extender remove no other gates."""
    path = f"{_PATH}.gate"
    gate = found.read_text(value, path)
    if gate and not gate.startswith(GATE_PREFIX):
        found.invalid(path, gate, f"must begin with {GATE_PREFIX}: the extender removes no other gates")
    elif value is not None and isinstance(value, str):
        check_label_key(found, gate, path)


def _only_one(found: Problems, value: Any, path: str, names: tuple[str, ...]) -> JsonObject | None:
    """The object if it has exactly one of the fields; None where there is nothing more to check."""
    if value is None:
        return None
    chosen = found.read_object(value, path)
    if len(chosen) != 1 or not chosen.keys() <= set(names):
        found.invalid(path, value, f"must have exactly one of the fields {', '.join(names)}")
        return None
    return chosen


def _check_group(found: Problems, value: Any) -> None:
    path = f"{_PATH}.group"
    group = _only_one(found, value, path, ("label", "owner"))
    if group and "label" in group:
        check_label_key(found, found.read_text(group["label"], f"{path}.label"), f"{path}.label")
    elif group and group["owner"] is not True:
        found.not_supported(f"{path}.owner", group["owner"], ("true",))


def _check_size(found: Problems, value: Any) -> None:
    path = f"{_PATH}.size"
    size = _only_one(found, value, path, ("count", "label", "annotation"))
    if size and "count" in size:
        if found.read_number(size["count"], f"{path}.count", 1, MOST_PODS) is None and size["count"] is None:
            found.required(f"{path}.count", "")
    elif size:
        ((name, key),) = size.items()
        check_label_key(found, found.read_text(key, f"{path}.{name}"), f"{path}.{name}")


def _check_topology(found: Problems, value: Any) -> None:
    path = f"{_PATH}.topology"
    keys = found.read_texts(value, path)
    if not keys:
        found.required(path, "must name at least one label key of nodes")
    if len(keys) > MOST_LEVELS:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_LEVELS} items", len(keys))
    for number, key in enumerate(keys[: MOST_LEVELS + 1]):
        check_label_key(found, key, f"{path}[{number}]")
        if key in keys[:number]:
            found.add(ErrorType.DUPLICATE, f"{path}[{number}]", "", key)


def _check_domains(found: Problems, release: JsonObject) -> None:
    """The listed domains. A value is in one of them only, so that it is clear where a pod counts."""
    path, domains = f"{_PATH}.domains", release.get("domains")
    if domains is None:
        if release.get("strategy") == Strategy.IN_ORDER:
            found.required(path, "is needed where `strategy` is InOrder")
        return
    listed = found.read_list(domains, path)
    if not listed:
        found.required(path, "must list at least one domain")
    if len(listed) > MOST_DOMAINS:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_DOMAINS} items", len(listed))
    names: set[str] = set()
    places: dict[str, str] = {}
    for domain, at in found.objects(listed[:MOST_DOMAINS], path):
        name = found.read_text(domain.get("name"), f"{at}.name")
        check_namespace(found, name, f"{at}.name")  # a DNS label, as the name of a namespace is
        if name in names:
            found.add(ErrorType.DUPLICATE, f"{at}.name", "", name)
        names.add(name)
        values = _check_values_of_domain(found, domain, at)
        _check_quota(found, domain.get("quota"), f"{at}.quota")
        _check_flag(found, domain, "mayGrow", at)
        _check_brought(found, domain.get("tolerations"), f"{at}.tolerations")
        for value in values:
            if places.setdefault(value, at) != at:
                found.invalid(f"{at}.values", value, f"is a value of {places[value]} too")
        if len(values) > 1 and len(found.read_texts(release.get("topology"), f"{_PATH}.topology")) > 1:
            found.invalid(f"{at}.values", values, "may be several only where `topology` has one key")


def _check_brought(found: Problems, tolerations: Any, path: str) -> None:
    check_tolerations(found, tolerations, path)
    if isinstance(tolerations, list) and len(tolerations) > MOST_TOLERATIONS:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_TOLERATIONS} items", len(tolerations))


def _check_quota(found: Problems, value: Any, path: str) -> None:
    if value is None:
        return
    quota = found.read_object(value, path)
    if not quota or not quota.keys() <= {"pods", "resources"}:
        found.invalid(path, value, "must have pods or resources, and nothing else")
    found.read_number(quota.get("pods"), f"{path}.pods", 0, MOST_PODS_OF_QUOTA)
    resources = found.read_strings(quota.get("resources"), f"{path}.resources")
    if len(resources) > MOST_RESOURCES:
        found.add(ErrorType.TOO_MANY, f"{path}.resources", f"must have at most {MOST_RESOURCES} items", len(resources))
    for name, amount in list(resources.items())[:MOST_RESOURCES]:
        at = f"{path}.resources.{name[:_LONGEST_NAME]}"
        if name == PODS:
            found.invalid(at, amount, "is not a resource here: use `pods` of the quota")
        elif not is_label_key(name):
            found.invalid(at, name, "not the name of a resource")
        elif len(amount) > LONGEST_QUANTITY or not re.match(QUANTITY, amount):
            found.invalid(at, amount, 'not a quantity that is at least 0, such as "4", 500m or 16Gi')


def _check_flag(found: Problems, fields: JsonObject, name: str, path: str) -> None:
    if not isinstance(fields.get(name, False), bool):
        found.add(ErrorType.TYPE_INVALID, f"{path}.{name}", "must be true or false", fields[name])


def _check_values_of_domain(found: Problems, domain: JsonObject, at: str) -> list[str]:
    values = _check_values(found, domain.get("values"), f"{at}.values")
    if not values:
        found.required(f"{at}.values", "must list at least one value")
    for value in _check_values(found, domain.get("preferred"), f"{at}.preferred"):
        if value not in values:
            found.invalid(f"{at}.preferred", value, f"is none of {at}.values")
    return values


def _check_values(found: Problems, value: Any, path: str) -> list[str]:
    values = found.read_texts(value, path)
    if len(values) > MOST_VALUES:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_VALUES} items", len(values))
    for number, each in enumerate(values[:MOST_VALUES]):
        if not each or not is_label_value(each):
            found.invalid(f"{path}[{number}]", each, "not a valid label value, or empty")
        elif each in values[:number]:
            found.add(ErrorType.DUPLICATE, f"{path}[{number}]", "", each)
    return values[:MOST_VALUES]


def _check_stays(found: Problems, release: JsonObject) -> None:
    """What would let pods go past the domains that are listed, or past what each may have; and where they may wait for nodes."""
    limit = next((name for name in ("domains", "maxPerDomain") if release.get(name) is not None), "")
    if limit and release.get("mode") == ReleaseMode.PREFERRED:
        found.invalid(f"{_PATH}.mode", "Preferred", f"would release groups outside of `{limit}`")
    if limit and release.get("onTimeout") not in (None, OnTimeout.KEEP_GATED):
        found.invalid(f"{_PATH}.onTimeout", release["onTimeout"], f"would release groups outside of `{limit}`")
    domains = release.get("domains")
    listed = domains if isinstance(domains, list) else ()
    may_grow = any(isinstance(each, dict) and each.get("mayGrow") is True for each in listed)
    if release.get("whenNoRoom") == WhenNoRoom.RELEASE and not may_grow:
        found.invalid(f"{_PATH}.whenNoRoom", "Release", "needs a domain with `mayGrow: true`")


def _check_timeout(found: Problems, value: Any) -> None:
    path = f"{_PATH}.decisionTimeout"
    text = found.read_text(value, path)
    if value is None or (found.errors and found.errors[-1].field == path):
        return
    try:
        seconds = Duration.parse(text)
    except ValueError as error:
        found.invalid(path, text, str(error))
        return
    if not 0 < seconds <= LONGEST_TIMEOUT:
        found.invalid(path, text, "must be more than 0 and at most 168h")


# -- the block `spread`: what is meant by the spread constraints that pods have

MOST_SPREAD: Final = 16  # topology keys of one policy
DEFAULT_AFTER: Final = "5m"
LONGEST_AFTER: Final = 24 * 3600.0
_LATER_FIELDS: Final = ("unavailableDomains", "after", "fullDomains", "deletionCost")
SPREAD_FIELDS: Final = ("topologyKey", "matchLabelKeys", "minDomains", *_LATER_FIELDS)
SPREAD_WORDS: Final = ("IfMissing", "Declared", "Keep", "Exclude", "Fullest")  # the constants among their values


def _check_spread(found: Problems, spec: JsonObject) -> None:
    """The directives by topology key. They change pods, whose labels are known, and never a template."""
    path = "spec.spread"
    listed = found.read_list(spec.get("spread"), path)
    if listed and spec.get("targets") == "Templates":
        found.forbidden(path, "acts on pods: `targets` must be Pods or Both")
    if len(listed) > MOST_SPREAD:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_SPREAD} items", len(listed))
    keys: set[str] = set()
    for each, at in found.objects(listed[:MOST_SPREAD], path):
        key = found.read_text(each.get("topologyKey"), f"{at}.topologyKey")
        check_label_key(found, key, f"{at}.topologyKey")
        if key in keys:
            found.add(ErrorType.DUPLICATE, at, "", key)
        keys.add(key)
        found.read_choice(each.get("matchLabelKeys"), f"{at}.matchLabelKeys", ("IfMissing",))
        _check_domain_rules(found, each, at)
        if any(each.get(name) for name in _LATER_FIELDS) and not _acts_at_scheduling(spec):
            found.invalid(at, key, "acts on pods that exist, so `when` must contain Scheduling")


def _acts_at_scheduling(spec: JsonObject) -> bool:
    when = spec.get("when")
    return not isinstance(when, list) or Moment.SCHEDULING in when


def _check_domain_rules(found: Problems, directive: JsonObject, at: str) -> None:
    least = directive.get("minDomains")
    if isinstance(least, str) and least != "Declared":
        found.not_supported(f"{at}.minDomains", least, ("Declared", "a number"))
    elif not isinstance(least, str):
        found.read_number(least, f"{at}.minDomains", 1, _INT32)
    for name in ("unavailableDomains", "fullDomains"):
        found.read_choice(directive.get(name), f"{at}.{name}", ("Keep", "Exclude"))
    found.read_choice(directive.get("deletionCost"), f"{at}.deletionCost", ("Fullest",))
    after = found.read_text(directive.get("after"), f"{at}.after")
    if not after:
        return
    if directive.get("unavailableDomains") != "Exclude":
        found.invalid(f"{at}.after", after, "is for `unavailableDomains: Exclude` only")
    _check_duration(found, after, f"{at}.after", 1.0, LONGEST_AFTER)


def _check_duration(found: Problems, text: str, path: str, least: float, most: float) -> None:
    try:
        seconds = Duration.parse(text)
    except ValueError as error:
        found.invalid(path, text, str(error))
        return
    if not least <= seconds <= most or not float(seconds).is_integer():
        found.invalid(path, text, f"must be whole seconds from {Duration(least)} to {Duration(most)}")

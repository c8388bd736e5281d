"""Reviews of policy objects. An invalid policy is refused with all of its errors; a valid one may get warnings.

A warning is about something legal that is probably a mistake. The API server shows it to the author. A review costs
O(policies + nodes), which is fine because policies are seldom written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, Protocol

from extender.index.policies import PoliciesView
from extender.model.constraints.clauses import LABEL, Clause, are_contradictory, clause
from extender.model.constraints.labels import Labels, Operator, is_label_value
from extender.model.constraints.node_affinity import ANY_NODE, NodeAffinity, NodeRequirement, NodeSelectorTerm, as_int64
from extender.model.constraints.selectors import LabelSelector
from extender.model.policies import CLUSTER_KIND, GROUP, Directives, JsonObject, Moment, Policy
from extender.model.release import NoRoom, ReleaseSpec
from extender.model.resources import PODS
from extender.settings.configuration import Settings
from extender.verbs.admit.reviews import FORBIDDEN, TOO_LARGE, Request, allowed, denied, invalid
from extender.verbs.admit.term_product import AdmissionBudget, TooManyTermsError, join, policy_terms
from extender.wire.policies.field_errors import FieldError, Problems
from extender.wire.policies.node_terms import NODE_TERMS, POD_TERMS, SPREAD, WEIGHTED_POD_TERMS, value_at
from extender.wire.policies.policies_v1 import read_policy
from extender.wire.policies.policy_fields import unknown_elsewhere, unknown_in_pods
from extender.wire.policies.policy_validation import validate


class NodeReader(Protocol):
    """The nodes of the cluster."""

    def are_matched(self, affinity: NodeAffinity) -> bool | None:
        """Whether an affinity matches any node now. None where that is not known, or takes too long to find out."""


LabelsOf = Callable[[str], Labels | None]
"""The labels of a namespace by its name, None where they are not known."""


# etcd's default --max-request-bytes. https://etcd.io/docs/v3.5/dev-guide/limit/
MAX_POLICY_BYTES: Final = 1536 * 2**10


def too_large_policy(uid: str, group: object, size: int, old_size: int) -> JsonObject | None:
    """The denial of a new policy that etcd cannot store, by the sizes of the objects in bytes. None for any other object.

    A policy that was stored with such a size before is reviewed.
    """
    if group != GROUP or size <= MAX_POLICY_BYTES or old_size > MAX_POLICY_BYTES:
        return None
    text = f"the policy has {size} bytes; etcd stores at most {MAX_POLICY_BYTES} bytes of an object"
    return denied(uid, TOO_LARGE, text)


def review_policy(
    request: Request, policies: PoliciesView, labels_of: LabelsOf, nodes: NodeReader | None, settings: Settings
) -> JsonObject:
    """The answer to the creation or update of a policy.

    An update that leaves the spec unchanged is not refused for errors of the spec. The policy may have been stored under an older
    schema, and it must be possible to remove its finalizers nevertheless.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.subresource:
        return allowed(request.uid)
    # 1. The number of policies. 2. Errors; an unchanged spec is exempt. 3. Warnings, only about a valid policy.
    kind, limits = str(request.kind.get("kind")), settings.limits
    place = "" if kind == CLUSTER_KIND else request.namespace
    if request.operation == "CREATE" and policies.count_of(place) >= policies.most(place):
        return denied(request.uid, FORBIDDEN, f"with this one {policies.above(place)}")
    errors = validate(request.obj, limits, kind=kind)
    # Such as a change of labels, of the status, or of finalizers by the garbage collector.
    is_old = request.operation == "UPDATE" and request.obj.get("spec") == request.old.get("spec")
    # Unknown fields inside of pod fields are errors, because they would be injected into pods; elsewhere they are warnings. Not for an
    # unchanged spec: an older version may have accepted them.
    if not errors and not is_old:
        errors = _unknown_in_pods(request.obj.get("spec") or {})
    if errors and is_old:
        # Errors in metadata are new even if the spec is old.
        errors, stored = [error for error in errors if not error.field.startswith("spec")], errors
        if not errors:
            return allowed(request.uid, warnings=[f"{error}; the policy is not in effect" for error in stored])
    if errors:
        return invalid(request, errors, warnings=_unknown_fields(request.obj.get("spec")))
    version = f"{request.kind.get('group')}/{request.kind.get('version')}"
    policy = read_policy({**request.obj, "apiVersion": version}, limits, kind=kind)
    warnings = [*_warnings_of(policy, request.obj.get("spec") or {}, policies, labels_of, nodes)]
    if not settings.decides_spread:
        warnings += _without_effect(policy.directives)
    if policy.execution is not None and settings.mode == "augment":
        warnings.append(_AUGMENT)
    return allowed(request.uid, warnings=warnings)


_AUGMENT: Final = (
    "spec.execution: in mode augment only node affinity is watched, and what policies direct about other pods"
)
_MOST_CONTRADICTIONS: Final = 5
_MOST_TERMS: Final = 1000
_MOST_UNKNOWN: Final = 100  # more are not shown


def _warnings_of(
    policy: Policy, spec: JsonObject, policies: PoliciesView, labels_of: LabelsOf, nodes: NodeReader | None
) -> Iterator[str]:
    """All warnings about a policy. ``spec``: the JSON from which it was read."""
    yield from _own_warnings(policy, spec)
    if (
        nodes is not None
        and policy.directives.nodes != ANY_NODE
        and nodes.are_matched(policy.directives.nodes) is False
    ):
        yield "spec: no node matches the node selector and the required node affinity now"
    yield from _missing_levels(policy, nodes)
    yield from _contradictions(policy, policies, labels_of)


def _without_effect(directives: Directives) -> Iterator[str]:
    for number, directive in enumerate(directives.spread):
        if directive.leaves_out:
            yield f"spec.spread[{number}]: excludes no domain, as kube-scheduler's plugin decides spread in this installation"


def _missing_levels(policy: Policy, nodes: NodeReader | None) -> Iterator[str]:
    """Warns of topology keys that no node has: no pod group can be released into a domain of such a key."""
    for number, key in enumerate(policy.release.topology if policy.release is not None else ()):
        term = NodeSelectorTerm((NodeRequirement(key, Operator.EXISTS),))
        # `is False`: None means that the nodes are not known, which is no reason to warn.
        if nodes is not None and nodes.are_matched(NodeAffinity(terms=(term,))) is False:
            yield f"spec.release.topology[{number}]: no node has the label {key} now"


def _own_warnings(policy: Policy, spec: JsonObject) -> Iterator[str]:
    scope, directives = policy.scope, policy.directives
    yield from _unknown_fields(spec)
    if scope.pod_selector.nothing:
        yield "spec.podSelector: is absent, so the policy selects no pod; {} selects all"
    if scope.namespace_selector.nothing:
        yield "spec.namespaceSelector: is absent, so the policy selects no namespace; {} selects all"
    if directives.is_empty and policy.release is None and policy.execution is None:
        yield "spec: the policy directs nothing"
    elif policy.when == {Moment.RELEASE} and not directives.is_empty:
        yield "spec.when: the directives have no effect at release, only `release` has"
    if directives.node_name:
        yield "spec.nodeName: pods with a node name bypass the scheduler: no room is checked, and no constraint"
    if directives.soft_min_domains and Moment.SCHEDULING not in policy.when:
        yield f"spec.{SPREAD}: minDomains with ScheduleAnyway is scored by the extender only: `when` lacks Scheduling"
    yield from _node_requirement_warnings(spec)
    yield from _impossible(directives)
    yield from _quota_warnings(spec)
    if policy.release is not None:
        yield from islice(_domain_warnings(policy.release), _MOST_CONTRADICTIONS)


def _domain_warnings(release: ReleaseSpec) -> Iterator[str]:
    """Warns of quotas that contradict each other or the size of a pod group; and of a mayGrow that has no effect."""
    path, size = "spec.release", release.size.count
    if release.max_per_domain and release.max_per_domain < size:
        yield f"{path}.maxPerDomain: is less than the size {size}, so no group is ever released"
    for number, domain in enumerate(release.domains):
        at, pods = f"{path}.domains[{number}]", dict(domain.quota).get(PODS)
        if pods is not None and pods < size:
            yield f"{at}.quota.pods: is less than the size {size}, so no group gets the domain"
        elif pods is not None and 0 < release.max_per_domain < pods:
            yield f"{at}.quota.pods: has no effect, maxPerDomain is lower"
        if domain.may_grow and not release.does(NoRoom.GROWING_DOMAIN):
            yield f"{at}.mayGrow: has no effect without the action GrowingDomain in noRoom"


def _unknown_fields(spec: Any) -> Iterator[str]:
    """Warns of unknown fields, in alphabetical order as the API server does."""
    for path in sorted(islice(unknown_elsewhere(spec), _MOST_UNKNOWN)):
        yield f"{path}: unknown field, it has no effect"


def _unknown_in_pods(spec: JsonObject) -> list[FieldError]:
    problems = Problems()
    for path in islice(unknown_in_pods(spec), _MOST_UNKNOWN):
        problems.forbidden(path, "unknown field")
    return problems.errors


def _node_requirement_warnings(spec: JsonObject) -> Iterator[str]:
    for at, item in _requirements(spec):
        values = [value for value in item.get("values") or () if isinstance(value, str)]
        if item.get("operator") in ("Gt", "Lt") and any(as_int64(value) is None for value in values):
            yield f"{at}: {item['operator']} needs an integer, no node matches {values[0][:64]!r}"
        elif any(not is_label_value(value) for value in values):
            yield f"{at}: a value is no label value, so no node can have it"


def _requirements(spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for number, term in enumerate(value_at(spec, f"{NODE_TERMS}.nodeSelectorTerms") or ()):
        for at, item in enumerate(term.get("matchExpressions") or ()):
            yield f"spec.{NODE_TERMS}.nodeSelectorTerms[{number}].matchExpressions[{at}]", item


def _impossible(directives: Directives) -> Iterator[str]:
    terms = directives.required_node_terms
    pairs = _pairs(directives)
    if terms and all(not term.clauses or are_contradictory([*term.clauses, *pairs]) for term in terms):
        yield "spec.affinity.nodeAffinity: no node can match the required terms together with the node selector"


def _pairs(directives: Directives) -> list[Clause]:
    return [clause(LABEL, key, "In", (value,)) for key, value in directives.node_selector.items()]


def _quota_warnings(spec: JsonObject) -> Iterator[str]:
    """Warns of terms over other namespaces: pods with them are charged to quotas with the scope CrossNamespacePodAffinity.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#cross-namespace-pod-affinity-scope
    """
    for path in (*POD_TERMS, *WEIGHTED_POD_TERMS):
        for number, item in enumerate(value_at(spec, path) or ()):
            term = item.get("podAffinityTerm") if path in WEIGHTED_POD_TERMS else item
            if isinstance(term, dict) and (term.get("namespaces") or term.get("namespaceSelector") is not None):
                yield f"spec.{path}[{number}]: crosses namespaces, so each pod is charged to quotas with scope CrossNamespacePodAffinity"
                break


def _contradictions(policy: Policy, policies: PoliciesView, labels_of: LabelsOf) -> Iterator[str]:
    """Warns of policies that may select the same pod and direct the opposite. Node terms are compared within one budget."""
    count, budget = 0, AdmissionBudget()
    for other in policies:
        where = contradiction_between(policy, other, labels_of, budget) if other.key != policy.key else ""
        if where:
            winner = min(policy, other, key=lambda candidate: candidate.order)
            yield f"{where}: contradicts {_name(other)} for pods that both select; {_name(winner)} applies first"
            count += 1
            if count == _MOST_CONTRADICTIONS:
                return


def contradiction_between(one: Policy, other: Policy, labels_of: LabelsOf, budget: AdmissionBudget) -> str:
    """The field in which two policies that may select the same pod direct the opposite; empty where there is none.

    A namespaced policy is compared with a cluster-wide one only if that selects the namespace by its labels. Otherwise a tenant
    could find out, by guessing, what policies direct for other tenants.

    About 2 µs for policies that do not contradict each other. Node terms are compared only if they are about the same labels, and
    within the budget. Without a budget one policy of 64 terms among 1,999 others of 64 terms took 10 s.
    """
    where = _contradiction(one.directives, other.directives, budget)
    if one.release is not None and other.release is not None and one.release != other.release:
        where = "spec.release"
    # The directives first: most policies direct different things, and selectors are compared only for the rest.
    return where if where and _may_meet(one, other, labels_of) else ""


def _name(policy: Policy) -> str:
    return str(policy.key) if policy.key.group == GROUP else f"kupid's {policy.key}"


def _may_meet(one: Policy, other: Policy, labels_of: LabelsOf) -> bool:
    """Whether a pod can exist that both policies select, at the same moment. Match conditions are not compared."""
    mine, its = one.scope, other.scope
    if not one.when & other.when or (mine.namespace and its.namespace and mine.namespace != its.namespace):
        return False
    for cluster, namespace in ((mine, its.namespace), (its, mine.namespace)):
        if namespace and not cluster.namespace:
            labels = labels_of(namespace)
            # A namespaced policy has no namespaceSelector. Whether both meet depends on the labels of its namespace.
            if labels is None or not cluster.namespace_selector.matches(labels):
                return False
    return _can_both(mine.pod_selector, its.pod_selector) and _can_both(mine.namespace_selector, its.namespace_selector)


def _can_both(one: LabelSelector, other: LabelSelector) -> bool:
    clauses = [
        Clause(LABEL, requirement.key, str(requirement.operator), requirement.values)
        for requirement in (*one.requirements, *other.requirements)
    ]
    return not (one.nothing or other.nothing or are_contradictory(clauses))


def _contradiction(mine: Directives, its: Directives, budget: AdmissionBudget) -> str:
    """The field in which the directives are opposite; empty where there is none."""
    if mine.scalars and its.scalars:
        for name in sorted(mine.scalars.keys() & its.scalars.keys()):
            if set(mine.scalars[name]).isdisjoint(its.scalars[name]):
                return f"spec.{name}"
    # Requirements on different labels never contradict each other. This ends most comparisons.
    if mine.node_keys.isdisjoint(its.node_keys):
        return ""
    for key, value in mine.node_selector.items():
        if its.node_selector.get(key, value) != value:
            return f"spec.nodeSelector[{key}]"
    return "spec.affinity.nodeAffinity" if _exclude_each_other(mine, its, budget) else ""


def _exclude_each_other(mine: Directives, its: Directives, budget: AdmissionBudget) -> bool:
    one, two = mine.required_node_terms, its.required_node_terms
    pairs = [*_pairs(mine), *_pairs(its)]
    if one is None or two is None:
        terms = one or two or ()
        is_compared = bool(terms) and budget.spend(len(terms))
        return is_compared and all(are_contradictory([*term.clauses, *pairs]) for term in terms)
    try:
        joined = join(policy_terms(one), two, _MOST_TERMS, budget)
    except TooManyTermsError:
        return False
    return all(are_contradictory([*term.clauses, *pairs]) for term in joined)

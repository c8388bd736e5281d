"""Decodes scheduling policies of the extender's API group and of kupid's.

A policy that the API server holds may still be invalid: it may have been stored before the webhook existed, or under an
older schema. Then decoding raises `PolicyError` with every field error, and what can be said of the policy nevertheless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson

from extender.features.execution.directive import PAUSED_ANNOTATION
from extender.features.execution.schema import moves_of_status, read_execution
from extender.model.constraints.directed import Element
from extender.model.constraints.node_affinity import NodeAffinity, NodeSelectorTerm, node_selector
from extender.model.constraints.selectors import EVERYTHING, NOTHING, LabelSelector, parse_selector, requirement
from extender.model.constraints.spread import SpreadDirective
from extender.model.policies import (
    CLUSTER_KIND,
    GROUP,
    KUPID_GROUP,
    VERSION,
    ConflictPolicy,
    Directives,
    Exclusion,
    FailurePolicy,
    InvalidPolicy,
    Items,
    JsonObject,
    MatchConditions,
    Moment,
    NodeTerm,
    Policy,
    PolicyKey,
    PolicyObject,
    PolicyScope,
    Targets,
)
from extender.model.release import (
    Domain,
    GroupSize,
    NoRoom,
    NoRoomAction,
    ReleaseSpec,
    brought_toleration,
    default_after,
)
from extender.model.resources import PODS, parse_resources
from extender.model.units import Duration
from extender.settings.limits import ConstraintLimits
from extender.wire.errors import WireError, from_msgspec
from extender.wire.objects.constraints import DEFAULT_LIMITS, parse_affinity
from extender.wire.objects.objects_json import PolicyJson, PolicyMetaJson
from extender.wire.policies.field_errors import FieldError
from extender.wire.policies.node_terms import (
    LISTS,
    NODE_TERMS,
    POD_TERMS,
    PREFERRED_NODES,
    SPREAD,
    WEIGHTED_POD_TERMS,
    directed_item,
    directed_term,
    normal_form,
    value_at,
)
from extender.wire.policies.policy_schema import DEFAULT_AFTER, SPEC
from extender.wire.policies.policy_validation import validate
from extender.wire.policies.release_schema import DOMAIN, RELEASE, SIZE
from extender.wire.policies.schema import reader_of

_PAUSED: Final = f'"{PAUSED_ANNOTATION}"'.encode()
_DEFAULT_WHEN: Final = ("Admission", "Scheduling")


class PolicyError(ValueError):
    """Raised for an invalid policy. ``invalid`` has its name and the parts that could be decoded."""

    def __init__(self, invalid: InvalidPolicy, errors: list[FieldError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.invalid = invalid
        self.errors = tuple(errors)


def decode_policy(body: bytes, limits: ConstraintLimits = DEFAULT_LIMITS, *, kind: str = "") -> Policy:
    """One policy as the API server sends it; raises ``WireError`` where it is no JSON object, else ``PolicyError``.

    ``kind``: the kind of a list's items, which do not name it themselves.
    """
    try:
        found = orjson.loads(body)
    except ValueError:
        raise _unreadable(body) from None
    if not isinstance(found, dict):
        raise WireError("", "expected an object")
    return read_policy(found, limits, kind=kind)


def _unreadable(body: bytes) -> WireError:
    """Converts the error of bytes that orjson rejects to the text of the other decoders."""
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return from_msgspec(error)
    return WireError("", "is no JSON that can be read")


def read_policy(found: JsonObject, limits: ConstraintLimits = DEFAULT_LIMITS, *, kind: str = "") -> Policy:
    """Builds a policy from parsed JSON. The policy keeps parts of the JSON. Raises ``PolicyError``."""
    kind = kind or str(found.get("kind") or "")
    errors = validate(found, limits, kind=kind)
    group = _group(found)
    if errors:
        raise PolicyError(_invalid(found, group, errors), errors)
    metadata, spec = found.get("metadata") or {}, found.get("spec") or {}
    behaviour = _read_behaviour(spec)
    # kupid has no such fields: its behaviour is fixed.
    if group == KUPID_GROUP:  # kupid mutates templates, and pods if its webhook is called for them
        behaviour |= {"targets": Targets.BOTH, "conflict_policy": ConflictPolicy.COMBINE}
    return Policy(
        key=_key(metadata, group),
        scope=_scope(metadata.get("namespace") or "", spec, kind),
        directives=_directives(spec),
        generation=_generation(metadata),
        release=_release(spec),
        execution=read_execution(spec, metadata.get("annotations") or {}),
        **behaviour,
    )


def trim_policy(raw: PolicyJson, limits: ConstraintLimits, kind: str, group: str) -> PolicyObject:
    """A watched policy, without its resourceVersion. Of its status only moves are kept: the rest changes no decision."""
    meta = raw.metadata or PolicyMetaJson()
    metadata: JsonObject = {"name": meta.name, "namespace": meta.namespace, "generation": meta.generation}
    if _PAUSED in bytes(meta.annotations):  # other annotations are not kept, because they decide nothing
        metadata["annotations"] = {PAUSED_ANNOTATION: ""}
    found = {"apiVersion": f"{group}/{VERSION}", "kind": kind, "metadata": metadata, "spec": raw.spec}
    moves = moves_of_status(bytes(raw.status))
    try:
        return PolicyObject(read_policy(found, limits, kind=kind), found, moves)
    except PolicyError as error:
        return PolicyObject(error.invalid, found, moves)


def _group(found: JsonObject) -> str:
    version = found.get("apiVersion")
    return version.rpartition("/")[0] if isinstance(version, str) and "/" in version else GROUP


def _key(metadata: JsonObject, group: str) -> PolicyKey:
    # At admission an object with generateName has no name yet.
    name = metadata.get("name") or f"{metadata.get('generateName') or ''}*"
    return PolicyKey(group, str(metadata.get("namespace") or ""), str(name))


def _generation(metadata: JsonObject) -> int:
    generation = metadata.get("generation")
    return generation if isinstance(generation, int) else 0


def _invalid(found: JsonObject, group: str, errors: list[FieldError]) -> InvalidPolicy:
    """The usable parts of a policy with errors: its scope, if that has no errors, and its failure policy."""
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    spec = found.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    unsure = ("spec.podSelector", "spec.namespaceSelector", "spec.matchConditions", "metadata.namespace", "kind")
    readable = isinstance(found.get("spec"), dict) and not any(each.field.startswith(unsure) for each in errors)
    key = _key(metadata, group)
    kind = str(found.get("kind") or CLUSTER_KIND)
    return InvalidPolicy(
        key=key,
        errors=tuple(map(str, errors)),
        failure_policy=FailurePolicy.FAIL if _must_not_be_missed(spec) else FailurePolicy.IGNORE,
        when=_moments(spec),
        scope=_scope(key.namespace, spec, kind) if readable else None,
        generation=_generation(metadata),
    )


def _must_not_be_missed(spec: JsonObject) -> bool:
    """Whether pods are rejected while the policy cannot be applied. A policy that only audits never rejects a pod."""
    return spec.get("failurePolicy") == "Fail" and spec.get("mode") != "Audit"


def _moments(spec: JsonObject) -> frozenset[Moment]:
    """The moments of an invalid policy; all of them where the list cannot be read."""
    when = spec.get("when") or _DEFAULT_WHEN
    known = {str(each) for each in Moment}
    if not isinstance(when, list | tuple) or not all(isinstance(each, str) and each in known for each in when):
        return frozenset(Moment)
    return frozenset(map(Moment, when))


def _scope(namespace: str, spec: JsonObject, kind: str) -> PolicyScope:
    conditions = spec.get("matchConditions") or {}
    return PolicyScope(
        namespace=namespace,
        pod_selector=_selector(spec.get("podSelector")),
        namespace_selector=_selector(spec.get("namespaceSelector")) if kind == CLUSTER_KIND else EVERYTHING,
        conditions=MatchConditions(**_lists(conditions), exclude=_exclusion(conditions.get("exclude") or {})),
    )


def _exclusion(exclude: JsonObject) -> Exclusion:
    return Exclusion(
        pod_selector=_selector(exclude.get("podSelector")),
        namespaces=frozenset(exclude.get("namespaces") or ()),
        **_lists(exclude),
    )


def _lists(conditions: JsonObject) -> dict[str, Any]:
    return {
        "owner_kinds": frozenset(conditions.get("ownerKinds") or ()),
        "service_accounts": frozenset(conditions.get("serviceAccounts") or ()),
        "priority_classes": frozenset(conditions.get("priorityClassNames") or ()),
    }


def _selector(value: JsonObject | None) -> LabelSelector:
    """Decodes a validated selector; an absent one selects nothing."""
    if value is None:
        return NOTHING
    clauses = [
        requirement(each.get("key") or "", each.get("operator") or "", each.get("values") or ())
        for each in value.get("matchExpressions") or ()
    ]
    return parse_selector(value.get("matchLabels") or {}, clauses)


def _directives(spec: JsonObject) -> Directives:
    names = spec.get("schedulerNames") or ([spec["schedulerName"]] if spec.get("schedulerName") else [])
    terms = value_at(spec, f"{NODE_TERMS}.nodeSelectorTerms")
    affinity = orjson.dumps(spec["affinity"]) if spec.get("affinity") else b""
    pairs = spec.get("nodeSelector") or {}
    # The namespace of the pod is not known yet: a `DirectedTerm` says whether it covers this namespace.
    pods, (required, preferred) = parse_affinity(affinity, "")
    terms_of_pods = (pods.required, pods.required_anti, pods.preferred, pods.preferred_anti)
    parsed: dict[str, Sequence[Element]] = {PREFERRED_NODES: preferred}
    parsed |= zip((*POD_TERMS, *WEIGHTED_POD_TERMS), terms_of_pods, strict=True)
    # None: the policy requires nothing of nodes. An empty tuple would mean that no node matches.
    required_terms = None if terms is None else _required_terms(terms, required.terms or ())
    read = _read_directives(spec) | {"scheduler_names": tuple(names)}
    return Directives(
        node_selector=pairs,
        scheduling_gates=tuple(each["name"] for each in spec.get("schedulingGates") or ()),
        required_node_terms=required_terms,
        lists=_items(spec, parsed),
        soft_min_domains=tuple(
            directed_item(SPREAD, each, None) for each in spec.get(SPREAD) or () if is_soft_min_domains(each)
        ),
        spread=tuple(map(_spread_directive, spec.get("spread") or ())),
        nodes=NodeAffinity(node_selector(pairs), required.terms),
        preferred_nodes=preferred,
        node_keys=frozenset([*pairs, *(part.key for each in required_terms or () for part in each.clauses)]),
        **read,
    )


def _required_terms(values: list[JsonObject], parsed: Sequence[NodeSelectorTerm]) -> tuple[NodeTerm, ...]:
    """The terms in normal form. ``parsed``: each of the values as a value of the model."""
    selectors = {id(value): term for value, term in zip(values, parsed, strict=True)}
    return tuple(directed_term(term, selectors[id(term.value)]) for term in normal_form(values))


def _items(spec: JsonObject, parsed: Mapping[str, Sequence[Element]]) -> dict[str, Items]:
    """The lists. ``parsed``: the elements of terms as values of the model, by path."""
    found = {}
    for path in LISTS:
        values = [each for each in value_at(spec, path) or () if not (path == SPREAD and is_soft_min_domains(each))]
        # None: a toleration, a constraint, or a list that cannot be parsed, which validation rules out.
        elements: Sequence[Element | None] = parsed.get(path) or [None] * len(values)
        items = Items(directed_item(path, value, element) for value, element in zip(values, elements, strict=True))
        if items:
            found[path] = items
    return found


def is_soft_min_domains(constraint: JsonObject) -> bool:
    """Whether the API server would reject the constraint in a pod: minDomains needs DoNotSchedule (KEP-3022)."""
    return constraint.get("minDomains") is not None and constraint.get("whenUnsatisfiable") != "DoNotSchedule"


def _spread_directive(found: JsonObject) -> SpreadDirective:
    least = found.get("minDomains")
    excludes = found.get("unavailableDomains") == "Exclude"
    return SpreadDirective(
        topology_key=found["topologyKey"],
        completes_keys=found.get("matchLabelKeys") == "IfMissing",
        min_domains=least if isinstance(least, int) else 0,
        declared=least == "Declared",
        excludes_after=float(Duration.parse(found.get("after") or DEFAULT_AFTER)) if excludes else None,
        excludes_full=found.get("fullDomains") == "Exclude",
        deletion_cost=found.get("deletionCost") == "Fullest",
    )


def _release(spec: JsonObject) -> ReleaseSpec | None:
    """The block `release` of a valid spec; None without the block. Absent fields have the defaults of `ReleaseSpec`."""
    release = spec.get("release")
    if release is None:
        return None
    group, size = release.get("group") or {}, release.get("size") or {}
    return ReleaseSpec(
        group_label=group.get("label") or "",
        size=GroupSize(**_read_size(size)),
        domains=tuple(map(_domain, release.get("domains") or ())),
        **_read_release(release),
        no_room=tuple(map(_action, release.get("noRoom") or ())),
    )


def _action(step: JsonObject) -> NoRoomAction:
    action, after = NoRoom(step["action"]), step.get("after")
    return NoRoomAction(action, float(Duration.parse(after)) if after else default_after(action))


def _domain(domain: JsonObject) -> Domain:
    quota = domain.get("quota") or {}
    most = parse_resources(quota.get("resources") or {})
    if quota.get("pods") is not None:
        most[PODS] = quota["pods"]
    return Domain(
        quota=tuple(sorted(most.items())),
        tolerations=tuple(map(brought_toleration, domain.get("tolerations") or ())),
        **_read_domain(domain),
    )


# By the declaration; the rest is read above.
_read_behaviour: Final = reader_of(Policy, SPEC)
_read_directives: Final = reader_of(Directives, SPEC)
_read_release: Final = reader_of(ReleaseSpec, RELEASE)
_read_domain: Final = reader_of(Domain, DOMAIN)
_read_size: Final = reader_of(GroupSize, SIZE)

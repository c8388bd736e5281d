"""Converts API objects to model objects, with only the fields that decisions read.

A pod of 3.8 KB costs 5 µs if its template is known, else 30–60 µs. Equal raw bytes of labels, affinity, constraints,
selectors and tolerations are the same template, and equal raw bytes of resources are the same amounts, so replicas are
parsed once and share their objects. The caches are bounded in bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from extender.features.quotas.schema import quota_facts
from extender.model.bounded import SHARED_NAMES, BoundedCache, Steps, cached, shared
from extender.model.constraints.labels import NO_LABELS
from extender.model.constraints.selectors import NOTHING, LabelSelector, SelectorError, parse_selector
from extender.model.constraints.taints import NO_EXECUTE, NO_SCHEDULE, Taint
from extender.model.constraints.terms import NO_AFFINITY, PodAffinity
from extender.model.host_ports import ANY_ADDRESS, HostPort, HostPorts
from extender.model.objects import (
    DEFAULT_SCHEDULER,
    DELETION_COST,
    NO_FACTS,
    NO_RESOURCES,
    ON_ITS_WAY,
    DisruptionBudget,
    Excess,
    ExcludedDomain,
    Namespace,
    Node,
    Pod,
    PodSignature,
    TopologyDomains,
    Workload,
)
from extender.model.policies import DEFAULT_SERVICE_ACCOUNT, INJECTED_ANNOTATION
from extender.model.release import MOST_GATES, MOST_NUMBERS, RELEASED_ANNOTATION, Gating
from extender.model.units import read_time
from extender.settings.limits import ConstraintLimits
from extender.wire.objects.amounts import (
    OFFERED,
    REQUESTS,
    node_resources,
    summed,
)
from extender.wire.objects.constraints import (
    BUDGET_SELECTOR,
    DEFAULT_LIMITS,
    controller_of,
    decode,
    excess_bytes,
    excess_parts,
    excess_ports,
    held_by,
    parse_affinity,
    parse_label_selector,
    parse_owner,
    parse_spread,
    parse_strings,
    parse_tolerations,
    with_node_selector,
)
from extender.wire.objects.objects_json import (
    AnnotationsJson,
    BudgetJson,
    BudgetStatusJson,
    ConditionJson,
    MetaJson,
    NamespaceJson,
    NodeJson,
    NodeSpecJson,
    NodeStatusJson,
    PodJson,
    PodSpecJson,
    PodStatusJson,
    PortJson,
    TopologyDomainsJson,
    TopologyDomainsSpecJson,
    WorkloadJson,
)
from extender.wire.objects.resizes import request_parts, shown_resources

_NO_META = MetaJson()
_NO_SPEC = PodSpecJson()
_NO_STATUS = PodStatusJson()
_ANNOTATIONS = msgspec.json.Decoder(AnnotationsJson | None)
_RECORD: Final = INJECTED_ANNOTATION.encode()
_RELEASED: Final = RELEASED_ANNOTATION.encode()
_COST: Final = DELETION_COST.encode()
_LONGEST_COST: Final = 16  # characters: an int32 has 11
_NO_ANNOTATIONS = AnnotationsJson()
_NUMBER: Final = re.compile(r"[0-9]{1,6}")
_CONDITIONS = msgspec.json.Decoder(list[ConditionJson] | None)
_ABSENT = (b"", b"null", b"[]", b"{}")

Identity: TypeAlias = tuple[str, str, str]
"""Service account and priority class, by which policies select pods; and the record of what policies injected."""
Template: TypeAlias = tuple[str, bytes, bytes, bytes, bytes, bytes, bytes, Identity, ConstraintLimits]
"""Namespace; labels, affinity, spread constraints, node selector, tolerations and owners as raw JSON; identity; limits."""

# Sizes of the caches. An evicted template is not parsed again while a pod has it: see _LIVE.
_SIGNATURES_BYTES: Final = 8 * 2**20  # about 1,500 usual templates, more than watches and requests use at a time
_GATING_BYTES: Final = 2**18
_PORTS_BYTES: Final = 2**19
# Larger templates, from 9 KB of JSON, are rare; while a pod has them a digest finds them. If they stayed here longer
# than their pods, they would hold megabytes in small pieces, and the freed memory between could not be returned to the
# system.
_FAIR_SHARE: Final = 128
_PORT_BYTES: Final = 120

# The beginning of kube-scheduler's report about a binding cycle that failed.
_BINDING_FAILED: Final = tuple(
    f"SchedulerError: {step} " for step in ("running Bind plugin", "running PreBind plugin", "binding")
)

# A non-empty list of namespaces, or a namespace selector, in JSON. No label can look like it, because its value is a
# text.
_NAMES_NAMESPACES: Final = re.compile(rb'"namespaces"\s*:\s*\[\s*"|"namespaceSelector"\s*:\s*\{')

_USUAL_TEXT: Final = 500  # characters of a scheduler's message that are kept for a pending pod

_SIGNATURES: Final[BoundedCache[Template, PodSignature]] = BoundedCache(_SIGNATURES_BYTES, _FAIR_SHARE)
_PORTS: Final[BoundedCache[HostPorts, HostPorts]] = BoundedCache(_PORTS_BYTES)
# Every signature in use, by a digest of its bytes. A template that was evicted from the cache keeps its signature, so
# that an event of its pods does not look like a change. The template does not return to the cache: if more templates
# are in use than fit, it would evict another template that is needed just as soon.
_LIVE: Final[WeakValueDictionary[tuple[ConstraintLimits | Excess, bytes], PodSignature]] = WeakValueDictionary()


def trim_pod(raw: PodJson, limits: ConstraintLimits = DEFAULT_LIMITS) -> Pod:
    """Converts a pod. Raises ``WireError`` naming the field.

    Pods above a limit (`PodSignature.excess`) are converted so:

    1. Above ``limits.podBytes`` nothing is parsed. The pod keeps its labels if it is bound or nominated, so that other
       pods count it, but its own terms have no effect. Such a pod is bound only if the limit was lowered later, or
       without the scheduler.
    2. Above ``limits.hostPorts`` only so many ports are kept.
    3. Above any other limit the pod keeps its constraints, because its anti-affinity counts if it is bound.
    """
    meta, spec, status = raw.metadata or _NO_META, raw.spec or _NO_SPEC, raw.status or _NO_STATUS
    namespace, name = meta.namespace or "", meta.name or ""
    conditions, annotations = bytes(status.conditions), bytes(meta.annotations)
    gates = bytes(spec.scheduling_gates)
    is_gated, is_terminating = gates not in _ABSENT, meta.deletion_timestamp is not None
    # The template is the key of the cache: raw bytes, compared without parsing.
    template = (
        namespace,
        bytes(meta.labels),
        bytes(spec.affinity),
        bytes(spec.topology_spread_constraints),
        bytes(spec.node_selector),
        bytes(spec.tolerations),
        bytes(meta.owner_references),
        (
            spec.service_account_name or DEFAULT_SERVICE_ACCOUNT,
            spec.priority_class_name or "",
            "" if spec.node_name else _injected(annotations, limits),
        ),
        limits,
    )
    rejection = "" if spec.node_name else _rejection(conditions)
    ports = _host_ports(spec)
    # Too many ports are part of the signature's excess, so such a pod does not use the cache of templates.
    excess_of_ports = len(ports) if len(ports) > limits.host_ports else 0
    signature = None if excess_of_ports else _SIGNATURES.get(template)
    if signature is None:
        counts = bool(spec.node_name or status.nominated_node_name)
        signature = _signature(template, counts=counts, ports=excess_of_ports)
    shown = shown_resources(spec, status)
    # During a resize in place, amounts of the status count too.
    parts = request_parts(spec, shown)
    requested = summed(*parts)
    cost, is_own = _deletion_cost(annotations) if _COST in annotations else ("", False)
    return Pod(
        meta.uid or f"{namespace}/{name}",
        name,
        signature,
        shared(spec.node_name or ""),
        is_terminating,
        status.phase in ("Succeeded", "Failed"),
        is_gated,
        spec.priority or 0,
        spec.preemption_policy == "Never",
        status.nominated_node_name or "",
        requested.now,
        status.start_time,
        # The Eviction API marks pods for any client. A pod that it has not deleted is no victim.
        b'"PreemptionByScheduler"' in conditions or (is_terminating and b'"EvictionByEvictionAPI"' in conditions),
        _has_unseen_needs(spec),
        rejection,
        # Most pods have no gating: a search in the bytes of their annotations is all that it costs.
        _gating(meta, spec) if is_gated or _RELEASED in annotations else None,
        quota_facts(raw, parts, shown) if signature.affinity.cross_namespace else NO_FACTS,
        "" if spec.node_name else meta.creation_timestamp or "",
        _shared_ports(ports[: limits.host_ports]) if ports else (),
        shared(spec.scheduler_name or DEFAULT_SCHEDULER),
        rejection.startswith(_BINDING_FAILED),
        ON_ITS_WAY in rejection,
        cost,
        is_own,
        requested.anew,
    )


def _deletion_cost(annotations: bytes) -> tuple[str, bool]:
    """The annotation as it stands, and whether it is ours: then a second annotation has the same value."""
    parsed = decode(_ANNOTATIONS, annotations, "metadata.annotations") or _NO_ANNOTATIONS
    cost = parsed.deletion_cost[:_LONGEST_COST]
    return shared(cost), bool(cost) and cost == parsed.own_cost


def _injected(annotations: bytes, limits: ConstraintLimits) -> str:
    """The record of what policies injected; empty if it is too large to be kept. Read only for pods without a node."""
    if _RECORD not in annotations:
        return ""
    parsed = decode(_ANNOTATIONS, annotations, "metadata.annotations")
    return "" if parsed is None or len(parsed.injected) > limits.pod_bytes else parsed.injected


def _rejection(conditions: bytes) -> str:
    """Reason and message of PodScheduled=False. Read only for pods without a node."""
    # A search in the bytes costs less than parsing all conditions.
    if b'"PodScheduled"' not in conditions:
        return ""
    for condition in decode(_CONDITIONS, conditions, "status.conditions") or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return _brief(f"{condition.reason}: {condition.message}")
    return ""


def _brief(text: str) -> str:
    """A short text, or the beginning and a digest of a long text, which is enough to compare it."""
    if len(text) <= _USUAL_TEXT:
        return text
    return f"{text[:_USUAL_TEXT]}… {blake2b(text.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"


def _has_unseen_needs(spec: PodSpecJson) -> bool:
    """Whether the pod needs things that the index does not count: resource claims and volumes."""
    if spec.resource_claims and bytes(spec.resource_claims) not in _ABSENT:
        return True
    for volume in spec.volumes or ():
        claim, ephemeral = volume.persistent_volume_claim, volume.ephemeral  # an empty `Raw` is false, without a copy
        if (claim and bytes(claim) not in _ABSENT) or (ephemeral and bytes(ephemeral) not in _ABSENT):
            return True
    return False


def _host_ports(spec: PodSpecJson) -> Sequence[PortJson]:
    """The host ports of containers and sidecars.

    Other init containers end before the containers start, and take none.
    """
    ports: list[PortJson] = []
    for container in spec.containers or ():
        if container.ports:
            ports += [port for port in container.ports if port.host_port]
    for container in spec.init_containers or ():
        if container.ports and container.restart_policy == "Always":
            ports += [port for port in container.ports if port.host_port]
    return ports


def _shared_ports(ports: Sequence[PortJson]) -> HostPorts:
    """The ports as values; the replicas of a workload share one tuple."""
    host_ports = tuple(
        [
            HostPort(shared(port.protocol or "TCP"), shared(port.host_ip or ANY_ADDRESS), port.host_port or 0)
            for port in ports
        ]
    )
    known = _PORTS.get(host_ports)
    if known is None:
        _PORTS.put(host_ports, host_ports, _PORT_BYTES * len(host_ports))
    return host_ports if known is None else known


def _signature(template: Template, *, counts: bool, ports: int = 0) -> PodSignature:
    """The signature of a template that is not in the cache: the same object while any pod has it. O(bytes).

    ``counts``: the pod is bound or nominated, so its labels are needed even if it is too large. ``ports``: the number
    of its host ports, if above the limit.
    """
    namespace, *parts, identity, limits = template
    size = sum(map(len, parts))
    # Compared before anything is parsed, so that a pod of a megabyte costs only the reading of its bytes.
    if size > limits.pod_bytes:
        return _large_signature(template, size, counts=counts)
    held = held_by(len(namespace) + size) + len(identity[2])
    # The lengths separate the names, so different templates have different texts.
    names = f"{len(namespace)} {len(identity[0])} {len(identity[1])} {namespace}{''.join(identity)}"
    excess = excess_ports(ports, limits) if ports else None
    key = (limits, _digest(*parts, f"{names} {ports or ''}".encode(errors="surrogatepass")))
    live = _LIVE.get(key)
    if live is None:
        live = _LIVE[key] = _parse_signature(template, held, excess)
        # Too many ports are no part of the template, so such a signature is found in `_LIVE` only.
        if not ports:
            _SIGNATURES.put(template, live, held)
    return live


def _digest(*parts: bytes) -> bytes:
    """A digest of JSON texts and, as the last part, of a namespace: unlike JSON it can contain a zero byte."""
    return blake2b(b"\0".join(parts), digest_size=16).digest()


def _parse_signature(template: Template, held: int, excess: Excess | None) -> PodSignature:
    namespace, labels, affinity, spread, selector, tolerations, owners, identity, limits = template
    parsed, owner = _labels(labels), parse_owner(owners)
    pods, (nodes, preferred) = parse_affinity(affinity, namespace)
    spreads, wanted = parse_spread(spread, parsed), with_node_selector(nodes, selector)
    tolerated = parse_tolerations(tolerations)
    return PodSignature(
        shared(namespace),
        parsed,
        pods,
        spreads,
        wanted,
        preferred,
        tolerated,
        controller_of(owner),
        excess or excess_parts(pods, spreads, wanted, preferred, tolerated, limits),
        held,
        shared(owner.kind),
        shared(identity[0]),
        shared(identity[1]),
        identity[2],
    )


def _large_signature(template: Template, size: int, *, counts: bool) -> PodSignature:
    """The signature of a pod above ``limits.podBytes``: what others count and policies select by, without constraints.

    O(bytes). The bytes are searched for terms that name namespaces, so that no pod leaves the quota scope by its size.
    Labels and owners that exceed the limit by themselves are read only for a pod that is bound or nominated.
    """
    namespace, labels, affinity, _, _, _, owners, identity, limits = template
    excess = excess_bytes(size, limits)
    if len(labels) + len(owners) > limits.pod_bytes:
        owners = b""
        if not counts:
            labels, excess = b"", replace(excess, hides_labels=True)
    is_cross = _NAMES_NAMESPACES.search(affinity) is not None
    names = "\0".join((namespace, *identity[:2])).encode(errors="surrogatepass")
    key = (excess, _digest(labels, owners, b"cross" if is_cross else b"", names))
    live = _LIVE.get(key)
    if live is None:
        live = _LIVE[key] = PodSignature(
            shared(namespace),
            _labels(labels),
            PodAffinity(cross_namespace=True) if is_cross else NO_AFFINITY,
            excess=excess,
            size=held_by(len(labels)),
            owner_kind=shared(parse_owner(owners).kind),
            service_account=shared(identity[0]),
            priority_class=shared(identity[1]),
        )
    return live


def _labels(raw: bytes) -> dict[str, str]:
    parsed = parse_strings(raw, "metadata.labels")
    return parsed if len(parsed) > SHARED_NAMES else {shared(key): shared(value) for key, value in parsed.items()}


# -- objects other than pods

_NO_NODE_SPEC = NodeSpecJson()
_NO_NODE_STATUS = NodeStatusJson()


def trim_node(raw: NodeJson) -> Node:
    """Converts a node: name, labels, taints, unschedulable, allocatable resources, and since when it takes no pod."""
    meta, spec, status = raw.metadata or _NO_META, raw.spec or _NO_NODE_SPEC, raw.status or _NO_NODE_STATUS
    allocatable = node_resources(status.allocatable) if status.allocatable else NO_RESOURCES
    return Node(
        shared(meta.name or ""),
        _labels(bytes(meta.labels)) or NO_LABELS,
        tuple(Taint(t.key or "", t.value or "", t.effect or "") for t in spec.taints or ()),
        bool(spec.unschedulable),
        allocatable,
        _unavailable_at(spec, status),
    )


# While a node has one of these taints, only pods that explicitly tolerate it come to the node.
# https://kubernetes.io/docs/reference/labels-annotations-taints/
_OUT_OF_USE: Final = frozenset({
    *("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"),
    *("node.kubernetes.io/network-unavailable", "node.kubernetes.io/out-of-service", "node.kubernetes.io/disk-pressure"),
    *("node.kubernetes.io/pid-pressure", "node.cloudprovider.kubernetes.io/uninitialized"),
    *("node.cloudprovider.kubernetes.io/shutdown", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"),
})  # fmt: skip


def _unavailable_at(spec: NodeSpecJson, status: NodeStatusJson) -> float | None:
    """Since when a node takes no pod, by its object: the earliest time of anything that keeps pods off."""
    texts = [
        taint.time_added
        for taint in spec.taints or ()
        if taint.key in _OUT_OF_USE and taint.effect in (NO_SCHEDULE, NO_EXECUTE)
    ]
    texts += [
        condition.last_transition_time
        for condition in status.conditions or ()
        if condition.type == "Ready" and condition.status in ("False", "Unknown")
    ]
    if not (texts or spec.unschedulable):
        return None
    # A cordon has no time in the object. Then, or with unreadable times, since when is not known.
    times = [time.timestamp() for text in texts if (time := read_time(text)) is not None]
    return min(times, default=inf)


def trim_topology_domains(raw: TopologyDomainsJson) -> TopologyDomains:
    """Converts declared topology domains. A time in an unknown form counts as none."""
    spec = raw.spec or TopologyDomainsSpecJson()
    excluded = tuple(
        ExcludedDomain(domain.domain, _seconds(domain.until), _seconds(domain.since), domain.reason or "")
        for domain in spec.excluded or ()
    )
    name = (raw.metadata or _NO_META).name or ""
    return TopologyDomains(name, spec.topology_key, tuple(spec.domains or ()), excluded)


def _seconds(text: str | None) -> float | None:
    moment = read_time(text)
    return None if moment is None else moment.timestamp()


def trim_namespace(raw: NamespaceJson) -> Namespace:
    """Converts a namespace: name and labels."""
    meta = raw.metadata or _NO_META
    return Namespace(shared(meta.name or ""), _labels(bytes(meta.labels)) or NO_LABELS)


def trim_workload(raw: WorkloadJson, kind: str) -> Workload:
    """Converts a workload. In the core group its selector is a plain map.

    A selector above ``podBytes`` selects nothing.
    """
    meta = raw.metadata or _NO_META
    selector = bytes(raw.spec.selector) if raw.spec else b""
    selector = b"" if len(selector) > DEFAULT_LIMITS.pod_bytes else selector
    parse = _map_selector if kind in ("Service", "ReplicationController") else parse_label_selector
    return Workload(kind, meta.namespace or "", meta.name or "", parse(selector, "spec.selector"))


_NO_BUDGET_STATUS = BudgetStatusJson()


def trim_budget(raw: BudgetJson) -> DisruptionBudget:
    """Converts a disruption budget. Without a valid selector it protects no pod."""
    meta, status = raw.metadata or _NO_META, raw.status or _NO_BUDGET_STATUS
    selector = BUDGET_SELECTOR.read(bytes(raw.spec.selector) if raw.spec else b"")
    return DisruptionBudget(
        meta.namespace or "",
        meta.name or "",
        selector or NOTHING,
        status.disruptions_allowed or 0,
        frozenset(status.disrupted_pods or ()),
    )


def _map_selector(raw: bytes, path: str) -> LabelSelector | None:
    """Decodes a selector in the form of a map; None if it is missing or invalid."""
    if raw in (b"", b"null"):
        return None
    try:
        return parse_selector(parse_strings(raw, path))
    except SelectorError:
        return None


# -- what the release of groups reads: gates of a pod, its controller, and a few annotations


class _GateJson(msgspec.Struct):
    name: str = ""


_GATES: Final = msgspec.json.Decoder(list[_GateJson] | None)


def _gating(meta: MetaJson, spec: PodSpecJson) -> Gating:
    """The gating of a pod that is gated or that we have released. Raises ``WireError``."""
    gates = bytes(spec.scheduling_gates)
    released, numbers = _annotations(bytes(meta.annotations))
    return Gating(
        _gates(gates),
        shared(parse_owner(bytes(meta.owner_references)).uid),
        numbers,
        released if gates in _ABSENT else "",
        read_time(meta.creation_timestamp),
    )


@cached(_GATING_BYTES, lambda raw: held_by(len(raw)))
def _gates(raw: bytes) -> tuple[str, ...]:
    gates = decode(_GATES, raw, "spec.schedulingGates") or ()
    return tuple(shared(gate.name) for gate in gates[:MOST_GATES])


@cached(_GATING_BYTES, lambda raw: held_by(len(raw)))
def _annotations(raw: bytes) -> tuple[str, tuple[tuple[str, int], ...]]:
    """The group of the release, and by key the first annotations whose values are numbers."""
    annotations = parse_strings(raw, "metadata.annotations")
    # Sorted by key before it is cut, so that equal pods keep equal annotations.
    numbers = sorted((key, value) for key, value in annotations.items() if _NUMBER.fullmatch(value))[:MOST_NUMBERS]
    released, _, _ = annotations.get(RELEASED_ANNOTATION, "").rpartition("@")
    return shared(released), tuple((shared(key), int(value)) for key, value in numbers)


# -- large objects, which are read in steps; the functions above then find the results


def prepare_pod(raw: PodJson) -> Steps[None]:
    """The requests of a pod. Raises ``WireError``."""
    if raw.spec is not None:
        shown = shown_resources(raw.spec, raw.status or _NO_STATUS)
        yield from REQUESTS.prepare(request_parts(raw.spec, shown))


def prepare_node(raw: NodeJson) -> Steps[None]:
    """What a node offers. Raises ``WireError``."""
    if raw.status is not None and raw.status.allocatable:
        yield from OFFERED.prepare(raw.status.allocatable)


def prepare_budget(raw: BudgetJson) -> Steps[None]:
    """The selector of a disruption budget. Raises ``WireError``."""
    if raw.spec is not None:
        yield from BUDGET_SELECTOR.prepare(bytes(raw.spec.selector))
